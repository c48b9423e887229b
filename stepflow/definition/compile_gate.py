"""The gate dialect compiled to the graph (registry.md §4, §5 and §7).

Takes: the parsed registry and what `agent.json` says. Gives: `Graph`, or None with the problems reported.
May touch: reads the agent's prompts and schemas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.definition.agent_check import check_version
from stepflow.definition.agent_layout import report_old_names
from stepflow.definition.compiled import Graph, check_agent_id, closure_action, format_retries, schema_desk
from stepflow.definition.edges import check_edges
from stepflow.definition.gates import check_gates
from stepflow.definition.graph import Named, check_entries, check_graph, check_verdict_fits
from stepflow.definition.json_text import child
from stepflow.definition.prompt_files import prompt_files
from stepflow.definition.prompts import PromptDesk
from stepflow.definition.registry_file import REGISTRY_CODES, GateRegistry
from stepflow.definition.registry_names import to_new_names
from stepflow.definition.shapes import read_shape
from stepflow.definition.steps import check_steps
from stepflow.definition.validator_entries import Declared
from stepflow.definition.validators import ValidationDesk, entry_of
from stepflow.definition.variables import check_variables, supply_of
from stepflow.domain.definition import Step, StepCommand
from stepflow.domain.words import Dialect, StepKind, VerdictType
from stepflow.engine.prompt.variables import handoff_variable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.definition.agent_check import Agent
    from stepflow.definition.compiled import LoadOptions
    from stepflow.definition.edges import Edges
    from stepflow.definition.findings import FileFindings
    from stepflow.definition.folder import AgentFolder
    from stepflow.definition.prompt_files import PromptFiles
    from stepflow.definition.registry_file import CommandEntry
    from stepflow.definition.schemas import SchemaDesk
    from stepflow.definition.steps import Node, Nodes
    from stepflow.domain.definition import Gate, SourceText, StepPrompt, ValidationEntry
    from stepflow.domain.json import JsonObject

#: Where errors change which step follows which.
_GRAPH_PLACES = r"/steps(/[^/]+(/(stepKind|c2|transitions|structuredGate)(/.*)?)?)?|/entryStep.*"


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """What the groups of checks made of the flow steps."""

    schemas: Mapping[str, JsonObject]
    gates: Mapping[str, Gate]
    edges: Edges
    prompts: Mapping[str, StepPrompt]
    entries: Mapping[str, ValidationEntry]


def compile_gate_registry(
    document: JsonObject, found: FileFindings, *, agent: Agent, folder: AgentFolder, options: LoadOptions
) -> Graph | None:
    """Check a gate registry in the order of registry.md §9 and compile it; None when the agent has any error."""
    renamed = to_new_names(document)
    found = found.findings.of(found.file, renamed.origin)
    report_old_names(renamed.old_names, found)
    registry = read_shape(GateRegistry, renamed.document, "", found, REGISTRY_CODES)
    check_version(registry.version, found)
    check_agent_id(registry.agent_id, agent, found)
    nodes = check_steps(registry, renamed.document, found)
    compiler = _Compiler(registry=registry, agent=agent, folder=folder, found=found, options=options, nodes=nodes)
    return compiler.compile()


@dataclass(frozen=True, kw_only=True)
class _Compiler:
    """One compilation: the groups of checks after the steps, each with what it needs of the ones before."""

    registry: GateRegistry
    agent: Agent
    folder: AgentFolder
    found: FileFindings
    options: LoadOptions
    nodes: Nodes

    @property
    def verdict(self) -> VerdictType | None:
        return self.agent.verdict.type if self.agent.verdict else None

    def compile(self) -> Graph | None:
        own = self.registry
        desk = schema_desk(self.agent, self.folder, self.found, own_base=own.schemas_base, agent_id=own.agent_id)
        schemas = self.schemas(desk)
        violations = self.options.allow_spec_violations
        gates = check_gates(self.nodes, schemas, self.found, allow_spec_violations=violations)
        edges = check_edges(self.nodes, gates, self.found)
        entry_step = self.check_graph(gates, edges)
        files = prompt_files(self.registry, self.folder, self.found, templates=self.options.templates)
        prompts, sections = self.prompts(files, gates)
        entries = self.validation_entries(files, desk)
        if self.found.findings.failed or entry_step is None:
            return None
        parts = _Parts(schemas=schemas, gates=gates, edges=edges, prompts=prompts, entries=entries)
        steps = {node.id: self.step(node, parts) for node in self.nodes.flow.values()}
        return Graph(dialect=Dialect.GATE, steps=steps, entry_step=entry_step, sections=sections)

    def schemas(self, desk: SchemaDesk | None) -> dict[str, JsonObject]:
        schemas: dict[str, JsonObject] = {}
        for node in self.nodes.flow.values():
            if desk is not None and node.entry.output_schema_ref is not None:
                schema = desk.by_ref(node.entry.output_schema_ref, child(node.at, "outputSchemaRef"))
                if schema is not None:
                    schemas[node.id] = schema
        return schemas

    def check_graph(self, gates: Mapping[str, Gate], edges: Edges) -> str | None:
        names = Named(flow=tuple(self.nodes.flow), sections=tuple(self.nodes.sections))
        entries = check_entries(
            self.registry.entry_step, self.registry.entry_step_mapping, names, self.verdict, self.found
        )
        if not self.found.failed_at(_GRAPH_PLACES):  # of a broken graph it means nothing what can be reached
            check_graph(self.nodes, gates, edges, entries, self.found)
        check_verdict_fits(self.nodes, entries.step, self.verdict, self.found)
        return entries.step

    def prompts(
        self, files: PromptFiles | None, gates: Mapping[str, Gate]
    ) -> tuple[dict[str, StepPrompt], dict[str, SourceText]]:
        """The prompts of the steps, and the sections that they take in."""
        action = closure_action(self.agent)
        desk = PromptDesk(files=files, nodes=self.nodes, gates=gates, closure_action=action, found=self.found)
        prompts = desk.prompts()
        handed = (handoff_variable(step_id, path) for step_id, gate in gates.items() for path in gate.handoff_fields)
        supply = supply_of(self.agent.parameters, handed, self.verdict, known=self.agent.known)
        taken = {name: (self.nodes.sections[name], prompt) for name, prompt in desk.sections.items()}
        for step_id, prompt in prompts.items():
            check_variables(prompt, self.nodes.flow[step_id], taken, supply, self.found)
        sections = {name: prompt.source for name, prompt in desk.sections.items()}
        return {step_id: prompt.step for step_id, prompt in prompts.items()}, sections

    def validation_entries(self, files: PromptFiles | None, desk: SchemaDesk | None) -> dict[str, ValidationEntry]:
        return ValidationDesk(
            declared=Declared.of(self.registry),
            closures=tuple(node.id for node in self.nodes.flow.values() if node.kind is StepKind.CLOSURE),
            verdict=self.verdict,
            found=self.found,
            schemas=desk,
            prompts=files,
        ).entries()

    def step(self, node: Node, parts: _Parts) -> Step:
        entry = node.entry
        closure = node.kind is StepKind.CLOSURE
        verdict = self.verdict or VerdictType.COUNT_ITERATION
        return Step(
            id=node.id,
            name=entry.name or node.id,
            kind=node.kind,
            initial=node.initial,
            prompt=parts.prompts.get(node.id),
            schema=parts.schemas.get(node.id),
            gate=parts.gates.get(node.id),
            edges=parts.edges[node.id],
            format_retries=format_retries(self.agent, entry.format_retries),
            model=entry.model,
            permission_mode=entry.permission_mode,
            validation=entry_of(node.id, parts.entries, verdict) if closure else None,
            command=_command(entry.runner) if entry.runner else None,
        )


def _command(entry: CommandEntry) -> StepCommand:
    return StepCommand(command=entry.command or "", args=tuple(entry.args), timeout=entry.timeout / 1000)
