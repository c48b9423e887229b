"""A scripted run of `tests/runs` that is stopped after any line of its journal, and what goes on with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from stepflow.domain.event import Entry
from stepflow.domain.reports.report import AgentResult
from stepflow.model.scenario import Scenario
from stepflow.ports import Clock
from stepflow.report.log import ActionLog
from stepflow.run.clock import Cancellation, RehearsalClock
from stepflow.run.execute import drive_run
from stepflow.run.prepare import Prepared, prepare_run
from stepflow.run.request import RunRequest
from stepflow.run.scenarios import parse_scenario
from stepflow.sandbox.environment import SYSTEM_PATH
from tests.runs.played_run import RUNS, make_checkout, make_request, prepared_in_workspace

CASE = RUNS / "dirty-tree-then-clean"
SECRET = "ghs_secretofatest0123456789"
Listener = Callable[[Entry], None]


class Stopped(BaseException):
    """The process ends here, and nothing in it goes on."""


@dataclass(kw_only=True)
class Run:
    """A repository and a run folder. `log` is the job log of all parts, `result` is what a test keeps here."""

    root: Path
    folder: Path
    scenario: Path
    result: AgentResult | None = None
    log: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, parent: Path, case: Path = CASE) -> Run:
        """A new repository for the case."""
        parent.mkdir(exist_ok=True)
        file = case / "case.yaml"
        data = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {}
        root = make_checkout(case, data, parent / "checkout")
        scenario = parent / "scenario.yaml"
        scenario.write_text((case / "scenario.yaml").read_text())
        return cls(root=root, folder=parent / "run", scenario=scenario)

    def request(self, *, path: tuple[str, ...] = SYSTEM_PATH, **options: Any) -> RunRequest:
        """What one process is asked to do."""
        request = make_request(self.root, self.folder, self.scenario, **options)
        return replace(request, program_path=path)

    def prepare(self, **options: Any) -> Prepared:
        """What one process has before it begins."""
        return prepare_run(self.request(**options), now=RehearsalClock().now())

    def play(
        self,
        *listeners: Listener,
        stop_after: int | tuple[str, int] | None = None,
        clock: Clock | None = None,
        **options: Any,
    ) -> AgentResult | None:
        """One part of the run; None when it was stopped after so many lines of its journal, or after the so-manyth
        event of a kind in this part. How many lines come before it is not the same for every user of a machine."""
        seen: Counter[str] = Counter()

        def stop(entry: Entry) -> None:
            kind = entry.event.event
            seen[kind] += 1
            if stop_after in (entry.seq, (kind, seen[kind])):
                raise Stopped

        now = RehearsalClock().now()
        with prepared_in_workspace(self.request(**options), now=now, worked=self.worked) as prepared:
            return self.drive(prepared, *listeners, stop, clock=clock)

    def drive(self, prepared: Prepared, *listeners: Listener, clock: Clock | None = None) -> AgentResult | None:
        log = ActionLog()
        try:
            return drive_run(
                prepared,
                clock=clock or RehearsalClock(),
                cancellation=Cancellation(),
                listeners=(lambda entry: self.log.extend(log.render(entry)), *listeners),
            )
        except Stopped:
            return None

    @property
    def worked(self) -> Path:
        """The workspace as the last part left it."""
        return self.folder.with_name("worked")

    @property
    def journal(self) -> Path:
        return self.folder / "journal.jsonl"

    def events(self) -> list[dict]:
        """The journal's lines."""
        return [json.loads(line) for line in self.journal.read_text().splitlines()]

    def kinds(self) -> list[str]:
        return [event["event"] for event in self.events()]

    def write(self, events: list[dict]) -> None:
        """Forge the journal."""
        self.journal.write_text("".join(json.dumps(event) + "\n" for event in events))

    def rewrite_scenario(self, change: Callable[[dict], object]) -> Scenario:
        """Another scenario in the place of this one."""
        data = yaml.safe_load(self.scenario.read_text())
        change(data)
        self.scenario.write_text(yaml.safe_dump(data))
        return parse_scenario(self.scenario.read_text())


def tree_of(root: Path) -> dict[str, str]:
    """The files of a checkout, git's own left out."""
    files = (path for path in root.rglob("*") if path.is_file() and ".git" not in path.relative_to(root).parts)
    return {str(path.relative_to(root)): path.read_text() for path in files}


def same_run(result: AgentResult, other: AgentResult) -> bool:
    """Whether two runs came to the same, but for times and validators that ran again."""
    left, right = result.report, other.report
    return (
        result == other
        and left.usage == right.usage
        and [replace(line, seconds=0) for line in left.history] == [replace(line, seconds=0) for line in right.history]
        and left.handoff == right.handoff
        and left.structured_output == right.structured_output
        and left.validated == right.validated
        and [effect.kind for effect in left.effects] == [effect.kind for effect in right.effects]
    )
