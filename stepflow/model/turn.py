"""The turn in a finished message of the Messages API."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.domain.conversation import ModelFault, ModelTurn, StopReason, Usage
from stepflow.domain.words import Provider
from stepflow.model.models import price_of

if TYPE_CHECKING:
    from stepflow.domain.json import JsonObject, JsonValue


def with_paid(
    fault: ModelFault, answer: JsonObject, *, asked: str, provider: Provider = Provider.ANTHROPIC
) -> ModelFault:
    """The fault with what the service said of its answer's usage until then: that much is billed."""
    usage = _usage(answer.get("usage"))
    return replace(fault, usage=usage, cost_usd=_cost(usage, str(answer.get("model") or asked), asked, provider))


def read_turn(answer: JsonObject, *, asked: str, provider: Provider = Provider.ANTHROPIC) -> ModelTurn | ModelFault:
    """The turn in a finished message; `asked`: the id in the request."""
    reason = str(answer.get("stop_reason"))
    if reason not in set(StopReason):
        fault = ModelFault(
            reason=f"The model stopped for a reason that this version does not know: {reason!r}.",
            hint="Use a newer release of the action, or check that `anthropic-base-url` speaks the Messages API.",
        )
        return with_paid(fault, answer, asked=asked, provider=provider)
    usage = _usage(answer.get("usage"))
    model = str(answer.get("model") or asked)
    return ModelTurn(
        content=_content(answer.get("content")),
        stop_reason=StopReason(reason),
        usage=usage,
        cost_usd=_cost(usage, model, asked, provider),
        model=model,
    )


def _cost(usage: Usage, model: str, asked: str, provider: Provider) -> float | None:
    # The Anthropic API answers with the exact model of an alias. A cloud answers with the bare model, and what was
    # asked for says by which route it came, and so what it costs.
    names = (model, asked) if provider is Provider.ANTHROPIC else (asked, model)
    return next((cost for name in names if (cost := price_of(name, usage, provider)) is not None), None)


def _content(blocks: JsonValue) -> tuple[JsonObject, ...]:
    """The blocks as they came, to be sent back as they are, but for empty texts, which the API refuses."""
    found = blocks if isinstance(blocks, list) else []
    return tuple(block for block in found if isinstance(block, dict) and not _is_empty_text(block))


def _is_empty_text(block: JsonObject) -> bool:
    return block.get("type") == "text" and not block.get("text")


def _usage(usage: JsonValue) -> Usage:
    counts = usage if isinstance(usage, dict) else {}

    def count(name: str) -> int:
        value = counts.get(name)
        return value if isinstance(value, int) and value > 0 else 0

    return Usage(
        input_tokens=count("input_tokens"),
        output_tokens=count("output_tokens"),
        cache_write_tokens=count("cache_creation_input_tokens"),
        cache_read_tokens=count("cache_read_input_tokens"),
    )
