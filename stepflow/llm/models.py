"""Names of models.

Takes: an alias or an id, as agent files and inputs write it. Gives: the id that the service knows.
May touch: nothing.
"""

from __future__ import annotations

from types import MappingProxyType

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
