"""The toolbox program: enters the sandbox, then answers one request after the other until their channel closes."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from . import file_tools, wire
from .baseline import Baseline, SharedMemory
from .child_processes import ChildProcesses, ParentGone
from .clean_tree import Look, TreeWatch, lines
from .commands import Shell, run_command
from .enter_sandbox import CannotEnterSandbox, OomScore, SandboxConfig, enter_sandbox
from .file_tools import value_of
from .git import (
    FILES_LIMIT,
    LimitedSink,
    Repository,
    TooLarge,
    bundle,
    check_repository_fingerprint,
    read_objects,
    repository_fingerprint,
)
from .judged_repository import JudgedRepository
from .paths import Refusal, digests, size_of
from .workers import run_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .clean_tree import Difference

_REQUESTS = 0
_ANSWERS = 1
_PIECE = 65536
#: What a server is given: its standard input, output and error.
_STANDARD_DESCRIPTORS = 3
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
        settings = SandboxConfig(**requests.wait()["config"])
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
    """The frames that come in, and the descriptors that came with them."""

    def __init__(self) -> None:
        self._frames = wire.Frames()
        self._socket = socket.socket(fileno=_REQUESTS)
        self._descriptors: list[int] = []

    def wait(self) -> dict[str, Any]:
        """The next request. Raises `ParentGone` at the channel's end."""
        return wire.unpack(self.wait_raw())

    def wait_raw(self) -> bytes:
        """The next frame's payload."""
        while not (frame := self._frames.take()):
            data, descriptors, _, _ = socket.recv_fds(self._socket, _PIECE, _STANDARD_DESCRIPTORS)
            if not data:
                raise ParentGone
            self._descriptors += descriptors
            self._frames.feed(data)
        return frame[1]

    def take_descriptors(self) -> list[int]:
        """Those that came with the last request, to be closed."""
        taken, self._descriptors = self._descriptors, []
        return taken


class _Supervisor:
    def __init__(self, settings: SandboxConfig, requests: _Requests, oom_score: OomScore, *, scoped: bool) -> None:
        self._settings, self._requests = settings, requests
        self._children = ChildProcesses(settings, request_fd=_REQUESTS, oom_score=oom_score, scoped=scoped)
        self._shell: Shell | None = None
        self._repository = Repository.locate(settings.checkout)
        self._fingerprint = repository_fingerprint(settings.checkout)
        self._watch = TreeWatch(self._children, self._repository, self._fingerprint) if self._repository else None
        private = os.path.join(os.path.dirname(os.environ["TMPDIR"]), "snapshots")
        self._judged = JudgedRepository(self._children, self._repository, private) if self._repository else None
        self._closing: Look | None = None
        self._baseline: Baseline | None = None
        self._shared_memory: SharedMemory | None = None
        #: What the engine asks, beside tools; each may raise `Refusal` or `OSError` with the reason.
        self._operations: Mapping[str, Callable[[dict[str, Any]], dict[str, object]]] = {
            "command": self._command,
            "start_server": self._start_server,
            "end_step": self._end_step,
            "tree": self._tree,
            "guard": self._guard,
            "bundle": self._bundle,
            "read_objects": self._read_objects,
            "program": self._program,
            "sizes": self._sizes,
        }

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

    def _answer(self, request: dict[str, Any]) -> dict[str, object]:
        if request["op"] == "tool":
            return self._tool(request["name"], request["input"])
        try:
            return self._operations[request["op"]](request)
        except Refusal as exc:
            return {"problem": str(exc)}
        except OSError as exc:
            return {"problem": exc.strerror or str(exc)}

    def _tool(self, name: str, inputs: Mapping[str, object]) -> dict[str, object]:
        try:
            if name == "bash":
                return self._bash(inputs)
            work = partial(_FILE_TOOLS[name], self._settings.checkout, inputs)
            return {"text": run_worker(self._children, work, self._settings.file_timeout)}
        except Refusal as exc:
            return {"text": f"{name}: {exc}", "is_error": True}

    def _command(self, request: dict[str, Any]) -> dict[str, object]:
        """A command that checks finds HOME, TMPDIR and shared memory as `setup` left them, git's own files as they were
        then beside the commits of the work, and no byte code but what it compiles."""
        argv, timeout = request["argv"], request["timeout"]
        self._drop_shell()
        if not (request["checks"] and self._baseline):
            return asdict(run_command(self._children, argv, timeout, cwd=self._settings.working_directory))
        self._children.end()
        restored = self._baseline.restore()
        if self._shared_memory:
            self._shared_memory.restore()
        own = {"PYTHONPYCACHEPREFIX": os.path.join(os.environ["TMPDIR"], "pycache")}
        judged = self._judged.in_place(_paths(self._closing.tracked)) if self._judged and self._closing else None
        with judged or nullcontext():
            ended = run_command(self._children, argv, timeout, extra_env=own, cwd=self._settings.working_directory)
        return {**asdict(ended), "restored": restored}

    def _start_server(self, request: dict[str, Any]) -> dict[str, object]:
        """A process of the step like any other, whose standard descriptors are the parent's."""
        argv, descriptors = request["argv"], self._requests.take_descriptors()
        try:
            stdin, stdout, stderr = descriptors
            self._children.start(
                argv,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                extra_env=request["env"],
                cwd=self._settings.working_directory,
            )
        except (OSError, ValueError) as exc:
            raise Refusal(f"`{argv[0]}` could not be started: {getattr(exc, 'strerror', None) or exc}") from exc
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return {}

    def _end_step(self, _request: object = None) -> dict[str, object]:
        self._drop_shell()
        return {"alive": self._children.end()}

    def _tree(self, _request: object) -> dict[str, object]:
        look = self._watching().look()
        return {"commit": look.commit, "tree": look.tree, "uncommitted": _paths(look.differences)}

    def _watching(self) -> TreeWatch:
        if self._watch is None:
            raise Refusal(_NO_REPOSITORY)
        return self._watch

    def _bundle(self, request: dict[str, Any]) -> dict[str, object]:
        self._end_step()
        if self._repository is None:
            raise Refusal(_NO_REPOSITORY)
        check_repository_fingerprint(self._settings.checkout, self._fingerprint)
        return bundle(
            self._children,
            self._repository,
            base=request["base"],
            commit=request["commit"] or self._repository.head(),
            limit=request["limit"],
            hand_on=partial(wire.send_raw, _ANSWERS),
        )

    def _read_objects(self, request: dict[str, Any]) -> dict[str, object]:
        if self._repository is None:
            raise Refusal(_NO_REPOSITORY)
        check_repository_fingerprint(self._settings.checkout, self._fingerprint)
        return read_objects(
            self._children,
            self._repository,
            request["arguments"],
            base=request["base"],
            stdin=request["stdin"],
            limit=request["limit"],
            hand_on=partial(wire.send_raw, _ANSWERS),
        )

    def _guard(self, request: dict[str, Any]) -> dict[str, object]:
        """What the engine asks about a validator, with nothing of the tools alive."""
        self._end_step()
        match request["ask"]:
            case "begin":
                self._baseline = Baseline(os.environ["HOME"], os.environ["TMPDIR"])
                if self._settings.uid is not None:
                    self._shared_memory = SharedMemory()
                self._watching().begin()
                if self._judged:
                    self._judged.begin()
                return {}
            case "closing":
                self._closing = None
                self._closing = look = self._look()
                return {
                    "commit": look.commit,
                    "tree": look.tree,
                    "changed": _paths(look.tracked),
                    "untracked": _paths(look.untracked),
                }
            case "look_again":
                return self._look_again()
            case _:
                # By a worker, as the file tools: a disk that hangs or files without end stop only that one.
                work = partial(digests, self._settings.working_directory, request["patterns"])
                return {"files": json.loads(run_worker(self._children, work, _DIGEST_SECONDS))}

    def _look(self, commit: str = "") -> Look:
        """A look by objects that were read anew. One at a closing writes committed files as a clone has them."""
        watch = self._watching()
        objects = self._judged.prepare(commit or watch.head()) if self._judged else None
        return watch.look(commit, objects=objects, writes_anew=not commit)

    def _look_again(self) -> dict[str, object]:
        if self._closing is None:
            raise Refusal("the checkout could not be looked at before the checks")
        look = self._look(self._closing.commit)
        known = {one.path for one in self._closing.untracked}
        return {
            "moved": list(look.moved_since(self._closing))[:FILES_LIMIT],
            "hidden": lines(look.differences),
            "created": _paths(one for one in look.untracked if one.path not in known),
            "ignore_files": list(look.new_ignores)[:FILES_LIMIT],
        }

    def _bash(self, inputs: Mapping[str, object]) -> dict[str, object]:
        restart, command = value_of(inputs, "restart", bool, False), value_of(inputs, "command", str, "")
        if restart:
            self._end_step()
        if not command.strip():
            if restart:
                return {"text": "the shell was restarted"}
            raise Refusal("command is missing")
        timeout = value_of(inputs, "timeout_ms", int, 0) / 1000 or self._settings.bash_timeout
        self._shell = self._shell or Shell(self._children, self._settings.working_directory)
        text, code = self._shell.run(command, min(timeout, self._settings.bash_max_timeout))
        if not self._shell.alive:
            self._drop_shell()
        return {"text": text, "is_error": code != 0, "exit_code": code}

    def _program(self, request: dict[str, Any]) -> dict[str, object]:
        """A program of the engine's, which leaves alone whatever else runs. Its input comes after the request, and its
        output is handed on as it comes."""
        with tempfile.TemporaryFile() as spool:
            while spool.tell() < request["bytes"]:
                spool.write(self._requests.wait_raw())
            spool.seek(0)
            sink = LimitedSink(partial(wire.send_raw, _ANSWERS), request["limit"])
            try:
                ended = run_command(
                    self._children,
                    request["argv"],
                    request["timeout"],
                    alone=False,
                    stdin=spool.fileno(),
                    stdout=sink.feed,
                    extra_env=request["env"],
                )
            except TooLarge:
                # Nobody reads on, which ends the program.
                return {"too_large": True}
        known = ("exit_code", "stderr", "timed_out", "error")
        return {name: value for name, value in asdict(ended).items() if name in known}

    def _sizes(self, request: dict[str, Any]) -> dict[str, object]:
        paths = (os.fsencode(self._settings.checkout) + b"/" + path.encode("latin-1") for path in request["paths"])
        return {"sizes": [size_of(path) for path in paths]}

    def _drop_shell(self) -> None:
        if self._shell:
            self._shell.close()
            self._shell = None


def _paths(differences: Iterable[Difference]) -> list[str]:
    return [one.path for one in islice(differences, FILES_LIMIT)]


if __name__ == "__main__":
    sys.exit(main())
