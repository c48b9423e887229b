"""Log, job log, terminal and annotations: what they say, what readers may unfold, and that nothing is obeyed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from every_event import EVENTS, hostile_copy
from hostile import PIECES, TEXT, obeyed
from hypothesis import given, settings
from plausible_run import AGENT, BEGAN, ENTRIES, STARTED, entries_of

from stepflow.domain import event as events
from stepflow.domain.conversation import ModelTurn, ToolCall, Usage
from stepflow.domain.end import End
from stepflow.domain.run import Limits
from stepflow.domain.text import count, cut, usd
from stepflow.domain.words import Intent, Outcome, Stage, StepKind
from stepflow.errors import Problem, Severity
from stepflow.report.collect import ReportFacts, collect_report
from stepflow.report.diagnostic import annotation, problem_annotations
from stepflow.report.log import ActionLog, TerminalLog, folded_traceback
from stepflow.report.safe_text import Tone, clean, clean_line, first_line, last_lines, one_line, seconds_text
from stepflow.report.summary import outcome_annotation
from tests.golden import assert_golden

LIMITS = Limits(iterations=10, usd=5.0, deadline=BEGAN + 3000)


def action_log(entries, limits: Limits | None = LIMITS) -> list[str]:
    log = ActionLog(limits)
    return [line for entry in entries for line in log.render(entry)]


def test_a_run_that_goes_on_is_told_with_what_it_had_spent_and_in_the_step_where_it_stood() -> None:
    before = ENTRIES[: next(at for at, one in enumerate(ENTRIES) if isinstance(one.event, events.StepAnswered))]
    log = ActionLog(LIMITS)
    log.run_log.recall(entry.event for entry in before)
    resumed = events.RunResumed(events=len(before), from_seq=1, iteration=1, step_id="initial.issue")
    lines = list(log.render(events.Entry(seq=len(before) + 1, time=BEGAN, event=resumed)))
    words = f"resumed after {len(before)} events, at iteration 1"
    assert lines == [f"The run is {words}", "::group::Iteration 1 of 10 · initial.issue (goes on)"]
    spent = sum(entry.event.cost_usd or 0 for entry in before if isinstance(entry.event, ModelTurn))
    assert spent > 0
    assert usd(spent) in log.run_log.progress()


@pytest.mark.parametrize(
    ("minutes", "limit"), [(50, "50"), (2.5, "2.5"), (5, "5"), (0.5, "0.5"), (0.02, "0.02"), (-3, "0"), (360, "360")]
)
def test_before_its_first_event_a_run_has_all_of_its_minutes(minutes: float, limit: str) -> None:
    """As the last line of a terminal is drawn then; an event changes nothing of the limit."""
    log = TerminalLog(Limits(iterations=9, usd=5.0, deadline=BEGAN + 60 * minutes))
    assert log.now(BEGAN)[-1] == f"iteration 0 of 9 · $0.00 of $5.00 · 0 tokens · 0.0 of {limit} min"
    log.render(entries_of([(0, STARTED)])[0])
    assert log.now(BEGAN + 60)[-1].endswith(f" · 1.0 of {limit} min")
    assert log.run_log.progress().endswith(f" · 0.0 of {limit} min")


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "unknown"),
        (0.0, "$0.00"),
        (0.00001, "less than $0.0001"),
        (0.0123, "$0.0123"),
        (0.99999, "$1.00"),
        (1.236, "$1.24"),
        (12345.6, "$12,345.60"),
        (-0.5, "-$0.5000"),
    ],
)
def test_money_is_never_told_with_digits_that_say_nothing(amount: float | None, text: str) -> None:
    assert usd(amount) == text


def test_the_job_log_of_a_plausible_run_is_the_golden_one():
    assert_golden("report/job.log", "\n".join(action_log(ENTRIES)) + "\n")


def test_a_terminal_shows_the_same_without_groups():
    log = TerminalLog(LIMITS)
    shown = [line for entry in ENTRIES for line in log.render(entry)]
    assert_golden("report/terminal.txt", "\n".join(shown) + "\n")


def test_the_sandbox_is_one_line_whose_layers_a_terminal_shows_with_debug_only():
    held = {"uid": "1000", "network": "closed: no sockets", "git": "no lock"}
    (started,) = entries_of([(0, replace(STARTED, isolation=held))])
    sandbox = ("  sandbox: 3 layers, network closed",)
    assert TerminalLog().render(started)[1:] == sandbox
    aside = ("  uid: 1000", "  network: closed: no sockets", "  git: no lock")
    assert TerminalLog(debug=True).render(started)[1:] == (*sandbox, *aside)


def test_a_layer_that_does_not_hold_is_a_warning_for_everybody():
    (entry,) = entries_of([(0, events.Noted(level="warning", message="[Isolation] landlock: not available here"))])
    (line,) = TerminalLog().render(entry)
    assert (line, line.tone) == ("  [Isolation] landlock: not available here", Tone.WARNING)


def test_a_group_that_a_crash_left_open_can_be_closed():
    log = ActionLog()
    for entry in ENTRIES[:5]:
        log.render(entry)
    assert log.close() == ("::endgroup::",)
    assert log.close() == ()


def test_progress_is_told_against_every_limit():
    log = ActionLog(Limits(iterations=4, usd=1.0, tokens=9000, deadline=BEGAN + 600))
    for entry in ENTRIES[:8]:
        log.render(entry)
    assert log.run_log.progress(BEGAN + 120) == (
        "iteration 1 of 4 · $0.0246 of $1.00 · 8,700 of 9,000 tokens · 2.0 of 10 min"
    )


def test_a_step_without_an_id_or_kind_still_opens_and_closes():
    started = events.IterationStarted(iteration=1, step_id="\u200b", kind=None, model="")
    ended = events.RunFinished(outcome=Outcome.CANCELLED, stage=Stage.FLOW, reason="r", success=False)
    lines = action_log(entries_of([(0, started), (1, ended)]), None)
    assert lines[0] == "::group::Iteration 1 · (no id)"
    assert lines[-3:] == ["::endgroup::", "1 · (no id): no intent", "■ canceled (cancelled): r"]


@settings(max_examples=60)
@given(TEXT, TEXT, TEXT)
def test_an_annotation_is_one_command_whatever_its_text(message, file, title):
    line = annotation("error", message, file=file, line=3, title=title)
    assert line.startswith("::error ")
    assert obeyed(line) == ["error"]
    assert "##[" not in line
    properties = line[len("::error ") :].split("::")[0].split(",")
    assert {each.split("=")[0] for each in properties} <= {"file", "line", "title"}


def test_an_annotation_escapes_what_the_runner_unescapes():
    assert annotation("warning", "50% of\none", "100% of\ntwo", file="a:b,c.json", line=7, title="t") == (
        "::warning file=a%3Ab%2Cc.json,line=7,title=t::50%25 of one%0A100%25 of two"
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
    failed = replace(report, success=False, outcome=Outcome.LIMIT_REACHED, explanation="10 iterations")
    assert outcome_annotation(failed)[0].startswith("::error title=fixer%3A a limit was reached::10 iterations%0A")
    skipped = collect_report(
        (), facts=ReportFacts(end=End(outcome=Outcome.SKIPPED, stage=Stage.BEFORE, reason="no agent"))
    )
    assert outcome_annotation(skipped)[0].startswith("::notice title=stepflow%3A nothing to do::no agent%0A")


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


def test_small_words():
    assert (seconds_text(0.44), seconds_text(44.4), seconds_text(150)) == ("0.4 s", "44 s", "2.5 min")
    assert (count(1, "step"), count(2000, "step")) == ("1 step", "2,000 steps")
    assert (cut("abcd", 4), cut("abcde", 4)) == ("abcd", "abc…")
    assert (first_line("\n\n a\nb"), first_line(" \n"), one_line("a\n b")) == ("a …", "", "a b")
    assert last_lines("a\n\nb\nc", 2) == ("…", "b", "c")
    assert (clean_line("  ::x::"), clean_line("a ::x::"), clean_line("###[x]")) == ("│   ::x::", "a ::x::", "###\\[x]")


def hostile_entries(text: str) -> tuple[events.Entry, ...]:
    return entries_of([(0.0, hostile_copy(event, text)) for event in EVENTS.values()])


def job_log(entries: tuple[events.Entry, ...], *, debug: bool = False) -> str:
    log = ActionLog(debug=debug)
    return "\n".join(line for entry in entries for line in log.render(entry))


@settings(max_examples=60, deadline=None)
@given(TEXT)
def test_nothing_that_a_model_or_tool_says_is_obeyed(text: str) -> None:
    entries = hostile_entries(text)
    output = job_log(entries)
    commands = obeyed(output)
    assert len(commands) >= 4
    assert commands == ["group", "endgroup"] * (len(commands) // 2)
    assert "\x1b" not in output
    assert max(map(len, output.split("\n"))) < 900
    assert set(obeyed(job_log(entries, debug=True))) == {"group", "endgroup"}
    terminal = TerminalLog()
    assert obeyed("\n".join(line for entry in entries for line in terminal.render(entry))) == []


@pytest.mark.parametrize("piece", PIECES)
def test_what_is_not_obeyed_is_still_shown(piece: str) -> None:
    shown = job_log(hostile_entries(f"before {piece} after"))
    for word in ["before", "after", *clean(piece).strip().replace("##[", "##\\[").split()]:
        assert word in shown


LONG = "word " * 300


def shown(log: ActionLog | TerminalLog, *happened: events.Event) -> list[str]:
    return [
        line
        for number, event in enumerate(happened, 1)
        for line in log.render(events.Entry(seq=number, time=1.0, event=event))
    ]


def turned(*blocks: dict) -> ModelTurn:
    return ModelTurn(content=list(blocks), stop_reason="end_turn", usage=Usage(), cost_usd=0.0, model="m", seconds=0.1)


PROMPT = events.PromptRendered(
    system="You are careful.\nVery.", blocks=["Do it.", LONG], source="prompts/a.md", retry=False, tools=[]
)


def test_with_debug_every_word_of_prompt_and_answer_is_there():
    answer = turned({"type": "text", "text": '{"next_action": {"action": "next"}}'})
    said = events.UserMessage(text="Answer in JSON.\nOnly JSON.", format_retry=True, errors=["no JSON"])
    lines = shown(ActionLog(debug=True), PROMPT, answer, said)
    text = "".join(line.removeprefix("│ ") for line in lines)
    for words in ("You are careful.", "Very.", "Do it.", LONG.strip(), '"action": "next"', "Only JSON."):
        assert words in text


def test_what_a_command_printed_is_folded_under_its_message():
    lines = shown(
        ActionLog(),
        events.Noted(level="info", message="setup ended with exit code 0", data={"output": "one\n::error::two\n100 %"}),
        events.Noted(level="info", message="next"),
    )
    assert lines == [
        "::group::setup ended with exit code 0",
        "  one",
        "  │ ::error::two",
        "  100 %",
        "::endgroup::",
        "next",
    ]


def test_a_fold_in_a_step_ends_the_steps_group_since_groups_do_not_nest():
    begun = events.IterationStarted(iteration=1, step_id="initial.a", kind=StepKind.WORK, model="m")
    bug = events.Noted(level="error", message="internal error", data={"traceback": "Traceback\n  boom"})
    after = events.StepAnswered(step_id="initial.a", answer=None, intent=None, target=None, reason="r")
    assert obeyed("\n".join(shown(ActionLog(), begun, bug, after))) == ["group", "endgroup", "group", "endgroup"]


def test_a_traceback_before_any_run_is_folded_and_not_obeyed():
    lines = folded_traceback("Traceback (most recent call last):\n  ##[error]x\n::set-output name=a::b")
    assert lines[0] == "::group::internal error"
    assert lines[-1] == "::endgroup::"
    assert obeyed("\n".join(lines)) == ["group", "endgroup"]
    assert json.dumps(lines).count("set-output") == 1


STEP = events.IterationStarted(iteration=1, step_id="initial.issue", kind=StepKind.WORK, model="m")
CALL = {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "make\ntest"}}
TURN = ModelTurn(
    content=[{"type": "text", "text": "I look at it."}, CALL],
    stop_reason="tool_use",
    usage=Usage(),
    cost_usd=0.0,
    model="m",
    seconds=1,
)
BEGUN = events.ToolStarted(tool_use_id="t1", name="bash")
DONE = ToolCall(
    tool_use_id="t1", name="bash", input={"command": "x"}, output="", is_error=False, exit_code=0, seconds=1
)


def log_after(*happened: events.Event) -> TerminalLog:
    log = TerminalLog()
    for number, event in enumerate((STARTED, *happened)):
        log.render(events.Entry(seq=number + 1, time=BEGAN + number, event=event))
    return log


def doing(*happened: events.Event, later: float = 0.0) -> str:
    """What is going on, so many seconds after the last event."""
    (line, *_rest) = log_after(*happened).now(BEGAN + len(happened) + later)
    assert line.tone is Tone.STEP
    return line


def test_a_tool_at_work_is_shown_with_its_call_and_its_seconds() -> None:
    assert doing(STEP, TURN, BEGUN) == "initial.issue · bash make …"
    assert doing(STEP, TURN, BEGUN, later=7.9) == "initial.issue · 7 s · bash make …"
    assert doing(STEP, TURN, BEGUN, later=125) == "initial.issue · 2 min 5 s · bash make …"
    assert doing(STEP, TURN, BEGUN, DONE, later=3) == "initial.issue · 3 s · the model answers"


def test_a_wait_counts_down_and_ends_with_the_answer() -> None:
    wait = events.ModelWaited(reason="overloaded", seconds=20, attempt=2)
    assert doing(STEP, wait, later=5) == "initial.issue · 15 s left · waits for the model, try 2 of 5 failed"
    assert doing(STEP, wait, later=25) == "initial.issue · 0.0 s left · waits for the model, try 2 of 5 failed"
    assert doing(STEP, wait, TURN, BEGUN, later=2) == "initial.issue · 2 s · bash make …"


def test_what_stands_around_the_model_has_its_words_too() -> None:
    closing = events.StepAnswered(step_id="initial.issue", answer={}, intent=Intent.CLOSING, target=None, reason="")
    assert doing() == "prepares the run"
    assert doing(STEP) == "initial.issue · the model answers"
    assert doing(STEP, closing) == "initial.issue · validators run"
    judged = events.CompletionJudged(entry="issue", step_id="initial.issue", done=True, validated=True)
    assert doing(STEP, closing, judged) == "initial.issue · plans what to write to GitHub"


def test_the_last_words_come_below_once_the_log_has_gone_on() -> None:
    words = "│ I look at it."
    assert words not in log_after(STEP, TURN, BEGUN).now(BEGAN)
    assert words in log_after(STEP, TURN, BEGUN, DONE).now(BEGAN)


def test_who_looks_from_outside_reads_the_limits_in_the_options() -> None:
    options = {"limits": {"usd": 5.0, "tokens": 9000, "minutes": 50.0}}
    log = TerminalLog()
    log.render(events.Entry(seq=1, time=BEGAN, event=replace(STARTED, options=options)))
    assert log.run_log.progress(BEGAN + 60) == "iteration 0 of 10 · $0.00 of $5.00 · 0 of 9,000 tokens · 1.0 of 50 min"
