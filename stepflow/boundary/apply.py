"""Applies a plan to GitHub, effect by effect, with a receipt after each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from stepflow.boundary.bundle_push import BundlePush
from stepflow.boundary.effect_writer import ApplyResult, EffectWriter
from stepflow.boundary.settings import Plan, check_actor
from stepflow.domain.effect import EffectStatus, Receipt, text_of
from stepflow.domain.words import Outcome
from stepflow.errors import BoundaryError, Refused

if TYPE_CHECKING:
    from stepflow.boundary.github_writer import GitHubWriter


def apply_effects(
    plan: Plan,
    *,
    writer: GitHubWriter,
    pusher: BundlePush | None,
    record: Callable[[Receipt], None],
    done: Sequence[Receipt] = (),
) -> ApplyResult:
    """Write the planned effects that are not `done` yet, up to the first failure. `record` is called after each effect
    and may raise: its effect is then complete, and the next one has not begun."""
    effects = EffectWriter(plan, writer, pusher, done)
    if plan.refusal:
        return effects.result(Outcome.REFUSED, plan.refusal)
    if not plan.effects and not plan.reads_back:
        return effects.result(Outcome.COMPLETED)
    doing = "Nothing was written, because GitHub could not be asked who may write"
    try:
        effects.follow_repository()
        if refusal := check_actor(writer, plan.settings):
            return effects.result(Outcome.REFUSED, refusal)
        was_closed = False
        if plan.reads_back and plan.expects == "open":
            # An issue that somebody closed before we wrote is not our failure, and a deleted one must not keep the
            # commits from their branch.
            with suppress(BoundaryError):
                was_closed = effects.is_closed()
        for effect in plan.effects:
            if not effects.is_due(effect):
                continue
            failed = None
            try:
                receipt = effects.write(effect)
            except BoundaryError as exc:
                failed = exc
                status, text = EffectStatus.FAILED, text_of(effect)
                receipt = Receipt(kind=effect.kind, status=status, detail=str(exc), unwritten=text)
            effects.receipts[effect.kind] = receipt
            record(receipt)
            if failed:
                refused = isinstance(failed, Refused)
                outcome = Outcome.REFUSED if refused else Outcome.BOUNDARY_FAILED
                return effects.result(outcome, str(failed) if refused else f"`{effect.kind}` failed: {failed}")
        doing = "All effects were written, but the issue could not be read back"
        return effects.read_back(None if was_closed else plan.expects)
    except BoundaryError as exc:
        return effects.result(Outcome.BOUNDARY_FAILED, f"{doing}: {exc}")
