"""The method's fixed vocabularies (definition.md §2 and §5, flow.md §1 and §10), and the intents that each step kind
allows."""

from __future__ import annotations

from enum import StrEnum


class Intent(StrEnum):
    """The seven things that an answer may ask for (flow.md §1)."""

    NEXT = "next"
    REPEAT = "repeat"
    JUMP = "jump"
    HANDOFF = "handoff"
    CLOSING = "closing"
    ESCALATE = "escalate"
    ABORT = "abort"


class StepKind(StrEnum):
    """The purpose of a step (flow.md §1)."""

    WORK = "work"
    VERIFICATION = "verification"
    CLOSURE = "closure"


#: definition.md §5.2. `abort` is always allowed and need not be listed anywhere.
INTENTS_OF_KIND: dict[StepKind, frozenset[Intent]] = {
    StepKind.WORK: frozenset({Intent.NEXT, Intent.REPEAT, Intent.JUMP, Intent.HANDOFF}),
    StepKind.VERIFICATION: frozenset({Intent.NEXT, Intent.REPEAT, Intent.JUMP, Intent.ESCALATE}),
    StepKind.CLOSURE: frozenset({Intent.CLOSING, Intent.REPEAT}),
}
#: flow.md §5: synonyms that models use for intents, the same for every step kind.
INTENT_ALIASES = {
    "continue": Intent.NEXT,
    "pass": Intent.NEXT,
    "retry": Intent.REPEAT,
    "wait": Intent.REPEAT,
    "fail": Intent.REPEAT,
    "done": Intent.CLOSING,
    "finished": Intent.CLOSING,
}


class PermissionMode(StrEnum):
    """Tool permissions of a step (flow.md §14). Only `plan` makes a difference: it is read-only."""

    DEFAULT = "default"
    PLAN = "plan"
    ACCEPT_EDITS = "acceptEdits"
    BYPASS = "bypassPermissions"


class FollowUpKind(StrEnum):
    """What a follow-up run on a stepflow pull request responds to: review comments, or failed checks."""

    REVIEW = "review"
    CHECKS = "checks"


class VerdictType(StrEnum):
    """How to decide that an agent's work is finished (definition.md §2.4)."""

    POLL_STATE = "poll:state"
    COUNT_ITERATION = "count:iteration"
    COUNT_CHECK = "count:check"
    DETECT_KEYWORD = "detect:keyword"
    DETECT_STRUCTURED = "detect:structured"
    DETECT_GRAPH = "detect:graph"
    META_COMPOSITE = "meta:composite"


class Dialect(StrEnum):
    """The form in which a registry is written (definition.md §3). Both compile to the same graph."""

    GATE = "gate"
    CHECK = "check"


#: definition.md §6.3: the check dialect never executes more steps than this.
CHECK_DIALECT_LIMIT = 100


class ClosureAction(StrEnum):
    """What a closing answer may request for the issue (boundary.md)."""

    CLOSE = "close"
    LABEL_ONLY = "label-only"
    LABEL_AND_CLOSE = "label-and-close"


class CloseBy(StrEnum):
    """Whether the boundary closes the issue or the merge of the pull request does (boundary.md)."""

    AUTO = "auto"
    NOW = "now"
    MERGE = "merge"


class Provider(StrEnum):
    """The service that answers as the model."""

    ANTHROPIC = "anthropic"
    BEDROCK = "bedrock"
    VERTEX = "vertex"
    FOUNDRY = "foundry"
    SCRIPTED = "scripted"


class Isolation(StrEnum):
    """Whether a missing sandbox layer prevents the run or only causes a warning."""

    REQUIRED = "required"
    BEST_EFFORT = "best-effort"


class Network(StrEnum):
    """Whether tools and validators may use the network."""

    FULL = "full"
    NONE = "none"
    ALLOW = "allow"

    def narrowed_to(self, other: Network | None) -> Network:
        """Return the narrower of two; None narrows nothing."""
        return min(self, other or self, key=(Network.NONE, Network.ALLOW, Network.FULL).index)


class CanaryState(StrEnum):
    """The self-test's result for one place. `not here`: the place does not exist on this machine."""

    UNREACHED = "kept"
    REACHED = "reached"
    NOT_HERE = "not here"


class Permission(StrEnum):
    """A person's permission in a repository, in GitHub's terms, from lowest to highest."""

    NONE = "none"
    READ = "read"
    TRIAGE = "triage"
    WRITE = "write"
    MAINTAIN = "maintain"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """Return the rank of the permission; a higher permission has a higher rank."""
        return list(Permission).index(self)


class Strategy(StrEnum):
    """How to ask a model service for an answer that matches a schema: with the API's structured output or, if the
    service ignores that, with the schema in words."""

    NATIVE = "native"
    PROMPT = "prompt"


class StructuredOutput(StrEnum):
    """The strategy of a run. `auto` starts with the API's structured output and switches to words if the service
    ignores it."""

    AUTO = "auto"
    NATIVE = "native"
    PROMPT = "prompt"


#: Aliases for the newest model of each family.
MODEL_ALIASES = ("opus", "sonnet", "haiku", "fable")


class Effort(StrEnum):
    """How much effort a model may put into an answer, from least to most, in the API's terms
    (`output_config.effort`)."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


class Commits(StrEnum):
    """How the commits of a run get to GitHub: pushed by git, or created and signed by GitHub."""

    GIT = "git"
    VERIFIED = "verified"


class OnFailure(StrEnum):
    """What a run that did not complete leaves behind (boundary.md §6)."""

    COMMENT = "comment"
    PUSH_BRANCH = "push-branch"
    NOTHING = "nothing"


class Progress(StrEnum):
    """What shows a run's progress on its issue."""

    NOTHING = "nothing"
    COMMENT = "comment"


class StartEvent(StrEnum):
    """An event that starts the agent that the input `agent` names, where the input `start.events` lists it."""

    ISSUES_OPENED = "issues.opened"
    ISSUES_REOPENED = "issues.reopened"
    ISSUES_ASSIGNED = "issues.assigned"
    PULL_REQUEST_OPENED = "pull_request.opened"
    PULL_REQUEST_SYNCHRONIZE = "pull_request.synchronize"
    PULL_REQUEST_READY_FOR_REVIEW = "pull_request.ready_for_review"


class Allowance(StrEnum):
    """Actions that are forbidden unless the input `allow` names them."""

    SPEC_VIOLATIONS = "spec-violations"


class BaseChecks(StrEnum):
    """How to handle validators that fail before the first model call."""

    REQUIRE = "require"
    TELL = "tell"
    SKIP = "skip"


class FailureAction(StrEnum):
    """How to respond to a failed validator (flow.md §8.4)."""

    RETRY = "retry"
    ABORT = "abort"
    SKIP = "skip"


class Outcome(StrEnum):
    """How a run ended (flow.md §10). Only `completed` is a success."""

    COMPLETED = "completed"
    NO_CHANGES = "no_changes"
    BASE_FAILED = "base_failed"
    VALIDATION_FAILED = "validation_failed"
    ROUTING_FAILED = "routing_failed"
    SCHEMA_FAILED = "schema_failed"
    ABORTED = "aborted"
    AWAITING_APPROVAL = "awaiting_approval"
    LIMIT_REACHED = "limit_reached"
    BUDGET_EXHAUSTED = "budget_exhausted"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    MODEL_FAILED = "model_failed"
    MODEL_REFUSED = "model_refused"
    BOUNDARY_FAILED = "boundary_failed"
    REFUSED = "refused"
    SKIPPED = "skipped"
    MISCONFIGURED = "misconfigured"
    INVALID_DEFINITION = "invalid_definition"
    INTERNAL_ERROR = "internal_error"


#: Codes fixed by the seeds and used at run time (definition.md §9).
CODE_OF_OUTCOME: dict[Outcome, str] = {
    Outcome.ROUTING_FAILED: "FAILED_STEP_ROUTING",
    Outcome.SCHEMA_FAILED: "FAILED_SCHEMA_RESOLUTION",
}


class Stage(StrEnum):
    """The stage in which a run ended."""

    BEFORE = "Before the run"
    FLOW = "Flow loop"
    COMPLETION = "Completion loop"


def state_reason(stage: Stage, outcome: Outcome, reason: str) -> str:
    """Return the reason for a run's end, as in its result: the stage, the code of the outcome, and the cause."""
    code = CODE_OF_OUTCOME.get(outcome)
    return f"{stage}: {f'{code}: ' if code else ''}{reason}"


#: An outcome that is not listed exits with 1.
EXIT_CODES: dict[Outcome, int] = {
    Outcome.COMPLETED: 0,
    Outcome.NO_CHANGES: 0,
    Outcome.AWAITING_APPROVAL: 0,
    Outcome.SKIPPED: 0,
    Outcome.CANCELLED: 130,
    Outcome.MISCONFIGURED: 2,
    Outcome.INVALID_DEFINITION: 2,
    Outcome.INTERNAL_ERROR: 3,
}


def exit_code(outcome: Outcome) -> int:
    """Return the process exit code for an outcome."""
    return EXIT_CODES.get(outcome, 1)
