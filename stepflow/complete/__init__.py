"""Is it really done: validators in, `Verdict` out (house.md "Rooms")."""

from stepflow.complete.finished import Fed, why_finished
from stepflow.complete.judge import judge_completion

__all__ = ["Fed", "judge_completion", "why_finished"]
