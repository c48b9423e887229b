"""The types of inputs, and how a string becomes one.

Takes: an input's text. Gives: the typed value, or a `ValueError` that says what to write.
May touch: nothing.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from stepflow.domain.json import JsonObject
from stepflow.domain.words import Permission


class Mode(StrEnum):
    """What the action does."""

    RUN = "run"
    VALIDATE = "validate"
    REHEARSE = "rehearse"
    PREFLIGHT = "preflight"
    PLAN = "plan"
    GATHER = "gather"


class BoundaryMode(StrEnum):
    """Whether the boundary writes or only plans."""

    GITHUB = "github"
    DRY_RUN = "dry-run"


def empty_to_none(value: object) -> object:
    """An empty text is an input that was not given."""
    return None if isinstance(value, str) and not value.strip() else value


def read_flag(value: object) -> object:
    """True or false, in the words that the toolkit of JavaScript actions accepts."""
    words = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
    if isinstance(value, str) and value.strip() in words:
        return words[value.strip()]
    if isinstance(value, bool):
        return value
    raise ValueError("write true or false")


def at_least_read(value: Permission) -> Permission:
    """A demand that everybody meets is none."""
    if value is Permission.NONE:
        raise ValueError("write read, triage, write, maintain or admin")
    return value


def split_words(value: object) -> object:
    """Words between commas or blanks."""
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


def split_lines(value: object) -> object:
    """Lines that are not blank."""
    return tuple(line for line in value.splitlines() if line.strip()) if isinstance(value, str) else value


def json_numbers(value: object) -> object:
    """A JSON list of issue numbers."""
    if not isinstance(value, str):
        return value
    try:
        loaded = json.loads(value) if value.strip() else []
    except ValueError as exc:
        raise ValueError(f"not valid JSON: {exc}") from exc
    if not isinstance(loaded, list) or not all(type(number) is int and number > 0 for number in loaded):
        raise ValueError("write a JSON list of issue numbers, such as [7, 12]")
    return tuple(loaded)


def yaml_map(value: object) -> object:
    """A YAML map with text keys."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return {}
    from stepflow.yaml_text import YamlFault, read_yaml  # noqa: PLC0415 - costs time that an empty input need not take

    try:
        _, loaded = read_yaml(value)
    except YamlFault as exc:
        place = f" (line {exc.line})" if exc.line else ""
        raise ValueError(f"not valid YAML: {exc.problem}{place}") from exc
    if not isinstance(loaded, dict):
        raise ValueError("write a YAML map, one `name: value` per line")
    return {str(key): item for key, item in loaded.items()}


Flag = Annotated[bool, BeforeValidator(read_flag)]
Words = Annotated[tuple[str, ...], BeforeValidator(split_words)]
Lines = Annotated[tuple[str, ...], BeforeValidator(split_lines)]
Numbers = Annotated[tuple[int, ...], BeforeValidator(json_numbers)]
Count = Annotated[int | None, BeforeValidator(empty_to_none), Field(ge=1)]
Text = Annotated[str | None, BeforeValidator(empty_to_none)]
Secret = Annotated[SecretStr | None, BeforeValidator(empty_to_none)]
OptionalFlag = Annotated[bool | None, BeforeValidator(lambda value: None if value in (None, "") else read_flag(value))]
Dollars = Annotated[float, Field(gt=0, allow_inf_nan=False)]
OptionalDollars = Annotated[float | None, BeforeValidator(empty_to_none), Field(gt=0, allow_inf_nan=False)]
LeastPermission = Annotated[Permission, AfterValidator(at_least_read)]
Map = Annotated[JsonObject, BeforeValidator(yaml_map)]
