"""The method's closed vocabularies (definition.md §2 and §5, flow.md §1 and §10), and which intents fit which kind."""

from __future__ import annotations

from enum import StrEnum


class Intent(StrEnum):
    """The seven things an answer may ask for; no other exists (flow.md §1)."""

    NEXT = "next"
    REPEAT = "repeat"
    JUMP = "jump"
    HANDOFF = "handoff"
    CLOSING = "closing"
    ESCALATE = "escalate"
    ABORT = "abort"


class StepKind(StrEnum):
    """What a step is for (flow.md §1)."""

    WORK = "work"
    VERIFICATION = "verification"
    CLOSURE = "closure"


#: definition.md §5.2. `abort` is always allowed and need not be listed anywhere.
INTENTS_OF_KIND: dict[StepKind, frozenset[Intent]] = {
    StepKind.WORK: frozenset({Intent.NEXT, Intent.REPEAT, Intent.JUMP, Intent.HANDOFF}),
    StepKind.VERIFICATION: frozenset({Intent.NEXT, Intent.REPEAT, Intent.JUMP, Intent.ESCALATE}),
    StepKind.CLOSURE: frozenset({Intent.CLOSING, Intent.REPEAT}),
}


#: flow.md §5: words that models use for an intent, the same for every kind.
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
    """Tool permission of a step (flow.md §14); only `plan` differs: it is read-only."""

    DEFAULT = "default"
    PLAN = "plan"
    ACCEPT_EDITS = "acceptEdits"
    BYPASS = "bypassPermissions"


class FollowUpKind(StrEnum):
    """What a run on a pull request of ours goes on from: what reviewers say, or checks that failed."""

    REVIEW = "review"
    CHECKS = "checks"


class VerdictType(StrEnum):
    """How an agent's work is known to be finished (definition.md §2.4)."""

    POLL_STATE = "poll:state"
    COUNT_ITERATION = "count:iteration"
    COUNT_CHECK = "count:check"
    DETECT_KEYWORD = "detect:keyword"
    DETECT_STRUCTURED = "detect:structured"
    DETECT_GRAPH = "detect:graph"
    META_COMPOSITE = "meta:composite"
    META_CUSTOM = "meta:custom"


class Dialect(StrEnum):
    """Which form a registry was written in (definition.md §3). Both compile to the same graph."""

    GATE = "gate"
    CHECK = "check"


#: definition.md §6.3: more steps than this are never executed in the check dialect.
CHECK_DIALECT_LIMIT = 100


class ClosureAction(StrEnum):
    """What a closing answer may ask to do with the issue (boundary.md)."""

    CLOSE = "close"
    LABEL_ONLY = "label-only"
    LABEL_AND_CLOSE = "label-and-close"


class CloseBy(StrEnum):
    """Whether the boundary closes the issue itself or leaves that to the merge of the pull request (boundary.md)."""

    AUTO = "auto"
    NOW = "now"
    MERGE = "merge"


class Provider(StrEnum):
    """Who answers as the model."""

    ANTHROPIC = "anthropic"
    BEDROCK = "bedrock"
    VERTEX = "vertex"
    FOUNDRY = "foundry"
    SCRIPTED = "scripted"


class Isolation(StrEnum):
    """Whether a missing sandbox layer refuses the run or only warns."""

    REQUIRED = "required"
    BEST_EFFORT = "best-effort"


class Network(StrEnum):
    """Whether tools and validators may use the network."""

    FULL = "full"
    NONE = "none"
    ALLOW = "allow"


class CanaryState(StrEnum):
    """What became of a place that the self-test tried. `not here`: this machine has no such place."""

    UNREACHED = "kept"
    REACHED = "reached"
    NOT_HERE = "not here"


class Permission(StrEnum):
    """What somebody may do in a repository, in GitHub's words, from least to most."""

    NONE = "none"
    READ = "read"
    TRIAGE = "triage"
    WRITE = "write"
    MAINTAIN = "maintain"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """Grows with what is allowed."""
        return list(Permission).index(self)


class Strategy(StrEnum):
    """How a model service is asked for an answer that fits a schema: by the API's own structured output, or, where a
    service does not heed that, by the schema in words."""

    NATIVE = "native"
    PROMPT = "prompt"


class StructuredOutput(StrEnum):
    """Which strategy a run uses; `auto` begins with the first and moves on when the service does not heed it."""

    AUTO = "auto"
    NATIVE = "native"
    PROMPT = "prompt"


#: Names of models that stand for the newest of their kind.
MODEL_ALIASES = ("opus", "sonnet", "haiku", "fable")


class Effort(StrEnum):
    """How much a model may put into an answer, from least to most, in the API's words (`output_config.effort`)."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


class Commits(StrEnum):
    """How the commits of a run come to GitHub: pushed by git, or written and signed by GitHub itself."""

    GIT = "git"
    VERIFIED = "verified"


class OnFailure(StrEnum):
    """What a run that did not complete leaves behind (boundary.md §6)."""

    COMMENT = "comment"
    PUSH_BRANCH = "push-branch"
    NOTHING = "nothing"


class Allowance(StrEnum):
    """What is not done unless the input `allow` names it."""

    SPEC_VIOLATIONS = "spec-violations"
    CUSTOM_VERDICT = "custom-verdict"


class BaseChecks(StrEnum):
    """What becomes of validators that are red before the first model call."""

    REQUIRE = "require"
    TELL = "tell"
    SKIP = "skip"


class FailureAction(StrEnum):
    """What a red validator leads to (flow.md §8.4)."""

    RETRY = "retry"
    ABORT = "abort"
    SKIP = "skip"


class Outcome(StrEnum):
    """How a run ended (flow.md §10); `completed` is the only success."""

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
    """Where a run ended."""

    BEFORE = "Before the run"
    FLOW = "Flow loop"
    COMPLETION = "Completion loop"


def state_reason(stage: Stage, outcome: Outcome, reason: str) -> str:
    """The reason of a run's end as its result has it: where the run ended, the code of its outcome, and why."""
    code = CODE_OF_OUTCOME.get(outcome)
    return f"{stage}: {f'{code}: ' if code else ''}{reason}"


#: What is not listed exits with 1.
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
    """The process exit code of an outcome."""
    return EXIT_CODES.get(outcome, 1)
