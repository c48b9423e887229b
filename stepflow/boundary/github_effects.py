"""Writes single effects: each looks first, so that doing it again changes nothing.

Takes: an effect, a `Writer`, what the run is about, how long to wait. Gives: a receipt.
May touch: what the writer touches (boundary.md "Plan, then apply").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.boundary.writer import WriteFailed
from stepflow.domain.effect import EffectKind, EffectStatus, Receipt

if TYPE_CHECKING:
    from stepflow.boundary.patience import Patience
    from stepflow.boundary.writer import PullRequest, Release, Writer
    from stepflow.domain.effect import AddLabels, CreateRelease, OpenPullRequest, RemoveLabels

FORBIDDEN = 403
NOT_FOUND = 404
UNPROCESSABLE = 422


def open_pull_request(
    effect: OpenPullRequest, writer: Writer, patience: Patience, *, branch: str, base: str
) -> Receipt:
    """Open the pull request, or update ours that is open; somebody else's is left alone."""
    if existing := _open_one(writer, branch, base):
        return _update_pull_request(effect, existing, writer, patience)
    try:
        created = patience.write(
            lambda: _create_pull_request(effect, writer, branch, base), find=lambda: _own_one(writer, branch, base)
        )
    except WriteFailed as exc:
        if exc.status == UNPROCESSABLE and (existing := _open_one(writer, branch, base)):
            # Somebody opened it after we looked.
            return _update_pull_request(effect, existing, writer, patience)
        if exc.status != FORBIDDEN:
            raise
        return Receipt(kind=EffectKind.OPEN_PULL_REQUEST, status=EffectStatus.FORBIDDEN, detail=exc.message)
    return _pull_request_receipt(EffectStatus.APPLIED, f"opened #{created.number}", created)


def add_labels(effect: AddLabels, writer: Writer, patience: Patience, issue: int) -> Receipt:
    """Put on the labels that are missing."""

    def missing() -> tuple[str, ...]:
        present = _labels_of(writer, issue)
        return tuple(label for label in effect.labels if label.casefold() not in present)

    wanted = missing()
    if not wanted:
        return Receipt(
            kind=effect.kind, status=EffectStatus.SKIPPED, detail=f"already there: {', '.join(effect.labels)}"
        )
    patience.settle(lambda: writer.add_labels(issue, wanted), done=lambda: not missing())
    return Receipt(kind=effect.kind, status=EffectStatus.APPLIED, detail=", ".join(wanted))


def remove_labels(effect: RemoveLabels, writer: Writer, patience: Patience, issue: int) -> Receipt:
    """Take off the labels that are there."""
    present = _labels_of(writer, issue)
    found = tuple(label for label in effect.labels if label.casefold() in present)
    for label in found:
        _remove_label(writer, patience, issue, label)
    if not found:
        return Receipt(kind=effect.kind, status=EffectStatus.SKIPPED, detail=f"not there: {', '.join(effect.labels)}")
    return Receipt(kind=effect.kind, status=EffectStatus.APPLIED, detail=", ".join(found))


def create_release(effect: CreateRelease, writer: Writer, patience: Patience, *, target: str) -> Receipt:
    """Create the release, unless its tag has one."""

    def existing() -> Release | None:
        return next((release for release in writer.releases() if release.tag == effect.tag), None)

    def create() -> Release:
        return writer.create_release(
            tag=effect.tag, target=target, name=effect.name, body=effect.body, draft=effect.draft
        )

    if found := existing():
        detail = f"{effect.tag} already has a release"
        return Receipt(kind=effect.kind, status=EffectStatus.SKIPPED, detail=detail, url=found.url)
    created = patience.write(create, find=existing)
    return Receipt(kind=effect.kind, status=EffectStatus.APPLIED, detail=effect.tag, url=created.url)


def close_issue(writer: Writer, patience: Patience, issue: int) -> Receipt:
    """Close the issue, unless it is."""

    def closed() -> bool:
        return writer.issue(issue).state == "closed"

    if closed():
        return Receipt(kind=EffectKind.CLOSE_ISSUE, status=EffectStatus.SKIPPED, detail=f"#{issue} was already closed")
    patience.settle(lambda: writer.close_issue(issue), done=closed)
    return Receipt(kind=EffectKind.CLOSE_ISSUE, status=EffectStatus.APPLIED, detail=f"#{issue}")


def _open_one(writer: Writer, branch: str, base: str) -> PullRequest | None:
    return next((pull for pull in writer.open_pull_requests(branch) if pull.base == base), None)


def _own_one(writer: Writer, branch: str, base: str) -> PullRequest | None:
    found = _open_one(writer, branch, base)
    return found if found and found.author_id == writer.viewer().id else None


def _update_pull_request(effect: OpenPullRequest, existing: PullRequest, writer: Writer, patience: Patience) -> Receipt:
    if existing.author_id != writer.viewer().id:
        return _pull_request_receipt(EffectStatus.SKIPPED, f"#{existing.number} is open already, by others", existing)
    patience.repeat(lambda: writer.update_pull_request(existing.number, title=effect.title, body=effect.body))
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


def _labels_of(writer: Writer, issue: int) -> frozenset[str]:
    return frozenset(label.casefold() for label in writer.issue(issue).labels)


def _remove_label(writer: Writer, patience: Patience, issue: int, label: str) -> None:
    def gone() -> bool:
        return label.casefold() not in _labels_of(writer, issue)

    try:
        patience.settle(lambda: writer.remove_label(issue, label), done=gone)
    except WriteFailed as exc:
        # 404 also means that the token may not see it.
        if exc.status != NOT_FOUND or not gone():
            raise


def _pull_request_receipt(status: EffectStatus, detail: str, pull_request: PullRequest) -> Receipt:
    return Receipt(
        kind=EffectKind.OPEN_PULL_REQUEST,
        status=status,
        detail=detail,
        url=pull_request.url,
        number=pull_request.number,
    )
