"""Scenarios: a model's answers in a file that people or `--record` write, the scripted model that plays them in tests
and demos without a key, and the model that records the answers of a real one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from stepflow.domain.conversation import ModelFault, ModelRequest, ModelTurn, StopReason, text_block
from stepflow.domain.effect import EffectKind
from stepflow.domain.json import JsonObject, JsonValue, compact, publish_schema
from stepflow.domain.run import Issue
from stepflow.domain.text import count
from stepflow.domain.words import Outcome
from stepflow.engine.gate import parse_object
from stepflow.model.models import find_remedy, hint_for, is_transient_status
from stepflow.ports import Model

#: The model name of a scripted turn.
SCRIPTED = "scripted"
#: The root of the checkout, for a shell in any of its folders.
ROOT_IN_SHELL = "$(git rev-parse --show-toplevel)"
NOT_WHOLE = "# This run did not reach an end. Add the missing turns, and an `expect`.\n"
_Positive = Annotated[int, Field(ge=1, le=100_000)]
#: A result of a validator.
ValidatorWord = Literal["pass", "fail", "skipped", "unrecoverable"]
_ToolCall = Annotated[dict[str, JsonObject], Field(min_length=1, max_length=1)]


def check_path_inside(path: str) -> str:
    """Return the path of a file in the checkout, or raise `ValueError` if it may lead out of it."""
    parts = path.split("/")
    if path.startswith("/") or "\\" in path or "\0" in path or ".." in parts or not any(set(parts) - {"", "."}):
        raise ValueError("write the path of a file in the checkout, relative and without `..`")
    return path


_FilePath = Annotated[str, AfterValidator(check_path_inside)]


class _ScenarioShape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class ScriptedError(_ScenarioShape):
    """An API failure: an HTTP status or a dropped connection. It occurs once."""

    status: Annotated[int, Field(ge=400, le=599)] | None = None
    reset: Literal[True] | None = None
    retry_after: Annotated[float, Field(ge=0)] | None = None
    message: str = ""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.status is None) == (self.reset is None):
            raise ValueError("write either `status: <HTTP status>` or `reset: true`")
        return self


class Turn(_ScenarioShape):
    """One reply of the model: text, tool calls (with or without text), a structured answer, an error, or a repeat.

    `stop_reason` replaces the default (`tool_use` with tools, otherwise `end_turn`). For example, `refusal` and
    `max_tokens` test how a flow ends. With nothing else, the reply is empty. `expect_step` is the id of the step that
    must be asking; `expect_prompt` lists texts that its newest prompt must contain.
    """

    expect_step: str | None = None
    expect_prompt: tuple[str, ...] = ()
    text: str | None = None
    tools: tuple[_ToolCall, ...] = ()
    output: JsonObject | None = None
    stop_reason: StopReason | None = None
    error: ScriptedError | None = None
    repeat: _Positive | None = None

    @model_validator(mode="after")
    def _one_reply(self) -> Self:
        given = self.model_fields_set - {"expect_step", "expect_prompt"}
        if "repeat" in given and self.model_fields_set != {"repeat"}:
            raise ValueError("`repeat` must be the only key: it plays the previous turn again")
        if "error" in given and given != {"error"}:
            raise ValueError("`error` goes only with `expect_step` and `expect_prompt`")
        if "output" in given and given & {"text", "tools"}:
            raise ValueError("`output` is the whole answer: move `text` or `tools` to a separate turn")
        if not given:
            raise ValueError("write one of `tools`, `output`, `text`, `error`, `repeat`")
        return self


class ScenarioIssue(_ScenarioShape):
    """The issue as the event would deliver it."""

    number: _Positive
    title: str = ""
    body: str = ""
    author: str = ""
    url: str = ""
    labels: tuple[str, ...] = ()

    def to_issue(self) -> Issue:
        """Convert to the run's own type."""
        return Issue(**self.model_dump())


class Expect(_ScenarioShape):
    """The results that `rehearse` compares. An absent key is not compared. A file given as null must not exist."""

    outcome: Outcome | None = None
    steps: tuple[str, ...] | None = None
    effects: tuple[EffectKind, ...] | None = None
    validators: dict[str, tuple[ValidatorWord, ...]] | None = None
    files: dict[_FilePath, str | None] | None = None


class Scenario(_ScenarioShape):
    """A scenario file: the run's arguments, the replies in order (`turns`) or by step (`steps`), and the
    expectations. With `base_checks: require`, a rehearsal skips the scenario if a check fails before the run."""

    params: dict[str, JsonValue] = Field(default_factory=dict)
    issue: ScenarioIssue | None = None
    turns: tuple[Turn, ...] | None = None
    steps: dict[str, tuple[Turn, ...]] | None = None
    expect: Expect | None = None
    base_checks: Literal["require"] | None = None

    @model_validator(mode="after")
    def _one_order(self) -> Self:
        if (self.turns is None) == (self.steps is None):
            raise ValueError("write either `turns` (a list) or `steps` (lists by step id)")
        for queue, turns in self.queues().items():
            if turns and turns[0].repeat:
                raise ValueError(f"`{queue}` begins with `repeat`, but there is no turn before it")
        return self

    def queues(self) -> dict[str, tuple[Turn, ...]]:
        """Return the lists of turns: one per step id, or the single list under `turns`."""
        return dict(self.steps) if self.steps is not None else {"turns": self.turns or ()}


def scenario_schema() -> JsonObject:
    """Return the JSON Schema of a scenario file."""
    schema: JsonObject = Scenario.model_json_schema()
    one_order: JsonValue = [{"required": ["turns"]}, {"required": ["steps"]}]
    head: JsonObject = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A stepflow scenario"}
    return publish_schema({**schema, **head, "oneOf": one_order})


def scenario_text(scenario: Scenario) -> str:
    """Return a scenario as YAML for people to read and edit. Reading it gives the same scenario."""
    return yaml_text(scenario.model_dump(mode="json", exclude_unset=True))


def yaml_text(data: JsonObject) -> str:
    """Return a part of a scenario as YAML."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that keeps multi-line strings readable."""


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    # YAML treats these as line breaks. Without quotes they would be read back as other characters.
    if set(text) & {"\x85", "\u2028", "\u2029"}:
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text_node)


class ScriptedModel:
    """Implements the port `Model`. The argument `position` is the value of `position` when the run to resume
    stopped."""

    def __init__(self, scenario: Scenario, *, position: Mapping[str, int] | None = None) -> None:
        self._in_order = scenario.turns is not None
        self._queues = {queue: played_out(turns) for queue, turns in scenario.queues().items()}
        self._position = {queue: (position or {}).get(queue, 0) for queue in self._queues}
        self._calls = sum(
            len(turn.tools) for queue, turns in self._queues.items() for turn in turns[: self._position[queue]]
        )

    @property
    def position(self) -> dict[str, int]:
        """Return the number of turns played, by list. A run folder stores it as JSON for resuming."""
        return dict(self._position)

    @property
    def leftover(self) -> int:
        """Return the number of turns that were not played; reported at the end of a run."""
        return sum(max(0, len(turns) - self._position[queue]) for queue, turns in self._queues.items())

    def ask(self, request: ModelRequest) -> ModelTurn | ModelFault:
        """Return the next turn of the scenario, or a fault if it expects another step or another prompt."""
        queue = "turns" if self._in_order else request.step_id
        turns, number = self._queues.get(queue, ()), self._position.get(queue, 0)
        if number >= len(turns):
            return _end_of_script(request, queue, number)
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
    """Return every turn as many times as it is played."""
    played: list[Turn] = []
    for turn in turns:
        played.extend([played[-1]] * turn.repeat if turn.repeat else [turn])
    return tuple(played)


def _end_of_script(request: ModelRequest, queue: str, number: int) -> ModelFault:
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
    """Return the text of the last user message that has any. Tool results are not part of the prompt."""
    for message in reversed(request.messages):
        texts = [str(block.get("text", "")) for block in message.content if block.get("type") == "text"]
        if message.role == "user" and texts:
            return "\n".join(texts)
    return ""


def _turn(turn: Turn, first_id: int) -> ModelTurn:
    text = compact(turn.output) if turn.output is not None else turn.text
    content = [text_block(text)] if text else []
    calls = [next(iter(call.items())) for call in turn.tools]
    content += [
        {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}
        for number, (name, given) in enumerate(calls, start=first_id)
    ]
    usual = StopReason.TOOL_USE if calls else StopReason.END_TURN
    return ModelTurn(content=tuple(content), stop_reason=turn.stop_reason or usual, model=SCRIPTED)


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


class RecordingModel:
    """Implements the port `Model` around another model.

    It keeps texts, tool calls and stop reasons. It drops thinking, which only the model that signed it accepts; usage,
    because scripted turns cost nothing; faults, because a recording is meant to play to the end; and answers from a
    service that ignored the requested format, if the run then asked in another way. `root` is the location of the
    checkout. It is removed from recorded paths, because a recording is played elsewhere.
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
        """Record around `model`. `before` holds the turns of a resumed run, each with the step that asked."""
        self.model = model
        self._params = dict(params or {})
        self._issue = issue
        self._root = root.rstrip("/")
        self._turns: list[Turn] = [_record_turn(step_id, turn, self._root) for step_id, turn in before]

    def ask(self, request: ModelRequest) -> ModelTurn | ModelFault:
        """Pass the request on and record the turn."""
        answer = self.model.ask(request)
        if isinstance(answer, ModelTurn):
            if self._replaces(request):
                self._turns.pop()
            self._turns.append(_record_turn(request.step_id, answer, self._root))
        return answer

    def _replaces(self, request: ModelRequest) -> bool:
        """Return whether the turn replaces the one before it, which had the wrong format. A scripted model is never
        asked again in words, so only the final answer can be played."""
        return request.corrects_in_words and bool(self._turns) and self._turns[-1].tools in (None, ())

    def scenario(self, expect: Expect | None = None) -> Scenario:
        """Return everything recorded so far. `expect` is how the run ended, for `rehearse` to compare."""
        given: dict[str, Any] = {"params": self._params or None, "issue": _issue(self._issue), "expect": expect}
        set_fields = {key: value for key, value in given.items() if value is not None}
        return Scenario(turns=tuple(self._turns), **set_fields)

    def to_yaml(self, expect: Expect | None = None) -> str:
        """Return the text of a scenario file. Without `expect`, the text says that the run is incomplete.

        It can contain anything the model said: redact it like any other output.
        """
        return ("" if expect else NOT_WHOLE) + scenario_text(self.scenario(expect))


def _record_turn(step_id: str, turn: ModelTurn, root: str) -> Turn:
    calls = tuple({use.name: _without_root(use.name, use.input, root)} for use in turn.tool_uses)
    answer = None if calls else parse_object(turn.text)
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
    # Match whole names only: /work/parser is not a prefix of /work/parser-2.
    pattern = re.compile(rf"{re.escape(root)}(?![\w.-])")

    def replaced(value: JsonValue) -> JsonValue:
        if not isinstance(value, str):
            return value
        if tool == "bash":
            return _in_shell(value, pattern)
        # The file tools accept a path relative to the root.
        return "." if value == root else value.removeprefix(f"{root}/")

    return {name: replaced(value) for name, value in given.items()}


def _in_shell(command: str, pattern: re.Pattern[str]) -> str:
    """Replace the root in a shell command. The shell may be in another folder by then, so ask git for the root, except
    inside single quotes, where nothing is expanded."""
    return pattern.sub(lambda match: "." if command[: match.start()].count("'") % 2 else ROOT_IN_SHELL, command)


def _issue(issue: Issue | None) -> ScenarioIssue | None:
    if issue is None:
        return None
    return ScenarioIssue(**{key: value for key, value in vars(issue).items() if value})
