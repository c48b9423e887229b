"""Chooses what of a checkout is copied, says how large that is and how long it may take, and copies it."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from stepflow.domain.checkout import fits_one_of
from stepflow.domain.text import mebibytes, name_some
from stepflow.errors import InputError
from stepflow.programs import run_program
from stepflow.sandbox.host_git import ask_git
from stepflow.sandbox.installed import (
    BUNDLER_SETTINGS,
    LOGIN_NAMES,
    LOGIN_PATHS,
    Installed,
    find_installed,
    keep_harmless_settings,
    move_environment,
)

#: Copies of a checkout's files that a run has at a time: the workspace, what `setup` left, and the check tree.
COPIES = 3
#: What may take longer to copy is announced.
SLOW_SECONDS = 2.0
#: What git ignores and nobody installed is copied unasked up to so many bytes.
LARGEST_IGNORED = 1024**3
#: Git's own setting of a clone, which names what is left out. No commit and no tool can write it.
LEAVE_OUT = "stepflow.leaveOut"
_GIT = ".git"
#: What a disk writes in a second, in bytes and in files. A faster disk is a pleasant surprise.
_BYTES_PER_SECOND, _FILES_PER_SECOND = 200 * 1024 * 1024, 10_000
#: Modes, times and links stay. What root copies belongs to root, who may not even be allowed to give it away.
COPY = ("cp", "-a", "--no-preserve=ownership") if os.geteuid() == 0 else ("cp", "-a")
#: So many names are given to one program.
_MOST_NAMES = 1000
_VANISHED = "No such file or directory"
_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class CopiedFiles:
    """What of a checkout is copied: everything but what is `left_out` by name and what is `too_large`, or with
    `only_installed` what git tracks and what was installed."""

    installed: Installed
    left_out: tuple[Path, ...] = ()
    too_large: tuple[Path, ...] = ()
    only_installed: bool = False

    @property
    def checkout(self) -> Path:
        """The checkout, by its real path."""
        return self.installed.checkout

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Files and whole folders that are copied as they are, relative to the checkout."""
        if not self.only_installed:
            return self._without_links((Path(),))
        listed = ask_git(self.checkout, "ls-files", "--recurse-submodules", "-z", may_fail=True).split("\0")
        stage = ask_git(self.checkout, "ls-files", "--stage", "-z", may_fail=True).split("\0")
        modules = (line.partition("\t")[2] for line in stage if line.startswith("160000 "))
        inside = self._without_links(self.dependencies)
        return tuple(
            dict.fromkeys(name for name in (*listed, *(f"{each}/{_GIT}" for each in modules), *inside) if name)
        )

    @property
    def dependencies(self) -> tuple[Path, ...]:
        """The dependencies that are copied."""
        return tuple(path for path in self.installed.dependencies if not self._is_left_out(path))

    @property
    def environments(self) -> tuple[Path, ...]:
        """The environments that are copied."""
        return tuple(path for path in self.installed.environments if not self._is_left_out(path))

    def copy(self, workspace: Path) -> None:
        """Copy everything into a new folder. Raises `InputError` where that cannot be done."""
        workspace.mkdir()
        copy_files(self.names, workspace, folder=self.checkout)
        self._copy_linked(self.dependencies, workspace)
        if self.only_installed:
            _remove_logins([workspace / path for path in self.dependencies])
        for path in self.installed.not_ignored:
            folder = workspace / path
            if folder.is_dir() and not folder.is_symlink() and not os.path.lexists(folder / ".gitignore"):
                # What nobody told git to ignore must not end in a commit.
                (folder / ".gitignore").write_text("*\n", encoding="ascii")
        shutil.copystat(self.checkout, workspace)

    def copy_dependencies(self, target: Path) -> None:
        """Copy what was installed to the same places of another checkout, as far as nothing is there; environments then
        lead to that one."""
        free = [path for path in self.dependencies if _is_free(path, target)]
        copy_files(self._without_links(free), target, folder=self.checkout)
        self._copy_linked(free, target)
        _remove_logins([target / path for path in free])
        for path in self.environments:
            if any(path.is_relative_to(each) for each in free):
                move_environment(self.checkout / path, target / path, checkout=self.checkout, to=target)

    def _copy_linked(self, paths: Iterable[Path], target: Path) -> None:
        """Copy what links lead to, in place of the links: tools cannot read it where it is. Of a repository only the
        files."""
        for link, end in self._linked_in(paths).items():
            (target / link.parent).mkdir(parents=True, exist_ok=True)
            if end.is_dir():
                (target / link).mkdir()
                copy_files([str(each) for each in end.iterdir() if each.name != _GIT], target / link)
            else:
                copy_files((str(end),), target / link, as_a_whole=True)

    def _linked_in(self, paths: Iterable[Path]) -> dict[Path, Path]:
        """Return the links to replace at or below these paths, and where they lead."""
        places = tuple(paths)
        return {
            link: end
            for link, end in self.installed.linked.items()
            if not self._is_left_out(link) and any(link.is_relative_to(path) for path in places)
        }

    def announce(self, place: Path, often: str = "") -> str:
        """Say how much is to be copied for a run and its checks, and how long that may take, if it is not done at once;
        and how `often`."""
        size, files = self.size, _count("--inodes", self._everything, self.checkout)
        seconds = COPIES * (size / _BYTES_PER_SECOND + files / _FILES_PER_SECOND)
        if seconds < SLOW_SECONDS:
            return ""
        free = shutil.disk_usage(place).free
        room = "" if free > COPIES * size else f", where only {mebibytes(free)} are free"
        times = f"{COPIES} times {often}".rstrip()
        said = f"Copying {mebibytes(size)} in {files:,} files to {place}{room}, {times}: about {_duration(seconds)}."
        untracked = (*self.installed.others, *self.dependencies)
        sizes = {name: _size((name,), self.checkout) for name in map(str, untracked) if name in {*self.names}}
        large = (name for name in sizes if sizes[name] * 10 > size)
        if largest := sorted(large, key=lambda name: -sizes[name])[:_NAMED]:
            shown = ", ".join(f"{_printable(name)} ({mebibytes(sizes[name])})" for name in largest)
            said += f" Not tracked by git: {shown}."
            # Checks hardly work without what was installed.
            others = (name for name in largest if Path(name) in self.installed.others)
            if example := next(others, ""):
                said += f" To leave one out: {leave_out_command(example)}"
        return said

    def describe_withheld(self) -> str:
        """Say what stays behind although it was not left out by name; empty if nothing does."""
        if not self.only_installed or not self.installed.others:
            return ""
        names = name_some(_printable(str(path)) for path in self.installed.others)
        return f"Not copied, as git does not track it and nothing was installed there: {names}"

    @property
    def size(self) -> int:
        """The bytes on the disk."""
        return _size(self._everything, self.checkout)

    @property
    def _everything(self) -> tuple[str, ...]:
        return (*self.names, *map(str, self._linked_in(self.dependencies).values()))

    def _is_left_out(self, path: Path) -> bool:
        return any(path.is_relative_to(each) for each in (*self.left_out, *self.too_large))

    def _without_links(self, paths: Iterable[Path]) -> tuple[str, ...]:
        """Return the largest parts of the paths that are copied as they are."""
        without = {Path(_GIT), *self.left_out, *self.too_large, *self.installed.linked}
        return tuple(str(part) for path in paths for part in self._parts(path, without))

    def _parts(self, path: Path, without: set[Path]) -> Iterator[Path]:
        if path in without:
            return
        if not any(each.is_relative_to(path) for each in without):
            yield path
            return
        for entry in sorted((self.checkout / path).iterdir()):
            yield from self._parts(path / entry.name, without)


def _is_free(path: Path, target: Path) -> bool:
    """Return whether nothing is at the path, and folders can be made on the way there."""
    above = (target / each for each in path.parents)
    return not os.path.lexists(target / path) and all(each.is_dir() or not os.path.lexists(each) for each in above)


def _remove_logins(paths: Sequence[Path]) -> None:
    """Remove files that programs usually log in by; of Bundler's settings keep those that say where gems are."""
    names = [word for name in LOGIN_NAMES for word in ("-name", name, "-o")]
    logins = (*names, *(word for path in LOGIN_PATHS for word in ("-path", path, "-o")), "-false")
    delete = ("!", "-type", "d", "(", *logins, ")", "-delete")
    settings = ("-type", "f", "-path", BUNDLER_SETTINGS, "-print0")
    there = [str(path) for path in paths if path.is_dir() and not path.is_symlink()]
    for begin in range(0, len(there), _MOST_NAMES):
        found = run_program("find", *there[begin : begin + _MOST_NAMES], *delete, "-o", *settings)
        for name in found.stdout.split(b"\0")[:-1]:
            keep_harmless_settings(Path(os.fsdecode(name)))


def copied_files(checkout: Path, *, only_installed: bool = False, kept: Sequence[str] = ()) -> CopiedFiles:
    """Return what a workspace has of the checkout. What fits the patterns `kept` is not too large. Raises `InputError`
    for a name that cannot be left out."""
    installed = find_installed(checkout)
    left_out = tuple(_left_out(installed.checkout))
    others = () if only_installed else tuple(path for path in installed.others if path not in left_out)
    too_large = _find_too_large(installed.checkout, others, kept)
    return CopiedFiles(installed=installed, left_out=left_out, too_large=too_large, only_installed=only_installed)


def find_too_large(checkout: Path, kept: Sequence[str]) -> tuple[Path, ...]:
    """Return what git ignores and nobody installed that is too large to be copied unasked, relative to the checkout.
    What fits the patterns `kept` is not."""
    installed = find_installed(checkout)
    return _find_too_large(installed.checkout, installed.others, kept)


def _find_too_large(checkout: Path, others: Iterable[Path], kept: Sequence[str]) -> tuple[Path, ...]:
    is_kept = fits_one_of(kept)
    large = (str(path) for path in others if _size((str(path),), checkout) > LARGEST_IGNORED)
    return tuple(Path(name) for name in large if not is_kept(name) and _is_ignored(checkout, name))


def _is_ignored(checkout: Path, name: str) -> bool:
    return not ask_git(checkout, "ls-files", "--others", "--exclude-standard", "--", f":(literal){name}")


def describe_too_large(paths: Sequence[Path]) -> str:
    """Say what is not copied because it is too large, and what to do."""
    names = name_some(_printable(str(path)) for path in paths)
    return (
        f"Not copied, since git ignores it and it has over {mebibytes(LARGEST_IGNORED)}: {names}. If the agent or a "
        "check needs it, let the input setup install it, or name it in keepForChecks of agent.json."
    )


def leave_out_command(name: str) -> str:
    """Return the command by which a clone leaves a path out of every copy."""
    return f"git config --add {LEAVE_OUT} {_printable(name)}"


def _left_out(checkout: Path) -> Iterator[Path]:
    for given in ask_git(checkout, "config", "--get-all", "-z", LEAVE_OUT, may_fail=True).split("\0"):
        name = os.path.normpath(given) if given else ""
        if not name:
            continue
        path = Path(name)
        refused = f"The setting {LEAVE_OUT} of the clone {checkout} names {_printable(given)}"
        again = f"Take it back: git config --unset-all {LEAVE_OUT} {_printable(given)}"
        if path.is_absolute() or path.parts[:1] in ((), ("..",), (_GIT,)):
            raise InputError(f"{refused}, which is no path in it.", hint=f"{again}, and name it from the top folder.")
        if ask_git(checkout, "ls-files", "--", f":(literal){name}", may_fail=True):
            raise InputError(
                f"{refused}, where git tracks files: without them every look at the workspace would find a change.",
                hint=f"{again}, or name a folder in it that git does not track.",
            )
        yield path


def copy_files(paths: Sequence[str], into: Path, *, folder: Path | None = None, as_a_whole: bool = False) -> None:
    """Copy with modes, times and links, and without a second block on the disk where the file system can: into a
    folder, to the same places below it if the paths are relative to `folder`, or `as_a_whole` to a new place. What
    vanishes meanwhile is left out: somebody else may work there."""
    words = (*COPY, *(("--parents",) if folder else ()), *(("--no-target-directory",) if as_a_whole else ()), "--")
    for begin in range(0, len(paths), _MOST_NAMES):
        done = run_program(*words, *paths[begin : begin + _MOST_NAMES], str(into), folder=folder)
        complaints = [line for line in os.fsdecode(done.stderr).splitlines() if _VANISHED not in line]
        if done.returncode and complaints:
            raise InputError(
                f"The checkout cannot be copied to {into}: {complaints[0].removeprefix('cp: ')}.",
                hint="Make the file readable, or remove it; and check that there is room for temporary files "
                f"(TMPDIR says where they are). What git does not track may be left out: {leave_out_command('NAME')}",
            )


def _size(names: Sequence[str], folder: Path) -> int:
    return 1024 * _count("-k", names, folder)


def _count(unit: str, names: Sequence[str], folder: Path) -> int:
    """Return what `du` counts: kibibytes on the disk, or files and folders."""
    total = 0
    for begin in range(0, len(names), _MOST_NAMES):
        done = run_program("du", "-s", unit, "--", *names[begin : begin + _MOST_NAMES], folder=folder)
        counts = (line.split(b"\t")[0] for line in done.stdout.split(b"\n"))
        total += sum(int(count) for count in counts if count.isdigit())
    return total


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _printable(name: str) -> str:
    """Return the name as bash takes it, in printable characters alone."""
    if name.isprintable():
        return shlex.quote(name)
    escaped = (
        each if each.isprintable() and each not in "\\'" else "".join(f"\\x{byte:02x}" for byte in os.fsencode(each))
        for each in name
    )
    return f"$'{''.join(escaped)}'"
