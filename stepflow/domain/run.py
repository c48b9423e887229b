"""The facts of one run that are fixed before its first step: its issue, images, limits and start labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from stepflow.domain.json import JsonObject
from stepflow.domain.text import count
from stepflow.domain.words import FollowUpKind, StructuredOutput

#: Limits on the issue's images that the model is shown: how many, bytes per image, bytes in total, and pixels per side.
#: Every service accepts these: Anthropic's API and Bedrock take 5 MB of base64 per image and 8,000 pixels per side;
#: Bedrock, which has the lowest limit, takes 20 MB per request.
MOST_IMAGES = 10
LARGEST_IMAGE = 3_750_000
LARGEST_IMAGES = 10_000_000
LONGEST_SIDE = 8_000
#: The id that GitHub gives an attachment.
IMAGE_ID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
#: definition.md §8.4: this many schema failures in a row end the run.
MAX_STRIKES = 2


@dataclass(frozen=True, kw_only=True)
class Issue:
    """The issue as the event delivered it; never read again."""

    number: int
    title: str = ""
    body: str = ""
    author: str = ""
    url: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FollowUp:
    """The start of a follow-up run on a pull request that stepflow opened. `head` was the latest commit of its
    `branch`; `base` is the branch it merges into. The run is follow-up number `round` of those that may push to it.
    `threads` are the ids of the review threads that the run was shown."""

    kind: FollowUpKind
    pull_request: int
    url: str
    branch: str
    base: str
    head: str
    round: int = 1
    threads: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DiffLines:
    """Lines `first` to `last` of a file in the workspace that one part of a diff shows. Adding `shift` gives the lines
    in the pull request's own version of the file, which is another one if its base branch changed the file too."""

    first: int
    last: int
    shift: int = 0


@dataclass(frozen=True, kw_only=True)
class ReviewedFile:
    """The lines of a file that a comment can be on: those that its diff shows of the new version (`right`), and those
    that it shows as removed (`left`), which are counted as in the commit before the merge."""

    path: str
    right: tuple[DiffLines, ...] = ()
    left: tuple[DiffLines, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReviewedPull:
    """The pull request that a run reviews. The run starts from `merge`, the commit that merges `head` into the branch
    `base`, whose latest commit was `base_commit`."""

    number: int
    url: str
    author: str
    base: str
    base_commit: str
    head: str
    merge: str
    #: The head that the last review by the same agent was about; empty for its first one.
    reviewed_head: str = ""
    is_from_fork: bool = False
    #: What comments can be on, of all changed text files.
    files: tuple[ReviewedFile, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GuidanceFile:
    """A file of the repository's guidance. `bytes` is the size in UTF-8 of the text that the model is shown."""

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
    """An image that the issue's text or an included comment shows at `address`.

    The model is shown `data` (base64) unless there is a `problem`. `width` and `height` are in pixels.
    """

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
        """Return GitHub's id of the attachment; empty if the image is not attached there."""
        return next(reversed(IMAGE_ID.findall(self.address)), "")


@dataclass(frozen=True, kw_only=True)
class ToolImage:
    """An image returned by a tool. `data` is base64."""

    type: ImageType
    data: str


@dataclass(frozen=True, kw_only=True)
class ImagesRead:
    """The issue's images were read, as far as allowed. A resumed run shows the model these images."""

    images: list[IssueImage]
    event: Literal["images_read"] = "images_read"


def describe_unseen(images: Iterable[IssueImage]) -> str:
    """Describe how many images the model cannot see and why, without quoting the issue; empty if it sees all."""
    problems = Counter(image.problem for image in images if image.problem)
    if not problems:
        return ""
    said = "; ".join(f"{problem} ×{number}" if number > 1 else problem for problem, number in problems.items())
    number = problems.total()
    return f"{count(number, 'image')} of the issue {'was' if number == 1 else 'were'} not seen: {said}."


@dataclass(frozen=True, kw_only=True)
class StartedBy:
    """Who started a run: `actor` is a login, empty if unknown; `label` is the label that started the run, if one did.
    `from_github`: the issue came from the event or was read from GitHub; otherwise it came from an input."""

    actor: str = ""
    actor_is_bot: bool = False
    label: str | None = None
    default_branch: str = ""
    private: bool | None = None
    from_github: bool = False


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The caller's limits; None means no limit (flow.md §10)."""

    iterations: int
    #: How often one step may begin in a run.
    visits: int | None = None
    #: Model turns per iteration.
    turns: int | None = None
    tokens: int | None = None
    #: US dollars.
    usd: float | None = None
    #: Seconds since the epoch.
    deadline: float | None = None
    #: Cost of the other runs on the issue if `usd` is what they left of `limits.usd-per-issue`; otherwise None.
    spent_before: float | None = None
    #: Whether `usd` is the agent's own `maxUsd`, which is less than what the inputs allow.
    usd_by_agent: bool = False


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """The facts that a run depends on."""

    run_id: str
    limits: Limits
    #: Random delimiter of this run's untrusted context (prompts.md §7).
    nonce: str
    #: Absolute path of the repository.
    root: str = ""
    model: str | None = None
    #: `owner/name`, or empty.
    repository: str = ""
    issue: Issue | None = None
    #: The checked run arguments.
    args: JsonObject = field(default_factory=dict)
    #: Additional variables from the caller.
    variables: JsonObject = field(default_factory=dict)
    context_text: str = ""
    #: All images of the context, including those that the model cannot see.
    images: tuple[IssueImage, ...] = ()
    input_text: str | None = None
    #: The commit checked out at the start, or empty.
    base_commit: str = ""
    base_branch: str = ""
    #: Empty if the event does not name it.
    default_branch: str = ""
    #: Where commands start, relative to `root`.
    working_directory: str = "."
    #: Only `auto` lets the run switch strategies when the service ignores the current one.
    structured_output: StructuredOutput = StructuredOutput.NATIVE
    #: Set in a rehearsal: every step may begin without approval.
    approvals_given: bool = False
    follow_up: FollowUp | None = None
    reviewed: ReviewedPull | None = None


#: Placeholder for the agent's name in a pattern.
ANY_NAME = "*"


def name_in(label: str, pattern: str) -> str | None:
    """Return the part of `label` that matches `*` in `pattern`. It is in lower case, like the names of agents, because
    GitHub's labels are case-insensitive. Return an empty string for a pattern without `*`, and None if the label does
    not match."""
    label, pattern = label.casefold(), pattern.casefold()
    before, star, after = pattern.partition(ANY_NAME)
    if not star:
        return "" if label == pattern else None
    fits = label.startswith(before) and label.endswith(after) and len(label) > len(before) + len(after)
    return label[len(before) : len(label) - len(after)] if fits else None


def label_of(agent: str, pattern: str) -> str:
    """Return the label that starts the agent."""
    return pattern.replace(ANY_NAME, agent, 1)
