"""Names of models, and the answer of a service that has none.

Takes: an alias or an id, as agent files and inputs write it. Gives: the id that the service knows.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from stepflow.domain.conversation import ModelFault

#: The newest of each family that the pinned `anthropic` package lists (flow.md §13); a test holds the two together.
MODEL_ALIASES = MappingProxyType(
    {
        "sonnet": "claude-sonnet-5-5",
        "opus": "claude-opus-5-5",
        "haiku": "claude-haiku-5-5",
    }
)


def resolve_model(name: str) -> str:
    """The id behind an alias; any other text is passed on as an id (flow.md §13)."""
    return MODEL_ALIASES.get(name, name)


@dataclass(frozen=True, kw_only=True)
class UnlistedModel(ModelFault):
    """The service has no entries of models at all: servers that only speak the Messages API need none."""
