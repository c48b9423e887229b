"""A loaded agent: one frozen object that holds everything a run needs from the agent's files (definition.md §7).

Both dialects of the registry become the same graph of steps. No later change on disk can reach it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from stepflow.domain.agent_settings import GitHubSettings, Parameter, StepCommand
from stepflow.domain.conversation import ToolSpec
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.ladder import Ladder, Rung
from stepflow.domain.problem import Problem
from stepflow.domain.run import GuidanceFile, Limits
from stepflow.domain.words import (
    CHECK_DIALECT_LIMIT,
    Dialect,
    Effort,
    FailureAction,
    FollowUpKind,
    Intent,
    Permission,
    PermissionMode,
    StepKind,
    VerdictType,
)


@dataclass(frozen=True, kw_only=True)
class SourceText:
    """A text as it was at load, after prompts.md §2. `file` is where it came from, for messages; a shipped
    template has `template` (its key) and the file name inside the package."""

    text: str
    file: str
    template: str | None = None


def guidance_files(texts: Iterable[SourceText]) -> list[GuidanceFile]:
    """The files that these texts are from, with what is shown of them."""
    return [GuidanceFile(file=text.file, bytes=len(text.text.encode())) for text in texts]


#: What a skill begins with, and what makes a folder one.
SKILL_FILE = "SKILL.md"


@dataclass(frozen=True, kw_only=True)
class Skill:
    """An Agent Skill as it was at load. `files` are its texts by their paths in `folder`, which is relative to the
    repository's root."""

    name: str
    description: str
    folder: str
    files: Mapping[str, str]

    def address(self, file: str = SKILL_FILE) -> str:
        """What a model reads the frozen text of a file by. No path in a checkout looks like it."""
        return f"skill://{self.name}/{file}"


@dataclass(frozen=True, kw_only=True)
class StepInput:
    """One entry of a step's `inputs`: variable `name` takes `key` of step `step_id`'s handoff (prompts.md §6.3)."""

    name: str
    step_id: str
    key: str
    required: bool = False
    default: JsonValue = None


@dataclass(frozen=True, kw_only=True)
class StepPrompt:
    """What a step asks: its own text, and the template used when a variable is missing (prompts.md §5).

    `names` are the variables that the agent's runs can have: `{{NAME}}` and `{NAME}` are placeholders with these alone.
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
    """How an intent is read out of an answer (definition.md §5.3). Without `fail_fast` an unreadable intent
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
    """A transition to one step; None ends (closing) or stays (repeat)."""

    step_id: str | None


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A transition chosen by the value of `condition` in this answer's handoff (flow.md §6.2)."""

    condition: str
    targets: Mapping[str, str]
    default: str | None


Transition = Target | Branch


@dataclass(frozen=True, kw_only=True)
class OutcomeRule:
    """One thing that an outcome leads to. `transition` is the history's word for it (flow.md §7).

    The rule holds while the step has run fewer than `runs_below` times in this visit, this run included, and has been
    sent back fewer than `retries_below` times by a `retry`; None is no limit.
    """

    intent: Intent
    transition: str
    target: str | None = None
    runs_below: int | None = None
    retries_below: int | None = None

    def holds(self, *, runs: int, retries: int) -> bool:
        """Whether the rule may be taken after so many runs and retries in this visit."""
        return (self.runs_below is None or runs < self.runs_below) and (
            self.retries_below is None or retries < self.retries_below
        )


@dataclass(frozen=True, kw_only=True)
class StepCheck:
    """How a step is found to have passed or failed, and what follows; the first rule that holds is taken.

    `prompt` is a second question in the same conversation. Without one `result` is read from the step's own answer;
    where that `is_demanded`, an answer without a readable result has failed, else it has passed.
    """

    on_pass: tuple[OutcomeRule, ...]
    on_fail: tuple[OutcomeRule, ...]
    prompt: StepPrompt | None = None
    is_demanded: bool = False
    handoff_keys: tuple[str, ...] = ()

    @property
    def rules(self) -> tuple[OutcomeRule, ...]:
        """All rules, those of a pass first."""
        return (*self.on_pass, *self.on_fail)


@dataclass(frozen=True, kw_only=True)
class OutputEmpty:
    """Passes on exit code 0 and blank stdout."""


@dataclass(frozen=True, kw_only=True)
class ExitCode:
    """Passes on exactly this exit code."""

    code: int


@dataclass(frozen=True, kw_only=True)
class OutputContains:
    """Passes when the text is in stdout."""

    text: str


@dataclass(frozen=True, kw_only=True)
class OutputMatches:
    """Passes when the regular expression is found in stdout."""

    pattern: str


SuccessRule = OutputEmpty | ExitCode | OutputContains | OutputMatches


@dataclass(frozen=True, kw_only=True)
class FailurePattern:
    """A named way to fail, which chooses the retry prompt (definition.md §5.7)."""

    name: str
    description: str
    edition: str
    adaptation: str | None = None


@dataclass(frozen=True, kw_only=True)
class Validator:
    """A shell command that must hold before the end (definition.md §5.6). `timeout` in seconds; `guards` are path
    patterns that the validator depends on, `guard_blocks` says whether a change to them fails it;
    `clean_tree` says whether its green means that nothing differs from HEAD."""

    name: str
    command: str
    success: SuccessRule
    pattern: FailurePattern
    extract: Mapping[str, str] = field(default_factory=dict)
    recoverable: bool = True
    timeout: float = 600.0
    guards: tuple[str, ...] = ()
    guard_blocks: bool = False
    clean_tree: bool = False


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One validator of an entry with the values for `${key}` in its command."""

    validator: Validator
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ValidationEntry:
    """What is checked when a closure step says `closing` (definition.md §5.7).

    `retry_prompts` maps a failure pattern's name to its retry prompt, `any_retry_prompt` is `f_failed.md`
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
    """One node of the compiled graph (definition.md §7). `kind` is None only in an ungated registry.

    The intent is found by `gate` or by `check`; with neither, in an ungated registry, the verdict runs the flow.
    `edges` holds every transition after defaults; an intent without an entry has no target. `prompt` is None for a
    command step. `aliases` are further variables for handed-off keys, beside `<id>_<key>` (prompts.md §6.2). Before
    a step with an `approval` the run ends until somebody with that permission agrees; `approvals` demand the same
    before its transitions of these words are taken. `guidance` is what it is shown beside the agent's. `tools` are the
    names of all that it may use, MCP tools among them; None is what the agent allows, and none of these. `models` and
    `fallback` are the step's own; `effort` is that of rungs that say none.
    """

    id: str
    name: str
    kind: StepKind | None
    initial: bool = False
    prompt: StepPrompt | None = None
    schema: JsonObject | None = None
    gate: Gate | None = None
    check: StepCheck | None = None
    edges: Mapping[Intent, Transition] = field(default_factory=dict)
    format_retries: int = 2
    models: tuple[Rung, ...] = ()
    fallback: Rung | None = None
    effort: Effort | None = None
    max_output_tokens: int | None = None
    permission_mode: PermissionMode | None = None
    validation: ValidationEntry | None = None
    command: StepCommand | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    approval: Permission | None = None
    approvals: Mapping[str, Permission] = field(default_factory=dict)
    guidance: tuple[SourceText, ...] = ()
    tools: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class AgentVerdict:
    """The agent's completion type (definition.md §2.4). `config` is as written, with old names made new.

    `limits` are the agent's own; `handler` is the code of `meta:custom` where that is a file of the agent, as it was
    at load.
    """

    type: VerdictType
    limits: Limits
    config: JsonObject = field(default_factory=dict)
    handler: SourceText | None = None


#: The most that agent.json may let one answer have; no model of the Messages API gives more.
LARGEST_OUTPUT = 128_000


#: The check of every agent that the engine brings: what the boundary would refuse. It runs before the validators.
BOUNDARY_RULES = Validator(
    name="boundary-rules",
    command="",
    success=ExitCode(code=0),
    pattern=FailurePattern(
        name="boundary-rules",
        description="What this closing asks for breaks a rule of what may be written to GitHub.",
        edition="failed",
    ),
)


DEFAULT_MODEL = "opus"


@dataclass(frozen=True, kw_only=True)
class AgentDefinition:
    """A sound agent. `steps` are the flow steps by id, in file order; `sections` the prompt fragments by id.

    A run begins at `entry_step`, a follow-up at the step that `entry_steps` has for its kind, if there is one.
    `allowed_tools` None means all. `folder` is relative to the repository root. `digest` is a SHA-256 over the names
    and contents of every file that was read (definition.md §1). `guidance` is what the repository says to whoever works
    on it, by files relative to its root; `skills` are what it says to whoever asks. `mcp_servers` have the tools that
    their lock file pins. `problems` are the warnings and notes of the load.
    """

    name: str
    version: str
    display_name: str
    description: str
    folder: str
    dialect: Dialect
    digest: str
    steps: Mapping[str, Step]
    entry_step: str
    verdict: AgentVerdict
    system_prompt: SourceText
    sections: Mapping[str, SourceText] = field(default_factory=dict)
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    models: tuple[Rung, ...] = (Rung(model=DEFAULT_MODEL),)
    fallback: Rung | None = None
    allowed_tools: frozenset[str] | None = None
    permission_mode: PermissionMode = PermissionMode.ACCEPT_EDITS
    github: GitHubSettings = field(default_factory=GitHubSettings)
    problems: tuple[Problem, ...] = ()
    entry_steps: Mapping[FollowUpKind, str] = field(default_factory=dict)
    guidance: tuple[SourceText, ...] = ()
    skills: tuple[Skill, ...] = ()
    mcp_servers: tuple[McpServer, ...] = ()

    @property
    def all_guidance(self) -> tuple[SourceText, ...]:
        """What any step is shown of the repository's guidance, each file once."""
        of_steps = (text for step in self.steps.values() for text in step.guidance)
        return tuple(dict.fromkeys((*self.guidance, *of_steps)))

    @property
    def gated(self) -> bool:
        """True when answers or checks lead the flow; false when the verdict runs it (definition.md §5)."""
        return any(step.gate or step.check for step in self.steps.values())

    def ladder_of(self, step: Step, chosen: str | None) -> Ladder:
        """The models that the step is asked on: its own, else the one `chosen` for the run, else the agent's; then the
        fallback of the step, else of the agent."""
        rungs = step.models or ((Rung(model=chosen),) if chosen else self.models)
        fallback = step.fallback or self.fallback
        if fallback and fallback.model not in {rung.model for rung in rungs}:
            rungs = (*rungs, fallback)
        return Ladder(owner=step.id if step.models or step.fallback else "", rungs=rungs)

    def ladders(self, chosen: str | None) -> dict[str, Ladder]:
        """The ladder of each step that asks a model, by the step's id."""
        return {step.id: self.ladder_of(step, chosen) for step in self.steps.values() if step.command is None}

    def entry_for(self, kind: FollowUpKind | None) -> str:
        """The id of the step that a follow-up of this kind begins at; None is a run that is no follow-up."""
        return self.entry_steps.get(kind, self.entry_step) if kind else self.entry_step

    def cap(self, iterations: int) -> int:
        """So many iterations, or fewer where the dialect allows no more (definition.md §6.3)."""
        return min(iterations, CHECK_DIALECT_LIMIT) if self.dialect is Dialect.CHECK else iterations


#: What the names of these tools begin with: `mcp__<server>__<tool>`.
MCP_PREFIX = "mcp__"
#: What stands in a header for a value of the input `mcp-secrets`, with the value's name as its group.
SECRET_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class McpTool(BaseModel):
    """A tool as its server lists it, and as a lock file pins it."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True)

    name: str
    description: str
    input_schema: JsonObject


@dataclass(frozen=True, kw_only=True)
class McpServer:
    """A server of `mcpServers` in agent.json.

    One with a `command` (program and arguments) runs in the sandbox, with `env` and the little that every program
    needs. One with a `url` is called from outside of it; in its `headers`, `${NAME}` stands for a value of the input
    `mcp-secrets`. `tools` are what the lock file pins, and `digest` is theirs.
    """

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    tools: tuple[McpTool, ...] = ()
    digest: str = ""

    @property
    def secret_names(self) -> tuple[str, ...]:
        """The values of `mcp-secrets` that its headers refer to."""
        return tuple(dict.fromkeys(name for value in self.headers.values() for name in SECRET_REFERENCE.findall(value)))

    def spec_of(self, tool: McpTool) -> ToolSpec:
        """The tool as it is offered to a model."""
        return ToolSpec(
            name=mcp_name(self.name, tool.name), description=tool.description, input_schema=tool.input_schema
        )


def mcp_name(server: str, tool: str) -> str:
    """The name by which steps and models know a server's tool."""
    return f"{MCP_PREFIX}{server}__{tool}"


def digest_of(tools: Iterable[McpTool]) -> str:
    """A SHA-256 over the names, descriptions and schemas, in whichever order the server lists them."""
    listed = sorted([tool.name, tool.description, json.dumps(tool.input_schema, sort_keys=True)] for tool in tools)
    return f"sha256:{hashlib.sha256(json.dumps(listed).encode()).hexdigest()}"
