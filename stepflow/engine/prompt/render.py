"""A step's prompt with sections and variables put in, or its fallback template (prompts.md §5 and §8)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from stepflow.engine.prompt.template import Filled, fill_template, parse_template

if TYPE_CHECKING:
    from stepflow.domain.conversation import Substitution
    from stepflow.domain.definition import AgentDefinition, SourceText, Step, StepPrompt
    from stepflow.engine.prompt.variables import Variables

#: The closed list of the prompt texts that the package ships (prompts.md §8); the text of key K is `templates/K.md`.
TEMPLATE_KEYS: tuple[str, ...] = (
    *("system", "initial_iterate", "continuation_iterate", "initial_issue", "continuation_issue"),
    *("initial_issue_label_only", "continuation_issue_label_only", "initial_project", "continuation_project"),
    *("initial_keyword", "continuation_keyword", "initial_manual", "continuation_manual"),
    *("initial_structured_signal", "continuation_structured_signal"),
    *("continuation_project_preparation", "continuation_project_processing", "continuation_project_review"),
    *("issue_closure_default", "project_closure_default", "polling_closure_default", "review_closure_default"),
    *("iteration_closure_default", "facilitation_closure_default", "project_continuation_closure_default"),
    "statuscheck_continuation_default",
)


#: The name of the run's input text in prompts of steps with `usesStdin`.
INPUT_TEXT = "input_text"

#: Stands in a shipped template for a variable without a value: a fallback can never fail (prompts.md §8).
NOT_GIVEN = "(not given)"


@dataclass(frozen=True, kw_only=True)
class RenderedPrompt:
    """A prompt ready to send. `source` is the file it came from. `used_fallback` is the key of the template that was
    rendered because the step's own text could not be, and `cause` says why that was."""

    text: str
    source: str
    substitutions: tuple[Substitution, ...] = field(default=(), compare=False)
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
    prompt, texts = step.prompt, dict(variables.texts)
    if prompt.source.template:
        return _of_shipped(prompt.source, variables)
    if prompt.uses_stdin and input_text:
        texts[INPUT_TEXT] = input_text
    sections = {section_id: section.text for section_id, section in agent.sections.items()}
    known = {*prompt.names, INPUT_TEXT} if prompt.uses_stdin else prompt.names
    template = parse_template(prompt.source.text, known, is_open=False, sections=sections)
    filled = fill_template(template, variables.scope, texts)
    cause = "; ".join(_faults(prompt, filled, variables, input_text))
    if not cause:
        return RenderedPrompt(text=filled.text, source=prompt.source.file, substitutions=filled.substitutions)
    if prompt.fallback:
        rendered = _of_shipped(prompt.fallback, variables)
        return replace(rendered, used_fallback=prompt.fallback.template or prompt.fallback_key, cause=cause)
    message = f'The prompt of step "{step.id}" ({prompt.source.file}) cannot be rendered: {cause}. '
    message += "Supply the value as a run argument, an extra variable or a handoff field"
    if key := prompt.fallback_key:
        return PromptFailure(message=f'{message}. No fallback prompt found for key: "{key}" (step: {step.id})')
    return PromptFailure(message=f'{message}, or give the step a "fallbackKey".')


def fill_shipped(text: str, variables: Variables) -> Filled:
    """A shipped template with its variables put in; what is missing or empty reads `(not given)`."""
    texts = {name: value or NOT_GIVEN for name, value in variables.texts.items()}
    return fill_template(parse_template(text, is_open=False), variables.scope, texts, NOT_GIVEN)


def _of_shipped(source: SourceText, variables: Variables) -> RenderedPrompt:
    filled = fill_shipped(source.text, variables)
    return RenderedPrompt(text=filled.text, source=source.file, substitutions=filled.substitutions)


def _faults(prompt: StepPrompt, filled: Filled, variables: Variables, input_text: str | None) -> tuple[str, ...]:
    declared = [
        f'declared variable "{name}" has no value' for name in prompt.variables if not variables.texts.get(name)
    ]
    used = [
        f'variable "{name}" is used but nothing supplies it' for name in filled.missing if name not in prompt.variables
    ]
    inputs = [f'required input "{name}" has no value' for name in variables.missing_inputs]
    stdin = ['"usesStdin" is set but the run was given no input text'] if prompt.uses_stdin and not input_text else []
    return tuple(dict.fromkeys([*declared, *used, *inputs, *stdin]))
