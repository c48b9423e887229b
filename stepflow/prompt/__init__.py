"""What do we ask: step and state in, text out (house.md "Rooms")."""

from stepflow.prompt.variables import Variables, handoff_variable, offered_intents, step_variables, value_text

__all__ = [
    "Variables",
    "handoff_variable",
    "offered_intents",
    "step_variables",
    "value_text",
]
