"""Finds what would stop a run, before it uses any tokens."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.definition.agent import check_arguments
from stepflow.definition.judged import FIX, REASON, UNJUDGED, is_unjudged
from stepflow.definition.rule_of_two import RULE_OF_TWO, find_exposures
from stepflow.domain.activity import activity
from stepflow.domain.agent.agent_settings import Rung
from stepflow.domain.agent.definition import AgentDefinition, count_problems, effective_tools, guidance_files
from stepflow.domain.event import BaseChecked
from stepflow.domain.reports.report import CheckState, Preflight, PreflightCheck
from stepflow.domain.text import count, mebibytes, telling_line, usd
from stepflow.domain.words import BaseChecks, CanaryState, Effort, Isolation, Outcome, Provider
from stepflow.engine.judge import run_on_base
from stepflow.engine.loop import BOUNDARY_RULES
from stepflow.errors import DefinitionError, InputError, IsolationError, Problem, Refused, Severity, StepflowError
from stepflow.model.models import DEFAULT_MAX_TOKENS, UnlistedModel, is_priced, resolve_model
from stepflow.report.wording import describe_hosts
from stepflow.run.caps import check_counted_runs
from stepflow.run.clock import Cancellation
from stepflow.run.ending import outcome_of
from stepflow.run.issue import follow_repository, issue_number
from stepflow.run.prepare import (
    describe_connections,
    load_requested,
    open_anthropic,
    require_base_checks,
    scenario_of,
    unset_variables,
)
from stepflow.run.readiness import (
    CHECKS,
    Check,
    check_boundary,
    check_budget,
    check_effort,
    check_mcp_secrets,
    check_policy,
    check_request,
)
from stepflow.run.request import (
    RunRequest,
    circumstances_of,
    describe_network,
    narrow_network,
    toolbox_options,
)
from stepflow.run.start.inputs import BoundaryMode, Inputs
from stepflow.run.workspace import open_toolbox, open_workspace, outside_of, toolbox_in_copy
from stepflow.sandbox.check_tree import CheckTrees
from stepflow.sandbox.copying import COPIES
from stepflow.sandbox.isolation import Layer, ToolboxOptions
from stepflow.sandbox.selftest import Canary, try_canaries
from stepflow.sandbox.workspace import make_empty_workspace, temporary_folder

if TYPE_CHECKING:
    pass
from stepflow.modes.preflight_github import github_checks
from stepflow.modes.preflight_rows import failed_row, guard_rows, ok, unknown, warning


def run_preflight(
    request: RunRequest, cancellation: Cancellation, note: Callable[[str], None] = lambda _: None
) -> Preflight:
    """Check everything. A failed check does not stop the others. `note` is called before slow parts."""
    redact = request.redactor
    checks = (replace(check, detail=redact(check.detail)) for check in _checks(request, cancellation, note))
    return Preflight(agent=request.trigger.agent, checks=tuple(checks))


def _checks(request: RunRequest, cancellation: Cancellation, note: Callable[[str], None]) -> Iterator[PreflightCheck]:
    yield from guard_rows(_POLICY, lambda: _policy(request))
    inputs = guard_rows("inputs", lambda: _inputs(request))
    yield from inputs
    agent = None
    # An invalid name must not be looked up in the file system.
    if not any(check.outcome is Outcome.INVALID_DEFINITION for check in inputs):
        try:
            agent = load_requested(request)
            yield _problem_row("definition", agent.problems)
            yield from _guidance(agent)
            yield from _tools(agent)
            yield from guard_rows("effort", lambda: _ladders(request, agent))
            yield from _output_tokens(agent)
            yield from _rules(agent)
            yield from _judged(agent)
            yield from _exposures(request, agent)
            yield from guard_rows(_STARTERS, lambda: _starters(request, agent))
            yield from guard_rows("network", lambda: _network(request, agent))
            with suppress(InputError):
                request = narrow_network(request, agent)
        except Refused as error:
            yield failed_row(_POLICY, str(error), Outcome.REFUSED)
        except DefinitionError as error:
            yield _problem_row("definition", error.problems)
    if agent:
        request = replace(request, kept=agent.keep_for_checks)
        yield from guard_rows("run arguments", lambda: _arguments(request, agent))
        yield from guard_rows("mcp-secrets", lambda: _mcp_secrets(request, agent))
        yield from _telemetry(request.inputs)
        yield from _model(request, agent)
        with suppress(InputError):
            request = require_base_checks(request, scenario_of(request))
    yield from guard_rows("workspace", lambda: _room(request))
    with activity("trying the sandbox"):
        layers = sandbox_checks(request, cancellation)
    yield from layers
    if agent and request.inputs.base_checks is not BaseChecks.SKIP:
        if any(check.state is CheckState.FAILED for check in layers):
            yield unknown(_BASE, "not run, since the sandbox does not start")
        else:
            with activity("trying the checks"):
                checks = guard_rows(_BASE, lambda: _base(request, agent, cancellation, note))
            yield from checks
    with cancellation.obeyed():
        # A run asks before anything else, and the rows about GitHub say why nobody answers.
        with suppress(StepflowError):
            request = follow_repository(request)
        yield from _ready(request, agent) if agent else ()
        yield from guard_rows("boundary", lambda: _boundary(request))
        yield from github_checks(request, agent)


def _ready(request: RunRequest, agent: AgentDefinition) -> Iterator[PreflightCheck]:
    """Perform the checks of a run before its first model call."""
    for name, check in CHECKS.items():

        def look(name: str = name, check: Check = check) -> Iterator[PreflightCheck]:
            warnings = check(request, agent)
            yield from (warning(name, text) for text in warnings or ())
            if warnings == ():
                yield ok(name, "nothing would stop a run")

        yield from guard_rows(name, look)


def _policy(request: RunRequest) -> Iterator[PreflightCheck]:
    check_policy(request)
    if request.inputs.policy:
        yield ok(_POLICY, str(request.inputs.policy))


def _inputs(request: RunRequest) -> Iterator[PreflightCheck]:
    check_request(request)
    unset = unset_variables(request)
    yield warning("inputs", " ".join(unset)) if unset else ok("inputs", "can work together")
    yield from (warning("network", note) for note in request.proxy_config.notes)
    try:
        if connections := "; ".join(describe_connections(request)):
            yield ok("network", connections)
    except StepflowError as error:
        yield failed_row("network", str(error), outcome_of(error))


def _guidance(agent: AgentDefinition) -> Iterator[PreflightCheck]:
    """Show which of the repository's files the model reads: skills, guidance for every step, and guidance for single
    steps."""
    if agent.skills:
        yield ok("skills", ", ".join(f"{skill.name} ({count(len(skill.files), 'file')})" for skill in agent.skills))
    shown = {"guidance": agent.guidance, **{f"guidance: {step.id}": step.guidance for step in agent.steps.values()}}
    for name, texts in shown.items():
        if texts:
            yield ok(name, ", ".join(map(str, guidance_files(texts))))


def _tools(agent: AgentDefinition) -> Iterator[PreflightCheck]:
    """List the tools that the model may call, in one row if every step has the same."""
    asking = [step for step in agent.steps.values() if step.command is None]
    yield from _by_step("tools", {step.id: ", ".join(effective_tools(agent, step)) or "none" for step in asking})


def _ladders(request: RunRequest, agent: AgentDefinition) -> Iterator[PreflightCheck]:
    """Show the models of each step and their effort, if the agent configures a ladder or an effort."""
    check_effort(agent, request.inputs)
    ladders = agent.ladders(request.inputs.model.name)
    has_ladder = any(len(ladder.rungs) > 1 for ladder in ladders.values())
    if has_ladder or any(agent.steps[step_id].effort or ladder.rungs[0].effort for step_id, ladder in ladders.items()):
        shown = {
            step_id: " → ".join(_rung(request, rung, agent.steps[step_id].effort) for rung in ladder.rungs)
            for step_id, ladder in ladders.items()
        }
        yield from _by_step("models" if has_ladder else "effort", shown)


def _rung(request: RunRequest, rung: Rung, effort: Effort | None) -> str:
    shown = f"{resolve_model(rung.model, request.inputs.model.provider)}: {rung.effort or effort or 'its default'}"
    return f"after a refusal {shown}" if rung.fallback else shown


def _output_tokens(agent: AgentDefinition) -> Iterator[PreflightCheck]:
    """Show the limit for one answer, if the agent sets one."""
    most = {step.id: step.max_output_tokens for step in agent.steps.values() if step.command is None}
    if any(most.values()):
        shown = {step_id: f"at most {tokens or DEFAULT_MAX_TOKENS:,} an answer" for step_id, tokens in most.items()}
        yield from _by_step("output tokens", shown)


def _by_step(name: str, details: Mapping[str, str]) -> Iterator[PreflightCheck]:
    """Yield one row if all steps have the same value, otherwise one row per step."""
    if len(same := {*details.values()}) == 1:
        yield ok(name, same.pop())
    else:
        yield from (ok(f"{name}: {step_id}", detail) for step_id, detail in details.items())


def _rules(agent: AgentDefinition) -> Iterator[PreflightCheck]:
    """List the rules for every closing other than the validators."""
    if agent.github.pushes:
        limits = agent.github.pull_request
        most = f"at most {count(limits.max_files, 'file')} and {count(limits.max_bytes, 'byte')}"
        protected = f"protected paths: {', '.join(agent.github.protected_paths) or 'none'}"
        yield ok(BOUNDARY_RULES, f"checked at each closing: {most}; {protected}")


def _judged(agent: AgentDefinition) -> Iterator[PreflightCheck]:
    """Say where nothing judges what the agent changes."""
    if is_unjudged(agent):
        yield warning("checks", f"{UNJUDGED}: {REASON}. {FIX}")


def _exposures(request: RunRequest, agent: AgentDefinition) -> Iterator[PreflightCheck]:
    """Say where all three of the rule of two meet. Where nobody accepts it in any repository, the definition fails."""
    known = request.trigger.private is not None
    meeting = [each for each in find_exposures(agent, circumstances_of(request)) if each.has_all]
    for each in meeting:
        where = "" if known else f"in a {each.repository} repository, "
        accepted = f"accepted: {each.accepted}" if each.accepted else "a run there is refused"
        yield warning(f"{RULE_OF_TWO}: {each.step_id}", f"{where}all three meet: {each}; {accepted}")
    if not meeting:
        yield ok(RULE_OF_TWO, "in no step do strangers' text, something private and a way out meet")


def _starters(request: RunRequest, agent: AgentDefinition) -> Iterator[PreflightCheck]:
    """Yield who may start the agent, if its definition lets anyone do so."""
    limits = request.inputs.limits
    dollars, runs = limits.usd_per_day, limits.runs_per_person_per_day
    if agent.anyone_may_start and dollars and runs:
        check_counted_runs(request)
        yield ok(_STARTERS, f"anyone, within {usd(dollars)} a day and {count(runs, 'run')} a day of one person")
    elif agent.anyone_may_start:
        yield warning(
            _STARTERS,
            "anyone, but without limits.usd-per-day and limits.runs-per-person-per-day a run of somebody without write "
            "access ends as misconfigured",
        )


def _network(request: RunRequest, agent: AgentDefinition) -> Iterator[PreflightCheck]:
    narrow_network(request, agent)
    if described := describe_network(request, agent):
        yield ok("network", described)


def _arguments(request: RunRequest, agent: AgentDefinition) -> Iterator[PreflightCheck]:
    scenario = scenario_of(request)
    given = {**(scenario.params if scenario else {}), **request.inputs.parameters}
    issue = issue_number(request, scenario)
    problems = check_arguments(agent, given, issue=issue)[1]
    if issue is None and _has_errors(problems):
        # In a real run, the event contains the issue. A preflight does not need one.
        reasons = "; ".join(problem.message for problem in problems)
        yield warning("run arguments", f"there is no issue here to run on: {reasons}")
    else:
        yield _problem_row("run arguments", problems)


def _mcp_secrets(request: RunRequest, agent: AgentDefinition) -> Iterator[PreflightCheck]:
    check_mcp_secrets(agent.mcp_servers, request.inputs.mcp_secrets)
    if names := [name for server in agent.mcp_servers for name in server.secret_names]:
        yield ok("mcp-secrets", ", ".join(dict.fromkeys(names)))


def _telemetry(inputs: Inputs) -> Iterator[PreflightCheck]:
    telemetry = inputs.telemetry
    if telemetry.endpoint:
        headers = f" with {', '.join(telemetry.headers)}" if telemetry.headers else ""
        content = "prompts and answers included" if telemetry.content else "without prompts and answers"
        detail = f"sent to {telemetry.endpoint}{headers} at the end, {content}; whether it answers is not tried"
        yield ok("telemetry", detail)


def _boundary(request: RunRequest) -> Iterator[PreflightCheck]:
    check_boundary(request)
    writes = request.inputs.boundary is BoundaryMode.GITHUB
    yield ok("boundary", f"writes to {request.repository}" if writes else "a dry run, which writes nothing to GitHub")


def _problem_row(name: str, problems: tuple[Problem, ...]) -> PreflightCheck:
    """Return a row that shows the first problem in full. `stepflow validate` shows the others."""
    counted = count_problems(problems)
    worth_telling = next((str(problem) for problem in problems if problem.severity is not Severity.NOTE), "")
    detail = f"{counted}; {worth_telling}" if worth_telling else counted
    if _has_errors(problems):
        return failed_row(name, detail, Outcome.INVALID_DEFINITION)
    return warning(name, detail) if worth_telling else ok(name, detail)


def _has_errors(problems: tuple[Problem, ...]) -> bool:
    return any(problem.severity is Severity.ERROR for problem in problems)


def sandbox_checks(request: RunRequest, cancellation: Cancellation) -> tuple[PreflightCheck, ...]:
    """Return the layers as a run would have them. If the sandbox cannot start with `required`, also return the layers
    that it has with `best-effort`."""
    try:
        options = toolbox_options(request)
        return tuple(_try_sandbox(request, options, cancellation))
    except InputError as error:
        return (failed_row("sandbox", str(error), outcome_of(error)),)
    except IsolationError as error:
        refused = failed_row("sandbox", str(error), Outcome.REFUSED)
    if options.isolation is not Isolation.REQUIRED:
        return (refused,)
    try:
        return (refused, *_try_sandbox(request, replace(options, isolation=Isolation.BEST_EFFORT), cancellation))
    except IsolationError:
        return (refused,)


def _room(request: RunRequest) -> Iterator[PreflightCheck]:
    """Check whether the files of the checkout can be copied: into a workspace, and for its checks."""
    with temporary_folder(request.root) as place:
        size, free = request.copied_files.size, shutil.disk_usage(place).free
        needed = COPIES * size
        copies = f"{COPIES} copies of the files, of {mebibytes(size)} each"
        said = f"a run needs {copies}, and {mebibytes(free)} are free in {place.parent}"
    if needed < free:
        yield ok("workspace", said)
    else:
        yield warning("workspace", f"{said}: set TMPDIR to a folder with more room, or check out less")


def _try_sandbox(request: RunRequest, options: ToolboxOptions, cancellation: Cancellation) -> Iterator[PreflightCheck]:
    required = request.inputs.isolation is Isolation.REQUIRED
    with open_workspace(request) as workspace:
        copied = workspace.request
        make_empty_workspace(copied.checkout, copied.root)
        with open_toolbox(copied.root, replace(options, working_directory="."), cancellation) as toolbox:
            layers = toolbox.layers
            report = try_canaries(toolbox, outside_of(copied))
    yield from (_layer(layer, required=required) for layer in layers)
    yield from (_canary(canary, required=required) for canary in report.canaries)


def _layer(layer: Layer, *, required: bool) -> PreflightCheck:
    name = f"sandbox: {layer.name}"
    if not layer.missing:
        return ok(name, layer.state)
    return failed_row(name, layer.state, Outcome.REFUSED) if required else warning(name, layer.state)


def _base(
    request: RunRequest, agent: AgentDefinition, cancellation: Cancellation, note: Callable[[str], None]
) -> Iterator[PreflightCheck]:
    """Run the agent's checks on the current files, in a workspace."""
    rows: list[PreflightCheck] = []
    with toolbox_in_copy(request, cancellation, note) as toolbox:
        base, mode = toolbox.tree().commit, request.inputs.base_checks
        keep, waiting = request.kept, cancellation.waiting
        with CheckTrees(toolbox, toolbox.checkout, base=base, keep=keep, waiting=waiting) as checks:
            run_on_base(agent, checks.opened, lambda check: rows.append(_base_row(check, mode)))
        refused = [each for each in toolbox.egress.requests() if each.refused] if toolbox.egress else []
    yield from rows
    if refused:
        yield warning("hosts", f"`setup` and checks were refused some: {describe_hosts(refused)}")


def _base_row(check: BaseChecked, mode: BaseChecks) -> PreflightCheck:
    name = f"{_BASE}: {check.name}"
    if check.passed:
        return ok(name, "passes")
    said = telling_line(check.output_tail, LINE_SHOWN) or "no output"
    detail = f"fails (exit code {check.exit_code}): {said}"
    return failed_row(name, detail, Outcome.BASE_FAILED) if mode is BaseChecks.REQUIRE else warning(name, detail)


def _canary(canary: Canary, *, required: bool) -> PreflightCheck:
    name = f"self-test: {canary.location.value}"
    if canary.state is not CanaryState.REACHED:
        return ok(name, canary.description)
    refuses = required or canary.refuses
    return failed_row(name, canary.description, Outcome.REFUSED) if refuses else warning(name, canary.description)


_BASE, _POLICY, _STARTERS = "check before the run", "policy", "started by"
#: Characters shown of the line that best explains a failed check.
LINE_SHOWN = 300


def _model(request: RunRequest, agent: AgentDefinition) -> Iterator[PreflightCheck]:
    """Check whether every model answers, or whether the scenario can stand in for them."""
    if request.inputs.model.provider is Provider.SCRIPTED:
        yield from guard_rows("model", lambda: _check_script(request))
    else:
        models = _models(request, agent)
        yield from guard_rows("model", lambda: _reachable(request, models))
        yield from guard_rows("price", lambda: _check_prices(request, agent, models))


def _check_script(request: RunRequest) -> Iterator[PreflightCheck]:
    scenario_of(request)
    yield ok("model", f"scripted, no key needed: {request.inputs.scenario}")
    yield ok("price", "scripted turns cost nothing")


def _models(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...]:
    """Return every model that a step may use."""
    rungs = (rung for ladder in agent.ladders(request.inputs.model.name).values() for rung in ladder.rungs)
    return tuple(dict.fromkeys(resolve_model(rung.model, request.inputs.model.provider) for rung in rungs))


def _reachable(request: RunRequest, models: tuple[str, ...]) -> Iterator[PreflightCheck]:
    with open_anthropic(request) as service:
        for model in models:
            with activity(f"asking {service.base_url} for {model}"):
                fault = service.probe(model)
            if fault is None:
                yield ok("model", f"{model} answers at {service.base_url}")
            elif isinstance(fault, UnlistedModel):
                yield unknown("model", f"the first turn will tell: {service.base_url} has no list of models")
            else:
                yield failed_row("model", f"{fault.reason} {fault.hint}".strip(), Outcome.MODEL_FAILED)


def _check_prices(request: RunRequest, agent: AgentDefinition, models: tuple[str, ...]) -> Iterator[PreflightCheck]:
    check_budget(agent, request.inputs)
    unpriced = [model for model in models if not is_priced(model, request.inputs.model.provider)]
    if unpriced:
        tokens = f"limits.tokens ({request.inputs.limits.tokens:,}) applies instead of limits.usd"
        yield warning("price", f"of {', '.join(unpriced)} unknown; {tokens}")
    else:
        budget = f"limits.usd is {usd(request.inputs.limits.usd)}"
        if agent.max_usd is not None:
            budget += f", maxUsd in agent.json {usd(agent.max_usd)}; the lower one applies"
        yield ok("price", f"known; {budget}")
