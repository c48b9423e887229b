"""What the service has cached does not expire while a tool or a validator runs for minutes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from stepflow.domain.agent.agent_settings import Rung
from stepflow.domain.agent.definition import Target
from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.domain.conversation import ModelFault, ModelRequest, ModelTurn, StopReason, ToolCall, ToolUse, Usage
from stepflow.domain.event import CacheRenewed, CompletionJudged, Event
from stepflow.domain.flow import fold
from stepflow.domain.run import Limits
from stepflow.domain.words import FailureAction, Intent, Outcome
from tests.build import issue_agent, make_facts, make_validator
from tests.engine.played import HAPPY, play, resume
from tests.fakes import ListJournal, RecordingTools, StillClock, TableCommands, WaitingCache, calls, says

CACHED = Usage(cache_read_tokens=900, cache_write_tokens=100, output_tokens=10)
READ = Usage(cache_read_tokens=1000)
RENEWED = ModelTurn(content=(), stop_reason=StopReason.MAX_TOKENS, usage=READ, cost_usd=0.25, model="fake")
RED, GREEN = CommandResult(exit_code=1, stdout="a.py:3: bad"), CommandResult(exit_code=0)
AGAIN = [*HAPPY, *HAPPY[1:]]


@dataclass(kw_only=True)
class PlayedCache(WaitingCache):
    """Answers renewals with the next of its replies, the last of them forever."""

    replies: list[ModelTurn | ModelFault | None] = field(default_factory=lambda: [RENEWED])
    renewed: list[tuple[ModelRequest, int]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def renew(self, request: ModelRequest, number: int) -> ModelTurn | ModelFault | None:
        self.renewed.append((request, number))
        self.times.append(self.clock.time)
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@dataclass
class SlowTools(RecordingTools):
    cache: PlayedCache = field(default_factory=PlayedCache)
    seconds: float = 360.0

    def run_tool(self, use: ToolUse) -> ToolCall:
        self.cache.wait(self.seconds)
        return super().run_tool(use)


@dataclass
class SlowCommands(TableCommands):
    cache: PlayedCache = field(default_factory=PlayedCache)
    seconds: float = 360.0

    def run_command(self, request: CommandRequest) -> CommandResult:
        self.cache.wait(self.seconds)
        return super().run_command(request)


def cached(replies: list[ModelTurn]) -> list[ModelTurn]:
    """The same turns from a service that caches."""
    return [replace(reply, usage=CACHED) for reply in replies]


def run(replies: list[ModelTurn], cache: PlayedCache, *, agent=None, table=None, tool=360.0, validator=360.0, **parts):
    parts = {
        "tools": SlowTools(cache=cache, seconds=tool),
        "commands": SlowCommands(table or {}, cache=cache, seconds=validator),
        "clock": cache.clock,
        "cache": cache,
        **parts,
    }
    return play(agent or issue_agent(), replies, **parts)


def checked_agent(**changes: object):
    return issue_agent(make_validator("tests", "pytest"), **changes)


def test_a_tool_of_six_minutes_renews_the_conversation_once() -> None:
    cache = PlayedCache()
    result, ports = run(cached([calls("bash", command="make"), *HAPPY]), cache)
    assert result.outcome is Outcome.COMPLETED
    [(request, number)] = cache.renewed
    assert request.messages == ports.model.requests[0].messages, "all that was sent, and nothing else"
    assert number == 1
    assert cache.times == [1240.0], "four minutes after the request that used it last"
    [event] = ports.journal.of(CacheRenewed)
    assert (event.step_id, event.usage, event.cost_usd, event.problem) == ("initial.issue", READ, 0.25, "")
    assert fold(ports.journal.events).cost_usd == pytest.approx(4 * 0.01 + 0.25)


def test_the_tools_of_one_turn_count_together_and_quick_ones_renew_nothing() -> None:
    two = calls("bash", command="make")
    two = replace(two, content=(*two.content, {**two.content[0], "id": "use-2"}))
    for tool, times in ((150.0, 1), (100.0, 0), (600.0, 5)):
        cache = PlayedCache()
        run(cached([two, *HAPPY]), cache, tool=tool)
        assert len(cache.renewed) == times
        assert [number for _, number in cache.renewed] == list(range(1, times + 1))


def test_a_validator_of_six_minutes_renews_what_the_step_begins_with_that_it_may_send_back_to() -> None:
    cache = PlayedCache()
    result, ports = run(cached(AGAIN), cache, agent=checked_agent(), table={"pytest": [RED, GREEN]})
    assert result.outcome is Outcome.COMPLETED
    first, second = cache.renewed
    work = ports.model.requests[1]
    assert (work.step_id, first[0].step_id) == ("continuation.issue", "continuation.issue")
    assert (first[0].system, first[0].tools, first[0].schema) == (work.system, work.tools, work.schema)
    assert len(first[0].messages) == 1
    assert second[0].step_id == "continuation.issue"


@pytest.mark.parametrize(
    ("changes", "results"),
    [
        ({"max_attempts": 1}, [GREEN]),
        ({"action": FailureAction.ABORT}, [GREEN]),
        ({"action": FailureAction.SKIP}, [RED]),
    ],
)
def test_nothing_is_renewed_where_no_conversation_follows(changes: dict, results: list[CommandResult]) -> None:
    cache = PlayedCache()
    run(cached(HAPPY), cache, agent=checked_agent(**changes), table={"pytest": results})
    assert cache.renewed == []


@pytest.mark.parametrize("lower", ["sonnet:low", "sonnet:high", "opus:low", "opus"])
def test_nothing_is_renewed_of_a_rung_that_a_red_validator_leaves(lower: str) -> None:
    """The service keeps another cache for each model, and for each effort of it."""
    cache = PlayedCache()
    agent = replace(checked_agent(), models=tuple(map(Rung.parse, (lower, "opus:high"))))
    result, _ = run(cached(AGAIN), cache, agent=agent, table={"pytest": [RED, GREEN]})
    assert result.outcome is Outcome.COMPLETED
    [(request, _)] = cache.renewed
    assert (request.model, request.effort) == ("opus", "high"), "the top one, in the second closing"


@pytest.mark.parametrize("lower", ["sonnet:high", "opus:low", "opus"])
def test_nothing_is_renewed_of_a_rung_that_a_later_step_has_left(lower: str) -> None:
    """The second step climbs to the top, so the first, which the closing is sent back to, begins there as well."""
    cache = PlayedCache()
    agent = replace(checked_agent(), models=tuple(map(Rung.parse, (lower, "opus:high"))))
    closure = agent.steps["closure.issue"]
    closure = replace(closure, edges={**closure.edges, Intent.REPEAT: Target(step_id="initial.issue")})
    agent = replace(agent, steps={**agent.steps, closure.id: closure})
    replies = cached([HAPPY[0], *[says('{"next_action": 3}')] * 3, *HAPPY[1:], *HAPPY])
    result, ports = run(replies, cache, agent=agent, table={"pytest": [RED, GREEN]})
    assert result.outcome is Outcome.COMPLETED
    assert [request.step_id for request in ports.model.requests[-3:]] == [*agent.steps][:3]
    [(request, _)] = cache.renewed
    assert (request.step_id, request.model, request.effort) == ("initial.issue", "opus", "high"), "the second closing"


def test_nothing_is_renewed_that_is_not_cached() -> None:
    cache = PlayedCache()
    run([calls("bash", command="make"), *HAPPY], cache)
    assert cache.renewed == []


def test_what_has_expired_is_not_renewed() -> None:
    """The machine slept, or the answer itself took minutes."""
    cache = PlayedCache(clock=StillClock(tick=200.0))
    run(cached([calls("bash", command="make"), *HAPPY]), cache)
    assert cache.renewed == []


@pytest.mark.parametrize(
    "limits", [Limits(iterations=10, usd=0.01), Limits(iterations=10, tokens=1000), Limits(iterations=10, turns=1)]
)
def test_no_limit_is_exceeded_for_it(limits: Limits) -> None:
    cache = PlayedCache()
    result, _ = run(cached([calls("bash", command="make"), *HAPPY]), cache, facts=make_facts(limits=limits))
    assert result.outcome in {Outcome.BUDGET_EXHAUSTED, Outcome.LIMIT_REACHED}
    assert cache.renewed == []


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (ModelFault(reason="overloaded", transient=True), "overloaded"),
        (replace(RENEWED, usage=Usage(cache_write_tokens=1000)), ""),
    ],
)
def test_a_renewal_that_fails_or_finds_nothing_is_the_last_one_and_stops_nothing(reply, problem: str) -> None:
    cache = PlayedCache(replies=[reply])
    result, ports = run(cached([calls("bash", command="make"), *HAPPY]), cache, tool=1200.0)
    assert result.outcome is Outcome.COMPLETED
    [event] = ports.journal.of(CacheRenewed)
    assert event.problem == problem
    assert ports.tools.happened[0] == "tool bash"


def test_where_it_does_not_pay_any_more_it_ends() -> None:
    cache = PlayedCache(replies=[RENEWED, RENEWED, None])
    result, ports = run(cached([calls("bash", command="make"), *HAPPY]), cache, tool=3600.0)
    assert result.outcome is Outcome.COMPLETED
    assert len(ports.journal.of(CacheRenewed)) == 2
    assert len(cache.renewed) == 3


def test_a_run_that_goes_on_after_any_event_counts_each_renewal_once() -> None:
    agent, facts = checked_agent(), make_facts()
    replies = cached([HAPPY[0], calls("bash", command="make"), *AGAIN[1:]])

    def parts(cache: PlayedCache, *results: CommandResult) -> dict[str, object]:
        commands = SlowCommands({"pytest": list(results)}, cache=cache)
        return {"tools": SlowTools(cache=cache), "commands": commands, "clock": cache.clock, "cache": cache}

    _, ports = play(agent, list(replies), facts=facts, **parts(PlayedCache(), RED, GREEN))
    events: list[Event] = ports.journal.events
    assert len(ports.journal.of(CacheRenewed)) == 3
    for end in range(1, len(events)):
        cache, past = PlayedCache(), ListJournal(events[:end])
        results = [GREEN] if past.of(CompletionJudged) else [RED, GREEN]
        rest = replies[len(past.of(ModelTurn)) :]
        result, journal = resume(agent, events[:end], rest, facts, **parts(cache, *results))
        assert result.outcome is Outcome.COMPLETED
        assert len(journal.of(CacheRenewed)) == len(past.of(CacheRenewed)) + len(cache.renewed)


@pytest.mark.parametrize("kind", ["model_turn", "routed"])
def test_a_run_that_goes_on_renews_nothing_of_its_past(kind: str) -> None:
    """Whatever the service had cached may have expired while nobody ran."""
    agent, facts = checked_agent(max_attempts=2), make_facts()
    replies = cached([calls("bash", command="make"), *HAPPY])
    _, ports = play(agent, list(replies), facts=facts)
    events: list[Event] = ports.journal.events
    asked = [number for number, event in enumerate(events, 1) if event.event == kind]
    end = asked[0] if kind == "model_turn" else asked[-1]
    cache, past = PlayedCache(), ListJournal(events[:end])
    rest = replies[len(past.of(ModelTurn)) :]
    tools, commands = SlowTools(cache=cache, seconds=360.0), SlowCommands(cache=cache, seconds=0.0 if rest else 360.0)
    result, _ = resume(agent, events[:end], rest, facts, tools=tools, commands=commands, clock=cache.clock, cache=cache)
    assert result.outcome is Outcome.COMPLETED
    assert cache.renewed == []
