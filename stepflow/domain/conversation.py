"""One conversation with a model in the Messages API's words; content blocks stay JSON, as the API defines them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.run import IssueImage, ToolImage
from stepflow.domain.words import Effort, Strategy


class StopReason(StrEnum):
    """Why a turn ended, in the Messages API's words."""

    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    STOP_SEQUENCE = "stop_sequence"
    TOOL_USE = "tool_use"
    PAUSE_TURN = "pause_turn"
    REFUSAL = "refusal"
    CONTEXT_EXCEEDED = "model_context_window_exceeded"


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens of one turn or a sum of turns. `input_tokens` excludes the two cache figures, as the API bills them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
        )

    @property
    def tokens_in(self) -> int:
        """All tokens sent, cached or not."""
        return self.input_tokens + self.cache_write_tokens + self.cache_read_tokens

    @property
    def total(self) -> int:
        """All tokens, in and out."""
        return self.tokens_in + self.output_tokens


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """A tool that is offered to the model: name, description, JSON schema of its input."""

    name: str
    description: str
    input_schema: JsonObject


@dataclass(frozen=True, kw_only=True)
class ToolUse:
    """A tool call that the model asks for."""

    id: str
    name: str
    input: JsonObject


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """What a tool call gave. `exit_code` only for `bash`; `seconds` is how long it took."""

    tool_use_id: str
    text: str
    is_error: bool = False
    exit_code: int | None = None
    seconds: float = 0.0
    images: tuple[ToolImage, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message: `role` is `user` or `assistant`, `content` the API's content blocks."""

    role: str
    content: tuple[JsonObject, ...]


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """Everything one turn needs. `model` is an alias or id; `schema` is what the final answer must fit, or None.

    `step_id` and `iteration` are for accounting and for scripted models; they are not sent. `seconds` is the most that
    the call may take, None when the run has no deadline. `strategy` is how the schema is asked for. `cacheable`: how
    many characters at the beginning of `system` are the same in every step, so that the service can keep them.
    `drop_thinking`: the service shall leave out earlier thinking that it calls bound to a different conversation.
    `effort`: None leaves it to the service. `max_output_tokens`: the most of one answer, thinking included; None is the
    model port's own.
    `corrects_in_words`: the answer before was not accepted, and is asked for again by its schema in words; not sent.
    """

    step_id: str
    iteration: int
    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    schema: JsonObject | None = None
    seconds: float | None = None
    strategy: Strategy = Strategy.NATIVE
    effort: Effort | None = None
    max_output_tokens: int | None = None
    cacheable: int = 0
    drop_thinking: bool = False
    corrects_in_words: bool = False


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """What the service says of a refusal (Messages API, `stop_details`): the policy's category, such as `cyber`, and an
    explanation for people; either may be empty."""

    category: str = ""
    explanation: str = ""

    def __str__(self) -> str:
        what = f"as `{self.category}`" if self.category else "without naming a category"
        said = f": {self.explanation.strip()}" if self.explanation.strip() else ""
        return f"the model's safeguards refused this {what}{said}"


@dataclass(frozen=True, kw_only=True)
class ClearedResults:
    """Old results of tools that the service left out of a request to make room, and the tokens that they had."""

    results: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class ModelTurn:
    """One answer of the model. `model` is the id that answered, `cost_usd` None when its price is unknown; `refusal`
    only where the model refused; `cleared` what the service left out of the request. `near_price_step`: the next
    request of this conversation may be so long that the service charges more for each of its tokens."""

    content: tuple[JsonObject, ...]
    stop_reason: StopReason
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    model: str = ""
    refusal: Refusal | None = None
    cleared: ClearedResults | None = None
    near_price_step: bool = False

    @property
    def text(self) -> str:
        """The turn's text blocks, joined."""
        return "".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        """The tool calls that the turn asks for, in order."""
        return tuple(_tool_use(block) for block in self.content if block.get("type") == "tool_use")


class Remedy(StrEnum):
    """What of a refused request can be changed without changing what the model has answered to."""

    #: The conversation does not fit the model; a new one may.
    SHORTEN = "shorten"
    #: The service takes no schema, or not this one: words may do.
    ASK_IN_WORDS = "ask_in_words"
    #: The service takes no images, or not those of the last message.
    LEAVE_OUT_IMAGES = "leave_out_images"
    #: The service calls earlier thinking bound to a different conversation.
    DROP_THINKING = "drop_thinking"


@dataclass(frozen=True, kw_only=True)
class RequestAdapted:
    """What the service does not take was left out of the request, and stays out of this model's later ones.
    `by_fault`: the service refused the call, so no turn answers it; else its answer showed that it does not heed it."""

    model: str
    remedy: Remedy
    reason: str
    by_fault: bool
    event: Literal["request_adapted"] = "request_adapted"


@dataclass(frozen=True, kw_only=True)
class ModelFault:
    """A model call that gave no turn. `transient` ones are tried again; `retry_after` in seconds. `remedy`: what of
    the request to change, where that may help. An answer that had begun is paid for all the same: `usage` is what the
    service reported until it broke off, `cost_usd` None when its price is unknown."""

    reason: str
    hint: str = ""
    transient: bool = False
    retry_after: float | None = None
    remedy: Remedy | None = None
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0


def _tool_use(block: JsonObject) -> ToolUse:
    arguments = block.get("input")
    return ToolUse(
        id=str(block.get("id", "")),
        name=str(block.get("name", "")),
        input=arguments if isinstance(arguments, dict) else {},
    )


def text_block(text: str) -> JsonObject:
    """A text content block."""
    return {"type": "text", "text": text}


def image_block(image: IssueImage | ToolImage) -> JsonObject:
    """An image content block."""
    return {"type": "image", "source": {"type": "base64", "media_type": str(image.type), "data": image.data}}


def tool_result_block(result: ToolResult) -> JsonObject:
    """The content block that answers a tool call. The API refuses an empty text, so one says so."""
    text = result.text or "(no output)"
    block: JsonObject = {
        "type": "tool_result",
        "tool_use_id": result.tool_use_id,
        "content": [text_block(text), *map(image_block, result.images)] if result.images else text,
    }
    return block | {"is_error": True} if result.is_error else block


IMAGE_LEFT_OUT = "[An image is left out here: the model's service does not take it.]"


def has_images(message: Message) -> bool:
    """Whether a message shows an image, in itself or in the result of a tool."""
    return any(_is_image(block) for block in _nested_blocks(message.content))


def without_images(message: Message) -> Message:
    """The message with a sentence in the place of each image."""
    return Message(role=message.role, content=tuple(map(_without_images, message.content)))


def _is_image(block: JsonValue) -> bool:
    return isinstance(block, dict) and block.get("type") == "image"


def _nested_blocks(blocks: Iterable[JsonValue]) -> Iterator[JsonValue]:
    for block in blocks:
        yield block
        if isinstance(block, dict) and isinstance(inner := block.get("content"), list):
            yield from _nested_blocks(inner)


def _without_images(block: JsonObject) -> JsonObject:
    if _is_image(block):
        return text_block(IMAGE_LEFT_OUT)
    inner = block.get("content")
    if not isinstance(inner, list):
        return block
    return {**block, "content": [_without_images(one) if isinstance(one, dict) else one for one in inner]}


@dataclass(frozen=True, kw_only=True)
class Substitution:
    """Where the value of a variable stands in a prompt, in characters from its beginning."""

    name: str
    start: int
    end: int
