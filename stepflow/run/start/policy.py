"""The policy of an organization or a repository: what the inputs and the agent of a run may be at most."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from stepflow.domain.agent.agent_settings import Rung
from stepflow.domain.agent.definition import AgentDefinition, Step
from stepflow.domain.text import usd
from stepflow.domain.words import Network, Permission, Provider
from stepflow.errors import Refused
from stepflow.model.models import resolve_model
from stepflow.run.start.input_maps import SharedLimits
from stepflow.run.start.input_values import (
    Flag,
    InputMap,
    LeastPermission,
    NetworkAccess,
    NetworkInput,
    Words,
    in_dashes,
)

#: Where people change the policy, for messages.
VARIABLE = "STEPFLOW_POLICY"
#: Instead of the digests of an agent.
ANY = "any"
_NAME, _DIGEST = re.compile(r"(?:builtin/)?[a-z][a-z0-9-]*"), re.compile(rf"[0-9a-f]{{64}}|{ANY}")
_SHOWN_DIGITS = 12


def _read_agents(value: object) -> object:
    """Read the digests of each agent, of which one need not be a list."""
    if not isinstance(value, dict):
        return value
    agents = {name: tuple(digests) if isinstance(digests, list) else (digests,) for name, digests in value.items()}
    for name, digests in agents.items():
        if not _NAME.fullmatch(str(name)):
            raise ValueError(f"{name!r} is not an agent's name; write `fixer`, or `builtin/fix` for a shipped agent")
        if not digests or not all(isinstance(digest, str) and _DIGEST.fullmatch(digest) for digest in digests):
            raise ValueError(
                f"{name}: write the digest of its definition, 64 hexadecimal digits as in report.json, a list of "
                f"digests, or `{ANY}`"
            )
    return agents


class PolicyStart(InputMap):
    """Who may start a run."""

    min_permission: LeastPermission | None = None
    #: Logins; those of bots end in `[bot]`.
    by: Annotated[Words, Field(min_length=1)] | None = None


class Policy(InputMap):
    """Limits on every run. A key that is None narrows nothing, and no key can widen anything.

    Inputs narrow themselves when they are read, and an agent is narrowed when it is loaded.
    """

    enabled: Flag = True
    #: Agent → the digests of its allowed versions, or `any`.
    agents: Annotated[dict[str, tuple[str, ...]], BeforeValidator(_read_agents)] | None = None
    #: Rungs as in agent.json. Without an effort, a rung allows every effort of its model.
    models: Annotated[Words, Field(min_length=1)] | None = None
    network: NetworkInput | None = None
    limits: SharedLimits = SharedLimits()
    start: PolicyStart = PolicyStart()

    @model_validator(mode="before")
    @classmethod
    def read(cls, given: object) -> object:
        """Read a YAML map. Refuse a key without a value, which could mean that everything is allowed, or nothing."""
        given = cls.parse(given)
        if isinstance(given, dict) and (empty := next(_find_empty(given), "")):
            raise ValueError(f"`{empty}` has no value: give it one, or leave the key out")
        return given

    @property
    def limits_dollars(self) -> bool:
        """Whether a run must not cost more than some dollars, which takes models with known prices."""
        return self.limits.usd is not None or self.sums_runs

    @property
    def sums_runs(self) -> bool:
        """Whether the cost of other runs counts, which is in their comments."""
        return any((self.limits.usd_per_issue, self.limits.usd_per_day, self.limits.usd_per_month))

    def __str__(self) -> str:
        """Return the policy in one line, for people."""
        return "; ".join(self._describe()) or "narrows nothing"

    def _describe(self) -> Iterator[str]:
        if not self.enabled:
            yield "enabled: false"
        if self.agents is not None:
            yield f"agents: {', '.join(_describe_agent(*each) for each in self.agents.items()) or 'none'}"
        if self.models:
            yield f"models: {', '.join(self.models)}"
        if self.network:
            yield f"network: {self.network}"
        for name, most in self.limits:
            if most is not None:
                yield f"limits.{in_dashes(name)}: {usd(most) if name.startswith('usd') else most}"
        if self.start.min_permission:
            yield f"start.min-permission: {self.start.min_permission}"
        if self.start.by:
            yield f"start.by: {', '.join(self.start.by)}"

    def narrow_permission(self, asked: Permission) -> Permission:
        """Return the higher of the policy's permission and the one that is asked for."""
        return max((asked, self.start.min_permission or asked), key=lambda permission: permission.rank)

    def narrow_network(self, asked: NetworkAccess) -> NetworkAccess:
        """Return the narrower network. A host of the inputs stays if the policy covers it."""
        if self.network is None:
            return asked
        reach, hosts = asked.reach.narrowed_to(self.network.reach), asked.hosts
        if reach is Network.ALLOW and self.network.reach is Network.ALLOW:
            hosts = self.network.hosts if asked.reach is Network.FULL else _keep_covered(hosts, self.network.hosts)
        if reach is not Network.ALLOW or not hosts:
            return NetworkAccess(reach=Network.NONE if reach is Network.ALLOW else reach)
        return NetworkAccess(reach=reach, hosts=hosts)

    def objection_to(self, actor: str) -> str:
        """Say why this actor may start no run at all; empty if they may."""
        if not self.enabled:
            return f"the policy turns off all runs; to turn them on again, set `enabled: true` in {VARIABLE}"
        if self.start.by is not None and actor.casefold() not in map(str.casefold, self.start.by):
            if not actor:
                return "the policy lists who may start a run, and it is not known who does; set GITHUB_ACTOR"
            return f"the policy does not let {actor} start a run; `start.by` in {VARIABLE} lists who may"
        return ""

    def objection_to_agent(self, name: str) -> str:
        """Say why no version of this agent may run; empty if one may. A shipped agent's name begins with `builtin/`."""
        if self.agents is None or name in self.agents:
            return ""
        allowed = ", ".join(self.agents) or "none"
        return f"the policy allows only these agents: {allowed}; add {name} to `agents` in {VARIABLE}, if it may run"

    def narrow_agent(self, agent: AgentDefinition, name: str, model: str | None, provider: Provider) -> AgentDefinition:
        """Return the agent with the allowed rungs of its ladders. Raises `Refused` if this version of it may not run,
        or if a step has no model left. `model` is the one that the inputs choose for the run."""
        digests = (self.agents or {}).get(name, (ANY,))
        if ANY not in digests and agent.digest not in digests:
            raise refusal(
                f"the policy allows {name} in another version. This one has the digest {agent.digest}; give it to "
                f"{name} below `agents` in {VARIABLE}, if it may run"
            )
        if self.start.min_permission:
            agent = replace(agent, anyone_may_start=False)
        if self.models is None:
            return agent
        asking = [step for step in agent.steps.values() if step.command is None]
        # As in the agent's own models, and as in the model that is chosen for the run.
        rungs = {rung for step in asking for chosen in (None, model) for rung in _rungs_of(agent, step, chosen)}
        narrowed = replace(agent, allowed_rungs=frozenset(rung for rung in rungs if self._allows(rung, provider)))
        for step in asking:
            left = narrowed.ladder_of(step, model).rungs
            if not left or left[0].fallback:
                asked = ", ".join(map(str, _rungs_of(agent, step, model)))
                raise refusal(
                    f"the policy allows only the models {', '.join(self.models)}, and step {step.id} of {name} has "
                    f"only {asked}; choose another `model` in the workflow or in agent.json"
                )
        return narrowed

    def _allows(self, rung: Rung, provider: Provider) -> bool:
        allowed = map(Rung.parse, self.models or ())
        return any(
            resolve_model(each.model, provider) == resolve_model(rung.model, provider)
            and each.effort in (None, rung.effort)
            for each in allowed
        )


def _rungs_of(agent: AgentDefinition, step: Step, model: str | None) -> tuple[Rung, ...]:
    """Return the rungs of a step, each with the effort that it has there."""
    return tuple(replace(rung, effort=rung.effort or step.effort) for rung in agent.ladder_of(step, model).rungs)


def refusal(reason: str) -> Refused:
    """Return the error for a run that the policy does not allow."""
    return Refused(f"No run was started: {reason}.")


def _find_empty(given: dict[object, object], place: str = "") -> Iterator[str]:
    """Yield the place of each key without a value."""
    for key, value in given.items():
        if value is None or value == "":
            yield f"{place}{key}"
        elif isinstance(value, dict):
            yield from _find_empty(value, f"{place}{key}.")


def _describe_agent(name: str, digests: tuple[str, ...]) -> str:
    shown = [digest[:_SHOWN_DIGITS] for digest in digests if digest != ANY]
    return f"{name} ({', '.join(shown)})" if shown and ANY not in digests else name


def _keep_covered(entries: tuple[str, ...], limits: tuple[str, ...]) -> tuple[str, ...]:
    """Return the hosts of the input `network` that lead to nothing but hosts of the `limits`."""
    from stepflow.sandbox.egress.allowed_hosts import parse_allowed_hosts  # noqa: PLC0415 - costs time that most runs need not pay

    allowed = parse_allowed_hosts(limits)
    return tuple(
        entry
        for entry in entries
        if all(any(limit.includes(host) for limit in allowed) for host in parse_allowed_hosts((entry,)))
    )
