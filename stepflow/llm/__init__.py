"""Ask the model: one request in, one turn out (house.md "Rooms")."""

from stepflow.llm.address import ANTHROPIC_URL, check_base_url
from stepflow.llm.anthropic_model import AnthropicModel
from stepflow.llm.models import MODEL_ALIASES, resolve_model
from stepflow.llm.prices import is_priced, price_of

__all__ = [
    "ANTHROPIC_URL",
    "MODEL_ALIASES",
    "AnthropicModel",
    "check_base_url",
    "is_priced",
    "price_of",
    "resolve_model",
]
