"""The problems of agents as SARIF 2.1.0, for GitHub's code scanning and for editors.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html, and what GitHub reads of it:
https://docs.github.com/en/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stepflow.domain.json import JsonObject
    from stepflow.domain.problem import Example, LintRule, Problem

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"


def sarif_log(problems: Iterable[Problem], rules: Mapping[str, LintRule], *, version: str) -> JsonObject:
    """One log with one run. The files of the problems must be relative to the repository's root."""
    known = list(rules)
    driver: JsonObject = {
        "name": "stepflow",
        "version": version,
        "rules": [_rule(rule) for rule in rules.values()],
    }
    run: JsonObject = {
        "tool": {"driver": driver},
        # Our columns count characters, not UTF-16 units.
        "columnKind": "unicodeCodePoints",
        "results": [_result(problem, known) for problem in problems],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: LintRule) -> JsonObject:
    examples = [("Wrong", one) for one in rule.wrong] + [("Right", one) for one in rule.right]
    plain = "\n\n".join([rule.why, *(f"{word} ({one.location}):\n{one.text}" for word, one in examples)])
    marked = "\n\n".join([rule.why, *(_fenced(word, one) for word, one in examples)])
    # GitHub's words for rules that are about no security.
    severity = "recommendation" if rule.severity.value == "note" else rule.severity.value
    return {
        "id": rule.code,
        "name": rule.code,
        "shortDescription": {"text": rule.broken},
        "fullDescription": {"text": rule.why or rule.broken},
        "help": {"text": plain or rule.broken, "markdown": marked or rule.broken},
        "defaultConfiguration": {"level": rule.severity.value},
        "properties": {"tags": ["stepflow"], "problem.severity": severity, "precision": "very-high"},
    }


def _fenced(word: str, example: Example) -> str:
    return f"{word}, `{example.location}`:\n\n```{example.language}\n{example.text}\n```"


def _result(problem: Problem, known: list[str]) -> JsonObject:
    file: JsonObject = {"uri": quote(problem.file.encode(errors="replace")), "uriBaseId": ROOT}
    # GitHub shows no result without a line.
    region: JsonObject = {"startLine": problem.line or 1}
    if problem.line and problem.column and problem.end_column:
        region |= {"startColumn": problem.column, "endColumn": problem.end_column}
    # The same problem has the same fingerprint when only its line changes.
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
