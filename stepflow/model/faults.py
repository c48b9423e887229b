"""Failed model calls and logins as values that the flow can react to."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime

import anthropic
import httpx2
from anthropic.lib.credentials import WorkloadIdentityError

from stepflow.domain.connection import Connection, certificate_problem, stays_closed
from stepflow.domain.conversation import ModelFault
from stepflow.model.http_client import BrokenAnswer
from stepflow.model.models import HINTS, Service, find_remedy, hint_for, is_transient_status

#: Exceptions that a call can raise. Any other exception from the adapter is a bug in stepflow.
CALL_ERRORS = (anthropic.AnthropicError, httpx2.HTTPError, httpx2.StreamError)

_NETWORK_HINT = "Check the address (`model.base-url`, or the provider's region) and the network of the runner."
_BROKEN_HINT = "If it keeps happening, check that `model.base-url` leads to a server that speaks the Messages API."
_SLOW_HINT = "If it keeps happening, choose a faster `model`, or let the step answer in less."
#: The second row has their names in a Bedrock stream.
_TRANSIENT_TYPES = frozenset(
    {
        *("overloaded_error", "api_error", "rate_limit_error", "timeout_error"),
        *("throttlingException", "internalServerException", "serviceUnavailableException"),
        *("modelTimeoutException", "modelStreamErrorException"),
    }
)
_SPENDING_CODES = frozenset({"contract_spend_limit_reached", "enforced_spend_limit_reached"})
_KEY_WORKED = "The key worked earlier in this run: it was revoked, expired or restricted since. Store a valid key."
_KEY_STATUSES = (401, 403)
_PAGE_BEGINS = "<"
_REFUSED = 300


def fault_of(  # noqa: PLR0911 - one row per kind of failure
    error: Exception, service: Service, *, key_worked: bool
) -> ModelFault:
    """Return the fault for an exception from a call to the service. `key_worked`: the service has answered before."""
    where, connection = service.where, service.connection
    if isinstance(fault := getattr(error, "fault", None), ModelFault):
        return fault  # a failed login brings its own (`LoginFailed`)
    match error:
        case anthropic.APIStatusError():
            return _status_fault(error, service, key_worked=key_worked)
        case anthropic.APITimeoutError() | httpx2.TimeoutException():
            reason = f"The model service at {where} did not answer in time{connection.through}."
            return _passing(reason, connection.advice("") or _NETWORK_HINT)
        case anthropic.APIConnectionError():
            return _unreachable(error.__cause__ or error, where, connection)
        case BrokenAnswer() | anthropic.APIResponseValidationError():
            return _passing(f"The answer of the model service at {where} is broken: {error}.", _BROKEN_HINT)
        case httpx2.HTTPError() | httpx2.StreamError():
            return _passing(f"The connection to {where} broke in the middle of an answer: {_plain(error)}.")
        case WorkloadIdentityError():
            return _federation_fault(error, where)
        case _:
            return ModelFault(reason=f"The call to the model service at {where} failed: {_plain(error)}.")


def _unreachable(cause: BaseException, where: str, connection: Connection) -> ModelFault:
    said = str(cause)
    if problem := certificate_problem(said):
        reason = f"The certificate of the model service at {where} was rejected{connection.through}: {problem}."
    else:
        reason = f"The model service at {where} cannot be reached{connection.through}: {_plain(cause)}."
    return ModelFault(reason=reason, hint=connection.advice(said) or _NETWORK_HINT, transient=not stays_closed(said))


def _passing(reason: str, hint: str = _NETWORK_HINT) -> ModelFault:
    return ModelFault(reason=reason, hint=hint, transient=True)


def _plain(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": .")


def overdue_fault(seconds: float, *, where: str) -> ModelFault:
    """Return the fault for a call that was cut off because it took too long."""
    return _passing(f"The model service at {where} had not finished its answer after {seconds:g} s.", _SLOW_HINT)


def _status_fault(error: anthropic.APIStatusError, service: Service, *, key_worked: bool) -> ModelFault:
    transient = _is_transient(error)
    kind = f" ({error.type})" if error.type else ""
    # An error inside a stream has the status 200 of the stream itself; only the type identifies it.
    did = f"answered {error.status_code}{kind}" if error.status_code >= _REFUSED else f"broke off its answer{kind}"
    said = _message_of(error)
    return ModelFault(
        reason=f"The model service at {service.where} {did}: {said}",
        hint=_hint(error, service, key_worked=key_worked),
        transient=transient,
        retry_after=_retry_after(error.response.headers) if transient else None,
        remedy=find_remedy(error.status_code, said),
    )


def _is_transient(error: anthropic.APIStatusError) -> bool:
    # A nonstandard header. It overrides the status, as in the SDK's own retries.
    match error.response.headers.get("x-should-retry"):
        case "true":
            return True
        case "false":
            return False
    if error.error_code in _SPENDING_CODES:
        return False
    return is_transient_status(error.status_code) or error.type in _TRANSIENT_TYPES


def _message_of(error: anthropic.APIStatusError) -> str:
    if error.api_message:
        return str(error.api_message)
    text = error.body if isinstance(error.body, str) else error.message
    return "a web page instead of an API answer" if text.lstrip().startswith(_PAGE_BEGINS) else text


def _hint(error: anthropic.APIStatusError, service: Service, *, key_worked: bool) -> str:
    status = error.status_code
    if error.error_code in _SPENDING_CODES:
        return HINTS[402]
    if service.is_anthropic and error.type is None and not is_transient_status(status):
        return "No API error came back: check that `model.base-url` leads to a server that speaks the Messages API."
    hint = hint_for(status, _message_of(error), service.hints)
    return _KEY_WORKED if key_worked and status in _KEY_STATUSES and hint == HINTS[status] else hint


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait. The header holds seconds or an HTTP date."""
    value, seconds = headers.get("retry-after", "").strip(), math.nan
    with suppress(ValueError):
        seconds = parsedate_to_datetime(value).timestamp() - time.time()
    with suppress(ValueError):
        seconds = float(value)
    return max(0.0, seconds) if math.isfinite(seconds) else None


_FEDERATION_HINT = (
    "Check the ids in `model.workload-identity`, and that the rule matches the claims of this job's token."
)


def _federation_fault(error: WorkloadIdentityError, where: str) -> ModelFault:
    status = error.status_code
    return ModelFault(
        reason=f"The login at {where} with the job's identity failed: {error}",
        hint="" if status is None else _FEDERATION_HINT,
        transient=status is None or is_transient_status(status),
    )
