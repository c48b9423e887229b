"""What a sound agent becomes: every part of `AgentDefinition` that the flow reads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
import yaml
from load_cases import DEFINITIONS, Case, edit_json

from stepflow.definition.loading import load_agent
from stepflow.domain.definition import (
    AgentDefinition,
    AgentVerdict,
    Branch,
    ExitCode,
    Gate,
    GitHubSettings,
    OutputContains,
    OutputEmpty,
    OutputMatches,
    PullRequestSettings,
    StepCommand,
    StepInput,
    Target,
)
from stepflow.domain.problem import Severity
from stepflow.domain.words import (
    CloseBy,
    ClosureAction,
    Dialect,
    FailureAction,
    Intent,
    PermissionMode,
    StepKind,
    VerdictType,
)

REGISTRY = "steps_registry.json"
SHARED = Path(os.environ.get("STEPFLOW_SHARED", Path(__file__).parents[2].parent / "shared"))


def load_case(name: str, tmp_path: Path, templates: Path, *edits: list, **options: object) -> AgentDefinition:
    folder = DEFINITIONS / "valid" / name
    file = folder / "case.yaml"
    case = Case(folder=folder, data=yaml.safe_load(file.read_text()) if file.exists() else {})
    root = case.build(tmp_path)
    for path, *edit in edits:
        edit_json(root / ".agent/demo" / path, *edit)
    return load_agent("demo", root=root, templates=templates, **options)


def test_head_of_the_definition(tmp_path: Path, templates: Path) -> None:
    agent = load_case("issue-flow", tmp_path, templates)
    assert (agent.name, agent.version, agent.display_name, agent.description) == (
        "demo",
        "1.0.0",
        "Demo",
        "Works on one issue",
    )
    assert agent.folder == ".agent/demo"
    assert agent.dialect is Dialect.GATE
    assert agent.gated
    assert agent.entry_step == "initial.issue"
    assert agent.verdict == AgentVerdict(type=VerdictType.POLL_STATE, max_iterations=12, config={"maxIterations": 12})
    assert agent.default_model == "opus"
    assert agent.allowed_tools == {"Bash", "Read", "Write", "Edit"}
    assert agent.permission_mode is PermissionMode.ACCEPT_EDITS
    assert agent.log_format == "jsonl"
    assert agent.system_prompt.file == "prompts/system.md"
    assert agent.problems == ()
    with pytest.raises(FrozenInstanceError):
        agent.name = "other"  # type: ignore[misc]


def test_github_settings_have_the_defaults_of_the_boundary(tmp_path: Path, templates: Path) -> None:
    agent = load_case("issue-flow", tmp_path, templates)
    assert agent.github == GitHubSettings(
        closure_action=ClosureAction.LABEL_AND_CLOSE, labels_add=("done",), labels_remove=("todo",)
    )


def test_every_github_setting_is_read(tmp_path: Path, templates: Path) -> None:
    written = {
        "enabled": False,
        "allowedEffects": ["comment", "release"],
        "allowedLabels": ["area/*"],
        "pullRequest": {"enabled": False, "draft": False, "base": "dev", "branchPrefix": "bot/", "title": "T"},
        "comment": {"enabled": False},
        "protectedPaths": ["deploy/**"],
        "closeBy": "merge",
    }
    edit = ["agent.json", "set", "/runner/integrations/github", written]
    assert load_case("issue-flow", tmp_path, templates, edit).github == GitHubSettings(
        enabled=False,
        allowed_effects=("comment", "release"),
        allowed_labels=("area/*",),
        pull_request=PullRequestSettings(enabled=False, draft=False, base="dev", branch_prefix="bot/", title="T"),
        comment=False,
        protected_paths=("deploy/**",),
        close_by=CloseBy.MERGE,
    )


def test_a_work_step_has_gate_edges_schema_and_prompt(tmp_path: Path, templates: Path) -> None:
    step = load_case("issue-flow", tmp_path, templates).steps["initial.issue"]
    assert (step.name, step.kind, step.initial, step.format_retries) == ("initial.issue", StepKind.WORK, True, 2)
    assert step.gate == Gate(
        allowed=(Intent.NEXT, Intent.REPEAT), intent_field="next_action.action", handoff_fields=("analysis.plan",)
    )
    assert step.edges == {Intent.NEXT: Target(step_id="continuation.issue"), Intent.REPEAT: Target(step_id=None)}
    assert step.prompt
    assert step.prompt.source.text == "# Issue {uv-issue}\n\nMake a plan.\n\n{section:section.rules}"
    assert step.prompt.source.file == "prompts/steps/initial/issue/f_default.md"
    assert step.prompt.variables == ("issue", "iteration")
    assert step.schema
    assert step.schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert step.schema["required"] == ["summary", "next_action", "analysis"]
    assert list(step.schema["properties"]) == ["stepId", "summary", "next_action", "analysis"]
    assert "allOf" not in step.schema
    assert step.validation is None


def test_sections_are_those_that_a_prompt_takes_in(tmp_path: Path, templates: Path) -> None:
    agent = load_case("issue-flow", tmp_path, templates)
    assert agent.sections["section.rules"].text == "This is iteration {uv-iteration}."
    assert list(agent.steps) == ["initial.issue", "continuation.issue", "closure.issue"]


def test_inputs_name_step_and_key(tmp_path: Path, templates: Path) -> None:
    prompt = load_case("issue-flow", tmp_path, templates).steps["continuation.issue"].prompt
    assert prompt
    assert prompt.inputs == (StepInput(name="plan", step_id="initial.issue", key="plan", required=True),)


def test_a_closure_step_is_looked_up_with_the_closure_action(tmp_path: Path, templates: Path) -> None:
    step = load_case("issue-flow", tmp_path, templates).steps["closure.issue"]
    assert step.prompt
    assert step.prompt.source.file == "prompts/steps/closure/issue/f_default_label-and-close.md"
    assert step.edges[Intent.CLOSING] == Target(step_id=None)
    assert step.edges[Intent.REPEAT] == Target(step_id="continuation.issue")


def test_without_github_the_closure_action_is_no_adaptation(tmp_path: Path, templates: Path) -> None:
    edit = ["agent.json", "set", "/runner/integrations/github/enabled", False]
    step = load_case("issue-flow", tmp_path, templates, edit).steps["closure.issue"]
    assert step.prompt
    assert step.prompt.source.file == "prompts/steps/closure/issue/f_default.md"


def test_an_own_adaptation_beats_the_closure_action(tmp_path: Path, templates: Path) -> None:
    edits = [
        [REGISTRY, "set", "/steps/closure.issue/adaptation", "label-and-close"],
        ["agent.json", "set", "/runner/integrations/github/defaultClosureAction", "label-only"],
    ]
    agent = load_case("issue-flow", tmp_path, templates, *edits)
    assert agent.problems == ()
    assert agent.steps["closure.issue"].prompt.source.file.endswith("f_default_label-and-close.md")  # type: ignore[union-attr]


def test_the_validation_entry_hangs_at_its_closure_step(tmp_path: Path, templates: Path) -> None:
    entry = load_case("issue-flow", tmp_path, templates).steps["closure.issue"].validation
    assert entry
    assert (entry.id, entry.action, entry.max_attempts) == ("closure.issue", FailureAction.RETRY, 2)
    validator = entry.conditions[0].validator
    assert (validator.name, validator.command, validator.success) == (
        "git-clean",
        "git status --porcelain",
        OutputEmpty(),
    )
    assert validator.extract == {"changedFiles": "parseChangedFiles"}
    assert validator.pattern.adaptation == "git-dirty"
    assert entry.retry_prompts["git-dirty"].text.startswith("Commit these files:")
    assert entry.any_retry_prompt
    assert entry.any_retry_prompt.text == "The check {{validator}} failed."


def test_every_option_of_validators_is_read(tmp_path: Path, templates: Path) -> None:
    entry = load_case("validators-of-every-form", tmp_path, templates).steps["closure.issue"].validation
    assert entry
    tests, says, like = entry.conditions
    assert tests.params == {"target": "all", "n": "3", "list": "[1]"}
    assert tests.validator.success == ExitCode(code=-1)
    assert (tests.validator.recoverable, tests.validator.timeout) == (False, 1.5)
    assert (tests.validator.guards, tests.validator.guard_blocks) == (("Makefile",), True)
    assert says.validator.success == OutputContains(text="all: good")
    assert like.validator.success == OutputMatches(pattern=r"^ok:\d+$")
    assert entry.action is FailureAction.ABORT
    assert entry.schema == {
        "type": "object",
        "properties": {
            "a": {
                "type": "object",
                "required": ["summary"],
                "properties": {"stepId": {"type": "string"}, "summary": {"type": "string"}},
            },
            "b": True,
        },
        "$defs": {"x": True},
    }
    assert list(entry.retry_prompts) == ["other"]


def test_the_verdict_chooses_an_entry_for_other_closure_steps(tmp_path: Path, templates: Path) -> None:
    agent = load_case("ungated", tmp_path, templates)
    assert agent.steps["end"].validation
    assert agent.steps["end"].validation.id == "closure.iteration"
    assert agent.steps["start"].validation is None


def test_an_ungated_registry_has_no_gates(tmp_path: Path, templates: Path) -> None:
    agent = load_case("ungated", tmp_path, templates)
    assert not agent.gated
    assert [step.kind for step in agent.steps.values()] == [StepKind.WORK, None, StepKind.CLOSURE]
    assert agent.steps["start"].edges[Intent.NEXT] == Target(step_id="odd")
    assert agent.verdict.max_iterations == 3


def test_a_default_next_is_left_to_the_router(tmp_path: Path, templates: Path) -> None:
    edit = [REGISTRY, "remove", "/steps/initial.issue/transitions/next"]
    agent = load_case("issue-flow", tmp_path, templates, edit)
    assert [problem.code for problem in agent.problems] == ["SF345"]
    assert agent.steps["initial.issue"].edges == {Intent.REPEAT: Target(step_id=None)}


def test_a_condition_becomes_a_branch(tmp_path: Path, templates: Path) -> None:
    step = load_case("jump-by-answer", tmp_path, templates).steps["initial.issue"]
    assert step.edges[Intent.NEXT] == Branch(
        condition="analysis.plan", targets={"easy": "continuation.issue"}, default="continuation.issue"
    )
    assert step.gate
    assert Intent.ABORT not in step.gate.allowed
    assert not step.gate.lists_abort


def test_abort_in_the_enum_is_remembered(tmp_path: Path, templates: Path) -> None:
    gate = load_case("verification-step", tmp_path, templates).steps["verification.issue"].gate
    assert gate
    assert gate.lists_abort
    assert gate.allowed == (Intent.NEXT, Intent.ESCALATE)


def test_the_fallback_template_is_used_and_kept(tmp_path: Path, templates: Path) -> None:
    prompt = load_case("verification-step", tmp_path, templates).steps["verification.issue"].prompt
    assert prompt
    assert prompt.source.template == "review_closure_default"
    assert prompt.fallback == prompt.source
    assert prompt.source.text.startswith("# Template review_closure_default")
    assert prompt.fallback_key == "review_closure_default"


def test_a_valid_fallback_key_is_kept_beside_the_file(tmp_path: Path, templates: Path) -> None:
    edit = [REGISTRY, "set", "/steps/initial.issue/fallbackKey", "initial_issue"]
    prompt = load_case("issue-flow", tmp_path, templates, edit).steps["initial.issue"].prompt
    assert prompt
    assert prompt.source.template is None
    assert prompt.fallback
    assert prompt.fallback.template == "initial_issue"


def test_a_command_step_has_no_prompt(tmp_path: Path, templates: Path) -> None:
    step = load_case("command-step", tmp_path, templates).steps["closure.issue"]
    assert step.prompt is None
    assert step.command == StepCommand(command="python3", args=("check.py", "${context.issue}"), timeout=1.5)


def test_step_settings_beat_those_of_the_agent(tmp_path: Path, templates: Path) -> None:
    edits = [
        ["agent.json", "set", "/runner/flow/formatRetries", 5],
        [REGISTRY, "set", "/steps/closure.issue/formatRetries", 0],
        [REGISTRY, "set", "/steps/closure.issue/model", "haiku"],
        [REGISTRY, "set", "/steps/closure.issue/permissionMode", "plan"],
        [REGISTRY, "set", "/steps/closure.issue/name", "Last look"],
    ]
    agent = load_case("issue-flow", tmp_path, templates, *edits)
    closure = agent.steps["closure.issue"]
    assert agent.steps["initial.issue"].format_retries == 5
    assert (closure.format_retries, closure.model, closure.name) == (0, "haiku", "Last look")
    assert closure.permission_mode is PermissionMode.PLAN


@pytest.mark.parametrize(("given", "expected"), [(None, "next"), ("repeat", "repeat")])
def test_a_fallback_intent_is_resolved_at_load(
    given: str | None, expected: str, tmp_path: Path, templates: Path
) -> None:
    edits = [[REGISTRY, "set", "/steps/initial.issue/structuredGate/failFast", False]]
    if given:
        edits.append([REGISTRY, "set", "/steps/initial.issue/structuredGate/fallbackIntent", given])
    agent = load_case("issue-flow", tmp_path, templates, *edits, allow_spec_violations=True)
    gate = agent.steps["initial.issue"].gate
    assert gate
    assert (gate.fail_fast, gate.fallback_intent) == (False, expected)


def test_the_flat_layout_means_the_same(tmp_path: Path, templates: Path) -> None:
    agent = load_case("flat-layout", tmp_path, templates)
    assert agent.verdict == AgentVerdict(
        type=VerdictType.POLL_STATE, max_iterations=10, config={"verdictKeyword": "DONE"}
    )
    assert agent.permission_mode is PermissionMode.PLAN
    assert agent.allowed_tools == {"Bash", "Read"}
    assert agent.github.closure_action is ClosureAction.LABEL_AND_CLOSE
    assert agent.log_format == "text"
    assert agent.display_name == "demo"
    old = next(problem.message for problem in agent.problems if problem.code == "SF110")
    for name in ("behavior.systemPromptPath", "github", "logging", 'verdict type "externalState"', "worktree"):
        assert name in old


def test_no_system_prompt_means_the_template(tmp_path: Path, templates: Path) -> None:
    edit = ["agent.json", "remove", "/runner/flow/systemPromptPath"]
    assert load_case("issue-flow", tmp_path, templates, edit).system_prompt.template == "system"


@pytest.mark.parametrize("tools", [None, ["*"], ["Read", "*"]])
def test_all_tools_are_allowed_by_a_star_or_by_silence(
    tools: list[str] | None, tmp_path: Path, templates: Path
) -> None:
    word = ["set", "/runner/boundaries/allowedTools", tools] if tools else ["remove", "/runner/boundaries/allowedTools"]
    assert load_case("issue-flow", tmp_path, templates, ["agent.json", *word]).allowed_tools is None


def test_an_empty_tool_list_allows_none(tmp_path: Path, templates: Path) -> None:
    edit = ["agent.json", "set", "/runner/boundaries/allowedTools", []]
    assert load_case("issue-flow", tmp_path, templates, edit).allowed_tools == frozenset()


def test_the_digest_covers_every_file_that_is_read_and_no_other(tmp_path: Path, templates: Path) -> None:
    first = load_case("issue-flow", tmp_path / "a", templates)
    assert load_case("issue-flow", tmp_path / "b", templates).digest == first.digest
    folder = tmp_path / "b/.agent/demo"
    (folder / "README.md").write_text("not read")
    assert load_agent("demo", root=tmp_path / "b", templates=templates).digest == first.digest
    for file in ("prompts/system.md", "prompts/steps/retry/issue/f_failed.md", "schemas/common.schema.json"):
        before = (folder / file).read_text()
        (folder / file).write_text(before + " ")
        assert load_agent("demo", root=tmp_path / "b", templates=templates).digest != first.digest
        (folder / file).write_text(before)


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Path, templates: Path) -> None:
    load_case("issue-flow", tmp_path, templates)
    folder = tmp_path / ".agent/demo"
    for file in [folder / "agent.json", folder / REGISTRY, folder / "prompts/steps/initial/issue/f_default.md"]:
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    agent = load_agent("demo", root=tmp_path, templates=templates)
    assert agent.steps["initial.issue"].prompt.source.text.startswith("# Issue {uv-issue}\n\nMake")  # type: ignore[union-attr]


def test_a_retry_template_that_cannot_be_parsed_counts_as_missing(tmp_path: Path, templates: Path) -> None:
    load_case("issue-flow", tmp_path, templates)
    for prompt in (tmp_path / ".agent/demo/prompts/steps/retry/issue").glob("*.md"):
        prompt.write_text("{{#each changedFiles}}- {{this}}")
    agent = load_agent("demo", root=tmp_path, templates=templates)
    entry = agent.steps["closure.issue"].validation
    assert entry
    assert (entry.retry_prompts, entry.any_retry_prompt) == ({}, None)
    assert [problem.code for problem in agent.problems] == ["SF513", "SF513"]
    assert "cannot be parsed" in agent.problems[0].message


def test_the_public_iterator_agent_loads_with_warnings_and_notes_only(tmp_path: Path, templates: Path) -> None:
    source = SHARED / "real-agents/iterator"
    if not source.exists():
        pytest.skip("the shared material is not beside this repository")
    shutil.copytree(source, tmp_path / ".agent/iterator")
    agent = load_agent("iterator", root=tmp_path, templates=templates)
    assert agent.entry_step == "initial.polling"
    assert agent.verdict.max_iterations == 500
    assert len(agent.steps) == 20
    assert all(problem.severity is not Severity.ERROR for problem in agent.problems)
    assert agent.steps["closure.polling"].prompt.source.file.endswith("f_default_label-only.md")  # type: ignore[union-attr]
    assert list(agent.steps["closure.issue"].validation.retry_prompts) == ["git-dirty", "type-error"]  # type: ignore[union-attr]


def test_importing_the_loader_is_light() -> None:
    heavy = "{'anthropic', 'github', 'rich', 'jsonschema'}"
    code = f"import sys, stepflow.definition.loading; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.replace("'", '"')) == []
