"""Names of models, and the answer of a service that has none.

Takes: an alias or an id, as agent files and inputs write it. Gives: the id that the service knows.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from stepflow.domain.conversation import ModelFault
from stepflow.domain.words import Provider

#: The newest of each family that the pinned `anthropic` package lists (flow.md §13); a test holds the two together.
MODEL_ALIASES = MappingProxyType(
    {
        "sonnet": "claude-sonnet-5-5",
        "opus": "claude-opus-5-5",
        "haiku": "claude-haiku-5-5",
    }
)


def resolve_model(name: str, provider: Provider = Provider.ANTHROPIC) -> str:
    """The id behind an alias; any other text is passed on as an id (flow.md §13).

    Vertex and Foundry take the ids of the Anthropic API. On Bedrock the models of the aliases are reached through the
    inference profile of all regions, whose id the price list names too; any other id is for the caller to write.
    """
    known = MODEL_ALIASES.get(name, name)
    if provider is Provider.BEDROCK and known in MODEL_ALIASES.values():
        return f"global.anthropic.{known}"
    return known


@dataclass(frozen=True, kw_only=True)
class UnlistedModel(ModelFault):
    """The service has no entries of models at all: servers that only speak the Messages API need none."""
