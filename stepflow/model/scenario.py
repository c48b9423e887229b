"""What a scripted model answers, as a file that people write and `--record` writes (cli.md "Scenario files")."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from stepflow.domain.conversation import StopReason
from stepflow.domain.effect import EffectKind
from stepflow.domain.json import JsonObject, JsonValue, published
from stepflow.domain.run import Issue
from stepflow.domain.words import Outcome

_Positive = Annotated[int, Field(ge=1, le=100_000)]
#: A result of a validator.
ValidatorWord = Literal["pass", "fail", "skipped", "unrecoverable"]
_ToolCall = Annotated[dict[str, JsonObject], Field(min_length=1, max_length=1)]


def _inside(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or "\\" in path or "\0" in path or ".." in parts or not any(set(parts) - {"", "."}):
        raise ValueError("write the path of a file in the checkout, relative and without `..`")
    return path


_FilePath = Annotated[str, AfterValidator(_inside)]


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class ScriptedError(_Shape):
    """A failure of the API: an HTTP status, or a connection that drops. It happens once."""

    status: Annotated[int, Field(ge=400, le=599)] | None = None
    reset: Literal[True] | None = None
    retry_after: Annotated[float, Field(ge=0)] | None = None
    message: str = ""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.status is None) == (self.reset is None):
            raise ValueError("write either `status: <HTTP status>` or `reset: true`")
        return self


class Turn(_Shape):
    """One reply of the model: text, tool calls (with or without text), a structured answer, an error, or a repeat.

    `stop_reason` replaces the usual one (`tool_use` with tools, else `end_turn`): `refusal` and `max_tokens`, for
    example, test how a flow ends; with nothing beside it the reply is empty. `expect_step` is the id of the step that
    must be asking, `expect_prompt` holds what its newest prompt must contain.
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
            raise ValueError("`repeat` stands alone: it plays the turn before it again")
        if "error" in given and given != {"error"}:
            raise ValueError("`error` takes only `expect_step` and `expect_prompt` beside it")
        if "output" in given and given & {"text", "tools"}:
            raise ValueError("`output` is the whole answer: move `text` or `tools` to a turn of their own")
        if not given:
            raise ValueError("write one of `tools`, `output`, `text`, `error`, `repeat`")
        return self


class ScenarioIssue(_Shape):
    """The issue as the event would carry it."""

    number: _Positive
    title: str = ""
    body: str = ""
    author: str = ""
    url: str = ""
    labels: tuple[str, ...] = ()

    def to_issue(self) -> Issue:
        """The same as the run's own type."""
        return Issue(**self.model_dump())


class Expect(_Shape):
    """What `rehearse` compares; a key that is absent is not compared. A file given as null must not exist."""

    outcome: Outcome | None = None
    steps: tuple[str, ...] | None = None
    effects: tuple[EffectKind, ...] | None = None
    validators: dict[str, tuple[ValidatorWord, ...]] | None = None
    files: dict[_FilePath, str | None] | None = None


class Scenario(_Shape):
    """A whole file: the run's arguments, the replies in order (`turns`) or by step (`steps`), and what to expect."""

    params: dict[str, JsonValue] = Field(default_factory=dict)
    issue: ScenarioIssue | None = None
    turns: tuple[Turn, ...] | None = None
    steps: dict[str, tuple[Turn, ...]] | None = None
    expect: Expect | None = None

    @model_validator(mode="after")
    def _one_order(self) -> Self:
        if (self.turns is None) == (self.steps is None):
            raise ValueError("write either `turns` (a list) or `steps` (lists by step id)")
        for queue, turns in self.queues().items():
            if turns and turns[0].repeat:
                raise ValueError(f"`{queue}` begins with `repeat`, but there is no turn before it")
        return self

    def queues(self) -> dict[str, tuple[Turn, ...]]:
        """The lists of turns: by step id, or the one list under `turns`."""
        return dict(self.steps) if self.steps is not None else {"turns": self.turns or ()}


def scenario_schema() -> JsonObject:
    """JSON Schema of a scenario file."""
    schema: JsonObject = Scenario.model_json_schema()
    one_order: JsonValue = [{"required": ["turns"]}, {"required": ["steps"]}]
    head: JsonObject = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A stepflow scenario"}
    return published({**schema, **head, "oneOf": one_order})


def scenario_text(scenario: Scenario) -> str:
    """The YAML text of a scenario, for people to read and edit; reading it gives the same scenario."""
    return yaml_text(scenario.model_dump(mode="json", exclude_unset=True))


def yaml_text(data: JsonObject) -> str:
    """The YAML text of a part of a scenario."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """YAML in which texts of several lines stay readable."""


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    # Line breaks to YAML, though not to people: unquoted they would come back as others.
    if set(text) & {"\x85", "\u2028", "\u2029"}:
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text_node)
