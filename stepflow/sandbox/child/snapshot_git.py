"""git for snapshots: a private repository with an index of its own, beside the checkout whose objects it borrows."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any

from .git import COMMIT, NO_GRAFT_ADVICE, PLAIN_ENVIRONMENT
from .paths import Refusal, below, key_of, read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PIECE = 65536
BRANCHES = "refs/heads/"
#: Whatever the checkout configures: nothing is started, no content is converted, and nothing goes on afterwards.
_SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.splitIndex": "false",
    "core.logAllRefUpdates": "false",
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.safecrlf": "false",
    "core.fileMode": "true",
    "core.symlinks": "true",
    "core.sparseCheckout": "false",
    # Any name that the tools can give a file is one; `.git` itself never is.
    "core.protectNTFS": "false",
    # Larger files are not unpacked in memory: a pack of a few kilobytes may hold one of a gigabyte.
    "core.bigFileThreshold": "1m",
    "core.looseCompression": "1",
    "core.fsync": "none",
    "pack.compression": "1",
    "pack.threads": "1",
    "pack.writeReverseIndex": "false",
    "gc.auto": "0",
    "submodule.recurse": "false",
}
#: Stronger than any attribute of the tree: files are kept as they are, byte for byte.
_ATTRIBUTES = b"* -text -eol -ident -filter -working-tree-encoding\n"
_CONFIG = {
    "sha1": b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
    "sha256": b"[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectFormat = sha256\n",
}
#: The empty tree's name in either format: git knows it without having it.
EMPTY_TREES = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
_SMALL = 4096
_RULES_LIMIT = 16 * 1024 * 1024
_OUTPUT_LIMIT = 64 * 1024 * 1024
#: An index of 200,000 entries has about 25 MB.
_INDEX_LIMIT = 128 * 1024 * 1024
#: What git opens before it does anything; it would wait for what comes out of a pipe.
_READ_FIRST = ("HEAD", "config", "config.worktree", "commondir", "packed-refs", "index", "info/exclude", "shallow")
#: Beside HEAD and its branch, what says that HEAD or the index moved.
_MOVING = ("index", "packed-refs", "reftable/tables.list", "shallow")
_RULES = ("info/exclude", "config", "config.worktree")


@dataclass(frozen=True, kw_only=True)
class Standing:
    """HEAD's branch (empty when it is detached), its commit (empty when there is none), the tree of the index (empty
    when it is as HEAD, or none can be made of it), and paths that are tracked although the rules say to ignore them."""

    head: str = ""
    commit: str = ""
    index: str = ""
    forced: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Marks:
    """What tells without git that neither HEAD and the index nor the rules moved; empty when that is not sure."""

    standing: str = ""
    rules: str = ""


class SnapshotGit:
    """git in the private repository `folder`, and where it is said so in the checkout's own."""

    def __init__(self, checkout: str, folder: str) -> None:
        self.checkout, self.folder = checkout, folder
        self._own = os.path.join(checkout, ".git")
        self.has_repository = _has_repository(checkout)
        # Of a worker that was ended at work.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, "index.lock"))

    @property
    def is_made(self) -> bool:
        """Whether there is a private repository with an index."""
        return os.path.isfile(os.path.join(self.folder, "index"))

    def make(self, base: str) -> str:
        """Make the private repository anew, with an index of the base's tree. Gives the base's commit, that of HEAD
        where none is named, empty without one."""
        kind = "sha1"
        if self.has_repository:
            kind = self.ask_checkout("rev-parse", "--show-object-format").decode().strip()
            base = base or self._head_commit()
        if base and not COMMIT.fullmatch(base):
            raise Refusal(f"{base!r} is no commit id")
        self._clear()
        for name in ("refs", "info", "objects/info", "objects/pack"):
            os.makedirs(os.path.join(self.folder, name))
        self._write("config", _CONFIG[kind])
        self._write("info/attributes", _ATTRIBUTES)
        if self.has_repository:
            self._write("objects/info/alternates", os.fsencode(os.path.join(self._own, "objects")) + b"\n")
        self._write("HEAD", b"ref: refs/heads/none\n")
        self._copy("shallow")
        self.ask("read-tree", *([self.tree_of(base)] if base else ["--empty"]))
        # From now on git knows files that did not change by their times.
        self.ask("update-index", "-q", "--refresh", fine=(0, 1))
        return base

    def tree_of(self, base: str) -> str:
        """The tree of a commit, the empty one without a commit. Raises `Refusal` for one that is not there."""
        if not base:
            return EMPTY_TREES[64 if "sha256" in self.ask("rev-parse", "--show-object-format").decode() else 40]
        tree = self.ask("rev-parse", "--verify", "--quiet", f"{base}^{{tree}}", fine=(0, 1, 128)).decode().strip()
        if not tree:
            raise Refusal(f"the checkout does not have the commit {base[:12]} that the snapshot builds on")
        return tree

    def marks(self) -> Marks:
        """Cheap to make; what is equal to an earlier one, and not empty, did not move."""
        if not self.has_repository:
            return Marks(standing="none", rules="none")
        head = self._read(b"HEAD")
        branch = self._read(head[5:].strip()) if head.startswith(b"ref: ") else b""
        home = os.environ.get("HOME", "/")
        personal = (f"{home}/.gitconfig", f"{_personal_folder()}/git/config", "/etc/gitconfig")
        return Marks(
            standing=self._mark(head, branch, *(os.path.join(self._own, name) for name in _MOVING)),
            rules=self._mark(*(os.path.join(self._own, name) for name in _RULES), *personal),
        )

    def take_rules(self) -> None:
        """Ignore what the checkout's own git ignores, from now on."""
        if self.has_repository:
            self._copy("info/exclude", _RULES_LIMIT)
            said = self.ask_checkout("config", "--type=path", "--get", "core.excludesFile", fine=(0, 1)).rstrip(b"\n")
            place = said or os.fsencode(os.path.join(_personal_folder(), "git/ignore"))
            with contextlib.suppress(OSError):
                if not stat.S_ISREG(os.stat(place).st_mode):
                    place = os.fsencode(os.devnull)
            self.ask("config", "core.excludesFile", os.fsdecode(place))

    def look_at_standing(self) -> Standing:
        """What HEAD and the index are."""
        if not self.has_repository:
            return Standing()
        self._copy("shallow")
        head = self.ask_checkout("symbolic-ref", "--quiet", "HEAD", fine=(0, 1)).decode("utf-8", "surrogateescape")
        head = head.strip()
        if head and not head.startswith(BRANCHES):
            raise Refusal(f"HEAD stands on {head!r}, which is no branch")
        standing = Standing(head=head, commit=self._head_commit())
        if not self._copy("index", _INDEX_LIMIT, "index.checkout"):
            return standing
        for name in os.listdir(self._own):
            # The larger part of an index that is split in two.
            if name.startswith("sharedindex."):
                self._copy(name, _INDEX_LIMIT)
        # One that is half merged or damaged has no tree; what was staged is not kept then.
        with contextlib.suppress(GitFailed):
            of_checkout = {"GIT_INDEX_FILE": os.path.join(self.folder, "index.checkout")}
            index = self.ask("write-tree", "--missing-ok", env=of_checkout).decode().strip()
            forced = self.ask("ls-files", "-z", "-i", "-c", "--exclude-standard", env=of_checkout)
            paths = [path.decode("latin-1") for path in forced.split(b"\0") if path]
            return replace(standing, index=index, forced=paths)
        return standing

    def ask(self, *arguments: str, **options: Any) -> bytes:  # noqa: ANN401 - handed on as they are
        """What git prints in the private repository. Raises `GitFailed`."""
        return self._run(arguments, self._environment(), **options)

    def ask_checkout(self, *arguments: str, **options: Any) -> bytes:  # noqa: ANN401 - handed on as they are
        """The same of the checkout's own repository, with its configuration and the personal one."""
        return self._run(arguments, {"GIT_DIR": self._own, "GIT_WORK_TREE": self.checkout}, **options)

    def _run(
        self,
        arguments: tuple[str, ...],
        environment: Mapping[str, str],
        *,
        given: bytes | IO[bytes] = b"",
        env: Mapping[str, str] | None = None,
        fine: tuple[int, ...] = (0,),
        limit: int = _OUTPUT_LIMIT,
        feed: Callable[[bytes], object] | None = None,
        complaints: bytearray | None = None,
    ) -> bytes:
        """Only `fine` exit codes are no failure. What git prints goes to `feed`, else it is given; `complaints` gets
        what it says of what it does not fail for. What is `given` goes through a file, so that no pipe can block."""
        output, total = bytearray(), 0
        # The variables come from nothing but these.
        known = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
        with tempfile.TemporaryFile() as spool, tempfile.TemporaryFile() as errors:
            spool.write(given if isinstance(given, bytes) else b"")
            spool.seek(0)
            try:
                process = subprocess.Popen(  # noqa: S603 - fixed words, no shell
                    ("git", *NO_GRAFT_ADVICE, *settings, *arguments),  # noqa: S607 - where the tools' PATH has it
                    cwd=self.checkout,
                    bufsize=0,
                    stdin=spool if isinstance(given, bytes) else given,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env={**known, **_PLAIN, **environment, **(env or {})},
                )
            except OSError as exc:
                raise Refusal(f"git could not be started: {exc.strerror}") from exc
            assert process.stdout  # noqa: S101 - asked for
            with process:
                while piece := process.stdout.read(_PIECE):
                    total += len(piece)
                    if total > limit:
                        process.kill()
                        raise Refusal(f"git {arguments[0]} gives more than {limit} bytes")
                    (feed or output.extend)(piece)
            errors.seek(0)
            said = errors.read(_OUTPUT_LIMIT)
        if process.returncode not in fine:
            message = said.decode("utf-8", "replace").strip()[-500:] or f"exit code {process.returncode}"
            raise GitFailed(f"git {arguments[0]} failed: {message}")
        if complaints is not None:
            complaints += said
        return bytes(output)

    def _environment(self) -> dict[str, str]:
        return {
            "GIT_DIR": self.folder,
            "GIT_WORK_TREE": self.checkout,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }

    @property
    def objects_of_checkout(self) -> dict[str, str]:
        """Lets git write new objects to where the checkout's own git finds them."""
        return {"GIT_OBJECT_DIRECTORY": os.path.join(self._own, "objects")} if self.has_repository else {}

    def _head_commit(self) -> str:
        said = self.ask_checkout("rev-parse", "--verify", "--quiet", "HEAD^{commit}", fine=(0, 1))
        return said.decode().strip()

    def _clear(self) -> None:
        for name in os.listdir(self.folder):
            path = os.path.join(self.folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)

    def _write(self, name: str, data: bytes) -> None:
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(data)

    def _copy(self, name: str, limit: int = _RULES_LIMIT, as_name: str = "") -> bool:
        """Copy a file of the checkout's repository, and remove ours where it has none; says whether it has."""
        data = self._read(name.encode(), limit)
        path = os.path.join(self.folder, as_name or name)
        if data:
            self._write(as_name or name, data)
        elif os.path.lexists(path):
            os.unlink(path)
        return bool(data)

    def _read(self, name: bytes, limit: int = _SMALL) -> bytes:
        """The bytes of a file of the checkout's repository, none when it is not there or no regular file."""
        with contextlib.suppress(OSError, ValueError), below(self.checkout) as tree:
            read = read_regular(tree, b".git/" + name, limit)
            if read is None and limit > _SMALL:
                raise Refusal(f"`.git/{name.decode('utf-8', 'replace')}` has more than {limit} bytes")
            return read[0] if read else b""
        return b""

    def _mark(self, *parts: bytes | str) -> str:
        """A word for contents and for files by their facts; empty when a file was touched too lately to tell."""
        now = time.time_ns()
        keys: list[object] = []
        for part in parts:
            if isinstance(part, bytes):
                keys.append(part)
                continue
            try:
                key = key_of(os.lstat(part), now)
            except OSError:
                key = (0, 0, 0, 0, 0)
            if key is None:
                return ""
            keys.append(key)
        return repr(keys)


class GitFailed(Refusal):
    """git did not do what it was asked for."""


_PLAIN = {
    **PLAIN_ENVIRONMENT,
    "LC_ALL": "C",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",
}


def _personal_folder() -> str:
    return os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.environ.get("HOME", "/"), ".config")


def _has_repository(checkout: str) -> bool:
    """False without one. Raises `Refusal` for one that lies outside the checkout, or that git would wait for."""
    try:
        info = os.lstat(os.path.join(checkout, ".git"))
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(info.st_mode):
        raise Refusal("`.git` is no folder, so the repository lies outside the checkout")
    for name in _READ_FIRST:
        with contextlib.suppress(OSError):
            if not stat.S_ISREG(os.stat(os.path.join(checkout, ".git", name)).st_mode):
                raise Refusal(f"`.git/{name}` is no regular file, and git would wait for what comes out of it")
    return True
