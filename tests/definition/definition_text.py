"""A definition as text for a golden file: every value that is not a field's default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from enum import Enum

import yaml

from stepflow.domain.definition import AgentDefinition, SourceText
from stepflow.domain.problem import Problem


def definition_text(agent: AgentDefinition) -> str:
    """YAML, in the order of the fields. The digest is left out: any change of a file changes it. So are the texts of
    shipped templates: their words have tests of their own."""
    shown = replace(agent, digest="")
    return yaml.safe_dump(_plain(shown), sort_keys=False, allow_unicode=True, width=120)


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Problem):
        return f"{value.code}: {value.message}"
    if isinstance(value, SourceText) and value.template:
        value = replace(value, text="")
    if is_dataclass(value):
        shown = [field for field in fields(value) if getattr(value, field.name) != _default(field)]
        return {type(value).__name__: {field.name: _plain(getattr(value, field.name)) for field in shown}}
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _default(field: Field) -> object:
    return field.default_factory() if field.default_factory is not MISSING else field.default
