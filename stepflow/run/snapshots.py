"""The working tree of a run, kept and put back, so that a run which is stopped can go on (action.md "Resume")."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.domain.checkout import SnapshotInfo
from stepflow.domain.event import Noted, SnapshotFailed, SnapshotTaken, ToolStarted
from stepflow.domain.mcp import MCP_PREFIX
from stepflow.domain.secrets import secrets_to_find
from stepflow.errors import StepflowError
from stepflow.journal.snapshots import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepflow.domain.checkout import CommandRequest, CommandResult
    from stepflow.domain.conversation import ToolResult, ToolSpec, ToolUse
    from stepflow.ports import Commands, Journal, Tools
    from stepflow.run.recorded import RunSnapshots
    from stepflow.sandbox.box import Toolbox

#: Where in the run folder they are (action.md "Run folder").
FOLDER = "snapshots"


class Snapshots:
    """Takes snapshots of the workspace into the run folder. `base` is the commit that a fresh clone has: of a
    run that is resumed, the one that it began with. Empty: HEAD, when the first one is taken. No snapshot holds one of
    the `secrets`.
    """

    def __init__(self, toolbox: Toolbox, run_folder: Path, *, base: str = "", secrets: Iterable[str] = ()) -> None:
        self._port = toolbox.snapshots
        self._store = SnapshotStore(run_folder / FOLDER, secrets=secrets_to_find(secrets))
        self._base = base
        self._exclude = _inside(toolbox.checkout, run_folder)

    def take(self) -> SnapshotInfo:
        """Keep the tree as it is now. What goes wrong is a value; raises `IsolationError` for a broken toolbox only."""
        begun = time.monotonic()
        try:
            info = self._take()
            if isinstance(info, tuple):
                # What a file held before is only ever shown: without that, the tree can be kept all the same.
                info = self._take(withhold=info)
            assert not isinstance(info, tuple)  # noqa: S101 - nothing is withheld twice
        except StepflowError as error:
            if not self._port.alive:
                raise
            info = SnapshotInfo(name=self._store.last, problem=str(error))
        return replace(info, seconds=time.monotonic() - begun)

    def _take(self, withhold: tuple[str, ...] = ()) -> SnapshotInfo | tuple[str, ...]:
        last = self._store.manifest
        with self._store.incoming() as coming:
            answer = self._port.take(
                coming.feed,
                base=self._base,
                previous=last.place if last else None,
                withhold=withhold,
                free_bytes=self._store.free_bytes,
                exclude=self._exclude,
            )
            return self._store.store(coming, answer, withheld=withhold)

    def restore(self, name: str) -> None:
        """Bring the workspace to what it was; the next snapshot builds on this one.

        Raises `InputError` for a store that is damaged, `StepflowError` for a workspace that it does not fit.
        """
        resolved = self._store.resolve(name)
        manifest = resolved.manifests[name]
        self._port.restore(
            manifest.place, left_out=manifest.left_out, size=resolved.size, pack=resolved.pack(), exclude=self._exclude
        )
        self._base = manifest.base
        self._store.build_on(name, manifest)


def _inside(checkout: Path, run_folder: Path) -> tuple[bytes, ...]:
    """A run folder inside the workspace is no part of it, or each snapshot would hold all those before."""
    folder = run_folder.resolve()
    return (os.fsencode(folder.relative_to(checkout)),) if folder.is_relative_to(checkout) else ()


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
        self._left_out: tuple[str, ...] = ()
        #: Whether something that changes files has run in this step.
        self._is_step_changing = False

    def keep(self, *, mark: bool = False) -> None:
        """Keep the tree; with `mark` it is written down even where nothing has changed.

        A snapshot that cannot be taken ends no run: it only cannot go on from here until the next one.
        """
        info = self._snapshots.take()
        if info.problem:
            self._latest = ""
            if info.problem != self._problem:
                self._journal.append(SnapshotFailed(reason=info.problem))
        elif mark or info.name != self._latest:
            self._latest = info.name
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

    @property
    def holds(self) -> bool:
        """Whether the tree can be put back to what it was at last."""
        return bool(self._latest)

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
        self._latest = name


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
