"""The real model of a run: what logs in there, and the way that leads there.

Takes: a run request. Gives: `ModelAccess`, and the model made with it.
May touch: nothing itself; the model asks when it is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.words import Provider
from stepflow.errors import InputError
from stepflow.model.access import ModelAccess
from stepflow.model.anthropic_model import AnthropicModel

if TYPE_CHECKING:
    from stepflow.run.request import RunRequest


def open_anthropic(request: RunRequest) -> AnthropicModel:
    """The model of the inputs, on the way that leads there; close it at the end. Raises `InputError` where nothing
    logs in there."""
    access = model_access(request)
    if access.provider is Provider.ANTHROPIC and access.api_key is None and not access.identity:
        raise InputError(
            "There is no API key: the input anthropic-api-key is empty.",
            hint="Pass `anthropic-api-key: ${{ secrets.ANTHROPIC_API_KEY }}` (on the command line: set "
            "ANTHROPIC_API_KEY), log in without a key by the workload identity inputs, or run without a model with "
            "`provider: scripted`.",
        )
    return AnthropicModel(access=access, ways=request.outbound.way_to)


def model_access(request: RunRequest) -> ModelAccess:
    """Where the model is and what logs in there, as far as it is given."""
    inputs = request.inputs
    key = inputs.anthropic_api_key
    return ModelAccess(
        provider=inputs.provider,
        api_key=key.get_secret_value() if key else None,
        base_url=inputs.anthropic_base_url,
        federation_rule_id=inputs.anthropic_federation_rule_id,
        organization_id=inputs.anthropic_organization_id,
        service_account_id=inputs.anthropic_service_account_id,
        login=request.login,
    )
