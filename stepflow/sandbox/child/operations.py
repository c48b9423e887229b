"""What the engine itself asks in the sandbox: file tools, looks at the work tree, and commits. Each is answered by a
process of its own, so that a hang or a crash ends only that one."""

from __future__ import annotations

import json
import os
import pickle
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import IO, Any

from . import file_tools
from .baseline import Baseline, JudgedRepository, SharedMemory
from .clean_tree import Difference, Look, TreeWatch, lines
from .enter_sandbox import SandboxConfig
from .git import (
    FILES_LIMIT,
    Repository,
    bundle,
    read_objects,
)
from .paths import OperationRefused, digests
from .snapshots import SnapshotRepository

Answer = dict[str, object]

#: The descriptors of such a process: what it streams, its answer, the files that the parent keeps for it, and what the
#: parent gives for this once.
OUTPUT, ANSWER, STATE, KEPT_HOME, KEPT_GIT, SNAPSHOTS, GIVEN = 1, 3, 4, 5, 6, 7, 8
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


def _digests(config: SandboxConfig, request: dict[str, Any]) -> Answer:
    lower_limit(resource.RLIMIT_AS, _MEMORY)
    return {"files": digests(config.working_directory, request["expressions"], request["folders"])}


@dataclass(kw_only=True)
class State:
    """What was seen of the workspace: before the first tool, at the start of the run, and at the newest closing. The
    parent keeps it from one operation to the next, in a file that no tool can open, and never reads it."""

    repository: Repository | None
    had_commit: bool
    watch: TreeWatch | None
    judged: JudgedRepository | None
    baseline: Baseline | None = None
    shared_memory: SharedMemory | None = None
    closing: Look | None = None

    @classmethod
    def first(cls, checkout: str) -> State:
        """Before any tool has run."""
        repository = Repository.locate(checkout)
        private = os.path.join(os.path.dirname(os.environ["TMPDIR"]), "snapshots")
        had_commit = False
        with suppress(OperationRefused):
            had_commit = bool(repository and repository.head())
        return cls(
            repository=repository,
            had_commit=had_commit,
            watch=TreeWatch(repository) if repository else None,
            judged=JudgedRepository(repository, private) if repository else None,
        )

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

    def watching(self) -> TreeWatch:
        """Raises `OperationRefused` where there is nothing to watch."""
        if self.watch is None:
            raise OperationRefused(_NO_REPOSITORY)
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
    _store(STATE, State.first(config.checkout))
    return {}


def _begin(config: SandboxConfig, _request: object) -> Answer:
    with State.working() as state:
        with _keep_open(KEPT_HOME) as kept:
            state.baseline = Baseline(os.environ["HOME"], os.environ["TMPDIR"], kept)
        state.shared_memory = SharedMemory() if config.uid is not None else None
        if state.watch is None:
            return {"unwatched": _NO_REPOSITORY}
        try:
            state.located().head()
        except OperationRefused as exc:
            if state.had_commit:
                raise
            return {"unwatched": str(exc)}
        state.watch.begin()
        if state.judged:
            with _keep_open(KEPT_GIT) as kept:
                state.judged.begin(state.watch.submodules(), kept)
    return {}


def _closing(_config: object, _request: object) -> Answer:
    with State.working() as state:
        state.closing = None
        state.closing = look = _look(state)
    return {
        "commit": look.commit,
        "tree": look.tree,
        "changed": _paths(look.tracked),
        "untracked": _paths(look.untracked),
    }


def _look(state: State, commit: str = "") -> Look:
    """A look by objects that were read anew. One at a closing writes committed files as a clone has them."""
    watch = state.watching()
    objects = ""
    if state.judged:
        with _keep_open(KEPT_GIT) as kept:
            head, branch = state.located().head()
            objects = state.judged.prepare(commit or head, branch, kept)
    return watch.look(commit, objects=objects, writes_anew=not commit)


def _look_again(_config: object, _request: object) -> Answer:
    with State.working() as state:
        if state.closing is None:
            raise OperationRefused("the checkout could not be looked at before the checks")
        look = _look(state, state.closing.commit)
    known = {one.path for one in state.closing.untracked}
    return {
        "moved": list(look.moved_since(state.closing))[:FILES_LIMIT],
        "hidden": lines(look.differences),
        "created": _paths(one for one in look.untracked if one.path not in known),
        "ignore_files": _paths(look.new_ignores),
    }


def _before_check(_config: object, _request: object) -> Answer:
    """HOME, TMPDIR and shared memory as `setup` left them, and git's own files as they were then beside the commits of
    the work."""
    restored = list[str]()
    with State.working() as state:
        if state.baseline:
            with _keep_open(KEPT_HOME) as kept:
                restored = state.baseline.restore(kept)
        if state.shared_memory:
            state.shared_memory.restore()
        if state.judged and state.closing:
            with _keep_open(KEPT_GIT) as kept:
                state.judged.put_in_place(_paths(state.closing.tracked), kept)
    return {"restored": restored}


def _after_check(_config: object, _request: object) -> Answer:
    state = State.load()
    if state.judged and state.closing:
        state.judged.put_back()
    return {}


def _tree(_config: object, _request: object) -> Answer:
    state = State.load()
    watch = state.watching()
    if not watch.has_begun:
        watch.begin()
        _store(STATE, state)
    look = watch.look()
    return {"commit": look.commit, "tree": look.tree, "uncommitted": _paths(look.differences)}


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
    "digests": _digests,
    "locate": _locate,
    "begin": _begin,
    "closing": _closing,
    "look_again": _look_again,
    "before_check": _before_check,
    "after_check": _after_check,
    "tree": _tree,
    "bundle": _bundle,
    "read_objects": _read_objects,
    "open_snapshots": _open_snapshots,
    "receive_snapshot": _receive_snapshot,
    "take_snapshot": _take_snapshot,
    "restore_snapshot": _restore_snapshot,
}


def _paths(differences: Iterable[Difference]) -> list[str]:
    return [one.path for one in islice(differences, FILES_LIMIT)]
