"""A registry of either dialect compiled to the graph (registry.md §4 to §7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.definition.agent import check_version, run_variables
from stepflow.definition.check_steps import (
    CheckPromptDesk,
    built_schema,
    check_check_steps,
    check_prompt_files,
    name_handoff,
)
from stepflow.definition.file_models import CHECK_CODES, REGISTRY_CODES, CheckRegistry, GateRegistry
from stepflow.definition.folder import unsafe_reason
from stepflow.definition.gate_steps import check_gates, check_steps
from stepflow.definition.graph import (
    Named,
    check_edges,
    check_entries,
    check_graph,
    check_reached,
    check_verdict_fits,
    reached_from,
)
from stepflow.definition.json_text import child
from stepflow.definition.old_names import report_old_names, to_new_names
from stepflow.definition.prompt_files import prompt_files
from stepflow.definition.prompts import PromptDesk, check_variables, supply_of
from stepflow.definition.schemas import SchemaDesk, SchemaFiles
from stepflow.definition.shapes import read_shape
from stepflow.definition.validators import Declared, ValidationDesk, entry_of
from stepflow.domain.check import Check
from stepflow.domain.definition import Step, StepCommand
from stepflow.domain.words import Dialect, StepKind, VerdictType
from stepflow.engine.prompt.variables import handoff_variable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable

    from stepflow.definition.agent import Agent
    from stepflow.definition.check_steps import Aliases, CheckNode
    from stepflow.definition.diagnostics import FileFindings
    from stepflow.definition.file_models import CommandEntry
    from stepflow.definition.folder import AgentFolder
    from stepflow.definition.gate_steps import Node, Nodes
    from stepflow.definition.graph import Edges, Entries
    from stepflow.definition.prompt_files import PromptFiles
    from stepflow.domain.definition import Gate, SourceText, StepPrompt, ValidationEntry
    from stepflow.domain.json import JsonObject
    from stepflow.domain.words import ClosureAction


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


#: Where errors change which step follows which.
_GATE_GRAPH_PLACES = r"/steps(/[^/]+(/(stepKind|c2|transitions|structuredGate)(/.*)?)?)?|/entryStep.*"


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
    compiler = _GateCompiler(registry=registry, agent=agent, folder=folder, found=found, options=options, nodes=nodes)
    return compiler.compile()


@dataclass(frozen=True, kw_only=True)
class _GateCompiler:
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
        if not self.found.failed_at(_GATE_GRAPH_PLACES):  # of a broken graph it means nothing what can be reached
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


#: Where errors change which step follows which.
_CHECK_GRAPH_PLACES = r"/steps(/[^/]+(/check(/on(Pass|Fail)(/.*)?)?)?)?|/entryStep.*"


def compile_check_registry(
    document: JsonObject, found: FileFindings, *, agent: Agent, folder: AgentFolder, options: LoadOptions
) -> Graph | None:
    """Check a check registry in the order of registry.md §9 and compile it; None when the agent has any error."""
    renamed = to_new_names(document)
    found = found.findings.of(found.file, renamed.origin)
    report_old_names(renamed.old_names, found)
    registry = read_shape(CheckRegistry, renamed.document, "", found, CHECK_CODES)
    check_version(registry.version, found)
    check_agent_id(registry.agent_id, agent, found)
    nodes = check_check_steps(registry, found)
    compiler = _CheckCompiler(registry=registry, agent=agent, folder=folder, found=found, options=options, nodes=nodes)
    return compiler.compile()


@dataclass(frozen=True, kw_only=True)
class _CheckCompiler:
    """One compilation: the groups of checks after the steps, each with what it needs of the ones before."""

    registry: CheckRegistry
    agent: Agent
    folder: AgentFolder
    found: FileFindings
    options: LoadOptions
    nodes: Mapping[str, CheckNode]

    @property
    def verdict(self) -> VerdictType | None:
        return self.agent.verdict.type if self.agent.verdict else None

    def compile(self) -> Graph | None:
        aliases = self.aliases()
        entry_step = self.entry_step()
        files = check_prompt_files(self.registry, self.folder, self.found, templates=self.options.templates)
        prompts, questions = self.prompts(files, aliases)
        entries = self.validation_entries(files)
        if self.found.findings.failed or entry_step is None:
            return None
        steps = {
            node.id: self.step(node, prompts[node.id], questions.get(node.id), entries, aliases[node.id])
            for node in self.nodes.values()
        }
        return Graph(dialect=Dialect.CHECK, steps=steps, entry_step=entry_step, sections={})

    def aliases(self) -> Aliases:
        parameters = {parameter.name for parameter in self.agent.parameters}
        return name_handoff(self.nodes, run_variables(self.verdict) | parameters, self.found)

    def entry_step(self) -> str | None:
        names = Named(flow=tuple(self.nodes))
        mapping = self.registry.entry_step_mapping
        entries = check_entries(self.registry.entry_step, mapping, names, self.verdict, self.found)
        if not self.found.failed_at(_CHECK_GRAPH_PLACES):  # of a broken graph it means nothing what can be reached
            self.check_graph(entries)
        return entries.step

    def check_graph(self, entries: Entries) -> None:
        """What no run can reach (SF346), and entries from which none can complete (SF707)."""
        following = {node.id: node.targets for node in self.nodes.values()}
        check_reached(following, entries, self.found)
        for at, step_id in entries.by_pointer.items():
            reached = reached_from((step_id,), following)
            if not any(self.nodes[one].kind is StepKind.CLOSURE for one in reached):
                message = f'no step with "complete" can be reached from the entry step "{step_id}"'
                self.found.add("SF707", at, message, 'Let an outcome "complete" the run.')

    def prompts(
        self, files: PromptFiles | None, aliases: Aliases
    ) -> tuple[dict[str, StepPrompt], dict[str, StepPrompt]]:
        """The prompts of the steps, and those of their checks."""
        if files is None:
            return {}, {}
        handed = {handoff_variable(node.id, key) for node in self.nodes.values() for key in node.handoff_keys}
        handed |= {name for names in aliases.values() for name in names}
        supply = supply_of(self.agent.parameters, handed, self.verdict, known=self.agent.known)
        action = closure_action(self.agent)
        desk = CheckPromptDesk(files=files, supply=supply, closure_action=action, found=self.found)
        own = {node.id: desk.own(node) for node in self.nodes.values()}
        questions = {node.id: desk.question(node) for node in self.nodes.values()}
        return _there(own), _there(questions)

    def validation_entries(self, files: PromptFiles | None) -> dict[str, ValidationEntry]:
        return ValidationDesk(
            declared=Declared.of(self.registry),
            closures=tuple(node.id for node in self.nodes.values() if node.kind is StepKind.CLOSURE),
            verdict=self.verdict,
            found=self.found,
            schemas=schema_desk(self.agent, self.folder, self.found, own_base=None, agent_id=self.registry.agent_id),
            prompts=files,
        ).entries()

    def step(
        self,
        node: CheckNode,
        prompt: StepPrompt,
        question: StepPrompt | None,
        entries: Mapping[str, ValidationEntry],
        aliases: Mapping[str, str],
    ) -> Step:
        entry = node.entry
        closure = node.kind is StepKind.CLOSURE
        verdict = self.verdict or VerdictType.COUNT_ITERATION
        return Step(
            id=node.id,
            name=entry.name or node.id,
            kind=node.kind,
            prompt=prompt,
            schema=built_schema(node),
            check=_check(node, question),
            format_retries=format_retries(self.agent, entry.format_retries),
            model=entry.model,
            permission_mode=entry.permission_mode,
            validation=entry_of(node.id, entries, verdict) if closure else None,
            aliases=aliases,
        )


def _there(prompts: Mapping[str, StepPrompt | None]) -> dict[str, StepPrompt]:
    return {step_id: prompt for step_id, prompt in prompts.items() if prompt is not None}


def _check(node: CheckNode, question: StepPrompt | None) -> Check:
    written = node.entry.check
    return Check(
        on_pass=node.on_pass,
        on_fail=node.on_fail,
        prompt=question,
        is_demanded=written is not None and written.response_format is not None,
        handoff_keys=node.handoff_keys,
    )
