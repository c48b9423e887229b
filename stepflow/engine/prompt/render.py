"""A step's prompt as it is sent (prompts.md §5).

Takes: the agent, the step, its variables and the run's input text. Gives: the text, or why there is none.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.engine.prompt.placeholder import (
    CHECK_FORMS,
    GATE_FORMS,
    INPUT_TEXT,
    insert_sections,
    substitute,
    used_variables,
)

if TYPE_CHECKING:
    from stepflow.domain.definition import AgentDefinition, SourceText, Step, StepPrompt
    from stepflow.engine.prompt.variables import Variables

#: Stands in a shipped template for a variable without a value: a fallback can never fail (prompts.md §8).
NOT_GIVEN = "(not given)"


@dataclass(frozen=True, kw_only=True)
class RenderedPrompt:
    """A prompt ready to send. `source` is the file it came from. `used_fallback` is the key of the template that was
    rendered because the step's own text could not be, and `cause` says why that was."""

    text: str
    source: str
    used_fallback: str | None = None
    cause: str = ""


@dataclass(frozen=True, kw_only=True)
class PromptFailure:
    """A prompt that cannot be rendered; `message` names variable, step and file."""

    message: str


def render_prompt(
    agent: AgentDefinition, step: Step, variables: Variables, input_text: str | None = None
) -> RenderedPrompt | PromptFailure:
    """The step's prompt with its sections and variables put in; its fallback template where a value is missing."""
    if step.prompt is None:
        return PromptFailure(message=f'Step "{step.id}" runs a command and has no prompt to render.')
    sections = {section_id: section.text for section_id, section in agent.sections.items()}
    text = insert_sections(step.prompt.source.text, sections)
    faults = () if step.prompt.source.template else _faults(step.prompt, text, variables, input_text)
    if not faults:
        source = replace(step.prompt.source, text=text)
        return RenderedPrompt(text=_fill(source, step.prompt, variables, input_text), source=source.file)
    return _fall_back(step, step.prompt, variables, faults)


def fill_template(template: str, variables: Variables) -> str:
    """A shipped template with its variables put in; what is missing or empty reads `(not given)`."""
    return substitute(template, lambda name: None if name == INPUT_TEXT else variables.texts.get(name) or NOT_GIVEN)


def _faults(prompt: StepPrompt, text: str, variables: Variables, input_text: str | None) -> tuple[str, ...]:
    texts = variables.texts
    declared = [f'declared variable "{name}" has no value' for name in prompt.variables if not texts.get(name)]
    used = [
        f'variable "{name}" is used but nothing supplies it'
        for name in used_variables(text)
        if name not in texts and name not in prompt.variables
    ]
    inputs = [f'required input "{name}" has no value' for name in variables.missing_inputs]
    stdin = ['"usesStdin" is set but the run was given no input text'] if prompt.uses_stdin and not input_text else []
    return tuple(dict.fromkeys([*declared, *used, *inputs, *stdin]))


def _fill(source: SourceText, prompt: StepPrompt, variables: Variables, input_text: str | None) -> str:
    if source.template:
        return fill_template(source.text, variables)
    stdin = input_text if prompt.uses_stdin else None
    forms = CHECK_FORMS if prompt.bare_names else GATE_FORMS
    return substitute(source.text, lambda name: stdin if name == INPUT_TEXT else variables.texts.get(name), forms)


def _fall_back(
    step: Step, prompt: StepPrompt, variables: Variables, faults: tuple[str, ...]
) -> RenderedPrompt | PromptFailure:
    cause = "; ".join(faults)
    if prompt.fallback:
        text = fill_template(prompt.fallback.text, variables)
        key = prompt.fallback.template or prompt.fallback_key
        return RenderedPrompt(text=text, source=prompt.fallback.file, used_fallback=key, cause=cause)
    if prompt.fallback_key:
        return PromptFailure(message=f'No fallback prompt found for key: "{prompt.fallback_key}" (step: {step.id})')
    return PromptFailure(
        message=f'The prompt of step "{step.id}" ({prompt.source.file}) cannot be rendered: {cause}. '
        "Supply the value as a run argument, an extra variable or a handoff field, "
        'or give the step a "fallbackKey".'
    )
