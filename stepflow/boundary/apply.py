"""Applies a plan to GitHub, effect by effect, and records a receipt after each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.boundary.effects import EffectWriter
from stepflow.boundary.retry_policy import RetryPolicy
from stepflow.boundary.settings import check_actor
from stepflow.boundary.writer import Refused
from stepflow.domain.effect import Effect, EffectKind, EffectStatus, Receipt
from stepflow.domain.words import Outcome
from stepflow.errors import BoundaryError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepflow.boundary.plan import Plan
    from stepflow.boundary.writer import Pusher, Writer
    from stepflow.domain.figures import Spent

#: What is left out after a forbidden pull request: nothing may look finished.
_NEEDS_PULL_REQUEST = (EffectKind.CREATE_RELEASE, EffectKind.CLOSE_ISSUE)
_SETTLED = (EffectStatus.APPLIED, EffectStatus.SKIPPED)


@dataclass(frozen=True, kw_only=True)
class ApplyResult:
    """What became of a plan. `outcome` is completed, boundary_failed or refused; `receipts` has one per planned
    effect, with status `planned` where it was not reached; `issue_state` is what the read-back found; `spent` is what
    all runs on the issue have cost, None when nobody looked."""

    outcome: Outcome
    reason: str = ""
    receipts: tuple[Receipt, ...] = ()
    issue_state: str | None = None
    spent: Spent | None = None

    def receipt(self, kind: EffectKind) -> Receipt | None:
        """The receipt of an effect that was written."""
        written = (receipt for receipt in self.receipts if receipt.kind is kind and receipt.status in _SETTLED)
        return next(written, None)

    @property
    def branch(self) -> str:
        """The branch that was pushed, or empty."""
        pushed = self.receipt(EffectKind.PUSH_BRANCH)
        return pushed.detail if pushed else ""


def apply_effects(
    plan: Plan,
    *,
    writer: Writer,
    pusher: Pusher | None,
    record: Callable[[Receipt], None],
    done: Sequence[Receipt] = (),
    retry_policy: RetryPolicy | None = None,
) -> ApplyResult:
    """Write what is planned and not yet `done`. Stops at the first failure; `record` is called after each effect.

    `record` may raise: the effect of that receipt is through, and none has begun after it. Without `retry_policy`
    nothing is tried twice.
    """
    application = _Application(plan, writer, pusher, done, retry_policy or RetryPolicy())
    if plan.refusal:
        return application.result(Outcome.REFUSED, plan.refusal)
    if not plan.effects and not plan.reads_back:
        return application.result(Outcome.COMPLETED)
    doing = "Nothing was written, because it could not be asked who may write"
    try:
        if refusal := check_actor(writer, plan.settings):
            return application.result(Outcome.REFUSED, refusal)
        application.look_before()
        for effect in plan.effects:
            if (outcome := application.apply(effect, record)) is not Outcome.COMPLETED:
                return application.result(outcome, application.reason)
        doing = "All effects were written, but the issue could not be read back"
        return application.read_back()
    except BoundaryError as exc:
        return application.result(Outcome.BOUNDARY_FAILED, f"{doing}: {exc}")


class _Application:
    """One plan being written."""

    def __init__(
        self, plan: Plan, writer: Writer, pusher: Pusher | None, done: Sequence[Receipt], retry_policy: RetryPolicy
    ) -> None:
        self._plan, self._writer = plan, writer
        self._receipts = {receipt.kind: receipt for receipt in done if receipt.status in _SETTLED}
        if any(receipt.status is EffectStatus.FORBIDDEN for receipt in done):
            self._receipts.pop(EffectKind.POST_COMMENT, None)
        self._effects = EffectWriter(plan, writer, pusher, retry_policy, self._receipts)
        self._was_closed = False
        self.reason = ""

    def look_before(self) -> None:
        """An issue that somebody closed before we wrote is no failure of ours."""
        if self._plan.reads_back and self._plan.expects == "open":
            self._was_closed = self._writer.issue(self._effects.issue).state == "closed"

    def apply(self, effect: Effect, record: Callable[[Receipt], None]) -> Outcome:
        """Write one effect, unless it was written; `reason` says why not."""
        if effect.kind in self._receipts or (self._forbidden and effect.kind in _NEEDS_PULL_REQUEST):
            return Outcome.COMPLETED
        outcome = Outcome.COMPLETED
        try:
            receipt = self._effects.write(effect)
        except BoundaryError as exc:
            receipt = Receipt(kind=effect.kind, status=EffectStatus.FAILED, detail=str(exc))
            refused = isinstance(exc, Refused)
            outcome = Outcome.REFUSED if refused else Outcome.BOUNDARY_FAILED
            self.reason = str(exc) if refused else f"`{effect.kind}` failed: {exc}"
        self._receipts[effect.kind] = receipt
        record(receipt)
        return outcome

    def read_back(self) -> ApplyResult:
        """The end of a plan that was written: is the issue as planned?"""
        if self._forbidden:
            return self.result(Outcome.BOUNDARY_FAILED, _FORBIDDEN_REASON)
        if not self._plan.reads_back:
            return self.result(Outcome.COMPLETED)
        state = self._writer.issue(self._effects.issue).state
        expected = None if self._was_closed else self._plan.expects
        if expected and state != expected:
            reason = f"Issue #{self._effects.issue} should be {expected} now, but GitHub says it is {state}."
            return self.result(Outcome.BOUNDARY_FAILED, reason, state)
        return self.result(Outcome.COMPLETED, issue_state=state)

    def result(self, outcome: Outcome, reason: str = "", issue_state: str | None = None) -> ApplyResult:
        """The result, with a receipt for every planned effect."""
        planned = {effect.kind: Receipt(kind=effect.kind, status=EffectStatus.PLANNED) for effect in self._plan.effects}
        receipts = tuple(self._receipts.get(kind, receipt) for kind, receipt in planned.items())
        spent = self._effects.spent
        return ApplyResult(outcome=outcome, reason=reason, receipts=receipts, issue_state=issue_state, spent=spent)

    @property
    def _forbidden(self) -> bool:
        receipt = self._receipts.get(EffectKind.OPEN_PULL_REQUEST)
        return receipt is not None and receipt.status is EffectStatus.FORBIDDEN


_FORBIDDEN_REASON = (
    "GitHub did not allow this token to open a pull request; the commits are on their branch. Turn on 'Allow GitHub "
    "Actions to create and approve pull requests' (Settings → Actions → General) and give the job "
    "`pull-requests: write`."
)
