"""The answer's form, told in a message, for services that nothing else makes heed it.

Takes: the answer schema. Gives: the text that goes with the question.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.json import compact
from stepflow.domain.schema import close_schema

if TYPE_CHECKING:
    from stepflow.domain.json import JsonObject


def answer_form(schema: JsonObject) -> str:
    """What the final answer must look like."""
    return (
        "When the work is done, answer with exactly one JSON object that fits the JSON Schema below. Put it into one "
        "```json block, or send it with nothing around it. Do not send the schema itself.\n\n"
        f"{compact(close_schema(schema))}"
    )
