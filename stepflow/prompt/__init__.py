"""What do we ask: step and state in, text out (house.md "Rooms")."""

from stepflow.prompt.answer_form import answer_form
from stepflow.prompt.correction import correction_message
from stepflow.prompt.message import first_message_blocks, frame_as_data
from stepflow.prompt.placeholder import asks_for_input, insert_sections, used_sections, used_variables
from stepflow.prompt.render import PromptFailure, RenderedPrompt, render_prompt
from stepflow.prompt.retry import RetryText, render_retry
from stepflow.prompt.shipped import TEMPLATE_KEYS
from stepflow.prompt.system import render_system, steady_part
from stepflow.prompt.template import parse_retry_template
from stepflow.prompt.variables import Variables, handoff_variable, offered_intents, step_variables, value_text

__all__ = [
    "TEMPLATE_KEYS",
    "PromptFailure",
    "RenderedPrompt",
    "RetryText",
    "Variables",
    "answer_form",
    "asks_for_input",
    "correction_message",
    "first_message_blocks",
    "frame_as_data",
    "handoff_variable",
    "insert_sections",
    "offered_intents",
    "parse_retry_template",
    "render_prompt",
    "render_retry",
    "render_system",
    "steady_part",
    "step_variables",
    "used_sections",
    "used_variables",
    "value_text",
]
