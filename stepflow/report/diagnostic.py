"""Formats the problems of agents, the rules behind them, and the results of a preflight: lines for a terminal or a log,
or annotations, which are workflow commands that show a message on the run's page or on the diff.

No line can act as a workflow command, because a pull request may have changed the files that the lines quote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from stepflow.domain.agent.definition import Inspection, count_problems
from stepflow.domain.reports.report import CheckState, Preflight, PreflightCheck
from stepflow.domain.text import ELLIPSIS, count, cut
from stepflow.errors import LintRule, Problem, Severity
from stepflow.report.safe_text import (
    PASSED,
    Command,
    Line,
    Tone,
    aligned,
    clean,
    mark_of,
    one_line,
    render,
    width,
)

#: Characters shown before the marked part of a line that is too long.
BEFORE = 30
#: The longest text shown for a problem, and the widest line of a file.
LONGEST = 1000
WIDE = 160
TONES = {Severity.ERROR: Tone.BAD, Severity.WARNING: Tone.WARNING, Severity.NOTE: Tone.RUN}
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
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


def diagnostics(
    inspections: Mapping[str, Inspection], rules: Mapping[str, LintRule], max_width: int = WIDE
) -> list[Line]:
    """Return every problem of every agent, their number, and where to read more. Each reason appears once. A line of a
    file is cut to `max_width`."""
    lines: list[Line] = []
    explained: set[str] = set()
    for inspection in inspections.values():
        for problem in inspection.problems:
            why = rules[problem.code].why if problem.code in rules and problem.code not in explained else ""
            explained.add(problem.code)
            lines += [*_lines(problem, inspection.texts.get(problem.file), why, max_width), _plain("")]
    lines += (
        _plain(f"{one_line(agent)}: {count_problems(inspection.problems)}") for agent, inspection in inspections.items()
    )
    problems = [problem for inspection in inspections.values() for problem in inspection.problems]
    if problems:
        first = next((problem for problem in problems if problem.severity is Severity.ERROR), problems[0])
        lines.append(_plain(f"More about a problem: stepflow explain {first.code}"))
    return lines


def _lines(problem: Problem, text: str | None, why: str, max_width: int) -> Iterator[Line]:
    head = f"{problem.severity}[{problem.code}]"
    yield Line(TONES[problem.severity], f"{head}: {one_line(problem.message, LONGEST)}")
    gutter = len(str(problem.line or 1))
    location = ":".join(str(part) for part in (problem.file, problem.line, problem.column) if part)
    if location:
        yield _plain(f"{' ' * gutter}--> {one_line(location, LONGEST)}")
    yield from _excerpt(problem, text, gutter, max_width - gutter - 3)
    lead = f"{' ' * gutter} ="
    if why:
        yield _plain(f"{lead} why: {why}")
    yield Line(Tone.GOOD, f"{lead} help: {one_line(problem.fix, LONGEST)}")


def _excerpt(problem: Problem, text: str | None, gutter: int, max_width: int) -> Iterator[Line]:
    """Yield the line of the problem, the line before it, and carets. Yield nothing if the text has no such line."""
    rows = text.split("\n") if text is not None else []
    if problem.line is None or not 0 < problem.line <= len(rows):
        return
    columns = (problem.column, problem.end_column) if problem.column and problem.end_column else None
    shown, mark = _underline(rows[problem.line - 1].rstrip("\r"), columns, max_width)
    above = _visible(rows[problem.line - 2].rstrip("\r")) if problem.line > 1 else ""
    before = [(problem.line - 1, _cut_to_width(above, max_width))] if above.strip() else []
    bar = f"{' ' * gutter} |"
    yield _plain(bar)
    for number, line in (*before, (problem.line, shown)):
        yield _plain(f"{number:>{gutter}} | {line}".rstrip())
    if mark:
        yield Line(TONES[problem.severity], f"{bar} {mark}")


def explanation(rule: LintRule) -> list[Line]:
    """Return the rule, why it matters, a wrong and a right example, and the address of its page."""
    lines = [Line(TONES[rule.severity], f"{rule.severity}[{rule.code}]: {rule.broken}"), _plain(""), _plain(rule.why)]
    location = ""
    for tone, word, examples in ((Tone.BAD, "Wrong", rule.wrong), (Tone.GOOD, "Right", rule.right)):
        for example in examples:
            where = "" if example.location == location else f", in {example.location}"
            location = example.location
            text = (_plain(f"    {line}".rstrip()) for line in example.text.split("\n"))
            lines += [_plain(""), Line(tone, f"{word}{where}:"), _plain(""), *text]
    return [*lines, _plain(""), _plain(f"Page: {rule.page}"), _plain("")]


def rule_list(rules: Iterable[LintRule]) -> list[Line]:
    """Return one line per rule, below the title of its group."""
    lines: list[Line] = []
    for group, members in groupby(rules, key=lambda rule: rule.group):
        rows = (Line(TONES[rule.severity], f"{rule.code} {rule.severity:7} {rule.broken}") for rule in members)
        lines += [_plain(group), *rows, _plain("")]
    return [*lines, _plain("`stepflow explain CODE` says why a rule matters, with an example.")]


def _plain(text: str) -> Line:
    return Line(Tone.PLAIN, text)


def annotation(
    level: str,
    *lines: str,
    file: str | None = None,
    line: int | None = None,
    end_line: int | None = None,
    columns: tuple[int | None, int | None] = (None, None),
    title: str | None = None,
) -> Command:
    """Return one workflow command.

    `level` is `error`, `warning` or `notice`. With `file`, the message, which has these `lines`, appears on the diff,
    on one line or up to `end_line`. `columns` are the first and the last column on that line.
    """
    first, last = columns
    position = {"line": line, "endLine": end_line, "col": first, "endColumn": last}
    numbers = {name: str(number) if number else None for name, number in position.items()}
    shown, left = [], MESSAGE_LIMIT
    for text in lines:
        if left > 0:
            shown.append(cut(text, left))
        left -= len(text) + 1
    return Command(level, *shown, file=file, **numbers, title=title and cut(title, TITLE_LIMIT))


def problem_annotations(problems: Iterable[Problem]) -> tuple[Command, ...]:
    """Return one annotation per problem that needs action. Notes are left out."""
    return tuple(
        annotation(
            LEVELS[problem.severity],
            f"{problem.message}. Fix: {problem.fix}",
            file=problem.file or None,
            line=problem.line,
            columns=(problem.column, problem.end_column and problem.end_column - 1),
            title=f"{problem.code} {problem.path}".strip(),
        )
        for problem in problems
        if problem.severity is not Severity.NOTE
    )


LONGEST_DETAIL = 1200
#: The rows about the model: its key, its name, and whether it answers.
MODEL = "model"
_ORDER = {CheckState.FAILED: 0, CheckState.WARNING: 1, CheckState.UNKNOWN: 2}


def describe_preflight(preflight: Preflight) -> str:
    """Return the number of rows in each state, as text. Who has no key yet is told that nothing else is wrong."""
    counts = Counter(check.state for check in preflight.checks)
    counted = ", ".join(
        count(counts[state], state) if state is CheckState.WARNING else f"{counts[state]} {state}"
        for state in CheckState
        if counts[state]
    )
    only_model = {check.name for check in preflight.failed} == {MODEL}
    return f"{counted}: nothing but the model would stop a run" if only_model else counted


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
    return lines


def preflight_summary(preflight: Preflight) -> str:
    """Return the same rows for the job summary, with the rows that passed in a folded section."""
    others, fine = _by_state(preflight)
    counted = describe_preflight(preflight)
    return render("preflight.md.j2", preflight=preflight, counted=counted, others=others, fine=fine)
