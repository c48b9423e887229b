"""Which receipts of a run folder GitHub itself stands behind: the folder may be forged, and what they name goes into
our own comment and into outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.boundary.comment import find_own_comment, marker_word
from stepflow.domain.effect import EffectKind
from stepflow.errors import StepflowError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepflow.boundary.github_api import GitHub
    from stepflow.domain.effect import Receipt
    from stepflow.domain.run import FollowUp


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """The run that the receipts are of."""

    run_id: str
    agent: str
    issue: int | None
    follow_up: FollowUp | None


def confirm_receipts(github: GitHub, receipts: Sequence[Receipt], run: RunIdentity) -> tuple[Receipt, ...]:
    """Those that name nothing, and those whose names GitHub gives too; what it does not answer counts as no. Without
    its word an effect is written again, which changes nothing where it is through."""
    named = {receipt.kind: receipt for receipt in receipts}
    pushed, opened = named.get(EffectKind.PUSH_BRANCH), named.get(EffectKind.OPEN_PULL_REQUEST)
    followed = run.follow_up.url if run.follow_up else ""
    confirmed = [receipt for receipt in receipts if _names_nothing(receipt, followed)]
    number = run.follow_up.pull_request if run.follow_up else opened.number if opened else None
    url = followed or (opened.url if opened else "")
    if pushed and number and _is_own_push(github, pushed, number, url):
        confirmed += [pushed, *([opened] if opened else [])]
    if (commented := named.get(EffectKind.POST_COMMENT)) and _is_own_comment(github, commented, run):
        confirmed.append(commented)
    return tuple(receipt for receipt in receipts if receipt in confirmed)


#: Their receipts lead somewhere, or are none of ours.
_WITH_NAMES = frozenset({EffectKind.PUSH_BRANCH, EffectKind.OPEN_PULL_REQUEST, EffectKind.POST_COMMENT})


def _names_nothing(receipt: Receipt, followed: str) -> bool:
    """Whether a receipt leads nowhere but to the pull request that is followed up."""
    names = receipt.number, receipt.branch, receipt.commit
    return receipt.kind not in _WITH_NAMES and not any(names) and receipt.url in ("", followed)


def _is_own_push(github: GitHub, pushed: Receipt, number: int, url: str) -> bool:
    """Whether our account opened this pull request from the branch that was pushed, and it has the commit."""
    try:
        pull = github.pull_request(number)
        return (
            (pull.head, pull.url) == (pushed.branch, url)
            and pushed.url == f"{url.rpartition('/pull/')[0]}/tree/{pushed.branch}"
            and pull.author_id == github.viewer().id
            and (
                pull.head_commit == pushed.commit
                or any(commit.oid == pushed.commit for commit in github.pull_request_commits(number))
            )
        )
    except StepflowError:
        return False


def _is_own_comment(github: GitHub, commented: Receipt, run: RunIdentity) -> bool:
    """Whether that is where our account's comment of this run is."""
    if run.issue is None:
        return False
    try:
        comments = github.comments(run.issue)
        own = find_own_comment(comments, github.viewer(), agent=run.agent, issue=run.issue)
    except StepflowError:
        return False
    address = next((comment.url for comment in comments if own and comment.id == own.id), "")
    return own is not None and own.marker.run == marker_word(run.run_id) and address == commented.url
