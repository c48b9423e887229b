"""The tree that checks run in: what `setup` left, with the files of a closing, at the workspace's own path and under
another user than the tools'. Nothing that tools have touched is in it but what git lists."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

from stepflow.domain.activity import activity
from stepflow.domain.checkout import CommandRequest, CommandResult, TreeState, fits_one_of
from stepflow.domain.manifests import changed_manifests
from stepflow.domain.text import excerpt, name_some, readable_output
from stepflow.errors import BoundaryError
from stepflow.ports import Commands
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.change import ChangeRepository
from stepflow.sandbox.child.paths import STEP_SECONDS, remove
from stepflow.sandbox.copying import CopiedFiles, copy_files, find_too_large
from stepflow.sandbox.installed import Installed
from stepflow.sandbox.mirror import Mirror
from stepflow.sandbox.workspace import GIT, give_to, remove_folder

#: The commits of one closing, with what is not committed, may have so many bytes.
MOST_BYTES = 512 * 1024 * 1024
#: Characters of the output of a `setup` that fails.
SHOWN_OF_SETUP = 4000
_PRIVATE = ("home", "tmp")


@dataclass(frozen=True, kw_only=True)
class CheckedFiles:
    """Implements the port `CheckTree`: the files of one closing while they can be checked."""

    closing: TreeState
    run: Callable[[CommandRequest], CommandResult]

    def run_command(self, request: CommandRequest) -> CommandResult:
        """Run a check, or a question about one."""
        return self.run(request)


@dataclass(kw_only=True)
class _Swap:
    """A path that tools and checks share: the files of one side are there, those of the other beside it."""

    path: Path
    is_made: bool = False

    @property
    def of_checks(self) -> Path:
        return self.path.with_name(f"{self.path.name}-checks")

    @property
    def of_tools(self) -> Path:
        return self.path.with_name(f"{self.path.name}-tools")

    def find(self) -> Path:
        """Return where the files of the checks are now."""
        return self.path if self.is_made else self.of_checks

    @contextmanager
    def made(self) -> Iterator[None]:
        """Put the files of the checks at the path within the block."""
        self.path.rename(self.of_tools)
        try:
            self.of_checks.rename(self.path)
            self.is_made = True
            try:
                yield
            finally:
                self.path.rename(self.of_checks)
                self.is_made = False
        finally:
            self.of_tools.rename(self.path)


def _failure(error: BoundaryError) -> CommandResult:
    return CommandResult(exit_code=-1, error=error.message)


class CheckTrees:
    """What `setup` left, kept out of reach of the tools, and the tree with it in which one closing after the other is
    checked. Made after `setup` and before the first tool call: what stands in the workspace then is what is trusted.

    Without a user of its own only Landlock keeps the tools away from it, and shared memory is left alone.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        checkout: Path,
        *,
        base: str,
        setup: Callable[[Commands], CommandResult] | None = None,
        setup_reads: Sequence[str] = (),
        keep: Sequence[str] = (),
        waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Copy what `setup` left, and start the sandbox of the checks. `checkout` is the repository with the `base`
        commit, which no tool has touched. Where a closing changes what `setup` reads, that is run again by the commands
        of the tree. What fits the patterns to `keep` stays there from one closing to the next. Raises `InputError`
        where something cannot be copied."""
        self._tools, self._base, self._waiting = toolbox, base, waiting
        workspace, private = toolbox.checkout, toolbox.private
        self._swaps = files, places = _Swap(path=workspace), _Swap(path=private)
        self._kept = kept = workspace.with_name(f"{workspace.name}-after-setup")
        self._mirrors = (
            Mirror(kept / "checkout", files.find, without={GIT}, stays=fits_one_of(keep)),
            Mirror(kept / "home", lambda: places.find() / "home"),
            Mirror(kept / "tmp", lambda: places.find() / "tmp"),
        )
        #: The repository of the newest closing, for the checks after the first.
        self._git = Mirror(kept / "closing.git", lambda: files.find() / GIT)
        #: Makes the tree like what `setup` left, while tools work.
        self._beside = ThreadPoolExecutor(1)
        self._preparing: Future[None] | None = None
        self._is_used = self._is_set_up_again = False
        self._setup, self._setup_reads, self._note = setup, setup_reads, note
        #: The files of the newest closing, and how each check ended on them.
        self._newest: tuple[TreeState, str] | None = None
        self._results: dict[tuple[str, ...], CommandResult] = {}
        #: What is not copied because it is too large, and nobody said to keep it.
        self.too_large = find_too_large(workspace, keep)
        toolbox.end_step()
        self._rules = toolbox.begin_work()
        with ExitStack() as making:
            making.callback(self._remove)
            kept.mkdir(mode=0o700)
            self.repository = ChangeRepository(kept / "work.git", checkout)
            with activity("copying the files that checks start from"):
                with waiting():
                    self._keep(workspace, private)
                self._box = self._start()
            making.pop_all()

    def _keep(self, workspace: Path, private: Path) -> None:
        """Copy what `setup` left, and make places for the copies that checks use."""
        files = CopiedFiles(installed=Installed(checkout=workspace), too_large=self.too_large)
        (self._kept / "checkout").mkdir()
        copy_files((*files.names, GIT), self._kept / "checkout", folder=workspace)
        copy_files(_PRIVATE, self._kept, folder=private)
        for swap in self._swaps:
            swap.of_checks.mkdir()

    def _start(self) -> Toolbox:
        tools = self._tools
        with self._swapped(), self._waiting():
            for mirror in self._mirrors:
                mirror.restore()
            copy_files((GIT,), tools.checkout, folder=self._kept / "checkout")
            box = Toolbox.start(tools.checkout, beside=tools)
            time.sleep(STEP_SECONDS)
            for mirror in self._mirrors:
                mirror.remember()
        return box

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._beside.shutdown()
        self._box.close()
        self._remove()

    def prepare(self) -> None:
        """Begin to make the tree like what `setup` left, for the next closing. Tools may work meanwhile."""
        self._preparing = self._preparing or self._beside.submit(self._make_ready)

    def _make_ready(self) -> None:
        folder = self._swaps[0].find()
        for mirror in self._mirrors:
            mirror.restore(self._box.owner, anew=self._is_set_up_again)
        remove(str(folder / GIT))
        copy_files((GIT,), folder, folder=self._kept / "checkout")

    def _wait_until_ready(self) -> None:
        self.prepare()
        # A signal that interrupts the wait itself could leave a lock taken.
        while self._preparing and not self._preparing.done():
            with self._waiting():
                time.sleep(STEP_SECONDS)
        if self._preparing:
            self._preparing.result()
        self._preparing = None

    def interrupt(self) -> None:
        """End everything that checks run, from another thread than the one that waits for them, which gets an
        `IsolationError`."""
        self._box.interrupt()

    def _remove(self) -> None:
        for folder in (self._kept, *(swap.of_checks for swap in self._swaps)):
            remove_folder(folder)

    @contextmanager
    def _swapped(self) -> Iterator[None]:
        workspace, private = self._swaps
        with workspace.made(), private.made():
            yield

    @contextmanager
    def opened(self) -> Iterator[CheckedFiles]:
        """Let the files of the workspace, as they are now, be checked within the block. They stand in its place from
        the first check on; one that has run on the same files before is not run again."""
        self._tools.end_step()
        self._tools.remove_shared_memory()
        with ExitStack() as standing:
            try:
                with self._waiting():
                    closing, files = self._take_work()
            except BoundaryError as exc:
                failed, problem = _failure(exc), exc.message.rstrip(".")
                yield CheckedFiles(closing=TreeState(problem=problem), run=lambda _: failed)
                return
            yield CheckedFiles(closing=closing, run=self._checks_of(closing, files, standing))

    def _checks_of(
        self, closing: TreeState, files: str, standing: ExitStack
    ) -> Callable[[CommandRequest], CommandResult]:
        """Return what runs checks on these files, which are put up for the first that has not run on them before."""
        if self._newest != (closing, files):
            self._newest, self._results = (closing, files), {}
        results, failed, is_up = self._results, None, False

        def run(request: CommandRequest) -> CommandResult:
            nonlocal failed, is_up
            if request.argv in results:
                return replace(results[request.argv], seconds=0)
            if not is_up:
                is_up, failed = True, self._put_up(closing, files, standing)
            result = failed or self._run(request)
            if not failed and result.started and not result.timed_out:
                results[request.argv] = result
            return result

        return run

    def _put_up(self, closing: TreeState, files: str, standing: ExitStack) -> CommandResult | None:
        """Let the files stand in the place of the workspace until the stack ends, and return what checks end with if
        that fails."""
        self._wait_until_ready()
        standing.enter_context(self._swapped())
        # Nothing may run while the places change again.
        standing.push(self._end_on_error)
        try:
            with self._waiting(), activity("writing the files of the checks"):
                self._write(closing, files)
        except BoundaryError as exc:
            return _failure(exc)
        return None

    def _end_on_error(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if kind:
            self._box.close()

    def _take_work(self) -> tuple[TreeState, str]:
        """Take the commits out of the workspace, with one on top for what is not committed; git reads every object
        anew."""
        bundle = self._kept / "bundle"
        with bundle.open("w+b", buffering=0) as file:
            state, files = self._tools.take_work(self._base, file.write, max_bytes=MOST_BYTES)
            has_commits = file.tell() > 0
        if has_commits and self.repository.fetch(bundle) != files:
            raise BoundaryError("The commits of the workspace are not those that it names.")
        bundle.unlink()
        if state.commit not in self.repository.commit_and_parents(files):
            raise BoundaryError("HEAD's commit is not the one that the workspace names.")
        return replace(state, touched=self._of_work(self.repository.changes(self._base, files))), files

    def _of_work(self, changes: Mapping[str, str]) -> dict[str, str]:
        """Return the changes below the working directory, by their paths from there."""
        folder = PurePosixPath(self._tools.options.working_directory)
        return {
            str(PurePosixPath(path).relative_to(folder)): state
            for path, state in changes.items()
            if PurePosixPath(path).is_relative_to(folder)
        }

    def _write(self, closing: TreeState, files: str) -> None:
        owner, workspace = self._box.owner, self._tools.checkout
        packs = [str(path) for path in (self.repository.folder / "objects/pack").iterdir()]
        copy_files(packs, workspace / GIT / "objects/pack")
        if owner:
            give_to(workspace / GIT, *owner)
        self._box.write_files(closing, files, self._rules)
        self._set_up_again(changed_manifests(closing.touched, self._setup_reads))
        remove(str(self._kept / "closing.git"))
        copy_files((str(workspace / GIT),), self._kept / "closing.git", as_a_whole=True)
        time.sleep(STEP_SECONDS)
        for mirror in (*self._mirrors, self._git):
            mirror.remember()
        self._is_used = False

    def _set_up_again(self, changed: Sequence[str]) -> None:
        """Run `setup` in the tree if manifests were changed. Raises `BoundaryError` if it fails."""
        self._is_set_up_again = bool(self._setup and changed)
        if not (self._setup and changed):
            return
        names = name_some(changed)
        result = self._setup(self._box)
        self._note(f"[Setup] ran again for the checks, since {names} changed ({result.seconds:.0f} s)")
        if result.exit_code:
            output = excerpt(readable_output(result.output), SHOWN_OF_SETUP).strip() or result.error
            raise BoundaryError(
                f"`setup`, which runs again because {names} changed, fails with exit code {result.exit_code}: {output}"
            )
        self._box.restore_files()

    def _run(self, request: CommandRequest) -> CommandResult:
        """Run a check on the files of the closing, whatever the checks before it have changed."""
        if self._is_used:
            with self._waiting():
                self._git.restore(self._box.owner)
                self._box.restore_files()
                time.sleep(STEP_SECONDS)
                self._git.remember()
        self._is_used = True
        result = self._box.run_command(request)
        self._box.remove_shared_memory()
        return result
