"""The repository's part of a snapshot: HEAD, the raw index, and the objects that a fresh clone of the base lacks."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import resource
import stat
import subprocess
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from .git import GIT_TIMEOUT, NO_GRAFT_ADVICE, PLAIN_ENVIRONMENT
from .paths import Key, Refusal, below, key_of, read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .child_processes import ChildProcesses

_PIECE = 65536
#: Nothing that the checkout configures is started, and nothing is remembered in a corner of the repository.
_QUIET = (
    *(*NO_GRAFT_ADVICE, "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"),
    *("-c", "core.untrackedCache=false", "-c", "pack.threads=1", "-c", "pack.writeReverseIndex=false"),
    *("-c", "core.logAllRefUpdates=false"),
)
#: An index of 200,000 entries has about 25 MB.
INDEX_LIMIT = 128 * 1024 * 1024
BRANCHES = "refs/heads/"
_SMALL = 4096
#: Two bytes that stand together by chance once in 4096: where the index is cut depends on what stands there, not on
#: how far it is from the beginning, so a new entry changes one piece and not all that follow.
_CUT = re.compile(rb"[\x11\x91][\x00-\x07]", re.DOTALL)
_LONGEST_PIECE = 64 * 1024
_MANY_HEADS = 8
#: Beside the index, what says that HEAD or a rule moved: lstat of these is compared.
_MOVING = ("index", "packed-refs", "reftable/tables.list")
#: What every git opens before it does anything.
_READ_FIRST = ("HEAD", "config", "config.worktree", "commondir", "packed-refs", "index")
_RULES = ("info/exclude", "config", "config.worktree")
Mark = tuple[bytes, bytes, tuple[Key, ...]]


class Git:
    """git in the checkout."""

    def __init__(self, children: ChildProcesses) -> None:
        self._children = children

    def ask(self, *arguments: str, given: bytes = b"", fine: tuple[int, ...] = (0,)) -> bytes:
        """What git prints. Raises `Refusal` for an exit code that is not among the fine ones."""
        with self._start(arguments) as child:
            try:
                said, complaint = child.communicate(given, GIT_TIMEOUT)
            except subprocess.TimeoutExpired:
                child.kill()
                raise Refusal(f"git {arguments[0]} took longer than {GIT_TIMEOUT:g} s") from None
        if child.returncode not in fine:
            message = complaint.decode("utf-8", "replace").strip()[-500:] or f"exit code {child.returncode}"
            raise Refusal(f"git {arguments[0]} failed: {message}")
        return said

    def stream(self, *arguments: str, given: bytes, limit: int, feed: Callable[[bytes], object]) -> None:
        """Hand on what git prints. Raises `Refusal`, also for more than `limit` bytes. `given` must be short."""
        total = 0
        with self._start(arguments) as child:
            assert child.stdin  # noqa: S101 - asked for
            assert child.stdout  # noqa: S101
            child.stdin.write(given)
            child.stdin.close()
            while piece := child.stdout.read(_PIECE):
                total += len(piece)
                if total > limit:
                    child.kill()
                    raise Refusal(f"git {arguments[0]} gives more than {limit} bytes")
                feed(piece)
        if child.returncode != 0:
            raise Refusal(f"git {arguments[0]} failed with exit code {child.returncode}")

    def contents(self, objects: Iterable[str]) -> Iterator[bytes]:
        """The content of one object after the other, by one git. Raises `Refusal` for one that is not there."""
        with self._start(("cat-file", "--batch")) as child:
            assert child.stdin  # noqa: S101 - asked for
            assert child.stdout  # noqa: S101
            for name in objects:
                child.stdin.write(f"{name}\n".encode())
                child.stdin.flush()
                facts = child.stdout.readline().split()
                if len(facts) != 3:
                    child.kill()
                    raise Refusal(f"the repository lacks the object {name[:12]}")
                yield child.stdout.read(int(facts[2]))
                child.stdout.read(1)
            child.stdin.close()

    def ignored(self, paths: Iterable[bytes]) -> set[bytes]:
        """Those that git ignores by the rules alone, tracked or not. `./` keeps git from reading signs into a name."""
        given = b"".join(b"./" + path + b"\0" for path in paths)
        said = self.ask("check-ignore", "--no-index", "-z", "--stdin", given=given, fine=(0, 1))
        return {path[2:] for path in said.split(b"\0") if path}

    def _start(self, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
        """A worker's bound on memory is not git's, which maps whole packs."""
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        try:
            return self._children.start(
                ("git", *_QUIET, *arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                extra_env=PLAIN_ENVIRONMENT,
            )
        except OSError as exc:
            raise Refusal(f"git could not be started: {exc.strerror}") from exc
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@dataclass(kw_only=True)
class Standing:
    """`index` are the digests of its pieces, None without one. `tracked` are the paths in it, `heads` and `packed`
    the tips of the commits, and the objects, that were handed on in packs. `mark` tells cheaply that nothing moved.
    """

    mark: Mark | None = None
    head: str = ""
    commit: str = ""
    index: list[str] | None = None
    index_mtime: int = 0
    tracked: frozenset[bytes] = frozenset()
    heads: list[str] = field(default_factory=list)
    packed: set[str] = field(default_factory=set)

    def as_message(self) -> dict[str, object]:
        """What the manifest says of it."""
        return {"head": self.head, "commit": self.commit, "index": self.index, "index_mtime": self.index_mtime}


def has_repository(root: str) -> bool:
    """False without one. Raises `Refusal` for one that lies outside the checkout."""
    try:
        info = os.lstat(os.path.join(root, ".git"))
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(info.st_mode):
        raise Refusal("`.git` is no folder, so the repository lies outside the checkout")
    for name in _READ_FIRST:
        with contextlib.suppress(OSError):
            if not stat.S_ISREG(os.stat(os.path.join(root, ".git", name)).st_mode):
                raise Refusal(f"`.git/{name}` is no regular file, and git would wait for what comes out of it")
    return True


def mark_of(root: str) -> Mark:
    """Cheap to make; equal marks without a None in them mean that neither HEAD nor the index moved."""
    head = small_file(root, b".git/HEAD")
    branch = b""
    if head.startswith(b"ref: "):
        branch = small_file(root, b".git/" + head[5:].strip())
    return head, branch, keys(root, _MOVING)


def rules_mark(root: str, excludes: bytes) -> tuple[Key, ...]:
    """The same for what git ignores by, but for the ignore files of the tree. `excludes` is the configured one."""
    home = os.environ.get("HOME", "/")
    personal = (f"{home}/.gitconfig", f"{home}/.config/git/config", f"{home}/.config/git/ignore", "/etc/gitconfig")
    return (*keys(root, _RULES), *_keys((*personal, os.fsdecode(excludes))))


def is_sure(mark: object) -> bool:
    """Whether no part was touched too lately to tell; a file that is not there is sure."""
    if isinstance(mark, tuple):
        return all(is_sure(part) for part in mark)
    return mark is not None


def look(root: str, git: Git, before: Standing) -> Standing:
    """What stands there now, without the index's pieces and without packs."""
    mark = mark_of(root)
    if mark == before.mark and is_sure(mark):
        return before
    head = git.ask("symbolic-ref", "--quiet", "HEAD", fine=(0, 1)).decode("utf-8", "surrogateescape").strip()
    if head and not head.startswith(BRANCHES):
        raise Refusal(f"HEAD stands on {head!r}, which is no branch")
    commit = git.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}", fine=(0, 1)).decode().strip()
    return Standing(mark=mark, head=head, commit=commit, heads=before.heads, packed=before.packed)


def read_index(root: str) -> tuple[bytes, int] | None:
    """The index's bytes and its time; None without one."""
    with below(root) as tree:
        try:
            read = read_regular(tree, b".git/index", INDEX_LIMIT)
        except FileNotFoundError:
            return None
    if read is None:
        raise Refusal(f"the index has more than {INDEX_LIMIT} bytes")
    return read[0], read[1].st_mtime_ns


def pieces_of(data: bytes) -> list[bytes]:
    """The data cut where its own bytes say so."""
    cuts = [0]
    for match in _CUT.finditer(data):
        cuts += range(cuts[-1] + _LONGEST_PIECE, match.end(), _LONGEST_PIECE)
        cuts.append(match.end())
    cuts += [*range(cuts[-1] + _LONGEST_PIECE, len(data), _LONGEST_PIECE), len(data)]
    return [data[start:end] for start, end in pairwise(cuts) if end > start]


def list_index(git: Git, data: bytes) -> tuple[frozenset[bytes], set[str]]:
    """The paths that git tracks, and the ids of their staged contents. `data` are the index's bytes."""
    if b"link" in data and git.ask("rev-parse", "--shared-index-path").strip():
        raise Refusal("the index is split in two files (core.splitIndex)")
    paths, objects = set(), set()
    for record in git.ask("ls-files", "--stage", "-z").split(b"\0"):
        facts, _, path = record.partition(b"\t")
        if path:
            mode, oid, _ = facts.split(b" ")
            paths.add(path)
            if mode != b"160000":
                objects.add(oid.decode())
    return frozenset(paths), objects


def list_tree(git: Git, commit: str) -> dict[bytes, tuple[bytes, str]]:
    """Mode and object of each path of a commit, submodules left out; nothing without a commit."""
    blobs = {}
    for record in git.ask("ls-tree", "-r", "-z", commit).split(b"\0") if commit else ():
        facts, _, path = record.partition(b"\t")
        if path:
            mode, kind, oid = facts.split(b" ")
            if kind == b"blob":
                blobs[path] = (mode, oid.decode())
    return blobs


def pack_new(git: Git, base: str, now: Standing, objects: set[str], *, limit: int) -> tuple[Standing, bytes]:
    """A pack of HEAD's commits and of staged contents that no clone of the base and no earlier pack has.

    Gives the standing with what is packed now, and no bytes when there was nothing to pack.
    """
    is_new = now.commit and now.commit != base and now.commit not in now.heads
    wanted = objects - now.packed
    if wanted and now.commit and now.commit != base:
        wanted -= {oid for _, oid in list_tree(git, now.commit).values()}
    if not is_new and not wanted:
        return now, b""
    there = _existing(git, [*wanted, *now.heads, base])
    excluded = "".join(f"^{commit}\n" for commit in (base, *now.heads) if commit in there)
    lines = (f"{now.commit}\n" if is_new else "") + excluded + "".join(f"{oid}\n" for oid in sorted(wanted & there))
    pack = bytearray()
    # Without deltas: what it holds is searched for secrets.
    plain = ("--window=0", "--depth=0", "--no-reuse-delta")
    git.stream("pack-objects", "--revs", "--stdout", "-q", *plain, given=lines.encode(), limit=limit, feed=pack.extend)
    heads = _tips(git, [*now.heads, now.commit], there) if is_new else now.heads
    return Standing(**{**vars(now), "heads": heads, "packed": now.packed | wanted}), b"" if _is_empty(pack) else bytes(
        pack
    )


def _tips(git: Git, heads: list[str], there: set[str]) -> list[str]:
    """The heads without those that others reach, once they are many: each snapshot names them all to git."""
    if len(heads) <= _MANY_HEADS:
        return heads
    *before, newest = heads
    return git.ask("merge-base", "--independent", *(head for head in before if head in there), newest).decode().split()


def _is_empty(pack: bytearray) -> bool:
    """Whether it holds no object; their number follows after four letters and the version."""
    return pack[8:12] == bytes(4)


def digest_of(data: bytes) -> str:
    """What blobs are called."""
    return hashlib.sha256(data).hexdigest()


def small_file(root: str, path: bytes) -> bytes:
    """The bytes of a small file, none when it is not there."""
    with below(root) as tree, contextlib.suppress(OSError):
        read = read_regular(tree, path, _SMALL)
        return read[0] if read else b""
    return b""


def keys(root: str, names: tuple[str, ...]) -> tuple[Key, ...]:
    """Keys of files of the repository."""
    return _keys(tuple(os.path.join(root, ".git", name) for name in names))


def _keys(paths: tuple[str, ...]) -> tuple[Key, ...]:
    now = time.time_ns()
    keys: list[Key] = []
    for path in paths:
        try:
            keys.append(key_of(os.lstat(path), now))
        except OSError:
            keys.append((0, 0, 0, 0, 0))
    return tuple(keys)


def _existing(git: Git, names: list[str]) -> set[str]:
    query = "".join(f"{name}\n" for name in names if name)
    said = git.ask("cat-file", "--batch-check=%(objectname) %(objecttype)", given=query.encode()).decode()
    return {line.split(" ")[0] for line in said.splitlines() if not line.endswith(" missing")}
