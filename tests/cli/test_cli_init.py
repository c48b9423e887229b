"""`stepflow init`: what it writes validates without a word and rehearses green at once, in any repository."""

from __future__ import annotations

import glob
import io
import json
import os
import re
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from stepflow.cli import main
from stepflow.cli.init import JUDGES_NOTHING, ask
from stepflow.cli.layouts.find import DetectedCheck, find_checks, find_setup
from stepflow.cli.terminal import make_console
from stepflow.cli.workflow import WHAT_TO_DO, workflow_text
from stepflow.definition.builtin import (
    BUILTIN,
    OWN_CHECK,
    READ_ONLY,
    STANDS_FOR,
    agent_files,
    name_checks,
)
from stepflow.definition.loading import load_agent, validate_agent
from stepflow.domain.words import StepKind
from stepflow.engine.prompt.template import parse_template
from stepflow.sandbox.environment import SYSTEM_PATH
from tests.checkout import git
from tests.cli.terminal import at_terminal
from tests.docs.page import around_action, named_block
from tests.e2e.layouts.sample import SampleProject
from tests.e2e.layouts.table import LAYOUTS

PROGRAMS = tuple(map(Path, SYSTEM_PATH))
PIP = "            python3 -m pip install --user --quiet"
NPM = "npm install --global --prefix ~/.local"
PNPM = "pnpm install --frozen-lockfile"
PYPROJECT = """[project]
name = "sizes"
[project.optional-dependencies]
test = ["pytest"]
docs = ["sphinx"]
[dependency-groups]
dev = ["ruff"]
"""
ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "stepflow/definition/templates"
PACKAGE = json.dumps({"scripts": {"test": "node -e 0", "lint": "node -e 0", "start": "x"}})
NO_TESTS = json.dumps({"scripts": {"test": 'echo "Error: no test specified" && exit 1'}})
TEST_FILE = "def test_it() -> None:\n    assert True\n"
#: What stands in a repository → the commands that its files tell.
CRATE = '[package]\nname = "x"\nversion = "0.1.0"\nedition = "2021"\n'
REPOSITORIES = {
    "empty": ({}, []),
    "make": ({"Makefile": "test: all\n\ttrue\nall:\ncheck::\n\ttest -d .\nlint := x\n"}, ["make test", "make check"]),
    "node": ({"package.json": PACKAGE}, ["npm run test", "npm run lint"]),
    "node without tests": ({"package.json": NO_TESTS}, []),
    "python": (
        {"pyproject.toml": "[tool.ruff]\n[tool.mypy]\n", "tests/test_it.py": TEST_FILE},
        ["python3 -m pytest -q", "ruff check .", "python3 -m mypy ."],
    ),
    "rust": (
        {"Cargo.toml": CRATE, "src/lib.rs": "", ".gitignore": "target/\nCargo.lock\n"},
        ["cargo test --quiet"],
    ),
    "make before node": (
        {"Makefile": "test:\n\ttest -d .\n", "package.json": PACKAGE},
        ["make test", "npm run lint"],
    ),
    "broken": ({"package.json": "[", "pyproject.toml": "[", "Makefile": "\x00"}, []),
    "odd": ({"package.json": '{"scripts": []}', "pyproject.toml": "[project]\n"}, []),
}


def repository(folder: Path, files: dict[str, str]) -> Path:
    """A repository with these files, committed."""
    root = folder / "repository"
    root.mkdir()
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    git("init", "--quiet", cwd=root)
    git("add", "--all", cwd=root)
    git("commit", "--quiet", "--allow-empty", "--message", "Begin", cwd=root)
    return root


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository, as the current folder."""
    root = repository(tmp_path, {})
    monkeypatch.chdir(root)
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path / "temp"))
    return root


def demand_sound_and_green(root: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No problem of any kind, and every scenario as expected."""
    assert [str(problem) for problem in validate_agent(name, root=root)] == []
    capsys.readouterr()
    assert main(["rehearse", name, "--repo", str(root)]) == 0, capsys.readouterr().out


# What is shipped


def test_the_schemas_for_editors_are_those_of_stepflow_schema_on_one_line_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "mine", "--repo", str(tmp_path)]) == JUDGES_NOTHING
    capsys.readouterr()
    for name in ("agent", "registry", "scenario"):
        text = (tmp_path / f".agent/{name}.schema.json").read_text("utf-8")
        assert text.count("\n") == 1
        assert main(["schema", name]) == 0
        assert json.loads(text) == json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("template", BUILTIN)
def test_a_shipped_agent_is_an_agent_as_it_stands(template: str, tmp_path: Path) -> None:
    agent = load_agent(write(tmp_path, template, STANDS_FOR))
    assert agent.problems == ()
    kinds = {step.kind for step in agent.steps.values()}
    more = {"verify": {StepKind.WORK, StepKind.VERIFICATION}, "triage": set()}.get(template, {StepKind.WORK})
    assert kinds == {StepKind.CLOSURE} | more
    for step_id, step in agent.steps.items():
        assert not step_id.startswith("initial.") or "handoff" not in {str(intent) for intent in step.edges}
    entry = agent.steps["closure.default"].validation
    assert entry is not None
    assert {parse_template(prompt.text).faults for prompt in entry.retry_prompts.values()} == {()}


def write(folder: Path, template: str, name: str) -> Path:
    for path, text in agent_files(template, name, ()).items():
        (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / path).write_text(text, encoding="utf-8")
    return folder / name


def test_review_can_only_read() -> None:
    registry = json.loads(agent_files("review", "reader", ())["steps_registry.json"])
    assert {step["permissionMode"] for step in registry["steps"].values()} == {"plan"}


def test_the_workflow_is_the_one_of_the_readme() -> None:
    assert workflow_text() == (ROOT / "tests/e2e/stepflow.yml").read_text(encoding="utf-8")


def test_the_package_ships_every_file_of_the_templates() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["stepflow.cli"]
    covered = set(chain.from_iterable(glob.glob(each, root_dir=SHIPPED.parent, recursive=True) for each in patterns))  # noqa: PTH207
    files = {path.relative_to(SHIPPED.parent).as_posix() for path in SHIPPED.rglob("*") if path.is_file()}
    assert len(files) > 20
    assert files - covered == set()


# What is written


@pytest.mark.whole
def test_a_new_agent_is_sound_and_green_and_the_next_commands_are_told(empty: Path, capsys) -> None:
    assert main(["init", "helper"]) == JUDGES_NOTHING
    output = capsys.readouterr().out
    commands = re.findall(r"^  (stepflow \w+ helper)", output, re.M)
    assert commands == ["stepflow validate helper", "stepflow rehearse helper", "stepflow run helper"]
    assert "wrote  .github/workflows/stepflow.yml" in output
    lines = (empty / ".github/workflows/stepflow.yml").read_text().splitlines(keepends=True)
    (unknown,) = [line for line in lines if "# Not known: how this repository is installed and tested" in line]
    lines.remove(unknown)
    assert "".join(lines) == workflow_text()
    demand_sound_and_green(empty, "helper", capsys)


@pytest.mark.whole
@pytest.mark.parametrize("kind", [kind for kind in REPOSITORIES if kind not in ("pnpm", "odd")])
def test_every_shipped_agent_is_sound_and_green_in_every_repository(
    kind: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in one, under names that YAML could take for something else."""
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path / "temp"))
    # The tools of Python are those of these tests, as in an environment that somebody has activated.
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    monkeypatch.setenv("PATH", os.pathsep.join((f"{sys.prefix}/bin", os.environ["PATH"])))
    root = repository(tmp_path, {**REPOSITORIES[kind][0], ".github/workflows/stepflow.yml": "on: push\n"})
    named = dict(zip(("null", "yes", "on", "n", "off"), BUILTIN, strict=True))
    for name, template in named.items():
        unjudged = template not in READ_ONLY and not any(each.can_run for each in find_checks(root, PROGRAMS))
        code = JUDGES_NOTHING if unjudged else 0
        assert main(["init", name, "--from", f"builtin/{template}", "--repo", str(root)]) == code
        output = capsys.readouterr().out
        assert f"  cd {root}\n" in output
        own = f"wrote  .github/workflows/stepflow-{name}.yml"
        assert (own if template in READ_ONLY else "left as it is  .github/workflows/stepflow.yml") in output
        assert [str(problem) for problem in validate_agent(name, root=root)] == []
    assert (root / ".github/workflows/stepflow.yml").read_text() == "on: push\n"
    # The checks differ from one repository to the next, and not from one agent to the next.
    rehearsed = () if kind in ("python", "empty") else ("null",)
    assert main(["rehearse", *rehearsed, "--repo", str(root)]) == 0, capsys.readouterr().out
    scenarios = [*(root / ".agent").glob(f"{rehearsed[0] if rehearsed else '*'}/scenarios/*.yaml")]
    assert len(scenarios) >= len(rehearsed or BUILTIN)
    assert f"{len(scenarios)} scenario" in capsys.readouterr().out


@pytest.mark.whole
def test_given_checks_become_validators_in_registry_prompts_and_scenario(empty: Path, capsys) -> None:
    commands = ["test -d .git", 'echo "a `b` $HOME"', "echo テスト 🐛", "test -d .git -a -d .agent"]
    words = [word for command in commands for word in ("--check", command)]
    assert main(["init", "fixer", "--from", "builtin/minimal", *words]) == 0
    folder = empty / ".agent/fixer"
    registry = json.loads((folder / "steps_registry.json").read_text(encoding="utf-8"))
    names = [OWN_CHECK, "test-d-git", "echo-a-b", "echo", "test-d-git-2"]
    assert list(registry["validators"]) == names
    assert [registry["validators"][name]["command"] for name in names[1:]] == commands
    prompt = (folder / "prompts/steps/continuation/default/f_default.md").read_text(encoding="utf-8")
    assert '- `` echo "a `b` $HOME" ``\n- `echo テスト 🐛`\n' in prompt
    scenario = yaml.safe_load((folder / "scenarios/straight.yaml").read_text(encoding="utf-8"))
    assert list(scenario["expect"]["validators"]) == names
    demand_sound_and_green(empty, "fixer", capsys)


@pytest.mark.parametrize("template", BUILTIN)
def test_a_check_that_holds_a_word_of_the_templates_stays_as_it_was_given(template: str) -> None:
    command = f"make lint-{STANDS_FOR}"
    made = agent_files(template, "fixer", name_checks([command]))
    registry = json.loads(made["steps_registry.json"])
    assert command in [each.get("command") for each in registry["validators"].values()]
    assert "make-lint-agent" in registry["validators"]
    assert registry["agentId"] == "fixer"
    output = "".join(made.values())
    assert "lint-fixer" not in output
    assert STANDS_FOR not in output.replace(command, "")


def test_the_files_fit_the_schemas_that_they_name(empty: Path) -> None:
    assert main(["init", "fixer", "--from", "builtin/verify"]) == JUDGES_NOTHING
    folder = empty / ".agent/fixer"
    for file in ("agent.json", "steps_registry.json"):
        document = json.loads((folder / file).read_text())
        Draft202012Validator(json.loads((folder / document["$schema"]).read_text())).validate(document)
    (scenario,) = (folder / "scenarios").iterdir()
    text = scenario.read_text()
    (named,) = re.findall(r"^# yaml-language-server: \$schema=(\S+)$", text, re.M)
    schema = json.loads((scenario.parent / named).read_text())
    Draft202012Validator(schema).validate(yaml.safe_load(text))


@pytest.mark.whole
def test_nothing_is_ever_overwritten(empty: Path, capsys) -> None:
    assert main(["init", "fixer"]) == JUDGES_NOTHING
    before = {path: path.read_bytes() for path in (empty / ".agent").rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main(["init", "fixer", "--from", "builtin/minimal"]) == 2
    output = capsys.readouterr().err
    assert ".agent/fixer already exists; nothing was written" in output
    assert {path: path.read_bytes() for path in (empty / ".agent").rglob("*") if path.is_file()} == before
    assert main(["init", "other"]) == JUDGES_NOTHING
    assert "left as it is  .github/workflows/stepflow.yml" in capsys.readouterr().out


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["Fixer", "a_b", "../x", "1a", "é", "a b", ""])
def test_what_is_no_name_is_told_and_writes_nothing(empty: Path, capsys, name: str) -> None:
    assert main(["init", name]) == 2
    assert "name" in capsys.readouterr().err
    assert not (empty / ".agent").exists()


def test_a_folder_that_cannot_be_written_is_told(empty: Path, capsys) -> None:
    (empty / ".agent").write_text("a file\n")
    assert main(["init", "fixer"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_check_whose_program_nothing_brings_is_told_and_not_taken(
    empty: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", ":".join(SYSTEM_PATH))
    (empty / "sizes.csproj").touch()
    assert main(["init", "fixer"]) == JUDGES_NOTHING
    assert "Not added: sizes.csproj suggests `dotnet test`" in capsys.readouterr().out
    assert "dotnet" not in (empty / ".agent/fixer/steps_registry.json").read_text()


def test_a_check_whose_program_the_setup_brings_is_taken(empty: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", ":".join(SYSTEM_PATH))
    (empty / "package.json").write_text('{"scripts": {"test": "node --test"}}')
    (empty / "pnpm-lock.yaml").touch()
    assert main(["init", "fixer"]) == 0
    assert "pnpm run test" in (empty / ".agent/fixer/steps_registry.json").read_text()


def test_an_agent_that_judges_nothing_is_named_by_init_and_validate(
    empty: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["init", "fixer"]) == JUDGES_NOTHING
    warning = capsys.readouterr().err
    assert "WARNING: fixer judges nothing" in warning
    assert "--check" in warning
    assert main(["validate", "fixer"]) == 0
    assert "warning[SF612]" in capsys.readouterr().out
    assert main(["validate", "--strict", "fixer"]) == 2


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            {"sizes.bats": ""},
            "`bats` is not on this machine. Install it to rehearse and run the agent here (in Debian: bats).",
        ),
        (
            {"package.json": '{"scripts": {"test": "node --test"}}', "pnpm-lock.yaml": ""},
            "`pnpm` is not on this machine. Install it to rehearse and run the agent here, or let each of the two do "
            f"so: `--setup '{NPM} pnpm && {PNPM}'`.",
        ),
        (
            {"tests/test_it.py": TEST_FILE, "ruff.toml": "", "requirements.txt": ""},
            "`pytest` and `ruff` are not on this machine. Install them to rehearse and run the agent here, or let each "
            f"of the two do so: `--setup '{PIP.strip()} --requirement requirements.txt && {PIP.strip()} pytest ruff'`.",
        ),
        ({"Makefile": "test:\n\ttest -d .\n"}, ""),
    ],
)
def test_what_is_missing_here_is_told_with_how_to_run_the_agent_here(
    files: dict[str, str], told: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", ":".join(SYSTEM_PATH))
    root = repository(tmp_path, files)
    assert main(["init", "fixer", "--repo", str(root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "on this machine" in line] == ([told] if told else [])
    assert lines[lines.index("Next:") - 1] == ""


@pytest.mark.parametrize(
    ("scripts", "told"),
    [
        ({"lint": "eslint .", "test": "node --test"}, "`npm run lint` may check these files too."),
        ({"lint": "tsc --noEmit", "test": "node --test"}, ""),
        ({"test": "prettier --check . && node --test"}, "`npm run test` may check these files too."),
    ],
)
def test_a_check_that_may_read_what_init_writes_is_named(
    scripts: dict[str, str], told: str, tmp_path: Path, capsys
) -> None:
    root = repository(tmp_path, {"package.json": json.dumps({"scripts": scripts})})
    commands = (word for name in scripts for word in ("--check", f"npm run {name}"))
    assert main(["init", "fixer", "--repo", str(root), *commands]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "these files too" in line]
    assert [line.partition(" If it fails")[0] for line in lines] == ([told] if told else [])


def test_programs_of_an_environment_that_is_not_active_are_told_with_how_to_activate_it(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", ":".join(SYSTEM_PATH))
    root = repository(tmp_path, {"tests/test_it.py": TEST_FILE, ".gitignore": "venv\n"})
    (root / "venv/bin").mkdir(parents=True)
    (root / "venv/bin/pytest").touch()
    assert main(["init", "fixer", "--repo", str(root)]) == 0
    told = "`pytest` is in venv. To rehearse and run the agent here: `source venv/bin/activate`."
    assert told in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("template", READ_ONLY)
def test_an_agent_that_changes_no_file_needs_no_check_and_has_a_workflow_of_its_own(
    empty: Path, capsys, template: str
) -> None:
    assert main(["init", "reader", "--from", f"builtin/{template}"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    text = (empty / ".github/workflows/stepflow-reader.yml").read_text("utf-8")
    assert not (empty / ".github/workflows/stepflow.yml").exists()
    recipe = yaml.safe_load(named_block(f"{template} workflow", ROOT / f"docs/how-to/{template}.md"))
    written = yaml.safe_load(text)
    # What YAML 1.1 makes of the key `on`.
    events = {name: types for name, types in recipe[True].items() if name in written[True]}
    assert written[True] == events
    (job,), (shown,) = written["jobs"].values(), recipe["jobs"].values()
    assert job["permissions"] == shown["permissions"]
    inputs, told = job["steps"][-1]["with"], shown["steps"][-1]["with"]
    assert inputs.pop("agent") == "reader"
    assert inputs.pop("policy")
    # A line of the page's own names an account, which nobody else has.
    assert set(inputs.pop("start", "").splitlines()) <= set(told.pop("start", "").splitlines())
    assert inputs.items() <= told.items()
    assert main(["validate", "reader"]) == 0
    assert "SF612" not in capsys.readouterr().out


def test_an_agent_in_a_folder_of_the_repository_has_a_workflow_at_its_root(tmp_path: Path, capsys) -> None:
    root = repository(tmp_path, {"packages/api/package.json": PACKAGE, "packages/api/.keep": "", "pnpm-lock.yaml": ""})
    folder = root / "packages/api"
    assert main(["init", "fixer", "--repo", str(folder)]) == 0
    assert not (folder / ".github").exists()
    workflow = yaml.safe_load((root / ".github/workflows/stepflow-packages-api-fixer.yml").read_text("utf-8"))
    (job,) = workflow["jobs"].values()
    assert "github.event.label.name == 'agent:fixer'" in job["if"]
    (inputs,) = [step["with"] for step in job["steps"] if step.get("id") == "stepflow"]
    assert inputs["working-directory"] == "packages/api"
    assert "pnpm install --frozen-lockfile" in inputs["setup"]
    assert "--repo ../.. --working-directory packages/api" in capsys.readouterr().out


def test_an_existing_workflow_that_installs_nothing_is_told_what_it_lacks(tmp_path: Path, capsys) -> None:
    root = repository(tmp_path, {"go.mod": "", ".github/workflows/stepflow.yml": "on: push\n"})
    assert main(["init", "fixer", "--repo", str(root)]) == 0
    output = capsys.readouterr().out
    assert ".github/workflows/stepflow.yml does not install what the checks need" in output
    assert "apt-packages: golang-go" in output
    assert "go mod download" in output


# What is found


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", REPOSITORIES)
def test_the_files_of_a_repository_tell_its_checks(kind: str, tmp_path: Path) -> None:
    files, commands = REPOSITORIES[kind]
    assert [each.command for each in find_checks(repository(tmp_path, files), PROGRAMS)] == commands


@pytest.mark.sample(4)
@pytest.mark.parametrize("sample", LAYOUTS, ids=lambda sample: sample.name)
def test_the_usual_layouts_tell_their_checks_and_what_is_not_known_of_them(
    sample: SampleProject, tmp_path: Path
) -> None:
    """What is written for them runs in the image in tests/e2e."""
    sample.write(tmp_path)
    folder = tmp_path / sample.folder
    commands = [each.command for each in find_checks(folder, PROGRAMS)]
    assert commands == [*sample.checks]
    assert find_setup(folder, commands).unknown == ((sample.unknown,) if sample.unknown else ())


@pytest.mark.whole
@pytest.mark.parametrize(
    ("files", "commands", "lines"),
    [
        ({}, ["make test"], ""),
        ({}, ["true"], ""),
        ({"requirements.txt": ""}, ["make test"], f"setup: |\n{PIP} --requirement requirements.txt\n"),
        (
            {"pyproject.toml": PYPROJECT},
            ["python3 -m pytest"],
            f"setup: |\n{PIP} --editable '.[test]' --group dev pytest\n",
        ),
        (
            {
                "requirements/test.txt": "",
                "requirements/docs.txt": "",
                "dev-requirements.txt": "",
                "Makefile": "test:\n\tpytest\n",
            },
            ["make test"],
            f"setup: |\n{PIP} --requirement dev-requirements.txt --requirement requirements/test.txt\n{PIP} pytest\n",
        ),
        (
            {"uv.lock": "", "pyproject.toml": PYPROJECT},
            ["uv run x"],
            f"setup: |\n{PIP} uv && uv sync --locked --quiet --extra test\n",
        ),
        ({}, ["pytest -q", "mypy ."], f"setup: |\n{PIP} pytest mypy\n"),
        ({"package.json": "{}", "package-lock.json": ""}, ["npm run test"], "setup: |\n            npm ci\n"),
        ({"go.mod": ""}, ["make"], "apt-packages: golang-go\n          setup: |\n            go mod download\n"),
        ({"go.mod": "", "vendor/modules.txt": ""}, ["make"], "apt-packages: golang-go\n"),
        (
            {"package.json": '{"packageManager": "pnpm@9.1.0+sha512.0"}', "pnpm-lock.yaml": ""},
            ["make"],
            f"setup: |\n            {NPM} pnpm@9.1.0 && {PNPM}\n",
        ),
        ({"pnpm-lock.yaml": "lockfileVersion: '6.0'\n"}, ["make"], f"setup: |\n            {NPM} pnpm@8 && {PNPM}\n"),
        (
            {"yarn.lock": "# yarn lockfile v1\n"},
            ["make"],
            f"setup: |\n            {NPM} yarn && yarn install --frozen-lockfile\n",
        ),
        (
            {"yarn.lock": "__metadata:\n  version: 8\n"},
            ["make"],
            f"setup: |\n            {NPM} @yarnpkg/cli-dist@4.9.1 && yarn install --immutable\n",
        ),
        (
            {"package.json": '{"dependencies": {"ms": "2"}}'},
            ["make"],
            "setup: |\n            npm install --no-package-lock\n",
        ),
        ({"CMakeLists.txt": ""}, ["make"], "apt-packages: cmake g++ make\n"),
        (
            {"Package.swift": ""},
            ["make"],
            f"# Not known: how to install what Package.swift asks for. {WHAT_TO_DO}\n",
        ),
        (
            {"build.gradle": ""},
            ["make"],
            f"# Not known: which Gradle build.gradle needs, since the repository has no `gradlew`. {WHAT_TO_DO}\n",
        ),
    ],
)
def test_the_workflow_installs_what_the_checks_need(
    tmp_path: Path, files: dict[str, str], commands: list[str], lines: str
) -> None:
    text = workflow_text(setup=find_setup(repository(tmp_path, files), commands))
    before, step, after = around_action(text)
    bare = around_action(workflow_text())
    assert (before, after) == (bare[0], bare[2])
    assert step.removeprefix(bare[1]).lstrip() == lines
    assert yaml.safe_load(step)[0]["with"]["agent"] == "${{ inputs.agent }}"


def test_the_checkout_brings_submodules_and_lfs_where_the_repository_has_them(tmp_path: Path, capsys) -> None:
    attributes = "*.bin filter=lfs diff=lfs merge=lfs -text\n"
    root = repository(
        tmp_path, {".gitmodules": "", "deep/er/.gitattributes": attributes, "Makefile": "test:\n\t./test\n"}
    )
    assert main(["init", "fixer", "--repo", str(root)]) == 0
    assert "checks out with `submodules: recursive`, `lfs: true`" in capsys.readouterr().out
    workflow = yaml.safe_load((root / ".github/workflows/stepflow.yml").read_text("utf-8"))
    (checkout,) = [
        step for step in workflow["jobs"]["stepflow"]["steps"] if step.get("uses", "").startswith("actions/checkout@")
    ]
    assert checkout["with"] == {"persist-credentials": False, "submodules": "recursive", "lfs": True}


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "Not known: how this repository is installed and tested; no file at its root says so."),
        ({"package.json": NO_TESTS}, "Not known: how this repository is tested; package.json does not say so."),
        ({"Package.swift": ""}, "Not known: how to install what Package.swift asks for."),
    ],
)
def test_what_is_not_known_is_told_with_what_to_do(
    tmp_path: Path, capsys, files: dict[str, str], sentence: str
) -> None:
    root = repository(tmp_path, files)
    assert main(["init", "fixer", "--repo", str(root)]) == JUDGES_NOTHING
    advice = "Give commands with --check, and write what they need into .github/workflows/stepflow.yml."
    assert f"{sentence} {advice}\n" in capsys.readouterr().out
    written = (root / ".github/workflows/stepflow.yml").read_text("utf-8")
    assert f"          # {sentence} {WHAT_TO_DO}\n" in written
    assert yaml.safe_load(around_action(written)[1])[0]["with"]["agent"] == "${{ inputs.agent }}"


@pytest.mark.parametrize("name", ["pyproject.toml", "package.json", "Taskfile.yml"])
def test_a_manifest_that_cannot_be_parsed_is_told(tmp_path: Path, capsys, name: str) -> None:
    root = repository(tmp_path, {name: "["})
    assert main(["init", "fixer", "--repo", str(root)]) == JUDGES_NOTHING
    assert f"Not read: {name} is not valid " in capsys.readouterr().out


def test_no_two_checks_get_one_name() -> None:
    checks = name_checks(["git clean", "a", "A", "a", " ", "テスト", "型", "make   test"])
    assert [check.name for check in checks] == ["git-clean-2", "a", "a-2", "check", "check-2", "make-test"]


def test_a_check_is_named_after_its_tool() -> None:
    checks = name_checks(["uv run --locked --extra test pytest -q", "python3 -m mypy", "bundle exec rspec", "uv run x"])
    assert [check.name for check in checks] == ["pytest-q", "mypy", "rspec", "x"]


# At a terminal


@pytest.mark.whole
def test_at_a_terminal_it_asks_for_what_is_not_given(tmp_path: Path, capsys) -> None:
    root = repository(
        tmp_path, {"Makefile": "test:\n\ttest -d .git\nlint:\n\tfalse\n", ".agent/fixer/agent.json": "{}"}
    )
    output = at_terminal(
        "init", cwd=root, columns=200, TERM="dumb", keys="\nBad Name\nhelper\nverify\ny\nn\ntest -d .git\n\n"
    )
    assert ".agent/fixer already exists; nothing was written" in output
    assert '"Bad Name" is not an agent name' in output
    assert "make lint (Makefile)" in output
    registry = json.loads((root / ".agent/helper/steps_registry.json").read_text())
    commands = [each["command"] for each in registry["validators"].values()]
    assert commands == ["git status --porcelain", "make test", "test -d .git"]
    demand_sound_and_green(root, "helper", capsys)


@pytest.mark.whole
def test_with_a_shipped_agent_given_it_asks_nothing(tmp_path: Path) -> None:
    root = repository(tmp_path, {"Makefile": "test:\n\ttest -d .\n"})
    words = ("init", "helper", "--from", "builtin/minimal")
    assert "Template" not in at_terminal(*words, cwd=root, TERM="dumb")
    assert (root / ".agent/helper/agent.json").exists()


def test_a_question_shows_what_the_repository_names_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither markup nor a command of the terminal changes the question, or ends it."""
    command = "make [/x] [red]all[/red]\x1b[2J\n✓ wrote"
    check = DetectedCheck(command=command, source="Makefile", purpose="test", is_here=True, is_installed=True)
    monkeypatch.setattr("sys.stdin", io.StringIO("verify\ny\n\n"))
    given = ask(make_console(sys.stdout), tmp_path, name="helper", commands=None, detected=[check])
    assert given == ("helper", "verify", [command])
    assert "make [/x] [red]all[/red] ✓ wrote (Makefile" in capsys.readouterr().out
