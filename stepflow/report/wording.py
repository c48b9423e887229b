"""The words for facts about a run that several reports share."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from stepflow.domain.checkout import named
from stepflow.domain.event import (
    AnswerLost,
    CanariesTried,
    ContextCompacted,
    ContextOverflowed,
    IssueCostSummed,
    LayerReported,
    ModelWaited,
    SnapshotFailed,
    StrategyChosen,
    TextRemoved,
)
from stepflow.domain.figures import Spent, count, usd
from stepflow.domain.visible_text import count_kinds
from stepflow.domain.words import CanaryState, Outcome, Strategy
from stepflow.report.plain import one_line, seconds_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.domain.event import RunResumed, ValidatorRan

#: Of a fact so many characters are shown.
FACT_SHOWN = 400
#: Where a reason arose (flow.md §11); people need not read it when all went well.
PLACES = ("Before the run: ", "Flow loop: ", "Completion loop: ")
_OVER = "No other run may begin on it: raise budget-usd-per-issue if the issue is worth it"


def reached_places(canaries: Mapping[str, str]) -> tuple[str, ...]:
    """Where a tool got that it should not."""
    return tuple(place for place, state in canaries.items() if state.startswith(CanaryState.REACHED))


def places_tried(canaries: Mapping[str, str]) -> int:
    """How many places there were to try on this machine."""
    return sum(state != CanaryState.NOT_HERE for state in canaries.values())


def describe_canaries(canaries: Mapping[str, str]) -> str:
    """Such as `14 places tried, none reached`."""
    reached = reached_places(canaries)
    what = f"{len(reached)} reached: {', '.join(reached)}" if reached else "none reached"
    return f"{count(places_tried(canaries), 'place')} tried, {what}"


def count_canaries(canaries: Mapping[str, str]) -> str:
    """Such as `14 of 14 out of reach`."""
    tried = places_tried(canaries)
    return f"{tried - len(reached_places(canaries))} of {tried} out of reach"


#: Events that all reports word alike.
Fact = (
    ModelWaited
    | AnswerLost
    | ContextCompacted
    | ContextOverflowed
    | StrategyChosen
    | CanariesTried
    | TextRemoved
    | SnapshotFailed
    | LayerReported
    | IssueCostSummed
)


def describe_fact(event: Fact) -> tuple[bool, str]:  # noqa: PLR0911 - one return per event is the table
    """Whether it is a warning, and its sentence."""
    match event:
        case ModelWaited():
            return True, _wait(event)
        case AnswerLost():
            used = count(event.usage.total, "token")
            return True, f"an answer broke off; the {used} that it used until then count as spent"
        case ContextCompacted():
            removed = f"{count(event.results, 'old tool result')} ({count(event.characters, 'character')})"
            return True, f"the conversation was too long for the model: removed {removed} from it"
        case ContextOverflowed():
            outgrown = "the conversation stays too long for the model, the step begins again"
            return True, f"{outgrown}: {one_line(event.reason)}"
        case StrategyChosen():
            return True, _strategy(event)
        case CanariesTried():
            return bool(reached_places(event.canaries)), f"[Isolation] self-test: {describe_canaries(event.canaries)}"
        case TextRemoved():
            what = f"{count(event.count, 'hidden piece')} of the issue's text did not reach the model"
            return True, f"{what}: {one_line(count_kinds(tuple(event.pieces)))}"
        case SnapshotFailed():
            return True, f"[Snapshot] {event.reason}"
        case LayerReported():
            return event.is_warning, f"[Isolation] {event.layer}: {event.state}"
        case IssueCostSummed():
            over = event.usd >= event.budget_usd
            return over, f"[Budget] {describe_issue_cost(event)}{f'. {_OVER}' if over else ''}"
        case _:
            assert_never(event)


def describe_issue_cost(event: IssueCostSummed) -> str:
    """The sum against the budget, in words."""
    spent = Spent(usd=event.usd, at_least=event.at_least)
    return f"all runs on this issue: {spent} of {usd(event.budget_usd)}"


def describe_resumed(event: RunResumed) -> str:
    """Where the run goes on."""
    at = f"at iteration {event.iteration}" if event.iteration else "before its first iteration"
    return f"resumed after {count(event.events, 'event')}, {at}"


def describe_restored(event: ValidatorRan) -> str:
    """What a validator did not meet, because it was put back before."""
    return f"HOME and TMPDIR were put back as setup left them: {named(event.restored)}"


def describe_reason(outcome: Outcome, reason: str) -> str:
    """The reason for people: where it arose (flow.md §11) says something only when something went wrong."""
    if outcome not in (Outcome.COMPLETED, Outcome.SKIPPED):
        return reason
    return next((reason.removeprefix(place) for place in PLACES if reason.startswith(place)), reason)


def _wait(event: ModelWaited) -> str:
    tried = f"try {event.attempt} of {event.tries} failed"
    left = f", {seconds_text(event.deadline_in)} left before the deadline" if event.deadline_in is not None else ""
    return f"waiting {event.seconds:g} s for the model ({tried}{left}): {one_line(event.reason)}"


def _strategy(event: StrategyChosen) -> str:
    """That the model is asked for its answers in another way, how, why, and how to spare the next run the detour."""
    ways = {
        Strategy.NATIVE: "by output_config",
        Strategy.TOOL: "as the input of a tool",
        Strategy.PROMPT: "by the schema in words",
    }
    sentence = f"{one_line(event.model, 80)} is asked for structured output {ways[event.strategy]} from here on"
    return f"{sentence}: {one_line(event.reason)} (input structured-output: {event.strategy} begins with it)"
