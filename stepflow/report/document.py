"""JSON documents for programs: `report.json`, `validate --format json`, `rehearse --json`, and SARIF."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, ClassVar
from urllib.parse import quote

from pydantic import TypeAdapter

from stepflow.domain.agent.definition import Inspection
from stepflow.domain.json import JsonObject, JsonValue, publish_schema
from stepflow.domain.reports.report import NAMES_IN_JSON, Rehearsal, Rehearsed, RunReport
from stepflow.domain.words import Outcome
from stepflow.errors import Example, LintRule, Problem, Severity

SCHEMA = "https://json-schema.org/draft/2020-12/schema"
SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"
#: Fields of classes in the report that are not published, and where these classes are in it.
UNPUBLISHED = {
    "Receipt": {"number", "branch", "commit", "unwritten"},
    "Problem": {"column", "end_column"},
    "IssueImage": {"data"},
    "TextRemoved": {"event"},
    "ValidatorRan": {"entry", "max_attempts", "recoverable", "proof", "event"},
    "ModelChanged": {"step_id", "owner", "retry_prompt", "retry_source", "work", "event"},
}
_PLACES: dict[str, Any] = {
    "effects": {"__all__": UNPUBLISHED["Receipt"]},
    "problems": {"__all__": UNPUBLISHED["Problem"]},
    "images": {"__all__": UNPUBLISHED["IssueImage"]},
    "removed_text": UNPUBLISHED["TextRemoved"],
    "validators": {"__all__": UNPUBLISHED["ValidatorRan"]},
    "history": {"__all__": {"model_change": UNPUBLISHED["ModelChanged"]}},
}


@cache
def _report_adapter() -> TypeAdapter[RunReport]:
    return TypeAdapter(RunReport)


def report_json(report: RunReport) -> JsonObject:
    """Return the report as a JSON object."""
    return {"schema": 1, **_report_adapter().dump_python(report, mode="json", by_alias=True, exclude=_PLACES)}


def error_json(report: RunReport, reason: str) -> JsonObject:
    """Return the document that a command other than a run prints when it fails. Its fields are named as in a report."""
    document = report_json(report)
    return {name: document[name] for name in ("schema", "outcome", "success", "code", "problems")} | {"reason": reason}


def read_report(document: JsonValue) -> RunReport:
    """Return the report in a `report.json`. Raise `ValueError` if the document is not a report."""
    if not isinstance(document, dict) or document.get("schema") != 1:
        raise ValueError("no report of version 1")
    if missing := report_schema()["properties"].keys() - document.keys():  # type: ignore[union-attr]
        raise ValueError(f"no {', '.join(sorted(missing))}")
    return _report_adapter().validate_python({name: each for name, each in document.items() if name != "schema"})


def publish_document(schema: dict[str, Any], title: str) -> JsonObject:
    """Return the JSON Schema of a document of version 1. All fields are required, even those with a default in the
    classes."""
    schema["properties"] = {"schema": {"const": 1, "type": "integer"}, **schema["properties"]}
    for part in (schema, *schema["$defs"].values()):
        if properties := part.get("properties"):
            part["required"] = [*properties]
            for each in properties.values():
                each.pop("default", None)
    return publish_schema({"$schema": SCHEMA, **schema, "title": title})


@cache
def report_schema() -> JsonObject:
    """Return the JSON Schema of the report."""
    schema = _report_adapter().json_schema(mode="serialization", by_alias=True)
    for type_name, unpublished in UNPUBLISHED.items():
        part = schema["$defs"][type_name]
        part["description"] = part["description"].partition("\n")[0]
        for name in unpublished:
            del part["properties"][NAMES_IN_JSON.get(name, name)]
    return publish_document(schema, "stepflow report")


@dataclass(frozen=True, kw_only=True)
class FoundProblem(Problem):
    """One problem. `file` is relative to the folder that was checked, `path` a JSON Pointer into it; `line` and the
    columns count from 1, and are null where there is no place. `why` says why its rule matters."""

    agent: str
    why: str


@dataclass(frozen=True, kw_only=True)
class FoundExposure:
    """What meets in the conversation of one step, by the rule of two, in a private repository or in a public one: each
    of the three lists says where it is from. `breaks_rule` is false where all three meet and `accepted` says why they
    may."""

    agent: str
    step_id: str
    private_repository: bool
    untrusted: tuple[str, ...]
    private: tuple[str, ...]
    ways_out: tuple[str, ...]
    accepted: str
    has_all: bool
    breaks_rule: bool


@dataclass(frozen=True, kw_only=True)
class ProblemsDocument:
    """Every problem of every agent that was checked, and what meets in the steps of those without an error of another
    kind."""

    #: Read by pydantic; also applies to the classes of the fields.
    __pydantic_config__: ClassVar = {"extra": "forbid"}

    errors: int
    warnings: int
    notes: int
    agents: tuple[str, ...]
    problems: tuple[FoundProblem, ...]
    exposures: tuple[FoundExposure, ...]


@cache
def _problems_adapter() -> TypeAdapter[ProblemsDocument]:
    return TypeAdapter(ProblemsDocument)


def problems_json(inspections: Mapping[str, Inspection], rules: Mapping[str, LintRule]) -> JsonObject:
    """Return all problems as a JSON object."""
    problems = [(agent, problem) for agent, inspection in inspections.items() for problem in inspection.problems]
    counts = Counter(problem.severity for _, problem in problems)
    document = ProblemsDocument(
        errors=counts[Severity.ERROR],
        warnings=counts[Severity.WARNING],
        notes=counts[Severity.NOTE],
        agents=tuple(inspections),
        problems=tuple(
            FoundProblem(**vars(problem), agent=agent, why=rules[problem.code].why if problem.code in rules else "")
            for agent, problem in problems
        ),
        exposures=tuple(
            FoundExposure(**vars(each), agent=agent, has_all=each.has_all, breaks_rule=each.breaks_rule)
            for agent, inspection in inspections.items()
            for each in inspection.exposures
        ),
    )
    return {"schema": 1, **_problems_adapter().dump_python(document, mode="json")}


def problems_schema() -> JsonObject:
    """Return the JSON Schema of the problems."""
    return publish_document(_problems_adapter().json_schema(mode="serialization"), "stepflow problems")


def rehearsal_json(rehearsal: Rehearsal) -> JsonObject:
    """Return everything in the table as a JSON object, with the same words."""
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


def sarif_log(problems: Iterable[Problem], rules: Mapping[str, LintRule], *, version: str) -> JsonObject:
    """Return the problems as SARIF 2.1.0, for GitHub's code scanning and for editors: one log with one run. The files
    of the problems must be relative to the repository's root.

    https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html, and the parts that GitHub reads:
    https://docs.github.com/en/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning
    """
    known, found = list(rules), tuple(problems)
    driver: JsonObject = {
        "name": "stepflow",
        "version": version,
        "rules": [_rule(rule) for rule in rules.values()],
    }
    run: JsonObject = {
        "tool": {"driver": driver},
        # Columns count characters, not UTF-16 code units.
        "columnKind": "unicodeCodePoints",
        "results": [_result(problem, known) for problem in found if problem.file],
    }
    # What is wrong with a shipped agent lies in no file of the repository. A place that is not there misleads.
    if elsewhere := [_notification(problem) for problem in found if not problem.file]:
        run["invocations"] = [{"executionSuccessful": True, "toolConfigurationNotifications": [*elsewhere]}]
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: LintRule) -> JsonObject:
    examples = [("Wrong", one) for one in rule.wrong] + [("Right", one) for one in rule.right]
    plain = "\n\n".join([rule.why, *(f"{word} ({one.location}):\n{one.text}" for word, one in examples)])
    marked = "\n\n".join([rule.why, *(_fence_example(word, one) for word, one in examples)])
    # GitHub's severities for rules that are not about security.
    severity = "recommendation" if rule.severity.value == "note" else rule.severity.value
    return {
        "id": rule.code,
        "name": rule.code,
        "shortDescription": {"text": rule.broken},
        "fullDescription": {"text": rule.why or rule.broken},
        "helpUri": rule.page,
        "help": {"text": plain or rule.broken, "markdown": marked or rule.broken},
        "defaultConfiguration": {"level": rule.severity.value},
        "properties": {"tags": ["stepflow"], "problem.severity": severity, "precision": "very-high"},
    }


def _fence_example(word: str, example: Example) -> str:
    return f"{word}, `{example.location}`:\n\n```{example.language}\n{example.text}\n```"


def _notification(problem: Problem) -> JsonObject:
    return {
        "level": problem.severity.value,
        "message": {"text": f"{problem.message}. {problem.fix}"},
        "associatedRule": {"id": problem.code},
    }


def _result(problem: Problem, known: list[str]) -> JsonObject:
    file: JsonObject = {"uri": quote(problem.file.encode(errors="replace")), "uriBaseId": ROOT}
    # GitHub does not show a result without a line.
    region: JsonObject = {"startLine": problem.line or 1}
    if problem.line and problem.column and problem.end_column:
        region |= {"startColumn": problem.column, "endColumn": problem.end_column}
    # A problem keeps its fingerprint when only its line changes.
    identity = "\0".join((problem.code, problem.file, problem.path, problem.message))
    fingerprint = hashlib.sha256(identity.encode(errors="replace")).hexdigest()[:32]
    result: JsonObject = {
        "ruleId": problem.code,
        "level": problem.severity.value,
        "message": {"text": f"{problem.message}. {problem.fix}"},
        "locations": [{"physicalLocation": {"artifactLocation": file, "region": region}}],
        "partialFingerprints": {"stepflow/v1": fingerprint},
    }
    if problem.code in known:
        result["ruleIndex"] = known.index(problem.code)
    return result
