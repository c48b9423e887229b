"""Lines of the job log that are no part of a run.

Takes: the problems of a definition, whose files a pull request may have changed. Gives: lines that no runner obeys.
May touch: nothing (security.md case 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.problem import count_problems
from stepflow.report.plain import defuse, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepflow.domain.problem import Problem

WIDTH = 1000


def problem_lines(agent: str, problems: Sequence[Problem]) -> tuple[str, ...]:
    """How many problems an agent has, and each on one line."""
    heading = f"{one_line(agent)}: {count_problems(problems)}"
    return tuple(defuse(line) for line in (heading, *(f"  {one_line(str(each), WIDTH)}" for each in problems)))
