"""Tries, before a model is asked, to get out of the toolbox the way a tool would (security.md "Start-up")."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.domain.checkout import CommandRequest
from stepflow.domain.conversation import ToolUse
from stepflow.domain.secrets import Redactor
from stepflow.domain.words import CanaryState, Isolation
from stepflow.errors import IsolationError
from stepflow.sandbox.canaries import Attempt, Location, Planting, try_everything
from stepflow.sandbox.environment import is_never_given
from stepflow.sandbox.identity import closed_interpreter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stepflow.sandbox.box import Toolbox
    from stepflow.sandbox.canaries import Outside

_PROBE = Path(__file__).parent / "child" / "probe.py"
_TIMEOUT = 60.0
_SHELL, _FILE_TOOL = "shell", "file tool"
#: Kinds whose answer is text that the parent judges; the shell's output has no room for it.
_TEXTS = frozenset({"bytes", "git-config"})
#: Of many ways the first ones say enough.
_SHOWN = 3
_LAST_WORDS = 500
_REQUIRED_HINT = (
    "Run the action in its own container on a kernel with Landlock (`stepflow preflight` shows each layer), or set "
    "`isolation: best-effort` where you trust whoever writes issues and what the repository runs."
)
_ALWAYS_HINT = (
    "This is refused with `isolation: best-effort` too. Remove what leads there, such as a secret in pass-env or in "
    "git's configuration or a socket that every user may use, or run the action in its own container."
)


@dataclass(frozen=True, kw_only=True)
class Canary:
    """One place. `ways` says by what and how it was reached. `refuses`: reaching it ends every run."""

    location: Location
    state: CanaryState
    ways: str = ""
    refuses: bool = False

    @property
    def description(self) -> str:
        """The state, with the way if there was one."""
        return f"{self.state} {self.ways}" if self.ways else self.state.value

    def __str__(self) -> str:
        return f"{self.location}, {self.description} (what should stop that: {self.location.layer})"


@dataclass(frozen=True, kw_only=True)
class CanaryReport:
    """What the self-test found, place by place."""

    canaries: tuple[Canary, ...]

    @property
    def reached(self) -> tuple[Canary, ...]:
        """Where a tool got that it should not."""
        return tuple(canary for canary in self.canaries if canary.state is CanaryState.REACHED)

    @property
    def states(self) -> Mapping[str, str]:
        """Each place's state, for journal and report."""
        return {canary.location.value: canary.description for canary in self.canaries}

    @property
    def open(self) -> tuple[str, ...]:
        """What is open and no reason to refuse, in one line each."""
        return tuple(f"open: {canary}" for canary in self.reached if not canary.refuses)

    def demand(self, isolation: Isolation) -> None:
        """Raises `IsolationError` when something was reached that this isolation does not let pass."""
        bad = [canary for canary in self.reached if canary.refuses or isolation is Isolation.REQUIRED]
        if bad:
            raise IsolationError(
                f"The self-test got out of the sandbox, so no model is asked. {'; '.join(map(str, bad))}.",
                hint=_ALWAYS_HINT if any(canary.refuses for canary in bad) else _REQUIRED_HINT,
            )


def try_canaries(toolbox: Toolbox, outside: Outside) -> CanaryReport:
    """Plant, try, take back. Raises `IsolationError` when it cannot be tried."""
    with Planting(checkout=toolbox.checkout, uid=toolbox.uid, gid=toolbox.gid) as planting:
        try_everything(planting, outside, toolbox.options.network)
        if toolbox.egress:
            planting.enter_context(toolbox.egress.uncounted())
        try:
            by_shell = list(_by_shell(toolbox, planting.attempts, Redactor(outside.secrets)))
            by_file_tool = list(_by_file_tool(toolbox, planting.attempts))
        except BaseException:
            # A probe that is still alive while the canaries are removed could leave something in their place.
            toolbox.close()
            raise
        reached = {_SHELL: [*by_shell, *planting.changed()], _FILE_TOOL: by_file_tool}
        tried = {attempt.location for attempt in planting.attempts} | {Location.ENVIRONMENT, Location.DESCRIPTORS}
    return CanaryReport(canaries=tuple(_judge(location, tried, reached) for location in Location))


def _judge(location: Location, tried: set[Location], reached: Mapping[str, Sequence[Attempt]]) -> Canary:
    here = {by: [attempt for attempt in attempts if attempt.location is location] for by, attempts in reached.items()}
    ways = _ways({by: attempts for by, attempts in here.items() if attempts})
    state = CanaryState.REACHED if ways else CanaryState.UNREACHED if location in tried else CanaryState.NOT_HERE
    refuses = location.always or (location is Location.DOCKER and os.geteuid() == 0)
    return Canary(location=location, state=state, ways=ways, refuses=refuses)


def _ways(reached: Mapping[str, Sequence[Attempt]]) -> str:
    """All of them in a few words, empty when there were none."""
    kinds: dict[str, dict[str, None]] = {}
    for attempt in (attempt for attempts in reached.values() for attempt in attempts):
        kinds.setdefault(attempt.shown, {})[attempt.kind] = None
    described = [f"{shown} ({', '.join(names)})" for shown, names in kinds.items()]
    more = f" and {len(described) - _SHOWN} more" if len(described) > _SHOWN else ""
    return f"by {' and '.join(reached)}: {', '.join(described[:_SHOWN])}{more}" if reached else ""


def _by_shell(toolbox: Toolbox, attempts: Sequence[Attempt], redact: Redactor) -> Iterator[Attempt]:
    """Once in the shell that `bash` keeps, once as the single command that a validator is."""
    short = [attempt for attempt in attempts if attempt.kind not in _TEXTS]
    command = shlex.join(_probe(toolbox, short))
    result = toolbox.run_tool(ToolUse(id="self-test", name="bash", input={"command": command}))
    yield from _read_probe(result.text, short, redact)
    done = toolbox.run_command(CommandRequest(argv=_probe(toolbox, attempts), timeout=_TIMEOUT))
    yield from _read_probe(done.stdout or done.stderr or done.error, attempts, redact)


def _probe(toolbox: Toolbox, attempts: Sequence[Attempt]) -> tuple[str, ...]:
    """The program itself is in the command: no file of ours need be readable for the tools."""
    python = "python3" if closed_interpreter(toolbox.uid) else sys.executable
    tried = json.dumps([[attempt.kind, attempt.target] for attempt in attempts])
    return (python, "-I", "-S", "-c", _PROBE.read_text(encoding="utf-8"), tried)


def _read_probe(output: str, attempts: Sequence[Attempt], redact: Redactor) -> Iterator[Attempt]:
    """What one probe reports that it reached."""
    try:
        answer = json.loads(output)
    except ValueError:
        said = redact(output.strip())[-_LAST_WORDS:] or "no answer"
        raise IsolationError(
            f"The self-test of the sandbox could not be run in it: {said}.",
            hint="The tools' user must be able to run Python 3: install it where every user may enter.",
        ) from None
    for attempt, result in zip(attempts, answer["results"], strict=True):
        if not result or (result.startswith(":") and _holds_secret(result[1:], redact)):
            yield attempt
    for leads_to in answer["descriptors"]:
        yield Attempt(location=Location.DESCRIPTORS, kind="open", shown=leads_to)
    # Names and values come as hex, since they may be any bytes.
    for name_hex, value in answer["environment"].items():
        name = bytes.fromhex(name_hex).decode("utf-8", "replace")
        if is_never_given(name) or _holds_secret(name_hex, redact) or _holds_secret(value, redact):
            yield Attempt(location=Location.ENVIRONMENT, kind="set", shown=redact(name))


def _holds_secret(data: str, redact: Redactor) -> bool:
    text = bytes.fromhex(data).decode("utf-8", "replace")
    return redact(text) != text


def _by_file_tool(toolbox: Toolbox, attempts: Sequence[Attempt]) -> Iterator[Attempt]:
    for attempt in attempts:
        if attempt.by_file_tool:
            use = ToolUse(id="self-test", name="read", input={"file_path": attempt.target})
            if not toolbox.run_tool(use).is_error:
                yield attempt
