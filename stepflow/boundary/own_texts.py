"""What runs have written on GitHub, found again by its author and hidden marks: the one comment of a run, with the
engine's own lines, and the run's part of a pull request's body."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from stepflow.boundary.github_types import Account, Comment, IssueNow, PullRequest
from stepflow.domain.approval import APPROVE
from stepflow.domain.effect import EffectStatus, Receipt
from stepflow.domain.run import Issue
from stepflow.domain.text import Spent

NO_COMMIT = "none"
#: How our comments begin and end: another workflow of the same account that quotes one has words of its own around it.
_HEAD = "<!-- stepflow -->"
_OWN_COMMENT = re.compile(
    rf"{_HEAD}\n(?P<text>.*)\n\n"
    r"<!-- stepflow run=(?P<run>\S+) agent=(?P<agent>\S+) issue=(?P<issue>\d+) "
    r"commit=(?P<commit>[0-9a-f]{40,64}|none) "
    r"cost=(?P<cost>\d{1,9}\.\d{1,9}\+?) before=(?P<before>\d{1,9}\.\d{1,9}\+?) -->\s*",
    re.DOTALL,
)
_NOTHING = Spent()
#: Digits behind the point that a marker keeps.
_DIGITS = 6


@dataclass(frozen=True, kw_only=True)
class Marker:
    """What a comment of ours says about itself. `commit` is the tip that we pushed last, `none` if we never did;
    `before` is what the agent's earlier runs on the issue cost, `cost` that and this run together."""

    run: str
    agent: str
    issue: int
    commit: str = NO_COMMIT
    cost: Spent = _NOTHING
    before: Spent = _NOTHING

    def __str__(self) -> str:
        words = f"run={self.run} agent={self.agent} issue={self.issue} commit={self.commit}"
        return f"<!-- stepflow {words} cost={_figure(self.cost)} before={_figure(self.before)} -->"

    def minus(self, run: str) -> Spent:
        """What other runs than this one have cost: a run that goes on does not count its beginning twice."""
        return self.before if self.run == marker_word(run) else self.cost

    def cost_of(self, run: str) -> Spent:
        """What it says that this run has cost so far; nothing where it is another run's."""
        if self.run != marker_word(run):
            return _NOTHING
        at_least = self.cost.at_least and not self.before.at_least
        return Spent(usd=round(max(0.0, self.cost.usd - self.before.usd), _DIGITS), at_least=at_least)


@dataclass(frozen=True, kw_only=True)
class OwnComment:
    """A comment of ours with its marker."""

    comment: Comment
    marker: Marker


def whole_cost(own: OwnComment | None, *, run: str, cost: Spent) -> Spent:
    """What a run has cost: `cost`, or what our comment said before, if the run goes on from an older folder."""
    return cost.or_more(own.marker.cost_of(run)) if own else cost


def find_own_comment(comments: tuple[Comment, ...], viewer: Account, *, agent: str, issue: int) -> OwnComment | None:
    """Our newest comment about this agent and issue."""
    own = reversed(_own_comments(comments, viewer, issue))
    return next((each for each in own if each.marker.agent == marker_word(agent)), None)


def find_asking_comment(comments: tuple[Comment, ...], viewer: Account, *, issue: int) -> OwnComment | None:
    """Our newest comment about the issue that asks to approve a plan, whichever agent made it."""
    own = reversed(_own_comments(comments, viewer, issue))
    return next((each for each in own if f"`{APPROVE} " in each.comment.body), None)


def spent_on_issue(comments: tuple[Comment, ...], viewer: Account, *, issue: int, run: str) -> Spent:
    """What all other runs on the issue have cost, by our own newest comment of each agent."""
    newest = {each.marker.agent: each.marker.minus(run) for each in _own_comments(comments, viewer, issue)}
    return sum(newest.values(), _NOTHING)


def _own_comments(comments: tuple[Comment, ...], viewer: Account, issue: int) -> list[OwnComment]:
    """Our comments about the issue, oldest first. Others can copy a marker, but not our author id; whoever shares that
    with us quotes it among words of their own."""
    return [
        OwnComment(comment=comment, marker=marker)
        for comment in comments
        if comment.author_id == viewer.id and (marker := read_marker(comment.body)) and marker.issue == issue
    ]


def make_marker(own: OwnComment | None, *, run: str, agent: str, issue: int, commit: str, cost: Spent) -> Marker:
    """The marker of a run's comment, which takes the place of `own`; without a `commit` that of `own` stays."""
    before = own.marker.minus(run) if own else _NOTHING
    return Marker(
        run=marker_word(run),
        agent=marker_word(agent),
        issue=issue,
        commit=commit or (own.marker.commit if own else NO_COMMIT),
        cost=before + whole_cost(own, run=run, cost=cost),
        before=before,
    )


def read_marker(body: str) -> Marker | None:
    """The marker of a whole comment: its last line, and none but one that `marked` has made."""
    if (match := _own(body)) is None:
        return None
    return Marker(
        run=match["run"],
        agent=match["agent"],
        issue=int(match["issue"]),
        commit=match["commit"],
        cost=_spent(match["cost"]),
        before=_spent(match["before"]),
    )


def without_marker(body: str) -> str:
    """The text of a comment of ours."""
    match = _own(body)
    return match["text"].rstrip() if match else body


def marked(text: str, marker: Marker) -> str:
    """A comment's full body."""
    return f"{_HEAD}\n{text.rstrip()}\n\n{marker}"


def marker_word(text: str) -> str:
    """A name as one word of a marker. Two names that an agent may have never give the same word."""
    return re.sub(r"[^\w.-]+", "-", text, flags=re.ASCII)


def _own(body: str) -> re.Match[str] | None:
    """An edit on GitHub's page gives other line breaks."""
    return _OWN_COMMENT.fullmatch(body.replace("\r\n", "\n"))


def _figure(spent: Spent) -> str:
    return f"{spent.usd:.{_DIGITS}f}{'+' if spent.at_least else ''}"


def _spent(figure: str) -> Spent:
    return Spent(usd=float(figure.rstrip("+")), at_least=figure.endswith("+"))


#: The account behind a job's own token; what it does starts no workflow.
JOB_ACCOUNT = "github-actions[bot]"


def pull_request_lines(receipt: Receipt, viewer: Account) -> tuple[str, ...]:
    """Where the pull request is, or why there is none."""
    if receipt.status is EffectStatus.FORBIDDEN:
        return (
            "**GitHub did not allow this token to open a pull request.** In the repository's settings under *Actions → "
            "General → Workflow permissions* turn on *Allow GitHub Actions to create and approve pull requests*, and "
            "give the job `pull-requests: write`. The commits are pushed: "
            f"[open the pull request by hand]({receipt.url}).",
        )
    line = f"Pull request: #{receipt.number}"
    if viewer.login != JOB_ACCOUNT or receipt.status is not EffectStatus.APPLIED:
        return (line,)
    return (
        line,
        "It was opened with the job's own token, so no workflow starts on it by itself: close and reopen it to start "
        "them, or give the action the token of a GitHub App as `github-token`.",
    )


def branch_lines(planned: str, pushed: str) -> tuple[str, ...]:
    """Where the commits are, when not where they were meant to be."""
    if planned == pushed:
        return ()
    return (f"Branch `{planned}` holds somebody else's commits, so those of this run are on `{pushed}`.",)


def has_same_text(used: Issue, now: Issue | IssueNow) -> bool:
    """Whether title and body are what they were."""
    return (_plain(used.title), _plain(used.body)) == (_plain(now.title), _plain(now.body))


def edited_lines(used: Issue, now: IssueNow) -> tuple[str, ...]:
    """That the issue is not the one that the run read."""
    if has_same_text(used, now):
        return ()
    return ("The issue has been edited since this run was triggered; the run used the text as it was then.",)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


#: GitHub takes 65,536 characters.
LONGEST_BODY = 65_000
_OWN_PART = re.compile(
    r"<!-- stepflow title=(?P<title>[0-9a-f]{16}) text=(?P<digest>[0-9a-f]{16}) -->\n(?P<text>.*?)\n<!-- /stepflow -->",
    re.DOTALL,
)


def mark_body(title: str, text: str) -> str:
    """The body with marks around it, which know the text and the title that it stands below."""
    return f"<!-- stepflow title={_digest(title)} text={_digest(text)} -->\n{text}\n<!-- /stepflow -->"


def update_text(title: str, text: str, pull: PullRequest) -> tuple[str, str]:
    """Title and body of the pull request with a new part of ours. A title stays that a person changed; so does all of
    the body but our part, and that as well once a person changed it. Nothing changes where not all of it has room."""
    body = pull.body.replace("\r\n", "\n")
    own, updated = _OWN_PART.search(body), mark_body(title, text)
    if own is None:
        body = f"{body.rstrip()}\n\n{updated}".lstrip()
    else:
        kept = "" if _digest(own["text"]) == own["digest"] else f"{own['text'].strip()}\n\n"
        body = f"{body[: own.start()]}{kept}{updated}{body[own.end() :]}"
    if len(body) > LONGEST_BODY:
        return pull.title, pull.body
    is_ours = own is not None and _digest(pull.title) == own["title"]
    return (title if is_ours else pull.title), body


def _digest(text: str) -> str:
    """GitHub keeps neither blanks at the ends nor the kind of line breaks."""
    return hashlib.sha256(text.replace("\r\n", "\n").strip().encode()).hexdigest()[:16]
