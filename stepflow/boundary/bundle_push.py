"""Checks, rewrites and pushes the bundle of a run's commits: the only way in which code leaves the sandbox.

It goes to a branch that is ours to write: never the default branch, never one with somebody else's commits.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from stepflow.boundary.commit_policy import SUBMODULE, SYMLINK, Change, clean_message, judge_changes
from stepflow.boundary.git import Git, GitFailed, Remote, TooMuch
from stepflow.boundary.github_types import Pushed, Refused
from stepflow.boundary.output_filter import OutputFilter
from stepflow.boundary.settings import MOST_BUNDLE_BYTES
from stepflow.domain.connection import DIRECT, Connection
from stepflow.domain.definition import DEFAULT_PROTECTED_PATHS
from stepflow.domain.secrets import Redactor
from stepflow.errors import BoundaryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from stepflow.boundary.github_types import Account


MOST_COMMITS = 300
LONGEST_TARGET = 4_096
MOST_BRANCHES = 20
HEADS = "refs/heads/"
MOST_HEADER_LINES = 1_000
LONGEST_HEADER_LINE = 4_096
#: The pack is for git to check: `index-pack --strict` does so in every version, fetching from a bundle only in some.
_SIGNATURES = (b"# v2 git bundle\n", b"# v3 git bundle\n")
_OBJECT_FORMATS = (b"@object-format=sha1\n", b"@object-format=sha256\n")
_PREREQUISITE = re.compile(rb"-([0-9a-f]{40}|[0-9a-f]{64})(?: .*)?\n")
_REFERENCE = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) (\S+)\n")
#: Far beyond what the policy lets through.
MOST_ENTRIES, DEEPEST = 20_000, 100
#: The mode of a path that is no longer there.
REMOVED = "000000"
#: A tree that names itself over and over is a few bytes, and `git diff-tree` lists it in memory first.
_DIFF_MEMORY = 512 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class BundlePush:
    """Pushes one bundle. `tree` is the tree that the validators saw, when they ran: another one may not leave.

    `folder` must be the parent's own, out of the sandbox's reach. The server is reached on this `connection`.
    `present_url` asks where the repository is when it is no longer at `remote_url`; it may raise `WriteFailed`.
    """

    remote_url: str
    token: str = field(repr=False)
    bundle: Path
    folder: Path
    base_commit: str
    run_id: str
    agent: str
    issue: int | None = None
    tree: str | None = None
    protected_paths: tuple[str, ...] = DEFAULT_PROTECTED_PATHS
    redactor: Redactor = field(default_factory=Redactor)
    connection: Connection = DIRECT
    present_url: Callable[[], str] | None = None

    def push(self, branch: str, *, author: Account, replaces: str | None) -> Pushed:
        """Check, rewrite and push the bundle's commits; see `Pusher`."""
        try:
            return self._push(self.remote_url, branch, author, replaces)
        except GitFailed as exc:
            # Git is to follow no redirect with a credential: where the repository is now, GitHub's API tells.
            if not exc.moved or self.present_url is None or (url := self.present_url()) == self.remote_url:
                raise
        return self._push(url, branch, author, replaces)

    def _push(self, url: str, branch: str, author: Account, replaces: str | None) -> Pushed:
        remote = Remote(url=url, token=self.token)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="push-") as scratch:
            object_format = "sha256" if len(self.base_commit) == 64 else "sha1"
            git = Git(
                Path(scratch) / "repository.git",
                remote,
                object_format=object_format,
                redactor=self.redactor,
                connection=self.connection,
            )
            git.run_remote("fetch", "--quiet", "--no-tags", "--depth=1", remote.url, self.base_commit)
            try:
                commits = self._checked(git)
            except TooMuch as exc:
                raise Refused(f"refused: the commits are too large to be looked at ({exc})") from exc
            commit = self._rewrite(git, commits, author)
            return _push_commit(git, remote.url, branch, commit, replaces=replaces, signs=self._signs(author))

    def _checked(self, git: Git) -> tuple[_Commit, ...]:
        """The commits of the bundle, parents first, when they may leave."""
        commits = self._commits(git, self._unbundle(git))
        if refusal := judge_changes(_changes(git, self.base_commit, commits), self.protected_paths):
            raise Refused(f"refused: {refusal}")
        return commits

    def _unbundle(self, git: Git) -> str:
        if self.bundle.stat().st_size > MOST_BUNDLE_BYTES:
            raise Refused(f"refused: the commits are larger than {MOST_BUNDLE_BYTES // 1024 // 1024} MiB")
        with self.bundle.open("rb", buffering=0) as file:
            bundle = read_bundle(file)
            if strangers := bundle.builds_on - {self.base_commit}:
                raise Refused(
                    f"refused: the commits build on {', '.join(sorted(strangers))}, not on the run's base only"
                )
            try:
                git.run_on_file("index-pack", "--stdin", "--fix-thin", "--strict", file=file)
            except GitFailed as exc:
                raise Refused(f"refused: the commits are not sound ({exc.said})") from exc
        if self.tree and _line(git, "rev-parse", "--verify", f"{bundle.tip}^{{tree}}") != self.tree:
            raise Refused("refused: the commits do not hold what the validators saw")
        return bundle.tip

    def _commits(self, git: Git, tip: str) -> tuple[_Commit, ...]:
        """The commits from the base to the tip, parents first; all of them descend from the base."""
        text = git.run(
            "log", "-z", "--topo-order", "--reverse", "--encoding=UTF-8", "--no-show-signature", "--no-mailmap",
            "--format=%H%n%T%n%P%n%ct%n%B", tip, f"^{self.base_commit}",
        )  # fmt: skip
        commits = tuple(_commit(record) for record in text.decode(errors="replace").split("\0") if record)
        known = {self.base_commit, *(commit.oid for commit in commits)}
        if not commits or not all(commit.parents and known.issuperset(commit.parents) for commit in commits):
            raise Refused(f"refused: the commits do not descend from {self.base_commit}, where the run began")
        if len(commits) > MOST_COMMITS:
            raise Refused(f"refused: {len(commits)} commits, and at most {MOST_COMMITS} may be pushed")
        return commits

    def _rewrite(self, git: Git, commits: tuple[_Commit, ...], author: Account) -> str:
        """The same trees in commits that the bot answers for. Doing it again gives the same commits."""
        trailers = {"Stepflow-Agent": self.agent, "Stepflow-Run": self.run_id, **self._issue_trailer}
        output_filter = OutputFilter(redactor=self.redactor.knowing(self.token))
        new = {self.base_commit: self.base_commit}
        for commit in commits:
            parents = [word for parent in dict.fromkeys(commit.parents) for word in ("-p", new[parent])]
            message = clean_message(commit.message, trailers, output_filter)
            written = git.run(
                "commit-tree", commit.tree, *parents, stdin=message.encode(), env=self._identity(author, commit.time)
            )
            new[commit.oid] = written.decode().strip()
        return new[commits[-1].oid]

    def _identity(self, author: Account, time: str) -> dict[str, str]:
        """The bot as author and committer."""
        return {
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in (("NAME", author.login), ("EMAIL", self._address(author)), ("DATE", f"@{time} +0000"))
        }

    def _signs(self, author: Account) -> _OwnSigns | None:
        """By what our commits of earlier runs are known; without an issue every run has a branch of its own."""
        if self.issue is None:
            return None
        trailers = {"Stepflow-Agent": self.agent, **self._issue_trailer}
        lines = frozenset(f"{key}: {value}" for key, value in trailers.items())
        return _OwnSigns(committer=self._address(author), trailers=lines)

    def _address(self, author: Account) -> str:
        """The address that GitHub gives the bot."""
        return f"{author.id}+{author.login}@users.noreply.{urlsplit(self.remote_url).hostname or ''}"

    @property
    def _issue_trailer(self) -> dict[str, str]:
        return {} if self.issue is None else {"Stepflow-Issue": str(self.issue)}


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """What a bundle says about itself; the file stands at the beginning of its pack."""

    tip: str
    builds_on: frozenset[str]


def read_bundle(file: IO[bytes]) -> Bundle:
    """Read up to the pack. `file` must be unbuffered, so that another process can go on from there."""
    if file.readline(LONGEST_HEADER_LINE) not in _SIGNATURES:
        raise Refused("refused: what the checkout handed over is no git bundle.")
    tips: dict[bytes, str] = {}
    builds_on: set[str] = set()
    for _ in range(MOST_HEADER_LINES):
        line = file.readline(LONGEST_HEADER_LINE)
        if line == b"\n":
            return Bundle(tip=_tip(tips), builds_on=frozenset(builds_on))
        if match := _PREREQUISITE.fullmatch(line):
            builds_on.add(match[1].decode())
        elif match := _REFERENCE.fullmatch(line):
            tips[match[2]] = match[1].decode()
        elif line not in _OBJECT_FORMATS:
            break
    raise Refused("refused: the bundle of the run's commits has a header that git would not write.")


def _tip(tips: dict[bytes, str]) -> str:
    if b"HEAD" in tips:
        return tips[b"HEAD"]
    if len(set(tips.values())) != 1:
        raise Refused("refused: the bundle of the run's commits does not say which commit is the last.")
    return next(iter(tips.values()))


@dataclass(frozen=True, kw_only=True)
class _Commit:
    """A commit of the run. `time` is in seconds since the epoch, as git prints it."""

    oid: str
    tree: str
    parents: tuple[str, ...]
    time: str
    message: str


def _commit(record: str) -> _Commit:
    oid, tree, parents, time, message = record.split("\n", 4)
    return _Commit(oid=oid, tree=tree, parents=tuple(parents.split()), time=time, message=message)


def _changes(git: Git, base: str, commits: tuple[_Commit, ...]) -> tuple[Change, ...]:
    """What every single commit has that the base has not."""
    base_tree = _line(git, "rev-parse", "--verify", f"{base}^{{tree}}")
    changes = compare_trees(git, base_tree, {commit.tree for commit in commits})
    sizes = _sizes(git, {change.oid for change in changes if change.mode not in (SUBMODULE, REMOVED)})
    return tuple(
        replace(
            change,
            size=sizes.get(change.oid, 0),
            target=_target(git, change.oid, sizes[change.oid]) if change.mode == SYMLINK else None,
        )
        for change in changes
    )


def compare_trees(git: Git, base: str, trees: Iterable[str]) -> tuple[Change, ...]:
    """Every file, symlink and submodule that differs from the base in any of the trees. Raises `TooMuch`."""
    changes: set[Change] = set()
    for tree in sorted(set(trees)):
        try:
            output = git.run(
                "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--no-ext-diff", "--no-textconv",
                "--ignore-submodules=none", base, tree, memory=_DIFF_MEMORY,
            )  # fmt: skip
        except GitFailed as exc:
            raise TooMuch(str(exc)) from exc
        words = output.decode(errors="surrogateescape").removesuffix("\0").split("\0") if output else []
        for head, path in zip(words[::2], words[1::2], strict=True):
            _, mode, _, oid, _ = head.split(" ")
            changes.add(Change(path=path, mode=mode, oid=oid))
        if len(changes) > MOST_ENTRIES:
            raise TooMuch(f"they change more than {MOST_ENTRIES} paths")
    if any(change.path.count("/") > DEEPEST for change in changes):
        raise TooMuch(f"their folders are nested more than {DEEPEST} deep")
    return tuple(sorted(changes, key=lambda change: (change.path, change.mode, change.oid)))


def _sizes(git: Git, blobs: set[str]) -> dict[str, int]:
    lines = git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin="\n".join(sorted(blobs)).encode())
    return {oid: int(size) for oid, size in (line.split() for line in lines.decode().splitlines())}


def _target(git: Git, oid: str, size: int) -> str:
    return git.run("cat-file", "blob", oid).decode(errors="surrogateescape") if size <= LONGEST_TARGET else "/"


def _line(git: Git, *args: str) -> str:
    return git.run(*args).decode().strip()


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """A branch to write: `expected` is the tip that it must still have, empty when it must not exist yet.
    `done` is true when it already has the commit."""

    branch: str
    expected: str = ""
    done: bool = False


@dataclass(frozen=True, kw_only=True)
class _OwnSigns:
    """What a commit of ours for this agent and issue carries: our account's address as its committer's, and these
    lines in its last paragraph. Whoever changes or adds a commit becomes its committer."""

    committer: str
    trailers: frozenset[str]


def _push_commit(
    git: Git, url: str, branch: str, commit: str, *, replaces: str | None, signs: _OwnSigns | None
) -> Pushed:
    """Push the commit; once more, to another branch, if somebody was faster. Without `signs` only a branch that stands
    at `replaces` is ours; with them it must carry them as well, for what our comment says may come from a receipt in a
    forged run folder."""

    def is_ours(tip: str) -> bool:
        return tip == replaces if signs is None else _carries(git, url, tip, signs)

    try:
        return _push(git, url, branch, commit, is_ours)
    except GitFailed as exc:
        if "stale info" not in exc.said and "already exists" not in exc.said:
            raise
    return _push(git, url, branch, commit, is_ours)


def _choose_branch(
    branch: str, tips: Mapping[str, str], *, commit: str, is_ours: Callable[[str], bool], default: str
) -> _Choice | None:
    """The branch that has the commit already, else the one that stands where we left it, else the first free name."""
    names = [branch, *(f"{branch}-{number}" for number in range(2, MOST_BRANCHES + 1))]
    names = [name for name in names if name != default]
    for name in names:
        if tips.get(name) == commit:
            return _Choice(branch=name, expected=commit, done=True)
    for name in names:
        if (tip := tips.get(name)) and is_ours(tip):
            return _Choice(branch=name, expected=tip)
    return next((_Choice(branch=name) for name in names if name not in tips), None)


def _push(git: Git, url: str, branch: str, commit: str, is_ours: Callable[[str], bool]) -> Pushed:
    tips, default = _remote_branches(git, url, branch)
    if branch == default:
        raise Refused(f"refused: {branch} is the repository's default branch")
    choice = _choose_branch(branch, tips, commit=commit, is_ours=is_ours, default=default)
    if choice is None:
        raise BoundaryError(
            f"{branch} and {MOST_BRANCHES - 1} more branches like it hold somebody else's commits.",
            hint="Delete those that are not needed any more.",
        )
    if not choice.done:
        lease = f"--force-with-lease={HEADS}{choice.branch}:{choice.expected}"
        git.run_remote("push", "--quiet", "--porcelain", "--no-verify", lease, url, f"{commit}:{HEADS}{choice.branch}")
    return Pushed(branch=choice.branch, commit=commit)


def _carries(git: Git, url: str, tip: str, signs: _OwnSigns) -> bool:
    """An earlier run may have been cut off between its push and the comment that would name its commit."""
    git.run_remote("fetch", "--quiet", "--no-tags", "--depth=1", url, tip)
    committer, _, message = git.run("log", "-1", "--format=%ce%n%B", tip).decode(errors="replace").partition("\n")
    last = message.strip().rpartition("\n\n")[2]
    return committer == signs.committer and signs.trailers <= set(last.splitlines())


def _remote_branches(git: Git, url: str, branch: str) -> tuple[dict[str, str], str]:
    """The tips of the branches whose name begins like ours, and the default branch."""
    tips, default = {}, ""
    for line in git.run_remote("ls-remote", "--symref", url, "HEAD", f"{HEADS}{branch}*").decode().splitlines():
        value, _, name = line.partition("\t")
        if name == "HEAD" and value.startswith("ref: "):
            default = value.removeprefix("ref: ").removeprefix(HEADS)
        elif name.startswith(HEADS):
            tips[name.removeprefix(HEADS)] = value
    return tips, default
