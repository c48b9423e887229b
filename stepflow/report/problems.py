"""The problems of a definition, whose files a pull request may have changed, for a log or a terminal.

Takes: an agent's name and its problems. Gives: lines that no runner and no terminal obeys (security.md case 6).
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.problem import count_problems
from stepflow.report.plain import defuse, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stepflow.domain.problem import Problem

WIDTH = 1000


def problem_lines(problems: Iterable[Problem]) -> tuple[str, ...]:
    """Each problem on one line."""
    return tuple(defuse(one_line(str(each), WIDTH)) for each in problems)


def problems_counted(agent: str, problems: Sequence[Problem]) -> str:
    """How many problems of each severity an agent has."""
    return defuse(f"{one_line(agent)}: {count_problems(problems)}")
