"""The toolbox as the engine sees it: the ports `Tools` and `Commands`, and the doors for commits."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from stepflow.domain.checkout import BundleInfo, CommandResult, DiffStat, LineCounts, TreeState
from stepflow.domain.conversation import ToolResult
from stepflow.domain.tools import TOOL_SPECS
from stepflow.domain.words import Network
from stepflow.errors import BoundaryError, IsolationError, StepflowError
from stepflow.sandbox.channel import ChildChannel
from stepflow.sandbox.child.enter_sandbox import SandboxFacts
from stepflow.sandbox.environment import build_environment
from stepflow.sandbox.guards import CheckoutGuards
from stepflow.sandbox.identity import choose_identity, make_private_folder, private_place
from stepflow.sandbox.isolation import SandboxState, judge_layers, sandbox_config
from stepflow.sandbox.options import ToolboxOptions
from stepflow.sandbox.programs import tool_programs
from stepflow.sandbox.server_process import ServerProcess
from stepflow.sandbox.workspace import give_to, remove_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from stepflow.domain.checkout import CommandRequest
    from stepflow.domain.conversation import ToolSpec, ToolUse
    from stepflow.domain.definition import Validator
    from stepflow.domain.json import JsonObject
    from stepflow.ports import Guards
    from stepflow.sandbox.egress.proxy import EgressProxy
    from stepflow.sandbox.isolation import Layer

_START_TIMEOUT = 30.0
#: Four calls of git, each with its own two minutes.
_GIT_TIMEOUT = 480.0
#: For putting HOME and TMPDIR back, whatever the tools left there.
_RESTORE_TIMEOUT = 600.0
_PIECE = 1024 * 1024
_REACH_HINT = "Set TMPDIR to a folder that the tools' user may enter."
_KNOWN = ", ".join(spec.name for spec in TOOL_SPECS)


class OutputTooLarge(StepflowError):
    """A program prints more than is read of it."""


class BundleTooLarge(BoundaryError):
    """The commits of a run are more than leaves the sandbox."""


class Toolbox:
    """A running toolbox. Made by `start`, ended by `close` or by leaving the `with` block."""

    def __init__(
        self, *, channel: ChildChannel, sandbox: SandboxState, layers: tuple[Layer, ...], root: Path, private: Path
    ) -> None:
        self._channel = channel
        self._ending = contextlib.ExitStack()
        self.checkout, self.layers, self.options = root, layers, sandbox.options
        #: The tools' user and group.
        self.uid, self.gid = sandbox.facts.uid, sandbox.facts.gid
        #: By what the tools reach hosts, None where nothing of theirs is asked.
        self.egress: EgressProxy | None = None
        #: A folder of the tools' user beside the workspace, for what the engine keeps in the sandbox.
        self.private = private

    @classmethod
    def start(cls, workspace: Path, *, options: ToolboxOptions | None = None) -> Toolbox:
        """Start a toolbox in a workspace, which from now on belongs to the tools' user. Raises `IsolationError` or
        `InputError`, and leaves nothing running then."""
        chosen = options or ToolboxOptions()
        root = workspace.resolve()
        if not root.is_dir():
            raise IsolationError(f"There is no folder {root} to run tools in.", hint="Check the repository out first.")
        choice = choose_identity(root, chosen)
        identity = choice.identity
        with contextlib.ExitStack() as ending:
            private = private_place(chosen)
            if os.getpid() != 1:
                # A container goes with its first process, and a cancelled job has no time to wait for this.
                ending.callback(remove_folder, private)
            make_private_folder(private, identity)
            egress = _egress_proxy(chosen, ending)
            programs = tool_programs(chosen, identity)
            environment = build_environment(checkout=root, private=private, programs=programs.folders, options=chosen)
            config = sandbox_config(
                checkout=root,
                private=private,
                programs=programs.folders,
                identity=identity,
                options=chosen,
                broker=egress.child_end.fileno() if egress else None,
            )
            if identity:
                give_to(root, identity.uid, identity.gid)
            group = identity.gid if identity and "gid" not in chosen.disabled_layers else None
            inherited = (config.broker,) if config.broker is not None else ()
            channel = ChildChannel(checkout=root, environment=environment, group=group, inherited=inherited)
            ending.callback(channel.close)
            answer = channel.ask({"op": "enter_sandbox", "config": asdict(config)}, timeout=_START_TIMEOUT)
            if "problem" in answer:
                raise IsolationError(f"The toolbox cannot start: {answer['problem']}.", hint=_REACH_HINT)
            sandbox = SandboxState(
                facts=SandboxFacts(**answer),
                choice=choice,
                options=chosen,
                path=programs.state,
            )
            box = cls(channel=channel, sandbox=sandbox, layers=judge_layers(sandbox), root=root, private=private)
            if egress:
                egress.start()
            box.egress = egress
            box._ending = ending.pop_all()
        return box

    @contextlib.contextmanager
    def interruptible(self, waiting: Callable[[], contextlib.AbstractContextManager[object]]) -> Iterator[None]:
        """Inside the block every answer of the program is waited for in such a context."""
        self._channel.waiting = waiting
        try:
            yield
        finally:
            self._channel.waiting = contextlib.nullcontext

    @contextlib.contextmanager
    def while_waiting(self, look: Callable[[], None]) -> Iterator[None]:
        """Inside the block `look` is called every few seconds while something runs in the sandbox."""
        self._channel.look = look
        try:
            yield
        finally:
            self._channel.look = None

    def begin_step(self, tools: tuple[ToolSpec, ...]) -> None:
        """The tools of the sandbox need nothing that has to be started (port `Tools`)."""

    def run_tool(self, use: ToolUse) -> ToolResult:
        """Run one tool call (port `Tools`). Raises `IsolationError` when the toolbox itself is broken."""
        begun = time.monotonic()
        if use.name not in {spec.name for spec in TOOL_SPECS}:
            text = f"there is no tool {use.name!r}; the tools are {_KNOWN}"
            return ToolResult(tool_use_id=use.id, text=text, is_error=True)
        longest = self.options.bash_max_timeout if use.name == "bash" else self.options.file_timeout
        answer = self._ask({"op": "tool", "name": use.name, "input": use.input}, timeout=longest)
        return ToolResult(
            tool_use_id=use.id,
            # Half a surrogate pair, which a model can write into a path, would stop every writer after us.
            text=answer["text"].encode("utf-8", "replace").decode(),
            is_error=answer.get("is_error", False),
            exit_code=answer.get("exit_code"),
            seconds=time.monotonic() - begun,
        )

    def run_command(self, request: CommandRequest) -> CommandResult:
        """Run one process with nothing else of the toolbox alive, before or after (port `Commands`)."""
        restoring = _RESTORE_TIMEOUT if request.checks else 0.0
        answer = self._ask({"op": "command", **asdict(request)}, timeout=request.timeout + restoring)
        if "problem" in answer:
            return CommandResult(exit_code=-1, started=False, error=answer["problem"])
        return CommandResult(**{**answer, "restored": tuple(answer.get("restored", ()))})

    def start_server(self, argv: tuple[str, ...], environment: Mapping[str, str]) -> ServerProcess:
        """Start a program that serves until the step ends. The variables join those of every tool.

        Raises `CannotStart`.
        """
        request: JsonObject = {"op": "start_server", "argv": list(argv), "env": dict(environment)}

        def start(descriptors: tuple[int, int, int]) -> str:
            answer = self._channel.ask(request, timeout=self.options.grace, descriptors=descriptors)
            return str(answer.get("problem", ""))

        return ServerProcess(start)

    def end_step(self) -> None:
        """End the step's shell and every process that its tools have left running (port `Tools`)."""
        answer = self._ask({"op": "end_step"}, timeout=0.0)
        if answer["alive"]:
            raise IsolationError(
                f"Processes of the tools are still alive although they were killed: {answer['alive']}.",
                hint="They may hang on a device or a network disk; run the job again on a fresh machine.",
            )

    def guards(self, validators: Iterable[Validator]) -> Guards:
        """Remember what these validators depend on as it is now, for the port `Guards`.

        Call it after `setup` and before the first tool call: what it sees is what is trusted.
        """
        return CheckoutGuards(lambda request, seconds: self._ask(request, timeout=seconds), validators)

    def tree(self) -> TreeState:
        """HEAD and what is not committed, by the rules of the first time it was asked; what runs keeps running."""
        answer = self._ask({"op": "tree"}, timeout=_GIT_TIMEOUT)
        if "problem" in answer:
            return TreeState(commit="", tree="", problem=answer["problem"])
        return TreeState(commit=answer["commit"], tree=answer["tree"], uncommitted=tuple(answer["uncommitted"]))

    def stream_bundle(
        self, base_commit: str, sink: Callable[[bytes], object], *, max_bytes: int, commit: str = ""
    ) -> BundleInfo | None:
        """Stream a bundle of `base_commit..commit` to the sink, piece by piece; None when there are no commits. Without
        a `commit`, HEAD's.

        Everything that still runs is killed first. Raises `BundleTooLarge` when the bundle is larger than `max_bytes`
        (the sink then holds a part that is of no use), and `BoundaryError` when git cannot make it.
        """
        too_large = BundleTooLarge(
            f"The commits of this run make a bundle of more than {max_bytes} bytes.",
            hint="Let the agent commit less; generated files and binaries belong into .gitignore.",
        )
        left = max_bytes

        def hand_on(data: bytes) -> None:
            """No more than it may, whatever limit the toolbox itself keeps."""
            nonlocal left
            left -= len(data)
            if left < 0:
                raise too_large
            sink(data)

        request: JsonObject = {"op": "bundle", "base": base_commit, "commit": commit, "limit": max_bytes}
        answer = self._ask(request, timeout=_GIT_TIMEOUT, sink=hand_on)
        if "problem" in answer:
            raise BoundaryError(
                f"The commits cannot be read from the workspace: {answer['problem']}.",
                hint="Look at what the tools did to the repository.",
            )
        if answer.get("too_large"):
            raise too_large
        if not answer["commits"]:
            return None
        return BundleInfo(
            commits=answer["commits"],
            commit=answer["commit"],
            tree=answer["tree"],
            size=answer["bytes"],
            changes=_diff_stat(answer["changes"]) if answer["changes"] else None,
        )

    def read_objects(self, *arguments: str, base: str, stdin: str, limit: int) -> bytes | None:
        """What a git command prints in the sandbox that only reads objects; None where that is more than `limit` bytes.
        `base` is any commit of the repository. Raises `BoundaryError` when git fails."""
        output = bytearray()
        request: JsonObject = {
            "op": "read_objects",
            "arguments": list(arguments),
            "base": base,
            "stdin": stdin,
            "limit": limit,
        }
        answer = self._ask(request, timeout=_GIT_TIMEOUT, sink=output.extend)
        if "problem" in answer:
            raise BoundaryError(f"The commits cannot be read from the workspace: {answer['problem']}.")
        return None if answer.get("too_large") or len(output) > limit else bytes(output)

    def run_program(
        self,
        argv: tuple[str, ...],
        *,
        environment: Mapping[str, str],
        timeout: float,
        stdin: IO[bytes],
        sink: Callable[[bytes], object],
        limit: int,
    ) -> CommandResult:
        """Run a program of the engine's beside whatever runs in the sandbox. What it prints goes to the sink. Raises
        `OutputTooLarge` for more than `limit` bytes, after the first ones."""
        came = 0

        def hand_on(data: bytes) -> None:
            nonlocal came
            came += len(data)
            if came > limit:
                raise IsolationError("The sandbox sent more than was asked for.", hint="Start the run again.")
            sink(data)

        request: JsonObject = {
            "op": "program",
            "argv": list(argv),
            "env": dict(environment),
            "timeout": timeout,
            "limit": limit,
            "bytes": stdin.seek(0, os.SEEK_END),
        }
        stdin.seek(0)
        pieces = iter(lambda: stdin.read(_PIECE), b"")
        answer = self._ask(request, timeout=timeout, sink=hand_on, payload=pieces)
        if answer.get("too_large"):
            raise OutputTooLarge(f"{argv[0]} prints more than {limit} bytes.")
        return CommandResult(**answer)

    def sizes(self, paths: Sequence[bytes]) -> list[tuple[int, str]]:
        """Of each path in the workspace the bytes of its file, none of a link or a folder, and why it cannot be read,
        empty if it can."""
        request: JsonObject = {"op": "sizes", "paths": [path.decode("latin-1") for path in paths]}
        return [(size, why) for size, why in self._ask(request, timeout=_GIT_TIMEOUT)["sizes"]]

    @property
    def isolation(self) -> Mapping[str, str]:
        """Each layer's state, for the report."""
        return {layer.name: layer.state for layer in self.layers}

    @property
    def warnings(self) -> tuple[str, ...]:
        """The layers that do not hold, which `isolation: best-effort` lets pass."""
        return tuple(f"{layer.name}: {layer.state}" for layer in self.layers if layer.missing)

    @property
    def ended_all(self) -> bool:
        """Once closed: whether it is certain that nothing of the tools is alive."""
        return self._channel.ended_all

    def close(self) -> None:
        """Kill everything and remove the private folder. May be called again, at any moment."""
        self._ending.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(
        self,
        request: JsonObject,
        *,
        timeout: float,
        sink: Callable[[bytes], object] | None = None,
        payload: Iterable[bytes] = (),
    ) -> dict[str, Any]:
        return self._channel.ask(request, timeout=timeout + self.options.grace, sink=sink, payload=payload)


def _egress_proxy(options: ToolboxOptions, ending: contextlib.ExitStack) -> EgressProxy | None:
    if options.network is not Network.ALLOW:
        return None
    from stepflow.sandbox.egress.proxy import EgressProxy, Internet  # noqa: PLC0415 - asyncio is loaded for this alone

    egress = EgressProxy(options.allowed_hosts, options.connection_to, options.internet or Internet())
    ending.callback(egress.close)
    return egress


def _diff_stat(answer: Mapping[str, Any]) -> DiffStat:
    files = tuple(LineCounts(path=path, added=added, removed=removed) for path, added, removed in answer["files"])
    return DiffStat(**{**answer, "files": files})
