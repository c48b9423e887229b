"""Title and body of a pull request that a run opens: the run's own part of the body stands between marks that the page
does not show, and what people write beside it, or over it, stays when the pull request is updated."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepflow.boundary.github_types import PullRequest

#: GitHub takes 65,536 characters.
LONGEST_BODY = 65_000
_OWN = re.compile(
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
    own, updated = _OWN.search(body), mark_body(title, text)
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
