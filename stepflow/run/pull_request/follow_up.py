"""A run that follows up on a pull request by stepflow: its agent and history, and the feedback from reviewers or
failed checks.

The agent's definition comes from the default branch, which must be checked out, never from the pull request.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.boundary.commit_check import read_trailers
from stepflow.boundary.git import Git, GitFailed
from stepflow.boundary.github_types import Account, CommitNow, PullRequest, ReviewThread, ThreadComment, WorkflowJob
from stepflow.boundary.settings import is_named
from stepflow.domain.run import FollowUp
from stepflow.domain.text import ANSI
from stepflow.engine.prompt.sanitize import SanitizedText, sanitize, sanitize_line, sanitize_plain
from stepflow.errors import InputError, Refused
from stepflow.run.issue import Subject, Writers, github_reader, join_texts, new_mark, quote, refused_if_silent
from stepflow.run.request import RunRequest, git_remote
from stepflow.run.resume import look_into
from stepflow.run.start.inputs import NEVER
from stepflow.run.start.trigger import PullRequestEvent, Skip
from stepflow.sandbox.host_git import head_commit

if TYPE_CHECKING:
    from stepflow.boundary.github_api import GitHubReader

#: Characters of all feedback together, of one thread's comments, and of the lines that a thread is about.
LONGEST_FEEDBACK = 60_000
LONGEST_THREAD = 8_000
LONGEST_HUNK = 2_000
#: Failed jobs that are shown, and bytes from the end of each log.
MOST_JOBS = 10
LOG_BYTES = 8_000
_NO_LOG = "[its log could not be read]"
_ONLY_NAMES = (
    "The agent is shown only the names of the failed jobs; to show their logs too, add `actions: read` to the job's "
    "`permissions:`."
)
#: GitHub lists no more files of a pull request than these.
MOST_FILES = 3000
_TIMESTAMP = re.compile(r"(?m)^\ufeff?\d{4}-\d\d-\d\dT[\d:.]+Z ?")
_CHECK_OUT = (
    "Let actions/checkout take it: `with: {ref: '${{ github.event.repository.default_branch }}'}`. The run fetches the "
    "pull request's branch itself."
)


#: The feedback to act on, as data for the model, and the ids of the review threads in it.
Feedback = tuple[SanitizedText, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class _Work:
    """The agent and issue that a branch belongs to, and the runs that have pushed to it."""

    agent: str
    issue: int | None
    runs: frozenset[str]


def find_follow_up(  # noqa: PLR0911 - one return per reason is the table
    request: RunRequest, event: PullRequestEvent
) -> RunRequest | Skip:
    """Return the request for a run of the agent that wrote the pull request, or a `Skip` if no agent did.

    Raises `InputError` without `read-token`, or if the checkout is not of the default branch."""
    if event.kind is None:
        return Skip(
            reason=f"the agent {request.trigger.agent} reviews no pull requests: its `allowedEffects` lack `review`"
        )
    with open_reader(request) as reader:
        pull, viewer = _find_pull_request(reader, event), reader.viewer()
        if pull is None:
            return Skip(reason=f"the branch {event.branch} has no open pull request of this repository")
        if reason := _reason_to_skip(request, event, pull, viewer):
            return Skip(reason=reason)
        work = _work_of(pull, reader.pull_request_commits(pull.number), viewer)
        if work is None:
            return Skip(reason=f"pull request #{pull.number} has no commits that {viewer.login} pushed for an agent")
        if request.trigger.agent not in ("", work.agent):
            theirs = f"the work of the agent {work.agent}, not of {request.trigger.agent}"
            return Skip(reason=f"pull request #{pull.number} is {theirs}")
        if reason := _changes_agents(pull.number, reader.pull_request_files(pull.number)):
            return Skip(reason=reason)
        demand_default_branch(request, reader)
    follow_up = FollowUp(
        kind=event.kind,
        pull_request=pull.number,
        url=pull.url,
        branch=pull.head,
        base=pull.base,
        head=pull.head_commit,
        round=len(work.runs),
    )
    trigger = replace(request.trigger, agent=work.agent, issue_number=work.issue)
    return replace(request, trigger=trigger, follow_up=follow_up)


def read_feedback(
    request: RunRequest, follow_up: FollowUp, event: PullRequestEvent, subject: Subject
) -> tuple[FollowUp, SanitizedText, Subject]:
    """Read the feedback that the run must act on. Return the follow-up with its threads, its text, and the subject with
    notes about what could not be read. Raises `Refused` if there is none, or after too many rounds."""
    most = request.inputs.limits.rounds
    if follow_up.round > most:
        raise Refused(
            f"No run was started: {most} follow-ups have pushed to pull request #{follow_up.pull_request}, and "
            "`limits.rounds` allows no more.",
            hint="Let a person continue on the branch, or raise `limits.rounds`.",
        )
    notes = list[str]()
    with open_reader(request) as reader:
        if event.failed_run is not None:
            text, threads = _failed_checks(reader, follow_up, event.failed_run, notes)
        else:
            text, threads = _reviews(reader, request, follow_up, event)
    if not text.text:
        raise Refused(
            f"No run was started: on pull request #{follow_up.pull_request} there is nothing to follow up, neither a "
            "failed job nor an unresolved thread of somebody with write access that waits for an answer.",
            hint="Comment on a line of the pull request, or write what to do below `/stepflow run`.",
        )
    return replace(follow_up, threads=threads), text, replace(subject, notes=(*subject.notes, *notes))


@contextmanager
def open_reader(request: RunRequest) -> Iterator[GitHubReader]:
    """Open GitHub for reading a pull request. Raises `InputError` without `read-token`."""
    token = request.inputs.read_token
    if token is None:
        raise InputError(
            "A run on a pull request must read its commits and comments, but the input read-token is empty.",
            hint="Pass `read-token: ${{ github.token }}`, and give the job the permissions `pull-requests: read` and "
            "`actions: read`.",
        )
    with closing(github_reader(request, token.get_secret_value())) as reader, refused_if_silent():
        yield reader


#: Commits of a pull request and its base that tools can look at.
DEPTH = 100


def fetch_history(request: RunRequest, commits: Sequence[str], base: str, *, perhaps_gone: str = "") -> Git:
    """Fetch the newest history of the repository on GitHub into the request's `base_repository`, which becomes a `.git`
    folder with HEAD at the first of the commits and the branch `base` as `origin/<base>`. The token is not stored
    there. The commit `perhaps_gone` is fetched if GitHub still has it."""
    token = request.inputs.read_token
    git = Git(
        request.base_repository,
        git_remote(request, token.get_secret_value() if token else ""),
        commit=commits[0],
    )

    def fetch(*wanted: str) -> None:
        arguments = ("fetch", "--quiet", "--no-tags", f"--depth={DEPTH}", git.remote.url, *wanted)
        request.retry_policy.repeat(lambda: git.run_remote(*arguments))

    fetch(*commits, f"+refs/heads/{base}:refs/remotes/origin/{base}")
    if perhaps_gone:
        try:
            fetch(perhaps_gone)
        except GitFailed as failed:
            if not failed.lacks_commit:
                raise
    git.run("update-ref", "--no-deref", "HEAD", commits[0])
    git.run("config", "core.bare", "false")
    # The tools, which may run as another user, read this folder.
    request.base_repository.chmod(0o755)
    return git


def _find_pull_request(reader: GitHubReader, event: PullRequestEvent) -> PullRequest | None:
    if event.number is not None:
        return reader.pull_request(event.number)
    return next(iter(reader.open_pull_requests(event.branch)), None)


def _reason_to_skip(request: RunRequest, event: PullRequestEvent, pull: PullRequest, viewer: Account) -> str:
    """Say why there is nothing to follow up, judging by the pull request alone; empty if there may be something."""
    name = f"pull request #{pull.number}"
    if pull.state != "open":
        return f"{name} is closed"
    if pull.head_repository != pull.base_repository:
        return f"{name} comes from a fork, and a follow-up pushes to this repository alone"
    if event.head and event.head not in (pull.head_commit, _head_at_start(request)):
        return f"the workflow run was of {event.head[:12]}, and the branch of {name} has moved on since"
    if not event.is_command and event.failed_run is None and request.trigger.actor == viewer.login:
        return f"the review of {name} is our own reply"
    return ""


def _changes_agents(number: int, files: tuple[str, ...]) -> str:
    """Say why these files of a pull request may change agents; empty if they do not."""
    if changed := [path for path in files if "/.agent/" in f"/{path}"]:
        return f"pull request #{number} changes {changed[0]}, and agents are changed by people alone: merge that first"
    if len(files) >= MOST_FILES:
        many = f"pull request #{number} changes {MOST_FILES:,} files or more, and GitHub lists no more of them"
        return f"{many}: whether it changes agents cannot be seen"
    return ""


def _head_at_start(request: RunRequest) -> str:
    """Return the head commit from which the run in the folder began, which may have pushed since; empty if there is
    no run to resume."""
    previous = look_into(request.folder) if request.inputs.resume != NEVER else None
    follow_up = previous.started.follow_up if previous and not previous.problem else None
    return follow_up.head if follow_up else ""


def _work_of(pull: PullRequest, commits: tuple[CommitNow, ...], viewer: Account) -> _Work | None:
    """Return the agent whose commits are on the branch: our account made them, their trailers name agent and issue,
    and the branch is named after both."""
    ours = [read_trailers(commit.message) for commit in commits if commit.is_by(viewer)]
    for trailers in ours:
        agent, issue, run = (trailers.get(f"Stepflow-{key}", "") for key in ("Agent", "Issue", "Run"))
        last = f"issue-{issue}" if issue else f"run-{run}"
        if agent and run and re.search(rf"(?:^|/){re.escape(agent)}/{re.escape(last)}(?:-\d+)?$", pull.head):
            number = int(issue) if issue.isdigit() else None
            return _Work(agent=agent, issue=number, runs=frozenset(each.get("Stepflow-Run", "") for each in ours))
    return None


def demand_default_branch(request: RunRequest, reader: GitHubReader) -> None:
    """Raise `InputError` if the checkout, from which agents are read, is not of the default branch."""
    branch, commit = request.trigger.default_branch, head_commit(request.root)
    if not commit or not reader.contains(branch, commit):
        raise InputError(
            f"The checkout is not of the default branch {branch}, from which a run on a pull request takes its agent.",
            hint=_CHECK_OUT,
        )


def _reviews(reader: GitHubReader, request: RunRequest, follow_up: FollowUp, event: PullRequestEvent) -> Feedback:
    """Return the unresolved threads and the remark that started the run, as far as they were written by people with
    write access or by bots that may start a run."""
    writers, viewer, mark = Writers(reader), reader.viewer(), new_mark()
    parts: list[tuple[str, SanitizedText]] = []
    actor, allowed = request.trigger.actor, request.inputs.start.bots
    if event.remark and (is_named(actor, allowed) if request.trigger.actor_is_bot else actor in writers):
        remark = sanitize(event.remark, "review", limit=LONGEST_THREAD)
        parts.append(("", quote(sanitize_line(f"{actor}, about all of it", "review"), remark, mark)))
    threads = reader.review_threads(follow_up.pull_request)
    for thread in (each for each in threads if not each.is_resolved):
        text = _thread_text(thread, writers, viewer, allowed)
        if text.text:
            parts.append((thread.id, quote(thread_heading(thread), text, mark)))
    heading = (
        f"Review of pull request #{follow_up.pull_request}, which is this work; each part begins with a line that "
        f"holds {mark}."
    )
    return _feedback(heading, parts)


def _thread_text(
    thread: ReviewThread, writers: Writers, viewer: Account, allowed_bots: tuple[str, ...]
) -> SanitizedText:
    """Return a thread as far as those who may start a run wrote it; empty if our own comment is the last one."""
    comments = [each for each in thread.comments if is_shown(each, writers, viewer, allowed_bots)]
    if not comments or comments[-1].author_id == viewer.id:
        return SanitizedText()
    return describe_thread(thread, comments)


def is_shown(comment: ThreadComment, writers: Writers, viewer: Account, allowed_bots: tuple[str, ...]) -> bool:
    """Return whether a comment is our own, or by somebody who may start a run."""
    if comment.author_id == viewer.id:
        return True
    return is_named(comment.author, allowed_bots) if comment.is_bot else comment.author in writers


def describe_thread(thread: ReviewThread, comments: Iterable[ThreadComment]) -> SanitizedText:
    """Return the lines that a thread is about, and these of its comments."""
    texts = []
    for comment in comments:
        author = sanitize_line(comment.author, "thread").text
        text = sanitize(comment.body.strip(), f"thread, comment by {author}", limit=LONGEST_THREAD)
        texts.append(replace(text, text=f"{author}: {text.text}"))
    discussion = join_texts(texts)
    if len(discussion.text) > LONGEST_THREAD or thread.total > len(thread.comments):
        discussion = replace(discussion, text=f"[earlier comments are left out]\n{discussion.text[-LONGEST_THREAD:]}")
    return join_texts((sanitize_plain(thread.hunk[-LONGEST_HUNK:], "thread, the lines that it is about"), discussion))


def thread_heading(thread: ReviewThread, *more: str) -> SanitizedText:
    """Return the id and the place of a thread in one line."""
    place = f"{thread.path}, line {thread.line}" if thread.line else thread.path
    return sanitize_line(", ".join((f"thread {thread.id}", place, *more)), "thread")


def _failed_checks(reader: GitHubReader, follow_up: FollowUp, run: int, notes: list[str]) -> Feedback:
    """Return the failed jobs of a workflow run, and add to the notes why logs could not be read."""
    mark = new_mark()
    heading = (
        f"Checks that failed on pull request #{follow_up.pull_request}, which is this work; each begins with a line "
        f"that holds {mark}, and ends with the last lines of its log."
    )
    jobs = reader.failed_jobs(run)

    def log_of(job: WorkflowJob) -> str:
        try:
            return _NO_LOG if notes else reader.job_log(job.id, last_bytes=LOG_BYTES)
        except InputError as error:
            # Anybody may list the jobs of a public repository, but not read their logs.
            notes.append(f"{error.message} {_ONLY_NAMES}")
            return _NO_LOG

    parts = [("", _job_text(job, log_of(job), mark)) for job in jobs[:MOST_JOBS]]
    return _feedback(heading, parts, left_out=len(jobs[MOST_JOBS:]))


def _job_text(job: WorkflowJob, log: str, mark: str) -> SanitizedText:
    steps = f", failed in: {', '.join(job.failed_steps)}" if job.failed_steps else ""
    text = sanitize_plain(_TIMESTAMP.sub("", ANSI.sub("", log)), "log of a failed job")
    return quote(sanitize_line(f"job {job.name}{steps}", "name of a failed job"), text, mark)


def _feedback(heading: str, parts: list[tuple[str, SanitizedText]], *, left_out: int = 0) -> Feedback:
    """Join as many parts as fit below the heading. Each part comes with the id of its thread, or an empty string."""
    sizes = itertools.accumulate(len(text.text) for _, text in parts)
    fitting = parts[: sum(size <= LONGEST_FEEDBACK for size in sizes)]
    left_out += len(parts) - len(fitting)
    if not fitting:
        return SanitizedText(), ()
    more = f"[{left_out} more are left out]" if left_out else ""
    texts = (SanitizedText(text=heading), *(text for _, text in fitting), SanitizedText(text=more))
    return join_texts(texts), tuple(thread for thread, _ in fitting if thread)
