"""A loaded agent: one frozen object that holds everything a run needs from the agent's files (definition.md §7).

Both dialects of the registry compile to the same graph of steps. Later changes on disk have no effect on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from stepflow.domain.agent.agent_settings import (
    BASH,
    KNOWN_TOOL_NAMES,
    READ_ONLY_TOOLS,
    TOOL_SPECS_BY_NAME,
    GitHubSettings,
    Ladder,
    McpServer,
    Parameter,
    Rung,
    Skill,
    StepCommand,
    VerdictConfig,
    mcp_name,
)
from stepflow.domain.agent.validation import Validator
from stepflow.domain.conversation import ToolSpec
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.run import GuidanceFile, Limits
from stepflow.domain.text import count
from stepflow.domain.words import (
    CHECK_DIALECT_LIMIT,
    Dialect,
    Effort,
    FailureAction,
    FollowUpKind,
    Intent,
    Network,
    Permission,
    PermissionMode,
    StepKind,
    VerdictType,
)
from stepflow.errors import Problem, Severity


@dataclass(frozen=True, kw_only=True)
class SourceText:
    """A text as loaded and normalized (prompts.md §2). `file` is its origin, for messages. For a shipped template,
    `template` is its key and `file` its name inside the package."""

    text: str
    file: str
    template: str | None = None


def guidance_files(texts: Iterable[SourceText]) -> list[GuidanceFile]:
    """Return the files of these texts, with the number of bytes shown from each."""
    return [GuidanceFile(file=text.file, bytes=len(text.text.encode())) for text in texts]


@dataclass(frozen=True, kw_only=True)
class StepInput:
    """One entry of a step's `inputs`: variable `name` takes its value from `key` in the handoff of step `step_id`
    (prompts.md §6.3)."""

    name: str
    step_id: str
    key: str
    required: bool = False
    default: JsonValue = None


@dataclass(frozen=True, kw_only=True)
class StepPrompt:
    """A step's own prompt, and the template to use if a variable is missing (prompts.md §5).

    `names` are the variables that only this step can have. These and those of the agent make `{{NAME}}` and `{NAME}`
    placeholders.
    """

    source: SourceText
    fallback: SourceText | None = None
    fallback_key: str | None = None
    variables: tuple[str, ...] = ()
    inputs: tuple[StepInput, ...] = ()
    uses_stdin: bool = False
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Gate:
    """How to read an intent from an answer (definition.md §5.3). Unless `fail_fast` is set, an unreadable intent
    becomes `fallback_intent`, which the loader has already resolved."""

    allowed: tuple[Intent, ...]
    intent_field: str
    target_field: str | None = None
    handoff_fields: tuple[str, ...] = ()
    fail_fast: bool = True
    fallback_intent: Intent | None = None
    lists_abort: bool = False


@dataclass(frozen=True, kw_only=True)
class Target:
    """A transition to one step. None ends the flow (closing) or stays at the step (repeat)."""

    step_id: str | None


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A transition chosen by the value of `condition` in the handoff of this answer (flow.md §6.2)."""

    condition: str
    targets: Mapping[str, str]
    default: str | None


Transition = Target | Branch


@dataclass(frozen=True, kw_only=True)
class OutcomeRule:
    """One possible consequence of a check's outcome. `transition` is its name in the history (flow.md §7).

    The rule applies while the step has run fewer than `runs_below` times in this visit, including this run, and a
    `retry` has sent it back fewer than `retries_below` times. None means no limit.
    """

    intent: Intent
    transition: str
    target: str | None = None
    runs_below: int | None = None
    retries_below: int | None = None

    def holds(self, *, runs: int, retries: int) -> bool:
        """Return whether the rule applies after this many runs and retries in the visit."""
        return (self.runs_below is None or runs < self.runs_below) and (
            self.retries_below is None or retries < self.retries_below
        )


@dataclass(frozen=True, kw_only=True)
class StepCheck:
    """How to decide whether a step passed, and what to do next. The first rule that applies is used.

    `prompt` asks a second question in the same conversation. Without it, `result` is read from the step's own answer.
    An answer without a readable result fails if `is_demanded` is set, and passes otherwise.
    """

    on_pass: tuple[OutcomeRule, ...]
    on_fail: tuple[OutcomeRule, ...]
    prompt: StepPrompt | None = None
    is_demanded: bool = False
    handoff_keys: tuple[str, ...] = ()

    @property
    def rules(self) -> tuple[OutcomeRule, ...]:
        """Return all rules, starting with those for a pass."""
        return (*self.on_pass, *self.on_fail)


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One validator of an entry, with the values for `${key}` in its command."""

    validator: Validator
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ValidationEntry:
    """The checks to run when a closure step says `closing` (definition.md §5.7).

    `retry_prompts` maps the name of a failure pattern to its retry prompt. `any_retry_prompt` is `f_failed.md`
    (prompts.md §9.1).
    """

    id: str
    conditions: tuple[Condition, ...]
    action: FailureAction = FailureAction.RETRY
    max_attempts: int = 3
    schema: JsonObject | None = None
    retry_prompts: Mapping[str, SourceText] = field(default_factory=dict)
    any_retry_prompt: SourceText | None = None


@dataclass(frozen=True, kw_only=True)
class Step:
    """One node of the compiled graph (definition.md §7).

    `gate` or `check` determines the intent. With neither, in an ungated registry, the verdict drives the flow.
    """

    id: str
    name: str
    #: None only in an ungated registry.
    kind: StepKind | None
    initial: bool = False
    #: None for a command step.
    prompt: StepPrompt | None = None
    schema: JsonObject | None = None
    gate: Gate | None = None
    check: StepCheck | None = None
    #: Every transition, defaults included. An intent without an entry has no target.
    edges: Mapping[Intent, Transition] = field(default_factory=dict)
    format_retries: int = 2
    #: The step's own models, like `fallback`.
    models: tuple[Rung, ...] = ()
    fallback: Rung | None = None
    #: For rungs that specify none.
    effort: Effort | None = None
    max_output_tokens: int | None = None
    permission_mode: PermissionMode | None = None
    validation: ValidationEntry | None = None
    command: StepCommand | None = None
    #: Additional variables for handed-off keys, besides `<id>_<key>` (prompts.md §6.2).
    aliases: Mapping[str, str] = field(default_factory=dict)
    #: The run ends before this step until a person with the permission approves it.
    approval: Permission | None = None
    #: The same, before a transition with one of these names.
    approvals: Mapping[str, Permission] = field(default_factory=dict)
    #: Shown in addition to the agent's guidance.
    guidance: tuple[SourceText, ...] = ()
    #: All tools that the step may use, MCP tools included. None means all tools that the agent allows, without MCP
    #: tools.
    tools: tuple[str, ...] | None = None
    #: The steps that may come right after it.
    following: tuple[str, ...] = ()
    #: Why the step may break the rule of two; empty if it may not.
    accepts_risk: str = ""


@dataclass(frozen=True, kw_only=True)
class AgentVerdict:
    """The agent's completion type (definition.md §2.4)."""

    type: VerdictType
    #: The agent's own limits.
    limits: Limits
    config: VerdictConfig = field(default_factory=VerdictConfig)


DEFAULT_MODEL = "opus"


@dataclass(frozen=True, kw_only=True)
class AgentDefinition:
    """A valid agent."""

    name: str
    version: str
    display_name: str
    description: str
    #: Relative to the repository root.
    folder: str
    dialect: Dialect
    #: SHA-256 over the names and contents of every file that was read (definition.md §1).
    digest: str
    #: Flow steps by id, in file order.
    steps: Mapping[str, Step]
    #: Where a run begins; `entry_steps` may name another step for a kind of follow-up.
    entry_step: str
    verdict: AgentVerdict
    system_prompt: SourceText
    #: Prompt fragments by id.
    sections: Mapping[str, SourceText] = field(default_factory=dict)
    #: The variables that every prompt may name.
    variables: frozenset[str] = frozenset()
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    models: tuple[Rung, ...] = (Rung(model=DEFAULT_MODEL),)
    fallback: Rung | None = None
    #: The rungs that a policy leaves, each with the effort that it has in its step. None means all.
    allowed_rungs: frozenset[Rung] | None = None
    #: None means all.
    allowed_tools: frozenset[str] | None = None
    permission_mode: PermissionMode = PermissionMode.ACCEPT_EDITS
    #: The most that tools may reach; None means that the input `network` decides.
    network: Network | None = None
    #: The most that a run may cost, in US dollars; None means that the input `limits` decides.
    max_usd: float | None = None
    #: Whether people without write access may start it, too.
    anyone_may_start: bool = False
    #: Patterns of committed files that `setup` reads, beside manifests, and of ignored files that checks build.
    setup_reads: tuple[str, ...] = ()
    keep_for_checks: tuple[str, ...] = ()
    github: GitHubSettings = field(default_factory=GitHubSettings)
    #: Warnings and notes from loading.
    problems: tuple[Problem, ...] = ()
    entry_steps: Mapping[FollowUpKind, str] = field(default_factory=dict)
    #: The repository's instructions for contributors; file names are relative to its root.
    guidance: tuple[SourceText, ...] = ()
    #: The repository's instructions that a model reads on request.
    skills: tuple[Skill, ...] = ()
    #: With the tools that their lock files pin.
    mcp_servers: tuple[McpServer, ...] = ()

    @property
    def all_guidance(self) -> tuple[SourceText, ...]:
        """Return the guidance that any step is shown, each file once."""
        of_steps = (text for step in self.steps.values() for text in step.guidance)
        return tuple(dict.fromkeys((*self.guidance, *of_steps)))

    @property
    def validators(self) -> tuple[Validator, ...]:
        """Return every validator that a run may start."""
        entries = (step.validation for step in self.steps.values() if step.validation)
        return tuple(condition.validator for entry in entries for condition in entry.conditions)

    @property
    def gated(self) -> bool:
        """Return True if answers or checks drive the flow; False if the verdict does (definition.md §5)."""
        return any(step.gate or step.check for step in self.steps.values())

    def ladder_of(self, step: Step, chosen: str | None) -> Ladder:
        """Return the step's ladder: its own models, or the one `chosen` for the run, or the agent's; then the fallback
        of the step or of the agent."""
        rungs = step.models or ((Rung(model=chosen),) if chosen else self.models)
        fallback = step.fallback or self.fallback
        if fallback and fallback.model not in {rung.model for rung in rungs}:
            rungs = (*rungs, fallback)
        if self.allowed_rungs is not None and step.command is None:
            rungs = tuple(
                rung for rung in rungs if replace(rung, effort=rung.effort or step.effort) in self.allowed_rungs
            )
        return Ladder(owner=step.id if step.models or step.fallback else "", rungs=rungs)

    def ladders(self, chosen: str | None) -> dict[str, Ladder]:
        """Return the ladder of each step that asks a model, by step id."""
        return {step.id: self.ladder_of(step, chosen) for step in self.steps.values() if step.command is None}

    def entry_for(self, kind: FollowUpKind | None) -> str:
        """Return the id of the step where a follow-up of this kind begins; None means that the run is not a
        follow-up."""
        return self.entry_steps.get(kind, self.entry_step) if kind else self.entry_step

    def cap(self, iterations: int) -> int:
        """Return `iterations`, or the dialect's limit if it is lower (definition.md §6.3)."""
        return min(iterations, CHECK_DIALECT_LIMIT) if self.dialect is Dialect.CHECK else iterations


def effective_tools(agent: AgentDefinition, step: Step, working_directory: str = ".") -> Mapping[str, ToolSpec]:
    """Return the tools that a step's model is offered, by their names in definitions (flow.md §14). Built-in tools come
    first, in the order of `TOOL_SPECS`, then MCP tools in the order of their servers.

    A step of any kind may have any tool; no tool holds a token. Unknown names are ignored.
    """
    pinned = {
        mcp_name(server.name, tool.name): server.spec_of(tool) for server in agent.mcp_servers for tool in server.tools
    }
    named = KNOWN_TOOL_NAMES if agent.allowed_tools is None else KNOWN_TOOL_NAMES & agent.allowed_tools
    if step.tools is not None:
        named = (named | pinned.keys()) & {*step.tools}
    if (step.permission_mode or agent.permission_mode) is PermissionMode.PLAN:
        # A server can claim anything about its tools, so none of them counts as read-only.
        named = named & READ_ONLY_TOOLS
    own = dict(TOOL_SPECS_BY_NAME)
    if working_directory != ".":
        starts = f"starts in {working_directory}/, below the repository root,"
        own["Bash"] = replace(BASH, description=BASH.description.replace("starts in the repository root", starts))
    return {name: spec for name, spec in {**own, **pinned}.items() if name in named}


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """What meets in a step's conversation, in a private repository or in a public one. Each part names where it is
    from."""

    step_id: str
    private_repository: bool
    #: Text that strangers can write.
    untrusted: tuple[str, ...] = ()
    #: What not everybody may see.
    private: tuple[str, ...] = ()
    #: Where what the model knows can go.
    ways_out: tuple[str, ...] = ()
    #: Why the step may have all three; empty if the definition does not say.
    accepted: str = ""

    @property
    def has_all(self) -> bool:
        """Whether all three meet."""
        return bool(self.untrusted and self.private and self.ways_out)

    @property
    def breaks_rule(self) -> bool:
        """Whether all three meet and nobody accepts it."""
        return self.has_all and not self.accepted

    @property
    def repository(self) -> str:
        """The kind of repository."""
        return "private" if self.private_repository else "public"

    def __str__(self) -> str:
        return "; ".join(f"{part} ({', '.join(sources)})" for part, sources in self.parts.items() if sources)

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """Where each of the three is from, by its name; empty for one that is not there."""
        return {
            "text that strangers can write": self.untrusted,
            "something private": self.private,
            "a way out": self.ways_out,
        }


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The problems of one agent."""

    problems: tuple[Problem, ...]
    #: Where the agent was read; None if its folder was refused.
    folder: str | None = None
    #: Problems name files below this prefix.
    prefix: str = ""
    #: Contents of the files with problems, by `Problem.file`.
    texts: Mapping[str, str] = field(default_factory=dict)
    #: Names of the MCP tools that its steps may use; None if they are unknown.
    mcp_tools: tuple[str, ...] | None = None
    #: What meets in its steps, by the rule of two; empty if it has other errors.
    exposures: tuple[Exposure, ...] = ()


def count_problems(problems: Iterable[Problem]) -> str:
    """Describe in words how many problems of each severity there are."""
    counts = Counter(problem.severity for problem in problems)
    words = [count(counts[severity], severity) for severity in Severity if counts[severity]]
    return ", ".join(words) or "no problems"
