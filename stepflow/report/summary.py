"""The result of a run for people: the job summary, the issue's comment, and the last lines in a terminal."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, TypeVar

from stepflow.domain.figures import count, usd
from stepflow.domain.problem import Severity
from stepflow.domain.visible_text import RemovalKind, count_kinds
from stepflow.domain.words import Outcome
from stepflow.report.graph.flow_graph import flow_graph, mermaid_graph, walked_path
from stepflow.report.lines import FAILED, PASSED, mark_of
from stepflow.report.safe_text import (
    aligned,
    code,
    defuse,
    details,
    fence,
    html_text,
    link,
    one_line,
    plain,
    reveal,
    table,
)
from stepflow.report.verified import ends_of, figures, terminal_changes, terminal_checks, verified, walked_steps
from stepflow.report.wording import (
    OUTCOMES,
    count_canaries,
    describe_outcome,
    describe_reason,
    next_step,
    reached_places,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.effect import Receipt
    from stepflow.domain.report import HistoryEntry, RunReport, ValidatorRun
    from stepflow.domain.visible_text import RemovedPiece

R = TypeVar("R")
STEP_HEADER = (">#", "Step", "Intent", "Leads to", ">Tools", ">Tokens", ">USD", ">Seconds", "Reason")
VALIDATOR_HEADER = (">Iteration", "Check", "Result", ">Exit", ">Seconds")
WARNINGS_SHOWN = 20
EFFECT_HEADER = ("Effect", "Status", "Detail", "Link")
#: Of one piece so many characters and lines are shown.
PIECE_SHOWN = 300
LINES_SHOWN = 6
#: GitHub drops a step's whole summary from 1 MiB on; other steps' words do not count.
LIMIT = 1_000_000
STEP_ROWS = 200
VALIDATOR_ROWS = 100
OUTPUTS = 5
PROBLEMS = 30
REMOVED_SHOWN = 100
#: GitHub's Mermaid refuses larger ones and shows an error in their place.
GRAPH_LIMIT = 40_000
EDGE_LIMIT = 400
COMMENT_STEPS = 12
COMMENT_STEP_ROWS = 20
COMMENT_NOTES = 10
COMMENT_PIECES = 20
CODE_TAG = re.compile("</?code>")
TERMINAL_ROWS = 12
TEXT_LINES = 200
FILES_NAMED = 5
TERMINAL_PROBLEMS = 20


def step_table(report: RunReport, rows: int) -> str:
    """One row per iteration; from the middle of a long run rows are left out, with a note."""
    shown, left_out = ends_of(report.history, rows)
    lines: list[Sequence[str]] = [_step_row(line, report) for line in shown]
    if left_out:
        note = f"*{left_out:,} iterations left out; the run folder's report has them*"
        lines.insert(len(shown) // 2, ("…", note, *[""] * (len(STEP_HEADER) - 2)))
    return table(STEP_HEADER, lines)


def validator_table(report: RunReport, rows: int) -> str:
    """One row per run of a validator, the last ones of a long run."""
    left_out = len(report.validators) - rows
    lines: list[Sequence[str]] = [_validator_row(run) for run in report.validators[-rows:]]
    if left_out > 0:
        lines.insert(0, ("…", f"*{left_out:,} earlier runs left out*", "", "", ""))
    return table(VALIDATOR_HEADER, lines)


def guard_warnings(runs: Sequence[ValidatorRun]) -> str:
    """What was changed under validators or hidden from them, as a list; what is said again and again stands once."""
    last = {(run.name, text): run.iteration for run in runs for text in run.warnings}
    shown = list(last.items())[-WARNINGS_SHOWN:]
    return "\n".join(f"- ⚠️ {plain(name)}, iteration {at}: {plain(text, 600)}" for (name, text), at in shown)


def effect_table(report: RunReport) -> str:
    """One row per effect, with where it led."""
    return table(EFFECT_HEADER, (_effect_row(receipt) for receipt in report.effects))


def _step_row(line: HistoryEntry, report: RunReport) -> Sequence[str]:
    intent = line.intent or line.transition
    shown = intent if line.transition in (intent, "none") else f"{intent} ({line.transition})"
    check = f"check {line.check_result.result}: {line.check_result.message}" if line.check_result else ""
    closed = line.target is None and line.transition in ("closing", "complete")
    ended = report.history[-1] is line and report.success
    leads = "end" if closed and ended else "not done" if closed else code(line.target or "")
    cells = (str(line.iteration), code(line.step_id), plain(shown), leads, str(line.tool_calls))
    figures = (f"{line.usage.total:,}", usd(line.cost_usd).lstrip("$"), f"{line.seconds:.1f}")
    return (*cells, *figures, plain(check or line.reason, 140))


def _validator_row(run: ValidatorRun) -> Sequence[str]:
    if run.passed:
        result = f"{PASSED.emoji} passed"
    else:
        pattern = f" {code(run.pattern)}" if run.pattern else ""
        result = f"{FAILED.emoji} failed{pattern}, attempt {run.attempt}, then {plain(run.action or 'stop')}"
    # Red in spite of exit 0 means that the output was not as demanded.
    exited = str(run.exit_code) if run.passed or run.exit_code else ""
    return (str(run.iteration), code(run.name), result, exited, f"{run.seconds:.1f}")


def _effect_row(receipt: Receipt) -> Sequence[str]:
    commit = f" {code(receipt.commit[:12])}" if receipt.commit else ""
    where = link("open", receipt.url) if receipt.url else ""
    status = f"{mark_of(receipt.status).emoji} {receipt.status}"
    return (code(receipt.kind), status, f"{plain(receipt.detail)}{commit}", where)


def removed_text(report: RunReport, most: int = COMMENT_PIECES, *, title: str = "") -> str:
    """What the model did not see of the issue's text: how many pieces of which kinds, and a folded copy of the first
    `most`; empty when that is nothing."""
    removed = report.removed_text
    if not removed.count:
        return ""
    what = f"{count(removed.count, 'hidden piece')} of the issue's text did not reach the model"
    shown = removed.pieces[:most]
    lines = [line for piece in shown for line in _piece_lines(piece)]
    if removed.count > len(shown):
        lines.append(f"and {removed.count - len(shown):,} more")
    body = fence("\n".join(lines), lines=most * (LINES_SHOWN + 2), width=PIECE_SHOWN)
    sentence = f"{what}: {plain(count_kinds(removed.pieces), 400)}."
    # A text that was too long is no attempt to hide anything, and its reader should know.
    if any(piece.kind is RemovalKind.CUT for piece in removed.pieces):
        sentence += " The text was longer than a model is given, so its end is missing."
    return "\n\n".join(part for part in (title, sentence, details("What was removed", body)) if part)


def _piece_lines(piece: RemovedPiece) -> list[str]:
    text = [line for line in reveal(piece.text, PIECE_SHOWN).split("\n") if line.strip()]
    more = ["  …"] if len(text) > LINES_SHOWN or len(piece.text) > PIECE_SHOWN else []
    return [f"{piece.kind}, {piece.where}:", *(f"  {line}" for line in text[:LINES_SHOWN]), *more]


def job_summary(
    report: RunReport,
    agent: AgentDefinition | None = None,
    *,
    notes: Sequence[str] = (),
    limit: int = LIMIT,
) -> str:
    """The summary. `notes` are what else a person should know, such as files left uncommitted. `limit` in bytes."""
    answer = report.structured_output
    sections = (
        headline(report),
        f"**What to do next:** {next_step(report)}",
        verified(report),
        _graph(report, agent) if agent else "",
        f"### Steps\n\n{step_table(report, STEP_ROWS)}" if report.history else "",
        _validators(report),
        _effects(report),
        _problems(report),
        _notes(report, notes),
        removed_text(report, REMOVED_SHOWN, title="### Removed from the issue's text"),
        details("The closing answer", fence(json.dumps(answer, indent=1), lines=60)) if answer is not None else "",
        _sandbox(report),
        f"<sub>{' · '.join(_facts(report))}</sub>" if report.run_id else "",
    )
    return _fit([section for section in sections if section], limit)


def headline(report: RunReport) -> str:
    """How it ended, and why."""
    issue = f" on issue #{report.issue}" if report.issue is not None else ""
    name = plain(report.agent) or "stepflow"
    reason = plain(describe_reason(report.reason), 1000)
    word = "" if report.outcome in (Outcome.COMPLETED, Outcome.SKIPPED) else f" (`{report.outcome}`)"
    lines = [
        f"## {mark_of(report.outcome).emoji} {name}{issue}: {OUTCOMES[report.outcome]}",
        f"**Reason**{word}: {reason}",
    ]
    verdict = [f"**Verdict:** {plain(report.verdict, 300)}"] if report.verdict else []
    known = [code(report.code)] if report.code else []
    facts = [*verdict, *known, *filter(None, [report.issue_cost])]
    return "\n\n".join([*lines, " · ".join(facts)] if facts else lines)


def describe_failure_report(report: RunReport) -> str:
    """Where the failure was reported on the issue; or why it was not."""
    failure = report.failure_report or ""
    return (
        link("The issue's comment tells what happened", failure) if failure.startswith("http") else plain(failure, 600)
    )


def _graph(report: RunReport, agent: AgentDefinition) -> str:
    """The registry's graph with the path of the run, as a block that GitHub draws unless it is too large."""
    path = walked_path(report)
    picture = mermaid_graph(agent, path)
    shown = "The graph is too large for GitHub's picture; `stepflow graph --run` draws it."
    if len(flow_graph(agent, path).edges) <= EDGE_LIMIT and len(picture) <= GRAPH_LIMIT:
        legend = "Blue: work, yellow: verification, green: closure. Thick: the way this run took."
        shown = f"```mermaid\n{picture}```\n\n{legend}"
    return f"### The way it took\n\n{shown}"


def _validators(report: RunReport) -> str:
    if not report.validators:
        return ""
    red = [run for run in report.validators if not run.passed and run.output_tail.strip()][-OUTPUTS:]
    outputs = (
        details(f"Output of {html_text(run.name)} in iteration {run.iteration}", fence(run.output_tail, lines=40))
        for run in red
    )
    parts = ("### Checks", validator_table(report, VALIDATOR_ROWS), guard_warnings(report.validators), *outputs)
    return "\n\n".join(part for part in parts if part)


def _effects(report: RunReport) -> str:
    failure = describe_failure_report(report)
    reported = f"\n\n{failure}" if failure else ""
    if report.effects:
        shown = ((kind, fence(text, lines=TEXT_LINES)) for kind, text in report.texts.items())
        texts = (details(f"What {kind} would write", text) for kind, text in shown)
        return "\n\n".join((f"### Effects on GitHub\n\n{effect_table(report)}{reported}", *texts))
    if not report.run_id and report.outcome in (Outcome.COMPLETED, Outcome.SKIPPED):
        return ""
    return f"### Effects on GitHub\n\nNone: nothing was planned or written.{reported}"


def _problems(report: RunReport) -> str:
    shown = [problem for problem in report.problems if problem.severity is not Severity.NOTE]
    if not shown:
        return ""
    items = [f"- {plain(str(problem), 600)}" for problem in shown[:PROBLEMS]]
    more = [f"- and {len(shown) - PROBLEMS} more: `stepflow validate` lists them all"] if shown[PROBLEMS:] else []
    return "### Problems of the definition\n\n" + "\n".join([*items, *more])


def _notes(report: RunReport, notes: Iterable[str]) -> str:
    violations = count(report.spec_violations, "time")
    spec = [f"- `failFast: false` chose an intent {violations}"] if report.spec_violations else []
    items = [*spec, *(f"- {plain(note, 600)}" for note in list(notes)[:PROBLEMS])]
    return "### Notes\n\n" + "\n".join(items) if items else ""


def _sandbox(report: RunReport) -> str:
    """What kept the tools apart from the rest, layer by layer."""
    if not report.isolation:
        return ""
    rows = [*report.isolation.items()]
    if report.canaries:
        rows.append(("canaries", count_canaries(report.canaries)))
        rows += ((location, report.canaries[location]) for location in reached_places(report.canaries))
    layers = table(("Layer", "State"), ((plain(layer), plain(state, 300)) for layer, state in rows))
    return details("The sandbox of tools and validators", layers)


def _facts(report: RunReport) -> Iterator[str]:
    yield f"run {code(report.run_id)}"
    yield f"definition {code(report.definition_digest[:12])}"
    if report.base_commit:
        yield f"base commit {code(report.base_commit[:12])}"
    if report.host_run_folder or report.run_folder:
        yield f"run folder {code(report.host_run_folder or report.run_folder, 200)}"


def _fit(sections: Sequence[str], limit: int) -> str:
    """Whole sections only: half a table or half a picture would be worse than none."""
    note = "*The summary is cut here: GitHub takes at most 1 MiB. The run folder's report has the rest.*\n"
    remaining = limit - len(note.encode())
    fitting: list[str] = []
    for section in sections:
        remaining -= len(section.encode()) + 2
        if remaining < 0:
            return "\n\n".join([*fitting, note])
        fitting.append(section)
    return "\n\n".join(fitting) + "\n"


def comment_summary(report: RunReport, *, notes: Sequence[str] = (), run_url: str = "") -> str:
    """The default text of the run's one comment. `run_url` leads to the job with the full summary."""
    parts = [
        _without_code_tags(headline(report).replace("## ", "### ", 1)),
        # A success is reported before its effects are written: what to do then is seen by looking at them.
        "" if report.success else f"**What to do next:** {next_step(report)}",
        verified(report, run_url=run_url),
        # Of a success the boundary adds them itself, also below a text of the model's.
        "" if report.success else guard_warnings(tuple(_last_runs(report).values())),
        _red_output(report),
        "" if report.success or not report.effects else _without_code_tags(effect_table(report)),
        "\n".join(f"- {plain(note, 400)}" for note in notes[:COMMENT_NOTES]),
        removed_text(report),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _without_code_tags(text: str) -> str:
    """What the summary shows as code, as words. All tags of these texts are the engine's: others are escaped."""
    return CODE_TAG.sub("", text)


def _last_runs(report: RunReport) -> dict[str, ValidatorRun]:
    return {run.name: run for run in report.validators}


def _red_output(report: RunReport) -> str:
    """The output of the validator that ended the run, for whoever must mend it."""
    if report.success or not report.validators or report.validators[-1].passed:
        return ""
    run = report.validators[-1]
    if not run.output_tail.strip():
        return ""
    return details(f"Output of {html_text(run.name)}", fence(run.output_tail, lines=40))


def final_words(report: RunReport) -> list[str]:
    """Outcome, reason, way, validators, effects, cost, run folder, and what to do next."""
    reason = one_line(describe_reason(report.reason), 500)
    lines = [f"{mark_of(report.success).text} {describe_outcome(report.outcome)}: {reason}"]
    shown = [problem for problem in report.problems if problem.severity is not Severity.NOTE]
    lines += [f"  {one_line(str(problem), 400)}" for problem in shown[:TERMINAL_PROBLEMS]]
    lines += [f"  {row}" for row in aligned(_terminal_facts(report))]
    return [defuse(line) for line in lines]


def copy_began(repository: Path, left_behind: Sequence[str]) -> list[str]:
    """Where a run at a terminal works, and which uncommitted changes it does not see."""
    lines = [f"The run works in a copy of {repository}; your files and branches stay as they are."]
    if left_behind:
        shown = ", ".join(one_line(name, 100) for name in left_behind[:FILES_NAMED])
        more = f" and {len(left_behind) - FILES_NAMED} more" if left_behind[FILES_NAMED:] else ""
        lines.append(f"Your uncommitted changes are not part of it: {shown}{more}.")
    return [*(defuse(line) for line in lines), ""]


def branch_ready(branch: str) -> list[str]:
    """The branch that a complete run left in the user's repository, and what to do with it."""
    if not branch:
        return ["", "The run made no commits, so there is no branch to look at."]
    rows = [
        ("look", f"git log -p HEAD..{branch}"),
        ("merge", f"git merge {branch}"),
        ("remove", f"git branch -D {branch}"),
    ]
    return ["", f"The work is on the branch {branch}:", *(f"  {row}" for row in aligned(rows))]


def commits_saved(bundle: Path | None) -> list[str]:
    """Where the commits of a run are that did not complete, and how to look at them."""
    return (
        ["", f"Its commits are kept. To look at them: git fetch {bundle} HEAD && git log -p HEAD..FETCH_HEAD"]
        if bundle
        else []
    )


def _terminal_facts(report: RunReport) -> Iterator[tuple[str, str]]:
    if report.history:
        yield "steps", " → ".join(one_line(step, 60) for step in walked_steps(report))
    if report.verdict:
        yield "verdict", one_line(report.verdict)
    for at, text in enumerate(aligned(terminal_changes(report.changes) if report.changes else ())):
        yield "" if at else "changed", text
    for at, text in enumerate(aligned(terminal_checks(report))):
        yield "" if at else "checks", text
    effects = ((each.kind, each.status, one_line(each.url or each.detail, 200)) for each in report.effects)
    for at, text in enumerate(aligned(effects)):
        yield "" if at else "effects", text
    yield "cost", " · ".join(figures(report))
    if report.host_run_folder or report.run_folder:
        yield "run folder", one_line(report.host_run_folder or report.run_folder, 400)
    yield "next", next_step(report)
