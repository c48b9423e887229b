"""One model service, ready to be asked.

Takes: the SDK's client for it. Gives: `Service`: the client and what differs from service to service.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stepflow.domain.way import DIRECT, Way
from stepflow.domain.words import Provider

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, kw_only=True)
class Service:
    """`client` is one of the SDK's, with its retries off; `where` is its address, for messages.

    `way` leads there. `hints`: what a person should change, by HTTP status, where that differs from a key of the
    Anthropic API; `typed`: errors name their type, as that API's do. `stream_type`: the content type of a streamed
    answer; `stumbles`: what reading a broken one raises, beside what JSON raises. `log_in` gets or renews the
    credentials and raises `LoginFailed`. `secrets` gives what no message may hold, as it is now.
    """

    client: Any
    where: str
    way: Way = DIRECT
    provider: Provider = Provider.ANTHROPIC
    hints: Mapping[int, str] = field(default_factory=dict)
    typed: bool = True
    stream_type: str = "text/event-stream"
    stumbles: tuple[type[Exception], ...] = ()
    lists_models: bool = True
    log_in: Callable[[], None] = field(default=lambda: None)
    secrets: Callable[[], tuple[str, ...]] = field(default=tuple)


BEDROCK_HINTS = MappingProxyType(
    {
        400: "Bedrock cannot take this request; its message names the part. Newer models are reached only through an "
        "inference profile: check that `model` begins with `global.` or with your region's prefix, such as `us.`.",
        401: "Check the AWS credentials of the job: they must be valid and not expired.",
        403: "Check that the AWS credentials of the job are valid and not expired (the session of a role lasts an hour "
        "unless `role-duration-seconds` says otherwise), that they allow `bedrock:InvokeModelWithResponseStream`, and "
        "that the account has access to the model.",
        404: "Check the input `model`, the step's `model` and AWS_REGION: not every model is served in every region.",
        422: "Bedrock does not know a part of the request: check `model`.",
        424: "The model broke off; start the run again.",
        429: "Let fewer runs work at once, or ask AWS for a higher quota for this model.",
    }
)

VERTEX_HINTS = MappingProxyType(
    {
        401: "Check the Google credentials of the job: an access token is valid for an hour.",
        403: "Check that the Google account of the job has the role `roles/aiplatform.user` in the project, and that "
        "the project has the model enabled in the Model Garden.",
        404: "Check the input `model`, the step's `model` and CLOUD_ML_REGION: not every model is served in every "
        "region.",
        429: "Let fewer runs work at once, or ask Google for a higher quota for this model.",
    }
)

FOUNDRY_HINTS = MappingProxyType(
    {
        401: "Check ANTHROPIC_FOUNDRY_API_KEY, or ANTHROPIC_FOUNDRY_AUTH_TOKEN, whose token lasts about an hour.",
        403: "Check that the key or the Entra identity may use this Foundry resource.",
        404: "Check the input `model` and the step's `model`: Foundry takes the name of the deployment.",
        429: "Let fewer runs work at once, or raise the limit of the deployment.",
    }
)

IDENTITY_HINTS = MappingProxyType(
    {
        401: "The token that the federation rule gave was not taken: check the rule and its service account.",
        403: "The service account of the federation rule may not use this model or workspace: change its rights, or "
        "give another `model`.",
    }
)
