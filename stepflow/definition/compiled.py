"""What compiling a registry takes and gives, whatever dialect it is written in (registry.md §7).

Takes: nothing. Gives: `LoadOptions`, `Graph`, and the parts that both compilers share.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.definition.folder import unsafe_reason
from stepflow.definition.schema_refs import SchemaFiles
from stepflow.definition.schemas import SchemaDesk

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from stepflow.definition.agent_check import Agent
    from stepflow.definition.findings import FileFindings
    from stepflow.definition.folder import AgentFolder
    from stepflow.domain.definition import SourceText, Step
    from stepflow.domain.words import ClosureAction, Dialect

DEFAULT_SCHEMAS_BASE = "schemas"
DEFAULT_FORMAT_RETRIES = 2


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """What the caller of the loader may choose.

    `templates` is the folder of the shipped templates.
    """

    allow_spec_violations: bool
    allow_custom_verdict: bool
    templates: Traversable


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A compiled registry: what the flow needs of it."""

    dialect: Dialect
    steps: dict[str, Step]
    entry_step: str
    sections: dict[str, SourceText]


def schema_desk(
    agent: Agent, folder: AgentFolder, found: FileFindings, *, own_base: str | None, agent_id: str | None
) -> SchemaDesk | None:
    """None when the schemas base cannot be used; then nothing is said about schemas. `own_base` is the registry's."""
    settings = agent.runner.flow.schemas
    base = own_base if own_base is not None else settings.base if settings.base is not None else DEFAULT_SCHEMAS_BASE
    if reason := unsafe_reason(base):
        place, at = (found, "/schemasBase") if own_base is not None else (agent.found, "/runner/flow/schemas/base")
        place.add("SF109", at, f'the schemas base is "{base}", which {reason}', "Name a folder of the agent.")
        return None
    files = SchemaFiles(
        folder=folder,
        base=folder.base(base),
        findings=found.findings,
        default=settings.default,
        agent_id=agent_id or agent.file.name or folder.name,
    )
    return SchemaDesk(files=files, registry=found)


def check_agent_id(agent_id: str | None, agent: Agent, found: FileFindings) -> None:
    """The registry's `agentId` is the agent's name (SF201)."""
    name = agent.file.name
    if agent_id and name and agent_id != name:
        message = f'"agentId" is "{agent_id}", but "name" in agent.json is "{name}"'
        found.add("SF201", "/agentId", message, "Give both the same name.")


def format_retries(agent: Agent, own: int | None) -> int:
    """The step's own number, else the agent's, else the default."""
    retries = agent.runner.flow.format_retries if own is None else own
    return DEFAULT_FORMAT_RETRIES if retries is None else retries


def closure_action(agent: Agent) -> ClosureAction | None:
    """The adaptation under which closure prompts are looked up first, if it is one (prompts.md §1)."""
    github = agent.runner.integrations.github
    return github.default_closure_action if github.enabled else None
