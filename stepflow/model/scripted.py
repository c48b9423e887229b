"""A model that says what a scenario tells it to: a shipped part, for tests and demos without a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.conversation import ModelFault, ModelTurn, StopReason, text_block
from stepflow.domain.figures import count
from stepflow.domain.json import compact
from stepflow.model.statuses import find_remedy, hint_for, is_transient_status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.domain.conversation import ModelRequest
    from stepflow.domain.json import JsonObject
    from stepflow.model.scenario import Scenario, ScriptedError, Turn

#: What a scripted turn names as its model.
SCRIPTED = "scripted"


class ScriptedModel:
    """Implements the port `Model`. `position`: what `position` was when the run to be resumed stopped."""

    def __init__(self, scenario: Scenario, *, position: Mapping[str, int] | None = None) -> None:
        self._in_order = scenario.turns is not None
        self._queues = {queue: played_out(turns) for queue, turns in scenario.queues().items()}
        self._position = {queue: (position or {}).get(queue, 0) for queue in self._queues}
        self._calls = sum(
            len(turn.tools) for queue, turns in self._queues.items() for turn in turns[: self._position[queue]]
        )

    @property
    def position(self) -> dict[str, int]:
        """How many turns were played, by list: the JSON that a run folder keeps for resuming."""
        return dict(self._position)

    @property
    def leftover(self) -> int:
        """How many turns were not played; worth a note at the end of a run."""
        return sum(max(0, len(turns) - self._position[queue]) for queue, turns in self._queues.items())

    def ask(self, request: ModelRequest) -> ModelTurn | ModelFault:
        """The next turn of the scenario, unless another step or another prompt was expected to ask for it."""
        queue = "turns" if self._in_order else request.step_id
        turns, number = self._queues.get(queue, ()), self._position.get(queue, 0)
        if number >= len(turns):
            return _ended(request, queue, number)
        turn = turns[number]
        if problem := _mismatch(turn, request):
            return ModelFault(
                reason=f"Turn {number + 1} of the scenario ({queue}) {problem}",
                hint="Change the scenario, or the agent that no longer does what the scenario expects.",
            )
        first_id = self._calls + 1
        self._calls += len(turn.tools)
        self._position[queue] = number + 1
        return _fault(turn.error) if turn.error else _turn(turn, first_id)


def played_out(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Every turn as often as it is played."""
    played: list[Turn] = []
    for turn in turns:
        played.extend([played[-1]] * turn.repeat if turn.repeat else [turn])
    return tuple(played)


def _ended(request: ModelRequest, queue: str, number: int) -> ModelFault:
    played = f"iteration {request.iteration}, {count(number, 'turn')} played"
    return ModelFault(
        reason=f"the scenario ended at step {request.step_id!r} ({played})",
        hint=f"Add a turn to the end of `{queue}` in the scenario." if number else f"Add turns for {queue!r} to it.",
    )


def _mismatch(turn: Turn, request: ModelRequest) -> str:
    if turn.expect_step not in (None, request.step_id):
        return f"expects step {turn.expect_step!r}, but step {request.step_id!r} asks."
    prompt = _newest_prompt(request)
    missing = next((words for words in turn.expect_prompt if words not in prompt), None)
    return "" if missing is None else f"expects {missing!r} in the prompt of step {request.step_id!r}; it is not there."


def _newest_prompt(request: ModelRequest) -> str:
    """The text of the last message to the model that has any: tool results are not the prompt."""
    for message in reversed(request.messages):
        texts = [str(block.get("text", "")) for block in message.content if block.get("type") == "text"]
        if message.role == "user" and texts:
            return "\n".join(texts)
    return ""


def _turn(turn: Turn, first_id: int) -> ModelTurn:
    text = compact(turn.output) if turn.output is not None else turn.text
    content = [text_block(text)] if text else []
    calls = [next(iter(call.items())) for call in turn.tools]
    content += [_tool_use(number, name, given) for number, (name, given) in enumerate(calls, start=first_id)]
    usual = StopReason.TOOL_USE if calls else StopReason.END_TURN
    return ModelTurn(content=tuple(content), stop_reason=turn.stop_reason or usual, model=SCRIPTED)


def _tool_use(number: int, name: str, given: JsonObject) -> JsonObject:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}


def _fault(error: ScriptedError) -> ModelFault:
    said = f": {error.message}" if error.message else ""
    if error.status is None:
        return ModelFault(reason=f"The scenario drops the connection{said}", transient=True)
    transient = is_transient_status(error.status)
    return ModelFault(
        reason=f"The scenario answers {error.status}{said}",
        hint=hint_for(error.status, error.message),
        transient=transient,
        remedy=find_remedy(error.status, error.message),
        retry_after=error.retry_after if transient else None,
    )
