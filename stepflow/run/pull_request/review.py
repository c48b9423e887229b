"""A run that reviews a pull request of anybody: what it starts from, and what the model is shown of it.

The agent's definition comes from the default branch. Everything else is data by people who may have no right here.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.boundary.git import Git, TooMuch
from stepflow.boundary.github_failures import GitHubFailed
from stepflow.boundary.github_types import PullRequest
from stepflow.boundary.own_texts import OwnComment, find_own_comment, without_marker
from stepflow.domain.run import DiffLines, ReviewedFile, ReviewedPull
from stepflow.domain.text import count
from stepflow.engine.prompt.sanitize import SanitizedText, sanitize, sanitize_line, sanitize_plain
from stepflow.errors import BoundaryError, Refused
from stepflow.run.issue import Writers, join_texts, new_mark, quote
from stepflow.run.pull_request.follow_up import describe_thread, fetch_history, is_shown, open_reader, thread_heading
from stepflow.run.request import RunRequest
from stepflow.run.start.trigger import PullRequestEvent, Skip

if TYPE_CHECKING:
    from stepflow.boundary.github_api import GitHubReader

#: Files of a pull request that are looked at; the others are counted.
MOST_FILES = 300
#: Characters of all diffs together, of the diff of one file, of all threads, of the commits, and of one message.
LONGEST_DIFF = 100_000
LONGEST_FILE_DIFF = 20_000
LONGEST_THREADS = 40_000
LONGEST_COMMITS = 10_000
LONGEST_MESSAGE = 1_000
#: Characters of what was said below the command that started the run, and of our last review's summary.
LONGEST_REMARK = 8_000
MOST_COMMITS = 100
#: Pieces of lines, of all files together, that a comment can be on; of a file beyond that, none.
MOST_PIECES = 20_000
#: The same changes as names and as texts: a `.gitmodules` can leave its submodules out of both.
_DIFF = ("diff", "--find-renames", "--ignore-submodules=none", "--no-color", "--no-ext-diff", "--no-textconv")
_CUT = "[the rest is left out]"
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def find_review(request: RunRequest, event: PullRequestEvent) -> RunRequest | Skip:
    """Return the request for a run that reviews the pull request, or a `Skip` if there is nothing to review.

    Raises `InputError` without `read-token`, and `Refused` if somebody asked for a review of conflicting branches."""
    with open_reader(request) as reader:
        number = event.number or 0
        pull, base_commit = request.retry_policy.repeat(lambda: _read_merged(reader, number))
        name = f"pull request #{number}"
        if pull.state != "open":
            return Skip(reason=f"{name} is {'merged' if pull.merged_at else 'closed'}")
        if event.head and event.head != pull.head_commit:
            return Skip(reason=f"the event was of {event.head[:12]}, and the branch of {name} has moved on since")
        if not pull.mergeable:
            reason = f"{name} conflicts with {pull.base}, so that there is no merge of the two to review"
            if event.head:
                return Skip(reason=reason)
            raise Refused(
                f"No run was started: {reason}.", hint="Resolve the conflicts, push, and start the agent again."
            )
        issue, last = reader.issue(number), _last_review(reader, number, request.trigger.agent)
        reviewed = ReviewedPull(
            number=number,
            url=pull.url,
            author=pull.author,
            base=pull.base,
            base_commit=base_commit,
            head=pull.head_commit,
            merge=pull.merge,
            reviewed_head=last.marker.commit if last else "",
            is_from_fork=pull.head_repository != pull.base_repository,
        )
    trigger = replace(request.trigger, issue=issue.as_subject(), issue_number=number, locked=issue.locked)
    return replace(request, trigger=trigger, reviewed=reviewed)


def _read_merged(reader: GitHubReader, number: int) -> tuple[PullRequest, str]:
    """Read a pull request that GitHub has tried to merge, and the commit of its base in that merge; empty without one.
    GitHub begins to try when it is asked."""
    pull = reader.pull_request(number)
    if pull.state != "open" or pull.mergeable is False:
        return pull, ""
    if pull.mergeable:
        base_commit, *heads = reader.commit(pull.merge).parents
        if heads == [pull.head_commit]:
            return pull, base_commit
    waiting = GitHubFailed(
        f"GitHub does not say yet whether pull request #{number} can be merged.", hint="Start the agent again later."
    )
    waiting.passes = True
    raise waiting


def _last_review(reader: GitHubReader, number: int, agent: str) -> OwnComment | None:
    """Return the agent's last review, whose marker names the head that it was about; None if it has made none."""
    name = agent.rpartition("/")[2]
    return find_own_comment(reader.reviews(number), reader.viewer(), agent=name, issue=number)


@dataclass(frozen=True, kw_only=True)
class DiffHunk:
    """One hunk of a diff: first line and number of lines on the old and on the new side, and its lines with signs."""

    old: tuple[int, int]
    new: tuple[int, int]
    lines: tuple[str, ...]

    @property
    def numbered(self) -> Iterator[tuple[str, int, int]]:
        """Yield each line, with the numbers that it or the next line has on both sides."""
        old, new = self.old[0], self.new[0]
        for line in self.lines:
            yield line, old, new
            old += line[:1] in ("-", " ")
            new += line[:1] in ("+", " ")


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """A changed file: git's letter for how, its path before (the same unless it was renamed) and now."""

    letter: str
    before: str
    path: str
    hunks: tuple[DiffHunk, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """Its paths as git takes them, letter by letter."""
        return tuple(f":(literal){path}" for path in dict.fromkeys((self.before, self.path)))

    def __str__(self) -> str:
        added, removed = (sum(line[:1] == sign for hunk in self.hunks for line in hunk.lines) for sign in "+-")
        words = {"A": "added", "D": "deleted", "R": f"renamed from {self.before}", "T": "of another type now"}
        how = words.get(self.letter, "")
        size = f"+{added} -{removed}" if self.hunks else "no lines to show"
        return ", ".join(filter(None, (self.path, how, size)))


def read_changes(git: Git, old: str, new: str, places: Sequence[str] = (), *, around: int = 3) -> list[FileChange]:
    """Return what changed between two commits, with so many unchanged lines `around` each change. A diff that is too
    long to be read has no hunks."""
    listed = git.run(*_DIFF, "--name-status", "-z", old, new, "--", *places)
    names = iter(listed.decode("utf-8", "surrogateescape").split("\0")[:-1])
    changes = []
    for status in names:
        before = next(names)
        path = next(names) if status[0] in "RC" else before
        changes.append(FileChange(letter=status[0], before=before, path=path))
    try:
        text = git.run(*_DIFF, f"--unified={around}", old, new, "--", *places).decode("utf-8", "replace")
    except TooMuch:
        return changes
    patches = iter(re.split(r"^diff --git ", text, flags=re.MULTILINE)[1:])
    # A file that became a link, or the other way around, has two.
    return [
        replace(
            each, hunks=tuple(h for patch in itertools.islice(patches, 1 + (each.letter == "T")) for h in _hunks(patch))
        )
        for each in changes
    ]


def _hunks(patch: str) -> Iterator[DiffHunk]:
    for text in re.split(r"^(?=@@ )", patch, flags=re.MULTILINE)[1:]:
        head, *lines = text.split("\n")[:-1]
        if match := _HUNK.match(head):
            old, old_count, new, new_count = (int(figure or 1) for figure in match.groups())
            yield DiffHunk(old=(old, old_count), new=(new, new_count), lines=tuple(lines))


def lines_to_comment(
    git: Git, reviewed: ReviewedPull, parting: str, changes: Sequence[FileChange]
) -> tuple[ReviewedFile, ...]:
    """Return the lines that a comment can be on: those that GitHub shows, which compares the pull request's head with
    the commit where it and its base parted. They are counted as in the workspace and in its base."""
    places = [place for each in changes for place in each.places]
    if not places:
        return ()
    moved_new = _read_moves(git, reviewed.head, reviewed.merge, places)
    moved_old = _read_moves(git, parting, reviewed.base_commit, places)
    files, room = [], MOST_PIECES
    for each in read_changes(git, parting, reviewed.head, places):
        lines = [line for hunk in each.hunks for line in hunk.numbered]
        right = _carry((new for line, _, new in lines if line[:1] in ("+", " ")), moved_new.get(each.path, ()))
        left = _carry((old for line, old, _ in lines if line[:1] == "-"), moved_old.get(each.before, ()))
        room -= len(right) + len(left)
        if each.hunks and each.path.isprintable() and room >= 0:
            files.append(ReviewedFile(path=each.path, right=tuple(right), left=tuple(left)))
    return tuple(files)


def _read_moves(git: Git, old: str, new: str, places: Sequence[str]) -> dict[str, tuple[DiffHunk, ...]]:
    """Return by file what says where the lines of one commit are in another: a diff without unchanged lines."""
    return {each.before: each.hunks for each in read_changes(git, old, new, places, around=0)}


def _carry(lines: Iterable[int], moves: Iterable[DiffHunk]) -> list[DiffLines]:
    """Return lines, given in their order, as they are counted in the other version, in pieces that stayed together:
    those before a change are where they were, and those after it have moved by the shift up to there."""
    pieces, coming, changed, shift = list[DiffLines](), deque(moves), 0, 0
    for line in lines:
        # For an empty range, git names the line before it.
        while coming and coming[0].old[0] + (coming[0].old[1] == 0) <= line:
            (first, removed), (_, added) = coming[0].old, coming.popleft().new
            changed, shift = first + removed - 1, shift + added - removed
        there = line + shift
        if line <= changed:
            continue
        if pieces and pieces[-1].last == there - 1 and pieces[-1].shift == -shift:
            pieces[-1] = replace(pieces[-1], last=there)
        else:
            pieces.append(DiffLines(first=there, last=there, shift=-shift))
    return pieces


def read_pull_request(
    request: RunRequest, reviewed: ReviewedPull, event: PullRequestEvent
) -> tuple[ReviewedPull, SanitizedText]:
    """Read what the model is shown of the pull request besides its title, body and comments, and find the lines that a
    comment can be on. Fetches its history into the request's `base_repository`."""
    mark = new_mark()
    with open_reader(request) as reader:
        is_draft = reader.pull_request(reviewed.number).draft
        parting = reader.merge_base(reviewed.base_commit, reviewed.head)
        threads = [*_thread_parts(reader, request, reviewed, mark)]
        last = _last_review(reader, reviewed.number, request.trigger.agent)
    commits = (reviewed.merge, reviewed.head, parting)
    git = fetch_history(request, commits, reviewed.base, perhaps_gone=reviewed.reviewed_head)
    changes = read_changes(git, reviewed.base_commit, reviewed.merge)
    looked_at = changes[:MOST_FILES]
    kind = f"{', a draft' if is_draft else ''}{', from a fork' if reviewed.is_from_fork else ''}"
    head, base_commit = reviewed.head[:12], reviewed.base_commit[:12]
    heading = SanitizedText(
        text=f"This is the pull request to review{kind}. The workspace is at GitHub's merge of its head {head} into "
        f"{reviewed.base}, which was at {base_commit}: `git diff HEAD^1 HEAD` shows the whole change. Each part below "
        f"begins with a line that contains {mark}."
    )
    parts = (
        heading,
        _remark(request, event, mark),
        quote(SanitizedText(text="commits, oldest first"), _commits_text(git, parting, reviewed.head), mark),
        *_fitting(threads, LONGEST_THREADS, "threads"),
        _last_text(last, mark),
        quote(SanitizedText(text=count(len(changes), "changed file")), _files_text(changes), mark),
        *_fitting(_diff_parts(looked_at, mark), LONGEST_DIFF, "diffs"),
        _pushed_since(git, reviewed, looked_at, mark),
    )
    return replace(reviewed, files=lines_to_comment(git, reviewed, parting, looked_at)), join_texts(parts)


def _remark(request: RunRequest, event: PullRequestEvent, mark: str) -> SanitizedText:
    """Return what was written below the command that started the run, which is checked to be by somebody who may."""
    if not event.remark:
        return SanitizedText()
    heading = sanitize_line(f"{request.trigger.actor}, who asked for the review", "comment")
    return quote(heading, sanitize(event.remark, "comment", limit=LONGEST_REMARK), mark)


def _last_text(last: OwnComment | None, mark: str) -> SanitizedText:
    """Return the summary of our last review."""
    if last is None:
        return SanitizedText()
    text = sanitize(without_marker(last.comment.body), "our last review", limit=LONGEST_REMARK)
    return quote(SanitizedText(text=f"your last review, which was of {last.marker.commit[:12]}"), text, mark)


def _thread_parts(
    reader: GitHubReader, request: RunRequest, reviewed: ReviewedPull, mark: str
) -> Iterator[SanitizedText]:
    """Yield each thread, as far as people with write access, bots that may start a run, the pull request's author or we
    ourselves wrote it."""
    writers, viewer, allowed_bots = Writers(reader), reader.viewer(), request.inputs.start.bots
    for thread in reader.review_threads(reviewed.number):
        shown = [
            each
            for each in thread.comments
            if each.author == reviewed.author or is_shown(each, writers, viewer, allowed_bots)
        ]
        if shown:
            states = ("resolved" if thread.is_resolved else "", "outdated" if thread.is_outdated else "")
            yield quote(thread_heading(thread, *filter(None, states)), describe_thread(thread, shown), mark)


def _commits_text(git: Git, parting: str, head: str) -> SanitizedText:
    listed = git.run(
        "log", "-z", "--format=%h by %an: %B", f"--max-count={MOST_COMMITS}", "--reverse", f"{parting}..{head}"
    )
    messages = (each.strip()[:LONGEST_MESSAGE] for each in listed.decode("utf-8", "replace").split("\0"))
    return _shorten(filter(None, messages), "commit messages", LONGEST_COMMITS)


def _files_text(changes: Sequence[FileChange]) -> SanitizedText:
    names = [sanitize_line(str(each), "name of a changed file") for each in changes[:MOST_FILES]]
    more = f"[{len(changes) - MOST_FILES} more are left out, also below]" if len(changes) > MOST_FILES else ""
    removed = tuple(piece for name in names for piece in name.removed)
    return SanitizedText(text="\n".join(filter(None, (*(name.text for name in names), more))), removed=removed)


def _diff_parts(changes: Iterable[FileChange], mark: str) -> Iterator[SanitizedText]:
    """Yield the diff of each file. Before each line is its number in the workspace, or in its base where it is gone."""
    for each in changes:
        lines = (
            f"{old if line[:1] == '-' else new:>5} {line}" for hunk in each.hunks for line, old, new in hunk.numbered
        )
        if each.hunks:
            heading = sanitize_line(f"diff of {each.path}", "name of a changed file")
            yield quote(heading, _shorten(lines, heading.text, LONGEST_FILE_DIFF), mark)


def _pushed_since(git: Git, reviewed: ReviewedPull, changes: Sequence[FileChange], mark: str) -> SanitizedText:
    """Return what was pushed since our last review to the files that the pull request changes."""
    if not reviewed.reviewed_head:
        return SanitizedText()
    since = f"since your last review, which was of {reviewed.reviewed_head[:12]}"
    if reviewed.reviewed_head == reviewed.head:
        return quote(SanitizedText(text=f"nothing was pushed {since}"), SanitizedText(), mark)
    try:
        git.run("cat-file", "-e", f"{reviewed.reviewed_head}^{{commit}}")
    except BoundaryError:
        return quote(SanitizedText(text=f"all may be new {since}: the branch was replaced"), SanitizedText(), mark)
    places = [place for each in changes for place in each.places]
    new = read_changes(git, reviewed.reviewed_head, reviewed.head, places) if places else []
    lines = (
        line for each in new for line in (f"{each}:", *(f"  {line}" for hunk in each.hunks for line in hunk.lines))
    )
    text = _shorten(lines, "what was pushed since the last review", LONGEST_DIFF // 2)
    return quote(SanitizedText(text=f"pushed {since}: this is what is new"), text, mark)


def _shorten(lines: Iterable[str], where: str, most: int) -> SanitizedText:
    """Return the lines as people see them, as many characters as fit."""
    whole = "\n".join(lines)
    text = sanitize_plain(whole[:most], where)
    return text if len(whole) <= most else replace(text, text=f"{text.text}\n{_CUT}")


def _fitting(parts: Iterable[SanitizedText], most: int, name: str) -> Iterator[SanitizedText]:
    """Yield the parts that fit, and a note about the others."""
    left_out = 0
    for part in parts:
        if len(part.text) > most:
            left_out += 1
            continue
        most -= len(part.text)
        yield part
    if left_out:
        yield SanitizedText(text=f"[{left_out} {name} are left out, which would be too long]")
