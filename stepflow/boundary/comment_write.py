"""Writes the one comment, and finds it again when the answer was lost.

Takes: the text with its marker, our earlier comment if there is one. Gives: the comment as it now is.
May touch: what the writer touches (boundary.md "Plan, then apply").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.boundary.comment import find_own_comment

if TYPE_CHECKING:
    from stepflow.boundary.comment import Marker, OwnComment
    from stepflow.boundary.patience import Patience
    from stepflow.boundary.writer import Comment, Writer


def write_comment(
    writer: Writer, patience: Patience, issue: int, body: str, *, own: OwnComment | None, marker: Marker
) -> Comment:
    """Post the comment, or update our own; never a second one."""

    def find() -> Comment | None:
        """What this run has posted meanwhile."""
        comments = writer.comments(issue)
        found = find_own_comment(comments, writer.viewer(), agent=marker.agent, issue=issue)
        posted = found is not None and found.marker.run == marker.run
        return next((comment for comment in comments if posted and found and comment.id == found.id), None)

    if own is None:
        return patience.write(lambda: writer.create_comment(issue, body), find=find)
    # The same text a second time changes nothing.
    return patience.repeat(lambda: writer.update_comment(own.id, body))
