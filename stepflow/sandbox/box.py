"""The toolbox as the engine sees it: the ports `Tools` and `Commands`, and how commits come out of it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from stepflow.domain.activity import activity
from stepflow.domain.agent.agent_settings import TOOL_SPECS
from stepflow.domain.checkout import (
    BundleInfo,
    CommandRequest,
    CommandResult,
    DiffStat,
    LineCounts,
    TreeState,
    glob_expression,
)
from stepflow.domain.conversation import ToolCall, ToolSpec, ToolUse
from stepflow.domain.json import JsonObject
from stepflow.domain.words import Network
from stepflow.errors import BoundaryError, InputError, IsolationError, StepflowError
from stepflow.sandbox.child.paths import OperationRefused
from stepflow.sandbox.commands import OUTPUT_LIMIT, HeadTail, ServerProcess, Shell, run_command
from stepflow.sandbox.environment import build_environment, tool_programs
from stepflow.sandbox.isolation import (
    Layer,
    SandboxState,
    ToolboxOptions,
    choose_identity,
    judge_layers,
    make_private_folder,
    private_place,
    release_identity,
    sandbox_config,
)
from stepflow.sandbox.launcher import CannotStart, Launcher, Sink, open_memory, sealed_memory
from stepflow.sandbox.workspace import GIT, give_to, object_folders, objects_beside, remove_folder

if TYPE_CHECKING:
    from stepflow.sandbox.egress.proxy import EgressProxy

#: Four calls of git, each with its own two minutes.
_GIT_TIMEOUT = 480.0
#: An operation ends by itself when its time is over.
_SPARE_SECONDS = 30.0
_LONGEST_PATTERN = 4096
_SEARCHES = frozenset({"glob", "grep"})
#: Kinds of inputs by their JSON Schema; those of lists are looked at where they are used.
_KINDS: Mapping[str, tuple[type, str]] = {
    "string": (str, "a string"),
    "boolean": (bool, "true or false"),
    "integer": (int, "a whole number from 0"),
}
_KNOWN = ", ".join(spec.name for spec in TOOL_SPECS)


class OutputTooLarge(StepflowError):
    """A program prints more than is read of it."""


#: All contents of a run's commits together, unpacked. They are searched for secrets, which takes seconds.
MOST_UNPACKED_BYTES = 256 * 1024 * 1024


class BundleTooLarge(BoundaryError):
    """The commits of a run are more than leaves the sandbox."""


class Toolbox:
    """A running toolbox. Made by `start`, ended by `close` or by leaving the `with` block."""

    def __init__(
        self, *, launcher: Launcher, sandbox: SandboxState, layers: tuple[Layer, ...], root: Path, private: Path
    ) -> None:
        self._launcher = launcher
        self._ending = contextlib.ExitStack()
        self.checkout, self.layers, self.options = root, layers, sandbox.options
        #: The tools' user and group.
        self.uid, self.gid = sandbox.facts.uid, sandbox.facts.gid
        self.has_own_user = sandbox.choice.identity is not None
        #: By what the tools reach hosts, None where nothing of theirs is asked.
        self.egress: EgressProxy | None = None
        self._folder = str(root / sandbox.options.working_directory)
        self._shell: Shell | None = None
        #: What operations keep from one to the next: what they know of the workspace, and of the snapshots.
        self._kept = tuple(map(self._ending.enter_context, (open_memory(), open_memory())))
        #: A folder of the tools' user beside the workspace, for what the engine keeps in the sandbox.
        self.private = private

    @classmethod
    def start(cls, workspace: Path, *, options: ToolboxOptions | None = None, beside: Toolbox | None = None) -> Toolbox:
        """Start a toolbox in a workspace, which from now on belongs to the tools' user. With one `beside` it has the
        same options and places, in which now other files stand, and another user. Raises `IsolationError` or
        `InputError`, and leaves nothing running then."""
        chosen = options or (beside.options if beside else ToolboxOptions())
        root = workspace.resolve()
        if not root.is_dir():
            raise IsolationError(f"There is no folder {root} to run tools in.", hint="Check the repository out first.")
        with contextlib.ExitStack() as ending:
            choice = choose_identity(root, chosen)
            identity = choice.identity
            if identity:
                ending.callback(release_identity, identity)
            private = beside.private if beside else private_place(chosen)
            if beside is None and os.getpid() != 1:
                # A container goes with its first process, and a cancelled job has no time to wait for this.
                ending.callback(remove_folder, private)
            make_private_folder(private, identity)
            egress = _egress_proxy(chosen, ending)
            programs = tool_programs(chosen, identity)
            environment = build_environment(checkout=root, private=private, programs=programs.folders, options=chosen)
            config = sandbox_config(
                checkout=root,
                private=private,
                # The history of the checkout is read where it is, or from a copy.
                read=(*programs.read, *object_folders(root / GIT / "objects")[1:], objects_beside(root)),
                identity=identity,
                options=chosen,
                broker=egress.child_end.fileno() if egress else None,
            )
            if identity:
                for folder in (root, *((private,) if beside else ())):
                    give_to(folder, identity.uid, identity.gid)
            launcher = Launcher(config, environment, grace=chosen.grace)
            ending.callback(launcher.close)
            sandbox = SandboxState(facts=launcher.facts, choice=choice, options=chosen, path=programs.state)
            box = cls(launcher=launcher, sandbox=sandbox, layers=judge_layers(sandbox), root=root, private=private)
            ending.push(box._ending.pop_all())
            if problem := box._ask("locate", timeout=_GIT_TIMEOUT).get("problem"):
                raise IsolationError(f"The workspace cannot be looked at: {problem}.")
            if beside:
                box._launcher.waits = beside._launcher.waits
            if egress:
                egress.start(beside.egress if beside else None)
            box.egress = egress
            box._ending = ending.pop_all()
        return box

    @contextlib.contextmanager
    def interruptible(self, waiting: Callable[[], contextlib.AbstractContextManager[object]]) -> Iterator[None]:
        """Wait for every answer of the program in such a context inside the block."""
        self._launcher.waits.waiting = waiting
        try:
            yield
        finally:
            self._launcher.waits.waiting = contextlib.nullcontext

    @contextlib.contextmanager
    def while_waiting(self, look: Callable[[], None]) -> Iterator[None]:
        """Call `look` every few seconds inside the block while something runs in the sandbox."""
        self._launcher.waits.look = look
        try:
            yield
        finally:
            self._launcher.waits.look = None

    def interrupt(self) -> None:
        """End everything in the sandbox, from another thread than the one that uses it, which gets an
        `IsolationError`."""
        self._launcher.interrupt()

    def begin_step(self, tools: tuple[ToolSpec, ...]) -> None:
        """The tools of the sandbox need nothing that has to be started (port `Tools`)."""

    def run_tool(self, use: ToolUse) -> ToolCall:
        """Run one tool call (port `Tools`). Raises `IsolationError` when the toolbox itself is broken."""
        begun = time.monotonic()
        spec = next((spec for spec in TOOL_SPECS if spec.name == use.name), None)
        if spec is None:
            text = f"there is no tool {use.name!r}; the tools are {_KNOWN}"
            return ToolCall(**vars(use), output=text, is_error=True)
        is_error, exit_code = False, None
        try:
            with activity(use.name), self._launcher.during("tool"):
                inputs = _read_inputs(spec, use.input)
                if use.name == "bash":
                    text, exit_code = self._bash(**inputs)
                    is_error = exit_code != 0
                else:
                    text = self._file_tool(use.name, inputs)
        except (OperationRefused, CannotStart) as exc:
            text, is_error = f"{use.name}: {exc}", True
        return ToolCall(
            **vars(use),
            # Half a surrogate pair, which a model can write into a path, would stop every writer after us.
            output=text.encode("utf-8", "replace").decode(),
            is_error=is_error,
            exit_code=exit_code,
            seconds=time.monotonic() - begun,
        )

    def run_command(self, request: CommandRequest) -> CommandResult:
        """Run one process with nothing else of the toolbox alive, before or after (port `Commands`)."""
        self._drop_shell()
        with activity(request.described), self._launcher.during("command"):
            return run_command(self._launcher, request.argv, request.timeout, folder=self._folder)

    def start_server(self, argv: tuple[str, ...], environment: Mapping[str, str]) -> ServerProcess:
        """Start a program that serves until the step ends. The variables join those of every tool.

        Raises `CannotStart`.
        """
        with self._launcher.during("start_server"):
            return ServerProcess(partial(self._launcher.start, argv, environment=environment, folder=self._folder))

    def end_step(self) -> None:
        """End the step's shell and every process that its tools have left running (port `Tools`)."""
        with self._launcher.during("end_step"):
            alive = self._end_all()
        if alive:
            raise IsolationError(
                f"Processes of the tools are still alive although they were killed: {list(alive)}.",
                hint="They may hang on a device or a network disk; run the job again on a fresh machine.",
            )

    @property
    def owner(self) -> tuple[int, int] | None:
        """The tools' user and group; None where they are the parent's own."""
        return (self.uid, self.gid) if self.has_own_user else None

    def begin_work(self) -> JsonObject:
        """Remember the rules by which git compares the workspace with a commit; what it finds now although git does not
        show it is no change. Call it after `setup` and before the first tool call. Returns the rules, for
        `write_files`. Raises `InputError`."""
        answer = self._ask("begin_work", timeout=_GIT_TIMEOUT)
        if "problem" in answer:
            raise InputError(
                f"The workspace cannot be looked at after `setup`: {answer['problem']}.",
                hint="Look at what `setup` left in the repository.",
            )
        return answer

    def tree(self) -> TreeState:
        """Return HEAD and what is not committed, by the rules of the first time it was asked; what runs keeps
        running."""
        return _tree_state(self._ask("tree", timeout=_GIT_TIMEOUT))

    def take_work(self, base: str, sink: Callable[[bytes], object], *, max_bytes: int) -> tuple[TreeState, str]:
        """Stream a bundle of the commits since the base to the sink, with one more on top for uncommitted files, and
        return the state of the workspace and the name of the last commit. Nothing is streamed if that is the base or
        older. Raises `BoundaryError`."""
        with self._launcher.during("take_work"):
            self._end_all()
            too_large = BundleTooLarge(f"What the tools made is more than {max_bytes >> 20} MiB.")
            request: JsonObject = {"base": base, "most_bytes": max_bytes}
            sink = _Bounded(sink, max_bytes, too_large)
            answer = self._run_operation("take_work", request, timeout=_GIT_TIMEOUT, sink=sink)
        if "problem" in answer:
            raise BoundaryError(f"git cannot tell what is in the workspace: {str(answer['problem']).rstrip('.')}.")
        return _tree_state(answer), answer["files"]

    def write_files(self, state: TreeState, files: str, rules: JsonObject) -> None:
        """Write the files of a commit over those that are there, with HEAD at the state's. Raises `BoundaryError`."""
        request: JsonObject = {"commit": state.commit, "branch": state.branch, "files": files, "rules": rules}
        self._demand("write_files", request)

    def restore_files(self) -> None:
        """Restore the files that were written, and remove others that git does not ignore. Raises `BoundaryError`."""
        self._demand("restore_files", {})

    def remove_shared_memory(self) -> None:
        """Remove what the tools' user has in shared memory, unless it is the parent's own user."""
        if self.has_own_user:
            self._demand("remove_shared_memory", {})

    def _demand(self, what: str, request: JsonObject) -> None:
        answer = self._ask(what, request, timeout=_GIT_TIMEOUT)
        if "problem" in answer:
            raise BoundaryError(f"The check tree cannot be made: {answer['problem']}.")

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
            hint="Let the agent commit less; generated files and binaries belong in .gitignore.",
        )
        hand_on = _Bounded(sink, max_bytes, too_large)
        request: JsonObject = {"base": base_commit, "commit": commit, "most_bytes": MOST_UNPACKED_BYTES}
        with self._launcher.during("bundle"):
            self._end_all()
            answer = self._run_operation("bundle", request, timeout=_GIT_TIMEOUT, sink=hand_on)
        if "problem" in answer:
            raise BoundaryError(
                f"The commits cannot be read from the workspace: {answer['problem']}.",
                hint="Look at what the tools did to the repository.",
            )
        if "too_large" in answer:
            raise BundleTooLarge(
                f"The commits of this run have more than {MOST_UNPACKED_BYTES >> 20} MiB: {answer['too_large']}.",
                hint=too_large.hint,
            )
        if not answer["commits"]:
            return None
        return BundleInfo(
            commits=answer["commits"],
            commit=answer["commit"],
            tree=answer["tree"],
            size=max_bytes - hand_on.left,
            changes=_diff_stat(answer["changes"]) if answer["changes"] else None,
        )

    def read_objects(self, *arguments: str, base: str, stdin: str, limit: int) -> bytes | None:
        """Return what a git command prints in the sandbox that only reads objects; None where that is more than `limit`
        bytes. `base` is any commit of the repository. Raises `BoundaryError` when git fails."""
        output = bytearray()
        sink = _Bounded(output.extend, limit, OutputTooLarge(f"git prints more than {limit} bytes."))
        request: JsonObject = {"arguments": list(arguments), "base": base, "stdin": stdin}
        try:
            answer = self._ask("read_objects", request, timeout=_GIT_TIMEOUT, sink=sink)
        except OutputTooLarge:
            return None
        if "problem" in answer:
            raise BoundaryError(f"The commits cannot be read from the workspace: {answer['problem']}.")
        return bytes(output)

    def ask_snapshots(
        self,
        what: str,
        request: JsonObject,
        *,
        seconds: float,
        sink: Sink | None = None,
        limit: int = 0,
        given: bytes = b"",
    ) -> dict[str, Any]:
        """Let an operation on the snapshots answer, beside whatever runs in the sandbox. It may use the `given` bytes.
        Raises `StepflowError`, also where it streams more than `limit` bytes to the sink."""
        bounded = sink and _Bounded(sink, limit, OutputTooLarge(f"The snapshot has more than {limit} bytes."))
        with sealed_memory(given) as file, self._launcher.during(what):
            answer = self._launcher.ask(
                what,
                {**request, "seconds": seconds},
                timeout=seconds + _SPARE_SECONDS,
                files=(*self._kept, file),
                sink=bounded,
            )
        if "problem" in answer:
            raise StepflowError(answer["problem"])
        return answer

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
        return self._launcher.ended_all

    def close(self) -> None:
        """Kill everything and remove the private folder. May be called again, at any moment."""
        self._ending.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _bash(self, command: str = "", *, restart: bool = False, timeout_ms: int = 0) -> tuple[str, int | None]:
        if restart:
            self._end_all()
        if not command.strip():
            if restart:
                return "the shell was restarted", 0
            raise OperationRefused("command is missing")
        longest = self.options.bash_max_timeout
        timeout = min(timeout_ms, longest * 1000) / 1000 or self.options.bash_timeout
        self._shell = self._shell or Shell(self._launcher, self._folder)
        try:
            return self._shell.run(command, min(timeout, longest))
        finally:
            if not self._shell.alive:
                self._drop_shell()

    def _file_tool(self, name: str, inputs: dict[str, Any]) -> str:
        if name == "glob":
            pattern = inputs["pattern"]
            if len(pattern) > _LONGEST_PATTERN:
                raise OperationRefused(f"a pattern has at most {_LONGEST_PATTERN} characters")
            try:
                inputs["expression"] = glob_expression(pattern.removeprefix("./"), braces=True)
            except ValueError as exc:
                raise OperationRefused(f"{pattern}: {exc}") from exc
        answer = self._run_operation("tool", {"name": name, "input": inputs}, timeout=self.options.file_timeout)
        if "problem" in answer:
            raise OperationRefused(answer["problem"])
        text = str(answer["text"])
        if name not in _SEARCHES:
            return text
        shortened = HeadTail(OUTPUT_LIMIT)
        shortened.feed(text.encode("utf-8", "surrogateescape"))
        return shortened.text()

    def _end_all(self) -> tuple[int, ...]:
        self._drop_shell()
        return self._launcher.end()

    def _drop_shell(self) -> None:
        if self._shell:
            self._shell.close()
            self._shell = None

    def _ask(
        self, what: str, request: JsonObject | None = None, *, timeout: float, sink: Sink | None = None
    ) -> dict[str, Any]:
        with self._launcher.during(what):
            return self._run_operation(what, request, timeout=timeout, sink=sink)

    def _run_operation(
        self, what: str, request: JsonObject | None = None, *, timeout: float, sink: Sink | None = None
    ) -> dict[str, Any]:
        return self._launcher.ask(what, request or {}, timeout=timeout, files=self._kept, sink=sink)


class _Bounded:
    """Hands on at most `limit` bytes, and raises the error for more."""

    def __init__(self, sink: Sink, limit: int, error: StepflowError) -> None:
        self._sink, self.left, self._error = sink, limit, error

    def __call__(self, data: bytes) -> None:
        self.left -= len(data)
        if self.left < 0:
            raise self._error
        self._sink(data)


def _read_inputs(spec: ToolSpec, given: Mapping[str, object]) -> dict[str, Any]:
    """Return what the model gave of the inputs that a tool has. Raises `OperationRefused` for one that is missing or of
    another kind."""
    inputs: dict[str, Any] = {}
    schema = cast("dict[str, Any]", spec.input_schema)
    for name, shape in schema["properties"].items():
        value = given.get(name)
        if value is None:
            if name in schema.get("required", ()):
                raise OperationRefused(f"{name} is missing")
            continue
        kind, described = _KINDS.get(shape["type"], (type(value), ""))
        if type(value) is not kind or (isinstance(value, int) and value < 0):
            raise OperationRefused(f"{name} must be {described}")
        inputs[name] = value
    return inputs


def _egress_proxy(options: ToolboxOptions, ending: contextlib.ExitStack) -> EgressProxy | None:
    if options.network is not Network.ALLOW:
        return None
    from stepflow.sandbox.egress.proxy import EgressProxy, Internet  # noqa: PLC0415 - asyncio is loaded for this alone

    egress = EgressProxy(options.allowed_hosts, options.connection_to, options.internet or Internet())
    ending.callback(egress.close)
    return egress


def _tree_state(answer: Mapping[str, Any]) -> TreeState:
    if "problem" in answer:
        return TreeState(problem=answer["problem"])
    changed, untracked = (tuple(map(printable, answer[name])) for name in ("changed", "untracked"))
    return TreeState(
        commit=answer["commit"], tree=answer["tree"], branch=answer["branch"], changed=changed, untracked=untracked
    )


def printable(path: str) -> str:
    """Return a name, which is the tools' own, without line breaks, control characters and halves of surrogate pairs."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in path)


def _diff_stat(answer: Mapping[str, Any]) -> DiffStat:
    files = tuple(LineCounts(path=path, added=added, removed=removed) for path, added, removed in answer["files"])
    return DiffStat(**{**answer, "files": files})
