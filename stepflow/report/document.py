"""The JSON documents for programs: `report.json`, `validate --format json`, and `rehearse --json` (cli.md)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from stepflow.domain.effect import EffectKind, EffectStatus
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.problem import Severity
from stepflow.domain.visible_text import RemovalKind
from stepflow.domain.words import Dialect, Intent, Outcome, StepKind, VerdictType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.domain.problem import Inspection, LintRule
    from stepflow.domain.report import HistoryEntry, Rehearsal, Rehearsed, RunReport

#: Attributes of `RunReport` and `HistoryEntry` that have another name in JSON (cli.md "Report").
RENAMED = {"final_step_id": "final_step", "step_id": "step"}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True, defer_build=True)


class UsageDocument(_Part):
    """Tokens; `input_tokens` excludes the two cache figures."""

    input_tokens: int
    output_tokens: int
    cache_write_tokens: int
    cache_read_tokens: int


class CheckDocument(_Part):
    """Outcome of a check-dialect step."""

    result: Literal["ok", "ng"]
    message: str


class HistoryDocument(_Part):
    """One iteration. `transition` is `none` when it produced none; `cost_usd` is null when a price is unknown."""

    iteration: int
    step: str
    kind: StepKind | None
    intent: Intent | None
    transition: str
    target: str | None
    reason: str
    check_result: CheckDocument | None
    format_retries: int
    tool_calls: int
    model: str
    usage: UsageDocument
    cost_usd: float | None
    seconds: float


class ValidatorDocument(_Part):
    """One run of a validator; `action` says what a failure led to, `warnings` what was changed under it."""

    iteration: int
    name: str
    passed: bool
    exit_code: int
    pattern: str
    attempt: int
    action: str | None
    seconds: float
    output_tail: str
    warnings: tuple[str, ...]


class EffectDocument(_Part):
    """One write to GitHub, planned or done."""

    kind: EffectKind
    status: EffectStatus
    detail: str
    url: str


class RemovedPieceDocument(_Part):
    """A piece of text that people do not see; `where` names the text, invisible characters are spelled out."""

    kind: RemovalKind
    where: str
    text: str


class RemovedTextDocument(_Part):
    """What was kept from the model: how many pieces, and the first of them, each cut."""

    count: int
    pieces: tuple[RemovedPieceDocument, ...]


class ProblemDocument(_Part):
    """One finding of the loader."""

    severity: Severity
    code: str
    file: str
    path: str
    line: int | None
    message: str
    fix: str


class ReportDocument(_Part):
    """Everything about one run. `validated` is true only when every validator was green at the last closing."""

    schema_: Literal[1]
    run_id: str
    outcome: Outcome
    code: str | None
    reason: str
    success: bool
    iterations: int
    agent: str
    dialect: Dialect | Literal[""]
    definition_digest: str
    verdict_type: VerdictType | Literal[""]
    entry_step_id: str
    final_step: str
    history: tuple[HistoryDocument, ...]
    structured_output: JsonObject | None
    verdict: str | None
    handoff: dict[str, dict[str, JsonValue]]
    validators: tuple[ValidatorDocument, ...]
    validated: bool
    effects: tuple[EffectDocument, ...]
    usage: UsageDocument
    cost_usd: float | None
    seconds: float
    problems: tuple[ProblemDocument, ...]
    spec_violations: int
    issue: int | None
    base_commit: str
    isolation: dict[str, str]
    canaries: dict[str, str]
    removed_text: RemovedTextDocument
    failure_report: str | None
    kept_branch: str
    kept_commit: str
    issue_cost: str
    run_folder: str
    host_run_folder: str
    provider: str

    model_config = ConfigDict(alias_generator=lambda name: name.rstrip("_"), title="stepflow report")


def report_json(report: RunReport) -> JsonObject:
    """The JSON form of a report."""
    fields = {"schema": 1, **_renamed(report), "history": tuple(map(_renamed, report.history))}
    dumped: JsonObject = ReportDocument.model_validate(fields).model_dump(mode="json", by_alias=True)
    return dumped


def report_schema() -> JsonObject:
    """JSON Schema of the report."""
    return _published_schema(ReportDocument)


def _renamed(part: RunReport | HistoryEntry) -> dict[str, object]:
    return {RENAMED.get(name, name): value for name, value in vars(part).items()}


def _published_schema(model: type[BaseModel]) -> JsonObject:
    schema: JsonObject = model.model_json_schema(mode="serialization", by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


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


def problems_json(inspections: Mapping[str, Inspection], rules: Mapping[str, LintRule]) -> JsonObject:
    """The JSON form of all problems."""
    problems = [(agent, problem) for agent, inspection in inspections.items() for problem in inspection.problems]
    counts = Counter(problem.severity for _, problem in problems)
    document = ProblemsDocument(
        errors=counts[Severity.ERROR],
        warnings=counts[Severity.WARNING],
        notes=counts[Severity.NOTE],
        agents=tuple(inspections),
        problems=tuple(
            FoundProblem.model_validate(
                {**vars(problem), "agent": agent, "why": rules[problem.code].why if problem.code in rules else ""}
            )
            for agent, problem in problems
        ),
    )
    dumped: JsonObject = document.model_dump(mode="json", by_alias=True)
    return dumped


def problems_schema() -> JsonObject:
    """JSON Schema of the problems."""
    return _published_schema(ProblemsDocument)


def rehearsal_json(rehearsal: Rehearsal) -> JsonObject:
    """Everything that the table shows, under the same words."""
    return {
        "schema": 1,
        "outcome": rehearsal.outcome.value,
        "success": rehearsal.outcome is Outcome.COMPLETED,
        "scenarios": [_scenario(each) for each in rehearsal.scenarios],
        "unrehearsed": list(rehearsal.unrehearsed),
    }


def _scenario(rehearsed: Rehearsed) -> JsonObject:
    fields: JsonObject = json.loads(json.dumps(asdict(rehearsed)))
    del fields["log"]
    fields |= {"scenario": fields.pop("name"), "passed": rehearsed.passed, "seconds": round(rehearsed.seconds, 3)}
    return fields
