"""A registry of either dialect compiled to the graph (registry.md §4 to §7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from typing import assert_never

from stepflow.definition.agent import Agent, check_version, run_variables
from stepflow.definition.check_steps import (
    CheckNode,
    CheckPromptResolver,
    built_schema,
    check_check_graph,
    check_check_steps,
    name_handoff,
)
from stepflow.definition.diagnostics import FileProblems
from stepflow.definition.file_models import (
    CHECK_CODES,
    REGISTRY_CODES,
    CheckRegistry,
    CommandEntry,
    GateRegistry,
    Registry,
)
from stepflow.definition.folder import AgentFolder, unsafe_reason
from stepflow.definition.gate_steps import Node, check_gates, check_steps
from stepflow.definition.graph import (
    Entries,
    Named,
    check_edges,
    check_entries,
    check_graph,
    check_verdict_fits,
)
from stepflow.definition.json_text import Pointer
from stepflow.definition.old_names import report_old_names, to_new_names
from stepflow.definition.prompt_files import PromptFiles, open_prompts
from stepflow.definition.prompts import PromptResolver, Supply, check_variables, supply_of
from stepflow.definition.schemas import SchemaFiles, SchemaResolver
from stepflow.definition.shapes import read_shape
from stepflow.definition.validators import ValidationBuilder, entry_of
from stepflow.domain.definition import SourceText, Step, StepCheck, StepCommand, StepPrompt, ValidationEntry
from stepflow.domain.json import JsonObject
from stepflow.domain.words import Dialect, StepKind, VerdictType
from stepflow.engine.prompt.variables import handoff_variable

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


def compile_registry(
    document: JsonObject,
    dialect: Dialect,
    problems: FileProblems,
    *,
    agent: Agent,
    folder: AgentFolder,
    options: LoadOptions,
) -> Graph | None:
    """Check a registry in the order of registry.md §9 and compile it; None when the agent has any error."""
    renamed = to_new_names(document)
    problems = problems.diagnostics.of(problems.file, renamed.origin)
    report_old_names(renamed.old_names, problems)
    compiler = _Compiler(agent=agent, folder=folder, problems=problems, options=options)
    match dialect:
        case Dialect.GATE:
            gates = read_shape(GateRegistry, renamed.document, Pointer(), problems, REGISTRY_CODES)
            return compiler.compile_gates(gates, renamed.document)
        case Dialect.CHECK:
            return compiler.compile_checks(
                read_shape(CheckRegistry, renamed.document, Pointer(), problems, CHECK_CODES)
            )
        case _:
            assert_never(dialect)


#: Where errors change which step follows which: of a broken graph it means nothing what can be reached.
_GATE_GRAPH_PLACES = r"/steps(/[^/]+(/(stepKind|c2|transitions|structuredGate)(/.*)?)?)?|/entryStep.*"
_CHECK_GRAPH_PLACES = r"/steps(/[^/]+(/check(/on(Pass|Fail)(/.*)?)?)?)?|/entryStep.*"


@dataclass(frozen=True, kw_only=True)
class _Compiler:
    """One compilation: the groups of checks, each with what it needs of the ones before."""

    agent: Agent
    folder: AgentFolder
    problems: FileProblems
    options: LoadOptions

    @property
    def verdict(self) -> VerdictType | None:
        return self.agent.verdict.type if self.agent.verdict else None

    def compile_gates(self, registry: GateRegistry, raw: JsonObject) -> Graph | None:
        problems = self.problems
        self.check_names(registry)
        nodes = check_steps(registry, raw, problems)
        resolver = self.schema_resolver(registry)
        schemas: dict[str, JsonObject] = {}
        for node in nodes.flow.values():
            if resolver is not None and node.entry.output_schema_ref is not None:
                schema = resolver.by_ref(node.entry.output_schema_ref, node.at / "outputSchemaRef")
                if schema is not None:
                    schemas[node.id] = schema
        gates = check_gates(nodes, schemas, problems, allow_spec_violations=self.options.allow_spec_violations)
        edges = check_edges(nodes, gates, problems)
        entries = self.entries(registry, Named(flow=tuple(nodes.flow), sections=tuple(nodes.sections)))
        if not problems.failed_at(_GATE_GRAPH_PLACES):
            check_graph(nodes, gates, edges, entries, problems)
        check_verdict_fits(nodes, entries.step, self.verdict, problems)
        files = self.prompt_files(registry)
        prompt_resolver = PromptResolver(files=files, nodes=nodes, gates=gates, problems=problems)
        prompts = prompt_resolver.prompts()
        supply = self.supply(
            handoff_variable(step_id, path) for step_id, gate in gates.items() for path in gate.handoff_fields
        )
        sections = {name: (nodes.sections[name], prompt) for name, prompt in prompt_resolver.sections.items()}
        for step_id, prompt in prompts.items():
            check_variables(prompt, nodes.flow[step_id], sections, supply, problems)
        validation = self.validation(registry, nodes.flow.values(), files, resolver)
        if problems.diagnostics.failed or entries.step is None:
            return None
        steps = {
            node.id: Step(
                id=node.id,
                name=node.entry.name or node.id,
                kind=node.kind,
                initial=node.initial,
                prompt=prompts[node.id].step if node.id in prompts else None,
                schema=schemas.get(node.id),
                gate=gates.get(node.id),
                edges=edges[node.id],
                format_retries=self.format_retries(node.entry.format_retries),
                model=node.entry.model,
                permission_mode=node.entry.permission_mode,
                validation=self.validation_of(node, validation),
                command=_command(node.entry.runner) if node.entry.runner else None,
            )
            for node in nodes.flow.values()
        }
        texts = {name: prompt.source for name, prompt in prompt_resolver.sections.items()}
        return Graph(dialect=Dialect.GATE, steps=steps, entry_step=entries.step, sections=texts)

    def compile_checks(self, registry: CheckRegistry) -> Graph | None:
        problems = self.problems
        self.check_names(registry)
        nodes = check_check_steps(registry, problems)
        parameters = {parameter.name for parameter in self.agent.parameters}
        aliases = name_handoff(nodes, run_variables(self.verdict) | parameters, problems)
        entries = self.entries(registry, Named(flow=tuple(nodes)))
        if not problems.failed_at(_CHECK_GRAPH_PLACES):
            check_check_graph(nodes, entries, problems)
        files = self.prompt_files(registry)
        prompts: dict[str, StepPrompt | None] = {}
        questions: dict[str, StepPrompt | None] = {}
        if files is not None:
            handed = {handoff_variable(node.id, key) for node in nodes.values() for key in node.handoff_keys}
            supply = self.supply(handed.union(*aliases.values()))
            prompt_resolver = CheckPromptResolver(files=files, supply=supply, problems=problems)
            prompts = {node.id: prompt_resolver.own(node) for node in nodes.values()}
            questions = {node.id: prompt_resolver.question(node) for node in nodes.values()}
        validation = self.validation(registry, nodes.values(), files, self.schema_resolver(registry))
        if problems.diagnostics.failed or entries.step is None:
            return None
        steps = {
            node.id: Step(
                id=node.id,
                name=node.entry.name or node.id,
                kind=node.kind,
                prompt=prompts[node.id],
                schema=built_schema(node),
                check=StepCheck(
                    on_pass=node.on_pass,
                    on_fail=node.on_fail,
                    prompt=questions[node.id],
                    is_demanded=node.entry.check is not None and node.entry.check.response_format is not None,
                    handoff_keys=node.handoff_keys,
                ),
                format_retries=self.format_retries(node.entry.format_retries),
                model=node.entry.model,
                permission_mode=node.entry.permission_mode,
                validation=self.validation_of(node, validation),
                aliases=aliases[node.id],
            )
            for node in nodes.values()
        }
        return Graph(dialect=Dialect.CHECK, steps=steps, entry_step=entries.step, sections={})

    def check_names(self, registry: Registry) -> None:
        """The registry's `version` is a version (SF308), its `agentId` the agent's name (SF201)."""
        check_version(registry.version, self.problems)
        agent_id, name = registry.agent_id, self.agent.file.name
        if agent_id and name and agent_id != name:
            message = f'"agentId" is "{agent_id}", but "name" in agent.json is "{name}"'
            self.problems.add("SF201", "/agentId", message, "Give both the same name.")

    def schema_resolver(self, registry: Registry) -> SchemaResolver | None:
        """None when the schemas base cannot be used; then nothing is said about schemas."""
        own = registry.schemas_base if isinstance(registry, GateRegistry) else None
        settings = self.agent.runner.flow.schemas
        base = own if own is not None else settings.base if settings.base is not None else DEFAULT_SCHEMAS_BASE
        if reason := unsafe_reason(base):
            message, fix = f'the schemas base is "{base}", which {reason}', "Name a folder of the agent."
            if own is not None:
                self.problems.add("SF109", "/schemasBase", message, fix)
            else:
                self.agent.problems.add("SF109", "/runner/flow/schemas/base", message, fix)
            return None
        files = SchemaFiles(
            folder=self.folder,
            base=self.folder.base(base),
            diagnostics=self.problems.diagnostics,
            default=settings.default,
            agent_id=registry.agent_id or self.agent.file.name or self.folder.name,
        )
        return SchemaResolver(files=files, registry=self.problems)

    def entries(self, registry: Registry, names: Named) -> Entries:
        return check_entries(registry.entry_step, registry.entry_step_mapping, names, self.verdict, self.problems)

    def prompt_files(self, registry: Registry) -> PromptFiles | None:
        github = self.agent.runner.integrations.github
        return open_prompts(
            registry,
            self.folder,
            self.problems,
            templates=self.options.templates,
            closure_action=github.default_closure_action if github.enabled else None,
        )

    def supply(self, handed: Iterable[str]) -> Supply:
        return supply_of(self.agent.parameters, handed, self.verdict, known=self.agent.known)

    def validation(
        self,
        registry: Registry,
        nodes: Iterable[Node | CheckNode],
        prompts: PromptFiles | None,
        schemas: SchemaResolver | None,
    ) -> dict[str, ValidationEntry]:
        return ValidationBuilder(
            registry=registry,
            closures=tuple(node.id for node in nodes if node.kind is StepKind.CLOSURE),
            verdict=self.verdict,
            problems=self.problems,
            schemas=schemas,
            prompts=prompts,
        ).entries()

    def validation_of(self, node: Node | CheckNode, entries: Mapping[str, ValidationEntry]) -> ValidationEntry | None:
        if node.kind is not StepKind.CLOSURE:
            return None
        return entry_of(node.id, entries, self.verdict or VerdictType.COUNT_ITERATION)

    def format_retries(self, own: int | None) -> int:
        """The step's own number, else the agent's, else the default."""
        retries = self.agent.runner.flow.format_retries if own is None else own
        return DEFAULT_FORMAT_RETRIES if retries is None else retries


def _command(entry: CommandEntry) -> StepCommand:
    return StepCommand(command=entry.command or "", args=tuple(entry.args), timeout=entry.timeout / 1000)
