"""docs/how-to: every workflow, step and input that a page shows is one that works."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from stepflow.cli import COMMANDS, main
from stepflow.modes.verify import artifact_name
from stepflow.report.statement import PREDICATE_TYPE
from stepflow.run.ending import PREDICATE, STATEMENT
from stepflow.run.recorded import JOURNAL
from stepflow.run.start.input_maps import LimitsInput
from stepflow.run.start.input_values import in_dashes, known_keys
from stepflow.run.start.inputs import Inputs, read_inputs
from stepflow.run.start.policy import Policy
from stepflow.sandbox.environment import check_pass_env
from stepflow.telemetry.export import send_telemetry
from tests.docs.page import DOCS, ROOT, USE_PAGE, PageBlock, around_action, named_block, page_blocks
from tests.docs.workflows import INPUTS, check_workflow, lint_workflow, with_lines
from tests.servers.collector import CollectorServer

#: Pages whose blocks test_docs_validators.py and test_docs_readme.py try.
ELSEWHERE = ("validators", "recipes")
#: Words before a colon that belong to a job, not to the action.
PERMISSIONS = {"id-token", "continue-on-error"}
PAGES = sorted(path for path in (DOCS / "how-to").glob("*.md") if path.stem not in ELSEWHERE)
POLICY = DOCS / "how-to" / "policy.md"
MANY = DOCS / "how-to" / "recipes.md"
AGENT = yaml.safe_load((ROOT / ".github" / "workflows" / "agent.yml").read_text(encoding="utf-8"))
REUSABLE = yaml.safe_load((ROOT / ".github" / "workflows" / "many-issues.yml").read_text(encoding="utf-8"))
# YAML 1.1 reads the key `on` as true.
CALLED_WITH = REUSABLE[True]["workflow_call"]
BLOCKS = [
    (page.stem, number, block)
    for page in PAGES
    for number, block in enumerate(page_blocks(page), 1)
    # What builds an image is tried by tests/e2e.
    if block.language == "yaml" and block.note not in ("cache mode", "resume", "policy", "agent", "case")
]


def workflow(block: PageBlock) -> str:
    """The workflow of docs/use.md with the block in its place."""
    whole = named_block("workflow", USE_PAGE)
    match block.note:
        case "with":
            return with_lines(yaml.safe_load(block.text))
        case "steps":
            return around_action(whole)[0] + indented(block.text, 6)
        case "prove workflow" | "review workflow" | "triage workflow" | "ledger workflow":
            return block.text
        case "login":
            allowed = whole.replace("pull-requests: write }", "pull-requests: write, id-token: write }")
            return around_action(allowed)[0] + indented(block.text, 6)
        case "job":
            return whole.replace("    runs-on: ubuntu-latest\n", indented(block.text, 4))
        case _:
            raise AssertionError(f"no test knows what to do with a block that is called {block.note!r}")


def indented(text: str, width: int) -> str:
    return "".join(f"{' ' * (width - len(text) + len(text.lstrip()))}{line}" for line in text.splitlines(keepends=True))


@pytest.mark.sample(4)
@pytest.mark.parametrize(("page", "number", "block"), BLOCKS, ids=lambda part: part if isinstance(part, str) else None)
def test_a_block_of_a_how_to_page_makes_a_clean_workflow(
    page: str, number: int, block: PageBlock, tmp_path: Path
) -> None:
    # The command line is no action.
    check = lint_workflow if block.note == "ledger workflow" else check_workflow
    check(workflow(block), tmp_path)


def test_the_caller_of_the_reusable_workflow_is_the_one_that_the_end_to_end_tests_run() -> None:
    (block,) = (block for block in page_blocks(MANY) if block.note == "many")
    assert block.text == (ROOT / "tests" / "e2e" / "many.yml").read_text(encoding="utf-8")


def test_the_caller_gives_the_reusable_workflow_what_it_takes() -> None:
    (block,) = (block for block in page_blocks(MANY) if block.note == "many")
    job = yaml.safe_load(block.text)["jobs"]["issues"]
    assert set(job["with"]) <= set(CALLED_WITH["inputs"])
    assert {name for name, given in CALLED_WITH["inputs"].items() if given["required"]} <= set(job["with"])
    assert set(job["secrets"]) <= set(CALLED_WITH["secrets"])


@pytest.mark.parametrize("reusable", [REUSABLE, AGENT], ids=["many issues", "agent"])
def test_a_reusable_workflow_hands_every_input_and_secret_on_and_the_policy(reusable: dict) -> None:
    called_with, jobs = reusable[True]["workflow_call"], str(reusable["jobs"])
    names = [f"{kind}.{name}" for kind in ("inputs", "secrets") for name in called_with[kind]]
    assert [name for name in names if not re.search(rf"\${{{{ (toJSON\()?{name}\)? }}}}", jobs)] == []
    assert "'policy': '${{ vars.STEPFLOW_POLICY }}'" in jobs


def test_the_caller_of_the_workflow_for_one_agent_gives_what_it_takes() -> None:
    text = named_block("agent", POLICY)
    assert text == (ROOT / "tests" / "e2e" / "agent.yml").read_text(encoding="utf-8")
    job, called_with = yaml.safe_load(text)["jobs"]["agent"], AGENT[True]["workflow_call"]
    assert set(job["with"]) <= set(called_with["inputs"])
    assert {*job["secrets"]} == {name for name, secret in called_with["secrets"].items() if secret["required"]}
    # A called workflow gets no permission that its caller does not have.
    needed = [each["permissions"] for each in AGENT["jobs"].values()]
    assert job["permissions"] == {name: level for each in needed for name, level in each.items()}
    (step,) = (step for step in AGENT["jobs"]["agent"]["steps"] if step.get("id") == "stepflow")
    assert set(step["with"]) <= INPUTS


def test_the_job_that_signs_runs_no_agent_and_the_agents_job_cannot_sign() -> None:
    agent, attest = AGENT["jobs"]["agent"], AGENT["jobs"]["attest"]
    assert "id-token" not in agent["permissions"]
    assert [step["uses"].partition("@")[0] for step in attest["steps"]] == [
        "actions/download-artifact",
        "actions/attest",
    ]
    signed = attest["steps"][-1]["with"]
    assert signed["predicate-type"] == PREDICATE_TYPE
    assert (ROOT / PREDICATE_TYPE.partition("/blob/v1/")[2]).is_file()
    (kept,) = (step["with"] for step in agent["steps"] if step.get("with", {}).get("name"))
    assert kept["name"] == artifact_name("${{ steps.stepflow.outputs.commit }}")
    files = [path.rpartition("/")[2] for path in kept["path"].splitlines()]
    assert files == [JOURNAL, STATEMENT, PREDICATE]
    assert [signed[name].rpartition("/")[2] for name in ("subject-path", "predicate-path")] == [JOURNAL, PREDICATE]


def test_the_policy_of_the_page_has_every_key_and_so_has_its_table() -> None:
    policy = read_inputs({"policy": named_block("policy", POLICY)}).policy
    assert policy is not None
    assert policy.model_fields_set == set(Policy.model_fields)
    rows = re.findall(r"^\| (`.*`) \|", POLICY.read_text(encoding="utf-8"), re.M)
    assert re.findall(r"`([\w-]+)`", " ".join(rows)) == [*known_keys(Policy)]


def test_the_commands_of_the_page_about_telemetry_write_and_send_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # However busy this machine is.
    monkeypatch.setitem(send_telemetry.__kwdefaults__, "seconds", 60)
    monkeypatch.setenv("STEPFLOW_TELEMETRY", "headers: {Authorization: Bearer t-0123456789}")
    (tmp_path / "RUN").mkdir()
    shutil.copy(ROOT / "tests" / "report" / "plausible_run.jsonl", tmp_path / "RUN" / "journal.jsonl")
    with CollectorServer() as server:
        for line in named_block("otlp", DOCS / "how-to" / "telemetry.md").splitlines():
            words = line.replace("https://collector.example.org", server.url).split()
            assert main(words[1:]) == 0, capsys.readouterr().err
    assert (tmp_path / "run.jsonl").is_file()
    assert {path for path, _, _ in server.requests} == {"/v1/traces", "/v1/metrics"}
    assert {headers["authorization"] for _, headers, _ in server.requests} == {"Bearer t-0123456789"}


def test_the_inputs_of_a_page_are_read_as_they_stand_there() -> None:
    for _, _, block in BLOCKS:
        if block.note == "with":
            given = {name: str(value) for name, value in yaml.safe_load(block.text).items()}
            values = {"policy": named_block("policy", POLICY)}
            given = {name: re.sub(r"\${{.+?}}", values.get(name, "token"), value) for name, value in given.items()}
            assert read_inputs(given) != Inputs()


def test_the_defaults_that_the_page_about_costs_names_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| .+? \| (.+?) \|$", (DOCS / "how-to/costs.md").read_text("utf-8"), re.M)
    defaults = {in_dashes(name): default for name, default in LimitsInput()}
    assert {name for name, _ in rows} == defaults.keys(), "the page lists every limit, once"
    assert len(rows) == len(defaults)
    numbers = {name: default for name, default in rows if default.isdigit()}
    assert numbers == {name: f"{default:g}" for name, default in defaults.items() if default is not None}


@pytest.mark.parametrize("name", ["LD_PRELOAD", "BASH_ENV", "GITHUB_ENV"])
def test_what_the_page_about_registries_calls_refused_is_refused(name: str) -> None:
    assert f"`{name}`" in (DOCS / "how-to/your-infrastructure.md").read_text(encoding="utf-8")
    with pytest.raises(Exception, match=name):
        check_pass_env({name: "x"})


@pytest.mark.parametrize("page", sorted((DOCS / "how-to").glob("*.md")), ids=lambda page: page.stem)
def test_commands_and_inputs_in_the_text_of_a_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"`stepflow ([a-z]+)", text)) <= set(COMMANDS)
    assert set(re.findall(r"^\| `([a-z]+(?:-[a-z]+)+)` \|", text, re.M)) <= INPUTS | {
        *known_keys(Policy),
        *known_keys(LimitsInput),
    }
    assert {name for name, _ in re.findall(r"`([a-z]+-[a-z-]+): ([^`]+)`", text)} <= INPUTS | PERMISSIONS


def test_the_variables_that_the_page_about_providers_names_are_those_of_the_code() -> None:
    text = (DOCS / "how-to/providers.md").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "stepflow" / "model").glob("*.py")]
    code = "\n".join(sources)
    named = set(re.findall(r"\b(?:AWS|GOOGLE|CLOUDSDK|CLOUD|ANTHROPIC)_[A-Z_]*[A-Z]\b", text))
    # Ignored on purpose, and names of the reader's own variables.
    assert {name for name in named if f'"{name}"' not in code} <= {
        *("ANTHROPIC_BEDROCK_BASE_URL", "AWS_ROLE", "GOOGLE_PROVIDER", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_PROJECT"),
        *("ANTHROPIC_FEDERATION_RULE_ID", "ANTHROPIC_ORGANIZATION_ID", "ANTHROPIC_SERVICE_ACCOUNT_ID"),
    }


def test_a_provider_that_needs_packages_is_shown_with_an_image_that_has_them() -> None:
    page = DOCS / "how-to/providers.md"
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", page.read_text("utf-8"), re.M)
    assert dict(rows)["bedrock"].startswith("[yes]")
    steps = [yaml.safe_load(block.text)[-1] for block in page_blocks(page) if block.note == "login"]
    used = {read_inputs({"model": step["with"].get("model", "")}).model.provider: step["uses"] for step in steps}
    assert used["bedrock"].startswith("docker://")
    assert all(used[name].startswith("org/") for name in used.keys() - {"bedrock"})


@pytest.mark.parametrize(("extra", "package"), [("bedrock", "boto3"), ("vertex", "google-auth")])
def test_the_image_that_the_page_about_providers_builds_has_its_locked_packages(extra: str, package: str) -> None:
    text = (DOCS / "how-to/providers.md").read_text(encoding="utf-8")
    assert f"requirements/{extra}.txt" in text
    locked = (ROOT / f"requirements/{extra}.txt").read_text(encoding="utf-8")
    base = (ROOT / "requirements/run.txt").read_text(encoding="utf-8")
    assert re.search(rf"^{package}(\[\w+\])?==\S+ \\\n    --hash=sha256:", locked, re.M)
    pins = re.compile(r"^([a-z0-9-]+)(?:\[.*?\])?(==\S+)", re.M | re.I)
    assert set(pins.findall(base)) <= set(pins.findall(locked))
    assert "ARG REQUIREMENTS=requirements/run.txt" in (ROOT / "Dockerfile").read_text(encoding="utf-8")
