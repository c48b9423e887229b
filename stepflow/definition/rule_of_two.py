"""The rule of two: text that strangers can write, something private and a way out must not meet in one conversation.
And what bounds an agent that anybody may start (SF215).

SECURITY.md explains it, and what counts as each of the three.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from stepflow.definition.agent import Agent, read_rungs
from stepflow.definition.diagnostics import FileProblems, list_words
from stepflow.definition.file_models import StepSettings
from stepflow.definition.graph import reached_from, turn_around
from stepflow.definition.parsing import Pointer
from stepflow.definition.steps import Node
from stepflow.domain.agent.agent_settings import READ_ONLY_TOOLS, McpServer, mcp_name
from stepflow.domain.agent.definition import AgentDefinition, Exposure, Step, effective_tools
from stepflow.domain.effect import AllowedEffect
from stepflow.domain.words import Network, PermissionMode, StepKind
from stepflow.errors import Severity

#: What a message calls the rule.
RULE_OF_TWO = "rule of two"

_WRITING = frozenset({"Bash", "Write", "Edit"})
#: Characters of a pattern for labels, which let the model choose a part of the name.
_PATTERN = frozenset("*?[")


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What is known about a run besides the definition of its agent."""

    #: Whether the repository is private; None if that is unknown.
    private: bool | None = None
    #: Whether the run reviews a pull request from a fork.
    from_fork: bool = False
    #: The input `network`.
    network: Network = Network.FULL

    @property
    def repositories(self) -> tuple[bool, ...]:
        """Whether the repository is private: what is known, or else both."""
        return (False, True) if self.private is None else (self.private,)


#: Both kinds of repository, no fork, and the default of the input `network`.
UNKNOWN = Circumstances()


def find_exposures(agent: AgentDefinition, circumstances: Circumstances) -> tuple[Exposure, ...]:
    """Return what meets in the conversation of each step that asks a model, in each kind of repository that the run may
    be in."""
    return tuple(
        exposure
        for private in circumstances.repositories
        for exposure in _Exposures(agent, replace(circumstances, private=private)).of_steps()
    )


def report_exposures(
    agent: AgentDefinition, found: Iterable[Exposure], circumstances: Circumstances, problems: FileProblems
) -> None:
    """Report the steps in which all three meet (SF357), by the exposures that were found: an error if they do in every
    repository that the run may be in, otherwise a note. Also report `acceptsRisk` where there is no risk."""
    breaking: dict[str, list[Exposure]] = {}
    for each in found:
        if each.breaks_rule:
            breaking.setdefault(each.step_id, []).append(each)
    for step_id, exposures in breaking.items():
        everywhere = len(exposures) == len(circumstances.repositories)
        where = "" if everywhere else f"in a {exposures[0].repository} repository, "
        message = f"{where}all three of the rule of two meet: {_common(exposures)}"
        fix = 'Take one of them away, with other "tools", a narrower "network" or a step of its own, '
        fix += 'or say in "acceptsRisk" why they may meet.'
        at, severity = Pointer("/steps") / step_id, None if everywhere else Severity.NOTE
        problems.report("SF357", at, message, fix, severity=severity)
    if accepting := [step.id for step in agent.steps.values() if step.accepts_risk]:
        worst = find_exposures(agent, Circumstances(from_fork=True))
        risky = {each.step_id for each in worst if each.has_all}
        for step_id in accepting:
            if step_id not in risky:
                at = Pointer("/steps") / step_id / "acceptsRisk"
                problems.note_idle(at, "there is no risk to accept: the three of the rule of two never meet here")


def _common(exposures: Sequence[Exposure]) -> Exposure:
    """Return the first of a step's exposures, with what is in all of them; a part that has nothing in common stays."""
    first, *others = exposures

    def keep(part: str) -> tuple[str, ...]:
        sources = first.parts[part]
        return tuple(each for each in sources if all(each in other.parts[part] for other in others)) or sources

    untrusted, private, ways_out = map(keep, first.parts)
    return replace(first, untrusted=untrusted, private=private, ways_out=ways_out)


@dataclass(frozen=True, kw_only=True)
class _Conversation:
    """What the model of a step can use."""

    step: Step
    tools: frozenset[str]
    #: The MCP servers of which it may call a tool.
    servers: tuple[McpServer, ...]
    #: Those of them that reach other people's text. A program in the sandbox needs the network for that.
    outside: tuple[McpServer, ...]

    @property
    def logins(self) -> tuple[McpServer, ...]:
        """The servers that are called with a secret."""
        return tuple(each for each in self.servers if each.secret_names)

    @property
    def starts_server(self) -> bool:
        return any(each.command for each in self.servers)

    @property
    def writes(self) -> bool:
        return bool(self.tools & _WRITING) or self.starts_server

    @property
    def hands_on(self) -> bool:
        gate, check = self.step.gate, self.step.check
        return bool((gate and gate.handoff_fields) or (check and check.handoff_keys))


class _Exposures:
    """The exposures of an agent's steps in one kind of repository."""

    def __init__(self, agent: AgentDefinition, circumstances: Circumstances) -> None:
        self.agent, self.circumstances = agent, circumstances
        self.network = circumstances.network.narrowed_to(agent.network)
        asking = (step for step in agent.steps.values() if step.command is None)
        self.conversations = tuple(self._conversation(step) for step in asking)
        self.untrusted_before = self._passed_on(each for each in self.conversations if each.outside)
        self.private_before = self._passed_on(each for each in self.conversations if each.logins)

    def _conversation(self, step: Step) -> _Conversation:
        tools = frozenset(effective_tools(self.agent, step))
        servers = tuple(
            each
            for each in self.agent.mcp_servers
            if not tools.isdisjoint(mcp_name(each.name, tool.name) for tool in each.tools)
        )
        outside = tuple(each for each in servers if each.url or self.network is not Network.NONE)
        return _Conversation(step=step, tools=tools, servers=servers, outside=outside)

    def of_steps(self) -> Iterator[Exposure]:
        for each in self.conversations:
            yield Exposure(
                step_id=each.step.id,
                private_repository=bool(self.circumstances.private),
                untrusted=tuple(self._untrusted(each)),
                private=tuple(self._private(each)),
                ways_out=tuple(self._ways_out(each)),
                accepted=each.step.accepts_risk,
            )

    def _untrusted(self, here: _Conversation) -> Iterator[str]:
        if not self.circumstances.private or self.agent.anyone_may_start:
            is_review = AllowedEffect.REVIEW in self.agent.github.allowed_effects
            yield "the issue and its comments, or the pull request" if is_review else "the issue and its comments"
        elif self.circumstances.from_fork:
            yield "the pull request from a fork"
        yield from (f'results of the MCP server "{each.name}"' for each in here.outside)
        yield from self.untrusted_before.get(here.step.id, ())

    def _private(self, here: _Conversation) -> Iterator[str]:
        if self.circumstances.private:
            yield "the private repository: its files, its issues and their images"
        yield from (f'the MCP server "{each.name}", which has a login' for each in here.logins)
        yield from self.private_before.get(here.step.id, ())

    def _passed_on(self, sources: Iterable[_Conversation]) -> Mapping[str, tuple[str]]:
        """Return where the text of one of these steps may reach another: in what it hands off, or in the files that it
        writes. The nearest one is named."""
        nearest: dict[str, str] = {}
        passing = (each.step for each in sources if each.hands_on or each.writes)
        waiting = deque((target, step.id) for step in passing for target in step.following)
        while waiting:
            step_id, source = waiting.popleft()
            if step_id not in nearest:
                nearest[step_id] = source
                waiting.extend((target, source) for target in self.agent.steps[step_id].following)
        return {
            step_id: (f'what step "{source}" passes on',) for step_id, source in nearest.items() if step_id != source
        }

    def _ways_out(self, here: _Conversation) -> Iterator[str]:
        yield from (f'arguments for the MCP server "{each.name}"' for each in here.outside)
        if self.network is not Network.NONE:
            if "Bash" in here.tools:
                yield f"a shell with `network: {self.network}`"
            elif here.writes and self._runs_files:
                yield f"the files that it writes, which may be run with `network: {self.network}`"
            if self._has_suggestions_tried(here.step):
                yield f"the suggestions of its review, which are tried with `network: {self.network}`"
        if not self.circumstances.private and self.agent.github.enabled:
            yield from self._published(here)

    def _has_suggestions_tried(self, step: Step) -> bool:
        """Whether the suggestions of the step's closing answer become files that validators run on."""
        conditions = step.validation.conditions if step.validation else ()
        trying = any(not (each.validator.proof or each.validator.clean_tree) for each in conditions)
        return trying and AllowedEffect.REVIEW in self.agent.github.allowed_effects

    @cached_property
    def _runs_files(self) -> bool:
        """Whether anything runs that may be, or may read, a file of the workspace."""
        has_commands = len(self.conversations) < len(self.agent.steps) or bool(self.agent.validators)
        return has_commands or any("Bash" in each.tools or each.starts_server for each in self.conversations)

    def _published(self, here: _Conversation) -> Iterator[str]:
        """Yield what this step can let everybody read on GitHub."""
        github = self.agent.github
        if github.pushes and here.writes:
            yield "the commits that are pushed"
        if here.hands_on and here.step.id in self._before_approval:
            yield "the plan that a person is asked to approve"
        if here.step.kind is StepKind.CLOSURE:
            free_labels = github.allowed_labels is None or any(_PATTERN & {*label} for label in github.allowed_labels)
            written = {
                "the comment": github.comments,
                "the pull request": github.pushes,
                "the review": AllowedEffect.REVIEW in github.allowed_effects,
                "the names of labels": AllowedEffect.LABELS in github.allowed_effects and free_labels,
                "the release": AllowedEffect.RELEASE in github.allowed_effects,
            }
            yield from (name for name, is_written in written.items() if is_written)

    @cached_property
    def _before_approval(self) -> set[str]:
        """The steps after which a person may be asked to approve what was handed off so far."""
        steps = self.agent.steps.values()
        before = turn_around({step.id: step.following for step in steps})
        asking = [step.id for step in steps if step.approvals]
        asking += (step_id for step in steps if step.approval for step_id in before[step.id])
        return reached_from(asking, before)


CODE = "SF215"
_BOUNDARIES = Pointer("/runner/boundaries")
_GITHUB = Pointer("/runner/integrations/github")
#: The effects that a stranger may cause.
_EFFECTS = (AllowedEffect.COMMENT, AllowedEffect.LABELS)
_WHY = "anyone may start this agent"


def check_bounds(agent: Agent, nodes: Iterable[Node[StepSettings]], problems: FileProblems) -> None:
    """Report each bound that agent.json, or a step of the registry, lacks."""
    if agent.file.started_by:
        _check_agent(agent)
        _check_steps(agent, nodes, problems)


def _check_agent(agent: Agent) -> None:
    boundaries, github = agent.runner.boundaries, agent.runner.integrations.github
    lacking: dict[Pointer, tuple[str, str]] = {}
    if boundaries.network is not Network.NONE:
        lacking[_BOUNDARIES / "network"] = ("its tools may reach the network", 'Write "network": "none".')
    if boundaries.max_usd is None:
        fix = 'Write for example "maxUsd": 0.05.'
        lacking[_BOUNDARIES / "maxUsd"] = ("a run has no budget of its own", fix)
    if others := [effect for effect in github.allowed_effects if effect not in _EFFECTS]:
        fix = 'Write "allowedEffects": ["comment", "labels"], or one of the two.'
        lacking[_GITHUB / "allowedEffects"] = (f"it may cause {list_words(others)}", fix)
    if AllowedEffect.LABELS in github.allowed_effects:
        wide = [label for label in github.allowed_labels or () if not label.strip("*?")]
        if not github.allowed_labels:
            fix = "List the labels that it may change."
            lacking[_GITHUB / "allowedLabels"] = ("no list says which labels it may change", fix)
        elif wide:
            fix = "List the labels by their names."
            lacking[_GITHUB / "allowedLabels"] = (f"{list_words(wide)} stands for any label", fix)
    for at, (message, fix) in lacking.items():
        agent.problems.add(CODE, at, f"{_WHY}, but {message}", fix)


def _check_steps(agent: Agent, nodes: Iterable[Node[StepSettings]], problems: FileProblems) -> None:
    """Report each step that has a tool which can write, or no model of its own."""
    boundaries = agent.runner.boundaries
    for node in nodes:
        entry = node.entry
        if node.command:
            continue
        if (entry.permission_mode or boundaries.permission_mode) is not PermissionMode.PLAN:
            tools = entry.tools if entry.tools is not None else boundaries.allowed_tools
            writing = ["all tools"] if tools is None else [tool for tool in tools if tool not in READ_ONLY_TOOLS]
            if writing:
                problems.report(
                    CODE,
                    node.at / ("tools" if entry.tools is not None else "permissionMode"),
                    f"{_WHY}, but the step may use {list_words(writing) if tools else writing[0]}, which can write",
                    'Write "permissionMode": "plan", or name only tools that read in "tools".',
                )
        if not read_rungs(entry):
            problems.report(
                CODE,
                node.at / "model",
                f"{_WHY}, but the step names no model of its own, so the input `model` decides what it costs",
                'Name the model that suffices, for example "model": "haiku".',
            )
