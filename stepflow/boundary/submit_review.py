"""Submits a run's review of a pull request: once, without comments that an earlier review has made, and in the place of
that earlier one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.boundary.closing_request import join_fitting
from stepflow.boundary.github_failures import FORBIDDEN, NOT_FOUND, UNPROCESSABLE, WriteFailed
from stepflow.boundary.github_types import Comment, PullRequest, Review
from stepflow.boundary.own_texts import Marker, find_own_comment, mark_comment, marker_word, read_marker, without_marker
from stepflow.boundary.settings import Refused
from stepflow.domain.effect import EffectStatus, Receipt, ReviewComment, ReviewVerdict, SubmitReview, describe_place
from stepflow.domain.run import ReviewedPull
from stepflow.domain.text import count

if TYPE_CHECKING:
    from stepflow.boundary.github_api import GitHubWriter

#: How the summary of a review that a newer one replaces begins. No text of the model's can.
_REPLACED = "<!-- stepflow replaced -->"
_DIGEST = re.compile(r"<!-- stepflow comment=(?P<digest>[0-9a-f]{16}) -->\s*")
_OWN_PULL = "GitHub lets nobody approve their own pull request or request changes to it, so this review only comments."
_MOVED_ON = "More was pushed while the run looked at this commit, so this review does not approve."
_NO_PLACES = "GitHub took no comment on a line, so all of them are here."


@dataclass(frozen=True, kw_only=True)
class ReviewSubmission:
    """One review to submit. `marker` identifies the run."""

    writer: GitHubWriter
    pull: ReviewedPull
    effect: SubmitReview
    marker: Marker

    def submit(self) -> Receipt:
        """Submit the review, unless this run has, and let it replace the agent's earlier ones. Every request can be
        repeated. Raises `Refused` if the pull request was closed meanwhile, or no longer has the reviewed commit."""
        own = self._own_reviews()
        written = next((each for each in own if self._is_of_this_run(each)), None)
        detail, earlier = "submitted", [each for each in own if each is not written]
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
                written, detail = self._update(last, body), "updated"
            else:
                written = self._create(verdict, body, comments)
                detail = f"submitted ({verdict}) with {count(len(comments), 'comment')} on lines"
        kept = self._replace([each for each in earlier if each.id != written.id], written)
        return Receipt(
            kind=self.effect.kind,
            status=EffectStatus.APPLIED,
            detail="; ".join(filter(None, (detail, kept))),
            url=written.url,
            number=written.id,
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

    def _create(self, verdict: ReviewVerdict, body: str, comments: Sequence[ReviewComment]) -> Review:
        try:
            return self._send(verdict, body, [_as_json(each) for each in comments])
        except WriteFailed as exc:
            if exc.status != UNPROCESSABLE or not comments:
                raise
        # GitHub's diff is not ours, or too large to be shown there.
        places = (describe_place(each.path, each.start_line, each.line) for each in comments)
        moved = (f"**{place}**\n\n{each.words}" for place, each in zip(places, comments, strict=True))
        return self._send(verdict, join_fitting((body, f"> {_NO_PLACES}", *moved), LONGEST_REVIEW), [])

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

    def _update(self, review: Review, body: str) -> Review:
        """Write another summary; writing it twice changes nothing."""
        return self.writer.retry_policy.repeat(
            lambda: self.writer.update_review(self.pull.number, review.id, mark_comment(body, self.marker))
        )

    def _replace(self, earlier: Sequence[Review], newer: Review) -> str:
        """Let earlier reviews lead to the newer one, and no longer count. Returns what could not be done."""
        problem = ""
        for review in earlier:
            self._point_to(newer, review)
            if review.is_binding:
                problem = self._dismiss(review, newer) or problem
        return problem

    def _point_to(self, newer: Review, review: Review) -> None:
        if (marker := read_marker(review.body)) and _REPLACED not in review.body:
            text = f"{_REPLACED}\n[A newer review]({newer.url}) replaces this one.\n\n{_fold(review.body)}"
            body = mark_comment(text, marker)
            self.writer.retry_policy.repeat(lambda: self.writer.update_review(self.pull.number, review.id, body))

    def _dismiss(self, review: Review, newer: Review) -> str:
        number, message = self.pull.number, f"A newer review replaces it: {newer.url}"

        def done() -> bool:
            return any(each.id == review.id and not each.is_binding for each in self.writer.reviews(number))

        try:
            self.writer.retry_policy.ensure(lambda: self.writer.dismiss_review(number, review.id, message), done=done)
        except WriteFailed as exc:
            if exc.status not in (FORBIDDEN, NOT_FOUND, UNPROCESSABLE):
                raise
            return f"the earlier review {review.url} still counts, since this token may not dismiss it"
        return ""


#: GitHub accepts 65,536 characters; the marker needs up to 2,500.
LONGEST_REVIEW = 62_000


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
