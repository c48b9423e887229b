"""What the model is told about the issue.

Takes: the issue, and what was said about it. Gives: the context text of every iteration (prompts.md §7).
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepflow.domain.run import Issue


def issue_text(issue: Issue | None, discussion: str = "", *, otherwise: str = "") -> str:
    """Number, title, body and discussion; without an issue what else was given. The prompt room frames it as data."""
    if issue is None:
        return otherwise.strip()
    heading = f"Issue #{issue.number}{': ' + issue.title if issue.title else ''}"
    by = f"\nWritten by {issue.author}" if issue.author else ""
    return f"{heading}{by}\n\n{issue.body}\n\n{discussion}".strip()
