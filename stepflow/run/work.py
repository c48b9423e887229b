"""What the run did to the checkout.

Takes: a toolbox in which nothing runs any more. Gives: `Work`, its commits taken out of the checkout.
May touch: the bundle in the run folder; the checkout through the toolbox.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from stepflow.boundary.bundle import read_bundle
from stepflow.boundary.settings import MOST_BUNDLE_BYTES
from stepflow.domain.event import Noted, WorkCollected
from stepflow.domain.guard import Closing
from stepflow.domain.pack_search import UnsearchablePack, pack_holds_secret, secrets_to_find
from stepflow.errors import BoundaryError

if TYPE_CHECKING:
    from pathlib import Path

    from stepflow.domain.run import RunFacts
    from stepflow.ports import Journal
    from stepflow.run.prepare import Prepared
    from stepflow.sandbox.box import Toolbox


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
            # Not in the run folder, which may be uploaded whatever happens, before it is known what the commits hold.
            with tempfile.TemporaryFile(buffering=0) as file:
                bundle = toolbox.stream_bundle(
                    facts.base_commit, file.write, max_bytes=MOST_BUNDLE_BYTES, commit=closing.commit
                )
                file.seek(0)
                problem = _unkeepable(file, prepared) if bundle else ""
                if bundle and not problem:
                    file.seek(0)
                    with path.open("wb") as kept:
                        shutil.copyfileobj(file, kept)
        except BoundaryError as error:
            # How the flow ended stands; whether that matters is for the boundary to say.
            problem = str(error)
        except OSError as error:
            problem = f"The commits cannot be kept in {path}: {error.strerror}."
        if problem:
            bundle = None
            path.unlink(missing_ok=True)
            journal.append(Noted(level="warning", message=f"[Work] {problem}"))
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


def _unkeepable(file: IO[bytes], prepared: Prepared) -> str:
    """Why the commits of a bundle may be neither kept nor pushed; empty when they may."""
    try:
        read_bundle(file)
        if not pack_holds_secret(file, secrets_to_find(prepared.request.secrets())):
            return ""
    except (UnsearchablePack, BoundaryError) as exc:
        return f"The commits cannot be searched for secrets: {exc}."
    return (
        "A commit holds a secret of this run, in a file, a name or a message, so the commits are neither kept nor "
        "pushed. What a later commit removes counts too."
    )
