"""What was asked: the event that starts a run, who may start one, and the request that comes of it (action.md)."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stepflow.domain.run import Issue
from stepflow.domain.secrets import Redactor, login_files
from stepflow.domain.trigger_label import ANY_NAME, name_in
from stepflow.errors import InputError
from stepflow.run.proxies import ProxyConfig, proxy_passwords, read_proxy_config
from stepflow.sandbox.environment import SYSTEM_PATH
from stepflow.sandbox.restore import credentials_stripped

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from stepflow.domain.json import JsonObject, JsonValue
    from stepflow.run.inputs import Inputs
    from stepflow.sandbox.restore import CheckoutRestore

#: Who may start a run with a comment, or by labeling an issue of their own.
TRUSTED_ASSOCIATIONS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
#: Of these only an owner's always means write access: members and collaborators may have less.
OWNER = "OWNER"
#: Only somebody with write access can cause these events.
WRITERS_EVENTS = frozenset({"workflow_dispatch", "repository_dispatch", "schedule", "push"})
COMMAND = "/stepflow"


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class User(_Shape):
    """The parts of a user that matter here."""

    login: str = ""
    type: str = "User"


class _Label(_Shape):
    name: str = ""


class IssuePayload(_Shape):
    """The parts of an issue in an event."""

    number: int
    title: str = ""
    body: str | None = None
    user: User | None = None
    html_url: str = ""
    labels: tuple[_Label, ...] = ()
    author_association: str = "NONE"
    pull_request: dict[str, object] | None = None


class _Comment(_Shape):
    body: str = ""
    user: User | None = None
    author_association: str = "NONE"


class _Repository(_Shape):
    full_name: str = ""
    default_branch: str = ""
    private: bool | None = None


class EventPayload(_Shape):
    """The parts of an event's payload that a trigger reads."""

    action: str = ""
    label: _Label | None = None
    issue: IssuePayload | None = None
    comment: _Comment | None = None
    sender: User | None = None
    repository: _Repository = Field(default_factory=_Repository)
    inputs: dict[str, object] | None = None


@dataclass(frozen=True, kw_only=True)
class ApprovalReply:
    """What somebody says to a run that waits for approval: the `digest` that they approve, or None and why they do
    not."""

    digest: str | None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """A run that somebody asked for. `issue` is None when the event carries none; `issue_number` is then the input's.

    `label` is the label that started the run, if one did; the boundary takes it off at completion. `private` is None
    when the event does not say whether the repository is. `by_writer`: the event alone shows that the actor has write
    access. A `reply` is for a run that waits for one; which agent that is of its folder says.
    """

    agent: str
    actor: str
    actor_is_bot: bool
    issue: Issue | None = None
    issue_number: int | None = None
    label: str | None = None
    default_branch: str = ""
    private: bool | None = None
    by_writer: bool = False
    reply: ApprovalReply | None = None


@dataclass(frozen=True, kw_only=True)
class Skip:
    """The event does not ask for a run; the reason is one line for the log."""

    reason: str


def read_event_file(path: str, *, named_by: str) -> JsonObject:
    """The payload of an event, from the file that a variable or flag names; empty where it names none."""
    if not path:
        return {}
    try:
        event = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise InputError(
            f"The event file {path} cannot be read: {exc}.", hint=f"{named_by} must name a JSON file."
        ) from exc
    if not isinstance(event, dict):
        raise InputError(f"The event file {path} holds no JSON object.", hint=f"{named_by} must name an event.")
    return event


def read_event(payload: Mapping[str, JsonValue]) -> EventPayload:
    """The typed parts of an event's payload."""
    try:
        return EventPayload.model_validate(payload)
    except ValidationError as exc:
        first = exc.errors(include_input=False)[0]
        location = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"The event's payload is not what GitHub sends: {location}: {first['msg']}.",
            hint="Check the file that GITHUB_EVENT_PATH (or --event) names.",
        ) from None


def find_trigger(
    event_name: str, event: EventPayload, inputs: Inputs, *, actor: str = "", agents: tuple[str, ...] = ()
) -> Trigger | Skip:
    """The run that this event asks for. `actor` is who started a workflow whose event names no sender; for a
    label that is the bare name of an agent, these are the `agents`."""
    sender = event.sender or User(login=actor, type="Bot" if actor.endswith("[bot]") else "User")
    if sender.type == "Bot" and not _is_named(sender.login, inputs.allow_bots):
        return Skip(reason=f"{sender.login} is a bot that the input allow-bots does not name")
    match event_name, event.action:
        case "issues", "labeled":
            return _labeled(event, inputs, sender, agents)
        case "issue_comment", "created":
            return _commented(event, sender)
        case "issues" | "issue_comment", action:
            return Skip(reason=f"the event {event_name}.{action} starts no agent")
        case _:
            if not inputs.agent:
                return Skip(reason=f"the event {event_name} names no agent and the input agent is empty")
            trigger = _trigger(inputs.agent, event, sender, by_writer=event_name in WRITERS_EVENTS)
            return replace(trigger, issue_number=inputs.issue or _asked_issue(event))


def _is_named(login: str, names: tuple[str, ...]) -> bool:
    return login.removesuffix("[bot]") in {name.removesuffix("[bot]") for name in names}


def _labeled(event: EventPayload, inputs: Inputs, sender: User, agents: tuple[str, ...]) -> Trigger | Skip:
    issue, label = event.issue, event.label.name if event.label else ""
    if issue is None:
        raise InputError("The labeled event carries no issue.", hint="Check the file that GITHUB_EVENT_PATH names.")
    fitting = [pattern for pattern in inputs.trigger_labels if name_in(label, pattern) is not None]
    if not fitting:
        return Skip(reason=f'the label "{label}" starts no agent; trigger-labels: {", ".join(inputs.trigger_labels)}')
    if fitting == [ANY_NAME] and label not in agents:
        return Skip(reason=f'the label "{label}" is no agent\'s name')
    agent = next(filter(None, (name_in(label, pattern) for pattern in fitting)), inputs.agent)
    if not agent:
        return Skip(reason=f'the label "{label}" names no agent and the input agent is empty')
    own_issue = issue.user is not None and issue.user.login == sender.login
    if own_issue and issue.author_association not in TRUSTED_ASSOCIATIONS:
        return Skip(reason=_untrusted(sender, issue.author_association, "label an issue of their own"))
    by_owner = own_issue and issue.author_association == OWNER
    return _trigger(agent, event, sender, issue, label=label, by_writer=by_owner)


def _commented(event: EventPayload, sender: User) -> Trigger | Skip:
    if event.issue is None or event.comment is None:
        raise InputError("The comment event carries no comment.", hint="Check the file that GITHUB_EVENT_PATH names.")
    if event.issue.pull_request is not None:
        return Skip(reason="the comment is on a pull request; agents run on issues")
    first_line = event.comment.body.strip().splitlines()[:1]
    words = first_line[0].split() if first_line else []
    reply = _reply(words)
    if reply is None and (words[:2] != [COMMAND, "run"] or len(words) != 3):
        commands = f'"{COMMAND} run <agent>", "{COMMAND} approve <digest>" or "{COMMAND} reject"'
        return Skip(reason=f"the comment does not begin with {commands}")
    if reply and sender.type == "Bot":
        return Skip(reason=f"{sender.login} is a bot, and only people approve")
    if event.comment.author_association not in TRUSTED_ASSOCIATIONS:
        return Skip(reason=_untrusted(sender, event.comment.author_association, "start an agent by a comment"))
    by_owner = event.comment.author_association == OWNER
    trigger = _trigger("" if reply else words[2], event, sender, event.issue, by_writer=by_owner)
    return replace(trigger, reply=reply)


def _reply(words: list[str]) -> ApprovalReply | None:
    """What a comment's first line says to a run that waits for approval."""
    match words:
        case [command, "approve", digest] if command == COMMAND:
            return ApprovalReply(digest=digest)
        case [command, "reject", *why] if command == COMMAND:
            return ApprovalReply(digest=None, reason=" ".join(why))
        case _:
            return None


def _asked_issue(event: EventPayload) -> int | None:
    """The dispatch form's own `issue`, so that a workflow need not repeat it as an input of the action."""
    text = str((event.inputs or {}).get("issue") or "")
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else None


def _trigger(
    agent: str,
    event: EventPayload,
    sender: User,
    issue: IssuePayload | None = None,
    *,
    label: str | None = None,
    by_writer: bool,
) -> Trigger:
    return Trigger(
        agent=agent,
        actor=sender.login,
        actor_is_bot=sender.type == "Bot",
        issue=issue_of(issue) if issue else None,
        issue_number=issue.number if issue else None,
        label=label,
        default_branch=event.repository.default_branch,
        private=event.repository.private,
        by_writer=by_writer,
    )


def issue_of(payload: IssuePayload) -> Issue:
    """The issue as the payload carries it."""
    return Issue(
        number=payload.number,
        title=payload.title,
        body=payload.body or "",
        author=payload.user.login if payload.user else "",
        url=payload.html_url,
        labels=tuple(label.name for label in payload.labels),
    )


def _untrusted(sender: User, association: str, what: str) -> str:
    trusted = ", ".join(sorted(TRUSTED_ASSOCIATIONS))
    return f"{sender.login} ({association}) may not {what}; that takes {trusted}"


#: Where the job's other steps and the tools write: folders, files of the runner in folders of its own, where it mounts
#: them into a container, and what is made of a process's own variables.
_LENT_FOLDERS = ("GITHUB_WORKSPACE", "RUNNER_TEMP")
_LENT_FILES = ("GITHUB_EVENT_PATH", "GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STEP_SUMMARY")
_LENT = ("/github", "/proc", "/sys", "/dev")


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """One run. `root` is the repository's root, `folder` the run folder on this machine and `host_folder` the same
    place as the workflow's next step sees it; `repository` is `owner/name` and `job_url` leads to the job,
    both empty when unknown. Of the `environment` the input `pass-env` may name variables; those `withheld` were taken
    out of it because they hold secrets. `credentials` are the secrets that are no input: the job's own, and those that
    the checkout left behind. `login` is what the services of models may read of the job's variables. `runner_temp` is
    None on a person's own machine. `program_path` is where the system's own programs are looked for, and
    `programs` are the folders in which tools find theirs, None for the fixed ones. `source` is the
    checkout that `root` is a copy of, None when the run works in the checkout itself; a run with `demand_clean` does
    that only when no file there is uncommitted. With `approvals_given` no step waits for approval."""

    run_id: str
    inputs: Inputs
    trigger: Trigger
    root: Path
    folder: Path
    host_folder: str = ""
    repository: str = ""
    job_url: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    withheld: frozenset[str] = frozenset()
    credentials: tuple[str, ...] = field(default=(), repr=False)
    login: Mapping[str, str] = field(default_factory=dict, repr=False)
    runner_temp: Path | None = None
    program_path: tuple[str, ...] = SYSTEM_PATH
    programs: tuple[Path, ...] | None = None
    source: Path | None = None
    demand_clean: bool = False
    approvals_given: bool = False

    @property
    def definition_root(self) -> Path:
        """Where agents and scenarios are read: in the checkout itself, as they stand there."""
        return self.source or self.root

    @property
    def restore_folder(self) -> Path:
        """Where it is written down what this run must give back."""
        return restore_folder(self.root, self.runner_temp, self.environment)

    @property
    def login_files(self) -> tuple[Path, ...]:
        """The files with credentials that steps before left in the checkout, relative to it."""
        return login_files_in(self.root, self.login)

    def without_credentials(self, checkout: Path | None = None) -> AbstractContextManager[CheckoutRestore]:
        """A context in which the checkout, or this copy of it, has no file with credentials."""
        return credentials_stripped(
            checkout or self.root, self.runner_temp, self.login_files, journals=self.restore_folder
        )

    def secrets(self) -> tuple[str, ...]:
        """Every value that nothing of this run may hold."""
        return (*self.own_secrets(), *proxy_passwords(self.environment))

    def own_secrets(self) -> tuple[str, ...]:
        """The same but for passwords of proxies, which the workflow's author may lend to tools."""
        return (*self.inputs.secrets(), *self.credentials)

    @cached_property
    def proxy_config(self) -> ProxyConfig:
        """How this run's own calls leave the machine. Raises `InputError` for what cannot be used."""
        return proxy_config_of(self.inputs, self.environment, self.root)

    @cached_property
    def redactor(self) -> Redactor:
        """The one redactor of this run, for every sink."""
        return Redactor(self.secrets())


def proxy_config_of(inputs: Inputs, environment: Mapping[str, str], root: Path) -> ProxyConfig:
    """How a job's own calls leave the machine. Raises `InputError` for what cannot be used."""
    folders = (environment.get(name) for name in _LENT_FOLDERS)
    files = (environment.get(name) for name in _LENT_FILES)
    lent = (*(Path(path) for path in (*folders, *_LENT) if path), *(Path(path).parent for path in files if path))
    return read_proxy_config(environment, inputs.ca_certificates or "", lent=(root, *lent))


def restore_folder(root: Path, runner_temp: Path | None, environment: Mapping[str, str]) -> Path:
    """Where runs in this checkout write down what they must give back: in the runner's folder, else where a person's
    programs keep their state."""
    if runner_temp:
        return runner_temp / "stepflow-restore"
    given, home = environment.get("XDG_STATE_HOME", ""), environment.get("HOME", "")
    folder = (Path(given) if Path(given).is_absolute() else Path(home, ".local/state")) / "stepflow/restore"
    if folder.is_absolute() and not folder.is_relative_to(root) and (given or os.access(home, os.W_OK)):
        return folder
    # The tools must not reach it, and not everybody has a home.
    return Path(tempfile.gettempdir()) / f"stepflow-restore-{os.geteuid()}"


def login_files_in(root: Path, login: Mapping[str, str]) -> tuple[Path, ...]:
    """Of the files that log in, those in the checkout, relative to it."""
    checkout = root.resolve()
    files = (Path(checkout, name).resolve() for name in login_files(login))
    return tuple(dict.fromkeys(path.relative_to(checkout) for path in files if path.is_relative_to(checkout)))
