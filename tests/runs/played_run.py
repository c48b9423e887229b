"""One case of `tests/runs`, played: the agent made real in a git repository, and a run of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.event import Entry
from stepflow.domain.reports.report import AgentResult
from stepflow.domain.run import Issue
from stepflow.model.scenario import Expect, Scenario
from stepflow.run.clock import Cancellation
from stepflow.run.execute import drive_run
from stepflow.run.prepare import Prepared, prepare_run
from stepflow.run.request import RunRequest
from stepflow.run.scenarios import load_scenario
from stepflow.run.start.inputs import read_inputs
from stepflow.run.start.trigger import Trigger
from stepflow.run.workspace import open_workspace
from tests.checkout import git
from tests.definition.load_cases import Case, cases
from tests.fakes import StillClock

RUNS = Path(__file__).parent
GOLDEN = "journal.golden.jsonl"
ISSUE = Issue(number=7, title="Say hello properly", author="ann")
INPUTS = {"boundary": "dry-run", "isolation": "best-effort"}


def run_cases() -> list[Path]:
    """Every folder with a scenario."""
    return sorted(file.parent for file in RUNS.glob("*/scenario.yaml"))


@dataclass(frozen=True, kw_only=True)
class Played:
    """What is left of a run. `worked` is its workspace as it was at the end, and `live` holds the entries as they were
    handed out while it went on."""

    case: Path
    scenario: Scenario
    checkout: Path
    worked: Path
    folder: Path
    prepared: Prepared
    result: AgentResult
    live: list[Entry]

    @property
    def agent(self) -> AgentDefinition:
        return self.prepared.agent

    @property
    def journal(self) -> Path:
        return self.folder / "journal.jsonl"

    @property
    def golden(self) -> Path:
        return self.case / GOLDEN

    @property
    def expect(self) -> Expect:
        assert self.scenario.expect is not None, f"{self.case / 'scenario.yaml'} has no `expect`"
        return self.scenario.expect


def play_case(case: Path, folder: Path) -> Played:
    """Run the case on a clock that stands still but for waiting."""
    data = _read(case)
    scenario = load_scenario(case / "scenario.yaml")
    issue = scenario.issue.to_issue() if scenario.issue else ISSUE
    request = make_request(
        make_checkout(case, data, folder / "checkout"),
        folder / "run",
        case / "scenario.yaml",
        issue=replace(issue, author=issue.author or "ann"),
        **data.get("inputs", {}),
    )
    live: list[Entry] = []
    clock = StillClock()
    with prepared_in_workspace(request, now=clock.now(), worked=folder / "worked") as prepared:
        result = drive_run(prepared, clock=clock, cancellation=Cancellation(), listeners=(live.append,))
    return Played(
        case=case,
        scenario=scenario,
        checkout=request.root,
        worked=folder / "worked",
        folder=request.folder,
        prepared=prepared,
        result=result,
        live=live,
    )


@contextmanager
def prepared_in_workspace(request: RunRequest, *, now: float, worked: Path) -> Iterator[Prepared]:
    """A run that is ready to be driven in its workspace; what that is at the end of the block is moved to `worked`."""
    with open_workspace(request) as workspace:
        prepared = prepare_run(workspace.request, now=now)
        workspace.fill(prepared, Cancellation())
        try:
            yield prepared
        finally:
            shutil.rmtree(worked, ignore_errors=True)
            shutil.move(prepared.request.root, worked)


def make_checkout(case: Path, data: dict, root: Path) -> Path:
    """The case's agent and files in a git repository with one commit."""
    root.mkdir(parents=True)
    bases = {one.name: one for one in cases("valid")}
    bases[data.get("base", "issue-flow")].build(root)
    Case(folder=case, data={key: data[key] for key in ("edits", "write", "delete") if key in data}).build(root)
    for path, text in {"hello.txt": "hello\n", **data.get("files", {})}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    git("init", "--quiet", cwd=root)
    git("add", "--all", cwd=root)
    git("commit", "--quiet", "--message", "Begin", cwd=root)
    return root


def make_request(
    root: Path, folder: Path, scenario: Path, *, run_id: str = "run-1", issue: Issue | None = ISSUE, **inputs: Any
) -> RunRequest:
    """What one process is asked to do: a dry run of a scenario, for bob."""
    given = {"scenario": str(scenario), **{name.replace("_", "-"): value for name, value in inputs.items()}}
    return RunRequest(
        run_id=run_id,
        inputs=read_inputs({**INPUTS, **given}),
        trigger=Trigger(
            agent="demo",
            actor="bob",
            actor_is_bot=False,
            issue=issue,
            issue_number=issue.number if issue else None,
            default_branch="main",
        ),
        root=root,
        folder=folder,
        repository="o/r",
    )


def _read(case: Path) -> dict:
    file = case / "case.yaml"
    return yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {}
