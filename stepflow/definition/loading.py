"""Load an agent folder, or say everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack

from pydantic.alias_generators import to_snake

from stepflow.definition.agent import (
    MODEL_KEYS,
    Agent,
    build_verdict,
    check_agent,
    check_models,
    check_version,
    read_agent,
    read_fallback,
    read_rungs,
)
from stepflow.definition.builtin import BUILTIN, PREFIX, NewCheck, builtin_root
from stepflow.definition.check_dialect import CheckPrompts, CheckRegistry, add_aliases, read_check_steps
from stepflow.definition.diagnostics import Diagnostics, FileProblems, list_words
from stepflow.definition.file_models import GateRegistry, Registry, StepEntry, StepSettings
from stepflow.definition.folder import AgentFolder, Located, NoAgent, locate_agent, read_object, unsafe_reason
from stepflow.definition.graph import (
    Entries,
    add_edges,
    check_approvals,
    check_entries,
    check_graph,
    check_verdict_fits,
    lost_values,
)
from stepflow.definition.judged import report_unjudged
from stepflow.definition.mcp import LOCK_FILE, LockedServers, check_servers, read_lock
from stepflow.definition.old_names import to_new_names
from stepflow.definition.parsing import Pointer
from stepflow.definition.prompts import GatePrompts, Supply, read_system_prompt
from stepflow.definition.rule_of_two import UNKNOWN, Circumstances, check_bounds, find_exposures, report_exposures
from stepflow.definition.schemas import SchemaFolder
from stepflow.definition.steps import Node, Nodes, StepTools, detect_dialect, name_handoffs, read_gate_steps
from stepflow.definition.texts import GuidanceFiles, open_prompts, read_skills
from stepflow.definition.validators import ValidationBuilder, entry_of
from stepflow.domain.agent.agent_settings import KNOWN_TOOL_NAMES, McpServer, Rung
from stepflow.domain.agent.definition import (
    DEFAULT_MODEL,
    AgentDefinition,
    AgentVerdict,
    Exposure,
    Inspection,
    SourceText,
    Step,
    ValidationEntry,
)
from stepflow.domain.text import count
from stepflow.domain.words import CHECK_DIALECT_LIMIT, Dialect, Permission, PermissionMode, StepKind
from stepflow.engine.prompt.variables import run_variable_names
from stepflow.errors import DefinitionError, Problem, Severity

DEFAULT_SCHEMAS_BASE = "schemas"
DEFAULT_FORMAT_RETRIES = 2


class LoadOptions(TypedDict, total=False):
    """What the caller of the loader may choose."""

    allow_spec_violations: bool
    #: `agent.json` may be missing.
    bare_registry: bool
    #: The shell commands that a shipped agent runs at a closing.
    checks: Sequence[str]
    #: The command that proves a shipped agent's change.
    proof: NewCheck | None
    #: The programs that validators find, None if that is unknown.
    programs: Collection[str] | None
    #: Report an agent whose checks run no code. A run does not repeat what its author was told.
    demand_checks: bool
    #: Those of the run, for the rule of two.
    circumstances: Circumstances


def load_agent(path: str | Path, *, root: Path | None = None, **options: Unpack[LoadOptions]) -> AgentDefinition:
    """Load the agent in a folder, the one with a bare name below `<root>/.agent` (default: the current folder), or a
    shipped one (`builtin/fix`).

    Raises `DefinitionError` with its problems when there is any error; warnings and notes are in `.problems`.
    """
    definition, inspection = _load(path, root, options)
    if definition is None:
        errors = sum(problem.severity is Severity.ERROR for problem in inspection.problems)
        message = f"The agent definition has {count(errors, 'error')}."
        raise DefinitionError(message, problems=inspection.problems)
    return definition


def validate_agent(
    path: str | Path, *, root: Path | None = None, **options: Unpack[LoadOptions]
) -> tuple[Problem, ...]:
    """Return the problems of an agent, sorted; never raises for them."""
    return _load(path, root, options)[1].problems


def inspect_agent(path: str | Path, *, root: Path | None = None, **options: Unpack[LoadOptions]) -> Inspection:
    """Return the problems as `validate_agent` gives them, with the texts of the files that they are in."""
    return _load(path, root, options)[1]


def read_servers(path: str | Path, *, root: Path | None = None) -> tuple[McpServer, ...]:
    """Return the MCP servers of an agent, without tools and whatever its lock file says, to make a lock file from.

    `path` and `root` are those of `load_agent`. Raises `DefinitionError` with every problem of agent.json.
    """
    diagnostics = Diagnostics()
    try:
        located = locate_agent(path, root=root, bare_registry=False)
    except NoAgent as exc:
        raise DefinitionError("There is no such agent.", problems=(exc.problem,)) from exc
    folder = AgentFolder(located.folder, root=located.root)
    agent, _ = read_agent(folder, diagnostics, may_lack=False)
    if agent is not None and agent.known:
        check_agent(agent, folder)
        check_servers(agent)
        build_verdict(agent)
    if agent is None or diagnostics.failed:
        problems = diagnostics.inspection(prefix=folder.prefix, texts=folder.texts).problems
        raise DefinitionError("The agent's MCP servers could not be read.", problems=problems)
    return agent.mcp_servers


def _load(
    path: str | Path, root: Path | None, options: LoadOptions, *, repository: Path | None = None
) -> tuple[AgentDefinition | None, Inspection]:
    """`repository` is where guidance is read, if that is not where the agent is."""
    if isinstance(path, str) and path.startswith(PREFIX):
        name = path.removeprefix(PREFIX)
        if name not in BUILTIN:
            fix = f"Use one of these: {list_words(f'{PREFIX}{each}' for each in BUILTIN)}."
            refused = NoAgent("SF101", path, f'there is no shipped agent "{path}"', fix)
            return None, Inspection(problems=(refused.problem,))
        with builtin_root(name, options.get("checks", ()), options.get("proof")) as written:
            definition, inspection = _load(name, written, options, repository=(root or Path.cwd()).absolute())
        own = f"{Path(inspection.prefix)}/"
        problems = tuple(
            _without_place(each, path) if each.file.startswith(own) else each for each in inspection.problems
        )
        definition = replace(definition, problems=problems) if definition else None
        return definition, replace(inspection, problems=problems)
    try:
        located = locate_agent(path, root=root, bare_registry=options.get("bare_registry", False))
    except NoAgent as exc:
        return None, Inspection(problems=(exc.problem,))
    loader = _AgentLoader(located, options, repository or located.root)
    definition, folder = loader.load(), loader.folder
    inspection = replace(
        loader.diagnostics.inspection(prefix=folder.prefix, texts=folder.texts),
        folder=str(folder.path),
        prefix=folder.prefix,
        mcp_tools=tuple(name for names in loader.locked.offered.values() for name in names) if loader.locked else None,
        exposures=loader.exposures,
    )
    if definition is None or loader.diagnostics.failed:
        return None, inspection
    return replace(definition, problems=inspection.problems), inspection


def _without_place(problem: Problem, builtin: str) -> Problem:
    """Return a problem of a shipped agent without its place in a file, which the repository does not have: people
    can only change inputs."""
    message, fix = f"{builtin}: {problem.message}", problem.fix
    if problem.code == "SF357":
        fix = f"Set the input `network: none`, or run `stepflow init --from {builtin}` and change the agent."
    return replace(problem, file="", line=None, column=None, end_column=None, message=message, fix=fix)


class _AgentLoader:
    """Reads the files of an agent, and compiles them to its definition.

    The rules are checked for every file, step and validator whose own shape is sound, so that all that can be known is
    said at once. What a run can reach is checked when every other rule holds, so that one broken reference is one
    problem.
    """

    def __init__(self, located: Located, options: LoadOptions, repository: Path) -> None:
        self.options, self.repository = options, repository
        self.diagnostics = Diagnostics()
        self.folder = AgentFolder(located.folder, root=located.root)
        #: Whether any step has a gate.
        self.gated = False
        self.agent, file = read_agent(self.folder, self.diagnostics, may_lack=options.get("bare_registry", False))
        self.is_agent_sound = not self.diagnostics.failed
        self.locked: LockedServers | None = None
        self.exposures: tuple[Exposure, ...] = ()
        self.registry_file = located.registry or file

    def load(self) -> AgentDefinition | None:
        """Return the definition without its problems; None when the agent has any error."""
        registry, problems = self.read_registry()
        if self.agent is None:
            return None
        if self.is_agent_sound and (self.agent.mcp_servers or self.folder.has(LOCK_FILE)):
            self.locked = read_lock(self.agent, self.folder)
        if registry is None:
            self.check_agent_file(self.agent)
            build_verdict(self.agent)
            read_system_prompt(self.agent, self.folder)
            return None
        return self.compile(registry, self.agent, problems)

    def read_registry(self) -> tuple[GateRegistry | CheckRegistry | None, FileProblems]:
        """Return the registry, None after a fault in its shape, and its problems."""
        problems = self.diagnostics.of(self.registry_file)
        if unsafe_reason(self.registry_file):
            return None, problems
        document = read_object(self.folder, problems, what="registry")
        dialect = detect_dialect(document, problems) if document is not None else None
        if document is None or dialect is None:
            return None, problems
        steps = document["steps"]
        assert isinstance(steps, dict)  # noqa: S101 - a registry without steps has no dialect
        self.gated = any("structuredGate" in step for step in steps.values() if isinstance(step, dict))
        model: type[GateRegistry | CheckRegistry] = GateRegistry if dialect is Dialect.GATE else CheckRegistry
        return to_new_names(document).read(model, problems)

    def check_agent_file(self, agent: Agent) -> None:
        """Check `agent.json` by itself."""
        if agent.known:
            check_agent(agent, self.folder)
        if agent.mcp_servers:
            check_servers(agent)

    def compile(
        self, registry: GateRegistry | CheckRegistry, agent: Agent, problems: FileProblems
    ) -> AgentDefinition | None:
        """Check and compile the files; None when the agent has an error."""
        self.check_agent_file(agent)
        verdict = build_verdict(agent)
        system_prompt = read_system_prompt(agent, self.folder)
        guidance, skills = GuidanceFiles(self.repository, agent), read_skills(self.repository, agent)
        _check_names(registry, agent, problems)
        schemas = _open_schemas(registry, agent, self.folder, problems)
        files = open_prompts(registry, self.folder, problems, agent.runner.integrations.github)
        nodes: Nodes[StepSettings]
        if isinstance(registry, GateRegistry):
            violations = self.options.get("allow_spec_violations", False)
            nodes = gated = read_gate_steps(
                registry, schemas, problems, gated=self.gated, allow_spec_violations=violations
            )
            add_edges(gated, problems)
        else:
            nodes = checked = read_check_steps(registry, problems)
        owners = name_handoffs(nodes, problems)
        if isinstance(registry, CheckRegistry):
            taken = run_variable_names(agent.verdict_type) | agent.file.parameters.keys()
            add_aliases(checked, owners, taken, problems)
        entries = check_entries(registry, nodes, agent.verdict_type, problems)
        lost = _check_flow(nodes, entries, owners, agent, problems, dialect=registry.dialect)
        StepTools(agent, self.locked or LockedServers(), problems).read(nodes.flow.values())
        for node in nodes.flow.values():
            node.guidance = guidance.of_step(node.entry.guidance, node.at / "guidance", problems)
        # A broken step may hand off what another one needs.
        known = agent.known and not problems.broken("steps")
        supply = Supply(agent.file.parameters, owners, agent.verdict_type, lost=lost, known=known)
        if isinstance(registry, GateRegistry):
            texts = GatePrompts(files=files, nodes=gated, supply=supply, problems=problems).read()
        else:
            texts = CheckPrompts(files=files, nodes=checked, supply=supply, problems=problems).read()
        validation = ValidationBuilder(
            registry=registry,
            closures=tuple(node.id for node in nodes.flow.values() if node.kind is StepKind.CLOSURE),
            verdict=agent.verdict_type,
            problems=problems,
            schemas=schemas,
            prompts=files,
            supply=supply,
            programs=self.options.get("programs"),
        ).entries()
        if self.diagnostics.failed or verdict is None or system_prompt is None or entries.step is None:
            return None
        definition = replace(
            self.define(agent, registry.dialect, verdict, system_prompt, entry_step=entries.step),
            steps={name: _step(node, agent, validation) for name, node in nodes.flow.items()},
            entry_steps=entries.follow_ups,
            sections=texts,
            variables=supply.names,
            guidance=guidance.shared,
            skills=skills,
        )
        if self.options.get("demand_checks", False):
            report_unjudged(definition, problems)
        circumstances = self.options.get("circumstances", UNKNOWN)
        self.exposures = find_exposures(definition, circumstances)
        report_exposures(definition, self.exposures, circumstances, problems)
        return replace(definition, digest=self.folder.digest(_other_texts(definition)))

    def define(
        self, agent: Agent, dialect: Dialect, verdict: AgentVerdict, system_prompt: SourceText, *, entry_step: str
    ) -> AgentDefinition:
        """Return what agent.json alone decides."""
        file, runner = agent.file, agent.runner
        tools = runner.boundaries.allowed_tools
        everything = tools is None or "*" in tools
        if dialect is Dialect.CHECK:  # whose own limit a written one can only lower
            most = min(runner.verdict.config.max_iterations or CHECK_DIALECT_LIMIT, CHECK_DIALECT_LIMIT)
            verdict = replace(verdict, limits=replace(verdict.limits, iterations=most))
        return AgentDefinition(
            name=file.name,
            version=file.version,
            display_name=file.display_name or file.name,
            description=file.description,
            folder=self.folder.prefix,
            dialect=dialect,
            digest="",
            steps={},
            entry_step=entry_step,
            verdict=verdict,
            system_prompt=system_prompt,
            parameters=file.parameters,
            models=read_rungs(runner.flow) or (Rung(model=DEFAULT_MODEL),),
            fallback=read_fallback(runner.flow),
            allowed_tools=None if everything else frozenset(tools or ()) & frozenset(KNOWN_TOOL_NAMES),
            permission_mode=runner.boundaries.permission_mode or PermissionMode.ACCEPT_EDITS,
            network=runner.boundaries.network,
            max_usd=runner.boundaries.max_usd,
            anyone_may_start=file.started_by is not None,
            github=runner.integrations.github,
            setup_reads=tuple(file.setup_reads),
            keep_for_checks=tuple(file.keep_for_checks),
            mcp_servers=self.locked.servers if self.locked else (),
        )


def _other_texts(agent: AgentDefinition) -> dict[str, str]:
    """Return the texts from outside the agent's folder, by names for the digest: with another version of a shipped
    template an agent is another definition."""
    prompts = [step.prompt for step in agent.steps.values() if step.prompt]
    shipped = [agent.system_prompt, *agent.sections.values()]
    shipped += [text for prompt in prompts for text in (prompt.source, prompt.fallback) if text]
    others = {f"guidance:{text.file}": text.text for text in agent.all_guidance}
    others |= {f"template:{text.template}": text.text for text in shipped if text.template}
    return others | {skill.address(file): text for skill in agent.skills for file, text in skill.files.items()}


def _check_names(registry: GateRegistry | CheckRegistry, agent: Agent, problems: FileProblems) -> None:
    """Check that the registry's `version` is a version (SF308), its `agentId` is the agent's name (SF201), and the
    models of its steps can be asked."""
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
        for key in (*MODEL_KEYS, "tools"):
            if to_snake(key) in entry.model_fields_set:
                problems.note_idle(at / key, f'"{key}" has no effect where a command answers instead of the model')


def _check_flow(
    nodes: Nodes[StepSettings],
    entries: Entries,
    owners: Mapping[str, tuple[str, str]],
    agent: Agent,
    problems: FileProblems,
    *,
    dialect: Dialect,
) -> dict[tuple[str, str], str]:
    """Check how the steps fit together, and return the values that can be missing where a prompt names them."""
    lost: dict[tuple[str, str], str] = {}
    if not problems.diagnostics.failed:
        check_graph(nodes.flow, entries, dialect, problems)
        lost = lost_values(nodes.flow, entries, {name: step_id for name, (step_id, _) in owners.items()})
    check_verdict_fits(nodes, entries, agent.verdict_type, problems)
    check_approvals(nodes.flow, entries, problems)
    check_bounds(agent, nodes.flow.values(), problems)
    return lost


def _open_schemas(registry: Registry, agent: Agent, folder: AgentFolder, problems: FileProblems) -> SchemaFolder:
    own = registry.schemas_base if isinstance(registry, GateRegistry) else None
    settings = agent.runner.flow.schemas
    return SchemaFolder(
        folder=folder,
        base=folder.base(own or settings.base or DEFAULT_SCHEMAS_BASE),
        default=settings.default,
        agent_id=registry.agent_id or agent.file.name or folder.name,
        registry=problems,
    )


def _step(node: Node[StepSettings], agent: Agent, validation: Mapping[str, ValidationEntry]) -> Step:
    entry = node.entry
    retries = (entry.format_retries, agent.runner.flow.format_retries, DEFAULT_FORMAT_RETRIES)
    return Step(
        id=node.id,
        name=entry.name or node.id,
        kind=node.kind,
        initial=node.initial,
        prompt=node.prompt,
        schema=node.schema,
        gate=node.gate,
        check=node.check,
        edges=node.edges,
        approvals=node.approvals,
        format_retries=next(number for number in retries if number is not None),
        models=read_rungs(entry),
        fallback=read_fallback(entry),
        effort=entry.effort or agent.runner.flow.effort,
        max_output_tokens=entry.max_output_tokens or agent.runner.flow.max_output_tokens,
        permission_mode=entry.permission_mode,
        validation=entry_of(node.id, validation, agent.verdict_type) if node.kind is StepKind.CLOSURE else None,
        command=node.command,
        aliases=node.aliases,
        approval=Permission(entry.approval.by) if entry.approval and entry.approval.by else None,
        guidance=node.guidance,
        tools=node.tools,
        following=tuple(sorted(node.following)),
        accepts_risk=(entry.accepts_risk or "").strip(),
    )
