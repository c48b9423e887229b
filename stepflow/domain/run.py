"""The facts of one run, fixed before its first step: its issue and images, its limits, and the labels that start it."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from stepflow.domain.json import JsonObject
from stepflow.domain.text import count
from stepflow.domain.words import FollowUpKind, StructuredOutput

#: What the model is shown of an issue's images at most: so many, of so many bytes each and in all, of so many pixels a
#: side. Every service takes that: Anthropic's API and Bedrock 5 MB of base64 for an image and 8,000 pixels a side, and
#: Bedrock, which allows least, 20 MB for a request.
MOST_IMAGES = 10
LARGEST_IMAGE = 3_750_000
LARGEST_IMAGES = 10_000_000
LONGEST_SIDE = 8_000
#: By what GitHub calls an attachment.
IMAGE_ID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
#: definition.md §8.4: this many schema failures in a row end the run.
MAX_STRIKES = 2


@dataclass(frozen=True, kw_only=True)
class Issue:
    """The issue as the event carried it; never read again later."""

    number: int
    title: str = ""
    body: str = ""
    author: str = ""
    url: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FollowUp:
    """What a run on a pull request of ours goes on from. `head` is the commit that its `branch` stood at, `base` the
    branch that it goes to; the run is the `round`th follow-up that may push to it, and was shown the review `threads`
    with these ids."""

    kind: FollowUpKind
    pull_request: int
    url: str
    branch: str
    base: str
    head: str
    round: int = 1
    threads: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GuidanceFile:
    """A file of the repository's guidance, and how many bytes of UTF-8 the model is shown of it."""

    file: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.file} ({count(self.bytes, 'byte')})"


class ImageType(StrEnum):
    """The kinds of images that models take (Messages API, "Vision")."""

    PNG = "image/png"
    JPEG = "image/jpeg"
    GIF = "image/gif"
    WEBP = "image/webp"


class ImageProblem(StrEnum):
    """Why the model does not see an image."""

    NO_TOKEN = "there is no `read-token`"  # noqa: S105 - a reason
    ELSEWHERE = "not attached on GitHub"
    LED_AWAY = "its address leads to another host"
    FAILED = "GitHub did not give it"
    NO_IMAGE = "not a PNG, JPEG, GIF or WebP"
    TOO_LARGE = f"larger than {LARGEST_IMAGE / 1_000_000:g} MB"
    TOO_WIDE = f"more than {LONGEST_SIDE:,} pixels wide or high"
    TOO_MANY = f"after the first {MOST_IMAGES}"
    TOO_MUCH = f"beyond {LARGEST_IMAGES // 1_000_000} MB in all"


@dataclass(frozen=True, kw_only=True)
class IssueImage:
    """An image that the issue's text, or a comment that joins it, shows at this address. The model is shown its `data`,
    in base64, unless there is a `problem`; `width` and `height` in pixels."""

    address: str
    problem: ImageProblem | None = None
    type: ImageType | None = None
    width: int = 0
    height: int = 0
    data: str = ""

    def __str__(self) -> str:
        what = self.problem or f"{self.type}, {self.width:,} × {self.height:,} pixels"
        return f"{self.address}: {what}"

    @property
    def id(self) -> str:
        """What GitHub calls it; empty for what is not attached there."""
        return next(reversed(IMAGE_ID.findall(self.address)), "")


@dataclass(frozen=True, kw_only=True)
class ToolImage:
    """An image that a tool gave; `data` in base64."""

    type: ImageType
    data: str


@dataclass(frozen=True, kw_only=True)
class ImagesRead:
    """The images of the issue were read, as far as that may be: a run that goes on shows the model these."""

    images: list[IssueImage]
    event: Literal["images_read"] = "images_read"


def describe_unseen(images: Iterable[IssueImage]) -> str:
    """How many images the model does not see, and why, in words of ours; empty when it sees all."""
    problems = Counter(image.problem for image in images if image.problem)
    if not problems:
        return ""
    said = "; ".join(f"{problem} ×{number}" if number > 1 else problem for problem, number in problems.items())
    number = problems.total()
    return f"{count(number, 'image')} of the issue {'was' if number == 1 else 'were'} not seen: {said}."


@dataclass(frozen=True, kw_only=True)
class StartedBy:
    """Who started a run: a login, empty when nobody is known, and the label that did it, if one did. The issue came
    `from_github`: in the event, or read there; else from an input."""

    actor: str = ""
    actor_is_bot: bool = False
    label: str | None = None
    default_branch: str = ""
    private: bool | None = None
    from_github: bool = False


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The caller's limits; None means none (flow.md §10). `deadline` is in seconds since the epoch, `usd` in dollars.

    `visits` bounds how often one step may be begun in a run, `turns` the model turns of one iteration. `spent_before`
    is what other runs on the issue have cost when `usd` is what they left of `budget-usd-per-issue`, else None.
    """

    iterations: int
    visits: int | None = None
    turns: int | None = None
    tokens: int | None = None
    usd: float | None = None
    deadline: float | None = None
    spent_before: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What a run is bound to. `args` are the checked run arguments, `variables` what the caller gives beside them.

    `repository` is `owner/name` or empty, `base_commit` the commit checked out at the start or empty, `nonce` the
    random delimiter of this run's untrusted context (prompts.md §7). `root` is the repository's absolute path. Only
    with `auto` does the run move on from a way of asking for structured output that the service does not heed. In a
    rehearsal `approvals_given` lets every step begin. `images` are those of the context, seen or not.
    `default_branch` is empty where the event did not say it. Commands start in the `working_directory`, relative to
    the root.
    """

    run_id: str
    limits: Limits
    nonce: str
    root: str = ""
    model: str | None = None
    repository: str = ""
    issue: Issue | None = None
    args: JsonObject = field(default_factory=dict)
    variables: JsonObject = field(default_factory=dict)
    context_text: str = ""
    images: tuple[IssueImage, ...] = ()
    input_text: str | None = None
    base_commit: str = ""
    base_branch: str = ""
    default_branch: str = ""
    working_directory: str = "."
    structured_output: StructuredOutput = StructuredOutput.NATIVE
    approvals_given: bool = False
    follow_up: FollowUp | None = None


#: Stands for the agent's name in a pattern.
ANY_NAME = "*"


def name_in(label: str, pattern: str) -> str | None:
    """What a `label` has where the `pattern` has `*`, in lower case, as agents are named and because GitHub's labels do
    not differ by case alone; empty for a pattern without one, None where it does not fit."""
    label, pattern = label.casefold(), pattern.casefold()
    before, star, after = pattern.partition(ANY_NAME)
    if not star:
        return "" if label == pattern else None
    fits = label.startswith(before) and label.endswith(after) and len(label) > len(before) + len(after)
    return label[len(before) : len(label) - len(after)] if fits else None


def label_of(agent: str, pattern: str) -> str:
    """The label that starts the agent."""
    return pattern.replace(ANY_NAME, agent, 1)


def inspect_image(data: bytes) -> tuple[ImageType, int, int] | ImageProblem:
    """What a file is by its first bytes, whatever its name or its server says: its type, width and height."""
    try:
        type_, width, height = next(_read_head(data))
    except (StopIteration, struct.error):
        return ImageProblem.NO_IMAGE
    if not (width and height):
        return ImageProblem.NO_IMAGE
    return ImageProblem.TOO_WIDE if max(width, height) > LONGEST_SIDE else (type_, width, height)


def _read_head(data: bytes) -> Iterator[tuple[ImageType, int, int]]:
    """Nothing for another file; raises `struct.error` for one that ends too early."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
        yield ImageType.PNG, *struct.unpack_from(">II", data, 16)
    elif data.startswith((b"GIF87a", b"GIF89a")):
        yield ImageType.GIF, *struct.unpack_from("<HH", data, 6)
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        yield from ((ImageType.WEBP, *sides) for sides in _webp_sides(data))
    elif data.startswith(b"\xff\xd8\xff"):
        yield from ((ImageType.JPEG, *sides) for sides in _jpeg_sides(data))


def _webp_sides(data: bytes) -> Iterator[tuple[int, int]]:
    """RFC 9649: of the first chunk, which is lossy, lossless or extended."""
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


#: The segments in which a frame begins (ITU-T T.81, table B.1): three of this range are others.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def _jpeg_sides(data: bytes) -> Iterator[tuple[int, int]]:
    """Of the first frame."""
    at = 2
    while data[at : at + 1] == b"\xff":
        marker, length = struct.unpack_from(">BH", data, at + 1)
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            yield width, height
        # Any number of bytes may fill the room before a segment.
        at += 1 if marker == 0xFF else 2 + length
