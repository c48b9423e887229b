"""What one run was asked to do.

Takes: inputs, trigger and places. Gives: `RunRequest`, complete and typed.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from stepflow.domain.redact import Redactor
from stepflow.toolbox import SYSTEM_PATH

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from stepflow.run.inputs import Inputs
    from stepflow.run.trigger import Trigger


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """One run. `root` is the repository's root, `folder` the run folder on this machine and `host_folder` the same
    place as the workflow's next step sees it; `repository` is `owner/name` and `job_url` leads to the job,
    both empty when unknown. Of the `environment` the input `pass-env` may name variables; those `withheld` were taken
    out of it because they hold secrets. `credentials` are the secrets that are no input: the job's own, and those that
    the checkout left behind. `login` is what the services of models may read of the job's variables. `runner_temp` is
    None on a person's own machine. `program_path` is where the system's own programs are looked for."""

    run_id: str
    inputs: Inputs
    trigger: Trigger
    root: Path
    folder: Path
    host_folder: str = ""
    repository: str = ""
    job_url: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    withheld: frozenset[str] = frozenset()
    credentials: tuple[str, ...] = field(default=(), repr=False)
    login: Mapping[str, str] = field(default_factory=dict, repr=False)
    runner_temp: Path | None = None
    program_path: tuple[str, ...] = SYSTEM_PATH

    def secrets(self) -> tuple[str, ...]:
        """Every value that nothing of this run may hold."""
        return (*self.inputs.secrets(), *self.credentials)

    @cached_property
    def redactor(self) -> Redactor:
        """The one redactor of this run, for every sink."""
        return Redactor(self.secrets())
