"""What one run was asked to do.

Takes: inputs, trigger and places. Gives: `RunRequest`, complete and typed.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from stepflow.run.inputs import Inputs
    from stepflow.run.trigger import Trigger


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """One run. `root` is the repository's root, `folder` the run folder on this machine and `host_folder` the same
    place as the workflow's next step sees it; `repository` is `owner/name` and `job_url` leads to the job,
    both empty when unknown."""

    run_id: str
    inputs: Inputs
    trigger: Trigger
    root: Path
    folder: Path
    host_folder: str = ""
    repository: str = ""
    job_url: str = ""
