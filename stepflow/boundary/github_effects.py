"""Writes single effects: each reads first, so that doing it again changes nothing.

Takes: an effect, a `Writer`, what the run is about. Gives: a receipt.
May touch: what the writer touches (boundary.md "Plan, then apply").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.boundary.writer import WriteFailed
from stepflow.domain.effect import EffectKind, EffectStatus, Receipt

if TYPE_CHECKING:
    from stepflow.boundary.writer import PullRequest, Writer
    from stepflow.domain.effect import AddLabels, CreateRelease, OpenPullRequest, RemoveLabels

FORBIDDEN = 403
NOT_FOUND = 404
UNPROCESSABLE = 422


def open_pull_request(effect: OpenPullRequest, writer: Writer, *, branch: str, base: str) -> Receipt:
    """Open the pull request, or update ours that is open; somebody else's is left alone."""
    for existing in writer.open_pull_requests(branch):
        if existing.base == base:
            return _update_pull_request(effect, existing, writer)
    try:
        created = _create_pull_request(effect, writer, branch, base)
    except WriteFailed as exc:
        if exc.status != FORBIDDEN:
            raise
        return Receipt(kind=EffectKind.OPEN_PULL_REQUEST, status=EffectStatus.FORBIDDEN, detail=exc.message)
    return _pull_request_receipt(EffectStatus.APPLIED, f"opened #{created.number}", created)


def add_labels(effect: AddLabels, writer: Writer, issue: int) -> Receipt:
    """Put on the labels that are missing."""
    present = {label.casefold() for label in writer.issue(issue).labels}
    missing = tuple(label for label in effect.labels if label.casefold() not in present)
    if not missing:
        return Receipt(
            kind=effect.kind, status=EffectStatus.SKIPPED, detail=f"already there: {', '.join(effect.labels)}"
        )
    writer.add_labels(issue, missing)
    return Receipt(kind=effect.kind, status=EffectStatus.APPLIED, detail=", ".join(missing))


def remove_labels(effect: RemoveLabels, writer: Writer, issue: int) -> Receipt:
    """Take off the labels that are there."""
    present = {label.casefold() for label in writer.issue(issue).labels}
    found = tuple(label for label in effect.labels if label.casefold() in present)
    for label in found:
        _remove_label(writer, issue, label)
    if not found:
        return Receipt(kind=effect.kind, status=EffectStatus.SKIPPED, detail=f"not there: {', '.join(effect.labels)}")
    return Receipt(kind=effect.kind, status=EffectStatus.APPLIED, detail=", ".join(found))


def create_release(effect: CreateRelease, writer: Writer, *, target: str) -> Receipt:
    """Create the release, unless its tag has one."""
    for existing in writer.releases():
        if existing.tag == effect.tag:
            detail = f"{effect.tag} already has a release"
            return Receipt(kind=effect.kind, status=EffectStatus.SKIPPED, detail=detail, url=existing.url)
    created = writer.create_release(
        tag=effect.tag, target=target, name=effect.name, body=effect.body, draft=effect.draft
    )
    return Receipt(kind=effect.kind, status=EffectStatus.APPLIED, detail=effect.tag, url=created.url)


def close_issue(writer: Writer, issue: int) -> Receipt:
    """Close the issue, unless it is."""
    if writer.issue(issue).state == "closed":
        return Receipt(kind=EffectKind.CLOSE_ISSUE, status=EffectStatus.SKIPPED, detail=f"#{issue} was already closed")
    writer.close_issue(issue)
    return Receipt(kind=EffectKind.CLOSE_ISSUE, status=EffectStatus.APPLIED, detail=f"#{issue}")


def _update_pull_request(effect: OpenPullRequest, existing: PullRequest, writer: Writer) -> Receipt:
    if existing.author_id != writer.viewer().id:
        return _pull_request_receipt(EffectStatus.SKIPPED, f"#{existing.number} is open already, by others", existing)
    writer.update_pull_request(existing.number, title=effect.title, body=effect.body)
    return _pull_request_receipt(EffectStatus.APPLIED, f"updated #{existing.number}", existing)


def _create_pull_request(effect: OpenPullRequest, writer: Writer, branch: str, base: str) -> PullRequest:
    """Once more without draft where the plan of the account has no drafts."""
    try:
        return writer.create_pull_request(
            branch=branch, base=base, title=effect.title, body=effect.body, draft=effect.draft
        )
    except WriteFailed as exc:
        if not (effect.draft and exc.status == UNPROCESSABLE and "draft" in exc.message.lower()):
            raise
    return writer.create_pull_request(branch=branch, base=base, title=effect.title, body=effect.body, draft=False)


def _pull_request_receipt(status: EffectStatus, detail: str, pull_request: PullRequest) -> Receipt:
    return Receipt(
        kind=EffectKind.OPEN_PULL_REQUEST,
        status=status,
        detail=detail,
        url=pull_request.url,
        number=pull_request.number,
    )


def _remove_label(writer: Writer, issue: int, label: str) -> None:
    try:
        writer.remove_label(issue, label)
    except WriteFailed as exc:
        if exc.status != NOT_FOUND:
            raise
