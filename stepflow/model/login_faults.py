"""Logins that failed, as values that the flow can react to.

Takes: what getting a credential raised. Gives: a `ModelFault` that says who refused, and what to change.
May touch: nothing.
"""

from __future__ import annotations

import anthropic
from anthropic.lib.credentials import WorkloadIdentityError

from stepflow.domain.conversation import ModelFault
from stepflow.model.statuses import is_transient_status

_FEDERATION_HINT = (
    "Check the inputs `anthropic-federation-rule-id`, `anthropic-organization-id` and `anthropic-service-account-id`, "
    "and that the rule matches the claims of this job's token."
)


class LoginFailed(anthropic.AnthropicError):
    """No credential for the model's service could be had. `transient`: trying again can help.

    It is of the SDK's family, so that the SDK lets it through instead of calling it a broken connection.
    """

    def __init__(self, reason: str, *, hint: str = "", transient: bool = False) -> None:
        super().__init__(reason)
        self.fault = ModelFault(reason=reason, hint=hint, transient=transient)


def login_fault(error: LoginFailed | WorkloadIdentityError, *, where: str) -> ModelFault:
    """The fault behind a login that failed; `where` is the service that the credential is for."""
    if isinstance(error, LoginFailed):
        return error.fault
    status = error.status_code
    unreachable = status is None
    said = str(error)
    return ModelFault(
        reason=f"The login at {where} with the job's identity failed: {said}",
        hint="" if unreachable else _FEDERATION_HINT,
        transient=unreachable or (status is not None and is_transient_status(status)),
    )
