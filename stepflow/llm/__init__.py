"""Ask the model: one request in, one turn out (house.md "Rooms").

Takes: a `ModelRequest`. Gives: what implements the port `Model`: real, scripted, recording; names and prices of models.
May touch: the model API, by `AnthropicModel` alone. Importing this loads neither the SDK nor the price data.
"""

from typing import TYPE_CHECKING

from stepflow.door import open_when_asked

if TYPE_CHECKING:
    from stepflow.llm.access import ModelAccess
    from stepflow.llm.address import ANTHROPIC_URL, check_base_url
    from stepflow.llm.anthropic_model import AnthropicModel
    from stepflow.llm.logins import address_of
    from stepflow.llm.models import MODEL_ALIASES, UnlistedModel, resolve_model
    from stepflow.llm.prices import is_priced, price_of
    from stepflow.llm.recording import RecordingModel
    from stepflow.llm.scenario import Expect, Scenario, ScenarioIssue, ScriptedError, Turn
    from stepflow.llm.scenario_file import load_scenario, parse_scenario, place_of, read_scenario, scenario_text
    from stepflow.llm.scenario_update import update_expect
    from stepflow.llm.scripted import ScriptedModel, played_out

__all__ = [
    "ANTHROPIC_URL",
    "MODEL_ALIASES",
    "AnthropicModel",
    "Expect",
    "ModelAccess",
    "RecordingModel",
    "Scenario",
    "ScenarioIssue",
    "ScriptedError",
    "ScriptedModel",
    "Turn",
    "UnlistedModel",
    "address_of",
    "check_base_url",
    "is_priced",
    "load_scenario",
    "parse_scenario",
    "place_of",
    "played_out",
    "price_of",
    "read_scenario",
    "resolve_model",
    "scenario_text",
    "update_expect",
]

# A type checker is to know the names above and no others.
if not TYPE_CHECKING:
    __getattr__ = open_when_asked(
        __name__,
        {
            "access": "ModelAccess",
            "address": "ANTHROPIC_URL check_base_url",
            "anthropic_model": "AnthropicModel",
            "logins": "address_of",
            "models": "MODEL_ALIASES UnlistedModel resolve_model",
            "prices": "is_priced price_of",
            "recording": "RecordingModel",
            "scenario": "Expect Scenario ScenarioIssue ScriptedError Turn",
            "scenario_file": "load_scenario parse_scenario place_of read_scenario scenario_text",
            "scenario_update": "update_expect",
            "scripted": "ScriptedModel played_out",
        },
    )
