"""The working tree of a run, kept and put back, so that a run which is stopped can go on."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO

from stepflow.domain.checkout import CommandRequest, CommandResult, SnapshotDiffs, SnapshotInfo, StepDiff
from stepflow.domain.conversation import ToolResult, ToolSpec, ToolUse
from stepflow.domain.definition import MCP_PREFIX
from stepflow.domain.event import (
    Entry,
    Event,
    IterationStarted,
    Noted,
    RunResumed,
    SnapshotFailed,
    SnapshotTaken,
    ToolStarted,
)
from stepflow.domain.secrets import UnsearchablePack, search_pack, secrets_to_find
from stepflow.errors import InputError, IsolationError, StepflowError
from stepflow.journal.snapshots import SnapshotStore
from stepflow.ports import Commands, Journal, Tools
from stepflow.report.diff import PAGE_LIMIT, TOO_MUCH, Diffs, read_diff, size_of
from stepflow.run.recorded import RunSnapshots
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.snapshots import SNAPSHOT_LIMIT, SnapshotRepository, TakenSnapshot

#: Where in the run folder they are.
FOLDER = "snapshots"
_HOLDERS = {"blob": "A file of the working tree", "tree": "A name in the working tree"}


class Snapshots:
    """Takes snapshots of the workspace into the run folder. `base` is the commit that a fresh clone has: of a run that
    is resumed, the one that it began with. Empty: HEAD, when the first one is taken. No snapshot holds one of the
    `secrets`, and texts about it are masked by `redact`."""

    def __init__(
        self,
        toolbox: Toolbox,
        run_folder: Path,
        *,
        base: str = "",
        secrets: Iterable[str] = (),
        redact: Callable[[str], str] = str,
    ) -> None:
        self._store = SnapshotStore(run_folder / FOLDER)
        self._repository = SnapshotRepository(toolbox, base, self._store.packs)
        self._secrets, self._redact = secrets_to_find(secrets), redact
        self._last, self._has_failed = "", False
        #: What was left out of each snapshot, and why.
        self._left_out: dict[str, Mapping[bytes, str]] = {}

    def take(self, *, step: str = "", run: str = "") -> SnapshotInfo:
        """Keep the tree as it is now, with what changed since the snapshots at which the `step` and the `run` began.
        What goes wrong is a value; raises `IsolationError` for a broken toolbox only."""
        begun = time.monotonic()
        try:
            info = self._take(step, run)
            self._has_failed = False
        except IsolationError:
            raise
        except StepflowError as error:
            self._has_failed = True
            info = SnapshotInfo(name=self._last, problem=str(error))
        return replace(info, seconds=time.monotonic() - begun)

    def _take(self, step: str, run: str) -> SnapshotInfo:
        limit = min(SNAPSHOT_LIMIT, self._store.free_bytes)
        taken = self._repository.take(self._last, anew=self._has_failed, limit=limit)
        if taken is None:
            return SnapshotInfo(name=self._last, left_out=_described(self._left_out[self._last]))
        with _spooled(partial(self._repository.pack, taken.name, self._last, limit=limit)) as pack:
            self._demand_no_secret(taken, pack)
            diffs = SnapshotDiffs()
            if run:
                changed = self._diffs(list(dict.fromkeys((step, run))), taken)
                diffs = SnapshotDiffs(step=changed[0], run=changed[-1])
            size = self._store.add(taken.name, pack, diffs)
        self._last, self._left_out[taken.name] = taken.name, taken.left_out
        return SnapshotInfo(name=taken.name, files=taken.files, bytes=size, left_out=_described(taken.left_out))

    def _demand_no_secret(self, taken: TakenSnapshot, pack: IO[bytes]) -> None:
        try:
            found = [one.kind for one in search_pack(pack, self._secrets) if one.has_secret]
        except UnsearchablePack as exc:
            raise StepflowError(f"The pack of a snapshot cannot be read: {exc}.") from exc
        if any(secret in taken.texts for secret in self._secrets):
            found.append("tree")
        if found:
            raise StepflowError(
                f"{_HOLDERS.get(found[0], 'A commit')} holds a secret of this run, so no snapshot of it is kept.",
                hint="Keep secrets out of the checkout, or name such files in .gitignore; "
                "else the run cannot be resumed.",
            )

    def _diffs(self, starts: list[str], taken: TakenSnapshot) -> list[StepDiff]:
        """What changed since each of these snapshots, for people."""
        try:
            texts = self._repository.diffs(starts, taken.name, without=taken.left_out)
        except StepflowError as error:
            return [StepDiff(notes=(f"what changed cannot be shown: {self._redact(error.message)}",))]
        diffs = list[StepDiff]()
        for start, (text, is_whole) in zip(starts, texts, strict=True):
            known = self._left_out.get(start, {})
            unseen = {_printable(path): why for path, why in taken.left_out.items() if path not in known}
            diffs.append(read_diff(text, is_whole=is_whole, left_out=unseen, redact=self._redact))
        return diffs

    def restore(self, name: str) -> None:
        """Bring the workspace to what it was; the next snapshot builds on this one.

        Raises `InputError` for a store that is damaged, `StepflowError` for a workspace that it does not fit.
        """
        self._store.check([name])
        try:
            self._left_out[name] = self._repository.restore(name)
        except IsolationError:
            raise
        except StepflowError as error:
            raise StepflowError(
                f"The snapshot of the working tree could not be put back: {error.message}",
                hint="Check out the commit that the run began with, or start a new run.",
            ) from error
        self._last, self._has_failed = name, False


def _spooled(fill: Callable[[Callable[[bytes], None]], None]) -> IO[bytes]:
    """What `fill` writes, in a file without a name: what holds a secret never stands in the folder. A full disk is told
    at the end, since the sandbox's answer is to be read whole."""
    file, problems = tempfile.TemporaryFile(), list[OSError]()  # noqa: SIM115 - closed by the caller

    def write(data: bytes) -> None:
        try:
            if not problems:
                file.write(data)
        except OSError as exc:
            problems.append(exc)

    fill(write)
    if problems:
        raise StepflowError(f"A snapshot cannot be written: {problems[0].strerror}.", hint="Free space on the disk.")
    file.seek(0)
    return file


def _described(left_out: Mapping[bytes, str]) -> tuple[str, ...]:
    return tuple(f"{_printable(path)}: {why}" for path, why in sorted(left_out.items()))


def _printable(path: bytes) -> str:
    """Names are the tools' own: no line break and no control character gets further."""
    text = path.decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


#: The tools that change files, beside those of MCP servers.
CHANGING = frozenset({"bash", "write", "edit"})
#: Of the paths that are in no snapshot so many are named.
MOST_NAMED = 10


def changes_files(tool: str) -> bool:
    """Whether a call of this tool may change files."""
    return tool in CHANGING or tool.startswith(MCP_PREFIX)


class Snapshotter:
    """Takes a snapshot wherever one is due, and writes it down when the tree has changed since the last."""

    def __init__(self, snapshots: Snapshots, journal: Journal) -> None:
        self._snapshots, self._journal = snapshots, journal
        self._latest = self._problem = ""
        #: Whether the tree can be put back to what it was at last.
        self.holds = False
        #: The snapshots at which the flow and its iteration began.
        self._flow_start = self._step_start = ""
        self._is_in_flow = False
        self._left_out: tuple[str, ...] = ()
        #: Whether something that changes files has run in this step.
        self._is_step_changing = False

    def keep(self, *, mark: bool = False) -> None:
        """Keep the tree; with `mark` it is written down even where nothing has changed.

        A snapshot that cannot be taken ends no run: it only cannot go on from here until the next one.
        """
        info = self._snapshots.take(step=self._step_start, run=self._flow_start)
        if info.problem:
            self.holds = False
            if info.problem != self._problem:
                self._journal.append(SnapshotFailed(reason=info.problem))
        elif mark or info.name != self._latest:
            self._latest, self.holds = info.name, True
            if self._is_in_flow and not self._flow_start:
                self._flow_start = self._step_start = info.name
            self._journal.append(
                SnapshotTaken(
                    name=info.name,
                    files=info.files,
                    bytes=info.bytes,
                    seconds=info.seconds,
                )
            )
        self._problem = info.problem
        if info.left_out != self._left_out:
            self._left_out = info.left_out
            self._warn(f"not kept: {'; '.join(info.left_out[:MOST_NAMED])}" if info.left_out else "all is kept again")

    def _warn(self, message: str) -> None:
        self._journal.append(Noted(level="warning", message=f"[Snapshot] {message}"))

    def before_setup(self, snapshots: RunSnapshots, *, is_start: bool) -> None:
        """The tree as the run began: kept, or put back for a run that goes on. A workspace that `is_start` stays as it
        is: the guards and the set-up must not take a folder's word for what nobody has touched.
        """
        if not snapshots.start:
            self.keep(mark=True)
        elif not is_start:
            self._restore(snapshots.start)

    def after_setup(self, snapshots: RunSnapshots) -> None:
        """The tree as the flow meets it."""
        if snapshots.is_set_up:
            self._restore(snapshots.latest)
        else:
            self.keep(mark=True)
        self._flow_start, self._step_start = snapshots.flow_start, snapshots.step_start
        self._is_in_flow = bool(snapshots.flow_start)

    def begin_iteration(self) -> None:
        """What changes from now on is another step's."""
        self._step_start = self._latest
        self._flow_start = self._flow_start or self._step_start
        self._is_in_flow = True

    def put_back(self) -> None:
        """Put the tree back to what it was when it was last kept."""
        self._restore(self._latest)

    def begin_step(self, tools: tuple[ToolSpec, ...]) -> None:
        """A step with these tools begins. A server may change files without a call."""
        self._is_step_changing = any(tool.name.startswith(MCP_PREFIX) for tool in tools)

    def begin(self, use: ToolUse) -> None:
        """A tool call begins."""
        self._is_step_changing |= changes_files(use.name)
        self._journal.append(ToolStarted(tool_use_id=use.id, name=use.name))

    def end_step(self) -> None:
        """Keep what the step's processes did until they were ended. Without what changes files there were none:
        nothing of an earlier step is alive."""
        if self._is_step_changing or not self.holds:
            self.keep()
        self._is_step_changing = False

    def _restore(self, name: str) -> None:
        self._snapshots.restore(name)
        self._latest, self.holds = name, True


@dataclass(frozen=True, kw_only=True)
class SnapshottingJournal:
    """A journal that says when an iteration begins."""

    journal: Journal
    snapshotter: Snapshotter

    def append(self, event: Event) -> None:
        """Write the event down."""
        if isinstance(event, IterationStarted):
            self.snapshotter.begin_iteration()
        self.journal.append(event)


@dataclass(frozen=True, kw_only=True)
class SnapshottingTools:
    """Tools whose calls are announced, and whose changes are kept before they are answered."""

    tools: Tools
    snapshotter: Snapshotter

    def begin_step(self, tools: tuple[ToolSpec, ...]) -> None:
        """Start what the step's tools need."""
        self.snapshotter.begin_step(tools)
        self.tools.begin_step(tools)

    def run_tool(self, use: ToolUse) -> ToolResult:
        """Run one call."""
        self.snapshotter.begin(use)
        result = self.tools.run_tool(use)
        if changes_files(use.name):
            self.snapshotter.keep()
        return result

    def end_step(self) -> None:
        """End the step's processes; what they did until then counts."""
        self.tools.end_step()
        self.snapshotter.end_step()


@dataclass(frozen=True, kw_only=True)
class SnapshottingCommands:
    """Commands whose changes are kept."""

    commands: Commands
    snapshotter: Snapshotter

    def run_command(self, request: CommandRequest) -> CommandResult:
        """Run one command."""
        result = self.commands.run_command(request)
        self.snapshotter.keep()
        return result


FAILED = "a snapshot failed here: its changes are shown with the step after it"
UNKNOWN_START = "what changed before the first snapshot is not known"


@dataclass(kw_only=True)
class Stretch:
    """One iteration: the snapshots that were taken in it, in order, and whether one could not be."""

    iteration: int
    names: list[str] = field(default_factory=list)
    failed: bool = False


class Stretches:
    """Gathers which snapshots belong to which iteration. The first stretch, 0, is what came before all of them."""

    def __init__(self) -> None:
        self.all = [Stretch(iteration=0)]

    def watch(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """The same entries, looked at as they pass."""
        for entry in entries:
            last = self.all[-1]
            match entry.event:
                case IterationStarted(iteration=iteration):
                    self.all.append(Stretch(iteration=iteration))
                case SnapshotTaken(name=name):
                    last.names.append(name)
                case RunResumed(snapshot=name) if name:
                    # What came after it was taken back.
                    last.names = last.names[: last.names.index(name) + 1] if name in last.names else []
                case SnapshotFailed():
                    last.failed = True
                case _:
                    pass
            yield entry


def diffs_of(stretches: Stretches, folder: Path) -> Diffs:
    """The diffs of a run folder's iterations, or why there are none. A folder that is damaged takes nothing but the
    diffs from the page."""
    try:
        return _diffs(stretches.all, SnapshotStore(folder / FOLDER))
    except InputError as error:
        return Diffs(note=f"The steps are shown without what they changed. {error}")


def _diffs(stretches: list[Stretch], store: SnapshotStore) -> Diffs:
    """The whole run, then the last step and the first one have their diffs first, those in the middle when there is
    room for them."""
    start, *work = stretches
    taken = [stretch for stretch in work if stretch.names]
    if not taken:
        return Diffs(steps={one.iteration: StepDiff(notes=(FAILED,)) for one in work if one.failed})
    run = store.diffs(taken[-1].names[-1]).run
    unknown = () if start.names else (UNKNOWN_START,)
    room, shown, left_out = PAGE_LIMIT - size_of(run), dict[int, StepDiff](), 0
    waiting = deque(stretch for stretch in work if stretch.names or stretch.failed)
    while waiting:
        stretch = waiting.popleft() if len(shown) % 2 else waiting.pop()
        diff = StepDiff()
        if stretch.names and room <= 0:
            diff = StepDiff(notes=(TOO_MUCH,))
            left_out += 1
        elif stretch.names:
            diff = store.diffs(stretch.names[-1]).step
            room -= size_of(diff)
        notes = (*diff.notes, *((FAILED,) if stretch.failed else ()), *(unknown if stretch is taken[0] else ()))
        shown[stretch.iteration] = replace(diff, notes=notes)
    note = f"What {left_out:,} of {len(shown):,} steps changed is {TOO_MUCH}." if left_out else ""
    return Diffs(
        steps={number: diff for number, diff in shown.items() if diff.files or diff.notes},
        run=replace(run, notes=(*run.notes, *unknown)),
        note=note,
    )
