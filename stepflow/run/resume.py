"""Whether a run resumes the earlier one in its folder. The folder may be forged, so its content is checked."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from stepflow.boundary.own_texts import has_same_text
from stepflow.domain import event as events
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.conversation import ModelTurn
from stepflow.domain.json import JsonObject
from stepflow.domain.reports.report import RunReport
from stepflow.domain.run import FollowUp, ReviewedPull, name_in
from stepflow.domain.words import Outcome, Permission
from stepflow.engine.context import approval_digest, required_approver
from stepflow.errors import InputError, Refused
from stepflow.journal import hold_alone, iter_journal, read_journal
from stepflow.report.collect import ReportFacts, collect_report
from stepflow.run.recorded import JOURNAL, PreviousRun, RunSnapshots
from stepflow.run.request import RunRequest, boundary_settings
from stepflow.run.snapshots import FOLDER, SnapshotStore
from stepflow.run.start.inputs import NEVER
from stepflow.run.start.trigger import PullRequestEvent
from stepflow.sandbox.host_git import head_commit

#: What the run itself writes into its folder.
OWN_FILES = frozenset(
    {
        "journal.jsonl",
        *("report.json", "report.json.part"),
        *("report.html", "report.html.part"),
        *("effects.json", "effects.json.part"),
        "work.bundle",
        "snapshots",
    }
)
#: Bytes. An event takes a few hundred bytes to a few kilobytes, so 10,000 iterations stay far below this.
LARGEST_JOURNAL = 1024 * 1024 * 1024
#: Resuming a run with one of these outcomes only returns its report.
DONE = frozenset({Outcome.COMPLETED, Outcome.NO_CHANGES})
#: A run with one of these outcomes is not resumed, because nothing is left to do.
OVER = DONE | frozenset(
    {
        *(Outcome.SKIPPED, Outcome.ABORTED, Outcome.ROUTING_FAILED, Outcome.SCHEMA_FAILED),
        *(Outcome.VALIDATION_FAILED, Outcome.BASE_FAILED, Outcome.REFUSED),
        *(Outcome.MISCONFIGURED, Outcome.INVALID_DEFINITION),
    }
)


def find_previous_run(
    request: RunRequest, agent: AgentDefinition, args: JsonObject, issue: int | None
) -> PreviousRun | None:
    """Find the run in the folder and set the `problem` that keeps it from being resumed; None without a run. If the
    input `resume` names it, a problem raises `InputError`."""
    previous_run = look_into(request.folder)
    explicit = request.inputs.names_run
    if previous_run is None:
        if explicit:
            raise InputError(
                f"There is no run to resume in {request.folder}: it has no journal.jsonl.",
                hint="Name the run folder of an earlier run in the input resume.",
            )
        return None
    never = "the input resume is `never`" if request.inputs.resume == NEVER else ""
    reason = never or previous_run.problem or _mismatch(previous_run, request, agent, args, issue)
    if reason and request.trigger.reply:
        raise Refused(
            f"No run was started: the run that waits for approval cannot continue: {reason}.",
            hint="Start the agent again; it makes a new plan.",
        )
    if reason and explicit:
        raise InputError(
            f"The run in {request.folder} cannot continue: {reason}.",
            hint="Start a new run without the input resume.",
        )
    return replace(previous_run, problem=reason)


def look_into(folder: Path) -> PreviousRun | None:
    """Read the run in the folder; None if there is none."""
    path = folder / JOURNAL
    try:
        if not os.path.lexists(path):
            problem = _strange_files(folder, only=OWN_FILES) if folder.is_dir() else ""
            return PreviousRun(problem=problem) if problem else None
        problem = _strange_files(folder)
        # Check the size before reading it into memory.
        if not problem and path.stat().st_size > LARGEST_JOURNAL:
            problem = f"its {JOURNAL} is larger than any run writes"
        if problem:
            return PreviousRun(problem=problem)
        happened = tuple(entry.event for entry in read_journal(path))
    except InputError as exc:
        return PreviousRun(problem=exc.message.rstrip("."))
    except OSError as exc:
        return PreviousRun(problem=f"it cannot be read: {exc.strerror}")
    if problem := implausible(happened):
        return PreviousRun(problem=f"its journal has no run that can continue: {problem}")
    previous_run = PreviousRun(events=happened)
    ended = previous_run.ended
    over = f"it is over: {ended.outcome}" if ended and ended.outcome in OVER else ""
    return replace(previous_run, run_id=previous_run.started.run_id, problem=over)


def completed_report(request: RunRequest) -> RunReport | None:
    """Return the report of the run that `resume` names if it is already complete; otherwise None."""
    previous_run = look_into(request.folder) if request.inputs.names_run else None
    if previous_run is None or previous_run.ended is None or previous_run.ended.outcome not in DONE:
        return None
    facts = ReportFacts(run_folder=str(request.folder), host_run_folder=request.host_folder)
    report = collect_report(iter_journal(request.folder / JOURNAL), facts=facts)
    return _with_addresses(report, lambda url: _present_address(url, previous_run.started, request))


def _is_same_repository(started: events.RunStarted, request: RunRequest) -> bool:
    """Return whether a run is of the request's repository: by their ids, or by their names if one has no id."""
    before, now = started.repository_id, request.repository_id
    if before is not None and now is not None:
        return before == now
    return started.repository.casefold() == request.repository.casefold()


def _present_address(url: str, started: events.RunStarted, request: RunRequest) -> str:
    """Return an address in a run's repository as it is now if that was renamed or transferred, any other unchanged."""
    server = request.inputs.github_server_url.rstrip("/")
    before, now = f"{server}/{started.repository}/", f"{server}/{request.repository}/"
    has_moved = url.startswith(before) and _is_same_repository(started, request)
    return f"{now}{url.removeprefix(before)}" if has_moved else url


def without_foreign_addresses(report: RunReport, request: RunRequest) -> RunReport:
    """Return the report of a resumed run without addresses of other repositories: its folder may be forged."""
    url_of_repository = f"{boundary_settings(request).repository_url}/"
    report = replace(report, follow_up=request.follow_up, reviewed=request.reviewed)
    return _with_addresses(report, lambda url: url if url.startswith(url_of_repository) else "")


def _with_addresses(report: RunReport, change: Callable[[str], str]) -> RunReport:
    """Return the report with each address changed."""
    comment = report.failure_report
    return replace(
        report,
        effects=tuple(replace(receipt, url=change(receipt.url)) for receipt in report.effects),
        failure_report=(change(comment) or None) if comment and comment.startswith("http") else comment,
        follow_up=report.follow_up and replace(report.follow_up, url=change(report.follow_up.url)),
        reviewed=report.reviewed and replace(report.reviewed, url=change(report.reviewed.url)),
    )


def resumed_request(started: events.RunStarted, request: RunRequest) -> RunRequest:
    """Return the request with the id of the resumed run and the issue as that run saw it. The current actor, inputs
    and addresses stay."""
    trigger, inputs = request.trigger, request.inputs
    follow_up, reviewed = started.follow_up, started.reviewed
    if follow_up and request.follow_up:
        follow_up = replace(follow_up, url=request.follow_up.url)
    if reviewed and request.reviewed:
        reviewed = replace(reviewed, url=request.reviewed.url)
    label = started.started_by.label
    starts = label is not None and any(
        name_in(label, pattern) in ("", started.agent) for pattern in inputs.start.labels
    )
    return replace(
        request,
        run_id=started.run_id,
        follow_up=follow_up,
        reviewed=reviewed,
        resumed_from=started.base_commit,
        trigger=replace(
            trigger,
            issue=started.subject if started.started_by.from_github else None,
            label=trigger.label or (label if starts else None),
            default_branch=trigger.default_branch or started.base_branch,
        ),
    )


def waiting_request(request: RunRequest) -> RunRequest:
    """Return the request for the run in the folder that waits for a reply. Raises `Refused` if none waits."""
    previous, number = look_into(request.folder), request.trigger.issue_number
    if previous is None:
        raise Refused(
            f"No run was started: the folder of the run that waits for approval is gone; {request.folder} has none.",
            hint="Let the workflow bring it back and name it in the input run-folder, or start the agent again.",
        )
    problem = previous.problem
    if not problem and not previous.waits:
        problem = "it does not wait for approval"
    if not problem and previous.started.issue != number:
        problem = f"it is not about issue #{number}"
    if problem:
        raise Refused(
            f"No run was started: the run in {request.folder} cannot be answered: {problem}.",
            hint="Start the agent again.",
        )
    started, trigger = previous.started, replace(request.trigger, agent=previous.started.agent)
    if started.follow_up:
        number, kind = started.follow_up.pull_request, started.follow_up.kind
        trigger = replace(trigger, pull_request=PullRequestEvent(kind=kind, number=number, is_command=True))
    return replace(request, run_id=started.run_id, trigger=trigger)


def check_reply(request: RunRequest, agent: AgentDefinition, waiting: PreviousRun) -> Permission:
    """Return the permission that the reply requires. Raises `Refused` if the approved digest is not that of the plan
    with which the run would continue."""
    reply, started = request.trigger.reply, waiting.started
    if reply is None:
        return Permission.NONE
    approver = required_approver(agent, waiting.state)
    if reply.digest is None:
        return approver
    digest = approval_digest(
        waiting.state.step_id,
        definition=agent.digest,
        base_commit=started.base_commit,
        issue_text=started.context_text,
        handoff=waiting.state.handoff,
    )
    if reply.digest.lower() != digest:
        named = f"{reply.digest[:100]} is not" if reply.digest else "the reply does not name"
        raise Refused(
            f"No run was started: {named} the digest of the plan that waits for approval.",
            hint="Read the plan where the run shows it, and copy the digest from there.",
        )
    return approver


def _mismatch(
    previous_run: PreviousRun, request: RunRequest, agent: AgentDefinition, args: JsonObject, issue: int | None
) -> str:
    """Say why the run does not fit the current request; empty if it fits."""
    started, structured_output = previous_run.started, request.inputs.structured_output
    follow_up = started.follow_up
    if follow_up:
        follow_up = replace(follow_up, url=_present_address(follow_up.url, started, request))
    pairs = {
        "another agent": (started.agent, agent.name),
        "another version of the agent": (started.definition_digest, agent.digest),
        "another repository": (True, _is_same_repository(started, request)),
        "another issue": (started.issue, issue),
        "another pull request": (_pull_request(follow_up), _pull_request(request.follow_up)),
        "another state of the pull request": (_reviewed_head(started.reviewed), _reviewed_head(request.reviewed)),
        "other run arguments": (started.args, args),
        "another structured-output": (
            started.options.get("structured-output", structured_output),
            structured_output,
        ),
    }
    if differing := [name for name, (before, now) in pairs.items() if before != now]:
        return f"it is of {', '.join(differing)}"
    if previous_run.state.step_id not in agent.steps:
        return "it is at a step that the agent does not have"
    subject, now = started.subject, request.trigger.issue
    if previous_run.waits and started.started_by.from_github and subject and now and not has_same_text(subject, now):
        return "the issue has been edited since the plan was made"
    begins_there = request.own_branch or request.follow_up or request.reviewed
    if not begins_there and head_commit(request.checkout) != started.base_commit:
        return "it began at another commit than the one checked out"
    if not begins_there and (base := request.base_branch(agent)) not in ("", started.base_branch):
        return f"its pull request goes to {started.base_branch}, and not to {base}"
    return _lost_snapshot(previous_run.snapshots, SnapshotStore(request.folder / FOLDER))


def _pull_request(follow_up: FollowUp | None) -> FollowUp | None:
    """Return the parts of a follow-up that do not change while its own run pushes and replies."""
    return replace(follow_up, head="", round=0, threads=()) if follow_up else None


def _reviewed_head(reviewed: ReviewedPull | None) -> tuple[int, str] | None:
    """Return what a review is about, whatever its base branch has become since."""
    return (reviewed.number, reviewed.head) if reviewed else None


def _lost_snapshot(snapshots: RunSnapshots, store: SnapshotStore) -> str:
    """Say why the working tree cannot be restored; empty if nothing speaks against it yet."""
    if not snapshots.is_whole:
        return "the last snapshot of its working tree failed"
    try:
        store.check(snapshots.names)
    except InputError as error:
        return error.message.rstrip(".")
    return ""


#: The run's id, the delimiter of its data and its snapshots: names and texts of stepflow contain them.
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
NONCE = re.compile(r"[0-9a-f]{24}")
SNAPSHOT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: The names in a receipt go into the marker of a comment and into the job's outputs, which scripts read.
COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
ADDRESS = re.compile(r"https?://[A-Za-z0-9._~:/?#@!&*+,;=%()-]{1,2000}")
BRANCH = re.compile(r"[A-Za-z0-9._/+@=-]{1,250}")


def implausible(happened: Sequence[events.Event]) -> str:
    """Say why stepflow cannot have written these events; empty if it can. A forged folder must not raise any limit."""
    starts = [event for event in happened if isinstance(event, events.RunStarted)]
    if not starts:
        return "it ended before its run began"
    if len(starts) > 1 or any(not isinstance(event, events.Noted) for event in happened[: happened.index(starts[0])]):
        return "it has more than one beginning"
    if not RUN_ID.fullmatch(starts[0].run_id) or not NONCE.fullmatch(starts[0].nonce):
        return "its run id is not one of ours"
    iteration = 0
    for event in happened:
        if isinstance(event, events.IterationStarted):
            iteration += 1
        if not _is_sound(event, iteration):
            return f"its event `{event.event}` in iteration {iteration} cannot have happened"
    return ""


def _is_sound(event: events.Event, iteration: int) -> bool:  # noqa: PLR0911 - one return per event is the table
    match event:
        case events.IterationStarted():
            return event.iteration == iteration
        case ModelTurn() | events.AnswerLost() | events.CacheRenewed():
            return min(vars(event.usage).values()) >= 0 and (event.cost_usd is None or event.cost_usd >= 0)
        case events.ValidatorRan():
            return event.attempt >= 1
        case events.RunResumed():
            is_name = bool(SNAPSHOT.fullmatch(event.snapshot or "none"))
            return min(event.attempts.values(), default=0) >= 0 and is_name
        case events.SnapshotTaken():
            return bool(SNAPSHOT.fullmatch(event.name))
        case events.IssueCostSummed():
            return min(event.usd, event.most_usd) >= 0
        case events.EffectApplied() | events.FailureReported():
            fits = ((event.url, ADDRESS), (event.branch, BRANCH), (event.commit, COMMIT))
            return all(not text or shape.fullmatch(text) for text, shape in fits)
        case _:
            return True


def _strange_files(folder: Path, *, only: frozenset[str] | None = None) -> str:
    """Describe the first entry, at any depth, that is neither a regular file nor a folder: a link leads elsewhere, and
    opening a pipe would block. With `only`, just these top-level names are searched."""
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        for entry in sorted(os.scandir(here), key=lambda one: one.name):
            if here == folder and only is not None and entry.name not in only:
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(here / entry.name)
            elif not entry.is_file(follow_symlinks=False):
                return f"its `{entry.name[:100]}` is a link or no file"
    return ""


def move_aside(folder: Path, run_id: str) -> Path:
    """Rename the folder so that its place is free, and return the new path, which ends in the run's id."""
    target = folder.with_name(f"{folder.name}-{run_id or 'unreadable'}")
    while os.path.lexists(target):
        target = folder.with_name(f"{folder.name}-{run_id or 'unreadable'}-{secrets.token_hex(2)}")
    try:
        with _lock_journal(folder / JOURNAL):
            folder.rename(target)
    except OSError as exc:
        raise InputError(
            f"The run folder {folder} contains an earlier run and cannot be moved aside: {exc.strerror}.",
            hint="Name another folder in run-folder, or move that one yourself.",
        ) from exc
    return target


@contextmanager
def _lock_journal(journal: Path) -> Iterator[None]:
    """Lock the folder's journal, if it is a file, so that the folder of an active run is never moved."""
    try:
        fd = os.open(journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        hold_alone(fd, journal)
        yield
    finally:
        os.close(fd)
