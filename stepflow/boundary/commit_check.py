"""Checks the commits of a run against every rule, in any repository that has them, and cleans their messages."""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from stepflow.boundary.git import GitFailed, GitReader, TooMuch
from stepflow.boundary.output_filter import OutputFilter, defuse, strip_hidden, without_directives
from stepflow.domain.agent.agent_settings import (
    DEFAULT_MOST_BYTES,
    DEFAULT_MOST_FILES,
    DEFAULT_PROTECTED_PATHS,
    LARGEST_MOST_BYTES,
)
from stepflow.domain.checkout import path_expression
from stepflow.domain.flow import Violation
from stepflow.domain.secrets import find_secrets
from stepflow.domain.text import name_some

SUBMODULE, SYMLINK, EXECUTABLE = "160000", "120000", "100755"
#: Far beyond what the policy lets through.
MOST_ENTRIES, DEEPEST = 20_000, 100
#: The mode of a path that is no longer there.
REMOVED = "000000"
#: A tree that names itself over and over is a few bytes, and `git diff-tree` lists it in memory first.
_DIFF_MEMORY = 512 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Change:
    """One path that differs from the base in one commit. `mode` and `oid` are the new ones, `mode_before` and `before`
    those in the base; `size` is 0 for a removed file; `target` is what a symlink points to."""

    path: str
    mode: str
    oid: str
    before: str = ""
    mode_before: str = ""
    size: int = 0
    target: str | None = None


@dataclass(frozen=True, kw_only=True)
class CommitRules:
    """The rules that commits must follow. `by_api`: GitHub's API writes them, which cannot write every change."""

    protected_paths: tuple[str, ...] = DEFAULT_PROTECTED_PATHS
    allowed_secret_paths: tuple[str, ...] = ()
    most_files: int = DEFAULT_MOST_FILES
    most_bytes: int = DEFAULT_MOST_BYTES
    by_api: bool = False


COMMIT_LESS = "Commit less: large, generated, and binary files belong in .gitignore."


def rewrite_advice(base: str) -> str:
    """How to correct the commits: a later commit that reverts something is not enough."""
    return (
        "Every commit counts, even what a later one reverts, so redo the commits: "
        f"`git reset --soft {base[:12]}` undoes them and keeps the files."
    )


def judge_changes(changes: Sequence[Change], rules: CommitRules) -> Iterator[Violation]:
    """Why these changes may not be pushed. Every commit counts, even what a later one reverts."""
    if guarded := [change for change in changes if is_among(change.path, rules.protected_paths)]:
        yield Violation(
            message=f"protected path: {_name_changes(guarded)}",
            advice="No commit of this run may change a protected path: leave it as it is.",
            hint="Make that change yourself, or narrow `protectedPaths` in agent.json.",
        )
    if moved := [change for change in changes if change.mode == change.mode_before == SUBMODULE]:
        yield Violation(
            message=f"another commit of a submodule: {_name_changes(moved)}",
            advice="No commit of this run may move a submodule: leave it at the commit that the base has, also where "
            "`git add --all` would take it along. If the issue asks for just that, say so in the answer.",
            hint="Move the submodule yourself, in a commit before the run: no run pushes one.",
        )
    if added := [change for change in changes if change.mode == SUBMODULE != change.mode_before]:
        yield Violation(
            message=f"submodule or nested repository: {_name_changes(added)}",
            advice="Commit no submodules or nested repositories: remove the `.git` of a folder whose "
            "files belong to the change, or leave the folder out.",
            hint="Add the submodule yourself, in a commit before the run: no run pushes one.",
        )
    if links := [change for change in changes if change.mode == SYMLINK and _leaves(change)]:
        yield Violation(
            message=f"symlink that leaves the tree: {_name_changes(links)}",
            advice="Make the symlink point inside the repository with a relative path, or commit a file instead.",
        )
    if (files := len({change.path for change in changes})) > rules.most_files:
        yield Violation(
            message=f"{files} changed files, and at most {rules.most_files} may be pushed",
            advice="Commit fewer files: those that are generated or installed belong in .gitignore.",
            hint="Raise `pullRequest.maxFiles` in agent.json if the change really must be that large.",
        )
    sizes = {change.oid: change for change in changes}
    if (size := sum(change.size for change in sizes.values())) > rules.most_bytes:
        largest = max(changes, key=lambda change: change.size)
        yield Violation(
            message=f"{size:,} bytes of changed files, and at most {rules.most_bytes:,} may be pushed; the largest is "
            f"{printable(largest.path)}",
            advice=COMMIT_LESS,
            hint="Raise `pullRequest.maxBytes` in agent.json if the change really must be that large.",
        )


def is_among(path: str, globs: Sequence[str]) -> bool:
    """Whether one of these globs, as in `.gitignore`, fits the path."""
    return any(_pattern(glob).fullmatch(fold(path)) for glob in globs)


def fold(path: str) -> str:
    """A path as the most forgiving file systems see it: without case and composition, as HFS+ without characters that
    cannot be seen, and as NTFS without dots and blanks at the end of a name or a stream behind a colon."""
    seen = "".join(letter for letter in path if unicodedata.category(letter) != "Cf")
    plain = unicodedata.normalize("NFC", unicodedata.normalize("NFC", seen).casefold())
    return "/".join(_plain_name(name) for name in plain.split("/"))


def _plain_name(name: str) -> str:
    return name if set(name) <= {"."} else name.partition(":")[0].rstrip(". ")


@cache
def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile(path_expression(fold(glob)), re.DOTALL)


def _leaves(change: Change) -> bool:
    """True unless the target goes up first, no further than the root, and then only down, and not into `.git`."""
    target = (change.target or "").split("/")
    ups = next((number for number, part in enumerate(target) if part not in ("..", ".")), len(target))
    down = target[ups:]
    depth = change.path.count("/")
    climbs = sum(part == ".." for part in target[:ups])
    return not change.target or target[0] == "" or climbs > depth or ".." in down or ".git" in map(fold, down)


def _name_changes(changes: Sequence[Change]) -> str:
    return name_some([printable(change.path) for change in changes])


def printable(path: str) -> str:
    """A path for a message."""
    return path.encode("unicode_escape").decode()


LONGEST_MESSAGE = 10_000
NO_SUBJECT = "Work of the agent"
#: Lines that claim who wrote, saw or approved something, or that steer CI, wherever they stand.
_CLAIM = re.compile(r"(?:[A-Za-z-]+-by|skip-checks|change-id|stepflow-[a-z]+)[ \t]*:", re.IGNORECASE)
_TRAILER = re.compile(r"[A-Za-z][A-Za-z0-9-]*[ \t]*:[ \t]|[ \t]+\S|\(cherry picked from commit ")


def clean_message(message: str, trailers: Mapping[str, str], output_filter: OutputFilter) -> str:
    """The model's message without claims, trailers, closing keywords, CI directives and secrets; then our trailers."""
    text = without_directives(output_filter.mask(strip_hidden(message))[:LONGEST_MESSAGE])
    lines = [line.rstrip() for line in text.split("\n") if not _CLAIM.match(line.strip())]
    paragraphs = re.split(r"\n{2,}", "\n".join(lines).strip("\n"))
    while len(paragraphs) > 1 and _is_trailer_block(paragraphs[-1]):
        paragraphs.pop()
    body = defuse("\n\n".join(paragraphs).strip()) or NO_SUBJECT
    ours = "\n".join(f"{key}: {value}" for key, value in trailers.items())
    return f"{body}\n\n{ours}\n"


def read_trailers(message: str) -> dict[str, str]:
    """The lines `Key: value` that a commit's message ends with."""
    lines = message.strip().rpartition("\n\n")[2].splitlines()
    return {key: value.strip() for key, colon, value in (line.partition(": ") for line in lines) if colon}


def _is_trailer_block(paragraph: str) -> bool:
    lines = paragraph.split("\n")
    return all(_TRAILER.match(line) for line in lines) and not lines[0][:1].isspace()


MOST_COMMITS = 300
#: How a file begins that stands for one in Git LFS, and how many bytes it has at most.
LFS_POINTER, LARGEST_POINTER = b"version https://git-lfs.github.com/spec/", 1024
LONGEST_TARGET = 4_096


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A commit; `author` and `committer` are addresses, the times in seconds since the epoch, as git prints them."""

    oid: str
    tree: str
    parents: tuple[str, ...]
    author: str
    committer: str
    authored_at: str
    committed_at: str
    message: str

    @property
    def is_original(self) -> bool:
        """False for a commit that was amended, rebased or cherry-picked: git then keeps the time of its author."""
        return self.authored_at == self.committed_at


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
    """Check the commits from the base to the tip. Raises `BoundaryError` if git cannot read them."""
    commits = read_commits(git, tip, f"^{base}")
    if violations := tuple(_judge_history(commits, base)):
        return CheckedCommits(commits=commits, changes={}, violations=violations)
    try:
        base_tree = tree_of(git, base)
        changes = _changes(git, base_tree, commits)
        found = tuple(_judge_contents(git, commits, changes, base_tree, rules))
    except TooMuch as exc:
        too_much = Violation(
            message=f"the commits are too large to check ({exc})",
            advice=f"Commit much less. {rewrite_advice(base)}",
        )
        return CheckedCommits(commits=commits, changes={}, violations=(too_much,))
    violations = tuple(replace(each, advice=f"{each.advice} {rewrite_advice(base)}") for each in found)
    return CheckedCommits(commits=commits, changes=changes, violations=violations)


def read_commits(git: GitReader, *revisions: str) -> tuple[Commit, ...]:
    """The commits that these revisions select, parents first."""
    text = git.run(
        "log", "-z", "--topo-order", "--reverse", "--encoding=UTF-8", "--no-show-signature", "--no-mailmap",
        "--format=%H%n%T%n%P%n%ae%n%ce%n%at%n%ct%n%B", *revisions,
    )  # fmt: skip
    return tuple(_commit(record) for record in text.decode(errors="replace").split("\0") if record)


def _commit(record: str) -> Commit:
    oid, tree, parents, author, committer, authored_at, committed_at, message = record.split("\n", 7)
    return Commit(
        oid=oid,
        tree=tree,
        parents=tuple(parents.split()),
        author=author,
        committer=committer,
        authored_at=authored_at,
        committed_at=committed_at,
        message=message,
    )


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
            advice=f"Put the work in fewer commits: `git reset --soft {base[:12]}` undoes them and keeps the files.",
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
        yield from _judge_for_api(git, commits, base_tree)


def _changes(git: GitReader, base_tree: str, commits: tuple[Commit, ...]) -> dict[str, tuple[Change, ...]]:
    """What each commit has that the base has not. Raises `TooMuch`."""
    found: dict[Change, Change] = {}
    changes = {}
    for commit in commits:
        changed = compare_trees(git, base_tree, commit.tree)
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
            message=f"files stored in Git LFS, whose contents are not pushed: {name_some(named)}",
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
            "nobody can mistake for one.",
            hint="Keep it out of every commit; if it is not one, list the file in `allowedSecretPaths` in agent.json.",
        )


#: Of one commit, in one request.
MOST_API_BYTES = 8 * 1024 * 1024
_API_HINT = "Let the agent do without it, or set `commits: git`, which supports it."


def _judge_for_api(git: GitReader, commits: tuple[Commit, ...], base_tree: str) -> Iterator[Violation]:
    """Yield what GitHub's API cannot write in these commits, parents first."""
    if merges := [commit.oid[:12] for commit in commits if len(set(commit.parents)) > 1]:
        yield Violation(
            message=f"GitHub's API cannot write a merge commit: {name_some(merges)}",
            advice="Make no merge commit.",
            hint="Let the agent rebase its work, or set `commits: git`, which supports it.",
        )
        return
    for parent_tree, tree in pairwise([base_tree, *(commit.tree for commit in commits)]):
        yield from _judge_changes_for_api(git, compare_trees(git, parent_tree, tree))


def _judge_changes_for_api(git: GitReader, changes: Sequence[Change]) -> Iterator[Violation]:
    if reasons := [f"{reason}: {printable(change.path)}" for change in changes if (reason := _why_not_carried(change))]:
        yield Violation(
            message=f"GitHub's API cannot write {name_some(reasons)}",
            advice="GitHub itself writes the commits of this run, and it can add, change, and remove plain files only: "
            "do without the others.",
            hint=_API_HINT,
        )
        return
    written = [change for change in changes if change.mode != REMOVED]
    sizes = sizes_of(git, {change.oid for change in written})
    if sum(sizes[change.oid] for change in written) > MOST_API_BYTES:
        largest = max(written, key=lambda change: sizes[change.oid])
        limit = f"{MOST_API_BYTES // 1024 // 1024} MiB in one commit"
        yield Violation(
            message=f"GitHub's API is given at most {limit}; the largest file is {printable(largest.path)}",
            advice="Commit less at once.",
            hint=_API_HINT,
        )


def _why_not_carried(change: Change) -> str:
    """Say what the API cannot write about a change; empty if it can write it."""
    if SUBMODULE in (change.mode, change.mode_before):
        return "a submodule"
    if change.path != change.path.encode(errors="replace").decode():
        return "a name that is not UTF-8"
    if change.mode == REMOVED:
        return ""
    if change.mode == SYMLINK:
        return "a symlink"
    if change.mode_before not in (REMOVED, change.mode):
        return "a change of mode"
    return "an executable file" if change.mode == EXECUTABLE else ""


def compare_trees(git: GitReader, base: str, tree: str) -> tuple[Change, ...]:
    """Every file, symlink and submodule that differs between the two trees. Raises `TooMuch`."""
    try:
        output = git.run(
            "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--no-ext-diff", "--no-textconv",
            "--ignore-submodules=none", base, tree, memory=_DIFF_MEMORY,
        )  # fmt: skip
    except GitFailed as exc:
        raise TooMuch(str(exc)) from exc
    words = output.decode(errors="surrogateescape").removesuffix("\0").split("\0") if output else []
    changes: set[Change] = set()
    for head, path in zip(words[::2], words[1::2], strict=True):
        mode_before, mode, before, oid, _ = head.removeprefix(":").split(" ")
        changes.add(Change(path=path, mode=mode, oid=oid, before=before, mode_before=mode_before))
    if len(changes) > MOST_ENTRIES:
        raise TooMuch(f"they change more than {MOST_ENTRIES} paths")
    if any(change.path.count("/") > DEEPEST for change in changes):
        raise TooMuch(f"their folders are nested more than {DEEPEST} deep")
    return tuple(sorted(changes, key=lambda change: (change.path, change.mode, change.oid)))


def sizes_of(git: GitReader, blobs: Collection[str]) -> dict[str, int]:
    """The sizes in bytes of those of these blobs that are there."""
    lines = git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin="\n".join(sorted(blobs)).encode())
    pairs = (line.split() for line in lines.decode().splitlines() if not line.endswith(" missing"))
    return {oid: int(size) for oid, size in pairs}


def blobs_of(git: GitReader, oids: Collection[str]) -> dict[str, bytes]:
    """The contents of those of these blobs that are there and no larger than what may ever be pushed."""
    present = {oid: size for oid, size in sizes_of(git, oids).items() if size <= LARGEST_MOST_BYTES}
    output = io.BytesIO(git.run("cat-file", "--batch", stdin="\n".join(present).encode(), memory=_DIFF_MEMORY))
    contents: dict[str, bytes] = {}
    while head := output.readline():
        oid, _, size = head.split()
        contents[oid.decode()] = output.read(int(size))
        output.read(1)
    return contents


def lines_of(git: GitReader, blobs: Collection[str]) -> dict[str, list[str]]:
    """The lines of such blobs. A null byte is left out: UTF-16 has one beside each letter."""
    return {
        oid: content.replace(b"\0", b"").decode(errors="replace").split("\n")
        for oid, content in blobs_of(git, blobs).items()
    }


def tree_of(git: GitReader, commit: str) -> str:
    """The id of a commit's tree."""
    return git.run("rev-parse", "--verify", f"{commit}^{{tree}}").decode().strip()
