"""The facts of one run, fixed before its first step, and its limits."""

from __future__ import annotations

from dataclasses import dataclass, field

from stepflow.domain.figures import count
from stepflow.domain.json import JsonObject
from stepflow.domain.words import FollowUpKind, StructuredOutput

#: registry.md §8.4: this many schema failures in a row end the run.
MAX_STRIKES = 2


@dataclass(frozen=True, kw_only=True)
class Issue:
    """The issue as the event carried it; never read again later (security.md case 21)."""

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
    rehearsal `approvals_given` lets every step begin.
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
    input_text: str | None = None
    base_commit: str = ""
    base_branch: str = ""
    structured_output: StructuredOutput = StructuredOutput.NATIVE
    approvals_given: bool = False
    follow_up: FollowUp | None = None
