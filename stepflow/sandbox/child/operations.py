"""What the engine itself asks in the sandbox: file tools, looks at the work tree, and commits. Each is answered by a
process of its own, so that a hang or a crash ends only that one."""

from __future__ import annotations

import json
import os
import pickle
import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

from . import file_tools
from .check_tree import ClosingFiles, remove_shared_memory
from .enter_sandbox import SandboxConfig
from .git import (
    FILES_LIMIT,
    Repository,
    bundle,
    read_objects,
)
from .paths import OperationRefused
from .snapshots import SnapshotRepository
from .work import FoundWork, WorkWatch

Answer = dict[str, object]

#: The descriptors of such a process: what it streams, its answer, the files that the parent keeps for it, and what the
#: parent gives for this once.
OUTPUT, ANSWER, STATE, SNAPSHOTS, GIVEN = 1, 3, 4, 5, 6
#: Bytes of address space that a file tool may have.
_MEMORY = 1024 * 1024 * 1024
_NO_REPOSITORY = "not a git repository"
_FILE_TOOLS: Mapping[str, Callable[[str, Mapping[str, object]], str]] = {
    "read": file_tools.read,
    "write": file_tools.write,
    "edit": file_tools.edit,
    "glob": file_tools.glob,
    "grep": file_tools.grep,
}


def answer_request(config: SandboxConfig, request: dict[str, Any]) -> None:
    """Write the answer, one JSON object; `problem` says why there is none."""
    try:
        answer = _OPERATIONS[request["ask"]](config, request)
    except OperationRefused as exc:
        answer = {"problem": str(exc)}
    except OSError as exc:
        answer = {"problem": exc.strerror or str(exc)}
    except MemoryError:
        answer = {"problem": "needs more memory than a file tool may use; narrow it"}
    _write(ANSWER, json.dumps(answer).encode())


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def lower_limit(which: int, value: int) -> None:
    """Lower a limit for good; one that is already lower stays."""
    hard = resource.getrlimit(which)[1]
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (bound, bound))


def _tool(config: SandboxConfig, request: dict[str, Any]) -> Answer:
    lower_limit(resource.RLIMIT_AS, _MEMORY)
    if "limits" not in config.disabled_layers:
        lower_limit(resource.RLIMIT_FSIZE, config.file_bytes)
    return {"text": _FILE_TOOLS[request["name"]](config.checkout, request["input"])}


@dataclass(kw_only=True)
class State:
    """What is known of the workspace: its repository as it was before any tool ran, what tools have made of it, and the
    files that were written in the check tree. The parent keeps it from one operation to the next, in a file
    that no tool can open, and never reads it."""

    repository: Repository | None
    watch: WorkWatch | None = None
    written: ClosingFiles | None = None

    @classmethod
    def load(cls) -> State:
        """As the operation before has left it."""
        state = _load(STATE)
        assert isinstance(state, cls)  # noqa: S101 - `store` wrote it
        return state

    @classmethod
    @contextmanager
    def working(cls) -> Iterator[State]:
        """The same for the block; the next operation finds it as the block leaves it, whether or not that fails."""
        state = cls.load()
        try:
            yield state
        finally:
            _store(STATE, state)

    def watching(self) -> WorkWatch:
        """What watches the workspace, from the first time it was asked for. Raises `OperationRefused`."""
        self.watch = self.watch or WorkWatch(self.located())
        return self.watch

    def located(self) -> Repository:
        """Raises `OperationRefused` where there was none."""
        if self.repository is None:
            raise OperationRefused(_NO_REPOSITORY)
        return self.repository


def _load(descriptor: int) -> object:
    with _keep_open(descriptor) as file:
        file.seek(0)
        return pickle.load(file)  # noqa: S301 - no tool can open the file


def _store(descriptor: int, state: object) -> None:
    data = pickle.dumps(state)
    with _keep_open(descriptor) as file:
        file.seek(0)
        file.write(data)
        file.truncate()


def _keep_open(descriptor: int) -> IO[bytes]:
    return os.fdopen(os.dup(descriptor), "r+b")


def _locate(config: SandboxConfig, _request: object) -> Answer:
    _store(STATE, State(repository=Repository.locate(config.checkout)))
    return {}


def _begin_work(_config: object, _request: object) -> Answer:
    with State.working() as state:
        state.watch = WorkWatch(state.located())
        rules = state.watch.rules
    return {"settings": rules.settings, "excludes": rules.excludes.decode("latin-1")}


def _tree(_config: object, _request: object) -> Answer:
    with State.working() as state:
        return _describe(state.watching().look())


def _take_work(_config: object, request: dict[str, Any]) -> Answer:
    with State.working() as state:
        most_bytes, hand_on = request["most_bytes"], partial(_write, OUTPUT)
        work, files = state.watching().take(request["base"], most_bytes=most_bytes, hand_on=hand_on)
    return {**_describe(work), "files": files}


def _describe(work: FoundWork) -> Answer:
    paths = {"changed": work.changed[:FILES_LIMIT], "untracked": work.untracked[:FILES_LIMIT]}
    return {"commit": work.commit, "tree": work.tree, "branch": work.branch, **paths}


def _write_files(config: SandboxConfig, request: dict[str, Any]) -> Answer:
    with State.working() as state:
        # Its objects are read anew, with those of the newest commits.
        repository = Repository.locate(config.checkout)
        if repository is None:
            raise OperationRefused(_NO_REPOSITORY)
        if state.written is None:
            settings = tuple((key, value) for key, value in request["rules"]["settings"])
            excludes = request["rules"]["excludes"].encode("latin-1")
            state.written = ClosingFiles(repository=repository, settings=settings, excludes=excludes)
        state.written.repository = repository
        state.written.write(request["commit"], request["files"], request["branch"])
    return {}


def _restore_files(_config: object, _request: object) -> Answer:
    with State.working() as state:
        assert state.written  # noqa: S101 - `write_files` came before
        state.written.restore()
    return {}


def _remove_shared_memory(_config: object, _request: object) -> Answer:
    remove_shared_memory()
    return {}


def _bundle(_config: SandboxConfig, request: dict[str, Any]) -> Answer:
    repository = State.load().located()
    commit = request["commit"] or repository.head()[0]
    most_bytes, hand_on = request["most_bytes"], partial(_write, OUTPUT)
    return bundle(repository, base=request["base"], commit=commit, most_bytes=most_bytes, hand_on=hand_on)


def _read_objects(_config: SandboxConfig, request: dict[str, Any]) -> Answer:
    repository, hand_on = State.load().located(), partial(_write, OUTPUT)
    read_objects(repository, request["arguments"], base=request["base"], stdin=request["stdin"], hand_on=hand_on)
    return {}


def _open_snapshots(config: SandboxConfig, request: dict[str, Any]) -> Answer:
    repository = SnapshotRepository(checkout=config.checkout, folder=request["folder"], base=request["base"])
    with _working_on_snapshots(config, request, repository):
        repository.make()
    return {"base": repository.base}


def _receive_snapshot(config: SandboxConfig, request: dict[str, Any]) -> Answer:
    with _working_on_snapshots(config, request) as repository:
        repository.receive(GIVEN)
    return {}


def _take_snapshot(config: SandboxConfig, request: dict[str, Any]) -> Answer:
    """Its pack, then the differences, are streamed. Those that cannot be shown cost no snapshot."""
    limits, sent = {name: request[name] for name in ("file_limit", "limit")}, 0

    def hand_on(data: bytes) -> None:
        nonlocal sent
        _write(OUTPUT, data)
        sent += len(data)

    with _working_on_snapshots(config, request) as repository:
        files = repository.take(request["last"], anew=request["anew"], **limits, hand_on=hand_on)
        state = repository.taken
        if files is None or state is None:
            return {"name": ""}
        told: Answer = {"name": repository.name, "files": files, "branch": state.branch, "left_out": state.left_out}
        pack, diffs, problem = sent, list[tuple[bytes, bool]](), ""
        without = [path.encode("latin-1") for path in state.left_out]
        try:
            if request["starts"]:
                diffs = repository.diffs(request["starts"], without=without, limit=request["diff_limit"])
        except OperationRefused as exc:
            problem = str(exc)
        for text, _ in diffs:
            hand_on(text)
    sizes = [(len(text), is_whole) for text, is_whole in diffs]
    return {**told, "pack": pack, "diffs": sizes, "problem_of_diffs": problem}


def _restore_snapshot(config: SandboxConfig, request: dict[str, Any]) -> Answer:
    with _working_on_snapshots(config, request) as repository:
        state = repository.restore(request["name"], limit=request["limit"])
    return {"left_out": state.left_out}


@contextmanager
def _working_on_snapshots(
    config: SandboxConfig, request: dict[str, Any], repository: SnapshotRepository | None = None
) -> Iterator[SnapshotRepository]:
    """In the workspace, with the repository as the operation before has left it, or this one; the next one finds it as
    the block leaves it."""
    if "limits" not in config.disabled_layers:
        lower_limit(resource.RLIMIT_FSIZE, config.file_bytes)
    os.chdir(config.checkout)
    known = repository or _load(SNAPSHOTS)
    assert isinstance(known, SnapshotRepository)  # noqa: S101 - the operation before wrote it
    known.begin(request["seconds"])
    yield known
    _store(SNAPSHOTS, known)


_OPERATIONS: Mapping[str, Callable[[SandboxConfig, dict[str, Any]], Answer]] = {
    "tool": _tool,
    "locate": _locate,
    "begin_work": _begin_work,
    "tree": _tree,
    "take_work": _take_work,
    "write_files": _write_files,
    "restore_files": _restore_files,
    "remove_shared_memory": _remove_shared_memory,
    "bundle": _bundle,
    "read_objects": _read_objects,
    "open_snapshots": _open_snapshots,
    "receive_snapshot": _receive_snapshot,
    "take_snapshot": _take_snapshot,
    "restore_snapshot": _restore_snapshot,
}
