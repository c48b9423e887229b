"""Is it really done: validators in, `Verdict` out (house.md "Rooms")."""

from stepflow.complete.judge import judge_completion

__all__ = ["judge_completion"]
