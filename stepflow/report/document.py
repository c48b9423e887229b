"""The report as JSON: `report.json` and what `--json` prints (cli.md "Report").

Takes: `RunReport`. Gives: a JSON object that fits one published model; the schema of that model.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from stepflow.domain.effect import EffectKind, EffectStatus
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.problem import Severity
from stepflow.domain.removal import RemovalKind
from stepflow.domain.words import Dialect, Intent, Outcome, StepKind, VerdictType

if TYPE_CHECKING:
    from stepflow.domain.report import HistoryEntry, RunReport


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


#: Attributes of `RunReport` and `HistoryEntry` that have another name in JSON (cli.md "Report").
RENAMED = {"final_step_id": "final_step", "step_id": "step"}


def report_json(report: RunReport) -> JsonObject:
    """The JSON form of a report."""
    fields = {RENAMED.get(name, name): value for name, value in vars(report).items()}
    fields["history"] = tuple(_history_fields(line) for line in report.history)
    document = ReportDocument.model_validate({"schema": 1, **fields})
    dumped: JsonObject = document.model_dump(mode="json", by_alias=True)
    return dumped


def report_schema() -> JsonObject:
    """JSON Schema of the report."""
    schema: JsonObject = ReportDocument.model_json_schema(mode="serialization", by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _history_fields(line: HistoryEntry) -> dict[str, object]:
    return {RENAMED.get(name, name): value for name, value in vars(line).items()}
