"""What counts of a prompt file (prompts.md §2).

Takes: the file's text. Gives: the prompt without front matter, trimmed, and where it begins in the file.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PromptText:
    """`first_line` is the file's line on which `text` begins; `yaml_fault` says what is wrong with the front matter."""

    text: str
    first_line: int
    yaml_fault: str | None = None
    yaml_line: int = 1


def read_prompt(text: str) -> PromptText:
    """Normalise line ends, cut the front matter off, trim."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    end = next((index for index, line in enumerate(lines[1:], 1) if line == "---"), 0) if lines[0] == "---" else 0
    body = "\n".join(lines[end + 1 :]) if end else text
    blank = body[: len(body) - len(body.lstrip())].count("\n")
    fault, line = _yaml_fault("\n".join(lines[1:end])) if end else (None, 0)
    first = (end + 1 if end else 0) + blank + 1
    return PromptText(text=body.strip(), first_line=first, yaml_fault=fault, yaml_line=line + 2)


def _yaml_fault(front: str) -> tuple[str | None, int]:
    """What is wrong with a YAML text, and on which of its lines, from 0.

    Only its form is read, nothing is built from it: its content has no effect.
    """
    from stepflow.yaml_text import YamlFault, check_yaml  # noqa: PLC0415 - costs time where no front matter is

    try:
        check_yaml(front)
    except YamlFault as fault:
        return fault.problem, (fault.line or 1) - 1
    return None, 0
