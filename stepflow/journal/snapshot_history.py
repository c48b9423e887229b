"""How the working tree went from one snapshot of a run folder to another, by git in a repository made for it.

What it reads may be forged: it is only ever shown.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

from stepflow.domain.checkout import LINK, PLAIN, PROGRAM, FileChange, FileSide
from stepflow.errors import InputError
from stepflow.journal.snapshots import HINT, SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

#: Bytes of a file that are shown at most: the toolbox hands on no more of old contents.
SHOWN_LIMIT = 256 * 1024
#: What git may take for all snapshots together, and for one question.
_SECONDS, _OUTPUT_LIMIT, _MEMORY = 120.0, 64 * 1024 * 1024, 1024 * 1024 * 1024
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/homebrew/bin"
#: Files over the threshold are not unpacked in memory, for a pack of a few kilobytes may hold one of a gigabyte.
_CONFIG = {
    "sha1": "[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tbigFileThreshold = 1m\n",
    "sha256": "[core]\n\trepositoryformatversion = 1\n\tbare = true\n\tbigFileThreshold = 1m\n"
    "[extensions]\n\tobjectFormat = sha256\n",
}
_REASONS = {
    "large": "too large to be shown",
    "many": "too much changed at once",
    "missing": "the repository does not have it",
    "secret": "a secret of the run is in it",
}
UNKNOWN = FileSide(why="it is not kept what was there")
_SUBMODULE = 0o160000
#: A path's mode and content at one moment, by git's name for it; a reason where it was left out; None without one.
Entry = tuple[int, str] | str | None


class SnapshotHistory:
    """The snapshots with these names, inside a `with` block. Raises `InputError` for any damage, and for a folder that
    would lead elsewhere: it may have come from anywhere."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        _demand_plain(folder)
        resolved = SnapshotStore(folder).resolve(*names)
        self._manifests = resolved.manifests
        self._bare = {name: one for manifest in self._manifests.values() for name, one in manifest.bare.items()}
        self._sizes: dict[str, int] = {}
        with contextlib.ExitStack() as opened:
            self._folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="stepflow-snapshots-")))
            (self._folder / "refs").mkdir()
            (self._folder / "objects").mkdir()
            (self._folder / "HEAD").write_text("ref: refs/heads/none\n")
            (self._folder / "config").write_text(_CONFIG[resolved.object_format])
            if resolved.packs:
                with tempfile.TemporaryFile(dir=self._folder) as pack:
                    pack.writelines(resolved.pack())
                    pack.flush()
                    self._ask("index-pack", "--stdin", given=pack.fileno())
            self._contents = opened.enter_context(self._start("cat-file", "--batch", stdin=subprocess.PIPE))
            opened.callback(self._contents.kill)
            self._closing = opened.pop_all()

    def changes(self, before: str, after: str) -> dict[str, tuple[Entry, Entry]]:
        """What each path was and is, where two snapshots differ; bytes of paths are written as Latin-1."""
        was, now = self._manifests[before], self._manifests[after]
        said = self._ask("diff-tree", "-r", "-z", "--no-renames", was.tree, now.tree).split(b"\0")
        paths: dict[str, tuple[Entry, Entry]] = {}
        for facts, raw_path in zip(said[:-1:2], said[1::2], strict=True):
            mode_before, mode_after, name_before, name_after, _ = facts[1:].decode().split(" ")
            paths[raw_path.decode("latin-1")] = _entry(mode_before, name_before), _entry(mode_after, name_after)
        for path in was.left_out.keys() | now.left_out.keys():
            old, new = paths.pop(path, (None, None))
            both = was.left_out.get(path, old), now.left_out.get(path, new)
            if both[0] != both[1]:
                paths[path] = both
        self._measure({entry[1] for both in paths.values() for entry in both if isinstance(entry, tuple)})
        return dict(sorted(paths.items()))

    def change(self, path: str, before: Entry, after: Entry) -> FileChange:
        """What became of a file, to be shown."""
        name = path.encode("latin-1", "replace").decode("utf-8", "backslashreplace")
        return FileChange(path=name, before=self._side(before), after=self._side(after))

    def _side(self, entry: Entry) -> FileSide | None:
        if entry is None:
            return None
        if isinstance(entry, str):
            return FileSide(why=entry)
        mode, name = entry
        if mode == _SUBMODULE:
            content = f"Subproject commit {name}\n".encode()
            return FileSide(mode=mode, size=len(content), content=content)
        if name not in self._sizes:
            size, why = self._bare.get(name, (0, ""))
            return FileSide(mode=mode, size=size, why=_REASONS[why]) if why else UNKNOWN
        size = self._sizes[name]
        if size > SHOWN_LIMIT:
            return FileSide(mode=mode, size=size, why=_REASONS["large"])
        return FileSide(mode=mode, size=size, content=self._content(name))

    def _content(self, name: str) -> bytes:
        assert self._contents.stdin  # noqa: S101 - asked for
        assert self._contents.stdout  # noqa: S101
        try:
            self._contents.stdin.write(f"{name}\n".encode())
            self._contents.stdin.flush()
            size = int(self._contents.stdout.readline().split()[2])
            content = self._contents.stdout.read(size + 1)[:-1]
        except (OSError, IndexError, ValueError) as exc:
            raise InputError("git ended while it read the snapshots.", hint=HINT) from exc
        return content

    def _measure(self, names: set[str]) -> None:
        unknown = sorted(names - self._sizes.keys())
        if not unknown:
            return
        with tempfile.TemporaryFile(dir=self._folder) as query:
            query.write("".join(f"{name}\n" for name in unknown).encode())
            query.flush()
            said = self._ask("cat-file", "--batch-check=%(objectname) %(objectsize)", given=query.fileno()).decode()
        for line in said.splitlines():
            name, _, size = line.partition(" ")
            if size.isdigit():
                self._sizes[name] = int(size)

    def _ask(self, *arguments: str, given: int = subprocess.DEVNULL) -> bytes:
        """What git prints. Raises `InputError` when it fails or takes too much."""
        if given != subprocess.DEVNULL:
            os.lseek(given, 0, os.SEEK_SET)
        with self._start(*arguments, stdin=given) as process:
            timer = threading.Timer(_SECONDS, process.kill)
            timer.start()
            try:
                assert process.stdout  # noqa: S101 - asked for
                output = process.stdout.read(_OUTPUT_LIMIT + 1)
                if len(output) > _OUTPUT_LIMIT:
                    process.kill()
            finally:
                timer.cancel()
        if process.returncode != 0:
            raise InputError(f"The snapshots cannot be read: `git {arguments[0]}` failed.", hint=HINT)
        return output

    def _start(self, *arguments: str, stdin: int) -> subprocess.Popen[bytes]:
        git = shutil.which("git", path=_PATH)
        if git is None:
            raise InputError(f"The snapshots cannot be read: git is not installed in {_PATH}.", hint="Install git.")
        environment = {
            "PATH": _PATH,
            "HOME": str(self._folder),
            "LC_ALL": "C",
            "GIT_DIR": str(self._folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_ALLOW_PROTOCOL": "none",
        }
        process = subprocess.Popen(  # noqa: S603 - an absolute path, fixed words, no shell
            (git, *arguments),
            cwd=self._folder,
            env=environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if hasattr(resource, "prlimit"):
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(process.pid, resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()


def _entry(mode: str, name: str) -> Entry:
    number = int(mode, 8)
    return (number if number in (PLAIN, PROGRAM, LINK) else _SUBMODULE, name) if number else None


def _demand_plain(folder: Path) -> None:
    """Whoever follows a link ends up somewhere else, and whoever opens a pipe waits."""
    try:
        with os.scandir(folder) as entries:
            strange = [entry.name for entry in entries if not entry.is_file(follow_symlinks=False)]
    except OSError as exc:
        raise InputError(f"The snapshots in {folder} cannot be read: {exc.strerror}.", hint=HINT) from exc
    if strange or folder.is_symlink():
        what = f"`{strange[0][:100]}` in {folder}" if strange else f"{folder}"
        raise InputError(f"The snapshots cannot be read: {what} is a link or no file.", hint=HINT)
