"""Reads a tool's input, which a model wrote.

Takes: the input object. Gives: typed values, or a `Refusal` that names the field.
May touch: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from .paths import Refusal

Inputs = Mapping[str, object]


def text(inputs: Inputs, name: str) -> str:
    """A string that must be there."""
    value = inputs.get(name)
    if not isinstance(value, str):
        raise Refusal(f"{name} is missing" if value is None else f"{name} must be a string")
    return value


def optional_text(inputs: Inputs, name: str) -> str:
    """A string, empty when it is left out."""
    return "" if inputs.get(name) is None else text(inputs, name)


def flag(inputs: Inputs, name: str) -> bool:
    """A boolean, false when it is left out."""
    value = inputs.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise Refusal(f"{name} must be true or false")
    return value


def number(inputs: Inputs, name: str) -> int:
    """A whole number from 0, 0 when it is left out."""
    value = inputs.get(name)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Refusal(f"{name} must be a whole number from 0")
    return value


def line_range(inputs: Inputs, name: str) -> tuple[int, int] | None:
    """First and last line, counted from 1; a last line of 0 or less means the end."""
    value = inputs.get(name)
    if value is None or value == []:
        return None
    if not isinstance(value, list) or len(value) != 2 or not all(type(end) is int for end in value):
        raise Refusal(f"{name} must be two whole numbers, [first line, last line]")
    first, last = value
    if first > last > 0:
        raise Refusal(f"{name}: the first line {first} comes after the last line {last}")
    return max(first, 1), max(last, 0)
