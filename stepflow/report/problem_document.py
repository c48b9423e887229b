"""The problems of agents as JSON: what `stepflow validate --format json` prints.

Takes: problems and the rules. Gives: a JSON object that fits one published model; the schema of that model.
May touch: nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from stepflow.domain.json import JsonObject
from stepflow.domain.problem import Severity
from stepflow.domain.suggestion import Change

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.domain.problem import Inspection, Problem
    from stepflow.domain.rule import Rule


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True, defer_build=True)


class RegionDocument(_Part):
    """A piece of a text: lines and columns from 1, in characters; the end is the first character after it."""

    line: int
    column: int
    end_line: int
    end_column: int


class EditDocument(_Part):
    """One edit. Whoever puts `text` in the place of `region` has made it; a `move` has no region, its `value` is the
    new path of the file, relative to the agent's folder."""

    change: Change
    file: str
    path: str
    value: str
    region: RegionDocument | None
    text: str


class SuggestionDocument(_Part):
    """Edits that together mend the problem, and the same as a sentence."""

    words: str
    edits: tuple[EditDocument, ...]


class FoundProblem(_Part):
    """One problem. `file` is relative to the folder that was checked, `path` a JSON Pointer into it; `line` and the
    columns count from 1, and are null where there is no place. `why` says why its rule matters."""

    agent: str
    severity: Severity
    code: str
    file: str
    path: str
    line: int | None
    column: int | None
    end_column: int | None
    message: str
    why: str
    fix: str
    suggestion: SuggestionDocument | None


class ProblemsDocument(_Part):
    """Every problem of every agent that was checked."""

    schema_: int = 1
    errors: int
    warnings: int
    notes: int
    agents: tuple[str, ...]
    problems: tuple[FoundProblem, ...]

    model_config = ConfigDict(
        alias_generator=lambda name: name.rstrip("_"), populate_by_name=True, title="stepflow problems"
    )


def problems_json(found: Mapping[str, Inspection], rules: Mapping[str, Rule]) -> JsonObject:
    """The JSON form of all problems."""
    told = [(agent, problem) for agent, inspection in found.items() for problem in inspection.problems]
    counts = Counter(problem.severity for _, problem in told)
    document = ProblemsDocument(
        errors=counts[Severity.ERROR],
        warnings=counts[Severity.WARNING],
        notes=counts[Severity.NOTE],
        agents=tuple(found),
        problems=tuple(_found(agent, problem, rules) for agent, problem in told),
    )
    dumped: JsonObject = document.model_dump(mode="json", by_alias=True)
    return dumped


def problems_schema() -> JsonObject:
    """JSON Schema of the problems."""
    schema: JsonObject = ProblemsDocument.model_json_schema(mode="serialization", by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _found(agent: str, problem: Problem, rules: Mapping[str, Rule]) -> FoundProblem:
    why = rules[problem.code].why if problem.code in rules else ""
    return FoundProblem.model_validate({**vars(problem), "agent": agent, "why": why})
