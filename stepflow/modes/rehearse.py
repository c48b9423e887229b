"""Plays agents' scenarios, and compares the results with what they expect or updates the scenarios with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path

import yaml

from stepflow.definition.folder import FileRefused, Why, find_agents, read_below, where_else
from stepflow.definition.loading import validate_agent
from stepflow.domain.activity import activity
from stepflow.domain.checkout import BaseCheck
from stepflow.domain.effect import ApprovalAnswered
from stepflow.domain.event import Entry, ValidatorRan
from stepflow.domain.reports.report import OUTCOME, Mismatch, Rehearsal, Rehearsed, Row, RunReport
from stepflow.domain.text import count, telling_line
from stepflow.domain.words import Outcome, Provider
from stepflow.errors import DefinitionError, InputError, Severity
from stepflow.model.scenario import Expect, Scenario, ScriptedModel, yaml_text
from stepflow.report.log import TerminalLog
from stepflow.report.safe_text import telling_lines
from stepflow.run.clock import Cancellation, RehearsalClock
from stepflow.run.ending import outcome_of
from stepflow.run.execute import drive_run
from stepflow.run.prepare import prepare_run
from stepflow.run.readiness import check_request
from stepflow.run.request import RunRequest
from stepflow.run.scenarios import (
    NOT_PLAYED,
    parse_scenario,
    place_of,
    read_node,
    read_scenario,
    read_yaml_text,
    validator_results,
)
from stepflow.run.start.inputs import BoundaryMode
from stepflow.run.start.trigger import Trigger
from stepflow.run.workspace import committed_copy, request_in_copy
from stepflow.sandbox.workspace import make_workspace, temporary_folder

EXPECT = "expect"
#: Inputs that a run without a real issue does not have.
OF_GITHUB = ("issue_text", "record", "read_token")
#: The keys for a scenario without `expect`.
USUAL = ("outcome", "steps", "validators", "effects")
#: The limit for reading a file, in bytes.
MOST_BYTES = 1024 * 1024
#: Shown if one side has no value.
NOTHING = "–"
NO_FILE = "no such file"
LINE_BREAK_AT_END = "⏎"
CONTEXT = 2


def came_of(report: RunReport, files: Mapping[str, str | None]) -> Expect:
    """Return everything that `expect` can contain, with the actual values of this run."""
    return Expect(
        outcome=report.outcome,
        steps=tuple(line.step_id for line in report.history),
        effects=tuple(effect.kind for effect in report.effects),
        validators=validator_results(report.validators),
        files=dict(files),
    )


def read_files(root: Path, paths: Iterable[str]) -> dict[str, str | None]:
    """Read the named files as text, with None for a missing file. Do not follow links, because tools may have created
    them."""
    return {path: _file_text(root, path) for path in paths}


def differences(expect: Expect | None, came: Expect) -> tuple[Mismatch, ...]:
    """Return every key of `expect` with another actual value. Without `expect`, the run only has to complete."""
    given = expect or Expect(outcome=Outcome.COMPLETED)
    different = (
        *_outcome(given.outcome, came.outcome),
        *_sequence("steps", given.steps, came.steps),
        *_validators(given.validators, came.validators or {}),
        *_sequence("effects", given.effects, came.effects),
        *(each for path in given.files or {} for each in _file(path, given, came)),
    )
    return tuple(different)


def _outcome(expected: Outcome | None, came: Outcome | None) -> Iterator[Mismatch]:
    if expected is None and came not in NOT_PLAYED:
        return
    if expected is not came:
        yield Mismatch(what=OUTCOME, rows=(Row(where="", expected=expected or "another end", came=came or NOTHING),))


def _sequence(what: str, expected: Sequence[str] | None, came: Sequence[str] | None) -> Iterator[Mismatch]:
    if expected is not None and list(expected) != list(came or ()):
        yield Mismatch(what=what, rows=tuple(_align(expected, came or ())))


def _align(expected: Sequence[str], came: Sequence[str]) -> Iterator[Row]:
    """Yield both lists side by side. `where` is the number in the actual list, or in the expected list if there is no
    actual item."""
    for _, left, left_end, right, right_end in SequenceMatcher(a=expected, b=came, autojunk=False).get_opcodes():
        numbers = zip_longest(range(left, left_end), range(right, right_end))
        for at, to in numbers:
            number = at if to is None else to
            yield Row(
                where="" if number is None else str(number + 1),
                expected=NOTHING if at is None else expected[at],
                came=NOTHING if to is None else came[to],
            )


def _validators(expected: Mapping[str, Sequence[str]] | None, came: Mapping[str, Sequence[str]]) -> Iterator[Mismatch]:
    if expected is None or {name: tuple(words) for name, words in expected.items()} == came:
        return
    names = dict.fromkeys((*expected, *came))
    rows = (Row(where=name, expected=_words(expected.get(name)), came=_words(came.get(name))) for name in names)
    yield Mismatch(what="validators", rows=tuple(rows))


def _words(words: Sequence[str] | None) -> str:
    return ", ".join(words) if words else NOTHING


def _file(path: str, given: Expect, came: Expect) -> Iterator[Mismatch]:
    expected, came_text = (given.files or {})[path], (came.files or {}).get(path)
    if expected == came_text:
        return
    if expected is None or came_text is None:
        rows: tuple[Row, ...] = (Row(where="", expected=_there(expected), came=_there(came_text)),)
    else:
        rows = tuple(_near([*_align(_lines(expected), _lines(came_text))]))
    yield Mismatch(what=f"file {path}", rows=rows)


def _there(text: str | None) -> str:
    return NO_FILE if text is None else f"a file of {len(text)} characters"


def _lines(text: str) -> list[str]:
    """Return the lines. A final line break, which would be invisible, becomes a line of its own."""
    lines = text.replace("\r", "␍").split("\n")
    return [*lines[:-1], lines[-1] or LINE_BREAK_AT_END] if text else []


def _near(rows: list[Row]) -> Iterator[Row]:
    """Return the rows that differ, with a few rows around each."""
    wanted = {at + by for at, row in enumerate(rows) if not row.same for by in range(-CONTEXT, CONTEXT + 1)}
    return (row for at, row in enumerate(rows) if at in wanted)


def update_expect(text: str, came: Expect, *, name: str = "scenario") -> str:
    """Return the text with the actual values in `expect`: for the existing keys, or for all the usual ones.

    Raise `InputError` if the values cannot be inserted because of the way in which the text is written.
    """
    before = parse_scenario(text, name=name)
    expect = before.expect or Expect()
    keys = [key for key in Expect.model_fields if key in expect.model_fields_set] or USUAL
    files = {path: (came.files or {}).get(path) for path in expect.files or {}}
    values = came.model_copy(update={"files": files}).model_dump(mode="json", include=set(keys))
    start, end = _place_of_expect(text)
    block = yaml_text({EXPECT: {key: values[key] for key in keys}})
    if start == len(text):
        block = f"\n{block}" if text.endswith("\n") else f"\n\n{block}"
    edited = text[:start] + block.replace("\n", "\r\n" if "\r\n" in text else "\n") + text[end:]
    after = before.model_copy(update={EXPECT: Expect.model_validate_json(json.dumps(values))})
    read = read_yaml_text(edited, Scenario)
    if not isinstance(read, Scenario) or read.model_dump(exclude_unset=True) != after.model_dump(exclude_unset=True):
        raise InputError(
            f"{name}: `expect` is written in a form that cannot be changed by its place.",
            hint="Write its keys on separate lines, without anchors, or change it by hand.",
        )
    return edited


def _place_of_expect(text: str) -> tuple[int, int]:
    """Return where the lines of `expect` begin and end in the text of a scenario. If there is no `expect`, both are the
    end of the text."""
    root = read_node(text)
    pairs = root.value if isinstance(root, yaml.MappingNode) else ()
    for key, value in pairs:
        if key.value == EXPECT:
            last_word = len(text[: _end(value)].rstrip())
            return key.start_mark.index, text.find("\n", last_word) + 1 or len(text)
    return len(text), len(text)


def _end(node: yaml.Node) -> int:
    """Return where the last word of the node ends. The end of a block itself comes after any comments that follow
    it."""
    children = [child for pair in node.value for child in pair] if isinstance(node, yaml.MappingNode) else node.value
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and children:
        return _end(children[-1])
    return int(node.end_mark.index)


def _file_text(root: Path, path: str) -> str | None:
    try:
        return read_below(root, path, limit=MOST_BYTES).decode("utf-8", "replace")
    except FileRefused as refused:
        return None if refused.why is Why.MISSING else f"({_REFUSED.get(refused.why, refused.message)})"


_REFUSED = {
    Why.LINK: "a symbolic link",
    Why.IRREGULAR: "no regular file",
    Why.LARGE: f"more than {MOST_BYTES} bytes",
}


def rehearse_agents(
    request: RunRequest,
    names: Sequence[str],
    cancellation: Cancellation,
    *,
    update: bool = False,
    report_one: Callable[[Rehearsed], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
) -> Rehearsal:
    """Play every scenario of the named agents, or of all agents. `AGENT/SCENARIO` names a single scenario. `report_one`
    is called after each scenario, `note` before slow parts.

    Each is played in its own copy of the current checkout. Before anything is played, raise `InputError` for unknown
    names, and `DefinitionError` with the problems of all the agents.
    """
    listed = list_scenarios(request.definition_root, names)
    _demand_sound_agents(request, dict.fromkeys(each.agent for each in listed))
    check_request(_request_of(request, listed[0]))
    played: list[Rehearsed] = []
    with committed_copy(request, cancellation, note) as original:
        for number, each in enumerate(listed):
            with activity(f"{each.agent}/{each.name}"), temporary_folder(request.root) as folder:
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
    """Return the scenarios of these agents, sorted by name. Raise `InputError` if there are none, or if a named
    agent has none."""
    known = find_agents(root)
    found = {name: _of_agent(root, name, known) for name in names or known}
    without = next((name for name in names if not found[name]), "")
    if not (known or names):
        raise InputError(f"There is no agent under {root / '.agent'}.", hint=where_else(root))
    if without or not any(found.values()):
        who = f'The agent "{without}" has no' if without else f"No agent under {root / '.agent'} has a"
        raise InputError(
            f"{who} scenario.",
            hint="Write one as .agent/<agent>/scenarios/<name>.yaml; `stepflow run --record` writes one from a run.",
        )
    return tuple(dict.fromkeys(each for listed in found.values() for each in listed))


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
        "model": request.inputs.model.model_copy(update={"provider": Provider.SCRIPTED}),
        "scenario": listed.file,
        "boundary": BoundaryMode.DRY_RUN,
        "limits": request.inputs.limits.of_one_run(),
        "apt_packages": request.inputs.apt_packages if first else (),
        **dict.fromkeys(("issue", "policy", *OF_GITHUB)),
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
    begun, log, expect = clock.now(), list[str](), None
    report: RunReport | None = None
    text, run_folder = "", ""
    notes = list[str]()

    def listen(entry: Entry) -> None:
        """Keep what the report of the run does not contain: the log, and the approvals."""
        log.extend(terminal.render(entry))
        if isinstance(entry.event, ApprovalAnswered):
            notes.append(f'the approval before step "{entry.event.step_id}" was granted')

    try:
        # Read only once, before the run: afterward it is a file that tools may have changed.
        text = read_scenario(listed.file, root=request.definition_root)
        scenario = parse_scenario(text, name=listed.file)
        expect = scenario.expect
        waits = expect is not None and expect.outcome is Outcome.AWAITING_APPROVAL
        prepared = prepare_run(replace(request, approvals_given=not waits), now=begun)
        report = drive_run(prepared, clock=clock, cancellation=cancellation, listeners=(listen,)).report
        texts = read_files(request.root, (expect.files if expect else None) or ())
        redactor = prepared.request.redactor
        files = {path: None if content is None else redactor(content) for path, content in texts.items()}
        came, reason = came_of(report, files), report.explanation
        run_folder = report.host_run_folder or report.run_folder
        if left := prepared.model.leftover if isinstance(prepared.model, ScriptedModel) else 0:
            notes.append(f"{count(left, 'turn')} of the scenario {'was' if left == 1 else 'were'} not played")
    except (InputError, DefinitionError) as error:
        came = Expect(outcome=outcome_of(error))
        reason = request.redactor(str(error).replace(f"{request.root}/", ""))
    expected_red = expect is not None and expect.outcome is Outcome.BASE_FAILED
    red_before = {check.name: check for check in report.base_checks if not check.passed} if report else {}
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
        red=red_lines(report.validators if report else (), red_before),
    )
    return Played(rehearsed=rehearsed, expect=expect, came=came)


def describe_red(checks: Iterable[BaseCheck]) -> str:
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
