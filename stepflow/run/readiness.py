"""Checks that the checkout, this machine and GitHub's server will let a run finish. Runs perform them before they ask
the model, and a preflight performs the same ones."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePath

from stepflow.boundary.git import check_server
from stepflow.boundary.github_failures import UNARCHIVE
from stepflow.boundary.settings import branch_of, branch_problem
from stepflow.definition.agent import find_effort_misfit
from stepflow.definition.builtin import PREFIX, READ_ONLY
from stepflow.definition.folder import find_agents
from stepflow.definition.parsing import YamlFault, read_yaml
from stepflow.domain.agent.agent_settings import McpServer
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.connection import address_problem, printable_address
from stepflow.domain.json import JsonValue, value_at
from stepflow.domain.secrets import SHORTEST_SECRET
from stepflow.domain.words import Provider
from stepflow.errors import BoundaryError, InputError
from stepflow.model.models import is_priced
from stepflow.run.request import RunRequest, git_remote
from stepflow.run.resume import OWN_FILES
from stepflow.run.start.inputs import BoundaryMode, Inputs
from stepflow.run.start.policy import refusal
from stepflow.run.start.server import check_addresses
from stepflow.sandbox.copying import describe_too_large
from stepflow.sandbox.environment import check_packages, check_pass_env
from stepflow.sandbox.host_git import Setting, ask_git, check_branch, head_commit, local_branch, read_settings
from stepflow.sandbox.workspace import GIT

Check = Callable[[RunRequest, AgentDefinition], tuple[str, ...] | None]

#: Free bytes that a run needs at its start, for journal, snapshots and commits.
LEAST_SPACE = 64 * 1024 * 1024
#: Values that git reads as true.
ON = (None, "true", "yes", "on", "1")


def check_readiness(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...]:
    """Run all checks and return their warnings. Raises the first `StepflowError`."""
    return tuple(warning for check in CHECKS.values() for warning in check(request, agent) or ())


def _check_repository(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...] | None:
    """Commits need a repository with its `.git`, and a commit to start from."""
    # A rehearsal's copy already exists, with a repository even if the checkout has none.
    root = request.root if os.path.lexists(request.root / GIT) else request.checkout
    if not request.at_terminal and not agent.github.pushes:
        return None
    if not os.path.lexists(root / GIT):
        raise InputError(
            f"{root} is not in a git repository: neither it nor a folder above it in the workspace has a `.git`. The "
            "agent's commits could not be pushed.",
            hint="Check the repository out before this step, with `actions/checkout`; in a container that needs git "
            "in the image. At a terminal, run `git init` and commit what is there.",
        )
    try:
        ask_git(root, "rev-parse", "--absolute-git-dir")
    except BoundaryError as exc:
        raise InputError(
            f"The repository {root} cannot be used: {exc.message}",
            hint="Fix what git complains about, or check the repository out again.",
        ) from exc
    if not head_commit(root):
        raise InputError(
            f"The repository {root} cannot be used: it has no commit to start from.",
            hint="Commit what is there, and push it.",
        )
    return ()


def _check_local_branch(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...] | None:
    """Check the branch as which a run at a terminal brings its commits back; with --in-place it may be needed, too."""
    if not request.at_terminal or not os.path.lexists(request.checkout / GIT):
        return None
    check_branch(request.checkout, local_branch(agent.name, request.trigger.issue_number, request.run_id))
    return ()


def _check_branch_name(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...] | None:
    """Check the branch's name. Without this, an invalid one would only be found at the end of the run, when the pull
    request is planned."""
    if request.follow_up or not agent.github.pushes:
        return None
    if problem := branch_problem(run_branch(request, agent), request.base_branch(agent)):
        raise InputError(problem)
    return ()


def run_branch(request: RunRequest, agent: AgentDefinition) -> str:
    """Return the branch that the run works on and pushes."""
    number = request.trigger.issue_number
    return branch_of(agent, f"issue-{number}" if number else f"run-{request.run_id}")


def _check_filters(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...] | None:
    """Check the git filters: git cannot add or check out a file that goes through a required filter whose program is
    missing."""
    root = request.checkout
    if not agent.github.pushes:
        return None
    filters = [each for each in read_settings(root) if each.section == "filter"]
    on = [each for each in filters if each.name == "required" and (each.value and each.value.lower()) in ON]
    required = {each.subsection for each in on}
    path = os.pathsep.join(map(str, request.programs or request.program_path))
    missing = {
        each.subsection: program
        for each in filters
        if each.subsection in required and (program := _program(each)) and not shutil.which(program, path=path)
    }
    warnings = []
    for name in filter(None, missing):
        if not ask_git(root, "ls-files", "--", f":(attr:filter={name})", may_fail=True):
            continue
        message = (
            f"Files of this repository go through the git filter `{name}`, which is required, and its program "
            f"`{missing[name]}` is not installed where the tools run: git could neither add nor check them out."
        )
        if not (request.inputs.apt_packages or request.inputs.setup):
            hint = "Install it with the input `apt-packages` or `setup`, or check out without it."
            raise InputError(message, hint=hint)
        warnings.append(f"{message} Let `setup` or `apt-packages` install it.")
    return tuple(warnings)


def _program(setting: Setting) -> str:
    """Return the program that git starts for a filter; empty for other settings, or if only a shell can tell."""
    if setting.name not in ("clean", "smudge", "process"):
        return ""
    try:
        return next((word for word in shlex.split(setting.value or "") if "=" not in word), "")
    except ValueError:
        return ""


def _check_space(request: RunRequest, _agent: AgentDefinition) -> tuple[str, ...]:
    """Check the free space: a full disk would end the run in the middle."""
    folder = request.folder.resolve()
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    for place in dict.fromkeys((existing, Path(tempfile.gettempdir()))):
        try:
            free = shutil.disk_usage(place).free
        except OSError:
            continue
        if free < LEAST_SPACE:
            raise InputError(
                f"Only {free // 1024**2} MiB are free on the disk of {place}, and a run needs "
                f"{LEAST_SPACE // 1024**2} MiB at least.",
                hint="Free space there, or name another folder in run-folder or TMPDIR.",
            )
    return ()


def check_archived(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...] | None:
    """Nobody can write to an archived repository."""
    writes = request.inputs.boundary is BoundaryMode.GITHUB and agent.github.enabled
    if not writes or request.trigger.archived is None:
        return None
    if request.trigger.archived:
        raise InputError(
            f"The repository {request.repository} is archived, so nothing can be written to it.",
            hint=UNARCHIVE,
        )
    return ()


def check_issue(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...] | None:
    """Check the issue: only people with write access can comment on a locked issue, and the job's token is not one of
    them."""
    number, comments = request.trigger.issue_number, agent.github.comments
    if request.inputs.boundary is not BoundaryMode.GITHUB or not comments or request.trigger.locked is None:
        return None
    if request.trigger.locked:
        raise InputError(
            f"Issue #{number} is locked, so GitHub accepts no comment from the run.",
            hint="Unlock the conversation on the issue's page, then start the agent again.",
        )
    return ()


def _check_ci_workflow(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...] | None:
    """Check the workflow to start: GitHub starts one only where it exists, can be dispatched, and asks for nothing. The
    default branch counts for that; it usually is what is checked out."""
    name = request.inputs.ci_workflow
    if name is None:
        return None
    if not agent.github.pushes:
        return ("`ci-workflow` has no effect, because this agent pushes nothing.",)
    file = f".github/workflows/{name}"
    try:
        _, workflow = read_yaml((request.checkout / file).read_text(encoding="utf-8"))
    except OSError as exc:
        raise InputError(
            f"`ci-workflow` names {name}, but the checkout has no file {file}.",
            hint="Name a workflow of this repository that its default branch has.",
        ) from exc
    except (YamlFault, UnicodeDecodeError) as exc:
        raise InputError(f"{file}, which `ci-workflow` names, is not valid YAML: {exc}", hint="Correct it.") from exc
    # YAML 1.1 reads the key `on` as true.
    triggers = workflow.get("on", workflow.get(True)) if isinstance(workflow, dict) else None
    if "workflow_dispatch" not in (triggers if isinstance(triggers, dict | list) else [triggers]):
        raise InputError(
            f"{file} cannot be started on the branch of a run: it has no trigger `workflow_dispatch`.",
            hint="Add `workflow_dispatch:` below `on:`, on the default branch, or leave `ci-workflow` out.",
        )
    inputs = value_at(triggers, "workflow_dispatch.inputs") if isinstance(triggers, dict) else None
    settings = inputs if isinstance(inputs, dict) else {}
    required = [key for key, rules in settings.items() if _is_required(rules)]
    if required:
        raise InputError(
            f"{file} cannot be started on the branch of a run: it requires the input `{required[0]}`.",
            hint="Give the input a default, or leave `ci-workflow` out.",
        )
    return ()


def _is_required(rules: JsonValue) -> bool:
    """Return whether a workflow cannot be dispatched without this input."""
    return isinstance(rules, dict) and rules.get("required") is True and rules.get("default") in (None, "")


def _check_server(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...] | None:
    """Check the server: it must have the commit from which the run starts, no branch in the way of the run's own, and
    accept pushes if `read-token` is the token that pushes. A follow-up has read its commit and branch from the
    server."""
    token, follow_up = request.inputs.read_token, request.follow_up
    commit, branch = (
        (follow_up.head, follow_up.branch) if follow_up else (request.base_commit, run_branch(request, agent))
    )
    asks = request.inputs.boundary is BoundaryMode.GITHUB and agent.github.pushes
    if not asks or token is None or not request.repository or not commit:
        return None
    return check_server(
        git_remote(request, token.get_secret_value()),
        pushes=request.reads_with_writing_token,
        commit=commit,
        branch=branch,
        base=request.base_branch(agent),
        is_there=follow_up is not None,
    )


#: In the order in which they run, by the name of their row in the preflight.
def _check_ignored_files(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...] | None:
    """Name ignored files that are too large to be copied unasked."""
    too_large = request.copied_files.too_large
    return (describe_too_large(too_large),) if too_large else ()


CHECKS: Mapping[str, Check] = {
    "repository": _check_repository,
    "branch name": _check_branch_name,
    "local branch": _check_local_branch,
    "git filters": _check_filters,
    "disk": _check_space,
    "ignored files": _check_ignored_files,
    "archive": check_archived,
    "issue": check_issue,
    "ci-workflow": _check_ci_workflow,
    "git server": _check_server,
}


def check_inputs(request: RunRequest, agent: AgentDefinition) -> None:
    """Check that the inputs fit the agent."""
    check_boundary(request)
    check_budget(agent, request.inputs)
    check_effort(agent, request.inputs)
    check_mcp_secrets(agent.mcp_servers, request.inputs.mcp_secrets)


def requested_agent(request: RunRequest) -> str:
    """Return the agent's name. It starts with `builtin/` if the input `agent` names that shipped agent, unless the
    repository has its own agent of the same name."""
    name, name_in_input = request.trigger.agent, request.inputs.agent or ""
    local_name = name.removeprefix(PREFIX)
    if name_in_input != f"{PREFIX}{local_name}":
        return name
    return local_name if local_name in find_agents(request.definition_root) else name_in_input


AGENT_NAME = re.compile(r"[a-z][a-z0-9-]*")


def check_request(request: RunRequest) -> None:
    """Check everything that can be checked before the agent is loaded."""
    check_agent_name(request)
    name = requested_agent(request)
    # A pull request that is reviewed has a change.
    if request.inputs.prove and name in {f"{PREFIX}{each}" for each in READ_ONLY} and not request.reviewed:
        raise InputError(f"{name} changes no file, so there is nothing to prove.", hint="Leave prove out.")
    folder, record = request.folder.resolve(), request.inputs.record
    # The tools must not be able to write to it, and no validator should find it.
    if any(folder.is_relative_to(root.resolve()) for root in (request.root, request.source or request.root)):
        raise InputError(
            f"The run folder {folder} lies inside the repository, where the tools could change it.",
            hint="Name a folder outside the repository in run-folder, for example below ${{ runner.temp }}.",
        )
    path = PurePath(record) if record is not None else None
    if path and (path.is_absolute() or ".." in path.parts or not path.parts or path.parts[0] in OWN_FILES):
        raise InputError(
            f"record: {record!r} cannot be used for a scenario in the run folder.",
            hint="Give a relative path without `..` that the run does not use itself, such as `recorded.yaml`.",
        )
    check_addresses(request.inputs)
    check_collector(request.inputs)
    # Reading the property checks the proxy and the certificates.
    request.proxy_config  # noqa: B018
    _check_pass_env(request)
    check_packages(request.inputs.apt_packages, path=request.program_path)


def check_policy(request: RunRequest) -> None:
    """Refuse a run that the policy forbids whatever its agent says: read before anything else."""
    inputs, policy = request.inputs, request.inputs.policy
    if not policy:
        return
    if reason := policy.objection_to(request.trigger.actor) or policy.objection_to_agent(requested_agent(request)):
        raise refusal(reason)
    writes, asks = inputs.boundary is BoundaryMode.GITHUB, inputs.model.provider is not Provider.SCRIPTED
    sums = request.reads_with_writing_token if writes else inputs.read_token is not None
    if policy.sums_runs and asks and not sums:
        raise refusal(
            "the policy has a budget for several runs, and what the others have cost cannot be summed; give the token "
            "of `github-token` as `read-token` too"
        )


def check_boundary(request: RunRequest) -> None:
    """Check what a run that writes needs: a token, a repository and an actor; checking the actor's permission needs the
    actor."""
    inputs = request.inputs
    writes = inputs.boundary is BoundaryMode.GITHUB
    if writes and inputs.github_token is None:
        raise InputError(
            "The input github-token is empty.",
            hint="Pass `github-token: ${{ github.token }}`, or set `boundary: dry-run` to plan without writing.",
        )
    if writes and not request.repository:
        raise InputError(
            "It is not known which repository to write to.",
            hint="Set GITHUB_REPOSITORY to owner/name, or set `boundary: dry-run` to plan without writing.",
        )
    if (writes or inputs.read_token is not None) and not request.trigger.actor:
        raise InputError(
            "It is not known who started this run, and that person needs write access.",
            hint="Set GITHUB_ACTOR to your GitHub login, or set `boundary: dry-run` and leave out read-token.",
        )


def check_budget(agent: AgentDefinition, inputs: Inputs) -> None:
    """Check the budget: one in dollars needs models with known prices. Tokens may replace it, unless a policy sets
    it."""
    in_policy = inputs.policy is not None and inputs.policy.limits_dollars
    if inputs.model.provider is Provider.SCRIPTED or (inputs.limits.tokens is not None and not in_policy):
        return
    models = {rung.model for ladder in agent.ladders(inputs.model.name).values() for rung in ladder.rungs}
    if unpriced := sorted(model for model in models if not is_priced(model, inputs.model.provider)):
        raise InputError(
            f"The price of the model {', '.join(unpriced)} is not known, so limits.usd cannot be enforced.",
            hint="Choose a model with a known price."
            if in_policy
            else "Set limits.tokens as well, or choose a model with a known price.",
        )


def check_effort(agent: AgentDefinition, inputs: Inputs) -> None:
    """Check that the model in the inputs supports the efforts that the agent sets for its own models."""
    for step_id in agent.ladders(None) if inputs.model.name else ():
        step = agent.steps[step_id]
        if step.models or not (misfit := find_effort_misfit(inputs.model.name or "", step.effort)):
            continue
        reason, _ = misfit
        raise InputError(
            f'The input model cannot be used: {reason}, which the agent sets for step "{step_id}".',
            hint="Choose another model for this run, or let the agent set the effort after its own models, such as "
            '"models": ["opus:high"].',
        )


def check_agent_name(request: RunRequest) -> None:
    """Check that a label or a comment names an agent, not a path."""
    name = requested_agent(request)
    name_in_input = request.inputs.agent or ""
    is_builtin = name.startswith(PREFIX) and name == name_in_input
    is_own = not name_in_input.startswith(PREFIX) or name_in_input == f"{PREFIX}{name}"
    for key, value in (("checks", request.inputs.checks), ("prove", request.inputs.prove)):
        if value and is_own:
            raise InputError(
                f"The input {key} is for shipped agents, and {name[:100]} is defined in this repository.",
                hint=f"Leave {key} out: the validators in .agent/{name[:100]}/steps_registry.json apply.",
            )
    if not is_builtin and not AGENT_NAME.fullmatch(name):
        known = ", ".join(find_agents(request.definition_root)) or "none"
        raise InputError(
            f'"{name[:100]}" is not an agent name (SF101).',
            hint=f"A name has lower-case letters, digits and dashes. The agents of this repository: {known}.",
            code="SF101",
        )


def _check_pass_env(request: RunRequest) -> None:
    names, environment = request.inputs.pass_env, request.environment
    check_pass_env({name: environment.get(name, "") for name in names})
    secrets = [secret.strip() for secret in request.own_secrets() if len(secret.strip()) >= SHORTEST_SECRET]
    for name in names:
        value = environment.get(name, "")
        if name in request.withheld or any(secret in value for secret in secrets):
            raise InputError(
                f"pass-env: `{name}` contains a secret of this run, which no tool may see.",
                hint="Remove it from pass-env; tools and validators must do without that secret.",
            )


def check_collector(inputs: Inputs) -> None:
    """Raise `InputError` if the telemetry cannot be sent to the collector's address. Plain http will do for what is
    no secret: a collector next to the job has no certificate."""
    endpoint = inputs.telemetry.endpoint
    if not endpoint:
        return
    is_private = inputs.telemetry.headers or inputs.telemetry.content
    address = endpoint if is_private else re.sub("^http:", "https:", endpoint)
    if problem := address_problem(address, secret="the telemetry"):  # noqa: S106 - what it is called
        shown = printable_address(endpoint)
        raise InputError(
            f"telemetry.endpoint: {shown!r} cannot be used: {problem}.",
            hint="Give an address with https://. One with http:// will do without headers and content.",
        )


def check_mcp_secrets(servers: tuple[McpServer, ...], secrets: Collection[str]) -> None:
    """Raise `InputError` if a server's header refers to a secret that is not in the inputs."""
    for server in servers:
        if missing := [name for name in server.secret_names if name not in secrets]:
            raise InputError(
                f'The MCP server "{server.name}" needs {", ".join(missing)}: the input mcp-secrets has no such value.',
                hint=f"Add `{missing[0]}: ${{{{ secrets.{missing[0]} }}}}` to that YAML map (on the command line: in "
                "STEPFLOW_MCP_SECRETS).",
            )
