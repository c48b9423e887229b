"""A registry of either dialect compiled to the graph (registry.md §4 to §7)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic.alias_generators import to_snake

from stepflow.definition.agent import Agent, check_version
from stepflow.definition.diagnostics import FileProblems, closest_match, hint, listed
from stepflow.definition.file_models import CheckRegistry, CheckStepEntry, GateRegistry, Registry, StepEntry
from stepflow.definition.files.json_text import Pointer
from stepflow.definition.folder import AgentFolder, unsafe_reason
from stepflow.definition.graph import (
    add_edges,
    check_approvals,
    check_entries,
    check_graph,
    check_verdict_fits,
    lost_values,
)
from stepflow.definition.mcp import LOCK_FILE, LockedServers
from stepflow.definition.models import MODEL_KEYS, check_models, own_fallback, own_models
from stepflow.definition.old_names import report_old_names, to_new_names
from stepflow.definition.prompt_files import PromptFiles, open_prompts
from stepflow.definition.prompts import CheckPrompts, GatePrompts, Supply
from stepflow.definition.repository.guidance import GuidanceFiles
from stepflow.definition.schemas import Schemas
from stepflow.definition.shapes import read_shape
from stepflow.definition.steps import Node, add_aliases, read_check_steps, read_gate_steps
from stepflow.definition.validators import ValidationBuilder, entry_of
from stepflow.domain.definition import SourceText, Step, StepCommand, StepPrompt, ValidationEntry
from stepflow.domain.json import JsonObject
from stepflow.domain.mcp import MCP_PREFIX, mcp_name
from stepflow.domain.tools import KNOWN_TOOL_NAMES, READ_ONLY_TOOLS, TOOL_SPECS_BY_NAME
from stepflow.domain.words import (
    ClosureAction,
    Dialect,
    FollowUpKind,
    Permission,
    PermissionMode,
    StepKind,
    VerdictType,
)
from stepflow.engine.prompt.variables import handoff_variable, run_variable_names

DEFAULT_SCHEMAS_BASE = "schemas"
DEFAULT_FORMAT_RETRIES = 2


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """What the caller of the loader may choose.

    With `bare_registry` there may be no `agent.json`; `checks` are the commands that a shipped agent runs at a closing;
    `programs` are those that validators find, None where that is not known.
    """

    allow_spec_violations: bool
    allow_custom_verdict: bool
    bare_registry: bool = False
    checks: Sequence[str] = ()
    programs: Collection[str] | None = None


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A compiled registry: what the flow needs of it."""

    dialect: Dialect
    steps: dict[str, Step]
    entry_step: str
    entry_steps: Mapping[FollowUpKind, str]
    sections: dict[str, SourceText]


#: Where errors change which step follows which: of a broken graph it means nothing what can be reached.
_GRAPH_PLACES = {
    Dialect.GATE: r"/steps(/[^/]+(/(stepKind|c2|transitions|structuredGate)(/.*)?)?)?|/entryStep.*",
    Dialect.CHECK: r"/steps(/[^/]+(/check(/on(Pass|Fail)(/.*)?)?)?)?|/entryStep.*",
}


def compile_registry(
    document: JsonObject,
    dialect: Dialect,
    problems: FileProblems,
    *,
    agent: Agent,
    folder: AgentFolder,
    guidance: GuidanceFiles,
    locked: LockedServers,
    options: LoadOptions,
) -> Graph | None:
    """Check a registry in the order of registry.md §9 and compile it; None when the agent has any error."""
    registry, problems = _read_registry(document, dialect, problems)
    _check_names(registry, agent, problems)
    verdict = agent.verdict.type if agent.verdict else None
    schemas = _open_schemas(registry, agent, folder, problems)
    files = open_prompts(registry, folder, problems, closure_action=_closure_action(agent))

    nodes: dict[str, Node[StepEntry]] | dict[str, Node[CheckStepEntry]]
    sections: Collection[str] = ()
    if isinstance(registry, GateRegistry):
        violations = options.allow_spec_violations
        gated = read_gate_steps(registry, schemas, problems, allow_spec_violations=violations)
        add_edges(gated, problems)
        nodes, sections = gated.flow, gated.sections
        owners = _name_handoffs(nodes, "field", problems)
    else:
        checked = nodes = read_check_steps(registry, problems)
        owners = _name_handoffs(nodes, "key", problems)
        taken = run_variable_names(verdict) | {parameter.name for parameter in agent.parameters}
        add_aliases(checked, owners, taken, problems)
    entries = check_entries(registry, nodes, sections, verdict, problems)
    check_approvals(nodes, entries, problems)
    tools = _StepTools(agent=agent, locked=locked, problems=problems).of_steps(tuple(nodes.values()))
    guided = {node.id: guidance.of_step(node.entry.guidance, node.at / "guidance", problems) for node in nodes.values()}
    lost: dict[tuple[str, str], str] = {}
    if not problems.failed_at(_GRAPH_PLACES[dialect]):
        check_graph(nodes, entries, dialect, problems)
        lost = lost_values(nodes, entries, {name: step_id for name, (step_id, _) in owners.items()})

    supply = Supply.of(agent.parameters, owners, verdict, lost=lost, known=agent.known)
    prompts: dict[str, StepPrompt] = {}
    texts: dict[str, SourceText] = {}
    if isinstance(registry, GateRegistry):
        check_verdict_fits(gated, entries, verdict, problems)
        finder = GatePrompts(files=files, nodes=gated, supply=supply, problems=problems)
        prompts = finder.prompts()
        texts = {name: prompt.source for name, prompt in finder.sections.items()}
    elif files is not None:
        prompts = CheckPrompts(files=files, nodes=checked, supply=supply, problems=problems).prompts()
    validation = _validation(
        registry, nodes, verdict, problems, schemas=schemas, prompts=files, supply=supply, options=options
    )
    if problems.diagnostics.failed or entries.step is None:
        return None
    steps = {
        node.id: _step(node, prompts.get(node.id), agent, validation, guidance=guided[node.id], tools=tools[node.id])
        for node in nodes.values()
    }
    return Graph(dialect=dialect, steps=steps, entry_step=entries.step, entry_steps=entries.follow_ups, sections=texts)


def _read_registry(
    document: JsonObject, dialect: Dialect, problems: FileProblems
) -> tuple[GateRegistry | CheckRegistry, FileProblems]:
    """The registry by its newer names, and where its problems go, which are placed by the names as they are written."""
    renamed = to_new_names(document)
    problems = problems.diagnostics.of(problems.file, renamed.origin)
    report_old_names(renamed.old_names, problems)
    model: type[GateRegistry | CheckRegistry] = GateRegistry if dialect is Dialect.GATE else CheckRegistry
    return read_shape(model, renamed.document, problems, renamed.origins), problems


def _closure_action(agent: Agent) -> ClosureAction | None:
    """What closing means where the closing answer does not say; None where nothing is done on GitHub."""
    github = agent.runner.integrations.github
    return github.default_closure_action if github.enabled else None


def _validation(
    registry: Registry,
    nodes: Mapping[str, Node[StepEntry]] | Mapping[str, Node[CheckStepEntry]],
    verdict: VerdictType | None,
    problems: FileProblems,
    *,
    schemas: Schemas | None,
    prompts: PromptFiles | None,
    supply: Supply,
    options: LoadOptions,
) -> dict[str, ValidationEntry]:
    """What is checked when a closure step says `closing`, by its id."""
    return ValidationBuilder(
        registry=registry,
        closures=tuple(node.id for node in nodes.values() if node.kind is StepKind.CLOSURE),
        verdict=verdict,
        problems=problems,
        schemas=schemas,
        prompts=prompts,
        variables=supply.names,
        plain=supply.plain,
        programs=options.programs,
    ).entries()


def _step(
    node: Node[StepEntry] | Node[CheckStepEntry],
    prompt: StepPrompt | None,
    agent: Agent,
    validation: Mapping[str, ValidationEntry],
    *,
    guidance: tuple[SourceText, ...],
    tools: tuple[str, ...] | None,
) -> Step:
    entry, command = node.entry, None
    if isinstance(entry, StepEntry) and entry.runner is not None:
        runner = entry.runner
        command = StepCommand(command=runner.command or "", args=tuple(runner.args), timeout=runner.timeout / 1000)
    retries = (entry.format_retries, agent.runner.flow.format_retries, DEFAULT_FORMAT_RETRIES)
    return Step(
        id=node.id,
        name=entry.name or node.id,
        kind=node.kind,
        initial=node.initial,
        prompt=prompt,
        schema=node.schema,
        gate=node.gate,
        check=node.check,
        edges=node.edges,
        approvals=node.approvals,
        format_retries=next(number for number in retries if number is not None),
        models=own_models(entry),
        fallback=own_fallback(entry),
        effort=entry.effort or agent.runner.flow.effort,
        max_output_tokens=entry.max_output_tokens or agent.runner.flow.max_output_tokens,
        permission_mode=entry.permission_mode,
        validation=entry_of(node.id, validation, agent.verdict.type if agent.verdict else None)
        if node.kind is StepKind.CLOSURE
        else None,
        command=command,
        aliases=node.aliases,
        approval=Permission(entry.approval.by) if entry.approval and entry.approval.by else None,
        guidance=guidance,
        tools=tools,
    )


@dataclass(frozen=True, kw_only=True)
class _StepTools:
    """Reads what steps name in `tools`."""

    agent: Agent
    locked: LockedServers
    problems: FileProblems

    def of_steps(self, nodes: Sequence[Node[StepEntry] | Node[CheckStepEntry]]) -> dict[str, tuple[str, ...] | None]:
        """The tools of each step by its id, None where it names none; with what nobody can use reported."""
        tools = {node.id: self._of_step(node) for node in nodes}
        asking = [tools[node.id] for node in nodes if not _is_command(node)]
        reading = [names for names in asking if "Read" in (self._allowed if names is None else names)]
        if self.agent.file.skills and not reading:
            message = 'skills are read with the tool "Read", which no step has'
            self.agent.problems.add("SF116", "/skills", message, 'Allow "Read".')
        if not self.problems.failed_at(r"/steps/[^/]+/tools(/.*)?"):
            named = {name for names in asking for name in names or ()}
            for server, offered in self.locked.offered.items():
                if named.isdisjoint(offered):
                    at = Pointer("/mcpServers") / server.removeprefix(MCP_PREFIX)
                    fix = f'Write "{server}" into "tools" of the steps that need it, or remove it.'
                    self.agent.problems.report("SF111", at, "no step names a tool of it", fix)
        return tools

    @property
    def _allowed(self) -> tuple[str, ...]:
        allowed = self.agent.runner.boundaries.allowed_tools
        return tuple(name for name in TOOL_SPECS_BY_NAME if allowed is None or name in allowed or "*" in allowed)

    def _of_step(self, node: Node[StepEntry] | Node[CheckStepEntry]) -> tuple[str, ...] | None:
        at = node.at / "tools"
        if node.entry.tools is None:
            return None
        if _is_command(node):
            message = '"tools" has no effect where a command answers instead of the model'
            self.problems.report("SF111", at, message, "Remove the key, or leave it.")
            return None
        mode = node.entry.permission_mode or self.agent.runner.boundaries.permission_mode
        plan = mode is PermissionMode.PLAN
        named = (self._names(tool, at / index, plan=plan) for index, tool in enumerate(node.entry.tools))
        return tuple(dict.fromkeys(name for names in named for name in names))

    def _names(self, tool: str, at: Pointer, *, plan: bool) -> tuple[str, ...]:
        """The tools that are meant; none after a problem."""
        names = {"*": self._allowed, **{name: (name,) for name in self._allowed}, **self.locked.offered}
        names |= {name: (name,) for name in self.locked.tools}
        if tool in names and not (plan and tool not in {"*", *READ_ONLY_TOOLS}):
            return names[tool]
        if tool in names:
            message = f'"permissionMode" is "plan", which leaves it no tool "{tool}"'
            fix = f"Remove it, or give the step another mode: this one leaves {listed(sorted(READ_ONLY_TOOLS))}."
        elif tool in KNOWN_TOOL_NAMES:
            message = f'agent.json does not allow the tool "{tool}"'
            fix = 'Add it to "allowedTools" there, or remove it here.'
        elif any(f"{tool}__".startswith(server) for server in self._unpinned):
            return ()  # why nothing is known of it was reported
        else:
            all_of_it = tool.removesuffix("__*")
            near = all_of_it if all_of_it in names else closest_match(tool, names)
            message = f'the tool "{tool}" is not known{hint(near)}'
            fix = f"Use {listed((*self._allowed, *self.locked.offered))}, or one tool that {LOCK_FILE} has."
        self.problems.report("SF356", at, message, fix)
        return ()

    @property
    def _unpinned(self) -> Iterator[str]:
        """What the names of tools begin with that nothing is known of."""
        if not self.agent.known:
            yield MCP_PREFIX
        for server in self.agent.mcp_servers:
            if f"{MCP_PREFIX}{server.name}" not in self.locked.offered:
                yield mcp_name(server.name, "")


def _is_command(node: Node[StepEntry] | Node[CheckStepEntry]) -> bool:
    return isinstance(node.entry, StepEntry) and node.entry.runner is not None


def _name_handoffs(
    nodes: Mapping[str, Node[StepEntry]] | Mapping[str, Node[CheckStepEntry]], noun: str, problems: FileProblems
) -> dict[str, tuple[str, str]]:
    """The step and key that each handoff variable stands for. Two that get one name are reported (SF327)."""
    owners: dict[str, tuple[str, str]] = {}
    for node in nodes.values():
        for key, at in node.handed.items():
            name = handoff_variable(node.id, key)
            other_id, other_key = owners.setdefault(name, (node.id, key))
            if other_id == node.id and other_key.rpartition(".")[2] == key.rpartition(".")[2]:
                continue  # one key, or two of one step with one last name, which is reported already
            message = f'the handoff {noun} "{key}" would be the variable "{name}", '
            message += f'as "{other_key}" of step "{other_id}" already is'
            problems.report("SF327", at, message, f"Rename one of the {noun}s or steps.")
    return owners


def _check_names(registry: GateRegistry | CheckRegistry, agent: Agent, problems: FileProblems) -> None:
    """The registry's `version` is a version (SF308), its `agentId` the agent's name (SF201), and the models of its
    steps are ones that can be asked."""
    check_version(registry.version, problems)
    agent_id, name = registry.agent_id, agent.file.name
    if agent_id and name and agent_id != name:
        message = f'"agentId" is "{agent_id}", but "name" in agent.json is "{name}"'
        problems.add("SF201", "/agentId", message, "Give both the same name.")
    for step_id, entry in registry.steps.items():
        at = Pointer("/steps") / step_id
        if not isinstance(entry, StepEntry) or entry.runner is None:
            check_models(entry, at, problems, flow=agent.runner.flow)
            continue
        for key in MODEL_KEYS:
            if to_snake(key) in entry.model_fields_set:
                message = f'"{key}" has no effect where a command answers instead of the model'
                problems.report("SF111", at / key, message, "Remove the key, or leave it.")


def _open_schemas(registry: Registry, agent: Agent, folder: AgentFolder, problems: FileProblems) -> Schemas | None:
    """None when the schemas base cannot be used; then nothing is said about schemas."""
    own = registry.schemas_base if isinstance(registry, GateRegistry) else None
    settings = agent.runner.flow.schemas
    base = own if own is not None else settings.base if settings.base is not None else DEFAULT_SCHEMAS_BASE
    if reason := unsafe_reason(base):
        message, fix = f'the schemas base is "{base}", which {reason}', "Name a folder of the agent."
        if own is not None:
            problems.add("SF109", "/schemasBase", message, fix)
        else:
            agent.problems.add("SF109", "/runner/flow/schemas/base", message, fix)
        return None
    return Schemas(
        folder=folder,
        base=folder.base(base),
        default=settings.default,
        agent_id=registry.agent_id or agent.file.name or folder.name,
        registry=problems,
    )
