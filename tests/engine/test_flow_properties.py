"""Whatever a model answers, a flow keeps its promises: random answers, commands, schemas and limits on one graph."""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from stepflow.domain.agent.agent_settings import Rung
from stepflow.domain.agent.definition import Branch, Step
from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.domain.conversation import (
    ModelFault,
    ModelRequest,
    ModelTurn,
    Remedy,
    StopReason,
    ToolCall,
    Usage,
    text_block,
)
from stepflow.domain.event import (
    Event,
    FlowEnded,
    IterationStarted,
    ModelWaited,
    Routed,
    RunResumed,
    StepAnswered,
    ValidatorRan,
)
from stepflow.domain.flow import RunState, fold
from stepflow.domain.run import Limits
from stepflow.domain.words import INTENT_ALIASES, Effort, FailureAction, Intent, Outcome, Permission, StepKind
from stepflow.engine.loop import run_flow
from stepflow.engine.resumption import fold_stopped, is_of_attempt
from stepflow.ports import Ports, SchemaFailure
from tests.build import make_agent, make_entry, make_facts, make_gate, make_step, make_validator
from tests.engine.played import started
from tests.fakes import ListJournal, RecordingTools, StillClock, TableChecks, answers
from tests.tried import MARKS, tried

pytestmark = MARKS

WORK = ("analysis.plan", "done")
AGENT = make_agent(
    make_step(
        "initial.issue",
        gate=make_gate(StepKind.WORK, handoff_fields=WORK),
        edges={Intent.NEXT: Branch(condition="plan", targets={"hard": "verification.issue"}, default="second.issue")},
    ),
    make_step("second.issue", to={"next": "verification.issue", "handoff": "closure.issue", "jump": "initial.issue"}),
    make_step(
        "continuation.issue", to={"handoff": "closure.issue", "repeat": "second.issue"}, approval=Permission.WRITE
    ),
    make_step(
        "verification.issue", StepKind.VERIFICATION, to={"next": "continuation.issue", "escalate": "second.issue"}
    ),
    make_step(
        "closure.issue",
        StepKind.CLOSURE,
        to={"closing": None, "repeat": "continuation.issue"},
        validation=make_entry(
            "closure.issue",
            make_validator(
                "git-clean", "git status --porcelain", empty=True, extract_params={"changed": "parseChangedFiles"}
            ),
            make_validator("tests", "make test"),
        ),
    ),
    allowed_tools=frozenset({"Bash", "Read", "Edit"}),
    models=(Rung(model="haiku", effort=Effort.LOW), Rung(model="opus")),
    fallback=Rung(model="other", fallback=True),
)
#: From the first to the last.
MODELS = ("haiku", "opus", "other")
#: What a flow may end in; the other outcomes belong to what is around it.
ENDS = {
    *(Outcome.COMPLETED, Outcome.VALIDATION_FAILED, Outcome.ROUTING_FAILED, Outcome.SCHEMA_FAILED, Outcome.ABORTED),
    *(Outcome.LIMIT_REACHED, Outcome.BUDGET_EXHAUSTED, Outcome.TIMED_OUT, Outcome.MODEL_FAILED),
    Outcome.MODEL_REFUSED,
}


@dataclass(kw_only=True)
class World:
    """Everything outside the flow, played from lists: what is left of them is what a resumed run would meet.

    A reply that is a number is a sound answer with that one of the words which the asking step may use.
    """

    replies: list[ModelTurn | ModelFault | int]
    results: list[CommandResult]
    schemas: list[bool]
    clock: StillClock
    journal: WatchedJournal = field(init=False)
    requests: list[tuple[float, ModelRequest, RunState]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.journal = WatchedJournal(world=self)

    def ports(self) -> Ports:
        return Ports(
            model=self,
            tools=RecordingTools(),
            commands=self,
            checks=TableChecks(self).opened,
            schemas=self,
            journal=self.journal,
            clock=self.clock,
        )

    def ask(self, request: ModelRequest) -> ModelTurn | ModelFault:
        self.requests.append((self.clock.time, request, fold(self.journal.events)))
        reply = self.replies.pop(0) if self.replies else ModelFault(reason="nothing is left to say")
        return sound_answer(request.step_id, reply) if isinstance(reply, int) else reply

    def run_command(self, _request: CommandRequest) -> CommandResult:
        return self.results.pop(0) if self.results else CommandResult(exit_code=0)

    def resolve(self, step: Step) -> dict[str, Any] | None:
        if self.schemas and self.schemas.pop(0):
            raise SchemaFailure("the pointer leads nowhere")
        return step.schema

    def left(self) -> World:
        """A world of its own with what is left of this one."""
        return World(
            replies=list(self.replies),
            results=list(self.results),
            schemas=list(self.schemas),
            clock=StillClock(time=self.clock.time),
        )


def sound_answer(step_id: str, number: int) -> ModelTurn:
    """The step's own answer; from a closure mostly that it is closing."""
    gate = AGENT.steps[step_id].gate
    assert gate is not None
    words = [word for word in gate.allowed if word is not Intent.JUMP] + [Intent.CLOSING] * (step_id == "closure.issue")
    return answers(words[number % len(words)], analysis={"plan": "hard" if number % 2 else "easy"})


@dataclass
class WatchedJournal(ListJournal):
    """Remembers after each event what would be left of the world for a run that was killed then: every reply that was
    not written down, and what the step attempt in flight meets again: its schema, and its validators."""

    world: World | None = None
    cuts: list[World] = field(default_factory=list)
    again: World | None = None

    def append(self, event: Event) -> None:
        super().append(event)
        if self.world is None:
            return
        left = self.world.left()
        if (
            self.again is None
            or isinstance(event, IterationStarted)
            or fold_stopped(self.events).folded == len(self.events)
        ):
            self.again = left
        self.cuts.append(replace(left, results=list(self.again.results), schemas=list(self.again.schemas)))


WORDS = st.sampled_from([*Intent, *INTENT_ALIASES, "Next", " closing", "approve", "", "closing\n", "naechstes"])
TARGETS = st.sampled_from([*AGENT.steps, "", "closure", "../x", "section.rules"])
#: Sampled, not built: what counts is which of them stands where, and building takes most of the time.
VALUES = st.sampled_from(
    [None, True, 0, -1.5, 10**30, "", "hard", "{uv-plan}", "\u2028", [], ["x", 1], {}, {"a": {"b": []}}]
)
PROSE = st.sampled_from(["", "All done!", "{", "[" * 30_000, '{"next_action":', "```json\n{\n```", "}{", "closing"])
MORE = st.fixed_dictionaries(
    {},
    optional={
        "stepId": st.sampled_from([*AGENT.steps, "closure.other"]) | VALUES,
        "analysis": st.fixed_dictionaries({"plan": st.sampled_from(["hard", "easy"]) | VALUES}),
        "done": VALUES,
        "reason": VALUES,
    },
)


@st.composite
def answer_texts(draw: st.DrawFn) -> str:
    """Mostly an answer with an intent, valid or not, in one of the forms that models write; sometimes prose."""
    form = draw(st.sampled_from(["{}", "{}", "{}", "{}", "```json\n{}\n```", "I think:\n{}", "prose", "value"]))
    if form == "prose":
        return draw(PROSE)
    if form == "value":
        return json.dumps(draw(VALUES))
    action = draw(st.one_of(WORDS, WORDS, WORDS, VALUES))
    next_action = draw(
        st.sampled_from([{"action": action}, {"action": action}, {"action": action, "reason": 3}, action])
    )
    if isinstance(next_action, dict) and draw(st.booleans()):
        next_action = {**next_action, "target": draw(TARGETS)}
    return form.replace("{}", json.dumps({"next_action": next_action, **draw(MORE)}))


@st.composite
def turns(draw: st.DrawFn) -> ModelTurn | ModelFault | int:
    """One reply: mostly a sound answer, else a random one, tool calls, a strange stop, or a failure that may pass."""
    form = draw(st.sampled_from(["sound"] * 20 + ["answer"] * 4 + ["tools"] * 4 + ["stop", "fault", "refusal", "long"]))
    if form == "sound":
        return draw(st.integers(0, 11))
    if form == "refusal":
        return ModelTurn(content=(), stop_reason=StopReason.REFUSAL, model="random")
    if form == "long":
        return ModelFault(reason="prompt is too long", remedy=Remedy.SHORTEN)
    if form == "fault":
        waits = draw(st.none() | st.integers(0, 100))
        return ModelFault(reason="busy", transient=draw(st.sampled_from([True, True, False])), retry_after=waits)
    content = [text_block(draw(answer_texts()))] if form == "answer" or draw(st.booleans()) else []
    stop = draw(st.sampled_from(StopReason)) if form == "stop" else StopReason.END_TURN
    if form == "tools":
        names = draw(st.lists(st.sampled_from(["bash", "read", "edit", "grep", "rm", ""]), min_size=1, max_size=3))
        content += [{"type": "tool_use", "id": f"t{at}", "name": name, "input": {}} for at, name in enumerate(names)]
        stop = draw(st.sampled_from([StopReason.TOOL_USE, StopReason.MAX_TOKENS]))
    cost = draw(st.sampled_from([0.0, 0.5, 0.5, None]))
    usage = Usage(input_tokens=draw(st.integers(0, 100)), output_tokens=1)
    return ModelTurn(
        content=tuple(content),
        stop_reason=stop,
        usage=usage,
        cost_usd=cost,
        model="random",
    )


RESULTS = st.sampled_from(
    [
        *[CommandResult(exit_code=0)] * 4,
        CommandResult(exit_code=0, stdout=" M a.py\n"),
        CommandResult(exit_code=1, stderr="a.py:3: error: bad"),
        CommandResult(exit_code=-1, timed_out=True, error="timed out"),
        CommandResult(exit_code=127, stderr="not found"),
        CommandResult(exit_code=-1, started=False, error="no such program"),
    ]
)
WORLDS = st.builds(
    World,
    replies=st.lists(turns(), min_size=6, max_size=20),
    results=st.lists(RESULTS, max_size=6),
    schemas=st.lists(st.sampled_from([False] * 5 + [True]), max_size=8),
    clock=st.builds(StillClock, tick=st.sampled_from([0.0, 0.0, 7.0])),
)
LIMITS = st.builds(
    Limits,
    iterations=st.integers(2, 12),
    visits=st.sampled_from([None] * 4 + [1, 2, 4]),
    turns=st.sampled_from([None] * 4 + [1, 2, 4]),
    tokens=st.sampled_from([None] * 5 + [150, 700]),
    usd=st.sampled_from([None] * 5 + [0.02, 1.0]),
    deadline=st.sampled_from([None] * 8 + [1000, 1030, 1100]),
)
ENTRIES = st.tuples(st.sampled_from(FailureAction), st.integers(1, 3))
quick = tried(120)


def run(
    world: World,
    limits: Limits,
    on_failure: tuple[FailureAction, int],
    state: RunState | None = None,
    recorded: Sequence[Event] = (),
) -> FlowEnded:
    """A run in this world; with a state, one that goes on from there and has these events recorded."""
    closure = AGENT.steps["closure.issue"]
    assert closure.validation is not None
    entry = replace(closure.validation, action=on_failure[0], max_attempts=on_failure[1])
    agent = replace(AGENT, steps={**AGENT.steps, closure.id: replace(closure, validation=entry)})
    if state is None:
        first = started(agent, limits.iterations)
        world.journal.append(first)
        state = fold([first])
    ports = world.ports()
    return run_flow(agent, make_facts(limits=limits, approvals_given=True), ports, state, recorded)


def test_whatever_is_answered_a_flow_keeps_its_promises() -> None:
    seen = set()
    solved = [answers("next", analysis={"plan": "easy"}), answers("handoff"), answers("closing")]

    @quick
    @given(WORLDS, LIMITS, ENTRIES)
    @example(
        World(replies=solved, results=[], schemas=[], clock=StillClock()),
        Limits(iterations=3),
        (FailureAction.RETRY, 1),
    )
    def keeps_its_promises(world: World, limits: Limits, on_failure: tuple[FailureAction, int]) -> None:
        result = run(world, limits, on_failure)
        seen.add(result.outcome)
        check_end_and_state(world, result)
        check_limits_held(world, limits)
        check_closing(world, result, on_failure[0])
        check_conversations([request for _, request, _ in world.requests])
        assert all(call.denied == (call.name not in ("bash", "read", "edit")) for call in world.journal.of(ToolCall))

    keeps_its_promises()
    assert {Outcome.COMPLETED, Outcome.ROUTING_FAILED, Outcome.LIMIT_REACHED} <= seen


def check_end_and_state(world: World, result: FlowEnded) -> None:
    """A specified outcome, written down once and last; the state of every moment is the fold of the events so far."""
    events = world.journal.events
    assert result.outcome in ENDS
    assert [at for at, event in enumerate(events) if isinstance(event, FlowEnded)] == [len(events) - 1]
    end, state = events[-1], fold(events)
    assert (end.outcome, end.reason, end.answer) == (result.outcome, result.reason, result.answer)
    assert (state.outcome, state.iteration, state.step_id) == (result.outcome, result.iterations, result.step_id)
    assert state.handoff == result.handoff
    for _, request, then in world.requests:
        assert (request.iteration, request.step_id) == (then.iteration, then.step_id)


def check_limits_held(world: World, limits: Limits) -> None:
    """No limit is exceeded: each was still open when the turn or iteration was spent."""
    state = fold(world.journal.events)
    assert state.iteration <= limits.iterations
    assert limits.visits is None or all(times <= limits.visits for times in state.visits.values())
    for time, _, before in world.requests:
        assert limits.turns is None or before.turns < limits.turns
        assert limits.tokens is None or before.usage.total < limits.tokens
        assert limits.usd is None or before.cost_usd < limits.usd
        assert limits.deadline is None or time < limits.deadline + world.clock.tick


def check_conversations(requests: Sequence[ModelRequest]) -> None:
    """Within an attempt nothing changes that the model has answered to, nor the model; and no later one is below it."""
    for before, after in pairwise(requests):
        assert MODELS.index(before.model) <= MODELS.index(after.model)
        if before.iteration != after.iteration:
            assert len(after.messages) == 1
            continue
        same = operator.attrgetter("model", "effort", "system", "tools", "strategy")
        assert same(before) == same(after)
        *answered, last = before.messages
        assert list(after.messages[: len(answered)]) == answered
        # An empty answer leaves no message: what is said next goes on in the one that stood last.
        again = after.messages[len(answered)]
        assert (again.role, again.content[: len(last.content)]) == (last.role, last.content)


def check_closing(world: World, result: FlowEnded, action: FailureAction) -> None:
    """Only a closure step closes, validators run only then, and only green or skipped ones complete."""
    closing = ""
    for event in world.journal.events:
        match event:
            case IterationStarted() | StepAnswered() | ModelTurn() | ToolCall():
                closing = ""
            case Routed(transition="closing"):
                closing = event.source
            case ValidatorRan():
                assert closing == "closure.issue"
            case _:
                pass
    if result.outcome is not Outcome.COMPLETED:
        assert not result.validated
        return
    assert closing == result.step_id == "closure.issue"
    ran = [event for event in world.journal.of(ValidatorRan) if event.iteration == result.iterations]
    assert [event.name for event in ran] == ["git-clean", "tests"]
    assert all(event.passed or action is FailureAction.SKIP for event in ran)
    assert result.validated == all(event.passed for event in ran)


@quick
@given(WORLDS, LIMITS, ENTRIES, st.data())
def test_a_run_that_was_killed_after_any_event_and_again_while_it_was_resumed_ends_as_the_whole_run_did(
    world, limits, on_failure, data
) -> None:
    world.clock.tick = 0.0
    limits = replace(limits, deadline=None)
    result, events = run(world, limits, on_failure), world.journal.events
    at = data.draw(st.integers(1, len(events) - 1), label="how many events were written")
    rest, before = world.journal.cuts[at - 1], events[:at]
    # What a second process meets: of what the first met, all that was not written down.
    rest.journal.again = rest.left()
    again, after = resume(rest, limits, on_failure, before)
    assert again == result
    assert fold(after) == fold(events)
    assert list(filter(is_of_attempt, after)) == list(filter(is_of_attempt, events))
    # Nobody is asked for a turn that was finished; a fault that was not written down is met once more.
    assert len([each for each in before if isinstance(each, ModelTurn | ModelWaited)]) + len(rest.requests) == len(
        world.requests
    )
    again_at = data.draw(st.integers(at + 1, len(after) - 1), label="how many events were written then")
    again, whole = resume(rest.journal.cuts[again_at - at - 1], limits, on_failure, after[:again_at])
    assert again == result
    assert fold(whole) == fold(events)


def resume(
    world: World, limits: Limits, on_failure: tuple[FailureAction, int], before: list[Event]
) -> tuple[FlowEnded, list[Event]]:
    """What a run that goes on after these events comes to, and all its events."""
    flow = fold_stopped(before)
    attempts = dict(flow.state.attempts)
    world.journal.append(
        RunResumed(
            events=len(before), from_seq=flow.folded, iteration=flow.state.iteration, step_id="", attempts=attempts
        )
    )
    result = run(world, limits, on_failure, flow.state, flow.iteration)
    return result, [*before, *world.journal.events]
