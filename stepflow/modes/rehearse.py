"""Plays agents' scenarios and compares the results with what they expect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stepflow.definition.folder import find_agents, where_else
from stepflow.definition.loading import validate_agent
from stepflow.domain.agent.problem import Severity
from stepflow.domain.approval import ApprovalAnswered
from stepflow.domain.event import BaseChecked, Entry, ValidatorRan
from stepflow.domain.reports.report import Rehearsal, Rehearsed
from stepflow.domain.text import count, telling_line
from stepflow.domain.words import BaseChecks, Outcome, Provider
from stepflow.errors import DefinitionError, InputError
from stepflow.model.scenario import Expect, ScriptedModel
from stepflow.modes.expectations import came_of, differences, read_files, update_expect
from stepflow.report.log import TerminalLog
from stepflow.report.safe_text import telling_lines
from stepflow.run.clock import Cancellation, RehearsalClock
from stepflow.run.ending import outcome_of
from stepflow.run.execute import drive_run
from stepflow.run.prepare import prepare_run
from stepflow.run.readiness import check_request
from stepflow.run.request import RunRequest
from stepflow.run.scenarios import NOT_PLAYED, parse_scenario, place_of, read_scenario
from stepflow.run.start.inputs import BoundaryMode
from stepflow.run.start.trigger import Trigger
from stepflow.run.workspace import committed_copy, request_in_copy
from stepflow.sandbox.workspace import make_workspace, temporary_folder


def rehearse_agents(
    request: RunRequest,
    names: Sequence[str],
    cancellation: Cancellation,
    *,
    update: bool = False,
    report_one: Callable[[Rehearsed], None] = lambda _: None,
) -> Rehearsal:
    """Play every scenario of the named agents, or of all agents. `AGENT/SCENARIO` names a single scenario. `report_one`
    is called after each scenario.

    Each is played in its own copy of the current checkout. Before anything is played, raise `InputError` for unknown
    names, and `DefinitionError` with the problems of all the agents.
    """
    listed = list_scenarios(request.definition_root, names)
    _demand_sound_agents(request, dict.fromkeys(each.agent for each in listed))
    check_request(_request_of(request, listed[0]))
    played: list[Rehearsed] = []
    with committed_copy(request, cancellation) as original:
        for number, each in enumerate(listed):
            with temporary_folder(request.root) as folder:
                copy = folder / "checkout"
                with cancellation.obeyed():
                    make_workspace(original, copy)
                    copied = replace(request_in_copy(request, copy), committed_copy=original)
                scenario_request = _request_of(copied, each, first=number == 0)
                came = play_scenario(scenario_request, each, cancellation)
            cancellation.check()
            played.append(accept(came, request.definition_root) if update else came.rehearsed)
            report_one(played[-1])
    rehearsed = {each.agent for each in listed}
    left = () if names else tuple(agent for agent in find_agents(request.definition_root) if agent not in rehearsed)
    return Rehearsal(scenarios=tuple(played), unrehearsed=left)


def list_scenarios(root: Path, names: Sequence[str]) -> tuple[Listed, ...]:
    """Return the scenarios of these agents, sorted by name. Raise `InputError` if there are none."""
    known = find_agents(root)
    listed = tuple(dict.fromkeys(each for name in names or known for each in _of_agent(root, name, known)))
    if not (known or names):
        raise InputError(f"There is no agent under {root / '.agent'}.", hint=where_else(root))
    if not listed:
        raise InputError(
            f"No agent under {root / '.agent'} has a scenario.",
            hint="Write one as .agent/<agent>/scenarios/<name>.yaml; `stepflow run --record` writes one from a run.",
        )
    return listed


def _of_agent(root: Path, name: str, known: Sequence[str]) -> tuple[Listed, ...]:
    agent, slash, only = name.partition("/")
    if agent not in known:
        raise InputError(
            f'There is no agent "{agent[:100]}" under {root / ".agent"}.',
            hint=f"The agents of this repository: {', '.join(known)}." if known else where_else(root),
        )
    files = sorted((root / ".agent" / agent / "scenarios").glob("*.yaml"))
    wanted = tuple(Listed(agent=agent, name=file.stem) for file in files if not slash or file.stem == only)
    if slash and not wanted:
        there = ", ".join(file.stem for file in files) or "none"
        raise InputError(f'Agent "{agent}" has no scenario "{only[:100]}".', hint=f"Its scenarios: {there}.")
    return wanted


def _demand_sound_agents(request: RunRequest, agents: Iterable[str]) -> None:
    inputs = request.inputs
    problems = [
        problem
        for agent in agents
        for problem in validate_agent(
            agent,
            root=request.definition_root,
            allow_spec_violations=inputs.allow_spec_violations,
            allow_custom_verdict=inputs.allow_custom_verdict,
        )
        if problem.severity is Severity.ERROR
    ]
    if problems:
        raise DefinitionError("Nothing can be rehearsed: the agents have errors.", problems=tuple(problems))


def _request_of(request: RunRequest, listed: Listed, *, first: bool = True) -> RunRequest:
    """Return the request for a run that plays the scenario with a dry-run boundary. It leaves out what a model or
    GitHub would need. Packages are already there once the first run has installed them."""
    played = {
        "agent": listed.agent,
        "provider": Provider.SCRIPTED,
        "scenario": listed.file,
        "boundary": BoundaryMode.DRY_RUN,
        "apt_packages": request.inputs.apt_packages if first else (),
        **dict.fromkeys(("issue", "issue_text", "record", "read_token", "policy")),
        **dict.fromkeys(("budget_usd_per_issue", "budget_usd_per_day", "budget_usd_per_month")),
        "runs_per_person_per_day": None,
        "resume": "never",
    }
    return replace(
        request,
        run_id=f"{request.run_id}-{listed.agent}-{listed.name}",
        inputs=request.inputs.model_copy(update=played),
        trigger=Trigger(agent=listed.agent),
        folder=request.folder / listed.agent / listed.name,
        host_folder=f"{request.host_folder}/{listed.agent}/{listed.name}" if request.host_folder else "",
    )


#: Lines of a failed check's output that are shown, and characters of the one that says most.
RED_LINES = 10
LINE_SHOWN = 120


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A scenario to play."""

    agent: str
    name: str

    @property
    def file(self) -> str:
        """The path relative to the repository."""
        return f".agent/{self.agent}/scenarios/{self.name}.yaml"


@dataclass(frozen=True, kw_only=True)
class Played:
    """The result of one scenario."""

    rehearsed: Rehearsed
    #: The scenario's own. None if it has none or cannot be read.
    expect: Expect | None
    #: The actual values of all keys of `expect`.
    came: Expect


def play_scenario(request: RunRequest, listed: Listed, cancellation: Cancellation) -> Played:
    """Play a scenario. An error that prevents the run from starting is also an outcome, which a scenario may expect."""
    clock, terminal = RehearsalClock(), TerminalLog()
    begun, log, ran, red_before = clock.now(), list[str](), list[ValidatorRan](), dict[str, BaseChecked]()
    expect: Expect | None = None
    text, run_folder = "", ""
    notes = list[str]()

    def listen(entry: Entry) -> None:
        """Keep what the report of the run does not contain: the log, and each validator's result in full."""
        log.extend(terminal.render(entry))
        if isinstance(entry.event, ValidatorRan):
            ran.append(entry.event)
        elif isinstance(entry.event, BaseChecked) and not entry.event.passed:
            red_before[entry.event.name] = entry.event
        elif isinstance(entry.event, ApprovalAnswered):
            notes.append(f'the approval before step "{entry.event.step_id}" was granted')

    try:
        # Read only once, before the run: afterward it is a file that tools may have changed.
        text = read_scenario(listed.file, root=request.definition_root)
        scenario = parse_scenario(text, name=listed.file)
        expect = scenario.expect
        if scenario.base_checks:
            inputs = request.inputs.model_copy(update={"base_checks": BaseChecks(scenario.base_checks)})
            request = replace(request, inputs=inputs)
        waits = expect is not None and expect.outcome is Outcome.AWAITING_APPROVAL
        prepared = prepare_run(replace(request, approvals_given=not waits), now=begun)
        report = drive_run(prepared, clock=clock, cancellation=cancellation, listeners=(listen,)).report
        texts = read_files(request.root, (expect.files if expect else None) or ())
        redactor = prepared.request.redactor
        files = {path: None if content is None else redactor(content) for path, content in texts.items()}
        came, reason = came_of(report, ran, files), report.explanation
        run_folder = report.host_run_folder or report.run_folder
        if left := prepared.model.leftover if isinstance(prepared.model, ScriptedModel) else 0:
            notes.append(f"{count(left, 'turn')} of the scenario {'was' if left == 1 else 'were'} not played")
    except (InputError, DefinitionError) as error:
        came = Expect(outcome=outcome_of(error))
        reason = request.redactor(str(error).replace(f"{request.root}/", ""))
    expected_red = expect is not None and expect.outcome is Outcome.BASE_FAILED
    skipped = describe_red(red_before.values()) if came.outcome is Outcome.BASE_FAILED and not expected_red else ""
    rehearsed = Rehearsed(
        agent=listed.agent,
        name=listed.name,
        file=listed.file,
        line=place_of(text, "expect"),
        outcome=came.outcome or outcome_of(InputError("")),
        reason=reason,
        iterations=len(came.steps or ()),
        seconds=clock.now() - begun,
        differences=() if skipped else differences(expect, came),
        notes=() if skipped else tuple(notes),
        skipped=skipped,
        log=tuple(log),
        run_folder=run_folder,
        red=red_lines(ran, red_before),
    )
    return Played(rehearsed=rehearsed, expect=expect, came=came)


def describe_red(checks: Iterable[BaseChecked]) -> str:
    """Say in one line which checks failed before the run, each with the line that says most."""
    return "; ".join(
        f"{check.name} failed before the run (exit code {check.exit_code}): "
        f"{telling_line(check.output_tail, LINE_SHOWN) or 'no output'}"
        for check in checks
    )


def red_lines(ran: Sequence[ValidatorRan], red_before: Collection[str]) -> tuple[str, ...]:
    """Return the last check and the end of its output, if it failed. Scenarios often end because they have no answer to
    it.

    A check that failed before the run is not a mistake of the scenario.
    """
    if not ran or ran[-1].passed:
        return ()
    last = ran[-1]
    output = telling_lines(last.output_tail, RED_LINES)
    before = ", as it did before the run" if last.name in red_before else ""
    return (f"the check {last.name} failed (exit code {last.exit_code}){before}: {last.command}", *output)


def accept(played: Played, root: Path) -> Rehearsed:
    """Write the actual result into the file, if it differs or if nothing was expected yet."""
    rehearsed, expect = played.rehearsed, played.expect
    if rehearsed.skipped or (expect is not None and not rehearsed.differences):
        return rehearsed
    if rehearsed.outcome in NOT_PLAYED and not (expect and expect.outcome is rehearsed.outcome):
        said = f"a run that ends {rehearsed.outcome} was not played through; fix the scenario or the agent first"
        return replace(rehearsed, refusal=said)
    file = root / rehearsed.file
    try:
        # Not `read_text`, which would change the line endings of the file.
        text = file.read_bytes().decode("utf-8")
        file.write_bytes(update_expect(text, played.came, name=rehearsed.file).encode("utf-8"))
    except InputError as error:
        return replace(rehearsed, refusal=str(error))
    except OSError as error:
        return replace(rehearsed, refusal=f"{file} cannot be written: {error.strerror}")
    return replace(rehearsed, updated=True)
