"""Log, job log, terminal and annotations: what they say, and that nothing in them is obeyed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hostile import PIECES, TEXT, obeyed
from hypothesis import given, settings
from hypothesis import strategies as st
from plausible_run import AGENT, BEGAN, ENTRIES, STARTED, entries_of

from stepflow.domain.conversation import Usage
from stepflow.domain.effect import EffectKind, EffectStatus
from stepflow.domain.event import (
    AnswerLost,
    CheckJudged,
    CompletionJudged,
    ContextCompacted,
    ContextOverflowed,
    EffectApplied,
    EffectPlanned,
    Entry,
    FailureReported,
    FlowEnded,
    IssueCostSummed,
    IterationStarted,
    LayerReported,
    ModelTurned,
    ModelWaited,
    Noted,
    PromptRendered,
    Routed,
    RunFinished,
    RunResumed,
    RunStarted,
    SchemaFailed,
    SnapshotFailed,
    StepAnswered,
    StrategyChosen,
    ToolCalled,
    UserMessage,
    ValidatorRan,
    WorkCollected,
)
from stepflow.domain.figures import count, usd
from stepflow.domain.problem import Problem, Severity
from stepflow.domain.run import Limits
from stepflow.domain.words import FailureAction, Intent, Outcome, StepKind, Strategy
from stepflow.report.annotations import annotation, outcome_annotation, problem_annotations
from stepflow.report.collect import ReportFacts, collect_report
from stepflow.report.lines import LineKind
from stepflow.report.log import LogEntry, log_entries, log_line
from stepflow.report.plain import clean, cut, defuse, first_line, last_lines, one_line, seconds_text
from stepflow.report.watch import ActionLog, TerminalLog

GOLDEN = Path(__file__).parent / "golden"
LIMITS = Limits(iterations=10, usd=5.0, deadline=BEGAN + 3000)


def action_log(entries, limits: Limits | None = LIMITS) -> list[str]:
    log = ActionLog(limits)
    return [line for entry in entries for line in log.render(entry)]


def lines_of(event, limits: Limits | None = None) -> list[str]:
    return list(TerminalLog(limits).render(Entry(seq=1, time=BEGAN, event=event)))


def logged(event) -> list[tuple[str, str]]:
    return [(entry.level, entry.message) for entry in log_entries(Entry(seq=1, time=BEGAN, event=event))]


def test_a_run_that_goes_on_is_told_with_what_it_had_spent_and_in_the_step_where_it_stood() -> None:
    before = ENTRIES[: next(at for at, one in enumerate(ENTRIES) if isinstance(one.event, StepAnswered))]
    log = ActionLog(LIMITS)
    log.run_log.recall(entry.event for entry in before)
    resumed = RunResumed(events=len(before), from_seq=1, iteration=1, step_id="initial.issue")
    lines = list(log.render(Entry(seq=len(before) + 1, time=BEGAN, event=resumed)))
    words = f"resumed after {len(before)} events, at iteration 1"
    assert lines == [f"The run is {words}", "::group::Iteration 1 of 10 · initial.issue (goes on)"]
    spent = sum(entry.event.cost_usd or 0 for entry in before if isinstance(entry.event, ModelTurned))
    assert spent > 0
    assert usd(spent) in log.run_log.progress()
    assert [line.message for line in log_entries(Entry(seq=1, time=0.0, event=resumed))] == [f"[Run] {words}"]


def test_the_job_log_of_a_plausible_run_is_the_golden_one():
    assert "\n".join(action_log(ENTRIES)) + "\n" == (GOLDEN / "job.log").read_text()


def test_a_terminal_shows_the_same_without_groups():
    log = TerminalLog(LIMITS)
    shown = [line for entry in ENTRIES for line in log.render(entry)]
    assert "\n".join(shown) + "\n" == (GOLDEN / "terminal.txt").read_text()


def test_the_text_log_of_a_plausible_run_is_the_golden_one():
    lines = [log_line(entry, "text") for line in ENTRIES for entry in log_entries(line)]
    assert "\n".join(lines) + "\n" == (GOLDEN / "log.txt").read_text()


def test_the_sandbox_and_each_step_attempt_are_one_group_and_all_groups_close():
    commands = obeyed("\n".join(action_log(ENTRIES)))
    assert commands == ["group", "endgroup"] * 6


def test_the_sandbox_is_one_line_whose_layers_a_terminal_shows_with_debug_only():
    held = {"uid": "1000", "network": "closed: no sockets", "credentials": "none found"}
    (started,) = entries_of([(0, replace(STARTED, isolation=held))])
    sandbox = ("  sandbox: 3 layers, network closed, credentials none found",)
    assert TerminalLog().render(started)[1:] == sandbox
    aside = ("  uid: 1000", "  network: closed: no sockets", "  credentials: none found")
    assert TerminalLog(debug=True).render(started)[1:] == (*sandbox, *aside)


def test_a_layer_that_does_not_hold_is_a_warning_for_everybody():
    (entry,) = entries_of([(0, Noted(level="warning", message="[Isolation] landlock: not to be had here"))])
    assert TerminalLog(style=lambda kind, text: f"{kind}:{text}").render(entry) == (
        "warning:  [Isolation] landlock: not to be had here",
    )


def test_what_an_event_tells_is_not_told_again_by_its_entry_of_the_log():
    correction = UserMessage(text="Your answer does not fit", format_retry=True, errors=["no JSON object"])
    again = Noted(level="warning", message='[Format] retry 1/2 on step "initial.issue"')
    planned = Noted(level="info", message="[Boundary] planned 4 effects")
    log = TerminalLog()
    lines = [line for entry in entries_of([(0, again), (0, correction), (0, planned)]) for line in log.render(entry)]
    assert lines == ["  format retry: no JSON object"]


def test_a_group_that_a_crash_left_open_can_be_closed():
    log = ActionLog()
    for entry in ENTRIES[:5]:
        log.render(entry)
    assert log.close() == ("::endgroup::",)
    assert log.close() == ()


def test_the_terminals_style_gets_kind_and_text():
    log = TerminalLog(style=lambda kind, text: f"<{kind}>{text}")
    lines = [line for entry in ENTRIES for line in log.render(entry)]
    assert lines[2] == "<step>Iteration 1 of 10 · initial.issue (work)"
    assert any(line.startswith(f"<{LineKind.BAD}>  ✗ git-clean") for line in lines)


def test_progress_is_told_against_every_limit():
    log = ActionLog(Limits(iterations=4, usd=1.0, tokens=9000, deadline=BEGAN + 600))
    for entry in ENTRIES[:8]:
        log.render(entry)
    assert log.run_log.progress(BEGAN + 120) == (
        "iteration 1 of 4 · $0.0246 of $1.00 · 8,700 of 9,000 tokens · 2.0 of 10 min"
    )


def test_progress_without_limits_tells_what_there_is():
    log = TerminalLog()
    assert log.run_log.progress() == "iteration 0 · $0.00 · 0 tokens · 0.0 min"
    turn = ModelTurned(content=[], stop_reason="end_turn", usage=Usage(), cost_usd=None, model="m", seconds=1)
    log.render(Entry(seq=1, time=BEGAN, event=turn))
    assert "$0.00 and unpriced turns" in log.run_log.progress()


USAGE = Usage(input_tokens=1)


def _turn(text: str, stop: str) -> ModelTurned:
    content = [{"type": "text", "text": text}, {"type": "tool_use", "id": "t", "name": "bash", "input": {}}]
    return ModelTurned(content=content, stop_reason=stop, usage=USAGE, cost_usd=0.0, model="m", seconds=1)


def _tool(**given) -> ToolCalled:
    usual = {
        "tool_use_id": "t",
        "name": "bash",
        "input": {"command": "ls"},
        "output": "out",
        "is_error": False,
        "exit_code": 0,
        "seconds": 0.5,
    }
    return ToolCalled(**{**usual, **given})


def _validator(**given) -> ValidatorRan:
    usual = {
        "iteration": 1,
        "entry": "e",
        "name": "git-clean",
        "passed": False,
        "exit_code": 1,
        "pattern": "p",
        "attempt": 1,
        "max_attempts": 3,
        "action": FailureAction.RETRY,
        "recoverable": True,
        "seconds": 0.5,
        "output_tail": "",
    }
    return ValidatorRan(**{**usual, **given})


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (replace(STARTED, repository="", issue=None, isolation={}), "Agent fixer, run 20260715-101500-7"),
        (replace(STARTED, isolation={}), "Agent fixer on octo/parser#7, run 20260715-101500-7"),
        (PromptRendered(system="", blocks=[], source="f.md", retry=False, tools=[]), "  prompt: f.md; tools: none"),
        (SchemaFailed(step_id="s", strikes=1, reason="no file"), "  ✗ answer schema: no file (1 of 2)"),
        (
            ModelWaited(reason="529", seconds=2.5, attempt=1),
            "  waiting 2.5 s for the model (try 1 of 5 failed): 529",
        ),
        (
            ModelWaited(reason="529", seconds=10, attempt=2, tries=5, deadline_in=1500),
            "  waiting 10 s for the model (try 2 of 5 failed, 25.0 min left before the deadline): 529",
        ),
        (
            AnswerLost(reason="reset", usage=Usage(input_tokens=1200, output_tokens=1), cost_usd=0.1),
            "  an answer broke off; the 1,201 tokens that it used until then count as spent",
        ),
        (
            ContextCompacted(reason="400", by_fault=True, results=12, characters=34_567, left=9_000),
            "  the conversation was too long for the model: removed 12 old tool results (34,567 characters) from it",
        ),
        (
            ContextOverflowed(step_id="s", reason="400", by_fault=True),
            "  the conversation stays too long for the model, the step begins again: 400",
        ),
        (
            StrategyChosen(model="m", strategy=Strategy.TOOL, reason="prose came", by_fault=False),
            "  m is asked for structured output as the input of a tool from here on: prose came "
            "(input structured-output: tool begins with it)",
        ),
        (_turn("First I look.\nThen more.", "tool_use"), "  │ First I look. …"),
        (_turn("cut", "max_tokens"), "  the model stopped: max_tokens"),
        (_tool(), "  ✓ bash ls (exit 0, 0.5 s)"),
        (_tool(exit_code=2, seconds=75), "  ✗ bash ls (exit 2, 75 s)"),
        (_tool(denied=True, name="write"), "  ✗ write ls (denied: the step may not use it, 0.5 s)"),
        (
            _tool(name="read", input={"file_path": "a"}, exit_code=None, is_error=True, output="no such file"),
            "  ✗ read a (no such file, 0.5 s)",
        ),
        (
            _tool(name="odd", input={"n": 1}, exit_code=None, is_error=True, output=""),
            '  ✗ odd {"n":1} (error, 0.5 s)',
        ),
        (_tool(name="grep", input={}, exit_code=None), "  ✓ grep (0.5 s)"),
        (UserMessage(text="Is it green?\nSay.", format_retry=False), "  asked: Is it green? …"),
        (UserMessage(text="t", format_retry=True, errors=["a", "b"]), "  format retry: a; b"),
        (StepAnswered(step_id="s", answer=None, intent=None, target=None, reason="prose"), "  ✗ no intent: prose"),
        (
            StepAnswered(step_id="s", answer={}, intent=Intent.JUMP, target="t", reason=""),
            "  intent jump to t",
        ),
        (CheckJudged(step_id="s", result="ok", message=""), "  ✓ check ok"),
        (CheckJudged(step_id="s", result="ng", message="It names\nno cause."), "  ✗ check ng: It names no cause."),
        (Routed(source="a", to="b", transition="next", reason="r"), "  → b"),
        (_validator(passed=True, exit_code=0, action=None), "  ✓ git-clean (exit 0, 0.5 s)"),
        (_validator(), "  ✗ git-clean failed, attempt 1 of 3 → retry (exit 1, 0.5 s)"),
        (_validator(recoverable=False, action=None), "  ✗ git-clean failed for good (exit 1, 0.5 s)"),
        (CompletionJudged(entry="e", done=True, validated=True, step_id="s"), "  ✓ done"),
        (
            CompletionJudged(entry="e", done=True, validated=False, step_id="s"),
            "  ✓ done, with a red validator that may be skipped",
        ),
        (
            CompletionJudged(entry="e", done=False, validated=False, step_id="s"),
            "  ✗ not done, and no attempt is left",
        ),
        (
            FlowEnded(outcome=Outcome.ABORTED, reason="r", step_id="s", answer=None, validated=False),
            "The flow ended: aborted.",
        ),
        (WorkCollected(head_commit="c", commits=2), "  commits of this run: 2"),
        (EffectPlanned(kind=EffectKind.CLOSE_ISSUE, detail="issue 7"), "  planned: close_issue issue 7"),
        (
            EffectApplied(kind=EffectKind.PUSH_BRANCH, status=EffectStatus.FAILED, detail="403"),
            "  ✗ push_branch failed: 403",
        ),
        (EffectApplied(kind=EffectKind.PUSH_BRANCH, status=EffectStatus.SKIPPED), "  push_branch skipped"),
        (FailureReported(detail="It could not be told.", url=""), "  It could not be told."),
        (SnapshotFailed(reason="the disk is full"), "  [Snapshot] the disk is full"),
        (LayerReported(layer="uid", state="off", is_warning=False), "  [Isolation] uid: off"),
        (
            IssueCostSummed(usd=0.5, at_least=True, budget_usd=2),
            "  [Budget] all runs on this issue: at least $0.5000 of $2.00",
        ),
        (FailureReported(detail="", url="https://x.y/1"), "  the issue's comment tells what happened: https://x.y/1"),
        (Noted(level="error", message="bad"), "  bad"),
        (RunFinished(outcome=Outcome.ABORTED, reason="r", success=False), "  ✗ aborted: r"),
    ],
)
def test_each_event_is_told_in_one_line(event, line):
    assert lines_of(event)[-1] == line


@pytest.mark.parametrize(
    "event",
    [
        Noted(level="debug", message="not for people"),
        Routed(source="a", to=None, transition="closing", reason=""),
        _turn(" \n", "tool_use"),
        _turn("", "end_turn"),
    ],
)
def test_some_events_are_not_told(event):
    assert lines_of(event) == []


def test_long_last_words_are_capped_at_their_end():
    text = "\n".join(f"word {number}" for number in range(100)) + "x" * 1000
    lines = lines_of(_turn(text, "end_turn"))
    assert lines[0] == "  │ …"
    assert len(lines) == 9
    assert all(len(line) < 220 for line in lines)


def test_a_step_without_an_id_or_kind_still_opens_and_closes():
    started = IterationStarted(iteration=1, step_id="\u200b", kind=None, model="")
    ended = RunFinished(outcome=Outcome.CANCELLED, reason="r", success=False)
    lines = action_log(entries_of([(0, started), (1, ended)]), None)
    assert lines[0] == "::group::Iteration 1 · (no id)"
    assert lines[-3:] == ["::endgroup::", "1 · (no id): no intent", "✗ cancelled: r"]


@pytest.mark.parametrize(
    ("event", "entries"),
    [
        (replace(STARTED), [("info", "Starting agent: fixer")]),
        (
            IterationStarted(iteration=3, step_id="s", kind=StepKind.WORK, model="m"),
            [("info", "=== Iteration 3 ===")],
        ),
        (
            SchemaFailed(step_id="s", strikes=2, reason="r"),
            [("warning", '[SchemaResolution] failure 2/2 on step "s"')],
        ),
        (ModelWaited(reason="r", seconds=5.0, attempt=1), [("warning", "[Model] waiting 5s")]),
        (SnapshotFailed(reason="full"), [("warning", "[Snapshot] full")]),
        (CheckJudged(step_id="s", result="ng", message="m"), [("info", "[Check] s: ng")]),
        (LayerReported(layer="uid", state="off", is_warning=False), [("info", "[Isolation] uid: off")]),
        (
            IssueCostSummed(usd=2, at_least=False, budget_usd=2),
            [
                (
                    "warning",
                    "[Budget] all runs on this issue: $2.00 of $2.00. No other run may begin on it: "
                    "raise budget-usd-per-issue if the issue is worth it",
                )
            ],
        ),
        (
            AnswerLost(reason="r", usage=Usage(input_tokens=5), cost_usd=None),
            [("warning", "[Model] an answer broke off")],
        ),
        (
            ContextCompacted(reason="400", by_fault=True, results=1, characters=9, left=9),
            [("warning", "[Model] too long: removed 1 old tool result")],
        ),
        (
            ContextOverflowed(step_id="s", reason="400", by_fault=True),
            [("warning", '[Model] too long: step "s" begins again')],
        ),
        (
            StrategyChosen(model="m", strategy=Strategy.PROMPT, reason="r", by_fault=True),
            [("warning", '[Model] structured output of "m": prompt from here on')],
        ),
        (_tool(denied=True), [("warning", '[Tools] denied "bash"')]),
        (_tool(), []),
        (
            StepAnswered(step_id="s", answer={}, intent=Intent.NEXT, target=None, reason="r"),
            [("info", "[StepFlow] Interpreted intent: next")],
        ),
        (StepAnswered(step_id="s", answer={}, intent=None, target=None, reason="r"), []),
        (
            Routed(source="a", to="b", transition="next", reason="r"),
            [("info", "[StepFlow] Routing decision: a -> b")],
        ),
        (
            Routed(source="a", to="b", transition="next", reason="r", by_prefix=True),
            [
                ("info", "[StepFlow] Prefix substitution: a -> b"),
                ("info", "[StepFlow] Routing decision: a -> b"),
            ],
        ),
        (Routed(source="a", to=None, transition="closing", reason="r"), []),
        (_validator(passed=True, action=None), [("info", "[Validator] git-clean: passed")]),
        (_validator(attempt=2), [("warning", "[Validator] git-clean: failed (attempt 2/3)")]),
        (_validator(action=FailureAction.SKIP), [("warning", "[Validator] git-clean: skipped")]),
        (
            _validator(action=FailureAction.ABORT, recoverable=False),
            [("warning", "[Validator] git-clean: unrecoverable")],
        ),
        (Noted(level="error", message="[Boundary] failed"), [("error", "[Boundary] failed")]),
        (
            RunFinished(outcome=Outcome.ABORTED, reason="r", success=False),
            [("info", "Agent completed: aborted")],
        ),
        (EffectPlanned(kind=EffectKind.CLOSE_ISSUE, detail=""), []),
    ],
)
def test_the_log_has_the_message_that_belongs_to_the_event(event, entries):
    assert logged(event) == entries


def test_a_log_line_is_json_with_time_level_message_and_data():
    line = log_line(LogEntry(time=BEGAN + 0.5, level="info", message="é ##[x]\n", data={"a": [1]}))
    assert json.loads(line) == {
        "time": "2026-07-15T10:15:00.500Z",
        "level": "info",
        "message": "é ##[x]\n",
        "data": {"a": [1]},
    }
    assert obeyed(line) == []


def test_a_text_log_line_stays_one_line():
    assert log_line(LogEntry(time=BEGAN, level="warning", message="a\r\n::error::b"), "text") == (
        "2026-07-15T10:15:00.000Z warning a\\n::error::b"
    )


def hostile_entries(text: str) -> tuple[Entry, ...]:
    return entries_of(
        [
            (0, replace(STARTED, agent=text, run_id=text, repository=text, isolation={text: text})),
            (0, IterationStarted(iteration=1, step_id=text, kind=None, model=text)),
            (0, PromptRendered(system=text, blocks=[text], source=text, retry=True, tools=[text])),
            (0, SchemaFailed(step_id=text, strikes=1, reason=text)),
            (0, ModelWaited(reason=text, seconds=1, attempt=1)),
            (0, AnswerLost(reason=text, usage=Usage(input_tokens=5), cost_usd=None)),
            (0, ContextCompacted(reason=text, by_fault=True, results=1, characters=1, left=1)),
            (0, ContextOverflowed(step_id=text, reason=text, by_fault=True, retry_prompt=text, retry_source=text)),
            (0, _turn(text, "tool_use")),
            (0, _turn(text, text)),
            (0, _tool(name=text, input={"command": text}, output=text)),
            (0, _tool(name=text, input={text: text}, output=text, exit_code=None, is_error=True)),
            (0, _tool(name=text, denied=True)),
            (0, UserMessage(text=text, format_retry=False)),
            (0, UserMessage(text=text, format_retry=True, errors=[text])),
            (0, StepAnswered(step_id=text, answer={}, intent=Intent.JUMP, target=text, reason=text)),
            (0, Routed(source=text, to=text, transition=text, reason=text, by_prefix=True)),
            (0, _validator(name=text, pattern=text, output_tail=text)),
            (0, CompletionJudged(entry=text, done=False, validated=False, step_id=text, retry_prompt=text)),
            (0, EffectPlanned(kind=EffectKind.POST_COMMENT, detail=text)),
            (0, EffectApplied(kind=EffectKind.POST_COMMENT, status=EffectStatus.APPLIED, detail=text, url=text)),
            (0, FailureReported(detail=text, url=text)),
            (0, Noted(level="info", message=text, data={text: text})),
            (0, FlowEnded(outcome=Outcome.ABORTED, reason=text, step_id=text, answer=None, validated=False)),
            (0, RunFinished(outcome=Outcome.ABORTED, reason=text, success=False)),
        ]
    )


@settings(max_examples=150, deadline=None)
@given(TEXT)
def test_nothing_that_a_model_or_tool_says_is_obeyed(text):
    entries = hostile_entries(text)
    output = "\n".join(action_log(entries))
    assert obeyed(output) == ["group", "endgroup"] * 2
    assert "\x1b" not in output
    assert max(map(len, output.split("\n"))) < 900
    terminal = TerminalLog()
    assert obeyed("\n".join(line for entry in entries for line in terminal.render(entry))) == []
    for style in ("text", "jsonl"):
        lines = [log_line(line, style) for entry in entries for line in log_entries(entry)]
        assert obeyed("\n".join(lines)) == []
        assert all(len(line.splitlines()) == 1 for line in lines)


@pytest.mark.parametrize("piece", PIECES)
def test_what_is_not_obeyed_is_still_shown(piece):
    visible = clean(piece).strip()
    shown = "\n".join(action_log(hostile_entries(f"before {piece} after")))
    for word in ["before", "after", *visible.replace("##[", "##\\[").split()]:
        assert word in shown


@settings(max_examples=150)
@given(TEXT, TEXT, TEXT)
def test_an_annotation_is_one_command_whatever_its_text(message, file, title):
    line = annotation("error", message, file=file, line=3, title=title)
    assert line.startswith("::error ")
    assert obeyed(line) == ["error"]
    assert "##[" not in line
    properties = line[len("::error ") :].split("::")[0].split(",")
    assert {each.split("=")[0] for each in properties} <= {"file", "line", "title"}


def test_an_annotation_escapes_what_the_runner_unescapes():
    assert annotation("warning", "50% of\nit", file="a:b,c.json", line=7, title="t") == (
        "::warning file=a%3Ab%2Cc.json,line=7,title=t::50%25 of%0Ait"
    )
    assert annotation("notice", "m") == "::notice::m"


def test_problems_become_annotations_and_notes_do_not():
    error = Problem(
        severity=Severity.ERROR,
        code="SF341",
        file=".agent/x/steps_registry.json",
        path="/steps/a",
        line=12,
        message="no rule for next",
        fix="add one",
    )
    warning = replace(error, severity=Severity.WARNING, line=None, path="")
    note = replace(error, severity=Severity.NOTE)
    assert problem_annotations([error, warning, note]) == (
        "::error file=.agent/x/steps_registry.json,line=12,title=SF341 /steps/a::no rule for next. Fix: add one",
        "::warning file=.agent/x/steps_registry.json,title=SF341::no rule for next. Fix: add one",
    )


def test_only_a_run_that_did_not_succeed_is_annotated():
    report = collect_report(ENTRIES, AGENT)
    assert outcome_annotation(report) == ()
    failed = replace(report, success=False, outcome=Outcome.LIMIT_REACHED, reason="Flow loop: 10 iterations")
    assert outcome_annotation(failed)[0].startswith("::error title=fixer%3A limit_reached::Flow loop: 10 iterations%0A")
    skipped = collect_report((), facts=ReportFacts(outcome=Outcome.SKIPPED, reason="Before the run: no agent"))
    assert outcome_annotation(skipped)[0].startswith("::notice title=stepflow%3A skipped::Before the run")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[1;31mb\x1b[0m", "ab"),
        ("\x1b]0;title\x07a", "a"),
        ("\x1b]8;;http://x\x1b\\a", "a"),
        ("a\x9b31mb\x1bcd\x1b", "abd"),
        ("a\u200bb\ufeffc\u202ed\ufe0f", "abcd"),
        ("a\r\nb\rc\u2028d", "a\nb\nc\nd"),
        ("a\tb", "a    b"),
        ("\U000e0041x\U000e0100\u3164", "x"),
    ],
)
def test_clean_text_is_what_can_be_seen(text, shown):
    assert clean(text) == shown


@given(st.text())
def test_cleaning_twice_changes_nothing(text):
    assert clean(clean(text)) == clean(text)


def test_small_words():
    assert (usd(0), usd(None), usd(0.01234), usd(12.345)) == ("$0.00", "unknown", "$0.0123", "$12.35")
    assert (seconds_text(0.44), seconds_text(44.4), seconds_text(150)) == ("0.4 s", "44 s", "2.5 min")
    assert (count(1, "step"), count(2000, "step")) == ("1 step", "2,000 steps")
    assert (cut("abcd", 4), cut("abcde", 4)) == ("abcd", "abc…")
    assert (first_line("\n\n a\nb"), first_line(" \n"), one_line("a\n b")) == ("a …", "", "a b")
    assert last_lines("a\n\nb\nc", 2) == ("…", "b", "c")
    assert (defuse("  ::x::"), defuse("a ::x::"), defuse("###[x]")) == ("│   ::x::", "a ::x::", "###\\[x]")


def test_a_run_may_start_twice_in_one_story():
    assert isinstance(STARTED, RunStarted)
    lines = action_log(entries_of([(0, STARTED), (0, STARTED)]))
    assert lines[:5] == lines[5:]


def test_what_was_not_committed_is_named():
    lines = lines_of(WorkCollected(head_commit="c", commits=0, uncommitted=["a.py", "b.py"]))
    assert lines == ["  commits of this run: 0", "  not committed, so it stays here: a.py, b.py"]


def test_a_structured_answer_is_not_told_word_by_word():
    assert lines_of(_turn('{"next_action": {"action": "next"}}', "end_turn")) == []


def test_a_retry_prompt_is_shown_in_its_first_lines():
    judged = CompletionJudged(
        entry="closure.issue",
        done=False,
        validated=False,
        step_id="continuation.issue",
        retry_prompt="# Not clean\n\n" + "\n".join(f"- file{number}.py" for number in range(40)),
        retry_source="f_failed.md",
    )
    lines = lines_of(judged)
    assert lines[:3] == [
        "  not done: back to continuation.issue with this retry prompt",
        "  │ # Not clean",
        "  │ - file0.py",
    ]
    assert lines[-1] == "  │ …"
    assert len(lines) == 14
