"""The examples of the documents of the gate dialect load as they stand, and the whole flow that they show runs.

Each test says what it adds where the document has a fragment.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from stepflow import ScriptedModel, StepFlowRunner, load_agent
from stepflow.domain.agent.definition import AgentDefinition, Branch
from stepflow.domain.words import Intent, Outcome
from stepflow.run.scenarios import parse_scenario
from tests.checkout import git
from tests.seeds.seed_examples import example_with, examples, seed_text, write_texts

GUIDE, DESIGN = "004", "000"


def schema_of(*intents: str, **properties: Any) -> dict[str, Any]:
    """An answer with `next_action.action`, where every example of the guide has its intent."""
    action = {"type": "object", "properties": {"action": {"enum": list(intents)}}, "required": ["action"]}
    return {"type": "object", "properties": {"next_action": action, **properties}, "required": ["next_action"]}


def write_agent(folder: Path, registry: dict[str, Any], schemas: dict[str, Any], prompts: dict[str, str]) -> Path:
    """An agent folder: what the guide leaves to other pages (agent.json, schemas, prompts) is the test's."""
    agent = {
        "name": folder.name,
        "version": "1.0.0",
        "displayName": folder.name,
        "description": "An agent of the guide",
        "parameters": {"issue": {"type": "number", "cli": "--issue", "description": "The issue"}},
        "runner": {"verdict": {"type": "poll:state"}},
    }
    top = {"agentId": folder.name, "version": "1.0.0", "c1": "steps"}
    files = {
        "agent.json": agent,
        "steps_registry.json": {**top, **registry},
        "schemas/issue.schema.json": {"definitions": schemas},
    }
    texts = {name: json.dumps(document, indent=2) for name, document in files.items()}
    return write_texts(folder, {**texts, **{f"prompts/steps/{name}": text for name, text in prompts.items()}})


def issue_flow(folder: Path) -> Path:
    """The guide's issue flow of its own fragments: the step of its example, with the gate and the transitions that two
    further examples show in the place of its ellipses; validators, failure patterns and the validation step as shown.

    Added: the continuation step (the first step with another name), the validator `type-check` and its pattern, which
    the guide names without showing them, the schemas, and the prompts.
    """
    gate = example_with(GUIDE, "structuredGate")["structuredGate"]
    forward, ending = _transitions()
    step = example_with(GUIDE, "initial.issue")["initial.issue"]
    assert step["structuredGate"] == step["transitions"] == {"...": None}
    initial = {**step, "structuredGate": gate, "transitions": forward}
    continuation = {**initial, "stepId": "continuation.issue", "c2": "continuation"}
    closure = {
        **{"stepId": "closure.issue", "stepKind": "closure", "c2": "closure", "c3": "issue"},
        "outputSchemaRef": {"file": "issue.schema.json", "schema": "closure.issue"},
        "structuredGate": {
            "allowedIntents": ["closing", "repeat"],
            "intentField": gate["intentField"],
            "intentSchemaRef": gate["intentSchemaRef"],
        },
        "transitions": ending,
    }
    type_check = {
        **{"type": "command", "command": "grep -q typed NOTES.md", "successWhen": "exitCode:0"},
        "failurePattern": "type-error",
    }
    registry = {
        "entryStep": "initial.issue",
        "steps": {"initial.issue": initial, "continuation.issue": continuation, "closure.issue": closure},
        "validators": {
            **example_with(GUIDE, "git-clean"),
            "type-check": type_check,
        },
        "failurePatterns": {
            **example_with(GUIDE, "git-dirty"),
            "type-error": {"description": "A type error", "edition": "failed", "adaptation": "type-error"},
        },
        **example_with(GUIDE, "validationSteps"),
    }
    analysis = {"type": "object", "properties": {"understanding": {"type": "string"}, "approach": {"type": "string"}}}
    schemas = {
        "initial.issue": schema_of("next", "repeat", "handoff", analysis=analysis),
        "closure.issue": schema_of("closing", "repeat"),
    }
    prompts = {
        "initial/issue/f_default.md": "Understand issue {uv-issue}.",
        "continuation/issue/f_default.md": "Work on issue {uv-issue}: {uv-initial_issue_approach}.",
        "closure/issue/f_default.md": "Check the issue.",
        "retry/issue/f_failed_git-dirty.md": "Commit {{changedFiles}}.",
        "retry/issue/f_failed_type-error.md": "Mend the types.",
    }
    return write_agent(folder, registry, schemas, prompts)


def _transitions() -> tuple[dict[str, Any], dict[str, Any]]:
    shown = [one["transitions"] for one in examples(GUIDE) if "transitions" in one]
    return shown[0], shown[1]


def test_the_guides_issue_flow_loads_with_the_warnings_that_its_example_earns(tmp_path: Path) -> None:
    definition = load_agent(issue_flow(tmp_path / "guide"))
    codes = {problem.code for problem in definition.problems}
    # `issue_initial_default` is none of the guide's own keys; the gate names a target without `jump`, and a fallback
    # intent beside `failFast`; the first step may hand off; `next` of the second leads to itself, as in its picture.
    assert codes == {"SF331", "SF348", "SF349", "SF504"}
    assert definition.steps["closure.issue"].edges[Intent.REPEAT].step_id == "closure.issue"


TURNS = """
turns:
  - expect_step: initial.issue
    output: {stepId: initial, next_action: {action: continue}, analysis: {understanding: all, approach: write notes}}
  - expect_step: continuation.issue
    expect_prompt: ["Work on issue 7: write notes."]
    tools:
      - bash: {command: "echo changed > NOTES.md"}
  - output: {next_action: {action: handoff}}
  - expect_step: closure.issue
    output: {next_action: {action: closing}}
  - expect_step: closure.issue
    expect_prompt: ["Commit NOTES.md."]
    tools:
      - bash: {command: "git commit --quiet --all --message Notes"}
  - output: {next_action: {action: done}}
  - expect_step: closure.issue
    expect_prompt: ["Mend the types."]
    tools:
      - bash: {command: "echo typed > NOTES.md && git commit --quiet --all --message Types"}
  - output: {next_action: {action: closing}}
"""


@pytest.mark.whole
def test_the_guides_issue_flow_is_sent_back_by_each_validator_and_completes(tmp_path: Path) -> None:
    definition = load_agent(issue_flow(tmp_path / "guide"))
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "NOTES.md").write_text("none\n")
    git("init", "--quiet", cwd=checkout)
    for key, value in {"user.name": "Model", "user.email": "model@example.invalid"}.items():
        git("config", key, value, cwd=checkout)
    git("add", "--all", cwd=checkout)
    git("commit", "--quiet", "--message", "Begin", cwd=checkout)
    result = StepFlowRunner(definition, model=ScriptedModel(parse_scenario(TURNS))).run({"issue": 7}, cwd=checkout)
    assert result.report.outcome is Outcome.COMPLETED, result.reason
    assert [entry.step_id for entry in result.report.history] == [
        *("initial.issue", "continuation.issue"),
        *("closure.issue", "closure.issue", "closure.issue"),
    ]
    assert [(run.name, run.passed, run.pattern) for run in result.report.validators] == [
        ("git-clean", False, "git-dirty"),
        ("git-clean", True, "git-dirty"),
        ("type-check", False, "type-error"),
        ("git-clean", True, "git-dirty"),
        ("type-check", True, "type-error"),
    ]


def simple(step_id: str, *, to: str, **more: Any) -> dict[str, Any]:
    """A work step that the test adds so that a fragment has somewhere to lead."""
    return {
        **{"stepId": step_id, "c2": step_id.partition(".")[0], "c3": "issue", "fallbackKey": "initial_issue"},
        "stepKind": "closure" if to == "" else "work",
        "outputSchemaRef": {"file": "issue.schema.json", "schema": "closing" if to == "" else "next"},
        "structuredGate": {
            "allowedIntents": ["closing" if to == "" else "next"],
            "intentField": "next_action.action",
            "intentSchemaRef": "#/properties/next_action/properties/action",
        },
        "transitions": {"closing": {"target": None}} if to == "" else {"next": {"target": to}},
        **more,
    }


def small_agent(folder: Path, steps: dict[str, Any], **top: Any) -> Path:
    status = {"status": {"type": "string"}}
    schemas = {"next": schema_of("next", **status), "closing": schema_of("closing")}
    return write_agent(folder, {"steps": steps, **top}, schemas, {})


@pytest.mark.parametrize("verdict", ["poll:state", "count:iteration"])
def test_the_guides_entry_mapping_chooses_the_first_step_by_the_verdict_type(verdict: str, tmp_path: Path) -> None:
    """Added: the two steps that it names, and a closure behind them."""
    mapping = example_with(GUIDE, "entryStepMapping")
    steps = {step: simple(step, to="closure.issue") for step in mapping["entryStepMapping"].values()}
    folder = small_agent(tmp_path / "guide", {**steps, "closure.issue": simple("closure.issue", to="")}, **mapping)
    agent = json.loads((folder / "agent.json").read_text())
    agent["runner"]["verdict"] = {"type": verdict, "config": {"maxIterations": 5}}
    (folder / "agent.json").write_text(json.dumps(agent))
    assert load_agent(folder).entry_step == mapping["entryStepMapping"][verdict]


def test_the_guides_conditional_transition_is_a_branch_on_the_handoff(tmp_path: Path) -> None:
    """Added: the step that has it, which hands off `status`, and the steps that it leads to."""
    transitions = next(
        one["transitions"] for one in examples(GUIDE) if "condition" in one.get("transitions", {}).get("next", {})
    )
    rule = transitions["next"]
    first = simple("initial.issue", to="x", transitions=transitions)
    first["structuredGate"]["handoffFields"] = ["status"]
    steps = {step: simple(step, to="closure.issue") for step in rule["targets"].values()}
    closure = {"closure.issue": simple("closure.issue", to="")}
    folder = small_agent(tmp_path / "guide", {"initial.issue": first, **steps, **closure}, entryStep="initial.issue")
    definition = load_agent(folder)
    branch = definition.steps["initial.issue"].edges[Intent.NEXT]
    assert isinstance(branch, Branch)
    assert (branch.condition, branch.default) == (rule["condition"], rule["targets"]["default"])
    assert run_branch(definition, "blocked") == rule["targets"]["blocked"]
    assert run_branch(definition, "else") == rule["targets"]["default"]


def run_branch(definition: AgentDefinition, status: str) -> str:
    from tests.fakes import PlayedModel, RecordingTools, TableCommands, answers

    model = PlayedModel([answers("next", status=status), answers("abort")])
    parts = {"tools": RecordingTools(), "commands": TableCommands()}
    return StepFlowRunner(definition, model=model, **parts).run({"issue": 7}).report.final_step_id


def test_the_designs_forms_of_schema_and_closing_load(tmp_path: Path) -> None:
    """The design has no JSON, only the forms in its table. Added: everything around them."""
    text = seed_text(DESIGN)
    assert examples(DESIGN) == []
    (pointer,) = set(re.findall(r"`(#/definitions/)<stepId>`", text))
    (intents,) = set(re.findall(r"`(#/properties/\S+)` 形式", text))
    assert "`closure.<domain>`" in text
    steps = {
        "initial.issue": simple("initial.issue", to="closure.issue", outputSchemaRef=f"{pointer}initial.issue"),
        "closure.issue": simple("closure.issue", to="", outputSchemaRef=f"{pointer}closure.issue"),
    }
    for step in steps.values():
        step["structuredGate"]["intentSchemaRef"] = intents
    steps["closure.issue"]["transitions"]["closing"] = {"target": "closure.issue"}
    schemas = {"initial.issue": schema_of("next"), "closure.issue": schema_of("closing")}
    registry = {"entryStep": "initial.issue", "steps": steps}
    definition = load_agent(write_agent(tmp_path / "design", registry, schemas, {}))
    assert {problem.code for problem in definition.problems} >= {"SF353"}
