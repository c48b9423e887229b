"""The first message of a conversation (prompts.md §7).

Takes: the prompt, the caller's context and, with a retry prompt, what the model needs to know of the task.
Gives: the message's text blocks; all but the first are framed as data. May touch: nothing.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from stepflow.engine.prompt.render import RenderedPrompt, render_prompt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepflow.domain.definition import AgentDefinition, Step
    from stepflow.domain.run import RunFacts
    from stepflow.domain.state import RunState
    from stepflow.engine.prompt.variables import Variables

DATA_BEGIN = "BEGIN DATA"
DATA_END = "END DATA"
DEFUSED = "[marker removed]"


def first_message_blocks(
    prompt: str, *, agent: AgentDefinition, step: Step, facts: RunFacts, state: RunState, variables: Variables
) -> tuple[str, ...]:
    """The prompt unchanged, then at most one block of context.

    With a retry prompt in `state` the context also holds the step's usual prompt and the handoff: without them a
    fresh conversation would not know the task.
    """
    parts = list(_context(facts.context_text))
    if state.retry_prompt is not None:
        parts.extend(_task(agent, step, variables, facts.input_text))
        parts.extend(_handoff(state))
    if not parts:
        return (prompt,)
    framed = (frame_as_data(label, text, nonce=facts.nonce) for label, text in parts)
    return (prompt, "\n\n".join(framed))


def frame_as_data(label: str, text: str, *, nonce: str) -> str:
    """A text between two marker lines that it cannot forge: they carry the run's nonce, and the text cannot hold it."""
    safe = re.sub(re.escape(nonce), DEFUSED, text, flags=re.IGNORECASE)
    return f"{label}\n{DATA_BEGIN} {nonce}\n{safe}\n{DATA_END} {nonce}"


def _context(text: str) -> Iterable[tuple[str, str]]:
    if text.strip():
        yield "What the work is about, as it came from outside:", text


def _task(
    agent: AgentDefinition, step: Step, variables: Variables, input_text: str | None
) -> Iterable[tuple[str, str]]:
    usual = render_prompt(agent, step, variables, input_text)
    if isinstance(usual, RenderedPrompt):
        yield "What this step is usually asked, so that you know the task (the prompt above comes first):", usual.text


def _handoff(state: RunState) -> Iterable[tuple[str, str]]:
    stored = {
        step_id: {key: value for key, value in values.items() if "." not in key}
        for step_id, values in state.handoff.items()
    }
    if stored:
        yield "What the steps so far have handed on, as JSON:", json.dumps(stored, ensure_ascii=False, indent=2)
