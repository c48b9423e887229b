"""Forms of values in an agent's files, with the codes of the rules that a wrong one breaks."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo
from pydantic.alias_generators import to_camel

from stepflow.definition.folder import unsafe_reason
from stepflow.domain.agent.agent_settings import refuse


def is_dotted(path: str) -> bool:
    """Whether a string is names separated by dots."""
    return all(part and part == part.strip() for part in path.split("."))


def dotted(code: str, message: str, fix: str = "Write names with dots between them.") -> AfterValidator:
    """Check that a string is a dotted path; `message` has `{}` in its place."""

    def check(value: str) -> str:
        if value.strip() and not is_dotted(value):
            raise refuse(code, message.format(value), fix)
        return value

    return AfterValidator(check)


def inside(message: str, fix: str = "Name a place inside the agent folder.") -> AfterValidator:
    """Check that a path cannot lead out of its folder; `message` has `{}` in place of the path, and what is wrong with
    it goes to its end."""

    def check(path: str) -> str:
        if reason := unsafe_reason(path):
            raise refuse("SF109", f"{message.format(path)} {reason}", fix)
        return path

    return AfterValidator(check)


#: The placeholders of a path template.
TEMPLATE_PARTS = ("c1", "c2", "c3", "edition", "adaptation")
_BRACES = re.compile(r"\{([^{}]*)\}")


def fill_path(template: str, parts: dict[str, str]) -> str:
    """The path that a sound template gives; a part that is not given is empty."""
    return _BRACES.sub(lambda match: parts.get(match[1], ""), template)


def _check_template(template: str, info: ValidationInfo) -> str:
    written = f'"{to_camel(info.field_name or "")}" is "{template}"'
    unknown = [part for part in _BRACES.findall(template) if part not in TEMPLATE_PARTS]
    if unknown or re.search(r"[{}]", _BRACES.sub("", template)):
        fault = f'"{{{unknown[0]}}}" is not part of an address' if unknown else "a brace is unmatched"
        fix = f"Use only {', '.join('{' + part + '}' for part in TEMPLATE_PARTS)}."
        raise refuse("SF514", f"{written}: {fault}", fix)
    if reason := unsafe_reason(fill_path(template, dict.fromkeys(TEMPLATE_PARTS, "x"))):
        raise refuse("SF109", f"{written}, which {reason}", "Name a place inside the agent folder.")
    return template


PathTemplate = Annotated[str, AfterValidator(_check_template)]
