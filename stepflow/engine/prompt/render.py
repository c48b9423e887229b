"""A step's prompt with sections and variables put in, or its fallback template (prompts.md §5 and §8)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from stepflow.domain.conversation import Substitution

if TYPE_CHECKING:
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


#: What may stand in a gate-dialect text. The one group that matches is the variable's name; of `{input_text}` it is the
#: whole, which no variable can be called. The double brace comes first, so that both braces are consumed.
GATE_FORMS = re.compile(r"\{\{uv-([A-Za-z0-9_-]+)\}\}|\{uv-([A-Za-z0-9_-]+)\}|(\{input_text\})")
#: The check dialect knows the bare names too; only where such a variable is supplied (prompts.md §5).
CHECK_FORMS = re.compile(GATE_FORMS.pattern + r"|\{\{([A-Za-z0-9_-]+)\}\}|\{([A-Za-z0-9_-]+)\}")
SECTION_FORM = re.compile(r"\{section:(?P<id>[A-Za-z0-9._-]+)\}")

#: The name under which it asks for its value.
INPUT_TEXT = "{input_text}"

ValueOf = Callable[[str], str | None]


def substitute(
    text: str,
    value_of: ValueOf,
    forms: re.Pattern[str] = GATE_FORMS,
    substitutions: list[Substitution] | None = None,
) -> str:
    """Each placeholder replaced by its value; a placeholder whose value is None stays as it is.

    One pass: what is put in is never looked at again. `forms` are the placeholder forms of the dialect. Where each
    value stands in the result is added to `substitutions`.
    """
    shift = 0

    def replacement(match: re.Match[str]) -> str:
        nonlocal shift
        name = _name(match)
        value = value_of(name)
        if value is None:
            return match[0]
        start = match.start() + shift
        shift += len(value) - len(match[0])
        if value and substitutions is not None:
            substitutions.append(Substitution(name=name, start=start, end=start + len(value)))
        return value

    return forms.sub(replacement, text)


def used_variables(text: str) -> tuple[str, ...]:
    """The names of the variables that a gate-dialect text asks for, in order, each once."""
    names = map(_name, GATE_FORMS.finditer(text))
    return tuple(dict.fromkeys(name for name in names if name != INPUT_TEXT))


def insert_sections(text: str, sections: Mapping[str, str]) -> str:
    """Each `{section:ID}` replaced by that section; sections do not nest, an unknown one stays as text."""
    return SECTION_FORM.sub(lambda match: sections.get(match["id"], match[0]), text)


def _name(match: re.Match[str]) -> str:
    return match[match.lastindex or 0]


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
    prompt, sections = step.prompt, {section_id: section.text for section_id, section in agent.sections.items()}
    source = replace(prompt.source, text=insert_sections(prompt.source.text, sections))
    faults = () if source.template else _faults(prompt, source.text, variables, input_text)
    cause = "; ".join(faults)
    if not faults:
        return _fill(source, prompt, variables, input_text)
    if prompt.fallback:
        filled = _fill(prompt.fallback, prompt, variables, input_text)
        return replace(filled, used_fallback=prompt.fallback.template or prompt.fallback_key, cause=cause)
    if prompt.fallback_key:
        return PromptFailure(message=f'No fallback prompt found for key: "{prompt.fallback_key}" (step: {step.id})')
    return PromptFailure(
        message=f'The prompt of step "{step.id}" ({prompt.source.file}) cannot be rendered: {cause}. '
        "Supply the value as a run argument, an extra variable or a handoff field, "
        'or give the step a "fallbackKey".'
    )


def fill_template(template: str, variables: Variables, substitutions: list[Substitution] | None = None) -> str:
    """A shipped template with its variables put in; what is missing or empty reads `(not given)`."""
    return substitute(
        template,
        lambda name: None if name == INPUT_TEXT else variables.texts.get(name) or NOT_GIVEN,
        substitutions=substitutions,
    )


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


def _fill(source: SourceText, prompt: StepPrompt, variables: Variables, input_text: str | None) -> RenderedPrompt:
    substitutions: list[Substitution] = []
    if source.template:
        text = fill_template(source.text, variables, substitutions)
    else:
        stdin = input_text if prompt.uses_stdin else None
        values = {**variables.texts, INPUT_TEXT: stdin}
        text = substitute(source.text, values.get, CHECK_FORMS if prompt.bare_names else GATE_FORMS, substitutions)
    return RenderedPrompt(text=text, source=source.file, substitutions=tuple(substitutions))
