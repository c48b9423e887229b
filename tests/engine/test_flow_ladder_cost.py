"""What a ladder saves: thirty tasks, each solved by the ladder and by its top alone, billed by the price list.

The tasks and their tokens are made up, and stand here in full: no model was asked. Of thirty tasks the cheap model
solves twenty, the middle one seven of the rest, the top one the last three; what a model fails with is a red check, an
answer that does not fit, or a refusal. A failed attempt is paid like any other, and no model needs fewer tokens than
another, though the cheaper ones are asked with less effort.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from stepflow.domain.agent.agent_settings import ClimbCause, ModelChanged, Rung
from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.domain.conversation import ModelRequest, ModelTurn, StopReason, Usage, text_block
from stepflow.domain.flow import fold
from stepflow.domain.words import Outcome
from stepflow.model.models import price_of
from tests.engine.played import play
from tests.engine.test_flow_loop import CLEAN, DIRTY, checked_agent
from tests.fakes import answers

LADDER = tuple(map(Rung.parse, ("haiku:low", "sonnet:medium", "opus:high")))
#: Tokens of a conversation's opening: system prompt, tools, the step's prompt, the issue, what was handed on.
OPENING = 6_000
#: Of the result of a tool call, of the turn that asks for one with its thinking, and of an answer.
RESULT, CALL, ANSWER = 1_500, 300, 800
#: How many calls a step makes before it answers.
CALLS = {"initial.issue": 12, "continuation.issue": 25, "closure.issue": 3}
INTENTS = {"initial.issue": "next", "continuation.issue": "handoff", "closure.issue": "closing"}

RED, MISFIT, REFUSAL = ClimbCause.VALIDATOR, ClimbCause.FORMAT, ClimbCause.REFUSAL
#: With what the models below the one that solves a task fail, from the cheapest up.
TASKS: list[tuple[ClimbCause, ...]] = [
    *[()] * 20,
    *[(RED,)] * 4,
    *[(MISFIT,)] * 2,
    (REFUSAL,),
    (RED, RED),
    (RED, MISFIT),
    (REFUSAL, RED),
]


@dataclass
class Task:
    """The model and the check of one task. `failures`: with what each model below the one that solves it fails."""

    failures: dict[str, ClimbCause]
    last: str = ""
    sent: dict[str, int] = field(default_factory=dict)

    def ask(self, request: ModelRequest) -> ModelTurn:
        self.last = request.model
        number = sum(message.role == "assistant" for message in request.messages)
        failure = self.failures.get(request.model) if request.step_id == "continuation.issue" else None
        if failure is REFUSAL:
            turn = ModelTurn(content=(), stop_reason=StopReason.REFUSAL)
        elif number < CALLS[request.step_id]:
            use = {"type": "tool_use", "id": f"call-{number}", "name": "bash", "input": {"command": "make"}}
            turn = ModelTurn(content=(use,), stop_reason=StopReason.TOOL_USE)
        elif failure is MISFIT:
            turn = ModelTurn(content=(text_block('{"next_action": 3}'),), stop_reason=StopReason.END_TURN)
        else:
            turn = replace(answers(INTENTS[request.step_id]), model="")
        usage = self._bill(request, number, turn)
        return replace(turn, usage=usage, cost_usd=price_of(request.model, usage), model=request.model)

    def _bill(self, request: ModelRequest, number: int, turn: ModelTurn) -> Usage:
        """All that the conversation's last request sent is read from the cache, the rest is written to it."""
        read = OPENING + (number - 1) * (RESULT + CALL) if number else 0
        output = CALL if turn.tool_uses else ANSWER
        return Usage(
            cache_read_tokens=read, cache_write_tokens=(RESULT + CALL if number else OPENING), output_tokens=output
        )

    def run_command(self, _request: CommandRequest) -> CommandResult:
        return DIRTY if self.failures.get(self.last) is RED else CLEAN


def solve(ladder: tuple[Rung, ...], failures: tuple[ClimbCause, ...]) -> tuple[Outcome, float, list[ClimbCause]]:
    """How a task ends, what it costs, and why its ladder was climbed."""
    below = [rung.model for rung in LADDER]
    task = Task(dict(zip(below, failures, strict=False)))
    result, ports = play(replace(checked_agent(), models=ladder), [], most=20, model=task, commands=task)
    state = fold(ports.journal.events)
    assert not state.unpriced
    return result.outcome, state.cost_usd, [change.cause for change in ports.journal.of(ModelChanged)]


def test_a_ladder_solves_thirty_tasks_for_at_most_half_of_what_its_top_takes() -> None:
    assert [len(failures) for failures in TASKS] == [0] * 20 + [1] * 7 + [2] * 3
    laddered = [solve(LADDER, failures) for failures in TASKS]
    topped = [solve(LADDER[-1:], ()) for _ in TASKS]
    assert [outcome for outcome, *_ in laddered] == [outcome for outcome, *_ in topped] == [Outcome.COMPLETED] * 30
    assert [tuple(climbs) for *_, climbs in laddered] == TASKS
    spent, top = (sum(cost for _, cost, _ in solved) for solved in (laddered, topped))
    assert spent <= 0.5 * top, f"${spent:.2f} against ${top:.2f}"
