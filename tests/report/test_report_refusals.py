"""What people read when a model's safeguards refuse, by category, with and without a model that takes over."""

from __future__ import annotations

from dataclasses import replace

from stepflow.domain.agent.agent_settings import Rung
from stepflow.domain.conversation import ModelTurn, Refusal, StopReason
from stepflow.domain.event import Entry
from stepflow.domain.words import Outcome
from stepflow.report.collect import ReportFacts, collect_report
from stepflow.report.log import event_lines
from stepflow.report.summary import comment_summary, final_words
from tests.build import issue_agent
from tests.engine.played import HAPPY, play
from tests.fakes import TURN_USAGE
from tests.golden import assert_golden

CYBER = Refusal(category="cyber", explanation="The request seems to ask for a working exploit.")
#: Categories of the Messages API, one that nobody knows yet, and none.
ENDED = {
    "cyber, with an explanation": CYBER,
    "bio, without one": Refusal(category="bio"),
    "a category of tomorrow": Refusal(category="frontier_llm", explanation="It touches\nseveral policies."),
    "no category": Refusal(),
}


def refused(refusal: Refusal, model: str = "claude-opus-5-5") -> ModelTurn:
    return ModelTurn(
        content=(), stop_reason=StopReason.REFUSAL, usage=TURN_USAGE, cost_usd=0.01, model=model, refusal=refusal
    )


def describe(name: str, replies: list[ModelTurn], **changes: object) -> tuple[Outcome, str]:
    """How a run ends, and all that is said of it."""
    result, ports = play(replace(issue_agent(), **changes), replies)
    entries = [Entry(seq=number, time=0.0, event=event) for number, event in enumerate(ports.journal.events, 1)]
    report = collect_report(entries, facts=ReportFacts(end=result))
    log = [line for entry in entries if entry.event.event == "model_changed" for line in event_lines(entry.event)]
    parts = ("## Reason", result.reason, "## Log", *log, "## Comment", comment_summary(report), "## Terminal")
    return result.outcome, "\n".join((f"# {name}", *parts, *final_words(report), ""))


def test_what_is_said_of_a_refusal_is_the_golden_text() -> None:
    told = []
    for name, refusal in ENDED.items():
        outcome, text = describe(name, [refused(refusal)])
        assert outcome is Outcome.MODEL_REFUSED
        told.append(text)
    fallback = Rung(model="claude-opus-4-6", fallback=True)
    happy = [replace(turn, model=fallback.model) for turn in HAPPY]
    outcome, text = describe("the fallback model takes over", [refused(CYBER), *happy], fallback=fallback)
    assert outcome is Outcome.COMPLETED
    told.append(text)
    outcome, text = describe(
        "the fallback model refuses too", [refused(CYBER), refused(CYBER, fallback.model)], fallback=fallback
    )
    assert outcome is Outcome.MODEL_REFUSED
    assert_golden("report/refusals.md", "\n".join((*told, text)))
