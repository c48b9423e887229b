"""Snapshots of the workspace as commits of a private git repository in the sandbox.

A snapshot's tree has the files, its message says where HEAD stood and what was left out, and its parents are HEAD's
commit, what is staged, and the snapshot before. Every step is a git command in the sandbox; what is asked at every
snapshot is asked by one shell.
"""

from __future__ import annotations

import io
import json
import os
import re
import secrets
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from stepflow.errors import StepflowError
from stepflow.sandbox.box import OutputTooLarge, Toolbox
from stepflow.sandbox.child.git import COMMIT, MOST_CHANGED
from stepflow.sandbox.workspace_git import ENVIRONMENT, REFUSE_TO_WAIT, ProgramRunner, WorkspaceGit, WorkspaceGitFailed

_MIB = 1024 * 1024
#: GitHub takes no file above 100 MiB, so no pull request can hold more than what a snapshot leaves out.
FILE_LIMIT = 100 * _MIB
#: What one snapshot may have: a quarter hour's worth of downloads into the tree should not fill the runner's disk.
SNAPSHOT_LIMIT = 1024 * _MIB
_TAKE_SECONDS, _RESTORE_SECONDS = 120.0, 600.0
#: Bytes of a difference that are read; far fewer are shown.
_DIFF_LIMIT = 8 * _MIB
#: Of what was left out so many paths are kept out of a difference, where they would look like deleted files.
_MOST_EXCLUDED = 50
_MOST_UNREADABLE = 20
#: An ignore file that is put back or goes lets other files show.
_ROUNDS = 5
_BRANCHES = "refs/heads/"
_NESTED = "is a repository of its own"
_EMPTY_TREES = {
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
#: Stronger than any attribute of the tree: files are kept as they are, byte for byte.
_ATTRIBUTES = b"* -text -eol -ident -filter -working-tree-encoding !diff\n"
_RENEW = """
rm -rf "$1" && git init --quiet --bare --template= --object-format="$2" "$1" &&
mkdir "$1/info" && cat > "$1/info/attributes"
"""
#: HEAD's commit and branch, or without a commit its branch alone.
_ASK_HEAD = """
code=0; head=$(git rev-parse HEAD --symbolic-full-name HEAD) || code=$?
case $code in
  0) commit=${head%%[!0-9a-f]*} ;;
  128) head=$(git symbolic-ref HEAD) commit=$empty_tree ;;
  *) exit 1 ;;
esac
printf %s "$head"
"""
#: What is staged; of a damaged index nothing is kept.
_ASK_STAGED = """
git diff-index --cached --raw -z --no-renames --ita-invisible-in-index "$commit" || printf damaged
"""
#: Folders without these rights keep git from putting files back.
_OPEN_FOLDERS = ("find", ".", "-type", "d", "!", "-perm", "-700", "-exec", "chmod", "u+rwx", "{}", ";")
_CLOSED_FOLDER = re.compile(r"^warning: could not open directory '(.*?)/?': (.*)$", re.MULTILINE)
_UNREADABLE = re.compile(r"^fatal: Unable to process path (.*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class _State:
    """HEAD's branch (empty when it is detached) and commit (empty when there is none), the tree of what is staged
    (empty when that is as HEAD, or none can be made of it), and why which paths were left out, as Latin-1."""

    branch: str = ""
    commit: str = ""
    staged: str = ""
    left_out: dict[str, str] = field(default_factory=dict)


_STATE = TypeAdapter(_State)


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """What is there now; whether the files may differ from the snapshot before, and how many do, None where git is to
    count them."""

    state: _State
    left_out: Mapping[bytes, str]
    is_changed: bool
    count: int | None


@dataclass(frozen=True, kw_only=True)
class TakenSnapshot:
    """`name` is the commit; so many `files` differ from the snapshot before. `texts` are what people have named."""

    name: str
    files: int
    left_out: Mapping[bytes, str]
    texts: bytes


class SnapshotRepository:
    """The private repository. `base` is the commit that a fresh clone has, HEAD's at the beginning where it is empty.
    `packs` are those of all snapshots that were kept so far."""

    def __init__(self, toolbox: Toolbox, base: str, packs: Callable[[], Iterable[Path]]) -> None:
        self._toolbox, self._base, self._packs = toolbox, base, packs
        self._checkout, self._folder = str(toolbox.checkout), str(toolbox.private / "snapshots/tree.git")
        self._is_open = self._has_repository = False
        self._objects = self._shallow = ""
        self._format = "sha1"
        self._programs = ProgramRunner(toolbox, ENVIRONMENT)
        #: git in the private repository, and in the workspace's own, with its configuration and the personal one.
        self._own = self._own_git()
        self._theirs = WorkspaceGit(
            self._programs, {"GIT_DIR": f"{self._checkout}/.git", "GIT_WORK_TREE": self._checkout}
        )
        #: What is not looked at again while it stays as it is: HEAD's commit with what is staged, and its tree.
        self._staged: tuple[str, bytes, str] | None = None
        #: The last snapshot's name and state.
        self._name = ""
        self._taken: _State | None = None

    def take(self, last: str, *, anew: bool, limit: int) -> TakenSnapshot | None:
        """Commit what is there, on top of the `last` snapshot; None where nothing has changed since, unless it shall be
        made `anew`. At most `limit` bytes of files are taken in. Raises `StepflowError`."""
        self._programs.begin(_TAKE_SECONDS)
        if not self._is_open:
            self._open(last)
        self._is_open = False
        seen = self._look(limit)
        is_same = not seen.is_changed and seen.state == self._taken
        self._is_open, self._taken = True, seen.state
        if last and is_same and not anew:
            return None
        commit, staged = seen.state.commit, seen.state.staged
        parents = [commit] if commit else []
        parents += [self._line("commit-tree", staged, stdin=b"What was staged\n")] if staged else []
        parents += [last] if last else []
        words = shlex.join(word for parent in parents for word in ("-p", parent))
        script = f'tree=$(git write-tree --missing-ok)\ngit commit-tree "$tree" {words}'
        message = json.dumps(asdict(seen.state)).encode()
        name = self._name = self._own.run_script(script, stdin=message)[0].decode().strip()
        files = seen.count
        if anew or files is None:
            before = last or self._base or _EMPTY_TREES[self._format]
            files = self._own("diff-tree", "-r", "-z", "--name-only", "--no-renames", before, name).count(b"\0")
        texts = b"\0".join((os.fsencode(seen.state.branch), *seen.left_out))
        return TakenSnapshot(name=name, files=files, left_out=seen.left_out, texts=texts)

    def pack(self, name: str, last: str, sink: Callable[[bytes], object], *, limit: int) -> None:
        """Give the pack of what the snapshot has beyond the base and the last one. Raises `StepflowError`."""
        wanted = "".join(f"{one}\n" for one in (name, last and f"^{last}", self._base and f"^{self._base}") if one)
        # Without deltas: what it holds is searched for secrets.
        plain = ("-q", "--window=0", "--depth=0", "--no-reuse-delta")
        self._own("pack-objects", "--revs", "--stdout", *plain, stdin=wanted.encode(), feed=sink, limit=limit)

    def diffs(self, starts: Sequence[str], name: str, *, without: Collection[bytes]) -> list[tuple[bytes, bool]]:
        """How the files went from each snapshot to the last one, as git shows it, and whether that is all of it. Raises
        `StepflowError`."""
        excluded = [f":(top,exclude,literal){os.fsdecode(path)}" for path in sorted(without)[:_MOST_EXCLUDED]]
        words, paths = ("diff-tree", "-r", "--raw", "--patch", "--no-renames"), excluded and [":/", *excluded]
        return [self._diff(*words, start, name, "--", *paths) for start in starts]

    def _diff(self, *words: str) -> tuple[bytes, bool]:
        output = bytearray()
        try:
            self._own(*words, feed=output.extend, limit=_DIFF_LIMIT, env={"GIT_LITERAL_PATHSPECS": "0"})
        except OutputTooLarge:
            return bytes(output), False
        return bytes(output), True

    def restore(self, name: str) -> Mapping[bytes, str]:
        """Bring files, HEAD and index to what they were, with nothing of the tools alive; gives why which paths were
        left out. What can be refused is refused before anything is changed. Raises `StepflowError`."""
        self._toolbox.end_step()
        self._programs.begin(_RESTORE_SECONDS)
        was_open, self._is_open = self._is_open, False
        if not was_open:
            self._open("")
        elif self._name == name:
            seen = self._look(SNAPSHOT_LIMIT)
            if not seen.is_changed and seen.state == self._taken:
                self._is_open = True
                return seen.left_out
        else:
            self._refuse_to_wait()
        state = self._read(name)
        # Paths that lead elsewhere are refused by this.
        self._own("read-tree", name, env={"GIT_INDEX_FILE": f"{self._folder}/index.checked"})
        if self._has_repository:
            self._bring_objects(state)
            self._move_head(state)
        left_out = {path.encode("latin-1"): why for path, why in state.left_out.items()}
        self._restore_files(name, left_out)
        if self._has_repository:
            self._restore_index(state)
        self._is_open, self._name = True, name
        self._taken = state
        return left_out

    def _look(self, limit: int) -> _Seen:
        """Let the private index know what is there, at most so many bytes."""
        branch = commit = staged = ""
        forced = list[bytes]()
        if self._has_repository:
            repository = (REFUSE_TO_WAIT, f"empty_tree={_EMPTY_TREES[self._format]}{_ASK_HEAD}", _ASK_STAGED)
            (_, head, changes), paths, left_out = self._ask_changed(*repository)
            branch, commit = _read_head(os.fsdecode(head).split("\n"))
            staged, forced = self._look_at_staged(commit, changes)
        else:
            _, paths, left_out = self._ask_changed()
        left_out, count = self._take_in([*paths, *forced], left_out, limit)
        named = {path.decode("latin-1"): why for path, why in sorted(left_out.items())}
        return _Seen(
            state=_State(branch=branch, commit=commit, staged=staged, left_out=named),
            left_out=left_out,
            is_changed=count > 0,
            count=None if forced or left_out else count,
        )

    def _open(self, last: str) -> None:
        """Make the repository anew, with everything that was kept so far and an index of the last snapshot, or of the
        base."""
        self._refuse_to_wait()
        places = ("--path-format=absolute", "--git-path", "objects", "--git-path", "shallow")
        complaints = list[str]()
        answer = self._theirs("rev-parse", "--show-object-format", *places, fine=(0, 128), complaints=complaints)
        said = answer.decode("utf-8", "surrogateescape").splitlines()
        self._has_repository, self._staged, self._taken = bool(said), None, None
        if said:
            self._format, self._objects, self._shallow = said
            self._base = (
                self._base or self._theirs("rev-parse", "--quiet", "--verify", "HEAD", fine=(0, 1)).decode().strip()
            )
        elif self._base or "not a git repository" not in complaints[0]:
            raise WorkspaceGitFailed(
                f"git does not know the repository in the workspace: {complaints[0].strip()[-500:]}"
            )
        self._own = self._own_git()
        self._run(("sh", "-e", "-c", _RENEW, "sh", self._folder, self._format), _ATTRIBUTES)
        for path in self._packs():
            with path.open("rb") as pack:
                self._own("index-pack", "--stdin", stdin=pack)
        # From now on git knows files that did not change by their times.
        self._own.run_script(
            f"git read-tree {shlex.quote(last or self._base or '--empty')}\ngit update-index -q --refresh || [ $? = 1 ]"
        )

    def _refuse_to_wait(self) -> None:
        """Raises `StepflowError` where git's own folder holds pipes, sockets or devices."""
        self._theirs.run_script(REFUSE_TO_WAIT)

    def _look_at_staged(self, commit: str, changes: bytes) -> tuple[str, list[bytes]]:
        """The tree of what is staged, and the paths that are tracked although the rules say to ignore them; these only
        where HEAD or what is staged has moved."""
        if changes[-1:] not in (b"", b"\0"):
            return "", []
        if self._staged and self._staged[:2] == (commit, changes):
            return self._staged[2], []
        against = commit or _EMPTY_TREES[self._format]
        self._staged = commit, changes, self._tree_of_index(against, changes)
        forced = self._theirs("ls-files", "-z", "--ignored", "--cached", "--exclude-standard")
        return self._staged[2], [path for path in forced.split(b"\0") if path]

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
        env = {"GIT_INDEX_FILE": f"{self._folder}/index.staged"}
        self._own("read-tree", against, env=env)
        self._own("update-index", "-z", "--index-info", stdin=b"".join((*gone, *new)), env=env)
        return self._line("write-tree", "--missing-ok", env=env)

    def _take_in(self, paths: list[bytes], left: dict[bytes, str], limit: int) -> tuple[dict[bytes, str], int]:
        """Let the private index know what is there. Gives why which paths are left out: those that are too large or
        cannot be read, or for which there is no room in so many bytes; and how many others have changed."""
        left = left | self._add(paths, FILE_LIMIT, limit)
        known = self._taken.left_out if self._taken else {}
        if dropped := [path for path in left if path.decode("latin-1") not in known]:
            self._drop(dropped)
        return left, len(dropped) + len(set(paths) - left.keys())

    def _ask_changed(self, *before: str) -> tuple[list[bytes], list[bytes], dict[bytes, str]]:
        """What scripts print; then the paths that are not as the private index says, without those that git ignores;
        and why folders that cannot be looked into, and repositories in the repository, are left out."""
        lists = f"GIT_INDEX_FILE={shlex.quote(self._folder)}/index git ls-files -z --others --exclude-standard"
        modified = self._own.as_shell("ls-files", "-z", "--modified", "--deleted")
        git, mark = self._theirs if self._has_repository else self._own, secrets.token_hex()
        answer, complaints = git.run_script(f"\nprintf {mark}\n".join((*before, lists, modified)))
        pieces = answer.split(mark.encode())
        if len(pieces) != len(before) + 2:
            raise WorkspaceGitFailed("git in the workspace printed the mark that separates its answers.")
        *said, others, changed = pieces
        left = {os.fsencode(path): why.lower() for path, why in _CLOSED_FOLDER.findall(complaints)}
        paths = {*others.split(b"\0"), *changed.split(b"\0")} - {b""}
        if len(paths) > MOST_CHANGED:
            raise StepflowError(f"There are more than {MOST_CHANGED} changed files that git does not ignore.")
        nested = {path for path in paths if path.endswith(b"/")}
        return said, sorted(paths - nested), {**left, **{path.rstrip(b"/"): _NESTED for path in nested}}

    def _add(self, paths: list[bytes], file_limit: int, limit: int) -> dict[bytes, str]:
        """Let the private index say of these paths what is there. Gives why others are left out."""
        left, sizes = dict[bytes, str](), dict[bytes, int]()
        for path, (size, why) in zip(paths, self._toolbox.sizes(paths) if paths else (), strict=True):
            sizes[path] = size
            if why or size > file_limit:
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
            complaints = list[str]()
            self._own(*words, stdin=_joined(wanted), fine=(0, 1, 128), complaints=complaints)
            # A file may change while it is read.
            failed = {os.fsencode(path) for path in _UNREADABLE.findall("".join(complaints))} & set(wanted)
            if not failed and "fatal: " not in "".join(complaints):
                break
            if not failed or len(left) > _MOST_UNREADABLE + len(sizes):
                raise WorkspaceGitFailed(f"git update-index failed: {''.join(complaints).strip()[-500:]}")
            left |= dict.fromkeys(failed, "could not be read")
            wanted = [path for path in wanted if path not in failed]
        return left

    def _drop(self, paths: Iterable[bytes]) -> None:
        self._own("update-index", "--force-remove", "-z", "--stdin", stdin=_joined(paths))

    def _read(self, name: str) -> _State:
        """What a snapshot says, whose objects are all there."""
        if not COMMIT.fullmatch(name):
            raise StepflowError(f"There is no snapshot {name!r}.")
        _, _, message = self._own("cat-file", "commit", name).partition(b"\n\n")
        try:
            state = _STATE.validate_json(message)
        except ValidationError as exc:
            raise StepflowError(f"The commit {name} is no snapshot.") from exc
        objects = [one for one in (state.commit, state.staged) if one]
        if not all(COMMIT.fullmatch(one) for one in objects):
            raise StepflowError(f"The snapshot {name} names what is no object.")
        if state.branch and not state.branch.startswith(_BRANCHES):
            raise StepflowError("HEAD of the snapshot stands on no branch.")
        if self._has_repository and not (state.branch or state.commit):
            raise StepflowError("HEAD of the snapshot stands nowhere.")
        if state.branch:
            self._own("check-ref-format", state.branch)
        self._own("rev-list", "--objects", "--quiet", name, *objects, *(["--not", self._base] if self._base else []))
        return state

    def _bring_objects(self, state: _State) -> None:
        """Bring what HEAD and the index stand on to where the workspace's own git finds it."""
        names = [name for name in (state.commit, state.staged) if name]
        names += [f"^{self._base}", f"^{self._base}^{{tree}}"] if self._base else []
        with io.BytesIO() as pack:
            wanted = "".join(f"{name}\n" for name in names).encode()
            self._own("pack-objects", "--revs", "--stdout", "-q", stdin=wanted, feed=pack.write, limit=SNAPSHOT_LIMIT)
            self._own("index-pack", "--stdin", stdin=pack, env={"GIT_OBJECT_DIRECTORY": self._objects})

    def _move_head(self, state: _State) -> None:
        if not state.branch:
            self._theirs("update-ref", "--no-deref", "HEAD", state.commit)
            return
        moved = (state.branch, state.commit) if state.commit else ("-d", state.branch)
        self._theirs("update-ref", "--no-deref", *moved)
        self._theirs("symbolic-ref", "HEAD", state.branch)

    def _restore_files(self, name: str, left_out: Collection[bytes]) -> None:
        """First the private index learns of everything that is there; then git makes of it what the snapshot says. What
        was left out of it, what git ignores and what cannot be read stay as they are."""
        if left_out:
            self._drop(left_out)
        self._run(_OPEN_FOLDERS)
        for number in range(_ROUNDS):
            _, paths, left = self._ask_changed()
            paths = [path for path in paths if not _is_in(path, left_out)]
            left |= self._add(paths, SNAPSHOT_LIMIT, SNAPSHOT_LIMIT)
            waiting = [path for path in paths if path not in left]
            if number and not waiting:
                return
            self._own("read-tree", "--reset", "-u", name)
        raise StepflowError(f"{os.fsdecode(waiting[0])!r} cannot be put back.")

    def _restore_index(self, state: _State) -> None:
        tree = state.staged or state.commit
        lock = self._theirs("rev-parse", "--path-format=absolute", "--git-path", "index.lock").removesuffix(b"\n")
        # Of a program that was ended at work.
        self._run(("rm", "-f", os.fsdecode(lock)))
        if not tree:
            self._theirs("read-tree", "--empty")
            return
        try:
            self._theirs("read-tree", "--reset", tree)
        except WorkspaceGitFailed:
            self._theirs("read-tree", tree)

    def _run(self, argv: tuple[str, ...], stdin: bytes = b"") -> None:
        """Run a program for what it does; whether it did that is seen by what comes after it."""
        self._programs.run(argv, {}, stdin, feed=bytearray().extend)

    def _line(self, *words: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> str:
        return self._own(*words, stdin=stdin, env=env).decode().strip()

    def _own_git(self) -> WorkspaceGit:
        """git in the private repository, which borrows the objects of the workspace's."""
        own = {"GIT_DIR": self._folder, "GIT_WORK_TREE": self._checkout}
        own |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
        if self._objects:
            own |= {"GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(self._objects), "GIT_SHALLOW_FILE": self._shallow}
        return WorkspaceGit(self._programs, own)


def _read_head(said: list[str]) -> tuple[str, str]:
    """HEAD's branch, empty when it is detached, and its commit, empty when there is none."""
    branch = said[-1]
    if branch != "HEAD" and not branch.startswith(_BRANCHES):
        raise StepflowError(f"HEAD stands on {branch!r}, which is no branch.")
    return branch.removeprefix("HEAD"), "".join(said[:-1])


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
