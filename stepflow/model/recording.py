"""What a model answered, kept as a scenario (`--record`)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from stepflow.domain.conversation import ModelTurn, StopReason
from stepflow.model.scenario import Expect, Scenario, ScenarioIssue, Turn, scenario_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stepflow.domain.conversation import ModelFault, ModelRequest
    from stepflow.domain.json import JsonObject, JsonValue
    from stepflow.domain.run import Issue
    from stepflow.ports import Model


#: Where the checkout is, for a shell in any folder of it.
ROOT_IN_SHELL = "$(git rev-parse --show-toplevel)"


NOT_WHOLE = "# This run did not come to an end of its own. Add the turns that are missing, and an `expect`.\n"


class RecordingModel:
    """Implements the port `Model` around another one.

    Kept are texts, tool calls and stop reasons. Not kept: thinking, which only the model that signed it takes back;
    usage, since scripted turns cost nothing; faults, since a run that is recorded is meant to be played through; and
    answers that a service gave without heeding how it was asked for them, where it was then asked in another way.
    `root` is where the checkout was: a recording is played elsewhere, so its paths are kept without it.
    """

    def __init__(
        self,
        model: Model,
        *,
        params: Mapping[str, JsonValue] | None = None,
        issue: Issue | None = None,
        root: str = "",
        before: Iterable[tuple[str, ModelTurn]] = (),
    ) -> None:
        """`before`: the turns of a run that goes on, each with the step that asked."""
        self.model = model
        self._params = dict(params or {})
        self._issue = issue
        self._root = root.rstrip("/")
        self._turns: list[Turn] = [_recorded(step_id, turn, self._root) for step_id, turn in before]

    def ask(self, request: ModelRequest) -> ModelTurn | ModelFault:
        """Pass the request on, and remember the turn that comes back."""
        answer = self.model.ask(request)
        if isinstance(answer, ModelTurn):
            if self._replaces(request):
                self._turns.pop()
            self._turns.append(_recorded(request.step_id, answer, self._root))
        return answer

    def _replaces(self, request: ModelRequest) -> bool:
        """Whether the turn answers what the one before it did not answer in form. A scripted model is never asked
        again in words, so only the answer that came at last can be played."""
        return request.corrects_in_words and bool(self._turns) and self._turns[-1].tools in (None, ())

    def scenario(self, expect: Expect | None = None) -> Scenario:
        """Everything so far. `expect`: how the run ended, so that `rehearse` compares with it."""
        given: dict[str, Any] = {"params": self._params or None, "issue": _issue(self._issue), "expect": expect}
        set_fields = {key: value for key, value in given.items() if value is not None}
        return Scenario(turns=tuple(self._turns), **set_fields)

    def to_yaml(self, expect: Expect | None = None) -> str:
        """The text of a scenario file; without `expect` it says that it is no whole run.

        It can hold whatever the model said: redact it like every other output.
        """
        return ("" if expect else NOT_WHOLE) + scenario_text(self.scenario(expect))


def _recorded(step_id: str, turn: ModelTurn, root: str) -> Turn:
    calls = tuple({use.name: _without_root(use.name, use.input, root)} for use in turn.tool_uses)
    answer = None if calls else _object(turn.text)
    usual = StopReason.TOOL_USE if calls else StopReason.END_TURN
    is_empty = not (turn.text or calls)
    given: dict[str, Any] = {
        "expect_step": step_id,
        "text": turn.text if turn.text and answer is None else None,
        "tools": calls or None,
        "output": answer,
        "stop_reason": turn.stop_reason if is_empty or turn.stop_reason is not usual else None,
    }
    return Turn(**{key: value for key, value in given.items() if value is not None})


def _without_root(tool: str, given: JsonObject, root: str) -> JsonObject:
    if not root:
        return given
    # A path ends where a name ends: /work/parser is no part of /work/parser-2.
    pattern = re.compile(rf"{re.escape(root)}(?![\w.-])")
    return {
        name: value
        if not isinstance(value, str)
        else _in_shell(value, pattern)
        if tool == "bash"
        else _alone(value, root)
        for name, value in given.items()
    }


def _in_shell(command: str, pattern: re.Pattern[str]) -> str:
    """The shell may stand in another folder by then, so it asks git; between single quotes it asks nobody."""
    return pattern.sub(lambda match: "." if command[: match.start()].count("'") % 2 else ROOT_IN_SHELL, command)


def _alone(path: str, root: str) -> str:
    """A path from the root, as the tools for files take it; any other text as it is."""
    return "." if path == root else path.removeprefix(f"{root}/")


def _object(text: str) -> JsonObject | None:
    """The text as a JSON object, if that is all it is."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _issue(issue: Issue | None) -> ScenarioIssue | None:
    if issue is None:
        return None
    return ScenarioIssue(**{key: value for key, value in vars(issue).items() if value})
