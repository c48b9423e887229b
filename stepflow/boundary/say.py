"""What the engine itself says below the text of the one comment.

Takes: the receipts so far, the issue now. Gives: Markdown lines.
May touch: nothing (boundary.md "Plan, then apply" and "Before anything is written").
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from stepflow.domain.effect import EffectStatus

if TYPE_CHECKING:
    from stepflow.boundary.writer import Account, IssueNow
    from stepflow.domain.effect import Receipt
    from stepflow.domain.run import Issue

#: The account behind a job's own token; what it does starts no workflow.
JOB_ACCOUNT = "github-actions[bot]"


def pull_request_lines(receipt: Receipt, viewer: Account) -> tuple[str, ...]:
    """Where the pull request is, or why there is none."""
    if receipt.status is EffectStatus.FORBIDDEN:
        return (forbidden_line(receipt),)
    line = f"Pull request: #{receipt.number}"
    if viewer.login != JOB_ACCOUNT or receipt.status is not EffectStatus.APPLIED:
        return (line,)
    return (
        line,
        "It was opened with the job's own token, so no workflow starts on it by itself: close and reopen it to start "
        "them, or give the action the token of a GitHub App as `github-token`.",
    )


def forbidden_line(receipt: Receipt) -> str:
    """The setting to change, and the way round it."""
    return (
        "**GitHub did not allow this token to open a pull request.** In the repository's settings under *Actions → "
        "General → Workflow permissions* turn on *Allow GitHub Actions to create and approve pull requests*, and give "
        f"the job `pull-requests: write`. The commits are pushed: [open the pull request by hand]({receipt.url})."
    )


def branch_lines(planned: str, pushed: str) -> tuple[str, ...]:
    """Where the commits are, when not where they were meant to be."""
    if planned == pushed:
        return ()
    return (f"Branch `{planned}` holds somebody else's commits, so those of this run are on `{pushed}`.",)


def edited_lines(used: Issue, now: IssueNow) -> tuple[str, ...]:
    """That the issue is not the one that the run read."""
    if (_plain(used.title), _plain(used.body)) == (_plain(now.title), _plain(now.body)):
        return ()
    return ("The issue has been edited since this run was triggered; the run used the text as it was then.",)


def compare_url(repository_url: str, base: str, branch: str) -> str:
    """GitHub's page that offers to open the pull request."""
    return f"{repository_url}/compare/{quote(base)}...{quote(branch)}?expand=1"


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").strip()
