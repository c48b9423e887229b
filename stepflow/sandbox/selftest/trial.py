"""Tries, before a model is asked, to get out of the toolbox the way a tool would (security.md "Start-up")."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.domain.checkout import CommandRequest
from stepflow.domain.conversation import ToolUse
from stepflow.domain.secrets import Redactor
from stepflow.domain.words import CanaryState
from stepflow.errors import IsolationError
from stepflow.sandbox.environment import is_never_given
from stepflow.sandbox.identity import closed_interpreter
from stepflow.sandbox.selftest.canaries import ALWAYS, Canary, CanaryReport, Location
from stepflow.sandbox.selftest.outside import try_everything
from stepflow.sandbox.selftest.planting import Attempt, Planting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stepflow.sandbox.box import Toolbox
    from stepflow.sandbox.selftest.outside import Outside

    #: What got through, and by what.
    Reached = list[tuple[Attempt, str]]

_PROBE = Path(__file__).parents[1] / "child" / "probe.py"
_TIMEOUT = 60.0
_SHELL, _FILE_TOOL = "shell", "file tool"
#: Kinds whose answer is text that the parent judges; the shell's output has no room for it.
_TEXTS = frozenset({"bytes", "git-config"})
#: Of many ways the first ones say enough.
_SHOWN = 3
_LAST_WORDS = 500


def try_canaries(toolbox: Toolbox, outside: Outside) -> CanaryReport:
    """Plant, try, take back. Raises `IsolationError` when it cannot be tried."""
    reached: Reached = []
    with Planting(checkout=toolbox.checkout, uid=toolbox.uid, gid=toolbox.gid, expect=toolbox.expect) as planting:
        try_everything(planting, outside, toolbox.options.network)
        try:
            _by_shell(toolbox, planting.attempts, Redactor(outside.secrets), reached)
            _by_file_tool(toolbox, planting.files, reached)
        except BaseException:
            # A probe that is still alive while the canaries are removed could leave something in their place.
            toolbox.close()
            raise
        reached += ((attempt, _SHELL) for attempt in planting.changed())
        tried = {attempt.location for attempt in planting.attempts} | {Location.ENVIRONMENT, Location.DESCRIPTORS}
    return CanaryReport(canaries=tuple(_judge(location, tried, reached) for location in Location))


def _judge(location: Location, tried: set[Location], reached: Reached) -> Canary:
    ways = _ways([(attempt, by) for attempt, by in reached if attempt.location is location])
    state = CanaryState.REACHED if ways else CanaryState.UNREACHED if location in tried else CanaryState.NOT_HERE
    refuses = location in ALWAYS or (location is Location.DOCKER and os.geteuid() == 0)
    return Canary(location=location, state=state, ways=ways, refuses=refuses)


def _ways(reached: Reached) -> str:
    """All of them in a few words, empty when there were none."""
    kinds: dict[str, dict[str, None]] = {}
    for attempt, _ in reached:
        kinds.setdefault(attempt.shown, {})[attempt.kind] = None
    described = [f"{shown} ({', '.join(names)})" for shown, names in kinds.items()]
    more = f" and {len(described) - _SHOWN} more" if len(described) > _SHOWN else ""
    by = " and ".join(dict.fromkeys(by for _, by in reached))
    return f"by {by}: {', '.join(described[:_SHOWN])}{more}" if reached else ""


def _by_shell(toolbox: Toolbox, attempts: Sequence[Attempt], redact: Redactor, reached: Reached) -> None:
    """Once in the shell that `bash` keeps, once as the single command that a validator is."""
    short = [attempt for attempt in attempts if attempt.kind not in _TEXTS]
    result = toolbox.run_tool(
        ToolUse(id="self-test", name="bash", input={"command": shlex.join(_probe(toolbox, short))})
    )
    _read_probe(result.text, short, redact, reached)
    done = toolbox.run_command(CommandRequest(argv=_probe(toolbox, attempts), timeout=_TIMEOUT))
    _read_probe(done.stdout or done.stderr or done.error, attempts, redact, reached)


def _probe(toolbox: Toolbox, attempts: Sequence[Attempt]) -> tuple[str, ...]:
    """The program itself is in the command: no file of ours need be readable for the tools."""
    python = "python3" if closed_interpreter(toolbox.uid) else sys.executable
    tried = json.dumps([[attempt.kind, attempt.target] for attempt in attempts])
    return (python, "-I", "-S", "-c", _PROBE.read_text(encoding="utf-8"), tried)


def _read_probe(output: str, attempts: Sequence[Attempt], redact: Redactor, reached: Reached) -> None:
    """Read what one probe reports."""
    try:
        answer = json.loads(output)
    except ValueError:
        raise IsolationError(
            f"The self-test of the sandbox could not be run in it: {output.strip()[-_LAST_WORDS:] or 'no answer'}.",
            hint="The tools' user must be able to run Python 3: install it where every user may enter.",
        ) from None
    for attempt, result in zip(attempts, answer["results"], strict=True):
        if not result or (result.startswith(":") and _holds_secret(result[1:], redact)):
            reached.append((attempt, _SHELL))
    for leads_to in answer["descriptors"]:
        reached.append((Attempt(location=Location.DESCRIPTORS, kind="open", target="", shown=leads_to), _SHELL))
    for name in _exposed_variables(answer["environment"], redact):
        reached.append((Attempt(location=Location.ENVIRONMENT, kind="set", target="", shown=name), _SHELL))


def _exposed_variables(environment: Mapping[str, str], redact: Redactor) -> Iterator[str]:
    """The variables that no tool may see. Names and values come as hex, since they may be any bytes."""
    for name_hex, value in environment.items():
        name = bytes.fromhex(name_hex).decode("utf-8", "replace")
        if is_never_given(name) or _holds_secret(name_hex, redact) or _holds_secret(value, redact):
            yield redact(name)


def _holds_secret(data: str, redact: Redactor) -> bool:
    text = bytes.fromhex(data).decode("utf-8", "replace")
    return redact(text) != text


def _by_file_tool(toolbox: Toolbox, files: Sequence[Attempt], reached: Reached) -> None:
    for attempt in files:
        result = toolbox.run_tool(ToolUse(id="self-test", name="read", input={"file_path": attempt.target}))
        if not result.is_error:
            reached.append((attempt, _FILE_TOOL))
