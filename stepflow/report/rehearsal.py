"""Formats a rehearsal for people and for CI: lines, Markdown for the job summary, annotations, JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from stepflow.domain.reports.report import OUTCOME, CheckState, Mismatch, Rehearsal, Rehearsed
from stepflow.domain.text import count
from stepflow.domain.words import Outcome
from stepflow.report.diagnostic import annotation
from stepflow.report.safe_text import (
    Command,
    Line,
    Tone,
    aligned,
    clean,
    details,
    fence,
    html_text,
    mark_of,
    one_line,
    render,
    seconds_text,
)

CELL = 60
REASON = 600
NONE_PLAYED = (
    "none played: a check failed before the run, so nothing is known about the agent. Make it pass, then rehearse again"
)
#: Rows shown of one comparison.
ROWS = 40
#: Limit in characters, each of which may take four bytes. GitHub drops a summary of more than 1 MiB.
SUMMARY_LIMIT = 200_000
#: Characters that XML 1.0 cannot contain, not even as a reference.
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def rehearsed_lines(rehearsed: Rehearsed) -> list[Line]:
    """Return the row of one scenario, followed by why it failed and by its differences."""
    mark = mark_of(_state(rehearsed))
    figures = f"{count(rehearsed.iterations, 'iteration')}, {seconds_text(rehearsed.seconds)}"
    updated = ", updated" if rehearsed.updated else ""
    name = f"{rehearsed.agent}/{one_line(rehearsed.name, CELL)}"
    lines = [Line(mark.tone, f"{mark.text} {name}  {figures}{updated}")]
    lines += [Line(Tone.PLAIN, f"    {line}") for line in difference_lines(rehearsed)]
    lines += [Line(Tone.PLAIN, f"    note: {one_line(note, REASON)}") for note in rehearsed.notes]
    if rehearsed.skipped:
        lines = [Line(mark.tone, f"{mark.text} {name}  not played: {one_line(rehearsed.skipped, REASON)}")]
    if rehearsed.refusal:
        lines.append(Line(Tone.WARNING, f"    not updated: {one_line(rehearsed.refusal, REASON)}"))
    return lines


def difference_lines(rehearsed: Rehearsed) -> list[str]:
    """Return expected and actual values in columns. `≠` marks the rows that differ. If the run ended in another way
    than expected, how and why it ended comes first."""
    if not rehearsed.failed:
        return []
    reason = one_line(rehearsed.reason, REASON)
    ended = [
        f"ended as {row.came}, expected {row.expected}: {reason}"
        for difference in rehearsed.differences
        if difference.what == OUTCOME
        for row in difference.rows
    ]
    head, *output = (one_line(line, REASON) for line in rehearsed.red or ("",))
    lines = [*ended, *([head, *(f"│ {line}" for line in output)] if head else [])]
    lines += [line for difference in rehearsed.differences if difference.what != OUTCOME for line in _part(difference)]
    lines += [] if ended else [f"ended as {rehearsed.outcome}: {reason}"]
    if rehearsed.run_folder:
        lines.append(f"run folder: {rehearsed.run_folder}")
    return lines


def describe_rehearsal(rehearsal: Rehearsal) -> str:
    """Return how many scenarios are as expected, and which are not."""
    failed, skipped = rehearsal.failed, len(rehearsal.skipped)
    total = count(len(rehearsal.scenarios), "scenario")
    if rehearsal.outcome is Outcome.BASE_FAILED:
        return f"{total}, {NONE_PLAYED}"
    parts = [total, *([f"{skipped} not played"] if skipped else ())]
    if failed:
        parts.append(f"{len(failed)} not as expected")
    else:
        parts.append("the rest as expected" if skipped else "as expected")
    text = ", ".join(parts)
    updated = sum(each.updated for each in rehearsal.scenarios)
    named = f": {', '.join(f'{each.agent}/{each.name}' for each in failed)}" if failed else ""
    return f"{text}{f', {updated} updated' if updated else ''}{named}"


def rehearsal_lines(rehearsal: Rehearsal) -> list[Line]:
    """Return the last lines: a table of all scenarios, the agents that have none, and the count."""
    rows = [("", "agent", "scenario", "iterations", "seconds", "")]
    for each in rehearsal.scenarios:
        figures = (f"{each.iterations:>10}", f"{each.seconds:>7.1f}")
        name = one_line(each.name, CELL)
        # Why it was not played has been said above.
        what = "not played" if each.skipped else ", ".join(_what(each))
        rows.append((mark_of(_state(each)).text, each.agent, name, *figures, what))
    lines = [Line(Tone.PLAIN, row) for row in ("", *aligned(rows))]
    lines += [Line(Tone.WARNING, f"! {agent} has no scenario") for agent in rehearsal.unrehearsed]
    lines.append(Line(mark_of(rehearsal.outcome).tone, one_line(describe_rehearsal(rehearsal), REASON)))
    return lines


def rehearsal_summary(rehearsal: Rehearsal) -> str:
    """Return the table for the job summary, followed by each difference in a folded section."""
    described = describe_rehearsal(rehearsal)
    parts = [render("rehearsal.md.j2", rehearsal=rehearsal, described=described, state=_state, what=_what)]
    for each in rehearsal.failed:
        body = fence("\n".join(difference_lines(each)), lines=400, width=400)
        folded = details(html_text(f"{each.agent}/{each.name}: {', '.join(_what(each))}", 200), body)
        if sum(map(len, parts)) + len(folded) < SUMMARY_LIMIT:
            parts.append(folded)
    return "\n\n".join(parts)


def rehearsal_annotations(rehearsal: Rehearsal) -> tuple[Command, ...]:
    """Return one annotation per scenario that differs, on the scenario's file."""
    return tuple(
        annotation(
            "error",
            *difference_lines(each),
            file=each.file,
            line=each.line,
            title=f"{each.agent}/{each.name}: not as expected",
        )
        for each in rehearsal.failed
    )


def _state(rehearsed: Rehearsed) -> bool | CheckState:
    """Return what the mark of a scenario shows."""
    return CheckState.WARNING if rehearsed.skipped else rehearsed.passed


def _what(rehearsed: Rehearsed) -> tuple[str, ...]:
    if rehearsed.skipped:
        return (f"not played: {one_line(rehearsed.skipped, REASON)}",)
    return tuple(one_line(difference.what) for difference in rehearsed.differences)


def _part(difference: Mismatch) -> Iterator[str]:
    rows = (
        ("" if row.same else "≠", *(one_line(text, CELL) for text in (row.where, row.expected, row.came)))
        for row in difference.rows[:ROWS]
    )
    lines = aligned((("", "", "expected", "came"), *rows))
    yield one_line(f"{difference.what}:", 200)
    yield from (f"  {line}" for line in lines)
    if len(difference.rows) > ROWS:
        yield f"  … {count(len(difference.rows) - ROWS, 'more row')}"


def junit_xml(rehearsal: Rehearsal) -> str:
    """Return JUnit XML with one suite per agent and one case per scenario."""
    root = ElementTree.Element("testsuites", _totals("stepflow rehearse", rehearsal.scenarios))
    for agent in dict.fromkeys(each.agent for each in rehearsal.scenarios):
        own = [each for each in rehearsal.scenarios if each.agent == agent]
        suite = ElementTree.SubElement(root, "testsuite", _totals(agent, own))
        for each in own:
            _add_case(suite, each)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _totals(name: str, scenarios: Sequence[Rehearsed]) -> dict[str, str]:
    return {
        "name": name,
        "tests": str(len(scenarios)),
        "failures": str(sum(each.failed for each in scenarios)),
        "errors": "0",
        "skipped": str(sum(bool(each.skipped) for each in scenarios)),
        "time": f"{sum(each.seconds for each in scenarios):.3f}",
    }


def _add_case(suite: ElementTree.Element, rehearsed: Rehearsed) -> None:
    named = {"classname": f"stepflow.{rehearsed.agent}", "name": _text(rehearsed.name), "file": _text(rehearsed.file)}
    case = ElementTree.SubElement(suite, "testcase", {**named, "time": f"{rehearsed.seconds:.3f}"})
    if rehearsed.failed:
        message = "not as expected: " + ", ".join(difference.what for difference in rehearsed.differences)
        failure = ElementTree.SubElement(case, "failure", {"message": _text(message), "type": rehearsed.outcome})
        failure.text = _text("\n".join(difference_lines(rehearsed)))
    if rehearsed.skipped:
        ElementTree.SubElement(case, "skipped", {"message": _text(rehearsed.skipped)})
    if said := [*rehearsed.notes, *([rehearsed.refusal] if rehearsed.refusal else [])]:
        ElementTree.SubElement(case, "system-out").text = _text("\n".join(said))


def _text(text: str) -> str:
    return NOT_IN_XML.sub("\ufffd", clean(text))
