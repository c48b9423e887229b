"""An agent folder loaded, or everything that is wrong with it (registry.md §3 and §9)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from stepflow.definition.agent import Agent, own_fallback, own_models, read_agent
from stepflow.definition.builtin import BUILTIN, PREFIX, builtin_root
from stepflow.definition.check_dialect import detect_dialect
from stepflow.definition.compile import Graph, LoadOptions, compile_registry
from stepflow.definition.diagnostics import LIKE_PATHS, Diagnostics, did_you_mean, listed
from stepflow.definition.file_models import GitHub
from stepflow.definition.folder import AgentFolder, NoAgent, file_code, locate, read_object, unsafe_reason
from stepflow.definition.mcp import LockedServers, read_lock
from stepflow.definition.prompt_files import Prompt, TagReporter, shipped_prompt, split_prompt
from stepflow.definition.repository import GuidanceFiles, read_skills
from stepflow.definition.safe_files import FileRefused, Why
from stepflow.definition.shapes import FileModel
from stepflow.domain.definition import (
    DEFAULT_MODEL,
    AgentDefinition,
    AgentVerdict,
    GitHubSettings,
    PullRequestSettings,
    Skill,
    SourceText,
)
from stepflow.domain.figures import count
from stepflow.domain.ladder import Rung
from stepflow.domain.mcp import McpServer
from stepflow.domain.problem import Inspection, Problem, Severity
from stepflow.domain.tools import KNOWN_TOOL_NAMES
from stepflow.domain.words import CHECK_DIALECT_LIMIT, Dialect, PermissionMode
from stepflow.engine.prompt.variables import system_names
from stepflow.errors import DefinitionError

DEFAULT_REGISTRY = "steps_registry.json"

_SYSTEM_PATH = "/runner/flow/systemPromptPath"
_REGISTRY_PATH = "/runner/flow/prompts/registry"


def load_agent(
    path: str | Path,
    *,
    root: Path | None = None,
    allow_spec_violations: bool = False,
    allow_custom_verdict: bool = False,
    checks: Sequence[str] = (),
) -> AgentDefinition:
    """Load the agent in a folder, or the one of a bare name below `<root>/.agent` (default: the current folder), or a
    shipped one (`builtin/fix`) with these `checks`, each a shell command.

    Raises `DefinitionError` with every problem when there is any error; warnings and notes are in `.problems`.
    """
    options = LoadOptions(
        allow_spec_violations=allow_spec_violations, allow_custom_verdict=allow_custom_verdict, checks=tuple(checks)
    )
    definition, inspection = _load(path, root, options)
    if definition is None:
        errors = sum(problem.severity is Severity.ERROR for problem in inspection.problems)
        message = f"The agent definition has {count(errors, 'error')}."
        raise DefinitionError(message, problems=inspection.problems)
    return definition


def validate_agent(
    path: str | Path,
    *,
    root: Path | None = None,
    bare_registry: bool = False,
    allow_spec_violations: bool = False,
    allow_custom_verdict: bool = False,
) -> tuple[Problem, ...]:
    """Every problem of an agent, sorted; never raises for them. With `bare_registry` there may be no `agent.json`."""
    options = LoadOptions(
        allow_spec_violations=allow_spec_violations,
        allow_custom_verdict=allow_custom_verdict,
        bare_registry=bare_registry,
    )
    return _load(path, root, options)[1].problems


def inspect_agent(
    path: str | Path,
    *,
    root: Path | None = None,
    allow_spec_violations: bool = False,
    allow_custom_verdict: bool = False,
    programs: Collection[str] | None = None,
) -> Inspection:
    """As `validate_agent`, with the texts that the problems are in: as they were read, and nothing else. `programs` are
    those that validators find on this machine, None where that says nothing of the place where they will run."""
    options = LoadOptions(
        allow_spec_violations=allow_spec_violations, allow_custom_verdict=allow_custom_verdict, programs=programs
    )
    return _load(path, root, options)[1]


def read_servers(path: str | Path, *, root: Path | None = None) -> tuple[McpServer, ...]:
    """The MCP servers of an agent, without tools and whatever its lock file says: what a lock is made from.

    `path` and `root` are those of `load_agent`. Raises `DefinitionError` with every problem of agent.json.
    """
    diagnostics = Diagnostics()
    try:
        located = locate(path, root=root, bare_registry=False)
    except NoAgent as exc:
        raise DefinitionError("There is no such agent.", problems=(exc.problem,)) from exc
    folder = AgentFolder(located.folder, root=located.root)
    agent = read_agent(folder, diagnostics, allow_custom=True, may_lack=False)
    if diagnostics.failed:
        problems = diagnostics.inspection(prefix=folder.prefix, texts=folder.texts).problems
        raise DefinitionError("The MCP servers of the agent cannot be told.", problems=problems)
    return agent.mcp_servers


def _load(
    path: str | Path, root: Path | None, options: LoadOptions, *, repository: Path | None = None
) -> tuple[AgentDefinition | None, Inspection]:
    """`repository` is where guidance is read, if not where the agent is."""
    if isinstance(path, str) and path.startswith(PREFIX):
        return _load_builtin(path, root, options)
    try:
        located = locate(path, root=root, bare_registry=options.bare_registry)
    except NoAgent as exc:
        return None, Inspection(problems=(exc.problem,))
    folder = AgentFolder(located.folder, root=located.root)
    diagnostics = Diagnostics()
    agent = read_agent(folder, diagnostics, allow_custom=options.allow_custom_verdict, may_lack=options.bare_registry)
    system_prompt = _system_prompt(agent, folder)
    locked = read_lock(agent.mcp_servers, folder, agent.problems)
    files = GuidanceFiles(repository or located.root, agent)
    guidance, skills = files.of_agent(), read_skills(repository or located.root, agent)
    graph = _graph(agent, located.registry, folder, diagnostics, guidance=files, locked=locked, options=options)
    inspection = diagnostics.inspection(prefix=folder.prefix, texts=folder.texts)
    inspection = replace(inspection, folder=str(folder.path), prefix=folder.prefix, mcp_tools=locked.tools)
    if graph is None or system_prompt is None or agent.verdict is None or diagnostics.failed:
        return None, inspection
    definition = _define(
        agent,
        agent.verdict,
        graph,
        system_prompt,
        folder,
        guidance=guidance,
        skills=skills,
        servers=locked.servers,
        problems=inspection.problems,
    )
    return definition, inspection


def _load_builtin(
    path: str, repository: Path | None, options: LoadOptions
) -> tuple[AgentDefinition | None, Inspection]:
    name = path.removeprefix(PREFIX)
    if name not in BUILTIN:
        fix = f"Use one of these: {listed(tuple(f'{PREFIX}{each}' for each in BUILTIN))}."
        return None, Inspection(problems=(NoAgent("SF101", path, f'there is no shipped agent "{path}"', fix).problem,))
    with builtin_root(name, options.checks) as root:
        return _load(name, root, options, repository=(repository or Path.cwd()).absolute())


def _system_prompt(agent: Agent, folder: AgentFolder) -> SourceText | None:
    path = agent.runner.flow.system_prompt_path
    if path is None:
        return shipped_prompt("system").source
    fix = 'Name a file of the agent folder, or leave "systemPromptPath" out.'
    try:
        _, text, first_line = split_prompt(folder.read(path))
    except FileRefused as refused:
        texts = [one for one in folder.files() if one.endswith(".md")] if refused.why is Why.MISSING else []
        message = f'the system prompt: "{path}" {refused.message}{did_you_mean(path, texts, LIKE_PATHS)}'
        agent.problems.add(file_code(refused), _SYSTEM_PATH, message, fix)
        return None
    if not text:
        agent.problems.add("SF102", _SYSTEM_PATH, f'the system prompt: the file "{path}" is empty', fix)
    prompt = Prompt(source=SourceText(text=text, file=path), first_line=first_line)
    if agent.known:
        _check_system_prompt(prompt, agent)
    return prompt.source


def _check_system_prompt(prompt: Prompt, agent: Agent) -> None:
    """What is not the same in every step of a run stays as text in the system prompt."""
    names = system_names(agent.parameters)
    reporter = TagReporter(
        prompt=prompt,
        owner="the system prompt: ",
        names=names,
        plain=names,
        problems=agent.problems,
        advice="Write it in the prompt of a step",
    )
    reporter.report(prompt.tags(names, is_closed=True))


def _graph(
    agent: Agent,
    named: str | None,
    folder: AgentFolder,
    diagnostics: Diagnostics,
    *,
    guidance: GuidanceFiles,
    locked: LockedServers,
    options: LoadOptions,
) -> Graph | None:
    file = named or agent.runner.flow.prompts.registry
    if file is not None and (reason := unsafe_reason(file)):
        fix = "Name a file inside the agent folder."
        agent.problems.add("SF109", _REGISTRY_PATH, f'the registry path "{file}" {reason}', fix)
        return None
    problems = diagnostics.of(file or DEFAULT_REGISTRY)
    document = read_object(folder, problems, what="registry")
    dialect = detect_dialect(document, problems) if document is not None else None
    if document is None or dialect is None:
        return None
    return compile_registry(
        document, dialect, problems, agent=agent, folder=folder, guidance=guidance, locked=locked, options=options
    )


def _define(
    agent: Agent,
    verdict: AgentVerdict,
    graph: Graph,
    system_prompt: SourceText,
    folder: AgentFolder,
    *,
    guidance: tuple[SourceText, ...],
    skills: tuple[Skill, ...],
    servers: tuple[McpServer, ...],
    problems: tuple[Problem, ...],
) -> AgentDefinition:
    file, runner = agent.file, agent.runner
    tools = runner.boundaries.allowed_tools
    everything = tools is None or "*" in tools
    if graph.dialect is Dialect.CHECK:  # whose own limit a written one can only lower (registry.md §6.3)
        most = min(runner.verdict.config.max_iterations or CHECK_DIALECT_LIMIT, CHECK_DIALECT_LIMIT)
        verdict = replace(verdict, limits=replace(verdict.limits, iterations=most))
    guiding = [*guidance, *(text for step in graph.steps.values() for text in step.guidance)]
    others = {f"guidance:{text.file}": text.text for text in guiding} | _templates(graph, system_prompt)
    others |= {skill.address(file): text for skill in skills for file, text in skill.files.items()}
    return AgentDefinition(
        name=file.name or folder.name,
        version=file.version,
        display_name=file.display_name or file.name or folder.name,
        description=file.description,
        folder=folder.prefix,
        dialect=graph.dialect,
        digest=folder.digest(others),
        steps=graph.steps,
        entry_step=graph.entry_step,
        entry_steps=graph.entry_steps,
        verdict=verdict,
        system_prompt=system_prompt,
        sections=graph.sections,
        parameters=agent.parameters,
        models=own_models(runner.flow) or (Rung(model=DEFAULT_MODEL),),
        fallback=own_fallback(runner.flow),
        allowed_tools=None if everything else frozenset(tools or ()) & frozenset(KNOWN_TOOL_NAMES),
        permission_mode=runner.boundaries.permission_mode or PermissionMode.ACCEPT_EDITS,
        github=_github(runner.integrations.github),
        log_format=runner.logging.format,
        problems=problems,
        guidance=guidance,
        skills=skills,
        mcp_servers=servers,
    )


def _templates(graph: Graph, system_prompt: SourceText) -> dict[str, str]:
    """The shipped templates that this agent uses: another version of them is another definition."""
    prompts = [step.prompt for step in graph.steps.values() if step.prompt]
    texts = [system_prompt, *graph.sections.values()]
    texts += [text for prompt in prompts for text in (prompt.source, prompt.fallback) if text]
    return {f"template:{text.template}": text.text for text in texts if text.template}


def _github(file: GitHub) -> GitHubSettings:
    return GitHubSettings(
        closure_action=file.default_closure_action,
        labels_add=tuple(file.labels.completion.add),
        labels_remove=tuple(file.labels.completion.remove),
        pull_request=PullRequestSettings(**_same_named(file.pull_request, PullRequestSettings)),
        comment=file.comment.enabled,
        **_same_named(file, GitHubSettings),
    )


def _same_named(file: FileModel, settings: type[GitHubSettings | PullRequestSettings]) -> dict[str, Any]:
    """What the file says under the names of the settings' fields, but for objects, whose form differs."""
    names = type(file).model_fields.keys() & {field.name for field in fields(settings)}
    said = {name: value for name in names if not isinstance(value := getattr(file, name), FileModel | None)}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
