"""A registry of either dialect compiled to the graph (registry.md §4 to §7)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pydantic.alias_generators import to_snake

from stepflow.definition.agent import MODEL_KEYS, Agent, check_models, check_version, own_fallback, own_models
from stepflow.definition.check_dialect import CheckPrompts, CheckRegistry, add_aliases, read_check_steps
from stepflow.definition.diagnostics import FileProblems
from stepflow.definition.file_models import GateRegistry, Registry, StepEntry, StepSettings
from stepflow.definition.folder import AgentFolder, unsafe_reason
from stepflow.definition.graph import (
    add_edges,
    check_approvals,
    check_entries,
    check_graph,
    check_verdict_fits,
    lost_values,
)
from stepflow.definition.json_text import Pointer
from stepflow.definition.mcp import LockedServers
from stepflow.definition.old_names import report_old_names, to_new_names
from stepflow.definition.prompt_files import PromptFiles, open_prompts
from stepflow.definition.prompts import GatePrompts, Supply
from stepflow.definition.repository import GuidanceFiles
from stepflow.definition.schemas import Schemas
from stepflow.definition.shapes import read_shape
from stepflow.definition.steps import Node, StepTools, read_gate_steps
from stepflow.definition.validators import ValidationBuilder, entry_of
from stepflow.domain.definition import SourceText, Step, StepCommand, StepPrompt, ValidationEntry
from stepflow.domain.json import JsonObject
from stepflow.domain.words import (
    ClosureAction,
    Dialect,
    FollowUpKind,
    Permission,
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

    nodes: Mapping[str, Node[StepSettings]]
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
    tools = StepTools(agent=agent, locked=locked, problems=problems).of_steps(tuple(nodes.values()))
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
    nodes: Mapping[str, Node[StepSettings]],
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
    node: Node[StepSettings],
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
        command = StepCommand(command=runner.command, args=tuple(runner.args), timeout=runner.timeout / 1000)
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


def _name_handoffs(
    nodes: Mapping[str, Node[StepSettings]], noun: str, problems: FileProblems
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
