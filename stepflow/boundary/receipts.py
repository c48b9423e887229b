"""Receipts of an earlier part of a run, which count only if GitHub confirms them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stepflow.boundary.github_types import Comment
from stepflow.boundary.own_texts import find_own_comment, marker_word
from stepflow.domain.effect import EffectKind, Receipt
from stepflow.domain.run import FollowUp
from stepflow.errors import StepflowError

if TYPE_CHECKING:
    from stepflow.boundary.github_api import GitHub


def confirm_receipts(
    github: GitHub, receipts: Sequence[Receipt], *, run: str, agent: str, issue: int | None, follow_up: FollowUp | None
) -> tuple[Receipt, ...]:
    """Return the receipts of this run that GitHub confirms. A run folder may be forged, and the names in its receipts
    go into our comment and into outputs. Receipts without names need no confirmation; without an answer from GitHub,
    the others do not count. An unconfirmed effect is written again, which changes nothing if it was complete."""
    named = {receipt.kind: receipt for receipt in receipts}
    pushed, opened = named.get(EffectKind.PUSH_BRANCH), named.get(EffectKind.OPEN_PULL_REQUEST)
    followed = follow_up.url if follow_up else ""
    confirmed = [receipt for receipt in receipts if _names_nothing(receipt, followed)]
    number = follow_up.pull_request if follow_up else opened.number if opened else None
    url = followed or (opened.url if opened else "")
    if pushed and number and _is_own_push(github, pushed, number, url):
        confirmed += [pushed, *([opened] if opened else [])]
    for kind in EffectKind.POST_COMMENT, EffectKind.SUBMIT_REVIEW:
        text = named.get(kind)
        if text and issue and _is_own_text(github, text, run=run, agent=agent, issue=issue):
            confirmed.append(text)
    return tuple(receipt for receipt in receipts if receipt in confirmed)


def _names_nothing(receipt: Receipt, followed: str) -> bool:
    """Whether a receipt leads nowhere but to the pull request that is followed up."""
    texts = EffectKind.POST_COMMENT, EffectKind.SUBMIT_REVIEW
    with_names = (EffectKind.PUSH_BRANCH, EffectKind.OPEN_PULL_REQUEST, *texts)
    names = receipt.number, receipt.branch, receipt.commit
    return receipt.kind not in with_names and not any(names) and receipt.url in ("", followed)


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


def _is_own_text(github: GitHub, receipt: Receipt, *, run: str, agent: str, issue: int) -> bool:
    """Whether the receipt leads to our account's comment or review of this run."""
    try:
        if receipt.kind is EffectKind.POST_COMMENT:
            texts: tuple[Comment, ...] = github.comments(issue)
        else:
            # A pull request keeps the reviews of earlier runs, and the issue only the newest comment.
            texts = tuple(each for each in github.reviews(issue) if each.url == receipt.url)
        own = find_own_comment(texts, github.viewer(), agent=agent, issue=issue)
    except StepflowError:
        return False
    return own is not None and own.marker.run == marker_word(run) and own.comment.url == receipt.url
