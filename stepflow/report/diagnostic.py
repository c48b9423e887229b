"""Formats the problems of agents, the rules behind them, and the results of a preflight: lines for a terminal or a log,
or annotations, which are workflow commands that show a message on the run's page or on the diff.

No line can act as a workflow command, because a pull request may have changed the files that the lines quote.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from stepflow.domain.agent.definition import Inspection, count_problems
from stepflow.domain.reports.report import CheckState, Preflight, PreflightCheck
from stepflow.domain.text import ELLIPSIS, count, cut
from stepflow.errors import Example, LintRule, Problem, Severity
from stepflow.report.safe_text import (
    PASSED,
    Line,
    Tone,
    aligned,
    clean,
    defuse,
    harmless,
    mark_of,
    one_line,
    render,
    width,
)

#: Characters shown before the marked part of a line that is too long.
BEFORE = 30
#: The longest text shown for a problem, and the widest line of a file if the caller sets no width.
LONGEST = 1000
WIDE = 160
#: Prose without line breaks is hard to read, even if lines may have any length.
READABLE = 80
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_POSITION = ("line", "endLine", "col", "endColumn")
MESSAGE_LIMIT = 4000
TITLE_LIMIT = 200


def _visible(text: str) -> str:
    """Return the visible text of a part of a line. Terminals and a job's runner also break lines at characters other
    than `\\n`."""
    return clean(text).replace("\n", " ")


def _underline(row: str, columns: tuple[int, int] | None, max_width: int) -> tuple[str, str]:
    if columns is None:
        return _cut_to_width(_visible(row), max_width), ""
    head, marked, rest = (
        _visible(part) for part in (row[: columns[0] - 1], row[columns[0] - 1 : columns[1] - 1], row[columns[1] - 1 :])
    )
    if width(head) + width(marked) > max_width and width(head) > BEFORE:
        head = ELLIPSIS + head[-BEFORE:]
    marked = _cut_to_width(marked, max(max_width - width(head), 1))
    rest = _cut_to_width(rest, max(max_width - width(head) - width(marked), 1))
    return (head + marked + rest).rstrip(), " " * width(head) + "^" * max(width(marked), 1)


def _cut_to_width(text: str, max_width: int) -> str:
    """Return the beginning of a text that fits into `max_width` cells."""
    if width(text) <= max_width:
        return text
    used = 0
    for at, sign in enumerate(text):
        used += width(sign)
        if used > max_width - 1:
            return text[:at] + ELLIPSIS
    return text


class Style(StrEnum):
    """The kind of a piece of a line, which decides its color."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    FRAME = "frame"
    HELP = "help"


@dataclass(frozen=True, kw_only=True)
class Theme:
    """How lines are formatted."""

    #: None if lines may have any length, as in a file.
    width: int | None = None
    #: Colors a piece of a line.
    style: Callable[[Style, str], str] = field(default=lambda _style, text: text)


def diagnostics(inspections: Mapping[str, Inspection], rules: Mapping[str, LintRule], theme: Theme) -> tuple[str, ...]:
    """Return every problem of every agent, their number, and where to read more. Each reason appears once."""
    lines: list[str] = []
    explained: set[str] = set()
    for inspection in inspections.values():
        for problem in inspection.problems:
            why = rules[problem.code].why if problem.code in rules and problem.code not in explained else ""
            explained.add(problem.code)
            lines += [*_lines(problem, inspection.texts.get(problem.file), why, theme), ""]
    for agent, inspection in inspections.items():
        lines.append(defuse(f"{one_line(agent)}: {count_problems(inspection.problems)}"))
    problems = [problem for inspection in inspections.values() for problem in inspection.problems]
    if problems:
        first = next((problem for problem in problems if problem.severity is Severity.ERROR), problems[0])
        lines.append(f"More about a problem: stepflow explain {first.code}")
    return tuple(lines)


def _lines(problem: Problem, text: str | None, why: str, theme: Theme) -> Iterator[str]:
    style = Style(problem.severity.value)
    head = f"{problem.severity}[{problem.code}]"
    yield from _wrap(f"{head}: {one_line(problem.message, LONGEST)}", "  ", head, style, theme)
    gutter = len(str(problem.line or 1))
    location = ":".join(str(part) for part in (problem.file, problem.line, problem.column) if part)
    yield defuse(f"{' ' * gutter}{theme.style(Style.FRAME, '-->')} {one_line(location, LONGEST)}")
    yield from _excerpt(problem, text, gutter, theme)
    lead = f"{' ' * gutter} ="
    if why:
        yield from _wrap(f"{lead} why: {why}", " " * (gutter + 3), lead, Style.FRAME, theme)
    yield from _wrap(f"{lead} help: {one_line(problem.fix, LONGEST)}", " " * (gutter + 3), lead, Style.HELP, theme)


def _excerpt(problem: Problem, text: str | None, gutter: int, theme: Theme) -> Iterator[str]:
    """Yield the line of the problem, the line before it, and carets. Yield nothing if the text has no such line."""
    if text is None or problem.line is None:
        return
    rows = text.split("\n")
    if not 0 < problem.line <= len(rows):
        return
    max_width = (theme.width or WIDE) - gutter - 3
    columns = (problem.column, problem.end_column) if problem.column and problem.end_column else None
    shown, mark = _underline(rows[problem.line - 1].rstrip("\r"), columns, max_width)
    above = _visible(rows[problem.line - 2].rstrip("\r")) if problem.line > 1 else ""
    before = [(problem.line - 1, _cut_to_width(above, max_width))] if above.strip() else []
    bar = theme.style(Style.FRAME, f"{' ' * gutter} |")
    yield bar
    for number, line in (*before, (problem.line, shown)):
        yield defuse(f"{theme.style(Style.FRAME, f'{number:>{gutter}} |')} {line}".rstrip())
    if mark:
        blank = len(mark) - len(mark.lstrip())
        yield f"{bar} {' ' * blank}{theme.style(Style(problem.severity.value), mark.lstrip())}"


def _wrap(text: str, indent: str, head: str, style: Style, theme: Theme) -> Iterator[str]:
    """Yield a text on as many lines as it needs, with its `head` colored."""
    lines = [text]
    if theme.width is not None:
        lines = textwrap.wrap(
            text, theme.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    for line in lines:
        safe = defuse(line)
        yield theme.style(style, head) + safe[len(head) :] if safe.startswith(head) else safe


def explanation(rule: LintRule, theme: Theme) -> tuple[str, ...]:
    """Return the rule, why it matters, and a wrong and a right example."""
    head = f"{rule.severity}[{rule.code}]"
    lines = [f"{theme.style(Style(rule.severity.value), head)}: {rule.broken}", ""]
    lines += [*textwrap.wrap(rule.why, theme.width or READABLE), ""]
    location = ""
    for word, style, examples in (("Wrong", Style.ERROR, rule.wrong), ("Right", Style.HELP, rule.right)):
        for example in examples:
            lines += [*_example(theme.style(style, word), example, where=example.location != location), ""]
            location = example.location
    return tuple(lines)


def rule_list(rules: Iterable[LintRule], theme: Theme) -> tuple[str, ...]:
    """Return one line per rule."""
    rows = [
        f"{theme.style(Style(rule.severity.value), f'{rule.code} {rule.severity:7}')} {rule.broken}" for rule in rules
    ]
    return (*rows, "", "`stepflow explain CODE` says why a rule matters, with an example.")


def _example(word: str, example: Example, *, where: bool) -> Iterator[str]:
    yield f"{word}, in {example.location}:" if where else f"{word}:"
    yield ""
    yield from (f"    {line}".rstrip() for line in example.text.split("\n"))


def annotation(
    level: str,
    message: str,
    *,
    file: str | None = None,
    line: int | None = None,
    end_line: int | None = None,
    columns: tuple[int | None, int | None] = (None, None),
    title: str | None = None,
) -> str:
    """Return one workflow command.

    `level` is `error`, `warning` or `notice`. With `file`, the message appears on the diff, on one line or up to
    `end_line`. `columns` are the first and the last column on that line.
    """
    position = zip(_POSITION, (line, end_line, *columns), strict=True)
    numbers = {name: str(number) if number else None for name, number in position}
    given = {"file": file, **numbers, "title": cut(title, TITLE_LIMIT) if title else None}
    properties = ",".join(f"{name}={_property(value)}" for name, value in given.items() if value)
    return f"::{level}{' ' if properties else ''}{properties}::{_data(cut(message, MESSAGE_LIMIT))}"


def problem_annotations(problems: Iterable[Problem]) -> tuple[str, ...]:
    """Return one annotation per problem that needs action. Notes are left out."""
    return tuple(
        annotation(
            LEVELS[problem.severity],
            f"{problem.message}. Fix: {problem.fix}",
            file=problem.file,
            line=problem.line,
            columns=(problem.column, problem.end_column and problem.end_column - 1),
            title=f"{problem.code} {problem.path}".strip(),
        )
        for problem in problems
        if problem.severity is not Severity.NOTE
    )


def _data(text: str) -> str:
    # The runner prints an annotation's text into the log, where it may parse it for commands again.
    return harmless(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


LONGEST_DETAIL = 1200
_ORDER = {CheckState.FAILED: 0, CheckState.WARNING: 1, CheckState.UNKNOWN: 2}


def describe_preflight(preflight: Preflight) -> str:
    """Return the number of rows in each state, as text."""
    counts = Counter(check.state for check in preflight.checks)
    return ", ".join(
        count(counts[state], state) if state is CheckState.WARNING else f"{counts[state]} {state}"
        for state in CheckState
        if counts[state]
    )


def preflight_reason(preflight: Preflight) -> str:
    """Return which rows failed, or that none did."""
    failed = "; ".join(f"{check.name}: {check.detail}" for check in preflight.failed)
    return f"preflight of {preflight.agent}: {failed or describe_preflight(preflight)}"


def _by_state(preflight: Preflight) -> tuple[list[PreflightCheck], list[PreflightCheck]]:
    """Return the rows that need attention, the worst first, and the rows that passed."""
    fine = [check for check in preflight.checks if check.state is CheckState.OK]
    others = [check for check in preflight.checks if check.state is not CheckState.OK]
    return sorted(others, key=lambda check: _ORDER[check.state]), fine


def preflight_lines(preflight: Preflight, *, every_row: bool = False) -> list[Line]:
    """Return the rows that need attention first, one aligned line per row. The rows that passed follow in one line, or
    in one line each with `every_row`. The counts come last."""
    others, fine = _by_state(preflight)
    shown = [*others, *fine] if every_row else others
    widest = max(len(state) for state in CheckState)
    rows = aligned(
        (f"{mark_of(check.state).text} {check.state:<{widest}}", check.name, one_line(check.detail, LONGEST_DETAIL))
        for check in shown
    )
    lines = [Line(mark_of(check.state).tone, row) for check, row in zip(shown, rows, strict=True)]
    if fine and not every_row:
        # Show names, but only the number of rows in a group, such as the layers of the sandbox.
        groups = Counter(check.name.partition(": ")[0] for check in fine)
        names = (name if number == 1 else f"{name} ({number})" for name, number in groups.items())
        folded = f"{PASSED.text} ok: {', '.join(names)}; `--all` shows each"
        lines.append(Line(PASSED.tone, one_line(folded, LONGEST_DETAIL)))
    counted = f"{preflight.agent}: {describe_preflight(preflight)}"
    lines.append(Line(Tone.RUN, one_line(counted, LONGEST_DETAIL)))
    return [Line(tone, defuse(text)) for tone, text in lines]


def preflight_summary(preflight: Preflight) -> str:
    """Return the same rows for the job summary, with the rows that passed in a folded section."""
    others, fine = _by_state(preflight)
    counted = describe_preflight(preflight)
    return render("preflight.md.j2", preflight=preflight, counted=counted, others=others, fine=fine)
