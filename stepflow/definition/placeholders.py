"""The placeholders of a prompt that nothing fills, each reported where it stands, with the name that was meant."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from stepflow.definition.diagnostics import FileProblems, closest_match, hint
from stepflow.definition.prompt_files import Prompt
from stepflow.engine.prompt.render import INPUT_TEXT
from stepflow.engine.prompt.template import Tag, Use
from stepflow.engine.prompt.variables import run_variable_names


def closest_variable(path: str, names: Collection[str]) -> str | None:
    """The variable that was meant by a name or a dotted path: spelled alike, or a handoff by its key alone."""
    parts = path.removeprefix("uv.").split(".")
    by_key = (name for name in names if name.endswith(f"_{parts[-1]}") and name not in run_variable_names(None))
    flat = re.sub(r"[^A-Za-z0-9_-]", "_", "_".join(parts))
    for near in (flat, *sorted(by_key, key=len), closest_match(flat, names), parts[0]):
        if near in names:
            return near
    return None


@dataclass(frozen=True, kw_only=True)
class TagReporter:
    """Reports the tags of one prompt that stay as text, or put in nothing (SF512, SF516).

    `owner` says whose prompt it is, `names` are the variables that it may use, and those that are `plain` have no
    parts. `advice` is what to do about a name that nothing has.
    """

    prompt: Prompt
    owner: str
    names: Collection[str]
    plain: Collection[str]
    problems: FileProblems
    advice: str = "Declare a parameter, hand it off in a step"

    def report(self, tags: Iterable[Tag], *, takes_sections: bool = False) -> None:
        """Report each way of writing once."""
        for tag in {tag.written: tag for tag in reversed(tuple(tags))}.values():
            match tag.use:
                case Use.UNKNOWN if tag.is_explicit and "." in tag.path:
                    self._add_malformed(tag)
                case Use.UNKNOWN:
                    self._add_unknown(tag)
                case Use.FAULT:
                    self._add(tag, tag.fault, "Correct it")
                case Use.SECTION if not takes_sections:
                    self._add(tag, "stays as text: only prompts of steps with gates take sections in", "Write the text")
                case Use.VALUE if "." in tag.path.removeprefix("uv.") and tag.name in self.plain:
                    self._add(tag, f'puts in nothing: "{tag.name}" has no parts', f'Write "{{uv-{tag.name}}}"')

    def _add_malformed(self, tag: Tag) -> None:
        near = closest_variable(tag.path, self.names)
        message = f'{self.owner}"{tag.written}" is no variable: a name has letters, digits, "_" and "-"{hint(near)}'
        fix = f'Write "{{uv-{near or re.sub("[^A-Za-z0-9_-]", "_", tag.path)}}}".'
        own = self.problems.diagnostics.of(self.prompt.source.file)
        own.add("SF512", "", message, fix, line=self.prompt.line_of(tag), word=tag.written)

    def _add_unknown(self, tag: Tag) -> None:
        near = closest_variable(tag.path, self.names)
        if tag.path == INPUT_TEXT:
            self._add(tag, 'stays as text: the step does not have "usesStdin"', 'Set "usesStdin": true')
        elif tag.path in self.names:
            self._add(tag, "stays as text in a code block", f'Write "{{uv-{tag.path}}}" for its value')
        elif not tag.in_code or (near and tag.written.startswith("{{")):  # other code is as it is meant to be
            is_block = "#" in tag.written
            state = "asks for what nothing supplies" if is_block else "stays as text: nothing supplies it"
            meant = tag.written.replace(tag.path, near or "") if is_block else f"{{uv-{near}}}"
            self._add(tag, state + hint(near), f'Write "{meant}"' if near else self.advice)

    def _add(self, tag: Tag, state: str, fix: str) -> None:
        own = self.problems.diagnostics.of(self.prompt.source.file)
        message, fix = (
            f'{self.owner}"{tag.written}" {state}',
            f'{fix}, or write "\\{tag.written}" if the text is meant.',
        )
        own.add("SF516", "", message, fix, line=self.prompt.line_of(tag), word=tag.written)
