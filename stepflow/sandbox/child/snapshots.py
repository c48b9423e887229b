"""Snapshots of the workspace as commits of a private git repository in the sandbox.

A snapshot's tree has the files, its message says where HEAD stood and what was left out, and its parents are HEAD's
commit, what is staged, and the snapshot before. Each operation is one process that starts every git that it needs.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from .enter_sandbox import config_variables
from .git import BRANCHES, COMMIT, MOST_CHANGED, Git, PrintsTooMuch, Sink, refuse_to_wait, run_program
from .paths import OperationRefused, size_of

#: Of what was left out so many paths are kept out of a difference, where they would look like deleted files.
_MOST_EXCLUDED = 50
_MOST_UNREADABLE = 20
#: An ignore file that is put back or goes lets other files show.
_ROUNDS = 5
_NESTED = "is a repository of its own"
_EMPTY_TREES = {
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
#: Stronger than any attribute of the tree: files are kept as they are, byte for byte.
_ATTRIBUTES = b"* -text -eol -ident -filter -working-tree-encoding !diff\n"
#: Folders without these rights keep git from putting files back.
_OPEN_FOLDERS = ("find", ".", "-type", "d", "!", "-perm", "-700", "-exec", "chmod", "u+rwx", "{}", ";")
_CLOSED_FOLDER = re.compile(r"^warning: could not open directory '(.*?)/?': (.*)$", re.MULTILINE)
_UNREADABLE = re.compile(r"^fatal: Unable to process path (.*)$", re.MULTILINE)
#: Words and environment that nothing in the workspace changes.
_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    **{f"GIT_{who}_{what}": "stepflow" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    # Later than any commit of the repository, so that git goes through its history no further than to the base.
    "GIT_AUTHOR_DATE": "@4102444800 +0000",
    "GIT_COMMITTER_DATE": "@4102444800 +0000",
    # Whatever the workspace configures: nothing is started, no content is converted, and nothing goes on afterwards.
    **config_variables(
        (
            ("safe.directory", "*"),
            ("core.hooksPath", os.devnull),
            ("core.fsmonitor", "false"),
            ("core.untrackedCache", "false"),
            ("core.splitIndex", "false"),
            ("core.logAllRefUpdates", "false"),
            ("core.attributesFile", os.devnull),
            ("core.autocrlf", "false"),
            ("core.safecrlf", "false"),
            ("core.fileMode", "true"),
            ("core.symlinks", "true"),
            ("core.sparseCheckout", "false"),
            # Any name that the tools can give a file is one; `.git` itself never is.
            ("core.protectNTFS", "false"),
            ("core.quotePath", "false"),
            # Larger files are shown as binary ones are, and not unpacked in memory: a pack of a few kilobytes may hold
            # one of a gigabyte.
            ("core.bigFileThreshold", "256k"),
            ("core.looseCompression", "1"),
            ("core.fsync", "none"),
            ("pack.compression", "1"),
            ("pack.threads", "1"),
            ("gc.auto", "0"),
            ("submodule.recurse", "false"),
        )
    ),
}


@dataclass(frozen=True, kw_only=True)
class SnapshotState:
    """HEAD's branch (empty when it is detached) and commit (empty when there is none), the tree of what is staged
    (empty when that is as HEAD, or none can be made of it), and why which paths were left out, as Latin-1."""

    branch: str = ""
    commit: str = ""
    staged: str = ""
    left_out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, message: bytes) -> SnapshotState:
        """Raises `ValueError` or `TypeError` for what is none."""
        state = cls(**json.loads(message))
        texts = (state.branch, state.commit, state.staged, *state.left_out.values())
        if not isinstance(state.left_out, dict) or not all(isinstance(text, str) for text in texts):
            raise TypeError
        return state


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """What is there now; whether the files may differ from the snapshot before, and how many do, None where git is to
    count them."""

    state: SnapshotState
    left_out: Mapping[bytes, str]
    is_changed: bool
    count: int | None


@dataclass(kw_only=True)
class SnapshotRepository:
    """The private repository, as one operation leaves it to the next. `base` is the commit that a fresh clone has,
    HEAD's at the beginning where it is empty."""

    checkout: str
    folder: str
    base: str
    has_repository: bool = False
    objects: str = ""
    shallow: str = ""
    format: str = "sha1"
    has_index: bool = False
    #: What is not looked at again while it stays as it is: HEAD's commit with what is staged, and its tree.
    staged: tuple[str, bytes, str] | None = None
    #: The last snapshot's name and state.
    name: str = ""
    taken: SnapshotState | None = None
    _seconds: float = field(default=0.0, init=False)
    _deadline: float = field(default=0.0, init=False)

    def begin(self, seconds: float) -> None:
        """Count from now."""
        self._seconds, self._deadline = seconds, time.monotonic() + seconds

    def make(self) -> None:
        """Make the repository anew. It has no index yet."""
        refuse_to_wait(".git")
        places = ("--path-format=absolute", "--git-path", "objects", "--git-path", "shallow")
        answer = self._theirs.run("rev-parse", "--show-object-format", *places, fine=(0, 128))
        said = os.fsdecode(answer.output).splitlines()
        self.has_repository = bool(said)
        if said:
            self.format, self.objects, self.shallow = said
            if not self.base:
                head = self._theirs.run("rev-parse", "--quiet", "--verify", "HEAD", fine=(0, 1))
                self.base = head.output.decode().strip()
        elif self.base or "not a git repository" not in answer.complaint:
            complaint = answer.complaint.strip()[-500:]
            raise OperationRefused(f"git does not know the repository in the workspace: {complaint}")
        self._run_program("rm", "-rf", self.folder)
        words = ("--quiet", "--bare", "--template=", f"--object-format={self.format}")
        self._git({})("init", *words, self.folder)
        os.mkdir(f"{self.folder}/info")
        with open(f"{self.folder}/info/attributes", "wb") as file:
            file.write(_ATTRIBUTES)

    def receive(self, pack: int) -> None:
        """Take in the pack of a snapshot that was kept."""
        self._own("index-pack", "--stdin", stdin=pack)

    def take(self, last: str, *, anew: bool, file_limit: int, limit: int, hand_on: Sink) -> int | None:
        """Commit what is there, on top of the `last` snapshot, and hand on the pack of what it has beyond the base and
        that one; None where nothing has changed since, unless it shall be made `anew`. At most `limit` bytes of files
        are taken in. Gives how many files differ from the snapshot before."""
        self._begin_index(last)
        seen = self._look(file_limit, limit)
        is_same = not seen.is_changed and seen.state == self.taken
        self.taken = seen.state
        if last and is_same and not anew:
            return None
        commit, staged = seen.state.commit, seen.state.staged
        parents = [commit] if commit else []
        parents += [self._own.line("commit-tree", staged, stdin=b"What was staged\n")] if staged else []
        parents += [last] if last else []
        words = [word for parent in parents for word in ("-p", parent)]
        tree = self._own.line("write-tree", "--missing-ok")
        self.name = self._own.line("commit-tree", tree, *words, stdin=json.dumps(asdict(seen.state)).encode())
        files = seen.count
        if anew or files is None:
            before = last or self.base or _EMPTY_TREES[self.format]
            changed = self._own("diff-tree", "-r", "-z", "--name-only", "--no-renames", before, self.name)
            files = changed.count(b"\0")
        wanted = "".join(f"{one}\n" for one in (self.name, last and f"^{last}", self.base and f"^{self.base}") if one)
        # Without deltas: what it holds is searched for secrets.
        plain = ("-q", "--window=0", "--depth=0", "--no-reuse-delta")
        self._own.run("pack-objects", "--revs", "--stdout", *plain, stdin=wanted.encode(), sink=hand_on, limit=limit)
        return files

    def diff(self, start: str, *, without: Collection[bytes], limit: int, hand_on: Sink) -> bool:
        """Hand on how the files went from this snapshot to the last one, as git shows it; whether that is all of it."""
        excluded = [f":(top,exclude,literal){os.fsdecode(path)}" for path in sorted(without)[:_MOST_EXCLUDED]]
        words = ("diff-tree", "-r", "--raw", "--patch", "--no-renames", start, self.name, "--")
        paths, env = excluded and [":/", *excluded], {"GIT_LITERAL_PATHSPECS": "0"}
        try:
            self._own.run(*words, *paths, sink=hand_on, limit=limit, env=env)
        except PrintsTooMuch:
            return False
        return True

    def restore(self, name: str, *, limit: int) -> SnapshotState:
        """Bring files, HEAD and index to what they were, which it gives. What can be refused is refused before anything
        is changed."""
        if not self.has_index:
            self._begin_index("")
        elif self.name == name:
            seen = self._look(limit, limit)
            if not seen.is_changed and seen.state == self.taken:
                return seen.state
        else:
            refuse_to_wait(".git")
        state = self._read(name)
        # Paths that lead elsewhere are refused by this.
        self._own("read-tree", name, env={"GIT_INDEX_FILE": f"{self.folder}/index.checked"})
        if self.has_repository:
            self._bring_objects(state, limit)
            self._move_head(state)
        left_out = {path.encode("latin-1"): why for path, why in state.left_out.items()}
        self._restore_files(name, left_out, limit)
        if self.has_repository:
            self._restore_index(state)
        self.name, self.taken = name, state
        return state

    def _begin_index(self, last: str) -> None:
        """A new repository gets an index of the last snapshot, or of the base."""
        if self.has_index:
            return
        self._own("read-tree", last or self.base or "--empty")
        # From now on git knows files that did not change by their times.
        self._own.run("update-index", "-q", "--refresh", fine=(0, 1))
        self.has_index = True

    def _look(self, file_limit: int, limit: int) -> _Seen:
        """Let the private index know what is there, at most so many bytes."""
        branch = commit = staged = ""
        forced = list[bytes]()
        if self.has_repository:
            refuse_to_wait(".git")
            commit, branch = self._theirs.head()
            staged, forced = self._look_at_staged(commit)
        paths, left_out = self._ask_changed()
        left_out, count = self._take_in([*paths, *forced], left_out, file_limit, limit)
        named = {path.decode("latin-1"): why for path, why in sorted(left_out.items())}
        return _Seen(
            state=SnapshotState(branch=branch, commit=commit, staged=staged, left_out=named),
            left_out=left_out,
            is_changed=count > 0,
            count=None if forced or left_out else count,
        )

    def _look_at_staged(self, commit: str) -> tuple[str, list[bytes]]:
        """The tree of what is staged, and the paths that are tracked although the rules say to ignore them; these only
        where HEAD or what is staged has moved. Of a damaged index nothing is kept."""
        against = commit or _EMPTY_TREES[self.format]
        words = ("diff-index", "--cached", "--raw", "-z", "--no-renames", "--ita-invisible-in-index", against)
        ended = self._theirs.run(*words, fine=None)
        if ended.exit_code:
            return "", []
        changes = ended.output
        if self.staged and self.staged[:2] == (commit, changes):
            return self.staged[2], []
        self.staged = commit, changes, self._tree_of_index(against, changes)
        forced = self._theirs("ls-files", "-z", "--ignored", "--cached", "--exclude-standard")
        return self.staged[2], [path for path in forced.split(b"\0") if path]

    def _tree_of_index(self, against: str, changes: bytes) -> str:
        """The tree of a commit with changes to it; empty without any, and for one that is half merged."""
        records = changes.split(b"\0")
        gone, new = list[bytes](), list[bytes]()
        for facts, path in zip(records[:-1:2], records[1::2], strict=True):
            _, mode, _, name, status = facts.split(b" ")
            if status == b"U":
                return ""
            # A folder may have come where a file was.
            (gone if status == b"D" else new).append(b"%s %s\t%s\0" % (mode.lstrip(b"0") or b"0", name, path))
        if not changes:
            return ""
        env = {"GIT_INDEX_FILE": f"{self.folder}/index.staged"}
        self._own("read-tree", against, env=env)
        self._own("update-index", "-z", "--index-info", stdin=b"".join((*gone, *new)), env=env)
        return self._own.line("write-tree", "--missing-ok", env=env)

    def _take_in(
        self, paths: list[bytes], left: dict[bytes, str], file_limit: int, limit: int
    ) -> tuple[dict[bytes, str], int]:
        """Let the private index know what is there. Gives why which paths are left out: those that are too large or
        cannot be read, or for which there is no room in so many bytes; and how many others have changed."""
        left = left | self._add(paths, file_limit, limit)
        known = self.taken.left_out if self.taken else {}
        if dropped := [path for path in left if path.decode("latin-1") not in known]:
            self._drop(dropped)
        return left, len(dropped) + len(set(paths) - left.keys())

    def _ask_changed(self) -> tuple[list[bytes], dict[bytes, str]]:
        """The paths that are not as the private index says, without those that git ignores; and why folders that cannot
        be looked into, and repositories in the repository, are left out."""
        git = self._theirs if self.has_repository else self._own
        words, env = ("ls-files", "-z", "--others", "--exclude-standard"), {"GIT_INDEX_FILE": f"{self.folder}/index"}
        others = git.run(*words, env=env)
        changed = self._own.run("ls-files", "-z", "--modified", "--deleted")
        complaints = others.complaint + changed.complaint
        left = {os.fsencode(path): why.lower() for path, why in _CLOSED_FOLDER.findall(complaints)}
        paths = {*others.output.split(b"\0"), *changed.output.split(b"\0")} - {b""}
        if len(paths) > MOST_CHANGED:
            raise OperationRefused(f"There are more than {MOST_CHANGED} changed files that git does not ignore.")
        nested = {path for path in paths if path.endswith(b"/")}
        return sorted(paths - nested), {**left, **{path.rstrip(b"/"): _NESTED for path in nested}}

    def _add(self, paths: list[bytes], file_limit: int, limit: int) -> dict[bytes, str]:
        """Let the private index say of these paths what is there. Gives why others are left out."""
        left, sizes = dict[bytes, str](), dict[bytes, int]()
        for path in paths:
            sizes[path], why = size_of(path)
            if why or sizes[path] > file_limit:
                left[path] = why or f"has more than {file_limit} bytes"
        # The small ones first: when there is no room for all, one large file is left out, not many small ones.
        room = limit
        for path in sorted(sizes.keys() - left.keys(), key=lambda path: sizes[path]):
            room -= sizes[path]
            if room < 0 and sizes[path]:
                left[path] = f"the snapshot would have more than {limit} bytes"
        wanted = [path for path in paths if path not in left]
        words = ("update-index", "-q", "--refresh", "--add", "--remove", "--replace", "-z", "--stdin")
        while wanted:
            complaint = self._own.run(*words, stdin=_joined(wanted), fine=(0, 1, 128)).complaint
            # A file may change while it is read.
            failed = {os.fsencode(path) for path in _UNREADABLE.findall(complaint)} & set(wanted)
            if not failed and "fatal: " not in complaint:
                break
            if not failed or len(left) > _MOST_UNREADABLE + len(sizes):
                raise OperationRefused(f"git update-index failed: {complaint.strip()[-500:]}")
            left |= dict.fromkeys(failed, "could not be read")
            wanted = [path for path in wanted if path not in failed]
        return left

    def _drop(self, paths: Iterable[bytes]) -> None:
        self._own("update-index", "--force-remove", "-z", "--stdin", stdin=_joined(paths))

    def _read(self, name: str) -> SnapshotState:
        """What a snapshot says, whose objects are all there."""
        if not COMMIT.fullmatch(name):
            raise OperationRefused(f"There is no snapshot {name!r}.")
        _, _, message = self._own("cat-file", "commit", name).partition(b"\n\n")
        try:
            state = SnapshotState.read(message)
        except (ValueError, TypeError, AttributeError, RecursionError) as exc:
            raise OperationRefused(f"The commit {name} is no snapshot.") from exc
        objects = [one for one in (state.commit, state.staged) if one]
        if not all(COMMIT.fullmatch(one) for one in objects):
            raise OperationRefused(f"The snapshot {name} names what is no object.")
        if state.branch and not state.branch.startswith(BRANCHES):
            raise OperationRefused("HEAD of the snapshot stands on no branch.")
        if self.has_repository and not (state.branch or state.commit):
            raise OperationRefused("HEAD of the snapshot stands nowhere.")
        if state.branch:
            self._own("check-ref-format", state.branch)
        self._own("rev-list", "--objects", "--quiet", name, *objects, *(["--not", self.base] if self.base else []))
        return state

    def _bring_objects(self, state: SnapshotState, limit: int) -> None:
        """Bring what HEAD and the index stand on to where the workspace's own git finds it."""
        names = [name for name in (state.commit, state.staged) if name]
        names += [f"^{self.base}", f"^{self.base}^{{tree}}"] if self.base else []
        with open(f"{self.folder}/brought", "w+b") as pack:
            wanted = "".join(f"{name}\n" for name in names).encode()
            self._own.run("pack-objects", "--revs", "--stdout", "-q", stdin=wanted, sink=pack.write, limit=limit)
            pack.seek(0)
            self._own("index-pack", "--stdin", stdin=pack.fileno(), env={"GIT_OBJECT_DIRECTORY": self.objects})
            pack.truncate(0)

    def _move_head(self, state: SnapshotState) -> None:
        if not state.branch:
            self._theirs("update-ref", "--no-deref", "HEAD", state.commit)
            return
        moved = (state.branch, state.commit) if state.commit else ("-d", state.branch)
        self._theirs("update-ref", "--no-deref", *moved)
        self._theirs("symbolic-ref", "HEAD", state.branch)

    def _restore_files(self, name: str, left_out: Collection[bytes], limit: int) -> None:
        """First the private index learns of everything that is there; then git makes of it what the snapshot says. What
        was left out of it, what git ignores and what cannot be read stay as they are."""
        if left_out:
            self._drop(left_out)
        self._run_program(*_OPEN_FOLDERS)
        for number in range(_ROUNDS):
            paths, left = self._ask_changed()
            paths = [path for path in paths if not _is_in(path, left_out)]
            left |= self._add(paths, limit, limit)
            waiting = [path for path in paths if path not in left]
            if number and not waiting:
                return
            self._own("read-tree", "--reset", "-u", name)
        raise OperationRefused(f"{os.fsdecode(waiting[0])!r} cannot be put back.")

    def _restore_index(self, state: SnapshotState) -> None:
        tree = state.staged or state.commit
        lock = self._theirs("rev-parse", "--path-format=absolute", "--git-path", "index.lock").removesuffix(b"\n")
        # Of a program that was ended at work.
        with suppress(OSError):
            os.unlink(lock)
        if not tree:
            self._theirs("read-tree", "--empty")
            return
        try:
            self._theirs("read-tree", "--reset", tree)
        except OperationRefused:
            self._theirs("read-tree", tree)

    @property
    def _own(self) -> Git:
        """git in the private repository, which borrows the objects of the workspace's."""
        own = {"GIT_DIR": self.folder, "GIT_WORK_TREE": self.checkout}
        own |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
        if self.objects:
            own |= {"GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(self.objects), "GIT_SHALLOW_FILE": self.shallow}
        return self._git(own)

    @property
    def _theirs(self) -> Git:
        """git in the workspace's own repository, with its configuration and the personal one."""
        return self._git({"GIT_DIR": f"{self.checkout}/.git", "GIT_WORK_TREE": self.checkout})

    def _git(self, environment: Mapping[str, str]) -> Git:
        return Git(
            top=self.checkout,
            environment={**_ENVIRONMENT, **environment},
            folder=self.folder,
            seconds=self._seconds,
            deadline=self._deadline,
            failure="",
        )

    def _run_program(self, *words: str) -> None:
        run_program(words, {**os.environ, **_ENVIRONMENT}, self._deadline - time.monotonic(), sink=lambda _: None)


def _is_in(path: bytes, places: Collection[bytes]) -> bool:
    while path and path not in places:
        path = path.rpartition(b"/")[0]
    return bool(path)


def _joined(paths: Iterable[bytes]) -> bytes:
    """Paths as git reads them."""
    return b"".join(path + b"\0" for path in paths)


def _quoted(path: str) -> str:
    """A path in a list that colons part."""
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
