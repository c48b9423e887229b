"""Reviews of pull requests: plans what a closing answer requests, and submits it.

A comment on lines that the diff does not show becomes a part of the summary, and a suggestion becomes plain text unless
it was tried with success and is posted exactly as it was tried. A review is submitted once, without comments that an
earlier one has made, and in the place of that earlier one.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from stepflow.boundary.github_failures import FORBIDDEN, NOT_FOUND, UNPROCESSABLE, WriteFailed
from stepflow.boundary.github_types import Comment, PullRequest, Review
from stepflow.boundary.output_filter import LONGEST_TEXT, OutputFilter, filter_text
from stepflow.boundary.own_texts import Marker, find_own_comment, mark_comment, marker_word, read_marker, without_marker
from stepflow.boundary.settings import RequestedComment, RequestedReview, normalize_path, read_closing_request
from stepflow.domain.agent.agent_settings import GitHubSettings
from stepflow.domain.effect import (
    DiffSide,
    EffectStatus,
    Receipt,
    ReviewComment,
    ReviewVerdict,
    SubmitReview,
    Suggestion,
    SuggestionResults,
    TriedSuggestion,
    describe_place,
)
from stepflow.domain.json import JsonObject
from stepflow.domain.run import DiffLines, ReviewedPull
from stepflow.domain.secrets import redact_value
from stepflow.domain.text import code_block, code_span, count
from stepflow.errors import BoundaryError, Refused

if TYPE_CHECKING:
    from stepflow.boundary.github_writer import GitHubWriter

#: Comments of one review that are on lines; more are not posted.
MOST_COMMENTS = 50
#: Characters of one comment, of one suggestion, and of all comments that become a part of the summary.
LONGEST_COMMENT = 8_000
LONGEST_SUGGESTION = 20_000
LONGEST_MOVED = 30_000

#: How a block that people could commit begins, wherever it is.
_OWN_BLOCK = re.compile(r"((?<!`)`{3,}|(?<!~)~{3,})[ \t]*+(?=suggestion)", re.IGNORECASE)
_NOT_SHOWN = "the diff does not show these lines"
_REMOVED_LINES = "it is on lines that the pull request removes"
_NO_LINES = "it names no lines"
_ENDINGS = "it would change line endings, which a suggestion cannot"
_UNSAFE = "the boundary would have to change its text"
_NOT_TRIED = "it was not tried"


def find_suggestions(
    review: RequestedReview, pull: ReviewedPull, output_filter: OutputFilter
) -> tuple[tuple[Suggestion, ...], tuple[TriedSuggestion, ...]]:
    """Return the suggestions that are worth a trial, and those that need none because they cannot be posted."""
    worth, problems = list[Suggestion](), list[TriedSuggestion]()
    for number, comment in enumerate(review.comments):
        if comment.suggestion is None:
            continue
        if problem := _problem_of(comment, comment.suggestion, pull, output_filter):
            problems.append(TriedSuggestion(comment=number, place=comment.place, problem=problem))
            continue
        last = comment.line or 0
        first = comment.start_line or last
        text = _as_lines(comment.suggestion)
        path = _find_path(comment, pull)
        worth.append(Suggestion(comment=number, path=path, first=first, last=last, text=text))
    return tuple(worth), tuple(problems)


def _problem_of(comment: RequestedComment, text: str, pull: ReviewedPull, output_filter: OutputFilter) -> str:
    """Say why a suggestion cannot be posted as it is; empty if it can."""
    if comment.line is None:
        return _NO_LINES
    if comment.side is DiffSide.LEFT:
        return _REMOVED_LINES
    if _find_lines(comment, pull) is None:
        return _NOT_SHOWN
    lines = _as_lines(text)
    # Its block has no line endings of its own: those of the file stay.
    if "\r" in lines:
        return _ENDINGS
    block = code_block(lines, "text")
    is_long = len(lines) > LONGEST_SUGGESTION
    return _UNSAFE if is_long or filter_text(block, output_filter) != block else ""


def _as_lines(text: str) -> str:
    """Return the text of a suggestion with a line break at the end of each line."""
    plain = text.replace("\r\n", "\n") if "\n" not in text.replace("\r\n", "") else text
    return f"{plain}\n" if plain and not plain.endswith("\n") else plain


def _find_lines(comment: RequestedComment, pull: ReviewedPull) -> DiffLines | None:
    """Return the part of the diff that shows all lines of a comment; None if there is none."""
    if comment.line is None:
        return None
    first, last = comment.start_line or comment.line, comment.line
    path = _find_path(comment, pull)
    for file in pull.files:
        if file.path == path:
            parts = file.right if comment.side is DiffSide.RIGHT else file.left
            return next((part for part in parts if part.first <= first <= last <= part.last), None)
    return None


def _find_path(comment: RequestedComment, pull: ReviewedPull) -> str:
    """Return the path of the changed file that a comment is about, as GitHub has it: the only one with this name, or
    with this name in other letters. Of any other file, what the comment says."""
    names = {file.path: normalize_path(file.path) for file in pull.files}
    same = [path for path, name in names.items() if name == comment.path]
    alike = [path for path, name in names.items() if name.casefold() == comment.path.casefold()]
    return next((found[0] for found in (same, alike) if len(found) == 1), comment.path)


def join_fitting(parts: Sequence[str], limit: int) -> tuple[str, Sequence[str]]:
    """Join as many of these paragraphs as fit, say how many do not, and return those, too."""
    sizes = itertools.accumulate(len(part) + 2 for part in parts)
    fitting = sum(size <= limit for size in sizes)
    left_out = parts[fitting:]
    more = [f"> {count(len(left_out), 'more comment')} did not fit: the job's summary has them."] if left_out else []
    return "\n\n".join((*parts[:fitting], *more)), left_out


@dataclass(frozen=True, kw_only=True)
class ReviewPlanner:
    """Plans one review."""

    github: GitHubSettings
    pull: ReviewedPull
    output_filter: OutputFilter
    #: None in a plan whose suggestions were not tried yet.
    tried: SuggestionResults | None
    warnings: list[str] = field(default_factory=list)

    def plan(self, review: RequestedReview, below: str) -> SubmitReview:
        """Return the effect. `below` is the engine's own text at the end of the summary."""
        comments, moved = list[ReviewComment](), list[str]()
        for number, requested in enumerate(review.comments):
            comment = self._comment(number, requested)
            if (lines := _find_lines(requested, self.pull)) and len(comments) < MOST_COMMENTS:
                start = requested.start_line if requested.start_line != requested.line else None
                comments.append(
                    replace(comment, line=comment.line + lines.shift, start_line=start and start + lines.shift)
                )
            else:
                moved.append(f"**{requested.place}**\n\n{comment.words}")
        heading = ("**On lines that the diff does not show:**",) if moved else ()
        text, left_out = join_fitting((*heading, *moved), LONGEST_MOVED)
        own = (text, below)
        engine = "\n\n".join(part for part in own if part)
        summary = self._filter_text(review.summary, LONGEST_TEXT - len(engine))
        body = "\n\n".join(part for part in (summary, engine) if part)
        rest = "\n\n".join(left_out)
        return SubmitReview(verdict=self._verdict(review), body=body, comments=tuple(comments), left_out=rest)

    def _verdict(self, review: RequestedReview) -> ReviewVerdict:
        if review.verdict is ReviewVerdict.APPROVE and not self.github.review.may_approve:
            self.warnings.append(
                "The review does not approve the pull request: `review.mayApprove` in agent.json is not set."
            )
            return ReviewVerdict.COMMENT
        return review.verdict

    def _comment(self, number: int, requested: RequestedComment) -> ReviewComment:
        """Return a comment with its suggestion, or with the reason why that is only words."""
        body = self._filter_text(requested.body, LONGEST_COMMENT)
        text = None if requested.suggestion is None else _as_lines(requested.suggestion)
        path = _find_path(requested, self.pull)
        facts = (path, requested.side, requested.body, requested.suggestion or "")
        comment = ReviewComment(
            path=path,
            line=requested.line or 0,
            side=requested.side,
            body=body,
            suggestion=text,
            digest=hashlib.sha256("\0".join(facts).encode(errors="replace")).hexdigest()[:16],
        )
        if text is None:
            return comment
        problem = _problem_of(requested, text, self.pull, self.output_filter) or self._problem_when_tried(number)
        if not problem:
            return comment
        code = code_block(text.removesuffix("\n"), "text") if text else ""
        why = f"*Not offered as a suggestion: {problem}.*"
        words = filter_text("\n\n".join(filter(None, (why, code))), self.output_filter, limit=LONGEST_COMMENT)
        return replace(comment, body=f"{body}\n\n{words}".lstrip(), suggestion=None)

    def _filter_text(self, text: str, limit: int) -> str:
        """Return a text that offers nothing by itself, not even in a list or a quote."""
        return _OWN_BLOCK.sub(r"\1 text ", filter_text(text, self.output_filter, limit=limit))

    def _problem_when_tried(self, number: int) -> str:
        known = self.tried.suggestions if self.tried else ()
        return next((each.problem for each in known if each.comment == number), _NOT_TRIED)


def requested_review(answer: JsonObject | None, output_filter: OutputFilter) -> RequestedReview | None:
    """Return the review that a closing answer requests, without the run's secrets."""
    review = redact_value((answer or {}).get("review"), output_filter.redactor)
    return read_closing_request({"review": review}).review


#: How the summary of a review that a newer one replaces begins. No text of the model's can.
_REPLACED = "<!-- stepflow replaced -->"
_DIGEST = re.compile(r"<!-- stepflow comment=(?P<digest>[0-9a-f]{16}) -->\s*")
_OWN_PULL = "GitHub lets nobody approve their own pull request or request changes to it, so this review only comments."
_MOVED_ON = "More was pushed while the run looked at this commit, so this review does not approve."
_NO_VERDICT = "GitHub did not let this account {verdict}, so this review only comments: {said}"
_NO_PLACES = "GitHub rejected the comments on lines, so all of them are here."
_NOT_THERE = "GitHub rejected the comments on these lines:"
_NO_REVIEW = "GitHub rejected the review, so this comment has all of it: {said}"
#: What GitHub says if it rejects the verdict.
_OF_VERDICT = re.compile(r"\bapprove|request changes", re.IGNORECASE)
#: Statuses of a review that is not taken however often it is sent.
_REFUSED = (FORBIDDEN, NOT_FOUND, UNPROCESSABLE)
_VERBS = {ReviewVerdict.APPROVE: "approve", ReviewVerdict.REQUEST_CHANGES: "request changes"}


@dataclass(frozen=True, kw_only=True)
class ReviewSubmission:
    """One review to submit. `marker` identifies the run; `comment` writes its one comment on the pull request, where
    GitHub takes no review."""

    writer: GitHubWriter
    pull: ReviewedPull
    effect: SubmitReview
    marker: Marker
    comment: Callable[[str], Comment]
    #: What GitHub rejected although the review was written.
    warnings: list[str]

    def submit(self) -> Receipt:
        """Submit the review, unless this run has, and let it replace the agent's earlier ones. Every request can be
        repeated. Raises `Refused` if the pull request was closed meanwhile, or no longer has the reviewed commit."""
        own = self._own_reviews()
        written = next((each for each in own if self._is_of_this_run(each)), None)
        detail, earlier = "submitted", [each for each in own if each is not written]
        left_out: Sequence[str] = ()
        if written is None:
            now = self.writer.pull_request(self.pull.number)
            if problem := self._problem(now):
                raise Refused(problem, hint="Start the run again if the pull request should be reviewed as it is now.")
            comments, repeated = self._new_comments()
            lines = [f"> {_repeats(repeated)}"] if repeated else []
            verdict = self.effect.verdict
            if now.author_id == self.writer.viewer().id and verdict is not ReviewVerdict.COMMENT:
                verdict, lines = ReviewVerdict.COMMENT, [*lines, f"> {_OWN_PULL}"]
            # An approval counts for what was pushed since, too.
            if now.head_commit != self.pull.head and verdict is ReviewVerdict.APPROVE:
                verdict, lines = ReviewVerdict.COMMENT, [*lines, f"> {_MOVED_ON}"]
            body = "\n\n".join((self.effect.body, *lines)).strip()
            last = earlier[-1] if earlier else None
            if last and not (comments or last.is_binding) and verdict is ReviewVerdict.COMMENT:
                marked = mark_comment(body, self.marker)
                written, detail = self.writer.update_review(self.pull.number, last.id, marked), "updated"
            else:
                try:
                    written, detail, left_out = self._create(verdict, body, comments)
                except WriteFailed as exc:
                    if exc.status not in _REFUSED:
                        raise
                    return self._write_comment(body, comments, exc, earlier)
        return self._receipt(written, detail, self._replace(earlier, written), left_out)

    def _receipt(self, written: Comment, detail: str, kept: str, left_out: Sequence[str]) -> Receipt:
        return Receipt(
            kind=self.effect.kind,
            status=EffectStatus.APPLIED,
            detail="; ".join(filter(None, (detail, kept))),
            url=written.url,
            number=written.id,
            unwritten="\n\n".join(filter(None, (*left_out, self.effect.left_out))),
        )

    def _problem(self, now: PullRequest) -> str:
        name = f"pull request #{now.number}"
        if now.state != "open":
            end = "merged" if now.merged_at else "closed"
            return f"{name} was {end} while the run reviewed it, so nothing was written."
        if now.head_commit == self.pull.head:
            return ""
        commits = self.writer.pull_request_commits(now.number)
        if any(each.oid == self.pull.head for each in commits):
            return ""
        return f"{name} no longer has the commit {self.pull.head[:12]} that the run reviewed, so nothing was written."

    def _own_reviews(self) -> tuple[Review, ...]:
        """Return our account's reviews of the pull request by this agent, oldest first."""
        viewer = self.writer.viewer()
        return tuple(
            review
            for review in self.writer.reviews(self.pull.number)
            if find_own_comment((review,), viewer, agent=self.marker.agent, issue=self.pull.number)
        )

    def _is_of_this_run(self, review: Review) -> bool:
        marker = read_marker(review.body)
        return marker is not None and marker.run == marker_word(self.marker.run)

    def _new_comments(self) -> tuple[list[ReviewComment], int]:
        """Return the comments that no earlier review has made, and how many one has."""
        viewer, known = self.writer.viewer(), list[str]()
        for made in self.writer.review_comments(self.pull.number):
            if made.author_id == viewer.id and (digest := _digest_of(made)):
                known.append(digest)
        new = []
        for comment in self.effect.comments:
            if comment.digest in known:
                known.remove(comment.digest)
            else:
                new.append(comment)
        return new, len(self.effect.comments) - len(new)

    def _create(
        self, verdict: ReviewVerdict, body: str, comments: Sequence[ReviewComment]
    ) -> tuple[Review, str, Sequence[str]]:
        """Submit the review, once more without whatever GitHub rejects of it. Return it, a description, and what
        it had no room for. Raises `WriteFailed` if nothing can be left out any more."""
        lines, moved, detail = list[str](), list[ReviewComment](), ""
        while True:
            parts = (body, *lines, *_in_words(moved, all_of_them=not comments))
            text, left_out = join_fitting(parts, LONGEST_REVIEW)
            try:
                made = self._send(verdict, text, [_as_json(each) for each in comments])
            except WriteFailed as exc:
                if exc.status != UNPROCESSABLE or not (comments or verdict in _VERBS):
                    raise
                if verdict in _VERBS and (not comments or _OF_VERDICT.search(exc.said)):
                    detail = f"; GitHub did not let it {_VERBS[verdict]} ({exc.said})"
                    self.warnings.append(_NO_VERDICT.format(verdict=_VERBS[verdict], said=exc.said))
                    lines.append(f"> {_NO_VERDICT.format(verdict=_VERBS[verdict], said=self._quote(exc.said))}")
                    verdict = ReviewVerdict.COMMENT
                else:
                    # GitHub's diff is not ours, or too large to be shown there.
                    shown = [] if moved else self._find_shown(comments)
                    moved += [each for each in comments if len(shown) == len(comments) or each not in shown]
                    comments = [each for each in comments if each not in moved]
            else:
                return made, f"submitted ({verdict}) with {count(len(comments), 'comment')} on lines{detail}", left_out

    def _find_shown(self, comments: Sequence[ReviewComment]) -> list[ReviewComment]:
        """Return the comments on lines that GitHub itself shows; none if it does not say."""
        try:
            files = {file.path: file for file in self.writer.changed_files(self.pull.number)}
        except WriteFailed:
            return []
        return [
            each
            for each in comments
            if each.path in files
            and files[each.path].shows(each.start_line or each.line, each.line, is_new=each.side is DiffSide.RIGHT)
        ]

    def _write_comment(
        self, body: str, comments: Sequence[ReviewComment], refused: WriteFailed, earlier: Sequence[Review]
    ) -> Receipt:
        """Write all of a review that GitHub rejects as a comment, which replaces the earlier reviews. Raises what
        GitHub said of the review if it rejects the comment too, or if a permission is missing, which somebody
        must give."""
        line = f"> {_NO_REVIEW.format(said=self._quote(refused.said))}"
        text, left_out = join_fitting((body, line, *_in_words(comments)), LONGEST_INSTEAD)
        try:
            written = self.comment(text)
        except WriteFailed as exc:
            raise BoundaryError(f"{refused.message} It rejected the comment too: {exc.message}", hint=exc.hint) from exc
        kept = self._replace(earlier, written)
        if refused.status != UNPROCESSABLE:
            raise BoundaryError(
                f"{refused.message} All of the review is in a comment: {written.url}", hint=refused.hint
            )
        self.warnings.append(f"GitHub rejected the review, so all of it is in a comment, {written.url}: {refused.said}")
        detail = f"GitHub rejected the review ({refused.said}), so all of it is in a comment"
        return self._receipt(written, detail, kept, left_out)

    @staticmethod
    def _quote(said: str) -> str:
        return code_span(" ".join(said.replace("`", "'").split()))

    def _send(self, verdict: ReviewVerdict, body: str, comments: Sequence[Mapping[str, object]]) -> Review:
        return self.writer.retry_policy.write(
            lambda: self.writer.create_review(
                self.pull.number,
                commit=self.pull.head,
                event=verdict.upper(),
                body=mark_comment(body, self.marker),
                comments=comments,
            ),
            find=lambda: next((each for each in self._own_reviews() if self._is_of_this_run(each)), None),
        )

    def _replace(self, earlier: Sequence[Review], newer: Comment) -> str:
        """Let earlier reviews lead to the newer one, and no longer count. Returns what could not be done."""
        problem = ""
        for review in (each for each in earlier if each is not newer and each.url != newer.url):
            self._point_to(newer, review)
            if review.is_binding:
                problem = self._dismiss(review, newer) or problem
        return problem

    def _point_to(self, newer: Comment, review: Review) -> None:
        if (marker := read_marker(review.body)) and _REPLACED not in review.body:
            text = f"{_REPLACED}\n[A newer review]({newer.url}) replaces this one.\n\n{_fold(review.body)}"
            body = mark_comment(text, marker)
            self.writer.update_review(self.pull.number, review.id, body)

    def _dismiss(self, review: Review, newer: Comment) -> str:
        number = self.pull.number
        try:
            self.writer.dismiss_review(number, review.id, f"A newer review replaces it: {newer.url}")
        except WriteFailed as exc:
            if exc.status not in (FORBIDDEN, NOT_FOUND, UNPROCESSABLE):
                raise
            # It may have been dismissed although the answer was lost.
            if any(each.id == review.id and each.is_binding for each in self.writer.reviews(number)):
                return f"the earlier review {review.url} still counts, since this token may not dismiss it"
        return ""


def _in_words(comments: Sequence[ReviewComment], *, all_of_them: bool = False) -> tuple[str, ...]:
    """Return the comments as paragraphs, below one that says why they are not on their lines."""
    if not comments:
        return ()
    places = (describe_place(each.path, each.start_line, each.line) for each in comments)
    moved = (f"**{place}**\n\n{each.words}" for place, each in zip(places, comments, strict=True))
    return (f"> {_NO_PLACES if all_of_them else _NOT_THERE}", *moved)


#: GitHub accepts 65,536 characters; the marker needs up to 2,500. Below the comment that stands for a review there is
#: room for what ended the run.
LONGEST_REVIEW = 62_000
LONGEST_INSTEAD = 25_000


def _as_json(comment: ReviewComment) -> dict[str, object]:
    side = str(comment.side)
    start = {"start_line": comment.start_line, "start_side": side} if comment.start_line else {}
    body = f"{comment.text}\n\n<!-- stepflow comment={comment.digest} -->"
    return {"path": comment.path, "line": comment.line, "side": side, **start, "body": body}


def _digest_of(comment: Comment) -> str:
    """Return the digest in the last line of a comment of ours; empty for any other."""
    last = comment.body.replace("\r\n", "\n").rpartition("\n")[2]
    match = _DIGEST.fullmatch(last)
    return match["digest"] if match else ""


def _fold(body: str) -> str:
    text = f"<details>\n<summary>The earlier review</summary>\n\n{without_marker(body).strip()}\n\n</details>"
    return text if len(text) < LONGEST_REVIEW else ""


def _repeats(number: int) -> str:
    what = "1 comment stands" if number == 1 else f"{number} comments stand"
    return f"{what} since an earlier review, and {'is' if number == 1 else 'are'} not repeated."
