"""Reads the commits of a run and judges by every rule whether they may leave, with any git that holds them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.boundary.commit_policy import (
    SUBMODULE,
    SYMLINK,
    Change,
    CommitRules,
    is_among,
    judge_changes,
    name_some,
    printable,
    rewrite_advice,
)
from stepflow.boundary.git import MOST_ENTRIES, REMOVED, TooMuch, blobs_of, compare_trees, lines_of, sizes_of, tree_of
from stepflow.boundary.verified_push import judge_for_api
from stepflow.domain.decision import Violation
from stepflow.domain.secrets import find_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from stepflow.boundary.git import GitReader

MOST_COMMITS = 300
#: How a file begins that stands for one in Git LFS, and how many bytes it has at most.
LFS_POINTER, LARGEST_POINTER = b"version https://git-lfs.github.com/spec/", 1024
LONGEST_TARGET = 4_096


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A commit of the run. `time` is in seconds since the epoch, as git prints it."""

    oid: str
    tree: str
    parents: tuple[str, ...]
    time: str
    message: str


@dataclass(frozen=True, kw_only=True)
class CheckedCommits:
    """The commits since the base, parents first, what each changes, and what forbids that they leave."""

    commits: tuple[Commit, ...] = ()
    changes: Mapping[str, tuple[Change, ...]]
    violations: tuple[Violation, ...]

    def places_of(self, blob: str) -> tuple[str, ...]:
        """The paths at which a commit has this content."""
        found = (change.path for changes in self.changes.values() for change in changes if change.oid == blob)
        return tuple(dict.fromkeys(found))


def check_commits(git: GitReader, tip: str, *, base: str, rules: CommitRules) -> CheckedCommits:
    """Judge the commits from the base to the tip. Raises `BoundaryError` where git cannot read them."""
    commits = read_commits(git, tip, base=base)
    if violations := tuple(_judge_history(commits, base)):
        return CheckedCommits(commits=commits, changes={}, violations=violations)
    try:
        base_tree = tree_of(git, base)
        changes = _changes(git, base_tree, commits)
        found = tuple(_judge_contents(git, commits, changes, base_tree, rules))
    except TooMuch as exc:
        too_much = Violation(
            message=f"the commits are too large to be looked at ({exc})",
            advice=f"Commit much less. {rewrite_advice(base)}",
        )
        return CheckedCommits(commits=commits, changes={}, violations=(too_much,))
    violations = tuple(replace(each, advice=f"{each.advice} {rewrite_advice(base)}") for each in found)
    return CheckedCommits(commits=commits, changes=changes, violations=violations)


def read_commits(git: GitReader, tip: str, *, base: str) -> tuple[Commit, ...]:
    """The commits that the tip has and the base has not, parents first."""
    text = git.run(
        "log", "-z", "--topo-order", "--reverse", "--encoding=UTF-8", "--no-show-signature", "--no-mailmap",
        "--format=%H%n%T%n%P%n%ct%n%B", tip, f"^{base}",
    )  # fmt: skip
    return tuple(_commit(record) for record in text.decode(errors="replace").split("\0") if record)


def _commit(record: str) -> Commit:
    oid, tree, parents, time, message = record.split("\n", 4)
    return Commit(oid=oid, tree=tree, parents=tuple(parents.split()), time=time, message=message)


def _judge_history(commits: tuple[Commit, ...], base: str) -> Iterator[Violation]:
    known = {base, *(commit.oid for commit in commits)}
    if not commits or not all(commit.parents and known.issuperset(commit.parents) for commit in commits):
        yield Violation(
            message=f"the commits do not descend from {base}, where the run began",
            advice=f"Leave the commit {base[:12]} and those before it as they are, and merge nothing else: "
            f"`git reset --soft {base[:12]}` and a new commit put the work on top of it.",
        )
    elif len(commits) > MOST_COMMITS:
        yield Violation(
            message=f"{len(commits)} commits, and at most {MOST_COMMITS} may be pushed",
            advice=f"Put the work into fewer commits: `git reset --soft {base[:12]}` undoes them and keeps the files.",
        )


def _judge_contents(
    git: GitReader,
    commits: tuple[Commit, ...],
    changes: Mapping[str, tuple[Change, ...]],
    base_tree: str,
    rules: CommitRules,
) -> Iterator[Violation]:
    every = sorted({change for each in changes.values() for change in each}, key=lambda one: (one.path, one.oid))
    yield from judge_changes(every, rules)
    if sum({change.oid: change.size for change in every}.values()) <= rules.most_bytes:
        yield from _judge_secrets(git, changes, rules)
    if rules.by_api:
        yield from judge_for_api(git, [(commit.oid, commit.parents, commit.tree) for commit in commits], base_tree)


def _changes(git: GitReader, base_tree: str, commits: tuple[Commit, ...]) -> dict[str, tuple[Change, ...]]:
    """What each commit has that the base has not. Raises `TooMuch`."""
    found: dict[Change, Change] = {}
    changes = {}
    for commit in commits:
        changed = compare_trees(git, base_tree, {commit.tree})
        changes[commit.oid] = [found.setdefault(change, change) for change in changed]
        if len(found) > MOST_ENTRIES:
            raise TooMuch(f"they change more than {MOST_ENTRIES} paths")
    sizes = sizes_of(git, {change.oid for change in found if change.mode not in (SUBMODULE, REMOVED)})
    known = {change: replace(change, size=sizes.get(change.oid, 0)) for change in found}
    links = {change for change in found if change.mode == SYMLINK}
    known |= {change: replace(known[change], target=_target(git, change.oid, sizes[change.oid])) for change in links}
    return {oid: tuple(known[change] for change in changed) for oid, changed in changes.items()}


def _target(git: GitReader, oid: str, size: int) -> str:
    return git.run("cat-file", "blob", oid).decode(errors="surrogateescape") if size <= LONGEST_TARGET else "/"


def judge_lfs_pointers(git: GitReader, changes: Mapping[str, Iterable[Change]]) -> Iterator[Violation]:
    """Pointers of Git LFS that no changed file of the base had. Whether the server has what they point to, only it
    knows."""
    every = {change for each in changes.values() for change in each}
    added = {each for each in every if 0 < each.size <= LARGEST_POINTER and each.mode != SYMLINK}
    before = {each.before for each in every}
    contents = blobs_of(git, {each.oid for each in added if each.oid not in before})
    pointers = {oid for oid, content in contents.items() if content.startswith(LFS_POINTER)}
    if named := sorted({printable(each.path) for each in added if each.oid in pointers}):
        yield Violation(
            message=f"files that Git LFS keeps, whose contents are not pushed: {name_some(named)}",
            advice="Only git's own objects are pushed, and GitHub refuses pointers to what it does not have: leave "
            "such files as they are, or out of `.gitattributes`.",
            hint="Let people add such files.",
            refuses=False,
        )


def _judge_secrets(git: GitReader, changes: Mapping[str, Iterable[Change]], rules: CommitRules) -> Iterator[Violation]:
    """Each credential that a commit adds to what the base has, by its kind, file, line and commit; never itself."""
    first = {
        change: oid
        for oid, changed in reversed([*changes.items()])
        for change in changed
        if change.mode not in (SUBMODULE, REMOVED) and not is_among(change.path, rules.allowed_secret_paths)
    }
    lines = lines_of(git, {change.oid for change in first})
    found = {change: tuple(find_secrets(lines[change.oid])) for change in first}
    before = lines_of(git, {change.before for change, hits in found.items() if hits})
    named = [
        f"{kind} in {printable(change.path)}, line {number + 1}, commit {first[change][:12]}"
        for change, hits in sorted(found.items(), key=lambda each: (each[0].path, each[0].oid))
        for number, kind in hits
        if lines[change.oid][number] not in before.get(change.before, ())
    ]
    if named:
        yield Violation(
            message=f"what looks like a credential: {name_some(named)}",
            advice="Keep credentials out of every commit: read them from the environment, and write examples that "
            "nobody can take for one.",
            hint="Keep it out of every commit; if it is none, name the file in `allowedSecretPaths` of agent.json.",
        )
