"""Requests that keep a conversation in the service's cache while a tool or a validator runs for minutes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from stepflow.domain import event as events
from stepflow.domain.conversation import Message, ModelFault, ModelRequest, text_block
from stepflow.engine.context import CachedRequest, FlowContext, check_limits
from stepflow.ports import PromptCache

#: Seconds since the beginning of the last request that used the cache: when it expires, and when it is renewed.
LIFETIME, RENEWED_AFTER = 300.0, 240.0
#: Seconds that a renewal may take; it asks for no long answer.
LONGEST_RENEWAL = 30.0
#: The service requires a message; this one asks for nothing.
NO_MESSAGE = Message(role="user", content=(text_block("."),))


def keep_conversation(context: FlowContext, request: ModelRequest) -> AbstractContextManager[None]:
    """Renew the cache while the tools run that the model's last message calls; then the conversation continues."""
    known = context.cached.get(request.step_id)
    return _keep(context, known and replace(known, request=replace(request, messages=request.messages[:-1])))


def keep_opening(context: FlowContext, next_step: str | None) -> AbstractContextManager[None]:
    """Renew the cache while validators run, after which `next_step` may begin a new conversation; None if no step
    can. Another model's cache, or that of another effort, is of no use."""
    known = context.cached.get(next_step) if next_step else None
    if known:
        step = context.agent.steps[known.request.step_id]
        rung = context.current_rung(step)
        if (rung.model, rung.effort or step.effort) != (known.request.model, known.request.effort):
            known = None
    return _keep(context, known, next_step=next_step)


def _keep(
    context: FlowContext, cached: CachedRequest | None, *, next_step: str | None = None
) -> AbstractContextManager[None]:
    cache = context.ports.cache
    if cache is None or cached is None:
        return nullcontext()
    renewal = _Renewal(context=context, cache=cache, cached=cached, next_step=next_step)
    return cache.while_waiting(renewal.renew_if_due)


@dataclass(kw_only=True)
class _Renewal:
    """The renewals during one wait; there are no more once it `is_over`."""

    context: FlowContext
    cache: PromptCache
    cached: CachedRequest
    next_step: str | None
    number: int = 0
    is_over: bool = False

    def renew_if_due(self) -> None:
        """Renew the cache if it is due and if that is still cheaper than writing everything again."""
        context, now = self.context, self.context.ports.clock.now()
        age = now - self.cached.used_at
        if self.is_over or age < RENEWED_AFTER:
            return
        limit = check_limits(context.state, context.facts.limits, now, next_step=self.next_step)
        if age >= LIFETIME or limit is not None:
            self.is_over = True
            return
        self.number += 1
        answer = self.cache.renew(replace(self.cached.request, seconds=LONGEST_RENEWAL), self.number)
        if answer is None:
            self.is_over = True
            return
        context.record(
            events.CacheRenewed(
                step_id=self.cached.request.step_id,
                usage=answer.usage,
                cost_usd=answer.cost_usd,
                seconds=max(0.0, context.ports.clock.now() - now),
                problem=answer.reason if isinstance(answer, ModelFault) else "",
            )
        )
        self.cached = replace(self.cached, used_at=now)
        # An expired cache was written again, and the next renewal would write it once more.
        was_there = answer.usage.cache_read_tokens > answer.usage.cache_write_tokens
        self.is_over = isinstance(answer, ModelFault) or not was_there
