"""The toolbox program: enters the sandbox, then answers one request after the other until the pipe closes."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from . import file_tools, wire
from .baseline import Baseline
from .child_processes import ChildProcesses, ParentGone
from .clean_tree import Look, TreeWatch, lines
from .commands import Shell, ShellRefusal, run_command
from .enter_sandbox import CannotEnterSandbox, OomScore, SandboxConfig, enter_sandbox
from .file_tools import flag, number, optional_text
from .git import FILES_LIMIT, Repository, bundle, check_repository_fingerprint, repository_fingerprint
from .paths import Refusal, digests
from .snapshots import Snapshots
from .workers import run_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_REQUESTS = 0
_ANSWERS = 1
_PIECE = 65536
#: For reading every file that validators depend on.
_DIGEST_SECONDS = 120.0
_NO_REPOSITORY = "not a git repository (or any of the parent directories): .git"
_FILE_TOOLS: Mapping[str, Callable[[str, Mapping[str, object]], str]] = {
    "read": file_tools.read,
    "write": file_tools.write,
    "edit": file_tools.edit,
    "glob": file_tools.glob,
    "grep": file_tools.grep,
}


def main() -> int:
    """Run until the parent closes the pipe: 0. A first frame that cannot be met: 1, after an answer that says why."""
    parent = os.getppid()
    requests = _Requests()
    try:
        first = {name: value for name, value in requests.wait().items() if name != "op"}
        settings = SandboxConfig(**cast("dict[str, Any]", first))
        oom_score = OomScore(wanted="limits" not in settings.disabled_layers)
        facts = enter_sandbox(settings, oom_score)
    except CannotEnterSandbox as exc:
        wire.send(_ANSWERS, {"problem": str(exc)})
        return 1
    except ParentGone:
        return 0
    if os.getppid() != parent:
        return 0
    supervisor = _Supervisor(settings, requests, oom_score, scoped=facts.scopes_signals)
    signal.signal(signal.SIGTERM, partial(supervisor.on_termination, parent))
    wire.send(_ANSWERS, asdict(facts))
    return supervisor.serve()


class _Requests:
    """The frames that come in."""

    def __init__(self) -> None:
        self._frames = wire.Frames()

    def wait(self) -> Mapping[str, object]:
        """The next request. Raises `ParentGone` at the pipe's end."""
        return wire.unpack(self.wait_raw())

    def wait_raw(self) -> bytes:
        """The next frame's payload."""
        while not (frame := self._frames.take()):
            data = os.read(_REQUESTS, _PIECE)
            if not data:
                raise ParentGone
            self._frames.feed(data)
        return frame[1]


class _Supervisor:
    def __init__(self, settings: SandboxConfig, requests: _Requests, oom_score: OomScore, *, scoped: bool) -> None:
        self._settings, self._requests = settings, requests
        self._children = ChildProcesses(settings, request_fd=_REQUESTS, oom_score=oom_score, scoped=scoped)
        self._shell: Shell | None = None
        self._repository = Repository.locate(settings.checkout)
        self._fingerprint = repository_fingerprint(settings.checkout)
        self._watch = TreeWatch(self._children, self._repository, self._fingerprint) if self._repository else None
        self._closing: Look | None = None
        self._baseline: Baseline | None = None
        self._snapshots = Snapshots(self._children, settings.checkout)

    def serve(self) -> int:
        """Answer until the pipe closes; 0 says that nothing is left alive then."""
        left: tuple[int, ...] = ()
        try:
            while True:
                wire.send(_ANSWERS, self._answer(self._requests.wait()))
        except (ParentGone, BrokenPipeError):
            pass
        finally:
            left = self._children.end()
        return 2 if left else 0

    def on_termination(self, parent: int, _number: int, _frame: object) -> None:
        """The kernel says that the parent is dead, or only that the thread of it that started us has ended."""
        if os.getppid() == parent:
            return
        self._children.end()
        os._exit(0)

    def _answer(self, request: Mapping[str, object]) -> dict[str, object]:  # noqa: PLR0911 - one return per request
        match request["op"]:
            case "tool":
                inputs = cast("Mapping[str, object]", request["input"])
                return self._tool(str(request["name"]), inputs)
            case "command":
                argv = [str(argument) for argument in cast("list[object]", request["argv"])]
                self._drop_shell()
                return _or_problem(
                    partial(self._command, argv, float(str(request["timeout"])), bool(request["checks"]))
                )
            case "end_step":
                return {"alive": list(self._end_step())}
            case "tree":
                return _or_problem(self._tree)
            case "guard":
                self._end_step()
                return _or_problem(lambda: self._guard(request))
            case "bundle":
                self._drop_shell()
                return _or_problem(lambda: self._bundle(request))
            case "take_snapshot":
                return _or_problem(lambda: self._snapshots.take(request, partial(wire.send_raw, _ANSWERS)))
            case "restore_snapshot":
                self._drop_shell()
                return _or_problem(lambda: self._snapshots.restore(request, self._requests.wait_raw))
            case other:
                return {"problem": f"the toolbox knows no request {other!r}"}

    def _tool(self, name: str, inputs: Mapping[str, object]) -> dict[str, object]:
        try:
            if name == "bash":
                return self._bash(inputs)
            work = partial(_FILE_TOOLS[name], self._settings.checkout, inputs)
            return {"text": run_worker(self._children, work, self._settings.file_timeout)}
        except (Refusal, ShellRefusal) as exc:
            return {"text": f"{name}: {exc}", "is_error": True}

    def _command(self, argv: list[str], timeout: float, checks: bool) -> dict[str, object]:
        """A command that checks meets HOME and TMPDIR as `setup` left them, and no byte code but what it compiles."""
        if not (checks and self._baseline):
            return asdict(run_command(self._children, argv, timeout))
        self._children.end()
        restored = self._baseline.restore()
        own = {"PYTHONPYCACHEPREFIX": os.path.join(os.environ["TMPDIR"], "pycache")}
        return {**asdict(run_command(self._children, argv, timeout, extra_env=own)), "restored": restored}

    def _tree(self) -> dict[str, object]:
        look = self._watching().look()
        uncommitted = [one.path for one in look.differences][:FILES_LIMIT]
        return {"commit": look.commit, "tree": look.tree, "uncommitted": uncommitted, "problem": ""}

    def _watching(self) -> TreeWatch:
        if self._watch is None:
            raise Refusal(_NO_REPOSITORY)
        return self._watch

    def _bundle(self, request: Mapping[str, object]) -> dict[str, object]:
        """Everything that still runs is killed first, so that nothing moves HEAD meanwhile."""
        self._children.end()
        if self._repository is None:
            raise Refusal(_NO_REPOSITORY)
        check_repository_fingerprint(self._settings.checkout, self._fingerprint)
        return bundle(
            self._children,
            self._repository,
            base=str(request["base"]),
            commit=str(request["commit"]) or self._repository.head(),
            limit=int(str(request["limit"])),
            hand_on=partial(wire.send_raw, _ANSWERS),
        )

    def _guard(self, request: Mapping[str, object]) -> dict[str, object]:
        """What the engine asks about a validator, with nothing of the tools alive."""
        match request["ask"]:
            case "begin":
                self._baseline = Baseline(os.environ["HOME"], os.environ["TMPDIR"])
                self._watching().begin()
                return {}
            case "closing":
                self._closing = None
                self._closing = look = self._watching().look()
                return {
                    "commit": look.commit,
                    "tree": look.tree,
                    "changed": [one.path for one in look.tracked][:FILES_LIMIT],
                    "untracked": [one.path for one in look.untracked][:FILES_LIMIT],
                }
            case "look_again":
                return self._look_again()
            case _:
                return self._digests(request)

    def _look_again(self) -> dict[str, object]:
        if self._closing is None:
            raise Refusal("the checkout could not be looked at before the checks")
        look = self._watching().look(self._closing.commit)
        known = {one.path for one in self._closing.untracked}
        return {
            "moved": list(look.moved_since(self._closing))[:FILES_LIMIT],
            "hidden": lines(look.differences),
            "created": [one.path for one in look.untracked if one.path not in known][:FILES_LIMIT],
            "ignore_files": list(look.new_ignores)[:FILES_LIMIT],
        }

    def _digests(self, request: Mapping[str, object]) -> dict[str, object]:
        """By a worker, as the file tools: a disk that hangs or files without end stop only that one."""
        patterns = [str(pattern) for pattern in cast("list[object]", request["patterns"])]
        work = partial(digests, self._settings.checkout, patterns)
        return {"files": json.loads(run_worker(self._children, work, _DIGEST_SECONDS))}

    def _bash(self, inputs: Mapping[str, object]) -> dict[str, object]:
        restart, command = flag(inputs, "restart"), optional_text(inputs, "command")
        if restart:
            self._end_step()
        if not command.strip():
            if restart:
                return {"text": "the shell was restarted in the repository root"}
            raise Refusal("command is missing")
        timeout = number(inputs, "timeout_ms") / 1000 or self._settings.bash_timeout
        self._shell = self._shell or Shell(self._children)
        result = self._shell.run(command, min(timeout, self._settings.bash_max_timeout))
        if not self._shell.alive:
            self._drop_shell()
        return {"text": result.text, "is_error": result.failed, "exit_code": result.exit_code}

    def _end_step(self) -> tuple[int, ...]:
        self._drop_shell()
        return self._children.end()

    def _drop_shell(self) -> None:
        if self._shell:
            self._shell.close()
            self._shell = None


def _or_problem(ask: Callable[[], dict[str, object]]) -> dict[str, object]:
    try:
        return ask()
    except Refusal as exc:
        return {"problem": str(exc)}
    except OSError as exc:
        return {"problem": exc.strerror or str(exc)}


if __name__ == "__main__":
    sys.exit(main())
