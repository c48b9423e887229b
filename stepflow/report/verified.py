"""What changed, what was checked, which way the run took and what it cost: the same lines in the comment, the pull
request, the job summary and the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from stepflow.domain.figures import count, usd
from stepflow.report.lines import FAILED, PASSED, PLANNED, Mark
from stepflow.report.safe_text import code_span, link, one_line, plain, seconds_text
from stepflow.report.wording import describe_changes, describe_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stepflow.domain.checkout import DiffStat
    from stepflow.domain.report import RunReport, ValidatorRun

R = TypeVar("R")
#: Of more checks and steps the middle is left out; of checks the red ones never are.
MOST_CHECKS = 20
MOST_FILES = 10
MOST_STEPS = 12
#: Characters of a command in a terminal, and in Markdown, where lines are longer.
COMMAND_SHOWN = 60
COMMAND_WRITTEN = 120
PATH_SHOWN = 100
NAME_SHOWN = 40


@dataclass(frozen=True, kw_only=True)
class CheckLine:
    """A check as it stood at its last run. `note` says what a mark cannot."""

    mark: Mark
    name: str
    command: str
    note: str = ""


def verified(report: RunReport, *, run_url: str = "") -> str:
    """The lines as Markdown, empty for what never began. `run_url` leads to the job with the full summary."""
    if not (report.run_id or report.history):
        return ""
    parts = (
        _changed_files(report.changes) if report.changes else "",
        "\n".join(["**Checks**", "", *_check_items(report)]),
        f"**Steps:** {' → '.join(plain(step, 60) for step in walked_steps(report))}" if report.history else "",
        " · ".join([*figures(report), *([link("the run", run_url)] if run_url else [])]),
    )
    return "\n\n".join(part for part in parts if part)


def check_lines(report: RunReport) -> tuple[CheckLine, ...]:
    """Each check once, in the order of running; last those that did not run again since the run began."""
    last = {run.name: run for run in report.validators}
    before = {check.name: check for check in report.base_checks}
    ran = [_ran(run, was_red=name in before and not before[name].passed) for name, run in last.items()]
    waiting = [
        CheckLine(
            mark=PLANNED,
            name=name,
            command=check.command,
            note=f"not run at the end; {'green' if check.passed else 'red'} before this run",
        )
        for name, check in before.items()
        if name not in last
    ]
    return (*ran, *waiting)


def _ran(run: ValidatorRun, *, was_red: bool) -> CheckLine:
    notes = []
    if not run.passed:
        # Red in spite of exit 0 means that the output was not as demanded.
        notes += [f"exit code {run.exit_code}"] if run.exit_code else []
        notes.append(f"attempt {run.attempt}")
    if was_red:
        notes.append("red before this run")
    mark = PASSED if run.passed else FAILED
    return CheckLine(mark=mark, name=run.name, command=run.command, note=", ".join(notes))


def _shown_checks(report: RunReport) -> tuple[tuple[CheckLine, ...], int]:
    """All that are red and as many others as there is room for; how many were left out."""
    lines = check_lines(report)
    others = [line for line in lines if line.mark is not FAILED]
    left_out = others[max(0, MOST_CHECKS - (len(lines) - len(others))) :]
    return tuple(line for line in lines if line not in left_out), len(left_out)


def _check_items(report: RunReport) -> Iterator[str]:
    lines, left_out = _shown_checks(report)
    if not lines:
        yield "None: this agent has no check, or the run did not come to one."
    for line in lines:
        name = f" ({plain(line.name, NAME_SHOWN)})" if line.command else ""
        note = f": {line.note}" if line.note else ""
        yield f"- {line.mark.emoji} {code_span(line.command or line.name, COMMAND_WRITTEN)}{name}{note}"
    if left_out:
        yield f"- and {left_out:,} more, none of them red"


def _changed_files(changes: DiffStat) -> str:
    items = [f"- {code_span(file.path, PATH_SHOWN)} {describe_lines(file)}" for file in changes.files[:MOST_FILES]]
    more = [f"- and {changes.count - len(items):,} more"] if changes.count > len(items) else []
    return "\n".join([f"**Changed:** {describe_changes(changes)}", "", *items, *more])


def terminal_changes(changes: DiffStat) -> list[tuple[str, str]]:
    """Path and lines of each changed file."""
    rows = [(one_line(file.path, PATH_SHOWN), describe_lines(file)) for file in changes.files[:MOST_FILES]]
    more = changes.count - len(rows)
    return [*rows, (f"… {more:,} more …", "")] if more else rows


def walked_steps(report: RunReport) -> tuple[str, ...]:
    """The steps in their order, with how often each ran in a row; from the middle of a long way some are left out."""
    runs = [(name, len(list(same))) for name, same in groupby(line.step_id for line in report.history)]
    shown, left_out = ends_of([f"{name} ×{times}" if times > 1 else name for name, times in runs], MOST_STEPS)
    middle = len(shown) // 2
    return (*shown[:middle], *([f"… {left_out:,} more …"] if left_out else []), *shown[middle:])


def figures(report: RunReport) -> list[str]:
    """Iterations, tokens, money and time, as words."""
    return [
        count(report.iterations, "iteration"),
        count(report.usage.total, "token"),
        usd(report.cost_usd) if report.cost_usd is not None else "cost unknown",
        seconds_text(report.seconds),
    ]


def terminal_checks(report: RunReport) -> list[tuple[str, str, str]]:
    """Mark and name, command and note of each check."""
    lines, left_out = _shown_checks(report)
    rows = [
        (f"{line.mark.text} {one_line(line.name, NAME_SHOWN)}", one_line(line.command, COMMAND_SHOWN), line.note)
        for line in lines
    ]
    return [*rows, (f"… {left_out:,} more …", "", "")] if left_out else rows


def ends_of(items: Sequence[R], most: int) -> tuple[tuple[R, ...], int]:
    """All items, or the first and the last ones, and how many were left out between them."""
    if len(items) <= most:
        return tuple(items), 0
    half = most // 2
    return (*items[:half], *items[-half:]), len(items) - 2 * half
