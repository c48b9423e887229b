"""The templates of this package, rendered with every value escaped and every character visible."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from stepflow.report.plain import visible


def render(name: str, /, **values: object) -> str:
    """The template with its values put in."""
    return _environment().get_template(name).render(values)


def read_text(name: str) -> str:
    """A file of this room."""
    return (files("stepflow.report") / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    return Environment(
        loader=FunctionLoader(read_text),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _shown(value: object) -> object:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
