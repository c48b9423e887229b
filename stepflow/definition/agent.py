"""`agent.json`: its verdict, the models that it and its steps name, and its parameters with the arguments of a run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from stepflow.definition.diagnostics import (
    Diagnostics,
    FileProblems,
    closest_match,
    did_you_mean,
    format_value,
    list_words,
)
from stepflow.definition.file_models import AgentFile, FlowSettings, ModelSettings, RunnerKeys
from stepflow.definition.folder import AgentFolder, read_object
from stepflow.definition.old_names import OLD_VERDICT_TYPES, FlatAgentFile, is_flat, to_runner_layout
from stepflow.definition.parsing import JsonFault, Pointer, node_at, parse_json
from stepflow.definition.shapes import field_notes
from stepflow.domain.agent.agent_settings import (
    MCP_PREFIX,
    TOOL_SPECS_BY_NAME,
    McpServer,
    Parameter,
    ParameterRules,
    Rung,
    VerdictConfig,
)
from stepflow.domain.agent.definition import AgentDefinition, AgentVerdict
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.run import Limits
from stepflow.domain.words import MODEL_ALIASES, Effort, VerdictType
from stepflow.engine.gate import PatternFault, PatternTooSlow, Search, check_pattern
from stepflow.engine.prompt.variables import run_variable_names
from stepflow.errors import Problem

DEFAULT_MAX_ITERATIONS = 10
DEFAULT_MAX_TURNS = 50
_AT = Pointer("/runner/verdict")
#: Type → keys that its config must have.
REQUIRED: dict[VerdictType, tuple[str, ...]] = {
    VerdictType.COUNT_ITERATION: ("maxIterations",),
    VerdictType.COUNT_CHECK: ("maxChecks",),
    VerdictType.DETECT_KEYWORD: ("verdictKeyword",),
    VerdictType.DETECT_STRUCTURED: ("signalType",),
    VerdictType.META_COMPOSITE: ("operator", "conditions"),
}
_LIMITS = ("maxIterations", "maxVisitsPerStep", "maxTurnsPerStep")
OPTIONAL = {VerdictType.DETECT_STRUCTURED: ("requiredFields",)}
_PARTS_OF_COMPOSITE = (
    VerdictType.COUNT_ITERATION,
    VerdictType.COUNT_CHECK,
    VerdictType.DETECT_KEYWORD,
    VerdictType.DETECT_STRUCTURED,
)

_OWN_CODE = (
    "is not supported: code of the agent would run beside the workflow's token",
    "Let a validator of the closing step run that code: a validator's command runs in the sandbox. ",
)
#: Types that are refused → why, and what to do before another one is chosen.
_REFUSED_TYPES = {"project": ("is not supported", ""), "meta:custom": _OWN_CODE, "custom": _OWN_CODE}


def build_verdict(agent: Agent) -> AgentVerdict | None:
    """The agent's verdict, checked; None while nothing is known of the agent."""
    kind, settings, problems = agent.verdict_type, agent.runner.verdict, agent.problems
    if kind is None:
        return None
    config = settings.config
    at = _AT / "config" if "config" in settings.model_fields_set else _AT
    _check_config(kind, config, at, problems, demanded=settings.type is not None)
    return AgentVerdict(
        type=kind,
        limits=Limits(
            iterations=config.max_iterations or DEFAULT_MAX_ITERATIONS,
            visits=config.max_visits_per_step,
            turns=config.max_turns_per_step or DEFAULT_MAX_TURNS,
        ),
        config=config,
    )


def _type(word: str | None, at: Pointer, problems: FileProblems) -> VerdictType | None:
    if word is None or word in list(VerdictType):
        return VerdictType(word or VerdictType.COUNT_ITERATION)
    reason, fix = f"is not known{did_you_mean(word, [*VerdictType, *OLD_VERDICT_TYPES])}", ""
    if word in _REFUSED_TYPES:
        reason, fix = _REFUSED_TYPES[word]
    problems.add("SF203", at, f'the verdict type "{word}" {reason}', f"{fix}Use one of {list_words(VerdictType)}.")
    return None


def _check_config(
    kind: VerdictType, config: VerdictConfig, at: Pointer, problems: FileProblems, *, demanded: bool
) -> None:
    values = config.model_dump(by_alias=True)
    for key in REQUIRED.get(kind, ()) if demanded else ():
        value = values.get(key)
        if not (value.strip() if isinstance(value, str) else value):
            state = "missing" if value is None else "empty"
            message = f'verdict type "{kind}": the config needs "{key}", which is {state}'
            example = field_notes()["VerdictConfig"][key].example
            problems.add("SF204", at, message, f"Write {example} in the verdict's config, for example.")
    own = {*_LIMITS, *REQUIRED.get(kind, ()), *OPTIONAL.get(kind, ())}
    for key in config.model_dump(by_alias=True, exclude_unset=True).keys() - own:
        problems.note_idle(at / key, f'"{key}" has no effect with the verdict type "{kind}"')
    fields = config.required_fields
    names = isinstance(fields, list) and all(isinstance(one, str) for one in fields)
    if fields is not None and not isinstance(fields, dict) and not names:
        message = f'"requiredFields" is {format_value(fields)}, but it must be an object or a list of names'
        problems.add("SF204", at / "requiredFields", message, "Write the names as a list, or names and values.")
    for index, part in enumerate(config.conditions or ()):
        part_at = at / "conditions" / index
        inner = _type(part.type, part_at / "type", problems)
        if inner in _PARTS_OF_COMPOSITE:
            config_at = part_at / "config" if part.config else part_at
            _check_config(inner, part.config or VerdictConfig(), config_at, problems, demanded=True)
        elif inner is not None:
            message = f'the verdict type "{inner}" cannot be part of "meta:composite"'
            problems.add("SF204", part_at / "type", message, f"Use one of {list_words(_PARTS_OF_COMPOSITE)}.")


#: How similar to an alias a name must be, from 0 to 1, to count as that alias misspelled.
LIKE_ALIASES = 0.75
#: The efforts of Anthropic's models that do not support all of them (platform.claude.com, "Effort").
_EFFORTS: dict[str, tuple[Effort, ...]] = {
    **dict.fromkeys(("opus-4-6", "sonnet-4-6", "mythos-preview"), (Effort.LOW, Effort.MEDIUM, Effort.HIGH, Effort.MAX)),
    "opus-4-5": (Effort.LOW, Effort.MEDIUM, Effort.HIGH),
    **dict.fromkeys(("sonnet-4-5", "haiku-4-5", "opus-4-1", "opus-4-0", "opus-4", "sonnet-4-0", "sonnet-4"), ()),
    **dict.fromkeys(("3-7-sonnet", "3-5-sonnet", "3-5-haiku", "3-opus", "3-sonnet", "3-haiku"), ()),
}
#: A model's id with the API, on Bedrock (with the profile of a region, or as an ARN) and on Vertex, its date left out.
_CLAUDE = re.compile(
    r"(?:arn:aws[^/]*/)?(?:(?:[a-z-]+\.)?anthropic\.)?claude-(?P<name>[a-z0-9-]+?)"
    r"(?:[-@]\d{8}|[-@]latest|@default)?(?:-v\d+(?::\d+)*)?"
)
#: The keys of a step about models, other than `model` itself.
MODEL_KEYS = ("models", "fallbackModel", "effort", "maxOutputTokens")


def read_rungs(entry: ModelSettings) -> tuple[Rung, ...]:
    """The models that are named, as a ladder; empty when there is none."""
    if entry.models:
        return tuple(map(Rung.parse, entry.models))
    return (Rung(model=entry.model),) if entry.model else ()


def read_fallback(entry: ModelSettings) -> Rung | None:
    """The model for when a model refuses."""
    return Rung.parse(entry.fallback_model, fallback=True) if entry.fallback_model else None


def check_models(
    entry: ModelSettings, at: Pointer, problems: FileProblems, *, flow: FlowSettings | None = None
) -> None:
    """Check the models that agent.json names, or those of a step, which inherits from agent.json's `flow`."""
    word = type(entry).model_fields["model"].alias or "model"
    rungs, fallback = read_rungs(entry), read_fallback(entry)
    places = [at / "models" / number for number in range(len(rungs))] if entry.models else [at / word]
    named = [*zip(places, rungs, strict=False), *([(at / "fallbackModel", fallback)] if fallback else [])]
    _check_ladder(entry, at, problems, word=word)
    for place, rung in named:
        _check_name(rung.model, place, problems)
        if rung.effort or not entry.effort:
            _check_effort(rung.model, rung.effort or (flow.effort if flow else None), place, problems)
    inherited = flow or FlowSettings()
    for each in (*(rungs or read_rungs(inherited)), fallback or read_fallback(inherited)):
        if each and entry.effort and not each.effort:
            _check_effort(each.model, entry.effort, at / "effort", problems)


def _check_ladder(entry: ModelSettings, at: Pointer, problems: FileProblems, *, word: str) -> None:
    """Refuse what cannot be a ladder (SF118)."""
    models, fallback = entry.models or [], read_fallback(entry)
    if models and entry.model:
        message = f'"models" and "{word}" both say which model comes first'
        problems.report("SF118", at / "models", message, f'Remove "{word}": the first of "models" takes its place.')
    for number, name in enumerate(models):
        if name in models[:number]:
            message = f'"models" names "{name}" twice, but a run never goes back to an earlier model'
            problems.report("SF118", at / "models" / number, message, "Remove it, or give it another effort.")
    if fallback and fallback.model in {rung.model for rung in read_rungs(entry)}:
        message = f'"fallbackModel" is "{fallback.model}", which is the model that has refused by then'
        problems.report("SF118", at / "fallbackModel", message, "Name another model, or remove the key.")


def _check_name(name: str, at: Pointer, problems: FileProblems) -> None:
    """Warn about a name that is almost an alias (SF113); a server may know any other name."""
    rungs = [f"{alias}:{effort}" for alias in MODEL_ALIASES for effort in Effort] if ":" in name else []
    if name in rungs:
        message = f'the model "{name}" has an effort, which only the models of a ladder may have'
        problems.report("SF113", at, message, f'Write "models": ["{name}"], or the effort as "effort".')
    elif name not in MODEL_ALIASES and (near := closest_match(name, [*MODEL_ALIASES, *rungs], LIKE_ALIASES)):
        message = f'the model "{name}" is not an alias (did you mean "{near}"?)'
        problems.report("SF113", at, message, f'Write "{near}", unless your server has a model of that name.')


def _check_effort(model: str, effort: Effort | None, at: Pointer, problems: FileProblems) -> None:
    if misfit := find_effort_misfit(model, effort):
        problems.report("SF117", at, *misfit)


def find_effort_misfit(model: str, effort: Effort | None) -> tuple[str, str] | None:
    """Why this model does not support this effort (SF117), and what to do; None for the many models about which nothing
    is known."""
    known = _CLAUDE.fullmatch(model)
    taken = _EFFORTS.get(known["name"]) if known else None
    if effort is None or taken is None or effort in taken:
        return None
    if taken:
        message = f'the model "{model}" does not know the effort "{effort}"'
        return message, f"Use {list_words(taken)}, or a newer model."
    fix = 'Remove "effort" where it applies to this model, or use a newer model.'
    return f'the model "{model}" takes no "effort"', fix


AGENT_FILE = "agent.json"
DEFAULT_REGISTRY = "steps_registry.json"
_REGISTRY_PATH = "/runner/flow/prompts/registry"


_NO_FILE = AgentFile.model_construct(name="", version="", display_name="", description="", runner=None)


@dataclass(frozen=True, kw_only=True)
class Agent:
    """What `agent.json` says. `known` is False when it is missing, as it may be beside a bare registry: nothing is
    concluded from it then, nor from one whose shape is broken. `problems` are for its pointers."""

    problems: FileProblems
    known: bool = True
    file: AgentFile = _NO_FILE

    @property
    def runner(self) -> RunnerKeys:
        """`runner` with its defaults."""
        return self.file.runner or RunnerKeys()

    @property
    def mcp_servers(self) -> tuple[McpServer, ...]:
        """Its MCP servers, without tools."""
        return tuple(
            McpServer(
                name=name,
                command=(entry.command, *entry.args) if entry.command else (),
                env=entry.env,
                url=entry.url or "",
                headers=entry.headers,
            )
            for name, entry in self.file.mcp_servers.items()
        )

    @property
    def verdict_type(self) -> VerdictType | None:
        """The type of its verdict; None while nothing is known of the agent."""
        return VerdictType(self.runner.verdict.type or VerdictType.COUNT_ITERATION) if self.known else None


def read_agent(folder: AgentFolder, diagnostics: Diagnostics, *, may_lack: bool) -> tuple[Agent | None, str]:
    """Read `agent.json`: after a fault in its shape an agent that is not `known`, or None if it does not even say where
    its files are. And the path of its registry, as far as it is readable. With `may_lack` the file may be missing."""
    problems = diagnostics.of(AGENT_FILE)
    if may_lack and not folder.has(AGENT_FILE):
        return Agent(known=False, problems=problems), DEFAULT_REGISTRY
    document = read_object(folder, problems, what="agent definition")
    if document is None:
        return None, DEFAULT_REGISTRY
    layout = to_runner_layout(document, problems)
    file, problems = layout.read(FlatAgentFile if is_flat(document) else AgentFile, problems)
    registry = node_at(layout.document, _REGISTRY_PATH)
    agent = _read_flow(layout.document, problems)
    if file is not None and _type((file.runner or RunnerKeys()).verdict.type, _AT / "type", problems):
        agent = Agent(problems=problems, file=file)
    return agent, registry if isinstance(registry, str) else DEFAULT_REGISTRY


def _read_flow(document: JsonObject, problems: FileProblems) -> Agent | None:
    """Return an agent with only its `runner.flow`, which says where its files are; None if that is broken, too."""
    flow = node_at(document, "/runner/flow")
    try:
        settings = FlowSettings.model_validate(
            {} if flow is None else flow, by_alias=True, by_name=False, extra="ignore"
        )
    except ValidationError:
        return None
    file = _NO_FILE.model_copy(update={"runner": RunnerKeys(flow=settings)})
    return Agent(known=False, problems=problems, file=file)


def check_agent(agent: Agent, folder: AgentFolder) -> None:
    """Check what agent.json says by itself."""
    file, runner, problems = agent.file, agent.runner, agent.problems
    check_parameters(file.parameters, problems, reserved=run_variable_names(agent.verdict_type))
    check_version(file.version, problems)
    check_models(runner.flow, Pointer("/runner/flow"), problems)
    if file.name != folder.name:
        message = f'"name" is "{file.name}", but the folder is "{folder.name}"'
        fix = f'Rename the folder to "{file.name}", or write "{folder.name}" here and as "agentId" of the registry.'
        problems.add("SF202", "/name", message, fix)
    for index, tool in enumerate(runner.boundaries.allowed_tools or ()):
        if tool != "*" and tool not in TOOL_SPECS_BY_NAME:
            message = f'the tool "{tool}" is not known and is ignored{did_you_mean(tool, TOOL_SPECS_BY_NAME)}'
            at = Pointer("/runner/boundaries/allowedTools") / index
            fix = f"The tools are {list_words(TOOL_SPECS_BY_NAME)}."
            if tool.startswith(MCP_PREFIX):
                fix = 'Tools of MCP servers go in "tools" of the steps that use them.'
            problems.add("SF210", at, message, fix)


def check_version(version: str | None, problems: FileProblems) -> None:
    """Warn about a version that is not three numbers (SF308)."""
    if version and not re.fullmatch(r"\d+\.\d+\.\d+", version):
        message = f'"version" is "{version}", which is not of the form 1.2.3'
        problems.add("SF308", "/version", message, "Write three numbers with dots between them.")


_PARAMETERS = Pointer("/parameters")


def check_parameters(parameters: Mapping[str, Parameter], problems: FileProblems, *, reserved: frozenset[str]) -> None:
    """Check the declared parameters; `reserved` are names of run variables, which hide them."""
    flags: dict[str, str] = {}
    for name, parameter in parameters.items():
        at = _PARAMETERS / name
        if not (parameter.description or "").strip():
            message, fix = f'parameter "{name}" has no description', 'Say in "description" what the parameter is for.'
            problems.add("SF208", at, message, fix)
        if parameter.required and "default" in parameter.model_fields_set:
            state = f"is required and has the default {format_value(parameter.default)}, so it is never missing"
            problems.add("SF208", at / "default", f'parameter "{name}" {state}', 'Remove "required" or "default".')
        if name in reserved:
            message = f'parameter "{name}" has the name of a run variable, which hides it in prompts'
            problems.add("SF208", at, message, "Give the parameter another name.")
        if parameter.cli in flags:
            message = f'the flag "{parameter.cli}" is already that of "{flags[parameter.cli]}"'
            problems.report("SF207", at / "cli", message, "Give each parameter its own flag.")
        elif parameter.cli:
            flags[parameter.cli] = name
        _check_rules(parameter, at, problems)


_TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "number": (int, float), "boolean": (bool,), "array": (list,)}


def type_fits(value: JsonValue, kind: str) -> bool:
    """Whether a value has a declared type; a boolean is not a number."""
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def misfit(parameter: Parameter, value: JsonValue) -> str | None:
    """What the value must be and is not; None when it fits. Every item of a list must fit."""
    if not type_fits(value, parameter.type):
        return f"of the type {parameter.type}"
    search = Search()
    if not isinstance(value, list):
        return _item_misfit(parameter, value, search)
    faults = (_item_misfit(parameter, item, search) for item in value)
    return next((f"a list of which each item is {fault}" for fault in faults if fault), None)


def _item_misfit(parameter: Parameter, value: JsonValue, search: Search) -> str | None:
    rules = parameter.validation or ParameterRules()
    if parameter.type in ("number", "array"):
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        if rules.min is not None and not number >= rules.min:
            return f"at least {_as_written(rules.min)}"
        if rules.max is not None and not number <= rules.max:
            return f"at most {_as_written(rules.max)}"
    if parameter.type in ("string", "array") and rules.pattern is not None:
        try:
            fits = isinstance(value, str) and search(rules.pattern, value)
        except PatternTooSlow as exc:
            return f"like its pattern, which could not be checked: {exc}"
        if not fits:
            return f"like the pattern {rules.pattern}"
    if rules.enum is not None and not _in(value, rules.enum):
        return f"one of {', '.join(format_value(one) for one in rules.enum)}"
    return None


def _as_written(number: float) -> str:
    """A bound as its author wrote it: 5, not 5.0."""
    return json.dumps(int(number) if number == int(number) else number)


def _in(value: JsonValue, allowed: tuple[JsonValue, ...]) -> bool:
    """Membership that tells true from 1, as JSON does."""
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed)


def _check_rules(parameter: Parameter, at: Pointer, problems: FileProblems) -> None:
    pattern = parameter.validation.pattern if parameter.validation else None
    try:
        if pattern is not None:
            check_pattern(pattern)
    except PatternFault as exc:
        message = f"the pattern {format_value(pattern)} is not a valid regular expression ({exc})"
        problems.report("SF207", at / "validation" / "pattern", message, "Write a valid regular expression.")
        return
    if "default" not in parameter.model_fields_set or not parameter.type:
        return
    if not type_fits(parameter.default, parameter.type):
        message = f"the default {format_value(parameter.default)} is not of type {parameter.type}"
        problems.report("SF207", at / "default", message, f"Give it a default of the type {parameter.type}.")
    elif fault := misfit(parameter, parameter.default):
        message = f'the default is {format_value(parameter.default)}, but "validation" wants it {fault}'
        problems.report("SF207", at / "default", message, 'Change "default" or "validation".')


_PARAMETERS = Pointer("/parameters")


def check_arguments(
    agent: AgentDefinition, given: Mapping[str, JsonValue | str], *, issue: int | None
) -> tuple[JsonObject, tuple[Problem, ...]]:
    """The run's arguments, converted and with defaults, and what is wrong with them.

    Any problem with severity error forbids the run. The issue's number is always the argument `issue`.
    """
    diagnostics = Diagnostics()
    problems = diagnostics.of("agent.json")
    declared = agent.parameters
    arguments: JsonObject = {}
    for name in given:
        if name not in declared and name != "issue":
            message = f'the argument "{name}" is not declared and is dropped{did_you_mean(name, declared)}'
            problems.add("SF108", "/parameters", message, f"Declare it; declared are {list_words(declared)}.")
    for name, parameter in declared.items():
        value = given.get(name)
        if name == "issue" and value is None and issue is not None:
            value = str(issue) if parameter.type == "string" else issue
        _assign(name, parameter, value, arguments, problems)
    named = _convert(given.get("issue"), "number")
    if issue is not None and named not in (None, issue):
        message = f'the argument "issue" is {format_value(named)}, but the run is about issue {issue}'
        problems.add("SF209", "/parameters", message, 'Leave the argument "issue" out: the run knows its issue.')
    if issue is None and agent.verdict.type is VerdictType.POLL_STATE:
        message = 'the verdict type "poll:state" needs an issue, and this run has none'
        problems.add("SF209", "/runner/verdict/type", message, "Start the run for an issue.")
    if issue is not None or named is not None:
        arguments.setdefault("issue", named if issue is None else issue)
    return arguments, diagnostics.inspection(prefix=agent.folder, texts={}).problems


def _assign(name: str, parameter: Parameter, value: JsonValue, arguments: JsonObject, problems: FileProblems) -> None:
    at = _PARAMETERS / name
    converted = _convert(value, parameter.type)
    if value is None and parameter.default is not None:
        arguments[name] = parameter.default
    elif value is None and parameter.required:
        message = f'the required argument "{name}" ({parameter.cli}) is missing'
        problems.add("SF209", at, message, f'Give a value for "{name}".')
    elif value is not None and (fault := misfit(parameter, converted)):
        message = f'the argument "{name}" is {format_value(value)}, but it must be {fault}'
        problems.add("SF209", at, message, f'Give "{name}" a value that fits.')
    elif value is not None:
        arguments[name] = converted


def _convert(value: JsonValue, kind: str) -> JsonValue:
    """Convert a string to the declared type; return it unchanged when that fails."""
    if not isinstance(value, str) or kind == "string":
        return value
    text = value.strip()
    match kind:
        case "number":
            return _json_or(text, value) if re.fullmatch(r"[+-]?[0-9.eE+-]+", text) else value
        case "boolean":
            return {"true": True, "false": False}.get(text.lower(), value)
        case _:
            if text.startswith("["):
                return _json_or(text, value)
            return [part.strip() for part in text.split(",")] if text else []


def _json_or(text: str, otherwise: JsonValue) -> JsonValue:
    try:
        return parse_json(text.removeprefix("+"))
    except JsonFault:
        return otherwise
