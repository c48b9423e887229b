"""The README says what is so: its tables, its files to paste, its commands and its picture are held here."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest
import yaml

from stepflow.action.runner import outputs_of
from stepflow.cli import COMMANDS
from stepflow.definition.loading import load_agent
from stepflow.report.collect import collect_report
from stepflow.run.start.input_values import in_dashes
from stepflow.run.start.inputs import NO_INPUTS, Inputs, read_inputs
from tests.checkout import Runner, git, labeled, make_checkout
from tests.docs import picture, pull_request, story
from tests.docs.page import (
    AGENT,
    AGENT_PAGE,
    BUILT_PAGE,
    DOCS,
    README,
    RECIPES,
    REFERENCE_PAGE,
    RESUME_PAGE,
    ROOT,
    SCENARIOS_PAGE,
    USE_PAGE,
    agent_files,
    around_action,
    named_block,
    page_blocks,
)
from tests.docs.reference import KEYS, RULES
from tests.docs.tables import NOT_FOR_PEOPLE, documents, written
from tests.docs.workflows import check_workflow, lint_workflow
from tests.golden import assert_golden
from tests.servers.messages_api import MessagesApi, answers, calls

MOST_INPUTS = 40
FIRST_INPUTS = ("agent", "checks", "setup", "anthropic-api-key", "github-token", "read-token", "limits")
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
MAKE_TARGETS = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


def plain(text: str | None) -> str:
    return " ".join((text or "").split())


# action.yml and the code


def test_action_yml_has_the_inputs_that_the_code_reads_in_the_same_words() -> None:
    declared = {name: plain(described["description"]) for name, described in ACTION["inputs"].items()}
    fields = {in_dashes(name): field for name, field in Inputs.model_fields.items()}
    read = {name: plain(field.description) for name, field in fields.items() if name not in NO_INPUTS}
    differ = {name: text for name, text in read.items() if declared.get(name) != text}
    wanted = yaml.safe_dump(
        {name: {"description": text, "default": ""} for name, text in differ.items()}, sort_keys=False, width=999
    )
    assert not differ, f"write in action.yml, with the default of stepflow/run/start/inputs.py:\n{wanted}"
    assert list(declared) == list(read), "action.yml has its inputs in the order of stepflow/run/start/inputs.py"
    assert all(read.values())
    assert len(declared.keys() - set(NOT_FOR_PEOPLE)) <= MOST_INPUTS, (
        f"action.yml has more than {MOST_INPUTS} inputs, which nobody reads through. Make the new one a key of an "
        "input that is a map (stepflow/run/start/input_maps.py), of agent.json or of the policy; or make two one."
    )
    assert tuple(declared)[: len(FIRST_INPUTS)] == FIRST_INPUTS, "what most people need comes first"


def test_the_defaults_of_action_yml_are_those_of_the_code() -> None:
    inputs = ACTION["inputs"]
    without = [name for name, described in inputs.items() if "default" not in described]
    assert not without, f'write `default: ""` in action.yml for {", ".join(without)}'
    given = {name: described["default"] for name, described in inputs.items()}
    # What the runner fills in is GitHub's own here, and the host's folder has no default without a runner.
    assert given.pop("host") == "host=${{ runner.temp }}"
    assert {type(default) for default in given.values()} == {str}
    assert read_inputs(given) == Inputs()


def test_action_yml_has_the_outputs_that_the_code_sets() -> None:
    assert tuple(ACTION["outputs"]) == tuple(outputs_of(collect_report(())))
    assert all(described["description"] for described in ACTION["outputs"].values())


# Tables


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_generated_tables_are_up_to_date(document: Path) -> None:
    assert written(document) == document.read_text(encoding="utf-8"), "run `make docs`"


# Workflows to paste


def test_the_workflow_to_paste_is_the_one_that_the_end_to_end_tests_run() -> None:
    assert named_block("workflow", USE_PAGE) == (ROOT / "tests/e2e/stepflow.yml").read_text(encoding="utf-8")


def _with_resume() -> str:
    begun, _, ended = around_action(named_block("workflow", USE_PAGE))
    before, permission, after = begun.partition("      pull-requests: write")
    comment, steps = after.split("\n", 1)
    more = (named_block(name, RESUME_PAGE) for name in ("cache mode", "resume"))
    return f"{before}{permission}{comment}\n{next(more)}{steps}{next(more)}{ended}"


WORKFLOWS = {
    "quick start": lambda: named_block("quick start"),
    "workflow": lambda: named_block("workflow", USE_PAGE),
    "workflow with resume": _with_resume,
    **{
        name: partial(named_block, name, RECIPES)
        for name in (block.name for block in page_blocks(RECIPES))
        if name.endswith("workflow")
    },
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_to_paste_is_clean_and_gives_inputs_that_exist(name: str, tmp_path: Path) -> None:
    check_workflow(WORKFLOWS[name](), tmp_path)


@pytest.mark.whole
def test_the_steps_for_code_scanning_are_clean_and_their_command_makes_what_they_upload(tmp_path: Path) -> None:
    whole = yaml.safe_load(named_block("validate workflow", RECIPES))
    job = whole["jobs"]["agents"]
    run, upload = steps = yaml.safe_load(named_block("code scanning", RECIPES))
    job["permissions"]["security-events"] = "write"
    job["steps"] = [job["steps"][0], *steps]
    # PyYAML reads the key `on` as true.
    document = yaml.safe_dump({"on": whole.pop(True), **whole}, sort_keys=False)
    pinned = re.sub(r"(@[0-9a-f]{40})$", r"\1 # pinned", document, flags=re.M)
    lint_workflow(pinned, tmp_path, pedantic=False)
    command, _, target = run["run"].partition(" > ")
    assert upload["with"]["sarif_file"] == target
    write_agent(tmp_path)
    words = shlex.split(command)[shlex.split(command).index("stepflow") :]
    done = subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["version"]) == (0, "2.1.0")


# The agent to paste

SCENARIO = """
turns:
  - expect_step: initial.issue
    expect_prompt: ["Find the cause", "1h30m"]
    output: { intent: next, plan: write the note }
  - expect_step: continuation.issue
    expect_prompt: ["The plan: write the note"]
    tools:
      - bash: { command: "echo solved > NOTE" }
  - output: { intent: handoff, changes: the note is written }
  - expect_step: closure.issue
    expect_prompt: ["What was done: the note is written"]
    output: { intent: closing, comment: The note is there. }
  - expect_step: continuation.issue
    expect_prompt: ["The closing was refused: `git-clean` failed (2 attempts left).", "NOTE"]
    tools:
      - bash: { command: "git add NOTE && git commit -qm 'Add the note'" }
  - output: { intent: handoff, changes: the note is committed }
  - expect_step: closure.issue
    expect_prompt: ["What was done: the note is committed"]
    output: { intent: closing, comment: The note is there. }
"""


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A runner on a repository whose agent is the one of docs/agent.md, and whose tests are `make test`."""
    root = make_checkout(tmp_path / "checkout")
    write_agent(root)
    (root / "Makefile").write_text("test:\n\tgrep -q solved NOTE\n")
    (root / "scenario.yaml").write_text(SCENARIO)
    git("add", "-A", cwd=root)
    git("commit", "-qm", "Take the agent of the page", cwd=root)
    folder = tmp_path / "runner"
    folder.mkdir()
    inputs = {"scenario": "scenario.yaml", "boundary": "dry-run", "isolation": "best-effort"}
    return Runner(checkout=root, folder=folder, inputs=inputs)


def write_agent(root: Path) -> Path:
    folder = root / ".agent" / "fixer"
    subprocess.run(["rm", "-rf", folder], check=True)
    for name, text in agent_files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_the_agent_to_paste_loads_without_any_problem(tmp_path: Path) -> None:
    assert "Seven files under `.agent/`" in AGENT_PAGE.read_text(encoding="utf-8")
    assert len(agent_files()) == 8, "seven, and a scenario"
    assert load_agent(write_agent(tmp_path)).problems == ()


@pytest.mark.whole
def test_the_agent_to_paste_is_sent_back_by_the_retry_prompt_to_paste_and_opens_a_pull_request(
    runner: Runner,
) -> None:
    done = runner.run(labeled())
    assert (done.exit_code, done.outputs["outcome"], done.outputs["validated"]) == (0, "completed", "true"), done.log
    report = json.loads(Path(done.outputs["report"]).read_text())
    steps = ["initial.issue", *["continuation.issue", "closure.issue"] * 2]
    assert [line["step"] for line in report["history"]] == steps
    kinds = [effect["kind"] for effect in report["effects"]]
    assert kinds[:3] == ["push_branch", "open_pull_request", "post_comment"]
    assert "close_issue" not in kinds


@pytest.mark.whole
def test_the_scenario_to_paste_rehearses_green_on_a_pull_request_without_a_key(runner: Runner) -> None:
    (runner.checkout / "Makefile").write_text("test:\n\ttest -f START.md\n")
    second = f"{AGENT}scenarios/forgets-to-commit.yaml"
    (runner.checkout / second).write_text(named_block(second, SCENARIOS_PAGE))
    given = yaml.safe_load(named_block("rehearse workflow", RECIPES))["jobs"]["agents"]["steps"][-1]["with"]
    runner.inputs = {"isolation": "best-effort", **given}
    done = runner.run({"action": "opened", "pull_request": {"number": 3}}, name="pull_request")
    assert (done.exit_code, done.outputs["outcome"]) == (0, "completed"), done.log
    assert "forgets-to-commit" in done.log


def test_every_json_and_markdown_block_is_a_file_of_the_agent() -> None:
    blocks = [block for block in page_blocks(AGENT_PAGE) if block.language in ("json", "markdown")]
    assert {block.name.removeprefix(AGENT) for block in blocks} == set(agent_files()) - {"scenarios/leaves-a-note.yaml"}
    assert all(json.loads(block.text) for block in blocks if block.language == "json")


# Commands


def _commands() -> list[list[str]]:
    blocks = [*page_blocks(README), *page_blocks(BUILT_PAGE)]
    lines = [line for block in blocks if block.language in ("sh", "bash") for line in block.text.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def test_every_command_of_the_readme_exists() -> None:
    commands = _commands()
    assert {words[0] for words in commands} == {"make", "pipx", "stepflow"}
    for words in commands:
        match words:
            case ["make", target]:
                assert target in MAKE_TARGETS
            case ["pipx", "install", address] | ["pipx", "run", "--spec", address, "stepflow", "demo"]:
                assert address == "git+https://github.com/org/stepflow-action"
            case ["stepflow", command, *_]:
                assert command in COMMANDS
            case _:
                raise AssertionError(words)


def test_every_block_of_the_documents_is_one_that_a_test_knows() -> None:
    """The tests of a page try its blocks by language and name; one that is new needs a test before it is listed."""
    pages = (
        README,
        ROOT / "SECURITY.md",
        *sorted(page for page in DOCS.rglob("*.md") if page.parent not in (KEYS, RULES)),
    )
    blocks = [
        f"{page.relative_to(ROOT)}: {block.language} {block.name}".rstrip() + "\n"
        for page in pages
        for block in page_blocks(page)
    ]
    assert_golden("docs/blocks.txt", "".join(dict.fromkeys(blocks)))


def test_the_program_to_paste_runs_the_agent_of_the_examples(tmp_path: Path, monkeypatch, capsys) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "examples" / "checkout").mkdir()
    monkeypatch.chdir(tmp_path / "examples")
    (program,) = [block.text for block in page_blocks(REFERENCE_PAGE) if block.language == "python"]
    exec(compile(program, "docs/reference.md", "exec"), {})
    first, *history = capsys.readouterr().out.splitlines()
    assert first == "True Completion loop: anybody would be glad to get it 4"
    assert history[1] == "closure.greet closing short and clear"


@pytest.mark.whole
def test_the_command_that_the_demo_ends_with_runs_its_agent_on_a_real_model(tmp_path: Path) -> None:
    """The command is run as it stands, with a loopback server in place of the API."""
    demo = _stepflow("demo", "--keep", str(tmp_path / "kept"))
    assert demo.returncode == 0, demo.stderr
    *_, message, _, command = demo.stdout.splitlines()
    assert "set ANTHROPIC_API_KEY" in message
    aborts = answers(
        {"next_action": {"action": "abort", "reason": "enough seen"}, "cause": "none", "plan": "none"},
    )
    with MessagesApi([calls(("read", {"file_path": "durations.py"})), aborts], api_key="sk-ant-readme") as api:
        folder = str(tmp_path / "run")
        more = f"--model base-url={api.url} --run-folder {folder}"
        done = subprocess.run(
            ["sh", "-c", f"{command} {more}"],
            env={**os.environ, "ANTHROPIC_API_KEY": "sk-ant-readme"},
            capture_output=True,
            text=True,
            check=False,
        )
        requests = [json.dumps(body) for body in api.bodies]
    assert done.returncode == 1
    assert "aborted" in done.stdout
    assert "A duration such as 1h30m is not understood" in requests[0]
    assert "How many seconds are `90s`, `25m` or `2h`?" in requests[1], "the copy is not untouched"


def test_the_readme_is_short() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 130
    assert len(text.split()) <= 1000


def _stepflow(*words: str, key: str = "") -> subprocess.CompletedProcess[str]:
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "GITHUB", "VIRTUAL_ENV"))
    }
    environ |= {"ANTHROPIC_API_KEY": key} if key else {}
    command = [sys.executable, "-m", "stepflow", *words]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)


# The picture and the rest


@pytest.mark.whole
def test_the_picture_is_what_a_run_of_the_demo_shows() -> None:
    drawn = picture.draw(picture.shown(picture.run_demo()))
    assert drawn == picture.PICTURE.read_text(encoding="utf-8"), "run `make docs` and look at the picture"
    assert picture.PICTURE.stat().st_size < 50_000


@pytest.mark.whole
def test_the_first_picture_is_the_run_of_the_demo_and_is_described_in_words() -> None:
    issue, report = story.run_demo()
    assert story.draw(issue, report) == story.PICTURE.read_text(encoding="utf-8"), "run `make docs` and look at it"
    drawn = pull_request.draw(issue, report)
    assert drawn == pull_request.PICTURE.read_text(encoding="utf-8"), "run `make docs` and look at it"
    assert f"![{story.describe(report)}](docs/story.svg)" in README.read_text(encoding="utf-8")
    assert f"![{pull_request.describe(report)}](pull-request.svg)" in USE_PAGE.read_text(encoding="utf-8")


def test_the_changelog_begins_with_what_is_not_released_and_names_the_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert re.findall(r"^## \[([^\]]+)\]", changelog, re.M)[0] == "Unreleased"
    assert version in changelog
