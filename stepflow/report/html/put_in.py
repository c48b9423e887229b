"""Where in a rendered prompt the value of each variable stands, found by comparing it with its template.

A value that holds the words which follow it is marked too short; nothing else depends on the marks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.engine.prompt.render import CHECK_FORMS, GATE_FORMS, insert_sections
from stepflow.report.plain import visible

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator, Mapping

    from stepflow.domain.definition import AgentDefinition, StepPrompt

#: Begin, end and variable of what was put in.
Put = tuple[int, int, str]


@dataclass(frozen=True, kw_only=True)
class Template:
    """A prompt's text before anything was put into it: words, and after each the placeholder with its name."""

    words: tuple[str, ...]
    placeholders: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, text: str, forms: re.Pattern[str]) -> Template:
        """The template of a text."""
        text = visible(text)
        found = [*forms.finditer(text)]
        begins = [0, *(match.end() for match in found)]
        ends = [*(match.start() for match in found), len(text)]
        return cls(
            words=tuple(text[begin:end] for begin, end in zip(begins, ends, strict=True)),
            placeholders=tuple((match[0], _name(match)) for match in found),
        )


def templates_of(agent: AgentDefinition | None) -> dict[str, Template]:
    """The templates of all prompts that a step may be asked, by the file that the journal names."""
    if agent is None:
        return {}
    sections = {section_id: section.text for section_id, section in agent.sections.items()}
    return {
        file: Template.of(insert_sections(text, sections), CHECK_FORMS if prompt.bare_names else GATE_FORMS)
        for prompt in _prompts(agent)
        for file, text in _texts(prompt)
    }


def put_in(source: str, prompt: str, templates: Mapping[str, Template]) -> tuple[Put, ...]:
    """What was put into a visible prompt; nothing where it does not fit its template."""
    template = templates.get(source)
    if template is None or not prompt.startswith(template.words[0]):
        return ()
    puts: list[Put] = []
    at = len(template.words[0])
    for number, (form, name) in enumerate(template.placeholders, 1):
        words = template.words[number]
        is_last = number == len(template.placeholders)
        end = _end(prompt, words, at, is_last=is_last)
        if end < at:
            return ()
        if end > at and prompt[at:end] != form:
            puts.append((at, end, name))
        at = end + len(words)
    return tuple(puts) if prompt.isascii() else tuple(_counted_by_script(prompt, puts))


def _end(prompt: str, words: str, at: int, *, is_last: bool) -> int:
    """Where a value ends: where the words after its placeholder begin; below zero where they do not come."""
    if not is_last:
        return prompt.find(words, at)
    return len(prompt) - len(words) if prompt.endswith(words) else -1


def _counted_by_script(prompt: str, puts: Iterable[Put]) -> Iterator[Put]:
    """The same places as a browser counts: in units of UTF-16."""
    for begin, end, name in puts:
        yield _units(prompt[:begin]), _units(prompt[:end]), name


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _prompts(agent: AgentDefinition) -> Iterator[StepPrompt]:
    for step in agent.steps.values():
        yield from filter(None, (step.prompt, step.check.prompt if step.check else None))


def _texts(prompt: StepPrompt) -> Iterator[tuple[str, str]]:
    for source in (prompt.source, prompt.fallback):
        if source is not None:
            yield source.file, source.text


def _name(match: re.Match[str]) -> str:
    groups = {key: value for key, value in match.groupdict().items() if value is not None}
    return groups.get("input") or next(iter(groups.values()))
