"""The rule of two: text that strangers can write, something private and a way out must not meet in one conversation.

SECURITY.md explains it, and what counts as each of the three.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from stepflow.definition.diagnostics import FileProblems
from stepflow.definition.parsing import Pointer
from stepflow.domain.definition import AgentDefinition, McpServer, Step, mcp_name
from stepflow.domain.effect import AllowedEffect
from stepflow.domain.exposure import Exposure
from stepflow.domain.problem import Severity
from stepflow.domain.tools import effective_tools
from stepflow.domain.words import Network, StepKind

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


def report_exposures(agent: AgentDefinition, circumstances: Circumstances, problems: FileProblems) -> None:
    """Report the steps in which all three meet (SF357): an error if they do in every repository that the run may be in,
    otherwise a note. Also report `acceptsRisk` where there is no risk."""
    found = find_exposures(agent, circumstances)
    for step in agent.steps.values():
        at = Pointer("/steps") / step.id
        breaking = [each for each in found if each.step_id == step.id and each.breaks_rule]
        if breaking:
            everywhere = len(breaking) == len(circumstances.repositories)
            where = "" if everywhere else f"in a {breaking[0].repository} repository, "
            message = f"{where}all three of the rule of two meet: {_common(breaking)}"
            fix = 'Take one of them away, with other "tools", a narrower "network" or a step of its own, '
            fix += 'or say in "acceptsRisk" why they may meet.'
            problems.report("SF357", at, message, fix, severity=None if everywhere else Severity.NOTE)
    worst = find_exposures(agent, Circumstances(from_fork=True))
    risky = {each.step_id for each in worst if each.has_all}
    for step in agent.steps.values():
        if step.accepts_risk and step.id not in risky:
            at = Pointer("/steps") / step.id / "acceptsRisk"
            problems.note_idle(at, "there is no risk to accept: the three of the rule of two never meet here")


def _common(exposures: Sequence[Exposure]) -> Exposure:
    """Return the first of a step's exposures, with what is in all of them; a part that has nothing in common stays."""
    first, *others = exposures

    def keep(part: str) -> tuple[str, ...]:
        sources = first.parts[part]
        return tuple(each for each in sources if all(each in other.parts[part] for other in others)) or sources

    untrusted, private, ways_out = map(keep, first.parts)
    return replace(first, untrusted=untrusted, private=private, ways_out=ways_out)


@dataclass(frozen=True)
class _Exposures:
    """The exposures of an agent's steps in one kind of repository."""

    agent: AgentDefinition
    circumstances: Circumstances

    def of_steps(self) -> Iterator[Exposure]:
        for step in self.agent.steps.values():
            if step.command is None:
                yield Exposure(
                    step_id=step.id,
                    private_repository=bool(self.circumstances.private),
                    untrusted=tuple(self._untrusted(step)),
                    private=tuple(self._private(step)),
                    ways_out=tuple(self._ways_out(step)),
                    accepted=step.accepts_risk,
                )

    @cached_property
    def _network(self) -> Network:
        return self.circumstances.network.narrowed_to(self.agent.network)

    @cached_property
    def _tools(self) -> Mapping[str, frozenset[str]]:
        asking = (step for step in self.agent.steps.values() if step.command is None)
        return {step.id: frozenset(effective_tools(self.agent, step)) for step in asking}

    @cached_property
    def _servers(self) -> Mapping[str, tuple[McpServer, ...]]:
        """The MCP servers that each step's tools can reach the outside with. A program without the network is none."""
        outside = [each for each in self.agent.mcp_servers if each.url or self._network is not Network.NONE]
        return {
            step_id: tuple(each for each in outside if tools & {mcp_name(each.name, tool.name) for tool in each.tools})
            for step_id, tools in self._tools.items()
        }

    def _untrusted(self, step: Step) -> Iterator[str]:
        if not self.circumstances.private:
            is_review = AllowedEffect.REVIEW in self.agent.github.allowed_effects
            yield "the issue and its comments, or the pull request" if is_review else "the issue and its comments"
        elif self.circumstances.from_fork:
            yield "the pull request from a fork"
        yield from (f'results of the MCP server "{each.name}"' for each in self._servers[step.id])
        yield from (_passed_on(each) for each in self._before(step) if self._servers[each.id])

    def _private(self, step: Step) -> Iterator[str]:
        if self.circumstances.private:
            yield "the private repository: its files, its issues and their images"
        with_login = {step_id: [each for each in servers if _login(each)] for step_id, servers in self._servers.items()}
        yield from (f'the MCP server "{each.name}", which has a login' for each in with_login[step.id])
        yield from (_passed_on(each) for each in self._before(step) if with_login[each.id])

    def _before(self, step: Step) -> Iterator[Step]:
        """Yield the steps whose text may reach this one: in their handoff, or in the files that they write."""
        for other in self.agent.steps.values():
            passes_on = other.id in self._tools and (_hands_on(other) or self._writes(other))
            if passes_on and other.id != step.id and step.id in self._reached_from(other):
                yield other

    def _reached_from(self, step: Step) -> set[str]:
        reached: set[str] = set()
        waiting = [*step.following]
        while waiting:
            step_id = waiting.pop()
            if step_id not in reached:
                reached.add(step_id)
                waiting += self.agent.steps[step_id].following
        return reached

    def _writes(self, step: Step) -> bool:
        return bool(self._tools[step.id] & _WRITING) or any(each.command for each in self._servers[step.id])

    def _ways_out(self, step: Step) -> Iterator[str]:
        yield from (f'arguments for the MCP server "{each.name}"' for each in self._servers[step.id])
        if self._network is not Network.NONE:
            if "Bash" in self._tools[step.id]:
                yield f"a shell with `network: {self._network}`"
            elif self._writes(step) and self._runs_files:
                yield f"the files that it writes, which are run with `network: {self._network}`"
        if not self.circumstances.private:
            yield from self._published(step)

    @cached_property
    def _runs_files(self) -> bool:
        """Whether anything runs that may read the files of the workspace."""
        commands = any(step.command for step in self.agent.steps.values())
        return commands or bool(self.agent.validators) or any("Bash" in tools for tools in self._tools.values())

    def _published(self, step: Step) -> Iterator[str]:
        """Yield what this step can let everybody read on GitHub."""
        github = self.agent.github
        if not github.enabled:
            return
        if github.pushes and self._writes(step):
            yield "the commits that are pushed"
        if _hands_on(step) and self._asks_for_approval(step):
            yield "the plan that a person is asked to approve"
        if step.kind is StepKind.CLOSURE or not self.agent.gated:
            allowed = {*github.allowed_effects}
            free_labels = github.allowed_labels is None or any(_PATTERN & {*label} for label in github.allowed_labels)
            written = {
                "the comment": github.comments,
                "the pull request": github.pushes,
                "the review": AllowedEffect.REVIEW in allowed,
                "the names of labels": AllowedEffect.LABELS in allowed and free_labels,
                "the release": AllowedEffect.RELEASE in allowed,
            }
            yield from (name for name, is_written in written.items() if is_written)

    def _asks_for_approval(self, step: Step) -> bool:
        """Whether a person may be asked to approve what the step hands off."""
        later = [self.agent.steps[each] for each in self._reached_from(step)]
        return any(each.approval for each in later) or any(each.approvals for each in (step, *later))


def _login(server: McpServer) -> bool:
    return bool(server.secret_names)


def _hands_on(step: Step) -> bool:
    return bool((step.gate and step.gate.handoff_fields) or (step.check and step.check.handoff_keys))


def _passed_on(step: Step) -> str:
    return f'what step "{step.id}" passes on'
