"""What an HTTP status of the model service means for a run.

Takes: a status. Gives: whether asking again can help, and what a person should change.
May touch: nothing.
"""

from __future__ import annotations

from types import MappingProxyType

_TIMED_OUT, _RATE_LIMITED, _SERVER_ERRORS = 408, 429, 500

#: What to change, by status; the words name inputs of the action (action.md, group "model").
HINTS = MappingProxyType(
    {
        400: "The service cannot take this request; its message names the part. Check the step's schema and `model`.",
        401: "Check the secret behind the input `anthropic-api-key`: it must be a valid key of this service.",
        402: "Add credit, or raise the spend limit, of the account that the key belongs to.",
        403: "The key may not use this model or service: give another `anthropic-api-key` or another `model`.",
        404: "Check the input `model`, the step's `model` and `anthropic-base-url` (it must not end in /v1).",
        413: "The conversation is too large for one request: let the step read less, or split it into two steps.",
        422: "The service does not know a part of the request: check `anthropic-base-url` and `model`.",
    }
)


def is_transient_status(status: int) -> bool:
    """Whether the call may be tried again: rate limit, overload, server error (flow.md §10)."""
    return status in (_TIMED_OUT, _RATE_LIMITED) or status >= _SERVER_ERRORS
