"""What the run did to the checkout.

Takes: a toolbox in which nothing runs any more. Gives: `Work`, its commits taken out of the checkout.
May touch: the bundle in the run folder; the checkout through the toolbox.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.domain.event import WorkCollected
from stepflow.errors import BoundaryError

if TYPE_CHECKING:
    from pathlib import Path

    from stepflow.domain.run import RunFacts
    from stepflow.ports import Journal
    from stepflow.run.prepare import Prepared
    from stepflow.toolbox import Toolbox

#: A larger bundle is cut off; the boundary refuses changes above 8 MiB anyway (boundary.md "Commits").
MAX_BUNDLE = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Work:
    """What the run did to the checkout: commits in a bundle with their tree, the tree that the validators have seen,
    and files that were left uncommitted; or the problem because of which they cannot be taken out of it."""

    problem: str = ""
    commits: int = 0
    tree: str = ""
    seen: str = ""
    uncommitted: tuple[str, ...] = ()
    bundle: Path | None = None


def collect_work(prepared: Prepared, facts: RunFacts, toolbox: Toolbox, journal: Journal, *, seen: str) -> Work:
    """Take the commits out of the checkout, now that nothing in it can change them any more. `seen` is the tree that
    the validators saw, empty without any: a validator may have committed something since."""
    toolbox.end_step()
    tree = toolbox.tree()
    path = prepared.request.folder / "work.bundle"
    bundle = None
    problem = ""
    if facts.base_commit and tree.commit != facts.base_commit:
        try:
            with path.open("wb") as file:
                bundle = toolbox.stream_bundle(facts.base_commit, file.write, max_bytes=MAX_BUNDLE)
        except BoundaryError as error:
            # How the flow ended stands; whether that matters is for the boundary to say.
            problem = str(error)
        except OSError as error:
            problem = f"The commits cannot be kept in {path}: {error.strerror}."
    work = Work(
        problem=problem,
        commits=bundle.commits if bundle else 0,
        tree=bundle.tree if bundle else "",
        seen=seen or (bundle.tree if bundle else ""),
        uncommitted=tree.uncommitted,
        bundle=path if bundle else None,
    )
    journal.append(
        WorkCollected(
            head_commit=tree.commit,
            commits=work.commits,
            uncommitted=list(work.uncommitted),
            as_validated=work.tree in ("", work.seen),
        )
    )
    return work
