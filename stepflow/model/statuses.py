"""How a run reacts when the model service refuses a request, based on the HTTP status and the message."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from stepflow.domain.conversation import Remedy

#: 409 is a lock held by another client. The SDK retries all of these.
_TIMED_OUT, _CONFLICT, _RATE_LIMITED, _SERVER_ERRORS = 408, 409, 429, 500
_TOO_LARGE = 413

_PAY = "Add credit, or raise the spend limit, of the account that the key belongs to."
_TOO_LONG = "Let the step read less, split it into two steps, or choose a `model` with a larger context window."
_DOWN = "Look at the status page of the service; start the run again when it works."

#: What to change, by status; the texts name inputs of the action.
HINTS = MappingProxyType(
    {
        400: "The service cannot take this request; its message names the part. Check the step's schema and `model`.",
        401: "Check the secret behind the input `anthropic-api-key`: it must be a valid key of this service.",
        402: _PAY,
        403: "The key may not use this model or service: give another `anthropic-api-key` or another `model`.",
        404: "Check the input `model`, the step's `model` and `anthropic-base-url` (it must not end in /v1).",
        413: "The conversation is too large for one request: let the step read less, or split it into two steps.",
        422: "The service does not know a part of the request: check `anthropic-base-url` and `model`.",
        429: "Run fewer agents at once, or raise the rate limit of the account that the key belongs to.",
    }
)

#: Phrases that are more specific than the status.
_OVERFLOW_WORDS = ("prompt is too long", "context window", "context limit", "context length", "context size")
#: The API's message about a thinking block whose context has changed ("Preserved thinking").
_BOUND_ELSEWHERE = "bound to a different conversation"
_HINTS_OF_WORDS = (
    (_OVERFLOW_WORDS, _TOO_LONG),
    (("credit balance", "billing", "purchase credits", "spend limit", "usage limit", "insufficient_quota"), _PAY),
    (("has been disabled",), "Ask the service why the account is disabled, or give the key of another account."),
)


def is_transient_status(status: int) -> bool:
    """Return whether the call may be retried: rate limit, conflict, overload, server error (flow.md §10)."""
    return status in (_TIMED_OUT, _CONFLICT, _RATE_LIMITED) or status >= _SERVER_ERRORS


def is_overflow(status: int, said: str) -> bool:
    """Return whether the conversation does not fit the model. A shorter one may."""
    return status == _TOO_LARGE or (
        not is_transient_status(status) and any(words in said.lower() for words in _OVERFLOW_WORDS)
    )


def find_remedy(status: int, said: str) -> Remedy | None:
    """Return what to change in the request after a refusal, as far as its message tells."""
    if is_overflow(status, said):
        return Remedy.SHORTEN
    return Remedy.DROP_THINKING if _BOUND_ELSEWHERE in said else None


def hint_for(status: int, said: str, own: Mapping[int, str] = MappingProxyType({})) -> str:
    """Return what a person should change. The message takes precedence over the status. `own` holds the service's own
    hints by status."""
    lower = said.lower()
    hint = next((hint for words, hint in _HINTS_OF_WORDS if any(word in lower for word in words)), "")
    return hint or own.get(status) or HINTS.get(status, _DOWN if is_transient_status(status) else HINTS[400])
