"""Snapshots of the workspace as commits of a private git repository in the sandbox.

A snapshot's tree has the files, its message says where HEAD stood and what was left out, and its parents are HEAD's
commit, what is staged, and the snapshot before. Each operation is one process that starts every git that it needs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from .git import (
    BRANCHES,
    COMMIT,
    MOST_CHANGED,
    NO_CONFIGURATION,
    NO_PROGRAMS,
    GitProgram,
    PrintsTooMuch,
    Sink,
    config_variables,
    join_paths,
    refuse_to_wait,
    run_program,
)
from .paths import Key, OperationRefused, key_of, size_of

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
}
#: Whatever the workspace configures: nothing is started, no content is converted, each change to a file is seen, and
#: nothing goes on afterwards.
_SETTINGS = (
    ("safe.directory", "*"),
    *NO_PROGRAMS,
    ("core.untrackedCache", "false"),
    ("core.splitIndex", "false"),
    ("core.logAllRefUpdates", "false"),
    ("core.attributesFile", os.devnull),
    ("core.autocrlf", "false"),
    ("core.safecrlf", "false"),
    ("core.fileMode", "true"),
    ("core.symlinks", "true"),
    ("core.sparseCheckout", "false"),
    ("core.trustctime", "true"),
    ("core.checkStat", "default"),
    ("core.ignoreStat", "false"),
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
        """Read the state from a message. Raises `ValueError` or `TypeError` for any other text."""
        state = cls(**json.loads(message))
        texts = (state.branch, state.commit, state.staged, *state.left_out.values())
        if not isinstance(state.left_out, dict) or not all(isinstance(text, str) for text in texts):
            raise TypeError
        return state


@dataclass(kw_only=True)
class SnapshotRepository:
    """The private repository, as one operation leaves it to the next. `base` is the commit that a fresh clone has,
    HEAD's at the beginning where it is empty."""

    checkout: str
    folder: str
    base: str
    #: Places of the workspace's own repository; empty where there is none.
    objects: str = ""
    shallow: str = ""
    index: str = ""
    config: str = ""
    format: str = "sha1"
    has_index: bool = False
    #: The tree of what is staged, and by which commit and index, which are not looked at again while they stay so.
    staged: str = ""
    staged_by: tuple[str, Key] | None = None
    #: The last snapshot's name and state.
    name: str = ""
    taken: SnapshotState | None = None
    _seconds: float = field(default=0.0, init=False)
    _deadline: float = field(default=0.0, init=False)

    @property
    def has_repository(self) -> bool:
        """Whether the workspace has a repository of its own."""
        return bool(self.objects)

    def begin(self, seconds: float) -> None:
        """Count from now."""
        self._seconds, self._deadline = seconds, time.monotonic() + seconds

    def make(self) -> None:
        """Make the repository anew. It has no index yet."""
        refuse_to_wait(f"{self.checkout}/.git")
        names = ("objects", "shallow", "index", "config", "info/exclude")
        places = [word for name in names for word in ("--git-path", name)]
        words = ("rev-parse", "--show-object-format", "--path-format=absolute", *places)
        answer = self._theirs.run(*words, fine=(0, 128))
        said, excludes = os.fsdecode(answer.output).splitlines(), ""
        if said:
            self.format, self.objects, self.shallow, self.index, self.config, excludes = said
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
        if excludes:
            os.symlink(excludes, f"{self.folder}/info/exclude")

    def receive(self, pack: int) -> None:
        """Take in the pack of a snapshot that was kept."""
        self._own("index-pack", "--stdin", stdin=pack)

    def take(self, last: str, *, anew: bool, file_limit: int, limit: int, hand_on: Sink) -> int | None:
        """Commit what is there, on top of the `last` snapshot, and hand on the pack of what it has beyond the base and
        that one; None where nothing has changed since, unless it shall be made `anew`. At most `limit` bytes of files
        are taken in. Gives how many files differ from the snapshot before."""
        self._begin_index(last)
        known, (self.taken, files) = self.taken, self._look(file_limit, limit)
        if last and files == 0 and self.taken == known and not anew:
            return None
        parents = [self.taken.commit] if self.taken.commit else []
        if self.taken.staged:
            parents += [self._own.line("commit-tree", self.taken.staged, stdin=b"What was staged\n")]
        parents += [last] if last else []
        words = [word for parent in parents for word in ("-p", parent)]
        tree = self._own.line("write-tree", "--missing-ok")
        self.name = self._own.line("commit-tree", tree, *words, stdin=json.dumps(asdict(self.taken)).encode())
        if anew or files is None:
            before = last or self.base or _EMPTY_TREES[self.format]
            changed = self._own("diff-tree", "-r", "-z", "--name-only", "--no-renames", before, self.name)
            files = changed.count(b"\0")
        wanted = "".join(f"{one}\n" for one in (self.name, last and f"^{last}", self.base and f"^{self.base}") if one)
        # Without deltas: what it holds is searched for secrets.
        plain = ("-q", "--window=0", "--depth=0", "--no-reuse-delta")
        self._own.run("pack-objects", "--revs", "--stdout", *plain, stdin=wanted.encode(), sink=hand_on, limit=limit)
        return files

    def diffs(self, starts: Sequence[str], *, without: Collection[bytes], limit: int) -> list[tuple[bytes, bool]]:
        """How the files went from each of these snapshots to the last one, as git shows it in at most `limit` bytes;
        and whether that is all of it."""
        excluded = [f":(top,exclude,literal){os.fsdecode(path)}" for path in sorted(without)[:_MOST_EXCLUDED]]
        words = ("diff-tree", "--stdin", "--always", "-r", "--raw", "--patch", "--no-renames", "--")
        paths, env = excluded and [":/", *excluded], {"GIT_LITERAL_PATHSPECS": "0"}
        output, pairs, is_whole = bytearray(), "".join(f"{self.name} {start}\n" for start in starts), True
        try:
            self._own.run(*words, *paths, stdin=pairs.encode(), sink=output.extend, limit=limit * len(starts), env=env)
        except PrintsTooMuch:
            if len(starts) > 1:
                return [self.diffs([start], without=without, limit=limit)[0] for start in starts]
            is_whole = False
        # Each begins with the name, which no other line of a difference can be.
        texts = re.split(b"^%s\n" % self.name.encode(), output, flags=re.MULTILINE)[1:]
        return [(text[:limit], is_whole and len(text) <= limit) for text in texts or [b""]]

    def restore(self, name: str, *, limit: int) -> SnapshotState:
        """Bring files, HEAD and index to what they were, which it gives. What can be refused is refused before anything
        is changed."""
        if not self.has_index:
            self._begin_index("")
        elif self.name == name:
            seen, changed = self._look(limit, limit)
            if changed == 0 and seen == self.taken:
                return seen
        else:
            refuse_to_wait(f"{self.checkout}/.git")
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

    def _look(self, file_limit: int, limit: int) -> tuple[SnapshotState, int | None]:
        """Let the private index know what is there, but for what is too large or cannot be read, or for which there is
        no room in so many bytes. Gives how many files differ from the snapshot before, None where git is to count
        them."""
        branch = commit = staged = ""
        forced = list[bytes]()
        if self.has_repository:
            refuse_to_wait(f"{self.checkout}/.git")
            commit, branch = self._ask_head()
            staged, forced = self._look_at_staged(commit)
        changed, left_out = self._ask_changed()
        paths = [*changed, *forced]
        left_out |= self._add(paths, file_limit, limit)
        known = self.taken.left_out if self.taken else {}
        if dropped := [path for path in left_out if path.decode("latin-1") not in known]:
            self._drop(dropped)
        count = len(dropped) + len(set(paths) - left_out.keys())
        named = {path.decode("latin-1"): why for path, why in sorted(left_out.items())}
        state = SnapshotState(branch=branch, commit=commit, staged=staged, left_out=named)
        return state, None if count and (forced or left_out) else count

    def _ask_head(self) -> tuple[str, str]:
        """HEAD's commit, empty when there is none, and its branch, empty when it is detached. Raises
        `OperationRefused`."""
        ended = self._theirs.run("rev-parse", "HEAD", "--symbolic-full-name", "HEAD", fine=(0, 128))
        output = self._theirs("symbolic-ref", "HEAD") if ended.exit_code else ended.output
        *commit, branch = os.fsdecode(output).removesuffix("\n").split("\n")
        if branch != "HEAD" and not branch.startswith(BRANCHES):
            raise OperationRefused(f"HEAD stands on {branch!r}, which is no branch.")
        return "".join(commit), branch.removeprefix("HEAD")

    def _look_at_staged(self, commit: str) -> tuple[str, list[bytes]]:
        """The tree of what is staged, and the paths that are tracked although the rules say to ignore them; these only
        where HEAD or what is staged has moved. Of an index that is damaged or half merged nothing is kept."""
        now_ns, copy = time.time_ns(), f"{self.folder}/index.staged"
        try:
            key = key_of(os.stat(self.index), now_ns)
            if key and self.staged_by == (commit, key):
                return self.staged, []
            shutil.copyfile(self.index, copy)
        except FileNotFoundError:
            key, copy = None, f"{self.folder}/no-index"
        except OSError:
            return "", []
        self.staged_by, self.staged = (commit, key), ""
        here = {"GIT_INDEX_FILE": copy, "GIT_OBJECT_DIRECTORY": f"{self.folder}/objects", **self._borrowed}
        tree = self._theirs.run("write-tree", "--missing-ok", env=here, fine=None).output.decode().strip()
        if tree != self._own.line("rev-parse", f"{commit or _EMPTY_TREES[self.format]}^{{tree}}"):
            self.staged = tree
        forced = self._theirs.run("ls-files", "-z", "--ignored", "--cached", "--exclude-standard", fine=None).output
        return self.staged, [path for path in forced.split(b"\0") if path]

    def _ask_changed(self) -> tuple[list[bytes], dict[bytes, str]]:
        """The paths that are not as the private index says, without those that git ignores; and why folders that cannot
        be looked into, and repositories in the repository, are left out."""
        git = self._git(self._private, ("include.path", self.config)) if self.has_repository else self._own
        listed = git.run("ls-files", "-z", "--others", "--modified", "--deleted", "--exclude-standard")
        left = {os.fsencode(path): why.lower() for path, why in _CLOSED_FOLDER.findall(listed.complaint)}
        paths = {*listed.output.split(b"\0")} - {b""}
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
            complaint = self._own.run(*words, stdin=join_paths(wanted), fine=(0, 1, 128)).complaint
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
        self._own("update-index", "--force-remove", "-z", "--stdin", stdin=join_paths(paths))

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
    def _own(self) -> GitProgram:
        """git in the private repository, which borrows the objects of the workspace's."""
        return self._git(self._private | NO_CONFIGURATION)

    @property
    def _private(self) -> dict[str, str]:
        return {"GIT_DIR": self.folder, "GIT_WORK_TREE": self.checkout, **self._borrowed}

    @property
    def _borrowed(self) -> dict[str, str]:
        if not self.has_repository:
            return {}
        return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": _quote_path(self.objects), "GIT_SHALLOW_FILE": self.shallow}

    @property
    def _theirs(self) -> GitProgram:
        """git in the workspace's own repository, with its configuration and the personal one."""
        return self._git({"GIT_DIR": f"{self.checkout}/.git", "GIT_WORK_TREE": self.checkout})

    def _git(self, environment: Mapping[str, str], *settings: tuple[str, str]) -> GitProgram:
        """git with these variables and settings, which do not count against its own."""
        return GitProgram(
            top=self.checkout,
            environment={**_ENVIRONMENT, **environment, **config_variables((*settings, *_SETTINGS))},
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


def _quote_path(path: str) -> str:
    """A path in a list that colons part."""
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
