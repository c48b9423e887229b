"""One conversation with a model in the Messages API's words. Content blocks stay JSON, as the API defines them;
images are recognized by their bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from operator import not_
from typing import Annotated, Literal

from pydantic import Field

from stepflow.domain.json import JsonObject
from stepflow.domain.run import LONGEST_SIDE, ImageProblem, ImageType, IssueImage, ToolImage
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
    """Tokens of one turn or of several. `input_tokens` excludes both cache counts, as in the API's billing."""

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
        """Return all input tokens, cached or not."""
        return self.input_tokens + self.cache_write_tokens + self.cache_read_tokens

    @property
    def total(self) -> int:
        """Return all tokens, input and output."""
        return self.tokens_in + self.output_tokens


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """A tool offered to the model: name, description, and the JSON schema of its input."""

    name: str
    description: str
    input_schema: JsonObject


@dataclass(frozen=True, kw_only=True)
class ToolUse:
    """A tool call requested by the model."""

    tool_use_id: str
    name: str
    input: JsonObject


@dataclass(frozen=True, kw_only=True)
class ToolCall(ToolUse):
    """A tool call was answered. `exit_code` is set only for `bash`; `seconds` is the duration. `denied`: the step may
    not use the tool, so nothing ran. `images` is omitted if empty."""

    output: str
    is_error: bool = False
    exit_code: int | None = None
    seconds: float = 0.0
    denied: bool = False
    images: Annotated[tuple[ToolImage, ...], Field(exclude_if=not_)] = ()
    event: Literal["tool_call"] = "tool_call"


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message. `role` is `user` or `assistant`; `content` holds the API's content blocks."""

    role: str
    content: tuple[JsonObject, ...]


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """Everything that one turn needs."""

    #: For accounting and scripted models, like `iteration`; not sent.
    step_id: str
    iteration: int
    #: An alias or an id.
    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    #: The schema that the final answer must match, or None.
    schema: JsonObject | None = None
    #: The longest that the call may take; None if the run has no deadline.
    seconds: float | None = None
    #: How to ask for the schema.
    strategy: Strategy = Strategy.NATIVE
    #: None leaves the choice to the service.
    effort: Effort | None = None
    #: The most tokens in one answer, including thinking; None uses the model port's default.
    max_output_tokens: int | None = None
    #: How many characters at the start of `system` are the same in every step, so that the service can cache them.
    cacheable: int = 0
    #: Ask the service to omit earlier thinking that it calls bound to a different conversation.
    drop_thinking: bool = False
    #: The previous answer was rejected; this request asks again with the schema in words. Not sent.
    corrects_in_words: bool = False


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The service's details of a refusal (Messages API, `stop_details`): the policy category, such as `cyber`, and an
    explanation for people. Either may be empty."""

    category: str = ""
    explanation: str = ""

    def __str__(self) -> str:
        what = f"as `{self.category}`" if self.category else "without naming a category"
        said = f": {self.explanation.strip()}" if self.explanation.strip() else ""
        return f"the model's safeguards refused this {what}{said}"


@dataclass(frozen=True, kw_only=True)
class ClearedResults:
    """Old tool results that the service dropped from a request to make room: how many, and their tokens."""

    results: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class ModelTurn:
    """The model answered one turn. `content` holds the API's content blocks. The last two fields are rarely set."""

    content: tuple[JsonObject, ...]
    stop_reason: StopReason
    usage: Usage = field(default_factory=Usage)
    #: None if the price is unknown.
    cost_usd: float | None = 0.0
    #: The id of the model that answered.
    model: str = ""
    #: How long the call took.
    seconds: float = 0.0
    #: Set only if the model refused.
    refusal: Annotated[Refusal | None, Field(exclude_if=not_)] = None
    #: What the service dropped from the request.
    cleared: Annotated[ClearedResults | None, Field(exclude_if=not_)] = None
    event: Literal["model_turn"] = "model_turn"

    @property
    def text(self) -> str:
        """Return the turn's text blocks, joined."""
        return "".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        """Return the tool calls that the turn requests, in order."""
        return tuple(_tool_use(block) for block in self.content if block.get("type") == "tool_use")


class Remedy(StrEnum):
    """A change to a refused request that alters nothing the model has already answered."""

    #: The conversation does not fit the model. A new one may fit.
    SHORTEN = "shorten"
    #: The service does not accept this schema, or any schema. Describe it in words.
    ASK_IN_WORDS = "ask_in_words"
    #: The service does not accept images, or not those in the last message.
    LEAVE_OUT_IMAGES = "leave_out_images"
    #: The service calls earlier thinking bound to a different conversation.
    DROP_THINKING = "drop_thinking"


@dataclass(frozen=True, kw_only=True)
class RequestAdapted:
    """A part of the request that the service does not accept was left out, and stays out of later requests to this
    model. `by_fault`: the service refused the call, so no turn answers it; otherwise its answer showed that it ignores
    that part."""

    model: str
    remedy: Remedy
    reason: str
    by_fault: bool
    event: Literal["request_adapted"] = "request_adapted"


@dataclass(frozen=True, kw_only=True)
class ModelFault:
    """A model call that produced no turn."""

    reason: str
    hint: str = ""
    #: The call is retried.
    transient: bool = False
    #: Seconds.
    retry_after: float | None = None
    #: What to change in the request, if a change may help.
    remedy: Remedy | None = None
    #: What the service reported before an answer broke off; it is billed all the same.
    usage: Usage = field(default_factory=Usage)
    #: None if the price of `usage` is unknown.
    cost_usd: float | None = 0.0


def _tool_use(block: JsonObject) -> ToolUse:
    arguments = block.get("input")
    return ToolUse(
        tool_use_id=str(block.get("id", "")),
        name=str(block.get("name", "")),
        input=arguments if isinstance(arguments, dict) else {},
    )


def text_block(text: str) -> JsonObject:
    """Build a text content block."""
    return {"type": "text", "text": text}


def image_block(image: IssueImage | ToolImage) -> JsonObject:
    """Build an image content block."""
    return {"type": "image", "source": {"type": "base64", "media_type": str(image.type), "data": image.data}}


def tool_result_block(call: ToolCall) -> JsonObject:
    """Build the content block that answers a tool call. The API refuses empty text, so a placeholder replaces it."""
    text = call.output or "(no output)"
    block: JsonObject = {
        "type": "tool_result",
        "tool_use_id": call.tool_use_id,
        "content": [text_block(text), *map(image_block, call.images)] if call.images else text,
    }
    return block | {"is_error": True} if call.is_error else block


IMAGE_LEFT_OUT = "[An image is left out here: the model's service does not take it.]"


def has_images(message: Message) -> bool:
    """Return whether a message contains an image, directly or in a tool result."""
    return without_images(message) != message


def without_images(message: Message) -> Message:
    """Return the message with each image replaced by a sentence."""
    return Message(role=message.role, content=tuple(map(_without_images, message.content)))


def _without_images(block: JsonObject) -> JsonObject:
    if block.get("type") == "image":
        return text_block(IMAGE_LEFT_OUT)
    inner = block.get("content")
    if not isinstance(inner, list):
        return block
    return {**block, "content": [_without_images(one) if isinstance(one, dict) else one for one in inner]}


@dataclass(frozen=True, kw_only=True)
class Substitution:
    """The position of a variable's value in a prompt, in characters from its start."""

    name: str
    start: int
    end: int


def inspect_image(data: bytes) -> tuple[ImageType, int, int] | ImageProblem:
    """Return the type, width and height of an image, read from its first bytes. Its name and its server's content type
    are ignored."""
    try:
        type_, width, height = next(_read_head(data))
    except (StopIteration, struct.error):
        return ImageProblem.NO_IMAGE
    if not (width and height):
        return ImageProblem.NO_IMAGE
    return ImageProblem.TOO_WIDE if max(width, height) > LONGEST_SIDE else (type_, width, height)


def _read_head(data: bytes) -> Iterator[tuple[ImageType, int, int]]:
    """Yield nothing for any other kind of file; raise `struct.error` if the file is truncated."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
        yield ImageType.PNG, *struct.unpack_from(">II", data, 16)
    elif data.startswith((b"GIF87a", b"GIF89a")):
        yield ImageType.GIF, *struct.unpack_from("<HH", data, 6)
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        yield from ((ImageType.WEBP, *sides) for sides in _webp_sides(data))
    elif data.startswith(b"\xff\xd8\xff"):
        yield from ((ImageType.JPEG, *sides) for sides in _jpeg_sides(data))


def _webp_sides(data: bytes) -> Iterator[tuple[int, int]]:
    """Read the width and height from the first chunk, which is lossy, lossless or extended (RFC 9649)."""
    match data[12:16]:
        case b"VP8 " if data[23:26] == b"\x9d\x01\x2a":
            width, height = struct.unpack_from("<HH", data, 26)
            yield width & 0x3FFF, height & 0x3FFF
        case b"VP8L" if data[20:21] == b"\x2f":
            (bits,) = struct.unpack_from("<I", data, 21)
            yield (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            width, high, height, higher = struct.unpack_from("<4xHBHB", data, 20)
            yield width + (high << 16) + 1, height + (higher << 16) + 1
        case _:
            pass


#: Markers of the segments that start a frame (ITU-T T.81, table B.1). Three markers in this range mean something else.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def _jpeg_sides(data: bytes) -> Iterator[tuple[int, int]]:
    """Read the width and height from the first frame."""
    at = 2
    while data[at : at + 1] == b"\xff":
        marker, length = struct.unpack_from(">BH", data, at + 1)
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            yield width, height
        # Any number of fill bytes may precede a segment.
        at += 1 if marker == 0xFF else 2 + length
