"""The self-test of the sandbox in log, job log, summary and report."""

from __future__ import annotations

from dataclasses import replace

from plausible_run import AGENT, BEGAN, ENTRIES, STARTED

from stepflow.domain.event import CanariesTried, Entry
from stepflow.report.collect import collect_report
from stepflow.report.document import report_json
from stepflow.report.log import log_entries
from stepflow.report.summary import job_summary
from stepflow.report.watch import ActionLog

PROTECTED = {"a tool's environment": "kept", "RUNNER_TEMP": "kept", "the docker socket": "not here"}
REACHED = {**PROTECTED, "RUNNER_TEMP": "reached by shell: /tmp/runner | x (read)"}


def entry(canaries: dict[str, str]) -> Entry:
    return Entry(seq=2, time=BEGAN, event=CanariesTried(canaries=canaries))


def sandbox_table(canaries: dict[str, str]) -> list[str]:
    begun = Entry(seq=1, time=BEGAN, event=STARTED)
    summary = job_summary(collect_report([begun, entry(canaries)], AGENT), AGENT)
    return [line for line in summary.partition("| Layer | State |")[2].splitlines()[2:] if line.startswith("|")]


def test_the_job_log_says_in_one_line_how_many_places_were_tried():
    assert ActionLog().render(entry(PROTECTED)) == ("[Isolation] self-test: 2 places tried, none reached",)
    assert ActionLog().render(entry(REACHED)) == ("[Isolation] self-test: 2 places tried, 1 reached: RUNNER_TEMP",)


def test_the_log_file_has_each_place_and_warns_of_a_reach():
    (line,) = log_entries(entry(PROTECTED))
    assert (line.level, line.data) == ("info", PROTECTED)
    (line,) = log_entries(entry(REACHED))
    assert (line.level, line.data) == ("warning", REACHED)


def test_the_summary_counts_what_is_out_of_reach_and_names_what_is_not():
    assert sandbox_table(PROTECTED)[-1] == "| canaries | 2 of 2 out of reach |"
    *_, count, row = sandbox_table(REACHED)
    assert count == "| canaries | 1 of 2 out of reach |"
    assert row.startswith(r"| RUNNER\_TEMP | reached by shell")


def test_the_report_has_each_place():
    assert report_json(collect_report([entry(PROTECTED)]))["canaries"] == PROTECTED
    assert collect_report(ENTRIES, AGENT).canaries == {}


def test_the_time_between_two_parts_of_a_run_is_not_counted_twice():
    shifted = replace(entry(PROTECTED), time=BEGAN + 1)
    assert collect_report([Entry(seq=1, time=BEGAN, event=STARTED), shifted]).seconds == 1
