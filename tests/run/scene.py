"""A run in this process: a checkout with the demo's agent, a run folder, and the job log."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stepflow.domain.event import Entry
from stepflow.domain.report import AgentResult
from stepflow.ports import Clock
from stepflow.report.watch import ActionLog
from stepflow.run.clock import Cancellation, RehearsalClock
from stepflow.run.execute import drive_run
from stepflow.run.inputs import read_inputs
from stepflow.run.prepare import prepare_run
from stepflow.run.request import RunRequest, Trigger
from tests.checkout import DEMO

SECRET = "ghs_secretofatest0123456789"


@dataclass
class Scene:
    """A checkout, a run folder, and the job log of the run in it."""

    root: Path
    folder: Path
    log: list[str] = field(default_factory=list)

    def run(
        self,
        *listeners: Callable[[Entry], None],
        path: tuple[str, ...] = (),
        clock: Clock | None = None,
        **inputs: str,
    ) -> AgentResult:
        """A dry run of the demo's scenario."""
        given = {
            "provider": "scripted",
            "scenario": str(DEMO / "scenario.yaml"),
            "boundary": "dry-run",
            "isolation": "best-effort",
            "github-token": SECRET,
            **{name.replace("_", "-"): value for name, value in inputs.items()},
        }
        request = RunRequest(
            run_id="r-1",
            inputs=read_inputs(given),
            trigger=Trigger(agent="fixer", actor="bob", actor_is_bot=False),
            root=self.root,
            folder=self.folder,
            **({"program_path": path} if path else {}),
        )
        clock, log = clock or RehearsalClock(), ActionLog()
        return drive_run(
            prepare_run(request, now=clock.now()),
            clock=clock,
            cancellation=Cancellation(),
            listeners=(lambda entry: self.log.extend(log.render(entry)), *listeners),
        )

    def events(self) -> list[dict]:
        return [json.loads(line) for line in (self.folder / "journal.jsonl").read_text().splitlines()]
