"""The rule of two: which agents break it, and what is reported of them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from load_cases import edit_json
from rule_of_two_agents import SERVERS, Written, build, lock, written_agents

from stepflow.definition.loading import inspect_agent, load_agent
from stepflow.definition.rule_of_two import UNKNOWN, Circumstances, find_exposures
from stepflow.definition.rules import rules
from stepflow.domain.agent.definition import Inspection
from stepflow.domain.words import Network
from stepflow.errors import DefinitionError, Severity
from stepflow.report.diagnostic import problem_annotations

HERE = Path(__file__).parent
SHARED = Path(os.environ.get("STEPFLOW_SHARED") or HERE.parents[2] / "shared")
ALL = written_agents()


def where(written: Written, root: Path) -> tuple[str, Path]:
    """The name and root under which an agent is found, after it was made if it is not shipped."""
    owner, _, name = written.name.partition("/")
    if owner == "builtin":
        return written.name, root
    if owner == "climpt":
        folder = SHARED / "real-agents" / name
        if not folder.exists():
            pytest.skip("the shared material is not beside this repository, or has not this agent")
        return str(folder), SHARED
    build(written, root)
    return "demo", root


def meets(inspection: Inspection) -> dict[str, list[str]]:
    kinds = {each.repository for each in inspection.exposures}
    found = inspection.exposures
    return {kind: [each.step_id for each in found if each.repository == kind and each.has_all] for kind in kinds}


def reported(inspection: Inspection) -> dict[str, Severity]:
    return {
        problem.path.removeprefix("/steps/"): problem.severity
        for problem in inspection.problems
        if problem.code == "SF357"
    }


@pytest.mark.sample(13)
@pytest.mark.parametrize("written", ALL, ids=lambda each: each.name)
def test_an_agent_has_the_verdict_that_was_written_down(written: Written, tmp_path: Path) -> None:
    name, root = where(written, tmp_path)
    inspection = inspect_agent(name, root=root)
    circumstances = written.circumstances
    if circumstances == UNKNOWN:
        found = meets(inspection)
    else:
        agent = load_agent(name, root=root)
        exposures = find_exposures(agent, circumstances)
        found = meets(replace(inspection, exposures=exposures))
    others = [each for each in inspection.problems if each.code != "SF357" and each.severity is Severity.ERROR]
    if others:
        assert written.name == "climpt/facilitator", others
        assert not any(written.meets.values())
        return
    if written.name == "climpt/merger":
        found = {"public": [], "private": []} | found
    assert found == written.meets


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    "written",
    [each for each in ALL if "/" not in each.name and each.circumstances == UNKNOWN],
    ids=lambda each: each.name,
)
def test_an_error_is_what_holds_in_every_repository_and_the_rest_a_note(written: Written, tmp_path: Path) -> None:
    build(written, tmp_path)
    public, private = ({*written.meets[kind]} - written.accepted for kind in ("public", "private"))
    expected = dict.fromkeys(public & private, Severity.ERROR)
    expected |= dict.fromkeys(public ^ private, Severity.NOTE)
    assert reported(inspect_agent("demo", root=tmp_path)) == expected
    for is_private, steps in ((False, public), (True, private)):
        known = inspect_agent("demo", root=tmp_path, circumstances=Circumstances(private=is_private))
        assert reported(known) == dict.fromkeys(steps, Severity.ERROR)
        if steps:
            with pytest.raises(DefinitionError, match="definition has"):
                load_agent("demo", root=tmp_path, circumstances=Circumstances(private=is_private))


@pytest.mark.parametrize(
    ("checks", "network", "refused"),
    [((), Network.FULL, False), (("npm test",), Network.NONE, False), (("npm test",), Network.FULL, True)],
)
def test_the_shipped_reviewer_tries_no_suggestion_with_the_network_for_a_fork_of_a_private_repository(
    checks: tuple[str, ...], network: Network, refused: bool
) -> None:
    circumstances = Circumstances(private=True, from_fork=True, network=network)
    try:
        load_agent("builtin/review", checks=checks, circumstances=circumstances)
    except DefinitionError as error:
        assert refused
        (problem,) = (each for each in error.problems if each.severity is Severity.ERROR)
        assert problem.path == "/steps/closure.default"
        assert "the suggestions of its review, which are tried with `network: full`" in problem.message
    else:
        assert not refused


TICKETS = next(each for each in ALL if each.name == "tickets-behind-a-login")


def test_the_message_names_the_three_and_where_each_is_from(tmp_path: Path) -> None:
    build(TICKETS, tmp_path)
    problems = [each for each in inspect_agent("demo", root=tmp_path).problems if each.code == "SF357"]
    note, error = sorted(problems, key=lambda each: each.path)
    assert (error.severity, error.path) == (Severity.ERROR, "/steps/initial.work")
    assert error.message == (
        'step "initial.work": all three of the rule of two meet: text that strangers can write (results of the MCP '
        'server "crm"); something private (the MCP server "crm", which has a login); a way out (arguments for the MCP '
        'server "crm")'
    )
    assert note.message == (
        'step "closure.end": in a public repository, all three of the rule of two meet: text that strangers can write '
        '(the issue and its comments, what step "initial.work" passes on); something private (what step "initial.work" '
        "passes on); a way out (the comment, the pull request, the names of labels)"
    )
    assert error.fix.endswith('or say in "acceptsRisk" why they may meet.')


def test_the_example_of_the_rule_is_an_error_until_somebody_accepts_it(tmp_path: Path) -> None:
    rule = rules()["SF357"]
    (wrong,), (right,) = rule.wrong, rule.right
    for accepts in (None, json.loads(right.text)):
        more = {"tools": json.loads(wrong.text)} | ({} if accepts is None else {right.pointer.split("/")[-1]: accepts})
        folder = tmp_path / str(accepts is None)
        build(TICKETS, folder)
        edit_json(folder / ".agent/demo/agent.json", "set", "/mcpServers", {"tickets": SERVERS["login"]})
        lock(folder, "search")
        for key, value in more.items():
            edit_json(folder / ".agent/demo/steps_registry.json", "set", f"/steps/initial.work/{key}", value)
        errors = [each.path for each in inspect_agent("demo", root=folder).problems if each.severity is Severity.ERROR]
        assert errors == (["/steps/initial.work"] if accepts is None else [])


@pytest.mark.parametrize(("text", "code"), [("", "SF106"), ("  ", "SF106"), (7, "SF106"), ("Why not.", "SF111")])
def test_a_risk_is_accepted_with_a_reason_and_only_where_there_is_one(text: object, code: str, tmp_path: Path) -> None:
    build(next(each for each in ALL if each.name == "no-tool-at-all"), tmp_path)
    edit_json(tmp_path / ".agent/demo/steps_registry.json", "set", "/steps/initial.work/acceptsRisk", text)
    (problem,) = (each for each in inspect_agent("demo", root=tmp_path).problems if "acceptsRisk" in each.path)
    assert problem.code == code


def test_a_problem_of_a_shipped_agent_names_an_input_and_no_file_of_the_repository() -> None:
    circumstances = Circumstances(private=True, from_fork=True)
    problems = inspect_agent("builtin/fix", circumstances=circumstances).problems
    assert problems
    for problem in problems:
        assert (problem.file, problem.line, problem.column) == ("", None, None)
        assert "`network: none`" in problem.fix
        assert str(problem).startswith("error SF357 builtin/fix: step ")
    assert not any("file=" in command or "line=" in command for command in problem_annotations(problems))
