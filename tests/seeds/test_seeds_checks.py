"""The examples of the documents of the check dialect load as they stand, and run as the documents describe.

Each test says what it adds where the document has a fragment.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from stepflow import AgentResult, StepFlowRunner, load_agent
from stepflow.domain.words import Dialect, Outcome
from tests.fakes import PlayedModel, RecordingTools, TableCommands, says
from tests.seeds.seed_examples import example_with, examples, seed_text, write_texts

OLDEST, OLDER = "002", "001"
#: What a step itself says in S2's flow, before it is checked.
WORK = "I have done it."


def code_improver(folder: Path) -> Path:
    """S2's whole agent: its agent.json, its registry, and the prompt files of its directory tree. Added: their texts,
    of which the check of the implementation is the document's own example."""
    registry, agent = example_with(OLDEST, "basePath"), example_with(OLDEST, "behavior")
    files = {"agent.json": json.dumps(agent), "steps_registry.json": json.dumps(registry)}
    files["prompts/system.md"] = "You improve code."
    for step in registry["steps"].values():
        for reference in (step["prompt"], step["check"]["prompt"]):
            path = "/".join(reference[key] for key in ("c1", "c2", "c3"))
            files[f"prompts/{path}/f_default.md"] = f"{path}: do it."
    (shown,) = re.findall(r"```markdown\n(.*?)^```$", seed_text(OLDEST), re.M | re.S)
    files["prompts/checks/step/implement/f_default.md"] = shown
    return write_texts(folder / "code-improver", files)


def check_answers() -> dict[str, str]:
    """The two answers that S2 shows in its check prompt, by their result."""
    shown = re.findall(r'(\{ "result".*?\})', seed_text(OLDEST), re.S)
    answers = {json.loads(text)["result"]: text for text in shown}
    assert set(answers) == {"ok", "ng"}
    return answers


def play(folder: Path, *checks: str, **args: Any) -> tuple[AgentResult, PlayedModel]:
    """Run S2's agent; each check is answered in turn: `ok`, `ng`, or a text of its own."""
    known = check_answers()
    model = PlayedModel([says(text) for check in checks for text in (WORK, known.get(check, check))])
    runner = StepFlowRunner(load_agent(folder), model=model, tools=RecordingTools(), commands=TableCommands())
    return runner.run(args), model


def steps_of(result: AgentResult) -> list[tuple[str, str]]:
    return [(entry.step_id, entry.transition) for entry in result.report.history]


def test_the_oldest_documents_agent_loads_as_it_stands(tmp_path: Path) -> None:
    definition = load_agent(code_improver(tmp_path))
    assert definition.dialect is Dialect.CHECK
    assert [step.name for step in definition.steps.values()] == ["Code Analysis", "Implementation", "Review"]
    assert {problem.severity.value for problem in definition.problems} == {"warning", "note"}
    assert definition.verdict.limits.iterations == 100


def test_the_oldest_documents_flow_passes_every_check_and_completes(tmp_path: Path) -> None:
    result, model = play(code_improver(tmp_path), "ok", "ok", "ok", topic="Refactoring authentication module")
    assert (result.success, result.iterations) == (True, 3), result.reason
    assert result.report.final_step_id == "s_c9d4"
    assert steps_of(result) == [("s_a8f3", "next"), ("s_b2c1", "next"), ("s_c9d4", "complete")]
    assert [entry.check_result and entry.check_result.message for entry in result.report.history] == [
        "All tests pass, no errors"
    ] * 3
    prompt = str(model.requests[3].messages[-1].content[0]["text"])
    assert prompt.startswith("## Implementation Check")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("checks", "transitions", "outcome"),
    [
        (["ng", "ng", "ok", "ok", "ok"], ["retry", "retry", "next", "next", "complete"], Outcome.COMPLETED),
        (["ng", "ng", "ng"], ["retry", "retry", "none"], Outcome.ROUTING_FAILED),
        (["ok", "ng", "ok", "ok", "ok"], ["next", "fallback", "next", "next", "complete"], Outcome.COMPLETED),
        (["ok", "ok", "ng", "ok", "ok"], ["next", "next", "fallback", "next", "complete"], Outcome.COMPLETED),
        (
            ["ok", "No idea.", "ok", "ok", "ok"],
            ["next", "fallback", "next", "next", "complete"],
            Outcome.COMPLETED,
        ),
        (["ok", "ng"] * 50, ["next", "fallback"] * 50, Outcome.LIMIT_REACHED),
    ],
    ids=["twice", "too-often", "implementation", "review", "not-readable", "endless"],
)
def test_the_oldest_documents_flow_goes_back_where_its_picture_does(
    checks: list[str], transitions: list[str], outcome: Outcome, tmp_path: Path
) -> None:
    result, _ = play(code_improver(tmp_path), *checks)
    assert result.report.outcome is outcome, result.reason
    assert [entry.transition for entry in result.report.history] == transitions
    assert result.iterations <= 100


def test_the_oldest_documents_fragments_stand_in_its_registry_and_load_alone(tmp_path: Path) -> None:
    """Its prompt by path, its iterations and its check are put into its first step. Added: the file of the path."""
    by_path, iterations = example_with(OLDEST, "path"), example_with(OLDEST, "min", "max")
    check = example_with(OLDEST, "prompt", "onPass")
    by_address = example_with(OLDEST, "c1", "edition")
    folder = code_improver(tmp_path)
    registry = json.loads((folder / "steps_registry.json").read_text())
    assert registry["steps"]["s_a8f3"]["check"] == check
    for prompt in (by_path, by_address):
        registry["steps"]["s_a8f3"] |= {"prompt": prompt, "iterations": iterations, "check": check}
        write_texts(folder, {"steps_registry.json": json.dumps(registry)})
        step = load_agent(folder).steps["s_a8f3"]
        assert step.prompt is not None
        expected = "prompts/system.md" if "path" in prompt else "prompts/steps/phase/analyze/f_default.md"
        assert step.prompt.source.file == expected


def test_the_older_documents_flow_hands_over_what_it_says(tmp_path: Path) -> None:
    """S1's whole registry. Added: agent.json, and the three prompts, of which that of `s_impl` uses the variable that
    the document names."""
    (registry,) = examples(OLDER)
    (named,) = set(re.findall(r"`(uv-analyze_issue_context)`", seed_text(OLDER)))
    agent = {"name": "older", "behavior": {"completionType": "stepFlow"}}
    files = {"agent.json": json.dumps(agent), "steps_registry.json": json.dumps(registry)}
    for word, text in {"analyze": "Analyze.", "implement": f"Given {{{named}}}", "review": "Review."}.items():
        files[f"prompts/steps/phase/{word}/f_default.md"] = text
    definition = load_agent(write_texts(tmp_path / "older", files))
    replies = [
        {"handoff": {"issue_context": "the cause"}},
        {"result": "ng", "handoff": {"plan": "a", "diff": "-"}},
        {"result": "ok", "handoff": {"plan": "b", "diff": "+"}},
        {"handoff": {"release_notes": "done"}, "message": "All is well."},
    ]
    model = PlayedModel([says(json.dumps(reply)) for reply in replies])
    result = StepFlowRunner(definition, model=model, tools=RecordingTools(), commands=TableCommands()).run()
    assert result.success, result.reason
    assert steps_of(result) == [
        ("s_analysis", "next"),
        ("s_impl", "retry"),
        ("s_impl", "next"),
        ("s_review", "complete"),
    ]
    assert [str(request.messages[0].content[0]["text"]) for request in model.requests][1] == "Given the cause"
    assert result.report.handoff["s_impl"]["plan"] == "b"
