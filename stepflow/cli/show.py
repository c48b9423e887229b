"""`stepflow show DIR`: shows a run as a readable timeline, even while it is running."""

from __future__ import annotations

import argparse
import os
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from stepflow.cli.options import add_switch
from stepflow.cli.terminal import last_run, live_lines, make_console, print_json, print_lines, show_lines, writing
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.event import Entry, IterationStarted, RunFinished
from stepflow.domain.reports.report import RunReport
from stepflow.domain.text import count
from stepflow.errors import InputError, StepflowError
from stepflow.journal import JournalReader, is_being_written, iter_journal
from stepflow.report.collect import ReportFacts, collect_report
from stepflow.report.document import report_json
from stepflow.report.log import TerminalLog
from stepflow.report.safe_text import Line, Tone
from stepflow.report.summary import final_words
from stepflow.telemetry.spans import RunTrace

#: Iterations shown in full unless more are requested, because nobody reads ten thousand.
NEWEST = 200
#: Seconds between two reads of a growing journal.
POLL_SECONDS = 0.2
NOT_WRITABLE = "Name a file in a folder that you may write to."
GOES_ON = "The run is still in progress."
NO_END = "No end was written: the process that ran it is gone. What it did until then is above."


def add_show_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `show`."""
    parser.add_argument("folder", nargs="?", metavar="DIR", help="a run folder (default: that of your last run)")
    add_switch(parser, "--follow", "follow a run in progress until it ends")
    add_switch(parser, "--json", "print the report as one JSON object instead")
    parser.add_argument("--html", metavar="FILE", help="write it as one HTML page instead")
    parser.add_argument(
        "--otlp",
        metavar="FILE|URL",
        help="write its OpenTelemetry trace and metrics to a file, or send them to a collector, with the headers in "
        "STEPFLOW_TELEMETRY",
    )
    how_many = parser.add_mutually_exclusive_group()
    how_many.add_argument(
        "--last", type=_positive, default=NEWEST, metavar="N", help=f"show the last N iterations (default: {NEWEST})"
    )
    how_many.add_argument("--all", action="store_true", help="show every iteration")


def execute_show(arguments: argparse.Namespace) -> int:
    """Print the timeline or the report, or write the page."""
    path = (Path(arguments.folder) if arguments.folder else last_run()) / "journal.jsonl"
    if not path.is_file():
        raise InputError(f"There is no journal at {path}.", hint="Name the run folder that a run has printed.")
    if arguments.html:
        write_page(path, _report(path), Path(arguments.html))
    elif arguments.otlp:
        export_run(path.parent, arguments.otlp)
    elif arguments.json:
        print_json(report_json(_report(path)))
    else:
        _show(path, newest=None if arguments.all else arguments.last, follow=arguments.follow)
    return 0


def _show(path: Path, *, newest: int | None, follow: bool) -> None:
    console = make_console(sys.stdout)
    log = TerminalLog()
    goes_on, reader, finished = is_being_written(path), JournalReader(path), False

    def render(entry: Entry) -> tuple[Line, ...]:
        """Return the lines of one entry. The final lines say how the run ended, so this leaves it out."""
        nonlocal finished
        finished = isinstance(entry.event, RunFinished)
        return () if finished else log.render(entry)

    report = _report(path)
    left_out = max(0, report.iterations - newest) if newest is not None else 0
    print_lines(sys.stdout, _past_lines(reader.new_entries(), left_out, render, log.run_log.skip))
    if follow and goes_on:
        with live_lines(console, log) as notify:
            for entry in _coming(path, reader):
                lines = render(entry)
                notify(entry)
                show_lines(console, lines)
        goes_on, report = False, _report(path)
    show_lines(console, _end(report, log, finished=finished, goes_on=goes_on))


def _past_lines(
    entries: Iterable[Entry],
    left_out: int,
    render: Callable[[Entry], Iterable[Line]],
    skip: Callable[[Entry], None],
) -> Iterator[Line]:
    """Yield the lines of what happened until now. What was before the first iteration is always shown."""
    iterations = 0
    for entry in entries:
        if isinstance(entry.event, IterationStarted):
            iterations += 1
            if left_out and iterations == left_out + 1:
                left = count(left_out, "earlier iteration")
                yield Line(Tone.PLAIN, f"… {left} left out; `--all` shows them too")
        if 0 < iterations <= left_out:
            skip(entry)
        else:
            yield from render(entry)


def _coming(path: Path, reader: JournalReader) -> Iterator[Entry]:
    """Yield each entry as it is written, until no process writes any more. After that, read what was written last."""
    goes_on = True
    while goes_on:
        time.sleep(POLL_SECONDS)
        goes_on = is_being_written(path)
        yield from reader.new_entries()


def _end(report: RunReport, log: TerminalLog, *, finished: bool, goes_on: bool) -> Iterable[Line]:
    if goes_on:
        progress = Line(Tone.PLAIN, log.run_log.progress())
        return (progress, Line(Tone.PLAIN, f"{GOES_ON} `--follow` shows it until it ends."))
    return (*(() if finished else (Line(Tone.PLAIN, NO_END),)), *final_words(report))


def _report(path: Path) -> RunReport:
    facts = ReportFacts(run_folder=str(path.parent.resolve()))
    return collect_report(iter_journal(path), facts=facts)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number of iterations; give 1 or more")
    return int(text)


def export_run(folder: Path, target: str) -> None:
    """Send the trace and the metrics of the whole run to a collector, or write them to a file as OTLP JSON. Prompts and
    answers are included if the run's own input `telemetry.content` was true."""
    # Imported here because a timeline needs none of it.
    from stepflow.cli.options import SECRETS  # noqa: PLC0415
    from stepflow.run.ending import read_trace, send_to_collector  # noqa: PLC0415
    from stepflow.run.readiness import check_collector  # noqa: PLC0415
    from stepflow.run.request import proxy_config_of  # noqa: PLC0415
    from stepflow.run.start.inputs import read_inputs  # noqa: PLC0415

    trace = read_trace(folder, content=None, redact=str)
    if trace is None:
        raise InputError(f"The run in {folder} never began.", hint="Name the folder of one that did.")
    if not target.startswith(("http://", "https://")):
        _write_otlp(trace, Path(target))
        return
    inputs = read_inputs({"telemetry": os.environ.get(SECRETS["telemetry"], "")})
    telemetry = inputs.telemetry.model_copy(update={"endpoint": target})
    inputs = inputs.model_copy(update={"telemetry": telemetry})
    check_collector(inputs)
    connection = proxy_config_of(inputs, os.environ, Path.cwd()).connection_to(target)
    if problem := send_to_collector(lambda: trace, inputs, connection, whole=True):
        raise StepflowError(f"The run could not be sent to {target}: {problem.rstrip('.')}.")
    print_lines(sys.stderr, [Line(Tone.PLAIN, f"sent to {target}")])


def _write_otlp(trace: RunTrace, path: Path) -> None:
    from stepflow.telemetry.export import NOT_INSTALLED, write_telemetry  # noqa: PLC0415 - as above

    try:
        with writing(f"The file {path}", hint=NOT_WRITABLE):
            write_telemetry(trace, path)
    except ModuleNotFoundError as exc:
        raise InputError(f"The run cannot be written as OTLP: {NOT_INSTALLED}.") from exc
    print_lines(sys.stderr, [Line(Tone.PLAIN, str(path))])


def write_page(journal: Path, report: RunReport, target: Path) -> None:
    """Write the page. Without the run's own definition, it has no picture of the graph."""
    from stepflow.run.ending import page_of_journal  # noqa: PLC0415 - as in _definition

    agent = _definition(report)
    with writing(f"The page {target}", hint=NOT_WRITABLE):
        page_of_journal(journal, report, agent, target)
    missing = "" if agent else f" (no picture: this repository does not have agent {report.agent} as it ran)"
    print_lines(sys.stderr, [Line(Tone.PLAIN, f"{target}{missing}")])


def _definition(report: RunReport) -> AgentDefinition | None:
    """Load the agent, but only in the version that the run used. Another version may have other transitions."""
    # Imported here because loading takes time that only a page needs.
    from stepflow.definition.loading import load_agent  # noqa: PLC0415

    try:
        agent = load_agent(report.agent, root=Path.cwd(), allow_spec_violations=True)
    except StepflowError:
        return None
    return agent if agent.digest == report.definition_digest else None
