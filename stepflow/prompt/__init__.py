"""What do we ask: step and state in, text out (house.md "Rooms")."""

from stepflow.prompt.message import first_message_blocks, frame_as_data
from stepflow.prompt.placeholder import asks_for_input, insert_sections, used_sections, used_variables
from stepflow.prompt.render import PromptFailure, RenderedPrompt, render_prompt
from stepflow.prompt.system import render_system
from stepflow.prompt.variables import Variables, handoff_variable, offered_intents, step_variables, value_text

__all__ = [
    "PromptFailure",
    "RenderedPrompt",
    "Variables",
    "asks_for_input",
    "first_message_blocks",
    "frame_as_data",
    "handoff_variable",
    "insert_sections",
    "offered_intents",
    "render_prompt",
    "render_system",
    "step_variables",
    "used_sections",
    "used_variables",
    "value_text",
]
