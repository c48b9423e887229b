"""The definitions that an eval compares, and one trial: the run of a definition on a case, in a checkout that knows
nothing later than the case's commit, and the hidden checks on its result."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from stepflow.definition.folder import AGENTS
from stepflow.domain.activity import activity
from stepflow.domain.checkout import CommandResult
from stepflow.domain.flow import fold
from stepflow.domain.proof import TrialLimits
from stepflow.domain.reports.evaluation import EvalTrial, Variant
from stepflow.domain.reports.report import RunReport
from stepflow.domain.text import telling_line
from stepflow.domain.words import Outcome, Provider
from stepflow.errors import BoundaryError, DefinitionError, InputError
from stepflow.journal import iter_journal
from stepflow.modes.eval.cases import EVALS, EvalCase, NamedCase
from stepflow.modes.rehearse import OF_GITHUB
from stepflow.report.collect import ReportFacts, collect_report
from stepflow.run.clock import Cancellation
from stepflow.run.execute import drive_run
from stepflow.run.prepare import clock_for, load_requested, prepare_run
from stepflow.run.proof import Trials, fill_command, in_shell
from stepflow.run.readiness import requested_agent
from stepflow.run.recorded import JOURNAL
from stepflow.run.request import RunRequest
from stepflow.run.resume import OVER, look_into
from stepflow.run.start.inputs import BoundaryMode
from stepflow.run.start.trigger import Trigger
from stepflow.run.workspace import bundle_of, open_workspace
from stepflow.sandbox.change import ChangeRepository
from stepflow.sandbox.host_git import ask_git
from stepflow.sandbox.workspace import GIT, temporary_folder, write_repository

#: Cases, which the model must not see, in any commit.
_CASE_FILES = re.compile(rf"(?:.*/)?{re.escape(AGENTS)}/[^/]+/{EVALS}/.*", re.DOTALL)
LINE_SHOWN = 200


@dataclass(frozen=True, kw_only=True)
class OpenedCase:
    """A case whose base commit is checked out. `request` is for that checkout, which has one commit and no history.
    `agents` is the folder with the agents in it."""

    name: str
    case: EvalCase
    request: RunRequest
    agents: Path
    repository: ChangeRepository
    #: The tree of the base commit without any cases.
    tree: str

    def check_result(self, request: RunRequest, cancellation: Cancellation) -> str:
        """Run the hidden checks on the result of a run. Returns why they fail; empty if they pass."""
        bundle = bundle_of(request)
        tree = self.repository.tree_of(self.repository.fetch(bundle)) if bundle else self.tree
        return self.check_tree(tree, cancellation)

    def check_tree(self, tree: str, cancellation: Cancellation) -> str:
        """Run the hidden checks on a tree, with the hidden files in it. Returns why they fail; empty if they pass."""
        (failure,) = self.check_trees((tree,), cancellation)
        return failure

    def check_trees(self, trees: Sequence[str], cancellation: Cancellation) -> tuple[str, ...]:
        """Do the same for several trees, at the same time if there are several processors."""
        seconds = self.request.inputs.limits.minutes * 60
        checks = [fill_command(check, self.case.test_files) for check in self.case.checks]
        trials = Trials(
            repository=self.repository,
            request=self.request,
            commands=tuple(in_shell(check, seconds) for check in checks),
            cancellation=cancellation,
        )
        checked = [self.repository.with_texts(tree, self.case.tests) for tree in trees]
        return tuple(
            describe_failure(checks, results) for results in trials.run_all(checked, TrialLimits(each=seconds))
        )


def describe_failure(checks: Sequence[str], results: Sequence[CommandResult] | None) -> str:
    """Return the first check that failed, with the line that says most; empty if all passed."""
    if results is None:
        return "there was no time left for the hidden checks"
    failed = (pair for pair in zip(checks, results, strict=True) if pair[1].exit_code)
    return next((f"{check}: {_telling(result)}" for check, result in failed), "")


def _telling(result: CommandResult) -> str:
    return result.error or telling_line(result.output, LINE_SHOWN) or "no output"


def announce_copies(request: RunRequest, note: Callable[[str], None]) -> None:
    """Call `note` with how much each case and each run of one copies, if that takes long."""
    with temporary_folder(request.root) as folder:
        files = replace(request.copied_files, only_installed=True)
        if line := files.announce(folder.parent, "for each case and each trial"):
            note(line)


@contextmanager
def open_case(request: RunRequest, named: NamedCase, cancellation: Cancellation) -> Iterator[OpenedCase]:
    """Check the case's base commit out, into a folder that is removed at the end. Signals stay held. Raises
    `InputError` for a commit that cannot be had."""
    cancellation.hold()
    # What can reach every commit is kept apart from the checkout.
    with temporary_folder(request.root) as outside, temporary_folder(request.root) as place:
        with cancellation.obeyed():
            opened = _check_out(request, named, ChangeRepository(outside / "change", request.root), place)
        yield opened


def _check_out(request: RunRequest, named: NamedCase, repository: ChangeRepository, place: Path) -> OpenedCase:
    root, base = request.root, named.case.base
    commit = resolve_commit(root, base)
    if not commit:
        raise InputError(f'There is no commit "{base}" here.', hint="Fetch the whole history: `git fetch --unshallow`.")
    checkout, history = place / "checkout", place / "history"
    try:
        tree = repository.without_files(commit, lambda path: _CASE_FILES.fullmatch(path) is not None)
        history.mkdir()
        repository.copy_tree(tree, history)
        repository.check_out(tree, checkout)
        write_repository(history, checkout / GIT)
        with activity("copying what is installed"):
            request.copied_files.copy_dependencies(checkout)
    except BoundaryError as exc:
        raise InputError(f"The commit {base} cannot be checked out: {exc.message}", hint=exc.hint) from exc
    programs = request.programs and tuple(
        checkout / folder.relative_to(root) if folder.is_relative_to(root) else folder for folder in request.programs
    )
    return OpenedCase(
        name=named.name,
        case=named.case,
        request=replace(request, root=checkout, programs=programs, own_branch=True),
        agents=checkout / request.definition_root.relative_to(root) / AGENTS,
        repository=repository,
        tree=tree,
    )


def resolve_commit(root: Path, name: str) -> str:
    """Return the commit of a name; empty if there is none."""
    return ask_git(root, "rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}", may_fail=True)


def _replace_agents(opened: OpenedCase, agents: Path) -> None:
    """Put definitions in the place of the checkout's own, wherever these are, without any cases."""
    for folder in {opened.agents, opened.request.definition_root / AGENTS}:
        shutil.rmtree(folder, ignore_errors=True)

    def list_cases(folder: str, names: Sequence[str]) -> set[str]:
        where = Path(folder).relative_to(agents.parent)
        return {name for name in names if _CASE_FILES.fullmatch(f"{where}/{name}/")}

    shutil.copytree(agents, opened.agents, symlinks=True, ignore=list_cases)


def run_case(opened: OpenedCase, agents: Path, request: RunRequest, cancellation: Cancellation) -> RunReport:
    """Run one of the definitions in the folder `agents` on a case. A run that is in the run folder already continues.
    `request` comes from `trial_request`."""
    if ended := _read_ended(request.folder):
        return ended
    # A run reads the definition from its checkout, and works from the checkout's commit.
    _replace_agents(opened, agents)
    clock = clock_for(request.inputs)
    with activity(f"case {opened.name}"), open_workspace(request) as workspace:
        prepared = prepare_run(workspace.request, now=clock.now())
        workspace.fill(prepared, cancellation)
        return drive_run(prepared, clock=clock, cancellation=cancellation).report


def trial_request(request: RunRequest, opened: OpenedCase, agent: str, key: str, model: str) -> RunRequest:
    """Return the request for a run on the case, in a folder of the eval's own. It writes nothing to GitHub."""
    inputs, issue = request.inputs, opened.case.issue.to_issue()
    scenario = inputs.scenario or f"{AGENTS}/{agent}/scenarios/{opened.name}.yaml"
    own = {
        "agent": agent,
        "issue": issue.number,
        "boundary": BoundaryMode.DRY_RUN,
        "model": inputs.model.model_copy(update={"name": model or inputs.model.name}),
        "scenario": scenario if inputs.model.provider is Provider.SCRIPTED else None,
        # They are there already.
        "apt_packages": (),
        "resume": "auto",
        "limits": inputs.limits.of_one_run(),
        **dict.fromkeys(("github_token", *OF_GITHUB)),
    }
    return replace(
        opened.request,
        run_id=key,
        inputs=inputs.model_copy(update=own),
        trigger=Trigger(agent=agent, issue=issue, issue_number=issue.number, by_writer=True),
        folder=request.folder / "runs" / key,
        host_folder="",
        approvals_given=True,
    )


def _read_ended(folder: Path) -> RunReport | None:
    """Return the report of the run in the folder if nothing is left to do in it."""
    previous = look_into(folder)
    if previous is None or not previous.events or previous.ended is None or previous.ended.outcome not in OVER:
        return None
    return collect_report(iter_journal(folder / JOURNAL), facts=ReportFacts(run_folder=str(folder)))


def cost_so_far(folder: Path) -> float | None:
    """Return what the run in the folder has cost until it was stopped; None if that is not known."""
    previous = look_into(folder)
    if previous is None:
        return 0.0
    paid = fold(previous.events)
    return paid.cost_usd if previous.events and not paid.unpriced else None


def finish_trial(report: RunReport, failure: str, folder: str) -> EvalTrial:
    """Return the result of a trial. `failure` says which hidden check of a completed run failed."""
    is_completed = report.outcome is Outcome.COMPLETED
    return EvalTrial(
        success=is_completed and not failure,
        outcome=report.outcome,
        failure=failure if is_completed else report.explanation,
        cost_usd=report.cost_usd,
        seconds=report.seconds,
        iterations=report.iterations,
        tokens=report.usage.total,
        run_folder=folder,
    )


DIGEST = re.compile(r"[0-9a-f]{7,64}")
#: Commits that are looked through for a digest, newest first.
MOST_COMMITS = 300


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A variant, the folder that has its agent in it, and what a run of it may cost."""

    agents: Path
    variant: Variant
    run_usd: float


@contextmanager
def open_definitions(
    request: RunRequest, against: str, against_model: str, note: Callable[[str], None]
) -> Iterator[tuple[Definition, Definition]]:
    """Open candidate and baseline. `against` is a commit, a tag, a branch or a digest; if it is empty, the baseline is
    the last commit's definition, or with `against_model` the candidate's own.

    Raises `DefinitionError` for one that cannot run, and `InputError` if there is none or both are the same.
    """
    model = request.inputs.model.name or ""
    candidate = _read(request, "working tree")
    with temporary_folder(request.root) as folder:
        against = against or ("" if against_model else "HEAD")
        baseline = _find(request, against, candidate, folder, note) if against else candidate
        candidate = replace(candidate, variant=replace(candidate.variant, model=model))
        variant = replace(baseline.variant, model=against_model or model)
        if (variant.digest, variant.model) == (candidate.variant.digest, candidate.variant.model):
            raise InputError(
                f"There is nothing to compare: {variant.name} has the definition of the working tree "
                f"({variant.digest[:12]}).",
                hint="Change the definition, name an older one with --against, or another model with --against-model.",
            )
        yield candidate, replace(baseline, variant=variant)


def _find(
    request: RunRequest, against: str, candidate: Definition, folder: Path, note: Callable[[str], None]
) -> Definition:
    commit = resolve_commit(request.root, against)
    if commit:
        return _export(request, commit, against, folder)
    if DIGEST.fullmatch(against):
        if candidate.variant.digest.startswith(against):
            return candidate
        note(f"looking for the definition {against[:12]} in the history")
        agent_folder = request.definition_root / AGENTS / requested_agent(request)
        listed = ask_git(
            request.root, "log", "--all", f"--max-count={MOST_COMMITS}", "--format=%H", "--", str(agent_folder)
        )
        for each in listed.split():
            try:
                definition = _export(request, each, f"commit {each[:12]}", folder)
            except (InputError, DefinitionError):
                continue
            if definition.variant.digest.startswith(against):
                return definition
    raise InputError(
        f'"{against}" is no commit, and no definition of this agent in the last {MOST_COMMITS} commits that changed it '
        "has this digest.",
        hint="Name a commit, tag or branch, or fetch the whole history: `git fetch --unshallow --tags`.",
    )


def _export(request: RunRequest, commit: str, name: str, folder: Path) -> Definition:
    """Write the files of a commit, since a definition's digest includes the repository's guidance."""
    repository = ChangeRepository(folder / f"{commit}-git", request.root)
    exported = folder / commit
    repository.check_out(repository.tree_of(commit), exported)
    return _read(replace(request, root=exported), name)


def _read(request: RunRequest, name: str) -> Definition:
    agent = load_requested(request)
    return Definition(
        agents=request.definition_root / AGENTS,
        variant=Variant(name=name, digest=agent.digest),
        run_usd=request.inputs.budget(agent),
    )
