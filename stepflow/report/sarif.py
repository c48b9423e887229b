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
    plain = "\n\n".join([rule.why, *(f"{word} ({one.place}):\n{one.text}" for word, one in examples)])
    marked = "\n\n".join([rule.why, *(_fenced(word, one) for word, one in examples)])
    return {
        "id": rule.code,
        "name": rule.code,
        "shortDescription": {"text": rule.broken},
        "fullDescription": {"text": rule.why or rule.broken},
        "help": {"text": plain or rule.broken, "markdown": marked or rule.broken},
        "defaultConfiguration": {"level": rule.severity.value},
        "properties": {"tags": ["stepflow"], "problem.severity": _severity(rule), "precision": "very-high"},
    }


def _severity(rule: LintRule) -> str:
    """GitHub's words for rules that are about no security."""
    return "recommendation" if rule.severity.value == "note" else rule.severity.value


def _fenced(word: str, example: Example) -> str:
    return f"{word}, `{example.place}`:\n\n```{example.language}\n{example.text}\n```"


def _result(problem: Problem, known: list[str]) -> JsonObject:
    text = f"{problem.message}. {problem.fix}"
    result: JsonObject = {
        "ruleId": problem.code,
        "level": problem.severity.value,
        "message": {"text": text},
        "locations": [{"physicalLocation": {"artifactLocation": _file(problem.file), "region": _region(problem)}}],
        "partialFingerprints": {"stepflow/v1": _fingerprint(problem)},
    }
    if problem.code in known:
        result["ruleIndex"] = known.index(problem.code)
    return result


def _file(path: str) -> JsonObject:
    return {"uri": quote(path.encode(errors="replace")), "uriBaseId": ROOT}


def _region(problem: Problem) -> JsonObject:
    # GitHub shows no result without a line.
    region: JsonObject = {"startLine": problem.line or 1}
    if problem.line and problem.column and problem.end_column:
        region |= {"startColumn": problem.column, "endColumn": problem.end_column}
    return region


def _fingerprint(problem: Problem) -> str:
    """The same problem has the same one when only its line changes."""
    text = "\0".join((problem.code, problem.file, problem.path, problem.message))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]
