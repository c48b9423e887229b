"""The one comment that a run writes, found again by its author and a hidden marker.

Takes: comments, who we are, the run. Gives: our own earlier comment, and bodies with a marker.
May touch: nothing (boundary.md "Plan, then apply", security.md 23).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepflow.boundary.writer import Account, Comment

NO_COMMIT = "none"
_MARKER = re.compile(
    r"<!-- stepflow run=(?P<run>\S+) agent=(?P<agent>\S+) issue=(?P<issue>\d+) "
    r"commit=(?P<commit>[0-9a-f]{40,64}|none) -->"
)


@dataclass(frozen=True, kw_only=True)
class Marker:
    """What a comment of ours says about itself. `commit` is the tip that we pushed last, `none` if we never did."""

    run: str
    agent: str
    issue: int
    commit: str = NO_COMMIT

    def __str__(self) -> str:
        return f"<!-- stepflow run={self.run} agent={self.agent} issue={self.issue} commit={self.commit} -->"


@dataclass(frozen=True, kw_only=True)
class OwnComment:
    """A comment of ours with its last marker."""

    id: int
    body: str
    marker: Marker

    @property
    def pushed_commit(self) -> str | None:
        """The commit that we pushed for this agent and issue."""
        return None if self.marker.commit == NO_COMMIT else self.marker.commit


def find_own_comment(comments: tuple[Comment, ...], viewer: Account, *, agent: str, issue: int) -> OwnComment | None:
    """Our newest comment about this agent and issue. Others can copy a marker, but not our author id."""
    for comment in reversed(comments):
        marker = read_marker(comment.body) if comment.author_id == viewer.id else None
        if marker and (marker.agent, marker.issue) == (marker_word(agent), issue):
            return OwnComment(id=comment.id, body=comment.body, marker=marker)
    return None


def read_marker(body: str) -> Marker | None:
    """The last marker in a text."""
    found = list(_MARKER.finditer(body))
    if not found:
        return None
    last = found[-1]
    return Marker(run=last["run"], agent=last["agent"], issue=int(last["issue"]), commit=last["commit"])


def without_marker(body: str) -> str:
    """A body without its markers."""
    return _MARKER.sub("", body).rstrip()


def marked(text: str, marker: Marker) -> str:
    """A comment's full body."""
    return f"{text.rstrip()}\n\n{marker}"


def marker_word(text: str) -> str:
    """A name as one word of a marker."""
    return re.sub(r"[^\w.-]+|--+", "-", text, flags=re.ASCII)
