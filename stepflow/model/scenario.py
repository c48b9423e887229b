"""Scenario files (cli.md): what a scripted model answers, as YAML that people write and `--record` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from stepflow.definition.safe_files import FileRefused, read_below
from stepflow.definition.yaml_text import YamlFault, read_yaml
from stepflow.domain.conversation import StopReason
from stepflow.domain.effect import EffectKind
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.run import Issue
from stepflow.domain.words import Outcome
from stepflow.errors import InputError

if TYPE_CHECKING:
    from os import PathLike

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
        for place, turns in self.queues().items():
            if turns and turns[0].repeat:
                raise ValueError(f"`{place}` begins with `repeat`, but there is no turn before it")
        return self

    def queues(self) -> dict[str, tuple[Turn, ...]]:
        """The lists of turns: by step id, or the one list under `turns`."""
        return dict(self.steps) if self.steps is not None else {"turns": self.turns or ()}


def scenario_schema() -> JsonObject:
    """JSON Schema of a scenario file."""
    schema: JsonObject = Scenario.model_json_schema()
    one_order: JsonValue = [{"required": ["turns"]}, {"required": ["steps"]}]
    head: JsonObject = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A stepflow scenario"}
    return {**schema, **head, "oneOf": one_order}


MAX_BYTES = 4 * 1024 * 1024
_HINT = (
    "A scenario has `turns` or `steps`, and may have `params`, `issue` and `expect`; a turn has `tools`, `output`, "
    "`text`, `error` or `repeat`, and may have `expect_step` and `expect_prompt`."
)


def load_scenario(path: str | PathLike[str], *, root: Path | None = None) -> Scenario:
    """Read a scenario file. Every problem is named with its line and place in one `InputError`."""
    return parse_scenario(read_scenario(path, root=root), name=str(path))


def read_scenario(path: str | PathLike[str], *, root: Path | None = None) -> str:
    """The text of a scenario file. Below `root` no symbolic link is followed, and a relative path must stay there."""
    place = Path(root or "", path)
    base = root if root and place.is_relative_to(root) else place.parent
    try:
        return read_below(base, place.relative_to(base), limit=MAX_BYTES).decode("utf-8")
    except FileRefused as exc:
        raise InputError(
            f"The scenario {path} {exc.message}.",
            hint="Give `scenario` the path of a YAML file in the repository, seen from the working directory: the file "
            "itself, reached through no symbolic link.",
        ) from exc
    except UnicodeDecodeError as exc:
        raise InputError(f"The scenario {path} is not UTF-8 text.", hint="Save it as UTF-8.") from exc


def parse_scenario(text: str, *, name: str = "scenario") -> Scenario:
    """The scenario in a text; `name` is what messages call it."""
    try:
        node, data = _read(text)
    except YamlFault as exc:
        place = f"{name}:{exc.line}" if exc.line else name
        raise InputError(f"{place}: this cannot be read as YAML: {exc.problem}.", hint=_HINT) from exc
    try:
        return Scenario.model_validate_json(data)
    except ValidationError as exc:
        problems = [_problem(error["loc"], error["msg"], node, name) for error in exc.errors()]
        raise InputError("\n".join(problems), hint=_HINT) from exc


def read_node(text: str) -> yaml.Node | None:
    """The nodes of a text that can be read, with their places in it."""
    return _read(text)[0]


def place_of(text: str, *keys: str) -> int:
    """The 1-based line where the value of these keys begins, as far as they lead; 1 for a text that is no YAML."""
    try:
        return _line(_read(text)[0], keys)
    except YamlFault:
        return 1


def scenario_text(scenario: Scenario) -> str:
    """The YAML text of a scenario, for people to read and edit; reading it gives the same scenario."""
    data = scenario.model_dump(mode="json", exclude_unset=True)
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


def _read(text: str) -> tuple[yaml.Node | None, str]:
    """The nodes, for their lines, and the data as JSON, so that nothing is left in it that only YAML knows."""
    node, data = read_yaml(text)
    try:
        return node, json.dumps({} if node is None else data, default=str)
    except (ValueError, TypeError) as exc:
        raise YamlFault(str(exc)) from exc


def _problem(loc: tuple[int | str, ...], message: str, node: yaml.Node | None, name: str) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")
    said = message.removeprefix("Value error, ")
    return f"{name}:{_line(node, loc)}: {f'{place}: ' if place else ''}{said}."


def _line(node: yaml.Node | None, loc: tuple[int | str, ...]) -> int:
    """The 1-based line of the innermost node that the place leads to."""
    line = node.start_mark.line if node else 0
    for part in loc:
        node = _child(node, part)
        if node is None:
            break
        line = node.start_mark.line
    return line + 1


def _child(node: yaml.Node | None, part: int | str) -> yaml.Node | None:
    match node:
        case yaml.SequenceNode() if isinstance(part, int) and part < len(node.value):
            found: yaml.Node = node.value[part]
            return found
        case yaml.MappingNode():
            return next((value for key, value in node.value if key.value == str(part)), None)
        case _:
            return None
