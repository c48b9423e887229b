"""Keep the service's cache of a conversation from expiring while a tool or a validator runs for minutes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from stepflow.domain.conversation import Message, ModelFault, ModelRequest, ModelTurn, text_block
from stepflow.domain.event import CacheRenewed
from stepflow.engine.context import CachedRequest, FlowContext, check_limits
from stepflow.ports import PromptCache

#: Seconds since the beginning of the last request that used the cache: when it expires, and when it is renewed.
LIFETIME, RENEWED_AFTER = 300.0, 240.0
#: Seconds that a renewal may take; it asks for no long answer.
LONGEST_RENEWAL = 30.0
#: The service requires a message; this one asks for nothing.
NO_MESSAGE = Message(role="user", content=(text_block("."),))


def remember_cached(context: FlowContext, request: ModelRequest, turn: ModelTurn, *, asked_at: float) -> None:
    """Remember the opening that the step's next conversation will share."""
    if turn.usage.cache_read_tokens or turn.usage.cache_write_tokens:
        opening = replace(request, messages=(NO_MESSAGE,))
        context.cached[request.step_id] = CachedRequest(request=opening, used_at=asked_at)


@contextmanager
def keep_conversation(context: FlowContext, request: ModelRequest) -> Iterator[None]:
    """Renew the cache while the tools run that the model's last message calls; then the conversation continues."""
    known = context.cached.get(request.step_id)
    sent = replace(request, messages=request.messages[:-1])
    with _keep(context, known and replace(known, request=sent), next_step=None):
        yield


@contextmanager
def keep_opening(context: FlowContext, next_step: str | None) -> Iterator[None]:
    """Renew the cache while validators run, after which `next_step` may begin a new conversation; None if no step
    can."""
    known = context.cached.get(next_step) if next_step else None
    if known and not _uses_same_model(context, known.request):
        known = None
    with _keep(context, known, next_step=next_step):
        yield


def _uses_same_model(context: FlowContext, request: ModelRequest) -> bool:
    """Whether the step still uses the model and effort of the cached request; another model's cache is of no use."""
    step = context.agent.steps[request.step_id]
    rung = context.current_rung(step)
    return (rung.model, rung.effort or step.effort) == (request.model, request.effort)


@contextmanager
def _keep(context: FlowContext, cached: CachedRequest | None, *, next_step: str | None) -> Iterator[None]:
    cache = context.ports.cache
    if cache is None or cached is None:
        yield
        return
    renewal = _Renewal(context=context, cache=cache, cached=cached, next_step=next_step)
    with cache.while_waiting(renewal.renew_if_due):
        yield


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
            CacheRenewed(
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
