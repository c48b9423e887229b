"""An agent folder loaded, or everything that is wrong with it (registry.md §3 and §9)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING

from stepflow.definition.agent import read_agent
from stepflow.definition.compile import LoadOptions, compile_registry
from stepflow.definition.diagnostics import LIKE_PATHS, Diagnostics, did_you_mean, listed
from stepflow.definition.folder import AgentFolder, FaultKind, FileFault, read_object, unsafe_reason
from stepflow.definition.json_text import Pointer
from stepflow.definition.locate import Located, locate
from stepflow.definition.prompt_files import read_prompt, shipped_prompt
from stepflow.domain.definition import AgentDefinition, GitHubSettings, PullRequestSettings, SourceText
from stepflow.domain.figures import count
from stepflow.domain.problem import Inspection, Problem, Severity
from stepflow.domain.tools import KNOWN_TOOL_NAMES
from stepflow.domain.words import CHECK_DIALECT_LIMIT, Dialect, PermissionMode
from stepflow.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable
    from pathlib import Path

    from stepflow.definition.agent import Agent
    from stepflow.definition.compile import Graph
    from stepflow.definition.diagnostics import FileProblems
    from stepflow.definition.file_models import GitHub, PullRequest
    from stepflow.domain.definition import AgentVerdict
    from stepflow.domain.json import JsonObject


_GATE_KEYS = ("structuredGate", "c2")
_CHECK_KEYS = ("check", "prompt", "iterations")


def detect_dialect(registry: JsonObject, problems: FileProblems) -> Dialect | None:
    """The dialect, told by the keys that only one of them has; None after a problem was reported."""
    steps = registry.get("steps")
    if not isinstance(steps, dict) or not steps:
        state = "is missing" if steps is None else "is empty" if steps == {} else "is no object"
        problems.add("SF301", "/steps" if steps is not None else "", f'"steps" {state}', "Declare at least one step.")
        return None
    gate = list(_marks(steps, _GATE_KEYS))
    check = [*(["/basePath"] if "basePath" in registry else []), *_marks(steps, _CHECK_KEYS)]
    if gate and check:
        message = f"the registry mixes two dialects: {listed(gate[:1])} is of the gate dialect, "
        message += f"{listed(check[:1])} of the check dialect"
        problems.add("SF302", check[0], message, "Write all steps in one dialect.")
        return None
    if not gate and not check:
        message = f"no step has {listed(_GATE_KEYS)} or {listed(_CHECK_KEYS)}, so the dialect cannot be told"
        problems.add("SF301", "/steps", message, 'Give each step "c2", "c3" and a "structuredGate".')
        return None
    return Dialect.GATE if gate else Dialect.CHECK


def _marks(steps: JsonObject, keys: tuple[str, ...]) -> Iterator[str]:
    for name, step in steps.items():
        for key in keys:
            if isinstance(step, dict) and key in step:
                yield Pointer("/steps") / name / key


DEFAULT_REGISTRY = "steps_registry.json"
DEFAULT_MODEL = "opus"

_SYSTEM_PATH = "/runner/flow/systemPromptPath"
_REGISTRY_PATH = "/runner/flow/prompts/registry"


def load_agent(
    path: str | Path,
    *,
    root: Path | None = None,
    allow_spec_violations: bool = False,
    allow_custom_verdict: bool = False,
    templates: Traversable | None = None,
) -> AgentDefinition:
    """Load the agent in a folder, or the one of a bare name below `<root>/.agent` (default: the current folder).

    `templates` replaces the folder of the shipped templates.
    Raises `DefinitionError` with every problem when there is any error; warnings and notes are in `.problems`.
    """
    options = _options(allow_spec_violations, allow_custom_verdict, templates)
    definition, inspection = _load(path, root, options, bare_registry=False)
    if definition is None:
        raise DefinitionError(_summary(inspection.problems), problems=inspection.problems)
    return definition


def validate_agent(
    path: str | Path,
    *,
    root: Path | None = None,
    bare_registry: bool = False,
    allow_spec_violations: bool = False,
    allow_custom_verdict: bool = False,
    templates: Traversable | None = None,
) -> tuple[Problem, ...]:
    """Every problem of an agent, sorted; never raises for them. With `bare_registry` there may be no `agent.json`."""
    options = _options(allow_spec_violations, allow_custom_verdict, templates)
    return _load(path, root, options, bare_registry=bare_registry)[1].problems


def inspect_agent(
    path: str | Path,
    *,
    root: Path | None = None,
    allow_spec_violations: bool = False,
    allow_custom_verdict: bool = False,
) -> Inspection:
    """As `validate_agent`, with the texts that the problems are in: as they were read, and nothing else."""
    options = _options(allow_spec_violations, allow_custom_verdict, None)
    return _load(path, root, options, bare_registry=False)[1]


def _options(violations: bool, custom: bool, templates: Traversable | None) -> LoadOptions:
    return LoadOptions(
        allow_spec_violations=violations,
        allow_custom_verdict=custom,
        templates=templates or files("stepflow.engine.prompt") / "templates",
    )


def _summary(problems: tuple[Problem, ...]) -> str:
    errors = sum(problem.severity is Severity.ERROR for problem in problems)
    return f"The agent definition has {count(errors, 'error')}."


def _load(
    path: str | Path, root: Path | None, options: LoadOptions, *, bare_registry: bool
) -> tuple[AgentDefinition | None, Inspection]:
    located = locate(path, root=root, bare_registry=bare_registry)
    if isinstance(located, Problem):
        return None, Inspection(problems=(located,))
    folder = AgentFolder(located.folder, root=located.root)
    loading = _Loading(folder=folder, diagnostics=Diagnostics(), options=options)
    made = loading.load(located, bare_registry=bare_registry)
    inspection = loading.diagnostics.inspection(prefix=folder.prefix, texts=folder.texts)
    if made is None or loading.diagnostics.failed:
        return None, inspection
    return _define(made, folder, inspection.problems), inspection


@dataclass(frozen=True, kw_only=True)
class _Made:
    """The parts of a sound agent."""

    agent: Agent
    verdict: AgentVerdict
    graph: Graph
    system_prompt: SourceText


@dataclass(frozen=True, kw_only=True)
class _Loading:
    """One load."""

    folder: AgentFolder
    diagnostics: Diagnostics
    options: LoadOptions

    def load(self, located: Located, *, bare_registry: bool) -> _Made | None:
        custom = self.options.allow_custom_verdict
        agent = read_agent(self.folder, self.diagnostics, allow_custom=custom, may_lack=bare_registry)
        system_prompt = self.system_prompt(agent)
        graph = self.graph(agent, located.registry)
        if graph is None or system_prompt is None or agent.verdict is None:
            return None
        return _Made(agent=agent, verdict=agent.verdict, graph=graph, system_prompt=system_prompt)

    def system_prompt(self, agent: Agent) -> SourceText | None:
        path = agent.runner.flow.system_prompt_path
        if path is None:
            return shipped_prompt(self.options.templates, "system").source
        try:
            text = read_prompt(self.folder.read(path))
        except FileFault as fault:
            code = {FaultKind.UNSAFE: "SF109", FaultKind.CONTENT: "SF104"}.get(fault.kind, "SF102")
            missing = fault.kind is FaultKind.MISSING
            texts = [one for one in self.folder.files() if one.endswith(".md")] if missing else []
            self._report_system(agent, code, f'"{path}" {fault.message}{did_you_mean(path, texts, LIKE_PATHS)}')
            return None
        if not text.text:
            self._report_system(agent, "SF102", f'the file "{path}" is empty')
        return SourceText(text=text.text, file=path)

    def _report_system(self, agent: Agent, code: str, state: str) -> None:
        fix = 'Name a file of the agent folder, or leave "systemPromptPath" out.'
        agent.problems.add(code, _SYSTEM_PATH, f"the system prompt: {state}", fix)

    def graph(self, agent: Agent, named: str | None) -> Graph | None:
        file = named or agent.runner.flow.prompts.registry
        if file is not None and (reason := unsafe_reason(file)):
            fix = "Name a file inside the agent folder."
            agent.problems.add("SF109", _REGISTRY_PATH, f'the registry path "{file}" {reason}', fix)
            return None
        problems = self.diagnostics.of(file or DEFAULT_REGISTRY)
        document = read_object(self.folder, problems, what="registry")
        dialect = detect_dialect(document, problems) if document is not None else None
        if document is None or dialect is None:
            return None
        return compile_registry(document, dialect, problems, agent=agent, folder=self.folder, options=self.options)


def _define(made: _Made, folder: AgentFolder, problems: tuple[Problem, ...]) -> AgentDefinition:
    file, runner = made.agent.file, made.agent.runner
    tools = runner.boundaries.allowed_tools
    everything = tools is None or "*" in tools
    return AgentDefinition(
        name=file.name or folder.name,
        version=file.version or "",
        display_name=file.display_name or file.name or folder.name,
        description=file.description or "",
        folder=folder.prefix,
        dialect=made.graph.dialect,
        digest=folder.digest(_templates(made)),
        steps=made.graph.steps,
        entry_step=made.graph.entry_step,
        verdict=_limited(made),
        system_prompt=made.system_prompt,
        sections=made.graph.sections,
        parameters=made.agent.parameters,
        default_model=runner.flow.default_model or DEFAULT_MODEL,
        allowed_tools=None if everything else frozenset(tools or ()) & frozenset(KNOWN_TOOL_NAMES),
        permission_mode=runner.boundaries.permission_mode or PermissionMode.ACCEPT_EDITS,
        github=_github(runner.integrations.github),
        log_format=runner.logging.format,
        problems=problems,
    )


def _limited(made: _Made) -> AgentVerdict:
    """The verdict with the dialect's own iteration limit, which a written one can only lower (registry.md §6.3)."""
    if made.graph.dialect is not Dialect.CHECK:
        return made.verdict
    written = made.agent.runner.verdict.config.max_iterations
    return replace(made.verdict, max_iterations=min(written or CHECK_DIALECT_LIMIT, CHECK_DIALECT_LIMIT))


def _templates(made: _Made) -> dict[str, str]:
    """The shipped templates that this agent uses: another version of them is another definition."""
    prompts = [step.prompt for step in made.graph.steps.values() if step.prompt]
    texts = [made.system_prompt, *made.graph.sections.values()]
    texts += [text for prompt in prompts for text in (prompt.source, prompt.fallback) if text]
    return {f"template:{text.template}": text.text for text in texts if text.template}


def _github(file: GitHub) -> GitHubSettings:
    plain = GitHubSettings()
    return GitHubSettings(
        enabled=file.enabled,
        closure_action=file.default_closure_action,
        labels_add=tuple(file.labels.completion.add),
        labels_remove=tuple(file.labels.completion.remove),
        allowed_effects=plain.allowed_effects if file.allowed_effects is None else tuple(file.allowed_effects),
        allowed_labels=None if file.allowed_labels is None else tuple(file.allowed_labels),
        pull_request=_pull_request(file.pull_request),
        comment=file.comment.enabled,
        protected_paths=plain.protected_paths if file.protected_paths is None else tuple(file.protected_paths),
        close_by=file.close_by,
    )


def _pull_request(file: PullRequest) -> PullRequestSettings:
    prefix = PullRequestSettings().branch_prefix if file.branch_prefix is None else file.branch_prefix
    return PullRequestSettings(
        enabled=file.enabled, draft=file.draft, base=file.base, branch_prefix=prefix, title=file.title
    )
