"""The report, drawn from entries: sums, ends, partial journals, and its published JSON form."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from jsonschema import Draft202012Validator
from plausible_run import AGENT, ENTRIES, STARTED, TIMED, entries_of

from stepflow.domain import event as events
from stepflow.domain.checkout import DiffStat, LineCounts
from stepflow.domain.connection import HostRequests, HostsRequested
from stepflow.domain.conversation import ModelTurn, ToolCall, Usage
from stepflow.domain.effect import ApprovalAsked, EffectKind, EffectStatus
from stepflow.domain.end import End
from stepflow.domain.reports.report import CheckResult, RunReport
from stepflow.domain.words import Intent, Outcome, Permission, Stage, StepKind
from stepflow.errors import Problem, Severity
from stepflow.report.collect import NO_END, WRITTEN, ReportFacts, collect_report
from stepflow.report.document import read_report, report_json, report_schema
from tests.golden import assert_golden


@pytest.mark.parametrize(("left", "validated"), [([], True), (["notes.txt"], False)])
def test_a_run_that_leaves_files_uncommitted_is_not_validated(left: list[str], validated: bool):
    collected = events.WorkCollected(head_commit="a" * 40, commits=1, uncommitted=left)
    ended = next(at for at, (_, event) in enumerate(TIMED) if isinstance(event, events.FlowEnded))
    timed = [*TIMED[: ended + 1], (0.1, collected), *TIMED[ended + 1 :]]
    assert collect_report(entries_of(timed), AGENT).validated is validated


def test_a_run_that_is_killed_after_its_work_was_collected_still_tells_how_its_flow_ended():
    ended = events.FlowEnded(
        outcome=Outcome.ABORTED, stage=Stage.FLOW, reason="no way to do it", step_id="s", answer=None, validated=False
    )
    timed = [*TIMED[:9], (0.1, ended), (0.1, events.WorkCollected(head_commit="a" * 40, commits=0))]
    report = collect_report(entries_of(timed), AGENT)
    assert (report.outcome, report.reason) == (Outcome.ABORTED, "Flow loop: no way to do it")


def test_a_plan_that_was_not_applied_stays_planned():
    cut = [entry for entry in ENTRIES if not isinstance(entry.event, events.EffectApplied | events.RunFinished)]
    report = collect_report(cut, AGENT)
    assert {effect.status for effect in report.effects} == {EffectStatus.PLANNED}
    assert (report.outcome, report.success) == (Outcome.CANCELLED, False)
    assert report.reason.startswith("Completion loop: the journal ends here")


@pytest.mark.parametrize("length", range(len(ENTRIES) + 1))
def test_every_prefix_of_a_journal_gives_a_report(length):
    report = collect_report(ENTRIES[:length], AGENT)
    assert report.success is (length == len(ENTRIES))
    assert report.iterations == len(report.history)
    assert report.agent == "fixer"
    assert Draft202012Validator(report_schema()).is_valid(report_json(report))


def test_what_became_known_of_a_layer_later_stands_beside_its_state():
    note = events.LayerReported(layer="landlock", state="after the run was resumed: ABI 4", is_warning=True)
    other = events.Noted(level="warning", message="[Isolation] uid: 0")
    happened = (replace(STARTED, isolation={"uid": "on", "landlock": "ABI 6"}), note, other)
    report = collect_report(entries_of([(0.0, event) for event in happened]), AGENT)
    assert report.isolation == {"uid": "on", "landlock": "ABI 6; after the run was resumed: ABI 4"}


def test_hosts_are_added_up_over_the_parts_of_a_run_and_take_no_end_back():
    first, second = HostRequests(host="a.example", allowed=1, refused=0), HostRequests(host="b", allowed=0, refused=2)
    timed = [*TIMED, (0.1, HostsRequested(hosts=[first, second]))]
    report = collect_report(entries_of(timed), AGENT)
    assert (report.hosts, report.outcome) == ((first, second), Outcome.COMPLETED)
    resumed = events.RunResumed(events=len(timed), from_seq=1, iteration=1, step_id="")
    more = HostsRequested(hosts=[HostRequests(host="a.example", allowed=1, refused=3)])
    whole = collect_report(entries_of([*timed, (0.1, resumed), (0.1, more)]), AGENT)
    assert whole.hosts == (replace(first, allowed=2, refused=3), second)


def test_no_journal_at_all_gives_a_report_from_the_facts():
    problem = Problem(
        severity=Severity.ERROR, code="SF341", file="r.json", path="/x", line=3, message="no rule", fix="add one"
    )
    note = replace(problem, severity=Severity.NOTE, code="SF111")
    facts = ReportFacts(
        run_id="r",
        agent="fixer",
        end=End(outcome=Outcome.INVALID_DEFINITION, stage=Stage.BEFORE, reason="1 problem"),
        problems=(note, problem),
        issue=9,
        base_commit="abc",
        isolation={"uid": "off"},
        run_folder="/a",
        host_run_folder="/b",
    )
    report = collect_report((), facts=facts)
    assert (report.outcome, report.code, report.agent) == (Outcome.INVALID_DEFINITION, "SF341", "fixer")
    assert (report.run_id, report.issue, report.base_commit) == ("r", 9, "abc")
    assert (report.run_folder, report.host_run_folder, report.isolation) == ("/a", "/b", {"uid": "off"})
    assert (report.seconds, report.history, report.dialect) == (0, (), "")
    assert report_json(report)["problems"][1]["line"] == 3


def test_the_code_comes_from_the_facts_the_outcome_or_the_reason():
    def code(outcome: Outcome, reason: str, given: str | None = None) -> str | None:
        ended = events.RunFinished(outcome=outcome, stage=Stage.FLOW, reason=reason, success=False)
        return collect_report(
            entries_of([(0, STARTED), (0, ended)]), facts=ReportFacts(end=replace(NO_END, code=given))
        ).code

    assert code(Outcome.ROUTING_FAILED, "r") == "FAILED_STEP_ROUTING"
    assert code(Outcome.SCHEMA_FAILED, "r") == "FAILED_SCHEMA_RESOLUTION"
    assert code(Outcome.INVALID_DEFINITION, "no code") is None
    assert code(Outcome.ABORTED, "SF505") is None
    assert code(Outcome.INVALID_DEFINITION, "r", "SF209") == "SF209"


def test_an_unpriced_turn_makes_the_cost_unknown():
    unpriced = ModelTurn(
        content=[], stop_reason="end_turn", usage=Usage(output_tokens=1), cost_usd=None, model="", seconds=1
    )
    report = collect_report(entries_of([*TIMED[:6], (1, unpriced), *TIMED[6:]]))
    assert report.cost_usd is None
    assert report.history[0].cost_usd is None
    assert report.history[1].cost_usd == pytest.approx(0.0369)
    assert report.history[0].model == "claude-opus-5-5"


def test_a_resumed_run_is_not_over_because_its_first_part_ended():
    stopped = [
        (
            1.0,
            events.FlowEnded(
                outcome=Outcome.CANCELLED, stage=Stage.FLOW, reason="x", step_id="s", answer=None, validated=False
            ),
        ),
        (0.0, events.RunFinished(outcome=Outcome.CANCELLED, stage=Stage.FLOW, reason="x", success=False)),
    ]
    resumed = (9000.0, events.RunResumed(events=8, from_seq=1, iteration=1, step_id="s"))
    call = ToolCall(tool_use_id="t", name="bash", input={}, output="", is_error=False, exit_code=0, seconds=2.0)
    timed = [*TIMED[:6], *stopped, resumed, (2.0, call)]
    first = collect_report(entries_of(timed[:8]))
    assert (first.outcome, first.reason) == (Outcome.CANCELLED, "Flow loop: x")
    report = collect_report(entries_of(timed))
    assert report.reason.startswith("Flow loop: the journal ends here")
    assert report.history[0].tool_calls == 3
    assert report.history[0].seconds == pytest.approx(first.history[0].seconds + 2.0)
    assert report.seconds == pytest.approx(first.seconds + 2.0)


#: What an end of a run says, and no longer holds when the run goes on.
END = (
    *(events.FlowEnded, events.WorkCollected, events.FailureReported, events.IssueCostSummed, events.RunFinished),
    *(events.EffectPlanned, events.EffectApplied, ApprovalAsked),
)
CHANGED = DiffStat(files=(LineCounts(path="old.py", added=1, removed=1),), count=1, added=1, removed=1)
#: A whole run whose end said everything that an end can say; at last it waited for an approval.
FULL = (
    *TIMED[:-1],
    (0.1, events.WorkCollected(head_commit="a" * 40, commits=1, uncommitted=["x"], changes=CHANGED)),
    (0.1, events.IssueCostSummed(usd=7.0, at_least=True, most_usd=9.0)),
    (0.1, events.FailureReported(detail="told", url="https://x/o/r", branch="b", commit="c" * 40)),
    (0.1, events.EffectPlanned(kind=EffectKind.ADD_LABELS, detail="add it", text="words")),
    (0.1, events.EffectApplied(kind=EffectKind.ADD_LABELS, status=EffectStatus.FAILED, detail="502")),
    (0.1, ApprovalAsked(step_id="s", by=Permission.WRITE, digest="d", iterations_left=1, usd_left=1, tokens_left=1)),
    (0.1, events.RunFinished(outcome=Outcome.AWAITING_APPROVAL, stage=Stage.FLOW, reason="waits", success=False)),
)


@pytest.mark.parametrize("length", range(1, len(FULL) + 1))
@pytest.mark.parametrize("ends", [False, True])
def test_a_run_that_goes_on_says_nothing_of_the_end_before_it(length: int, ends: bool):
    """Every field is what a reader says who has never seen the earlier end; its time and its writes count."""
    resumed = (60.0, events.RunResumed(events=length, from_seq=1, iteration=1, step_id="s"))
    stopped = (0.0, events.RunFinished(outcome=Outcome.CANCELLED, stage=Stage.FLOW, reason="SIGTERM", success=False))
    after = [resumed, *([stopped] if ends else [])]

    def without_end(event: events.Event) -> events.Event:
        is_written = isinstance(event, events.EffectApplied) and event.status in WRITTEN
        return event if is_written or not isinstance(event, END) else events.Noted(level="info", message="m")

    report = collect_report(entries_of([*FULL[:length], *after]), AGENT)
    never_ended = [(seconds, without_end(event)) for seconds, event in FULL[:length]]
    expected = collect_report(entries_of([*never_ended, *after]), AGENT)
    for each in fields(RunReport):
        came, wanted = getattr(report, each.name), getattr(expected, each.name)
        if each.name == "effects":
            # The plan said in which words.
            came, wanted = ([replace(one, detail="") for one in effects] for effects in (came, wanted))
        if each.name == "history":
            # An iteration's time ends with its flow.
            wanted = collect_report(entries_of(FULL[:length]), AGENT).history
        if each.name == "texts":
            came, wanted = came.keys(), came.keys() & {effect.kind for effect in report.effects}
        assert came == wanted, each.name
    assert report.outcome is Outcome.CANCELLED


def test_what_a_resumed_run_plans_anew_is_told_in_its_new_words():
    resumed = (60.0, events.RunResumed(events=9, from_seq=1, iteration=1, step_id="s"))
    again = (1.0, events.EffectPlanned(kind=EffectKind.ADD_LABELS, detail="add two"))
    report = collect_report(entries_of([*FULL, resumed, again]), AGENT)
    assert {each.kind: (each.status, each.detail) for each in report.effects}[EffectKind.ADD_LABELS] == (
        EffectStatus.PLANNED,
        "add two",
    )


def test_the_comment_of_a_failed_run_is_not_an_effect():
    reported = events.FailureReported(detail="updated", url="https://github.com/o/r/issues/7#c")
    report = collect_report(entries_of([*TIMED[:9], (0, reported)]))
    assert (report.failure_report, report.effects) == (reported.url, ())
    without_url = collect_report(entries_of([(0, replace(reported, url=""))]))
    assert without_url.failure_report == "updated"


def test_a_checks_outcome_is_in_its_iteration():
    judged = events.CheckJudged(step_id="s_a", result="ng", message="no tests")
    other = events.Noted(level="info", message="[Check] s_a: ok", data={"message": "not a check"})
    begun = events.IterationStarted(iteration=1, step_id="s_a", kind=StepKind.WORK, model="m")
    history = collect_report(entries_of([(0, judged), (0, begun), (1, judged), (1, other)])).history
    assert history[0].check_result == CheckResult(result="ng", message="no tests")


def test_a_jump_that_leads_nowhere_keeps_the_target_it_named():
    begun = events.IterationStarted(iteration=1, step_id="s", kind=StepKind.WORK, model="m")
    answered = events.StepAnswered(step_id="s", answer={}, intent=Intent.JUMP, target="nowhere", reason="r")
    assert collect_report(entries_of([(0, begun), (0, answered)])).history[0].target == "nowhere"


def test_report_json_is_as_published():
    document = report_json(collect_report(ENTRIES, AGENT, facts=ReportFacts(run_folder="/runs/7")))
    Draft202012Validator(report_schema()).validate(json.loads(json.dumps(document)))
    assert_golden("report/report.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def test_a_report_is_read_back_and_what_is_none_is_refused():
    report = collect_report(ENTRIES, AGENT)
    document = json.loads(json.dumps(report_json(report)))
    assert report_json(read_report(document)) == report_json(report)
    incomplete = {name: value for name, value in document.items() if name != "approval"}
    for wrong in ([], "report", None, {}, {**document, "schema": 2}, {**document, "more": 1}, incomplete):
        with pytest.raises(ValueError, match=r"."):
            read_report(wrong)


def test_the_published_report_schema_is_the_models():
    assert_golden("report/report.schema.json", json.dumps(report_schema(), indent=1, ensure_ascii=False) + "\n")
