"""Snapshots of a run's working tree, from which a stopped run is resumed: in its run folder, a git pack for each, and
what had changed by then as text.

No git is ever started in the run folder, which may have come from anywhere. Git itself checks whether a pack holds what
its name says when the snapshot is restored.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter, ValidationError

from stepflow.domain import event as events
from stepflow.domain.agent.agent_settings import MCP_PREFIX
from stepflow.domain.checkout import (
    CommandRequest,
    CommandResult,
    SnapshotDiffs,
    StepDiff,
    read_diff,
)
from stepflow.domain.conversation import ToolCall, ToolSpec, ToolUse
from stepflow.domain.json import JsonObject
from stepflow.domain.secrets import UnsearchablePack, search_pack, secrets_to_find
from stepflow.errors import InputError, IsolationError, StepflowError
from stepflow.ports import Journal, Ports
from stepflow.run.recorded import RunSnapshots
from stepflow.sandbox.box import Toolbox

_MIB = 1024 * 1024
#: GitHub takes no file above 100 MiB, so no pull request can hold more than what a snapshot leaves out.
FILE_LIMIT = 100 * _MIB
#: What one snapshot may have: a quarter hour's worth of downloads into the tree should not fill the runner's disk.
SNAPSHOT_LIMIT = 1024 * _MIB
_TAKE_SECONDS, _RESTORE_SECONDS = 120.0, 600.0
#: Bytes of a difference that are read; far fewer are shown.
_DIFF_LIMIT = 8 * _MIB
#: A run's snapshots together: what an artifact or a cache of GitHub takes without becoming the slowest part of a job.
STORE_LIMIT = 4 * 1024 * _MIB
#: Bytes of a text that is read; those that a run writes stay far below.
_TEXT_LIMIT = 4 * _MIB
_PIECE = _MIB
_NAME = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_HINT = "The run folder was changed or damaged; start a new run, or restore the folder from its artifact."
_DIFFS = TypeAdapter(SnapshotDiffs)


class SnapshotStore:
    """The snapshots of one run folder, which together take at most `limit` bytes."""

    def __init__(self, folder: Path, *, limit: int = STORE_LIMIT) -> None:
        self._folder = folder
        self._free = limit - _size_of(folder)

    @property
    def free_bytes(self) -> int:
        """How many bytes the store may still grow by."""
        return max(self._free, 0)

    def add(self, name: str, pack: IO[bytes], diffs: SnapshotDiffs) -> int:
        """Keep a snapshot, whole or not at all; gives what the store grew by. Raises `StepflowError`."""
        pack.seek(0)
        text = _DIFFS.dump_json(diffs)
        try:
            _write_whole(self._folder / f"{name}.json", [text])
            _write_whole(self._folder / f"{name}.pack", iter(lambda: pack.read(_PIECE), b""))
        except OSError as exc:
            raise StepflowError(
                f"A snapshot cannot be written to {self._folder}: {exc.strerror}.",
                hint="Free space on the disk of the run folder, or choose another one with the input run-folder.",
            ) from exc
        size = len(text) + pack.tell()
        self._free -= size
        return size

    def packs(self) -> list[Path]:
        """Every pack, of snapshots that build on one another."""
        return sorted(self._folder.glob("*.pack"))

    def check(self, names: Iterable[str]) -> None:
        """Raises `InputError` when these snapshots cannot be put back, as far as can be told without git."""
        for name in names:
            self._check(name, self._folder / f"{name}.pack")

    def diffs(self, name: str) -> SnapshotDiffs:
        """Return what had changed at a snapshot. Raises `InputError`."""
        path = self._folder / f"{name}.json"
        try:
            # Whoever follows a link ends up somewhere else, and whoever opens a pipe waits.
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as file:
                text = file.read(_TEXT_LIMIT)
        except OSError as exc:
            raise InputError(f"{path} cannot be read: {exc.strerror}.", hint=_HINT) from exc
        try:
            return _DIFFS.validate_json(text)
        except ValidationError as exc:
            raise InputError(f"{path} is damaged.", hint=_HINT) from exc

    def _check(self, name: str, path: Path) -> None:
        """A pack ends with the digest of what comes before."""
        if not _NAME.fullmatch(name):
            raise InputError(f"There is no snapshot {name!r}.", hint=_HINT)
        digest = hashlib.new("sha256" if len(name) == 64 else "sha1", usedforsecurity=False)
        try:
            with path.open("rb") as file:
                left = os.fstat(file.fileno()).st_size - digest.digest_size
                while left > 0 and (piece := file.read(min(left, _PIECE))):
                    digest.update(piece)
                    left -= len(piece)
                end = file.read()
        except OSError as exc:
            raise InputError(f"The snapshot {path} cannot be read: {exc.strerror}.", hint=_HINT) from exc
        if end != digest.digest():
            raise InputError(f"The snapshot {path} is damaged.", hint=_HINT)


def _write_whole(path: Path, pieces: Iterable[bytes]) -> None:
    """There with all of its bytes or not at all, also when the machine dies."""
    draft = path.with_name(f"{path.name}.part")
    draft.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "wb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(fd)
    draft.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _size_of(folder: Path) -> int:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    return 0


#: Name of their folder in the run folder.
FOLDER = "snapshots"
_HOLDERS = {"blob": "A file of the working tree", "tree": "A name in the working tree"}


class Snapshots:
    """Stores snapshots of the workspace in the run folder and restores them.

    `base` is a commit that every fresh clone has: the one from which the run started, or, if empty, HEAD at the first
    snapshot. A snapshot that would contain one of the `secrets` fails, and `redact` masks the diffs.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        run_folder: Path,
        *,
        base: str = "",
        secrets: Iterable[str] = (),
        redact: Callable[[str], str] = str,
    ) -> None:
        self._store, self._toolbox, self._base = SnapshotStore(run_folder / FOLDER), toolbox, base
        self._secrets, self._redact = secrets_to_find(secrets), redact
        self._last, self._has_failed, self._is_open = "", False, False
        #: The paths that each snapshot leaves out, with the reason.
        self._left_out: dict[str, Mapping[bytes, str]] = {}

    @property
    def left_out(self) -> tuple[str, ...]:
        """Return which paths the latest snapshot leaves out, and why."""
        left_out = self._left_out.get(self._last, {})
        return tuple(f"{_printable(path)}: {why}" for path, why in sorted(left_out.items()))

    def take(self, *, step: str = "", run: str = "") -> events.SnapshotTaken | events.SnapshotFailed:
        """Store the tree as it is now, with the changes since the snapshots at which the `step` and the `run` began. A
        tree that did not change has the name of the previous snapshot. Only a broken toolbox raises, an
        `IsolationError`."""
        begun = time.monotonic()
        try:
            taken = self._take(step, run)
        except IsolationError:
            raise
        except StepflowError as error:
            self._has_failed = True
            return events.SnapshotFailed(reason=str(error))
        self._has_failed = False
        return replace(taken, seconds=time.monotonic() - begun)

    def _take(self, step: str, run: str) -> events.SnapshotTaken:
        starts = list(dict.fromkeys((step, run))) if run else []
        limit = min(SNAPSHOT_LIMIT, self._store.free_bytes)
        request: JsonObject = {"last": self._last, "anew": self._has_failed, "starts": [*starts]}
        request |= {"limit": limit, "file_limit": FILE_LIMIT, "diff_limit": _DIFF_LIMIT}
        # In an unnamed file, so that a secret never reaches the run folder. The pack comes first, then the differences.
        with tempfile.TemporaryFile() as spool:
            try:
                most = limit + len(starts) * _DIFF_LIMIT
                answer = self._ask("take_snapshot", request, _TAKE_SECONDS, sink=spool.write, limit=most)
            except OSError as exc:
                hint = "Free space on the disk."
                raise StepflowError(f"A snapshot cannot be written: {exc.strerror}.", hint=hint) from exc
            name = answer["name"]
            if not name:
                return events.SnapshotTaken(name=self._last)
            spool.seek(answer["pack"])
            texts = [spool.read(size) for size, _ in answer["diffs"]]
            spool.truncate(answer["pack"])
            left_out = _read_left_out(answer)
            self._demand_no_secret(b"\0".join((os.fsencode(answer["branch"]), *left_out)), spool)
            diffs = [StepDiff()]
            if problem := answer["problem_of_diffs"]:
                diffs = [StepDiff(notes=(f"what changed cannot be shown: {self._redact(problem)}",))]
            elif run:
                pairs = zip(starts, texts, answer["diffs"], strict=True)
                diffs = [self._read_diff(start, text, left_out, whole=whole) for start, text, (_, whole) in pairs]
            size = self._store.add(name, spool, SnapshotDiffs(step=diffs[0], run=diffs[-1]))
        self._last, self._left_out[name] = name, left_out
        return events.SnapshotTaken(name=name, files=answer["files"], bytes=size)

    def _ask(
        self,
        what: str,
        request: JsonObject,
        seconds: float,
        *,
        sink: Callable[[bytes], object] | None = None,
        limit: int = 0,
    ) -> dict[str, Any]:
        """Let the sandbox's private repository answer. Where it failed before, it is made anew, with everything that
        was kept so far."""
        if not self._is_open:
            opening: JsonObject = {"folder": str(self._toolbox.private / "snapshots/tree.git"), "base": self._base}
            self._base = self._toolbox.ask_snapshots("open_snapshots", opening, seconds=seconds)["base"]
            for path in self._store.packs():
                self._toolbox.ask_snapshots("receive_snapshot", {}, seconds=seconds, given=path.read_bytes())
        self._is_open = False
        answer = self._toolbox.ask_snapshots(what, request, seconds=seconds, sink=sink, limit=limit)
        self._is_open = True
        return answer

    def _demand_no_secret(self, texts: bytes, pack: IO[bytes]) -> None:
        """`texts` are what people have named."""
        pack.seek(0)
        try:
            found = [one.kind for one in search_pack(pack, self._secrets) if one.has_secret]
        except UnsearchablePack as exc:
            raise StepflowError(f"The pack of a snapshot cannot be read: {exc}.") from exc
        if any(secret in texts for secret in self._secrets):
            found.append("tree")
        if found:
            raise StepflowError(
                f"{_HOLDERS.get(found[0], 'A commit')} contains a secret of this run, so no snapshot of it is kept.",
                hint="Keep secrets out of the checkout, or name such files in .gitignore; "
                "else the run cannot be resumed.",
            )

    def _read_diff(self, start: str, text: bytes, left_out: Mapping[bytes, str], *, whole: bool) -> StepDiff:
        """Return the changes since a snapshot, for people."""
        known = self._left_out.get(start, {})
        unseen = {_printable(path): why for path, why in left_out.items() if path not in known}
        return read_diff(text, is_whole=whole, left_out=unseen, redact=self._redact)

    def restore(self, name: str) -> None:
        """Restore the workspace from a snapshot; the next snapshot builds on this one.

        Raises `InputError` if the store is damaged, `StepflowError` if the snapshot does not fit the workspace.
        """
        self._store.check([name])
        self._toolbox.end_step()
        try:
            answer = self._ask("restore_snapshot", {"name": name, "limit": SNAPSHOT_LIMIT}, _RESTORE_SECONDS)
        except IsolationError:
            raise
        except StepflowError as error:
            raise StepflowError(
                f"The snapshot of the working tree could not be restored: {error.message}",
                hint="Check out the commit from which the run started, or start a new run.",
            ) from error
        self._last, self._left_out[name], self._has_failed = name, _read_left_out(answer), False


def _read_left_out(answer: Mapping[str, Any]) -> dict[bytes, str]:
    """Why which paths were left out."""
    return {path.encode("latin-1"): why for path, why in answer["left_out"].items()}


def _printable(path: bytes) -> str:
    """Escape line breaks and control characters: the tools choose the names of files."""
    text = path.decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


#: The tools that change files, apart from those of MCP servers.
CHANGING = frozenset({"bash", "write", "edit"})
#: Paths that a warning names, of those that are in no snapshot.
MOST_NAMED = 10


def changes_files(tool: str) -> bool:
    """Return whether a call of this tool may change files."""
    return tool in CHANGING or tool.startswith(MCP_PREFIX)


class Snapshotter:
    """Takes snapshots whenever one is due, and records those that differ from the one before."""

    def __init__(self, snapshots: Snapshots, journal: Journal) -> None:
        self._snapshots, self._journal = snapshots, journal
        self._latest = self._problem = ""
        #: Whether the tree can be restored to its last state.
        self.holds = False
        #: The snapshots at which the flow and its iteration began.
        self._flow_start = self._step_start = ""
        self._is_in_flow = False
        self._left_out: tuple[str, ...] = ()
        #: Whether something that changes files has run in this step.
        self._is_step_changing = False

    def keep(self, *, mark: bool = False) -> None:
        """Take a snapshot; with `mark` it is recorded even if nothing has changed.

        A failed snapshot does not end the run, but the run cannot be resumed from here until the next one.
        """
        taken = self._snapshots.take(step=self._step_start, run=self._flow_start)
        if isinstance(taken, events.SnapshotFailed):
            self.holds = False
            if taken.reason != self._problem:
                self._journal.append(taken)
            self._problem = taken.reason
            return
        if mark or taken.name != self._latest:
            self._latest, self.holds = taken.name, True
            if self._is_in_flow and not self._flow_start:
                self._flow_start = self._step_start = taken.name
            self._journal.append(taken)
        self._problem = ""
        left_out = self._snapshots.left_out
        if left_out != self._left_out:
            self._left_out = left_out
            names = "; ".join(left_out[:MOST_NAMED])
            self._warn(f"not kept: {names}" if names else "all files are kept again")

    def _warn(self, message: str) -> None:
        self._journal.append(events.Noted(level="warning", message=f"[Snapshot] {message}"))

    def before_setup(self, snapshots: RunSnapshots, *, is_start: bool) -> None:
        """Take the snapshot of the run's start, or restore it for a resumed run. A workspace that `is_start` already is
        that tree and stays untouched, so that a forged run folder cannot deceive the guards and the setup.
        """
        if not snapshots.start:
            self.keep(mark=True)
        elif not is_start:
            self._restore(snapshots.start)

    def after_setup(self, snapshots: RunSnapshots) -> None:
        """Take the snapshot of the tree with which the flow starts, or restore the latest one of a resumed run."""
        if snapshots.is_set_up:
            self._restore(snapshots.latest)
        else:
            self.keep(mark=True)
        self._flow_start, self._step_start = snapshots.flow_start, snapshots.step_start
        self._is_in_flow = bool(snapshots.flow_start)

    def begin_iteration(self) -> None:
        """Attribute all changes from now on to the next step."""
        self._step_start = self._latest
        self._flow_start = self._flow_start or self._step_start
        self._is_in_flow = True

    def begin_step(self, tools: tuple[ToolSpec, ...]) -> None:
        """Note that a step with these tools begins. An MCP server may change files without a call."""
        self._is_step_changing = any(tool.name.startswith(MCP_PREFIX) for tool in tools)

    def begin(self, use: ToolUse) -> None:
        """Record that a tool call begins."""
        self._is_step_changing |= changes_files(use.name)
        self._journal.append(events.ToolStarted(tool_use_id=use.tool_use_id, name=use.name))

    def end_step(self) -> None:
        """Take a snapshot if anything in the step could change files: its processes may have done so until they were
        killed. Processes of earlier steps are no longer alive."""
        if self._is_step_changing or not self.holds:
            self.keep()
        self._is_step_changing = False

    def _restore(self, name: str) -> None:
        self._snapshots.restore(name)
        self._latest, self.holds = name, True


@dataclass(frozen=True, kw_only=True)
class SnapshottingPorts:
    """Implements the ports `Journal`, `Tools` and `Commands`: snapshots what tools and commands change, and records
    when a tool call starts."""

    ports: Ports
    snapshotter: Snapshotter

    def append(self, event: events.Event) -> None:
        """Record the event. If an iteration begins, the snapshotter is told before."""
        if isinstance(event, events.IterationStarted):
            self.snapshotter.begin_iteration()
        self.ports.journal.append(event)

    def begin_step(self, tools: tuple[ToolSpec, ...]) -> None:
        """Start what the step's tools need."""
        self.snapshotter.begin_step(tools)
        self.ports.tools.begin_step(tools)

    def run_tool(self, use: ToolUse) -> ToolCall:
        """Run one call, and snapshot what it changed before it is answered."""
        self.snapshotter.begin(use)
        result = self.ports.tools.run_tool(use)
        if changes_files(use.name):
            self.snapshotter.keep()
        return result

    def end_step(self) -> None:
        """End the step's processes, then snapshot what they did."""
        self.ports.tools.end_step()
        self.snapshotter.end_step()

    def run_command(self, request: CommandRequest) -> CommandResult:
        """Run one command, and snapshot what it changed."""
        result = self.ports.commands.run_command(request)
        self.snapshotter.keep()
        return result
