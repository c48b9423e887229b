"""What the run did to the checkout.

Takes: a toolbox in which nothing runs any more. Gives: `Work`, its commits taken out of the checkout.
May touch: the bundle in the run folder; the checkout through the toolbox.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.domain.event import WorkCollected
from stepflow.domain.guard import Closing
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
    """What the run did to the checkout: commits in a bundle with their tree, whether they are what the validators have
    seen, files that were left uncommitted, and files that the validators made; or the problem because of which the
    commits cannot be taken out of it."""

    problem: str = ""
    commits: int = 0
    tree: str = ""
    is_checked: bool = False
    uncommitted: tuple[str, ...] = ()
    created_by_checks: tuple[str, ...] = ()
    bundle: Path | None = None


def collect_work(
    prepared: Prepared, facts: RunFacts, toolbox: Toolbox, journal: Journal, *, closing: Closing | None
) -> Work:
    """Take the commits out of the checkout, now that nothing in it can change them any more: up to the commit of the
    `closing` that the validators saw, or without validators up to HEAD."""
    toolbox.end_step()
    if closing is None or not closing.commit:
        tree = toolbox.tree()
        closing, is_checked = Closing(commit=tree.commit, tree=tree.tree, untracked=tree.uncommitted), False
    else:
        is_checked = True
    path = prepared.request.folder / "work.bundle"
    bundle = None
    problem = ""
    if facts.base_commit and closing.commit != facts.base_commit:
        try:
            with path.open("wb") as file:
                bundle = toolbox.stream_bundle(
                    facts.base_commit, file.write, max_bytes=MAX_BUNDLE, commit=closing.commit
                )
        except BoundaryError as error:
            # How the flow ended stands; whether that matters is for the boundary to say.
            problem = str(error)
        except OSError as error:
            problem = f"The commits cannot be kept in {path}: {error.strerror}."
    work = Work(
        problem=problem,
        commits=bundle.commits if bundle else 0,
        tree=closing.tree if bundle else "",
        is_checked=is_checked,
        uncommitted=closing.untracked,
        created_by_checks=closing.created,
        bundle=path if bundle else None,
    )
    journal.append(
        WorkCollected(
            head_commit=closing.commit,
            commits=work.commits,
            uncommitted=list(work.uncommitted),
            created_by_checks=list(work.created_by_checks),
        )
    )
    return work
