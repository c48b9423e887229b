"""SARIF: the official schema and what GitHub reads of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import jsonschema
import pytest

from stepflow.definition.loading import inspect_agent
from stepflow.definition.rules import rules
from stepflow.errors import Severity
from stepflow.report.document import sarif_log
from tests.definition.load_cases import cases

#: Ships the schema of the OASIS standard, as schemastore.org publishes it.
PACKAGE = "@microsoft/jest-sarif@1.0.0-beta.0"
SCHEMA = "package/lib/schemas/sarif-2.1.0-rtm.5.json"
ARGUED = [case for case in cases("invalid") if "arguments" not in case.data]


def log_of(name: str, root: Path) -> dict:
    case = next(case for case in ARGUED if case.name == name)
    inspected = inspect_agent(case.agent, root=case.build(root), **case.options)
    return sarif_log(inspected.problems, rules(), version="0.1.0")


def test_every_rule_has_what_github_shows_of_it(tmp_path: Path) -> None:
    (run,) = log_of("target-missing", tmp_path)["runs"]
    published = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in published] == list(rules())
    for rule in published:
        assert rule["shortDescription"]["text"]
        assert rule["fullDescription"]["text"].endswith(".")
        assert "Wrong" in rule["help"]["text"]
        assert "```" in rule["help"]["markdown"]
        assert rule["defaultConfiguration"]["level"] in ("error", "warning", "note")
        assert rule["properties"]["problem.severity"] in ("error", "warning", "recommendation")


def test_results_have_rule_place_and_a_fingerprint_that_no_other_line_changes(tmp_path: Path) -> None:
    (run,) = log_of("target-missing", tmp_path / "a")["runs"]
    result = run["results"][0]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "SF343"
    location = result["locations"][0]["physicalLocation"]
    assert location["artifactLocation"] == {"uri": ".agent/demo/steps_registry.json", "uriBaseId": "%SRCROOT%"}
    line = (tmp_path / "a/.agent/demo/steps_registry.json").read_text().split("\n")[location["region"]["startLine"] - 1]
    marked = line[location["region"]["startColumn"] - 1 : location["region"]["endColumn"] - 1]
    assert marked == '"continuation.isue"'
    prints = [one["partialFingerprints"]["stepflow/v1"] for one in run["results"]]
    assert len(set(prints)) == len(prints)
    (again,) = log_of("target-missing", tmp_path / "b")["runs"]
    assert [one["partialFingerprints"]["stepflow/v1"] for one in again["results"]] == prints


def test_a_problem_without_a_line_is_shown_on_the_first(tmp_path: Path) -> None:
    (run,) = log_of("unknown-agent", tmp_path)["runs"]
    assert [one["locations"][0]["physicalLocation"]["region"] for one in run["results"]] == [{"startLine": 1}]


def test_a_file_name_of_any_script_becomes_a_uri(tmp_path: Path) -> None:
    case = next(case for case in ARGUED if case.name == "target-missing")
    inspected = inspect_agent(case.agent, root=case.build(tmp_path), **case.options)
    problem = replace(inspected.problems[0], file=".agent/demo/手 順 %.md", severity=Severity.NOTE)
    (run,) = sarif_log([problem], rules(), version="0")["runs"]
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.isascii()
    assert " " not in uri
    assert unquote(uri) == ".agent/demo/手 順 %.md"
    assert run["results"][0]["level"] == "note"


@pytest.mark.npm
@pytest.mark.timeout(200)
@pytest.mark.skipif(not os.environ.get("STEPFLOW_NPM_TESTS"), reason="needs npm: set STEPFLOW_NPM_TESTS=1")
def test_every_log_of_the_corpus_fits_the_official_schema(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if not npm:
        pytest.skip("npm is not installed")
    subprocess.run([npm, "pack", "--silent", PACKAGE], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    (packed,) = tmp_path.glob("*.tgz")
    with tarfile.open(packed) as archive:
        member = archive.extractfile(SCHEMA)
        assert member is not None
        schema = json.load(member)
    validator = jsonschema.Draft4Validator(schema, format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER)
    results = 0
    for case in ARGUED:
        log = log_of(case.name, tmp_path / case.name)
        assert [error.message for error in validator.iter_errors(log)] == []
        results += len(log["runs"][0]["results"])
    assert results > 200
