"""Shows the result of a run to people: the job summary, the issue's comment, and the last lines in a terminal. All of
them, and the pull request, use the same lines for the changes, the checks, the steps and the cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.effect import EffectKind, describe_results, plan_text
from stepflow.domain.event import ValidatorRan
from stepflow.domain.reports.report import HistoryEntry, RunReport
from stepflow.domain.run import describe_unseen
from stepflow.domain.text import RemovalKind, RemovedPiece, code_block, count, count_kinds, sum_costs, usd
from stepflow.domain.words import Effort, Outcome
from stepflow.errors import Severity
from stepflow.report.diagnostic import annotation
from stepflow.report.flow_graph import is_too_large, mermaid_graph, walked_path
from stepflow.report.proof import describe_proof, link_into_diff, proof_section, without_links
from stepflow.report.safe_text import (
    FAILED,
    FILTERS,
    PASSED,
    PLANNED,
    Command,
    Line,
    Mark,
    Tone,
    aligned,
    details,
    fence,
    mark_of,
    one_line,
    plain,
    render,
    render_blocks,
    reveal,
    seconds_text,
    text_lines,
)
from stepflow.report.wording import (
    OUTCOMES,
    count_canaries,
    describe_changes,
    describe_hosts,
    describe_lines,
    describe_outcome,
    describe_subject,
    describe_way,
    next_step,
    reached_places,
    verb_of_text,
)

R = TypeVar("R")
#: If there are more checks or steps, the middle is left out. Failed checks are always shown.
MOST_CHECKS = 20
MOST_FILES = 10
MOST_STEPS = 12
MOST_MODELS = 12
#: Characters shown of a command in a terminal.
COMMAND_SHOWN = 60
PATH_SHOWN = 100
NAME_SHOWN = 40
WARNINGS_SHOWN = 20
#: Characters and lines shown of one piece of removed text.
PIECE_SHOWN = 300
LINES_SHOWN = 6
#: GitHub drops a step's summary if it is larger than 1 MiB. Other steps' summaries do not count.
LIMIT = 1_000_000
STEP_ROWS = 200
VALIDATOR_ROWS = 100
OUTPUTS = 5
ITEMS_SHOWN = 30
REMOVED_SHOWN = 100
#: Limit of GitHub's Mermaid, which shows an error instead of a longer graph.
GRAPH_LIMIT = 40_000
COMMENT_PIECES = 20
COMMENT_HOSTS = 10
HOST_ROWS = 100
FILES_NAMED = 5
TERMINAL_PROBLEMS = 20


@dataclass(frozen=True, kw_only=True)
class CheckLine:
    """The state of a check after its last run. `note` says what the mark cannot."""

    mark: Mark
    name: str
    command: str
    note: str = ""


def verification(report: RunReport, *, run_url: str = "") -> str:
    """Return the lines as Markdown, or an empty string for a run that never began. `run_url` is the job with the full
    summary."""
    if not (report.run_id or report.history):
        return ""
    checks, left_out = _shown_checks(report)
    # Where the run's pull request shows lines; nowhere before it is opened.
    opened = (each.url for each in report.effects if each.kind is EffectKind.OPEN_PULL_REQUEST and each.url)
    url = next(opened, report.follow_up.url if report.follow_up else "")
    return render(
        "verified.md.j2",
        report=report,
        changed=describe_changes(report.changes),
        files_shown=MOST_FILES,
        describe_lines=describe_lines,
        checks=checks,
        checks_left_out=left_out,
        suggestions=tuple(describe_results(report.suggestions)) if report.suggestions else (),
        proof=proof_section(report.proof, link_into_diff(url) if url else without_links) if report.proof else "",
        steps=walked_steps(report),
        models=model_lines(report),
        changes=[line.model_change for line in report.history if line.model_change],
        changes_shown=MOST_MODELS,
        figures=" · ".join(figures(report)),
        run_url=run_url,
    )


@dataclass(frozen=True, kw_only=True)
class ModelLine:
    """What one model did in a run at one effort."""

    model: str
    effort: Effort | None
    iterations: int
    tokens: int
    cost_usd: float | None


def model_lines(report: RunReport) -> tuple[ModelLine, ...]:
    """Return one line per model, in the order in which the run reached them. Return none if the run used only one."""
    rungs: dict[tuple[str, Effort | None], list[HistoryEntry]] = {}
    for line in report.history:
        if line.model and line.usage.total:
            rungs.setdefault((line.model, line.effort), []).append(line)
    if len(rungs) < 2 and not any(line.model_change for line in report.history):
        return ()
    return tuple(
        ModelLine(
            model=model,
            effort=effort,
            iterations=len(lines),
            tokens=sum(line.usage.total for line in lines),
            cost_usd=sum_costs(line.cost_usd for line in lines),
        )
        for (model, effort), lines in list(rungs.items())[:MOST_MODELS]
    )


def progress_summary(report: RunReport, *, now: float, died: str, is_over: bool, run_url: str) -> str:
    """Return the text of the comment about a run in progress, or about one that `is_over` and leaves no other comment.
    It has none of the model's text. `now` is in seconds since the epoch; `died` is about a run that was cut off."""
    checks, left_out = _shown_checks(report, when="at the end" if is_over else "yet")
    return render(
        "progress.md.j2",
        report=report,
        subject=describe_subject(report),
        is_over=is_over,
        ended=OUTCOMES[report.outcome],
        died=died,
        checks=checks,
        checks_left_out=left_out,
        steps=walked_steps(report),
        figures=" · ".join(figures(report)),
        run_url=run_url,
        now=f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M:%S} UTC",
    )


def check_lines(report: RunReport, *, when: str = "at the end") -> tuple[CheckLine, ...]:
    """Return each check once, in the order in which they ran. Checks that did not run again since the run began come
    last; `when` says which moment they missed."""
    last = {run.name: run for run in report.validators}
    before = {check.name: check for check in report.base_checks}
    ran = [_ran(run, was_red=name in before and not before[name].passed) for name, run in last.items()]
    waiting = [
        CheckLine(
            mark=PLANNED,
            name=name,
            command=check.command,
            note=f"not run {when}; {'passing' if check.passed else 'failing'} before this run",
        )
        for name, check in before.items()
        if name not in last
    ]
    return (*ran, *waiting)


def _ran(run: ValidatorRan, *, was_red: bool) -> CheckLine:
    notes = []
    if not run.passed:
        # A check that failed in spite of exit code 0 had output other than required.
        notes += [f"exit code {run.exit_code}"] if run.exit_code else []
        notes.append(f"attempt {run.attempt}")
    if was_red:
        notes.append("failing before this run")
    mark = PASSED if run.passed else FAILED
    return CheckLine(mark=mark, name=run.name, command=run.command, note=", ".join(notes))


def _shown_checks(report: RunReport, *, when: str = "at the end") -> tuple[tuple[CheckLine, ...], int]:
    """Return all failed checks and as many others as fit, and how many were left out."""
    lines = check_lines(report, when=when)
    others = [line for line in lines if line.mark is not FAILED]
    left_out = others[max(0, MOST_CHECKS - (len(lines) - len(others))) :]
    return tuple(line for line in lines if line not in left_out), len(left_out)


def walked_steps(report: RunReport) -> tuple[str, ...]:
    """Return the steps in order, with how often each ran in a row. Steps in the middle of a long path are left out."""
    runs = [(name, len(list(same))) for name, same in groupby(line.step_id for line in report.history)]
    shown, left_out = ends_of([f"{name} ×{times}" if times > 1 else name for name, times in runs], MOST_STEPS)
    middle = len(shown) // 2
    return (*shown[:middle], *([f"… {left_out:,} more …"] if left_out else []), *shown[middle:])


def figures(report: RunReport) -> list[str]:
    """Return iterations, tokens, money and time, as text."""
    return [
        count(report.iterations, "iteration"),
        count(report.usage.total, "token"),
        usd(report.cost_usd) if report.cost_usd is not None else "cost unknown",
        seconds_text(report.seconds),
    ]


def _terminal_checks(report: RunReport) -> list[tuple[str, str, str]]:
    """Return the mark and name, the command, and the note of each check."""
    lines, left_out = _shown_checks(report)
    rows = [
        (f"{line.mark.text} {one_line(line.name, NAME_SHOWN)}", one_line(line.command, COMMAND_SHOWN), line.note)
        for line in lines
    ]
    return [*rows, (f"… {left_out:,} more …", "", "")] if left_out else rows


def ends_of(items: Sequence[R], most: int) -> tuple[tuple[R, ...], int]:
    """Return all items, or the first and last ones, and how many were left out between them."""
    if len(items) <= most:
        return tuple(items), 0
    half = most // 2
    return (*items[:half], *items[-half:]), len(items) - 2 * half


def removed_text(report: RunReport, most: int = COMMENT_PIECES, *, title: str = "") -> str:
    """Return what the model did not see of the issue: the number and kinds of the pieces of its text, a folded copy of
    the first `most`, and the number of images. Empty if the model saw everything."""
    removed, unseen = report.removed_text, describe_unseen(report.images)
    if not removed.count:
        return unseen
    what = f"{count(removed.count, 'hidden piece')} of the issue's text did not reach the model"
    shown = removed.pieces[:most]
    lines = [line for piece in shown for line in _piece_lines(piece)]
    if removed.count > len(shown):
        lines.append(f"and {removed.count - len(shown):,} more")
    body = fence("\n".join(lines), lines=most * (LINES_SHOWN + 2), width=PIECE_SHOWN)
    sentence = f"{what}: {plain(count_kinds(removed.pieces), 400)}."
    # Text that was cut for its length is not an attempt to hide something, and readers should know that.
    if any(piece.kind is RemovalKind.CUT for piece in removed.pieces):
        sentence += " The text was too long for the model, so its end is missing."
    return "\n\n".join(part for part in (title, sentence, details("What was removed", body), unseen) if part)


def _piece_lines(piece: RemovedPiece) -> list[str]:
    text = [line for line in reveal(piece.text, PIECE_SHOWN).split("\n") if line.strip()]
    more = ["  …"] if len(text) > LINES_SHOWN or len(piece.text) > PIECE_SHOWN else []
    return [f"{piece.kind}, {piece.where}:", *(f"  {line}" for line in text[:LINES_SHOWN]), *more]


def job_summary(report: RunReport, agent: AgentDefinition | None = None, *, limit: int = LIMIT) -> str:
    """Return the summary. `limit` is in bytes."""
    history, left_out = ends_of(report.history, STEP_ROWS)
    red = [run for run in report.validators if not run.passed and run.output_tail.strip()]
    sections = render_blocks(
        "summary.md.j2",
        **_shared_values(report),
        tag=FILTERS["code"],
        verb_of_text=verb_of_text,
        verified=verification(report),
        has_agent=agent is not None,
        picture=_picture(report, agent) if agent else "",
        history=history,
        history_left_out=left_out,
        describe_way=describe_way,
        validators_shown=VALIDATOR_ROWS,
        warnings=_guard_warnings(report.validators),
        red_runs=red[-OUTPUTS:],
        problems=[problem for problem in report.problems if problem.severity is not Severity.NOTE],
        items_shown=ITEMS_SHOWN,
        violations=count(report.spec_violations, "time"),
        removed=removed_text(report, REMOVED_SHOWN, title="### Removed from the issue's text"),
        answer=json.dumps(report.structured_output, indent=1),
        layers=[*_layers(report)],
        hosts_shown=HOST_ROWS,
        run_folder=report.host_run_folder or report.run_folder,
    )
    return _fit(sections, limit)


def failure_summary(report: RunReport) -> str:
    """Return the text to add to the run's comment, which already shows the work, if the final text could not be
    written. It says why, and what to do."""
    shared = {**_shared_values(report), "tag": partial(FILTERS["text"], limit=60)}
    values = {"verified": "", "warnings": (), "refused": (), "red_run": None, "removed": ""}
    return "\n\n".join(render_blocks("comment.md.j2", **shared, **values)) + "\n"


def comment_summary(report: RunReport, *, run_url: str = "") -> str:
    """Return the default text of the run's one comment. `run_url` is the job with the full summary."""
    last = report.validators[-1] if report.validators and not report.success else None
    sections = render_blocks(
        "comment.md.j2",
        **_shared_values(report),
        # A comment uses plain text where the summary uses code.
        tag=partial(FILTERS["text"], limit=60),
        verified=verification(report, run_url=run_url),
        warnings=_guard_warnings(tuple({run.name: run for run in report.validators}.values())),
        # Traffic without a host name, such as UDP, cannot be put on a list of allowed hosts.
        refused=[each.host for each in report.hosts if each.refused and not each.host.startswith("(")][:COMMENT_HOSTS],
        red_run=last if last and not last.passed and last.output_tail.strip() else None,
        removed=removed_text(report),
    )
    return "\n\n".join(sections) + "\n"


def _shared_values(report: RunReport) -> dict[str, object]:
    return {
        "report": report,
        "subject": describe_subject(report),
        "ended": OUTCOMES[report.outcome],
        "reason": report.explanation,
        "advice": next_step(report),
        "plan": code_block(plan_text(report.handoff), "text"),
        "left": " · ".join(_limits_left(report)),
    }


def _limits_left(report: RunReport) -> Iterator[str]:
    """Yield what is left of the limits."""
    if asked := report.approval:
        yield count(asked.iterations_left, "iteration")
        if asked.usd_left is not None:
            yield usd(asked.usd_left)
        if asked.tokens_left is not None:
            yield count(asked.tokens_left, "token")


def _picture(report: RunReport, agent: AgentDefinition) -> str:
    """Return the agent's graph with the path of the run, or an empty string if it is too large for GitHub to draw."""
    path = walked_path(report)
    picture = mermaid_graph(agent, path)
    return "" if is_too_large(agent, path) or len(picture) > GRAPH_LIMIT else picture


def _guard_warnings(runs: Sequence[ValidatorRan]) -> list[tuple[tuple[str, str], int]]:
    """Return what was changed under validators or hidden from them. Repeated warnings appear once."""
    last = {(run.name, text): run.iteration for run in runs for text in run.warnings}
    return [*last.items()][-WARNINGS_SHOWN:]


def _layers(report: RunReport) -> Iterator[tuple[str, str]]:
    """Yield what isolated the tools, layer by layer."""
    yield from report.isolation.items()
    if report.canaries:
        yield "self-test", count_canaries(report.canaries)
        for location in reached_places(report.canaries):
            yield location, report.canaries[location]


def _fit(sections: Sequence[str], limit: int) -> str:
    """Join whole sections up to the limit. Half a table or half a picture would be worse than none."""
    note = "*The summary is cut here: GitHub takes at most 1 MiB. The run folder's report has the rest.*\n"
    remaining = limit - len(note.encode())
    fitting: list[str] = []
    for section in sections:
        remaining -= len(section.encode()) + 2
        if remaining < 0:
            return "\n\n".join([*fitting, note])
        fitting.append(section)
    return "\n\n".join(fitting) + "\n"


def final_words(report: RunReport) -> list[Line]:
    """Return lines with the outcome, reason, steps, checks, effects, cost, run folder, and what to do next."""
    reason = one_line(report.explanation, 500)
    lines = [f"{mark_of(report.outcome).text} {describe_outcome(report.outcome)}: {reason}"]
    shown = [problem for problem in report.problems if problem.severity is not Severity.NOTE]
    lines += [f"  {one_line(str(problem), 400)}" for problem in shown[:TERMINAL_PROBLEMS]]
    lines += [f"  {row}" for row in aligned(_terminal_facts(report))]
    return [Line(Tone.PLAIN, line) for line in lines]


def copy_began(repository: Path, left_behind: Sequence[str], *, in_place: bool) -> list[Line]:
    """Return lines that say where a run at a terminal works, and which uncommitted changes it does not see."""
    end = (
        "when it completes, your branch moves to its commits"
        if in_place
        else "your files and branches stay as they are"
    )
    lines = [f"The run works in a copy of {repository}; {end}."]
    if left_behind:
        shown = ", ".join(one_line(name, 100) for name in left_behind[:FILES_NAMED])
        more = f" and {len(left_behind) - FILES_NAMED} more" if left_behind[FILES_NAMED:] else ""
        lines.append(f"Your uncommitted changes are not part of it: {shown}{more}.")
    return [Line(Tone.PLAIN, line) for line in (*lines, "")]


def branch_ready(branch: str, git: str, *, moved: bool) -> list[Line]:
    """Return lines that name the branch with a completed run's commits, and that say what to do with it. `git` is the
    beginning of a git command that a person can copy. The branch is in the user's repository."""
    if not branch:
        return [*text_lines("\nThe run made no commits, so there is no branch to look at.")]
    look = ("look", f"{git} log -p {'ORIG_HEAD' if moved else 'HEAD'}..{branch}")
    others = (("merge", f"{git} merge {branch}"), ("remove", f"{git} branch -D {branch}"))
    rows = (look,) if moved else (look, *others)
    title = f"The work is on {'your' if moved else 'the'} branch {branch}:"
    return [Line(Tone.PLAIN, text) for text in ("", title, *(f"  {row}" for row in aligned(rows)))]


def commits_saved(bundle: Path | None, git: str) -> list[Line]:
    """Return lines that say where the commits of an incomplete run are, and how to look at them."""
    look = f"Its commits are kept. To look at them: {git} fetch {bundle} HEAD && {git} log -p HEAD..FETCH_HEAD"
    return [Line(Tone.PLAIN, text) for text in ("", look)] if bundle else []


def _table(name: str, rows: Iterable[Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield aligned rows, the first one with a name."""
    for at, text in enumerate(aligned(rows)):
        yield "" if at else name, text


def _terminal_facts(report: RunReport) -> Iterator[tuple[str, str]]:
    if report.history:
        yield "steps", " → ".join(one_line(step, 60) for step in walked_steps(report))
    if report.verdict:
        yield "verdict", one_line(report.verdict)
    if changes := report.changes:
        rows = [(one_line(file.path, PATH_SHOWN), describe_lines(file)) for file in changes.files[:MOST_FILES]]
        more = changes.count - len(rows)
        yield from _table("changed", [*rows, (f"… {more:,} more …", "")] if more else rows)
    yield from _table("checks", _terminal_checks(report))
    if report.proof:
        yield "proof", one_line(f"{report.proof.verdict.value}: {describe_proof(report.proof)}", 400)
    effects = ((each.kind, each.status, one_line(each.url or each.detail, 200)) for each in report.effects)
    yield from _table("effects", effects)
    if report.hosts:
        yield "hosts", one_line(describe_hosts(report.hosts), 400)
    for at, text in enumerate(plan_text(report.handoff).split("\n") if report.approval else ()):
        yield "" if at else "plan", text
    yield from _table("models", _terminal_models(report))
    yield "cost", " · ".join(figures(report))
    if report.approval:
        yield "left", " · ".join(_limits_left(report))
    if report.host_run_folder or report.run_folder:
        yield "run folder", one_line(report.host_run_folder or report.run_folder, 400)
    yield "next", next_step(report)


def _terminal_models(report: RunReport) -> Iterator[tuple[str, str, str]]:
    for line in model_lines(report):
        model = f"{line.model}, effort {line.effort}" if line.effort else line.model
        yield one_line(model, NAME_SHOWN), count(line.iterations, "iteration"), usd(line.cost_usd)


#: Outcomes without success in which nothing went wrong.
NOTICED = (Outcome.SKIPPED, Outcome.NO_CHANGES, Outcome.AWAITING_APPROVAL)


def outcome_annotation(report: RunReport) -> tuple[Command, ...]:
    """Return what a person must know at the end, or nothing if the run succeeded."""
    if report.success:
        return ()
    level = "notice" if report.outcome in NOTICED else "error"
    # Each problem has an annotation of its own.
    what = report.explanation.partition("\n")[0] if report.problems else report.explanation
    return (
        annotation(level, what, next_step(report), title=f"{report.agent or 'stepflow'}: {OUTCOMES[report.outcome]}"),
    )
