"""The interface to the GitHub runner: its environment and files, the requested run, and the outputs."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import TextIO

from stepflow.definition import builtin
from stepflow.definition.folder import find_agents
from stepflow.domain.effect import EffectKind, EffectStatus, Receipt
from stepflow.domain.json import JsonObject
from stepflow.domain.proof import Proof
from stepflow.domain.reports.report import RunReport
from stepflow.domain.run import ANY_NAME
from stepflow.domain.secrets import SHORTEST_SECRET, Redactor, holds_login, login_of, logs_in
from stepflow.domain.text import cut
from stepflow.errors import InputError
from stepflow.report.diagnostic import annotation
from stepflow.report.safe_text import Command, Line, clean_line, json_line
from stepflow.run.request import RunRequest, agents_folder, chosen_folder, locate_repository
from stepflow.run.start.event import PullRequestPayload, read_event, read_event_file
from stepflow.run.start.input_maps import ProveInput
from stepflow.run.start.input_values import in_dashes
from stepflow.run.start.inputs import (
    NO_INPUTS,
    RECORDED,
    SECRET_INPUTS,
    Inputs,
    read_inputs,
    secret_values,
    suggest_input,
)
from stepflow.run.start.server import read_addresses
from stepflow.run.start.trigger import WRITERS_EVENTS, Skip, Trigger, find_trigger

PREFIX = "INPUT_"
_PULL_REQUEST = "pull_request"
_REPOSITORY = re.compile(r"(?!\.\.?/)[\w.-]+/(?!\.\.?\Z)[\w.-]+", re.ASCII)
#: Prefix of the addresses and tokens of the job's cache, artifacts and identity. Nothing that a run starts gets them.
SERVICES = "ACTIONS_"

#: Variables that the job's own programs would accept as a credential, in addition to logins to a cloud or to the
#: model's service. The inputs are removed by their prefix.
CREDENTIALS = ("GITHUB_TOKEN", "ACTIONS_RUNTIME_TOKEN", "GH_TOKEN", "STEPFLOW_READ_TOKEN")


@dataclass(frozen=True, kw_only=True)
class Runner:
    """What the runner passes to the action. Paths are as this process sees them. An empty value means that the runner
    did not set it."""

    inputs: Inputs
    #: About inputs that the action does not declare.
    warnings: tuple[str, ...]
    event_name: str
    event: JsonObject
    actor: str
    repository: str
    #: It stays the same when the repository is renamed; None if unknown.
    repository_id: int | None
    job_url: str
    run_id: str
    workspace: Path
    temp: Path
    debug: bool
    #: Without the inputs and without `withheld`.
    environment: Mapping[str, str]
    #: Variables that contain one of the `secrets`, or give access to one.
    withheld: frozenset[str]
    #: What the clients of model services may read.
    login: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)


def read_runner(environ: MutableMapping[str, str]) -> Runner:
    """Read everything once, and remove all secrets from `environ`."""
    secrets, login = secrets_in(environ), login_of(environ)
    given, warnings = _take_inputs(environ)
    addresses = read_addresses(environ, {})
    # Runners set more variables than documented: one of them repeats every input under its bare name.
    withheld = secret_variables(environ, secrets)
    for name in withheld:
        del environ[name]
    debug = environ.get("RUNNER_DEBUG") == "1"
    inputs = read_inputs({**given, **addresses, "record": RECORDED if debug else ""})
    return Runner(
        inputs=inputs,
        warnings=warnings,
        event_name=environ.get("GITHUB_EVENT_NAME", ""),
        event=read_event_file(environ.get("GITHUB_EVENT_PATH", ""), named_by="GITHUB_EVENT_PATH"),
        actor=environ.get("GITHUB_TRIGGERING_ACTOR") or environ.get("GITHUB_ACTOR", ""),
        repository=_repository(environ.get("GITHUB_REPOSITORY", "")),
        repository_id=int(number) if (number := environ.get("GITHUB_REPOSITORY_ID", "")).isdecimal() else None,
        job_url=_job_url(environ),
        run_id="-".join((environ.get("GITHUB_RUN_ID") or "local", environ.get("GITHUB_RUN_ATTEMPT") or "1")),
        workspace=Path(environ.get("GITHUB_WORKSPACE") or "."),
        temp=Path(environ.get("RUNNER_TEMP") or "/tmp"),  # noqa: S108 - only where no runner names a place
        debug=debug,
        environment=dict(environ),
        withheld=withheld,
        login=login,
        secrets=secrets,
    )


def secrets_in(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return every secret value: the inputs that are secrets, and the job's own credentials."""
    given = ((name, environ.get(f"{PREFIX}{name.upper()}", "")) for name in SECRET_INPUTS)
    inputs = (value for name, text in given for value in secret_values(name, text) if value)
    # A placeholder such as `test`, for a service that the job itself starts, is an ordinary word and not a secret.
    own = (name for name, value in environ.items() if holds_login(name) and len(value) >= SHORTEST_SECRET)
    return (*inputs, *(environ[name] for name in (*CREDENTIALS, *own) if environ.get(name)))


def secret_variables(environ: Mapping[str, str], secrets: tuple[str, ...]) -> frozenset[str]:
    """Return the variables that contain an input or a secret, or that give access to the job's own services or to a
    login."""
    return frozenset(
        name
        for name, value in environ.items()
        if name.startswith((PREFIX, SERVICES))
        or name in CREDENTIALS
        or logs_in(name)
        or any(value == secret or (len(secret) >= SHORTEST_SECRET and secret in value) for secret in secrets)
    )


def _take_inputs(environ: MutableMapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    # The runner writes an input's name in capitals and keeps its dashes.
    inputs = {name: environ.pop(name) for name in tuple(environ) if name.startswith(PREFIX)}
    given = {name.removeprefix(PREFIX).lower().replace(" ", "_"): value for name, value in inputs.items()}
    known = {in_dashes(name) for name in Inputs.model_fields} - NO_INPUTS
    unknown = sorted(given.keys() - known)
    return (
        {name: value for name, value in given.items() if name in known},
        tuple(f'The action has no input "{name}"{suggest_input(name)}; it is ignored.' for name in unknown),
    )


def _repository(name: str) -> str:
    """Return the repository's name, or raise `InputError` if it is invalid. It becomes part of addresses, so it must
    not change where they lead."""
    if name and not _REPOSITORY.fullmatch(name):
        raise InputError(
            "GITHUB_REPOSITORY names no repository.", hint="It must be owner/name, as GitHub's runner sets it."
        )
    return name


def _job_url(environ: Mapping[str, str]) -> str:
    parts = tuple(environ.get(name, "") for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID"))
    return "{}/{}/actions/runs/{}".format(*parts) if all(parts) else ""


def read_trigger(runner: Runner) -> Trigger | Skip:
    """Return the agent and issue that the event asks for."""
    shipped = (runner.inputs.agent or "").removeprefix(builtin.PREFIX)
    agents = (
        ()
        if ANY_NAME not in runner.inputs.start.labels
        else (*find_agents(agents_folder(*find_repository(runner))), shipped)
    )
    event = read_event(runner.event)
    return find_trigger(runner.event_name, event, runner.inputs, actor=runner.actor, agents=agents)


def read_prove_input(runner: Runner) -> ProveInput:
    """Return what to prove by. Raises `InputError` without it, and for an event on which the code of strangers would
    run in a job that has the repository's secrets."""
    if runner.event_name != _PULL_REQUEST and runner.event_name not in WRITERS_EVENTS:
        raise InputError(
            f"The mode prove does not run on the event {runner.event_name or '(none)'}.",
            hint="It runs code that anybody may have written, so let a job do it that has no secret: on pull_request.",
        )
    if runner.inputs.prove is None:
        raise InputError("The mode prove needs a command.", hint="Set for example `prove: pytest -q {tests}`.")
    return runner.inputs.prove


def read_pull_request(runner: Runner) -> PullRequestPayload | None:
    """Return the pull request whose commits the job is about; None on other events."""
    return read_event(runner.event).pull_request if runner.event_name == _PULL_REQUEST else None


def find_repository(runner: Runner) -> tuple[Path, Inputs]:
    """Return the root of the repository, and the inputs with the working directory relative to it. Raise `InputError`
    if the folder is invalid."""
    workspace = runner.workspace.resolve()
    root = (workspace / runner.inputs.working_directory).resolve()
    if not root.is_relative_to(workspace):
        raise InputError(
            f"The working directory {root} lies outside the workspace {workspace}.",
            hint="Give working-directory relative to the workspace, without leaving it.",
        )
    if not root.is_dir():
        raise InputError(
            f"The working directory {root} does not exist.",
            hint="Check out the repository first (actions/checkout), and check the input working-directory.",
        )
    return locate_repository(root, workspace, runner.inputs)


def make_request(runner: Runner, trigger: Trigger) -> RunRequest:
    """Return the request for the run of this job, with a run folder below the job's own."""
    run_id = f"{runner.run_id}-{token_hex(3)}"
    folder = chosen_folder(runner.inputs, runner.temp / "stepflow" / run_id)
    root, inputs = find_repository(runner)
    return RunRequest(
        run_id=run_id,
        inputs=inputs,
        trigger=trigger,
        root=root,
        folder=folder.resolve(),
        host_folder=_on_host(folder, runner),
        repository=runner.repository,
        repository_id=runner.repository_id or read_event(runner.event).repository.id,
        job_url=runner.job_url,
        environment=runner.environment,
        withheld=runner.withheld,
        credentials=runner.secrets,
        login=runner.login,
        runner_temp=runner.temp,
    )


def _on_host(folder: Path, runner: Runner) -> str:
    """Return the folder's path outside the container. The runner passes the host's path in an input."""
    host_temp = runner.inputs.host.removeprefix("host=")
    if not host_temp or not folder.is_relative_to(runner.temp):
        return str(folder)
    return str(Path(host_temp) / folder.relative_to(runner.temp))


#: Outputs that only some modes set.
OF_MODES = ("plan", "plan-issues", "plan-next", "gathered", "budget-left")

#: A skipped effect was already as planned, so it has a result too.
DONE = (EffectStatus.APPLIED, EffectStatus.SKIPPED)

#: A job's outputs may total 1 MiB. Longer text of the model is cut (in characters), and so is a longer structured
#: output (in bytes). The report contains everything.
TEXT_CAP = 4000
STRUCTURED_OUTPUT_CAP = 64 * 1024
_CUT = "…"


def outputs_of(report: RunReport) -> dict[str, str]:
    """Return every output as a string, in the order of action.yml. A missing value is empty, a missing number is 0, and
    a missing flag is false."""
    push = _find_applied(report, EffectKind.PUSH_BRANCH)
    pull = _find_applied(report, EffectKind.OPEN_PULL_REQUEST)
    comment = _find_applied(report, EffectKind.POST_COMMENT) or _find_applied(report, EffectKind.SUBMIT_REVIEW)
    follow_up = report.follow_up
    number, address = (follow_up.pull_request, follow_up.url) if follow_up else (None, "")
    number, address = (pull.number, pull.url) if pull else (number, address)
    folder, failure = report.host_run_folder or report.run_folder, report.failure_report or ""
    return {
        "outcome": report.outcome,
        "success": _flag(report.success),
        "reason": cut(report.reason, TEXT_CAP),
        "iterations": str(report.iterations),
        "validated": _flag(report.validated),
        "agent": report.agent,
        "issue": str(report.issue or ""),
        "final-step": report.final_step_id,
        "verdict": cut(report.verdict or "", TEXT_CAP),
        "branch": push.branch if push else report.kept_branch,
        "commit": push.commit if push else report.kept_commit,
        "pull-request": str(number or ""),
        "pull-request-url": address,
        # If the failure could not be reported on the issue, `failure_report` is a sentence instead of the comment's
        # URL.
        "comment-url": comment.url if comment else failure if failure.startswith("http") else "",
        "tokens-in": str(report.usage.tokens_in),
        "tokens-out": str(report.usage.output_tokens),
        "cost-usd": "" if report.cost_usd is None else f"{report.cost_usd:.6f}",
        "duration-seconds": f"{report.seconds:.1f}",
        "run-folder": folder,
        "report": f"{folder}/report.json" if folder else "",
        "statement": f"{folder}/{report.statement}" if report.statement else "",
        "structured-output": _structured_output(report),
        **dict.fromkeys(OF_MODES, ""),
        "proven": proven_output(report.proof),
    }


def proven_output(proof: Proof | None) -> str:
    """Return the output `proven`; empty if nothing was to be proven."""
    return _flag(proof.is_accepted) if proof else ""


def output_file_text(outputs: Mapping[str, str]) -> str:
    """Return the lines for GITHUB_OUTPUT. Each delimiter is random and does not occur in its value."""
    return "".join(_heredoc(name, value) for name, value in outputs.items())


def _heredoc(name: str, value: str) -> str:
    delimiter = f"end-{secrets.token_hex(16)}"
    while delimiter in value:
        delimiter = f"end-{secrets.token_hex(16)}"
    return f"{name}<<{delimiter}\n{value}\n{delimiter}\n"


def _find_applied(report: RunReport, kind: EffectKind) -> Receipt | None:
    done = (receipt for receipt in report.effects if receipt.kind is kind and receipt.status in DONE)
    return next(done, None)


def _structured_output(report: RunReport) -> str:
    text = "" if report.structured_output is None else json_line(report.structured_output)
    data = text.encode(errors="backslashreplace")
    if len(data) <= STRUCTURED_OUTPUT_CAP:
        return text
    return data[: STRUCTURED_OUTPUT_CAP - len(_CUT.encode())].decode(errors="ignore") + _CUT


def _flag(value: bool) -> str:
    return "true" if value else "false"


class Job:
    """Writes to the places where a job shows results, without any secret that it knows.

    The two files may be missing, as with a local runner. If one cannot be written, a warning is printed.
    """

    def __init__(self, environ: Mapping[str, str], stdout: TextIO) -> None:
        self._stdout = stdout
        self._redact = Redactor()
        self._outputs = environ.get("GITHUB_OUTPUT")
        self._summary = environ.get("GITHUB_STEP_SUMMARY")

    def say(self, *lines: Line | Command) -> None:
        """Print lines to the job log immediately."""
        self._print(map(self._redact, lines))

    def warn(self, *texts: str) -> None:
        """Show texts as warnings."""
        self.say(*(annotation("warning", text) for text in texts))

    def mask(self, secrets: Iterable[str]) -> None:
        """Mask these values here and in the runner's log. The runner masks line by line."""
        known = tuple(secrets)
        lines = (line.replace("%", "%25") for secret in known for line in secret.splitlines() if line.strip())
        self._print(f"::add-mask::{line}" for line in lines)
        self._redact = self._redact.knowing(*known)

    def write_outputs(self, outputs: Mapping[str, str]) -> None:
        """Set the action's outputs. Each is one line, because the workflow may print it."""
        redacted = {name: clean_line(self._redact(value)) for name, value in outputs.items()}
        self._append("GITHUB_OUTPUT", self._outputs, output_file_text(redacted))

    def write_summary(self, text: str) -> None:
        """Append text to the job summary."""
        self._append("GITHUB_STEP_SUMMARY", self._summary, self._redact(text).rstrip() + "\n")

    def _print(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._stdout.write(line + "\n")
        self._stdout.flush()

    def _append(self, name: str, path: str | None, text: str) -> None:
        if not path:
            return
        try:
            with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except OSError as exc:
            self.warn(f"{name} names {path}, which cannot be written: {exc.strerror}.")
