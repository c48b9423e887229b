"""Runs the trials of a proof, the tests of a change on versions of the files that each have a workspace and a sandbox
of their own, and proves the change of a run when it closes."""

from __future__ import annotations

import math
import os
import re
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.domain.proof import TESTS_PLACEHOLDER, ChangeTrees, Proof, ProofSettings, ProofVerdict, TrialLimits
from stepflow.engine.proof import TEST_FILES, is_test, prove_change, runnable_tests
from stepflow.engine.same_code import is_same_code
from stepflow.errors import BoundaryError, InputError, IsolationError
from stepflow.ports import Clock, Commands
from stepflow.report.proof import correction
from stepflow.run.clock import COMPLETION_GRACE, Cancellation, Deadline, SystemClock, TimelyCommands
from stepflow.run.finish import Run
from stepflow.run.request import RunRequest, toolbox_options
from stepflow.run.workspace import copy_checkout, open_toolbox, options_at_root, request_in_copy, setup_command
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.change import ChangeRepository
from stepflow.sandbox.check_tree import CheckTrees
from stepflow.sandbox.host_git import ask_git
from stepflow.sandbox.workspace import GIT, start_branch, temporary_folder, write_repository

_BRANCH = "trial"
#: Trials that run at the same time share the machine's ports: one that met another one there is tried again, alone.
_ADDRESS_IN_USE = re.compile(r"EADDRINUSE|address (?:is )?already in use|port \d+ is already in use", re.IGNORECASE)
#: While trials run, a signal is noticed within so many seconds.
_LOOK_EVERY = 0.1


def read_change(repository: ChangeRepository, base: str, head: str, settings: ProofSettings) -> ChangeTrees:
    """Take the change between two commits apart."""
    patterns = settings.tests or TEST_FILES
    return repository.read(
        base,
        head,
        is_test=lambda path: is_test(path, patterns),
        is_same_code=is_same_code,
        most_hunks=settings.most_hunks,
    )


def describe_trial(tree: str, change: ChangeTrees) -> str:
    """Say which version of the files a tree is."""
    known = {change.after: "with the change", change.before: "without the change"}
    if tree in known:
        return known[tree]
    hunk = next((hunk for hunk in change.hunks if hunk.tree == tree), None)
    return f"without {hunk.place}" if hunk else "with the change, and the tests of the base"


def fill_command(command: str, tests: Sequence[str]) -> str:
    """Return the command with the test files of the change, as far as a test runner can be given their names."""
    return command.replace(TESTS_PLACEHOLDER, shlex.join(runnable_tests(tests)))


def in_shell(script: str, timeout: float) -> CommandRequest:
    """Return the request to run a command by a shell."""
    return CommandRequest(argv=("sh", "-c", script), timeout=timeout)


def count_processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


#: What the commands of one trial gave, in their order.
Results = tuple[CommandResult, ...]


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Runs commands on trees of a change, as many trees at the same time as there are processors. Each has a workspace
    and a sandbox, so that no trial can change another one's result. Signals must be held and stay so."""

    repository: ChangeRepository
    request: RunRequest
    #: They run one after the other.
    commands: tuple[CommandRequest, ...]
    cancellation: Cancellation
    #: When all trials must have ended, in seconds since the epoch.
    ends: float = math.inf
    #: Called with each tree before it is tried.
    note: Callable[[str], None] = lambda _: None

    def run(self, trees: Sequence[str], limits: TrialLimits) -> Sequence[CommandResult | None]:
        """Return the result of the only command for each tree, in their order; None where there was no time left. Its
        seconds are those of the whole trial, as they count for `limits.together`."""
        return [results[0] if results else None for results in self.run_all(trees, limits)]

    def run_all(self, trees: Sequence[str], limits: TrialLimits) -> Sequence[Results | None]:
        """Return the results of all commands for each tree, in their order; None where there was no time left."""
        end = min(self.ends, SystemClock().now() + limits.together)
        results = self._run(trees, end, limits.each, at_once=count_processors())
        met = [number for number, each in enumerate(results) if each and any(map(_has_met_another, each))]
        again = self._run([trees[number] for number in met], end, limits.each, at_once=1)
        for number, result in zip(met, again, strict=True):
            results[number] = result
        return results

    def _run(self, trees: Sequence[str], end: float, timeout: float, *, at_once: int) -> list[Results | None]:
        clock, running = SystemClock(), _Running()
        trials: list[Future[Results | None]] = []
        with ThreadPoolExecutor(at_once) as threads, running.stopped_on_error():
            for tree in trees:
                self._wait(trials, most=at_once - 1)
                if clock.now() >= end:
                    break
                self.note(tree)
                begun = clock.now()
                with ExitStack() as opened:
                    request, history = self._copy(tree, opened)
                    trial = _Trial(request=request, history=history, clock=clock, begun=begun, end=end, timeout=timeout)
                    trials.append(threads.submit(trial.run, self.commands, running, opened.pop_all()))
            self._wait(trials, most=0)
        return [*(trial.result() for trial in trials), *[None] * (len(trees) - len(trials))]

    def _wait(self, trials: Sequence[Future[Results | None]], *, most: int) -> None:
        """Wait until at most so many trials run. Raises what one of them has raised, and `RunCancelled`."""
        # A signal that interrupts the wait itself could leave a lock taken.
        while len(unfinished := [trial for trial in trials if not trial.done()]) > most:
            for trial in wait(unfinished, timeout=_LOOK_EVERY, return_when=FIRST_COMPLETED).done:
                trial.result()
            self.cancellation.check()

    def _copy(self, tree: str, opened: ExitStack) -> tuple[RunRequest, Path]:
        """Copy the checkout for one trial, into a folder that is removed with `opened`, and return the request for the
        copy, and the repository with its only commit. This is done here, where a signal interrupts it."""
        request = self.request
        place = opened.enter_context(temporary_folder(request.root))
        copy, history = place / "checkout", place / "history"
        with self.cancellation.obeyed():
            history.mkdir()
            self.repository.copy_tree(tree, history)
            copy_checkout(request, copy, with_history=False)
            write_repository(history, copy / GIT)
            return request_in_copy(request, copy), history


def _has_met_another(result: CommandResult) -> bool:
    return result.exit_code != 0 and bool(_ADDRESS_IN_USE.search(result.output))


@dataclass(frozen=True, kw_only=True)
class _Trial:
    """One trial, in a workspace of its own, whose only commit is in the repository `history`: when it began, when all
    trials must have ended, in seconds since the epoch, and the seconds for each of its commands."""

    request: RunRequest
    history: Path
    clock: Clock
    begun: float
    end: float
    timeout: float

    def run(self, requests: Sequence[CommandRequest], running: _Running, opened: ExitStack) -> Results | None:
        """Check the commit out, set it up, run the commands as checks, and close what is opened. None if there is too
        little time left."""
        request, copy = self.request, self.request.root
        with opened:
            commit = ask_git(self.history, "rev-parse", "HEAD")
            with Toolbox.start(copy, options=options_at_root(request)) as toolbox, running.stoppable(toolbox):
                start_branch(toolbox, _BRANCH, commit)
            # Signals reach the main thread only, which stops this one.
            with (
                open_toolbox(copy, toolbox_options(request), Cancellation()) as toolbox,
                running.stoppable(toolbox),
            ):
                if setup := setup_command(request):
                    if (result := self._run_in_time(toolbox, setup)) is None:
                        return None
                    if result.exit_code != 0:
                        return (_without_setup(result),) * len(requests)
                with (
                    CheckTrees(toolbox, self.history, base=commit, keep=request.kept) as trees,
                    running.stoppable(trees),
                    trees.opened() as files,
                ):
                    return self._check(files, requests)

    def _check(self, files: Commands, requests: Sequence[CommandRequest]) -> Results | None:
        results = []
        for each in requests:
            timely = replace(each, timeout=min(self.timeout, each.timeout))
            if (result := self._run_in_time(files, timely)) is None:
                return None
            started = result.started and not result.had_no_files
            results.append(replace(result, started=started, seconds=self.clock.now() - self.begun))
        return tuple(results)

    def _run_in_time(self, commands: Commands, request: CommandRequest) -> CommandResult | None:
        """Run a command; None if the time of all trials is over before it ends."""
        if (left := self.end - self.clock.now()) <= 0:
            return None
        endless = Deadline(clock=self.clock, at=None)
        commands = TimelyCommands(commands=commands, deadline=endless, redact=self.request.redactor)
        result = commands.run_command(replace(request, timeout=min(request.timeout, left)))
        return None if result.timed_out and left < request.timeout else result


def _without_setup(setup: CommandResult) -> CommandResult:
    """Return the result of a command that was not started because the setup commands failed on this tree."""
    return replace(setup, started=False, error=f"the setup commands failed with exit code {setup.exit_code}")


class _Running:
    """The sandboxes of the trials that run now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._toolboxes: set[Toolbox | CheckTrees] = set()
        self._stopped = False

    @contextmanager
    def stoppable(self, toolbox: Toolbox | CheckTrees) -> Iterator[None]:
        """Inside the block the toolbox ends when all are stopped."""
        with self._lock:
            if self._stopped:
                raise IsolationError("The trial was stopped.")
            self._toolboxes.add(toolbox)
        try:
            yield
        finally:
            with self._lock:
                self._toolboxes.discard(toolbox)

    @contextmanager
    def stopped_on_error(self) -> Iterator[None]:
        """Stop all when the block ends by an exception."""
        try:
            yield
        except BaseException:
            with self._lock:
                self._stopped = True
                for toolbox in self._toolboxes:
                    toolbox.interrupt()
            raise


@dataclass(frozen=True, kw_only=True)
class ProvingCommands:
    """Implements the port `Commands`: requests for a proof run on versions of the run's change, which ends with the
    commit `head` of the repository; all others as they are."""

    commands: Commands
    run: Run
    repository: ChangeRepository
    head: str

    def run_command(self, request: CommandRequest) -> CommandResult:
        """Run one process, or the trials of a proof."""
        if request.proof is None:
            return self.commands.run_command(request)
        clock = SystemClock()
        begun = clock.now()
        try:
            proof = self._prove(request, request.proof)
        except (InputError, BoundaryError) as error:
            return CommandResult(exit_code=1, error=str(error))
        is_tried = proof.verdict is not ProofVerdict.NOT_TRIED
        # A review says how far a pull request is proven, and cannot change that.
        is_accepted = proof.is_accepted or (is_tried and self.run.request.reviewed is not None)
        return CommandResult(
            exit_code=0 if is_accepted else 1,
            started=is_tried,
            stdout=correction(proof) if is_tried else "",
            error="" if is_tried else proof.reason,
            seconds=clock.now() - begun,
            proof=proof,
        )

    def _prove(self, asked: CommandRequest, settings: ProofSettings) -> Proof:
        request = self.run.request
        if request.original is None:
            return Proof(verdict=ProofVerdict.NOT_TRIED, reason="A proof needs a workspace made by stepflow.")
        change = read_change(self.repository, self._base(), self.head, settings)
        *_, script = asked.argv
        trials = Trials(
            repository=self.repository,
            request=request.of_checkout,
            commands=(in_shell(fill_command(script, change.tests), asked.timeout),),
            cancellation=self.run.cancellation,
            ends=SystemClock().now() + self.run.deadline.seconds_left(COMPLETION_GRACE),
            note=lambda tree: self.run.note("info", f"[Proof] {describe_trial(tree, change)}"),
        )
        return prove_change(change, trials.run, settings)

    def _base(self) -> str:
        """Return the commit before the change. The change of a follow-up or a review is all of its pull request."""
        request, base = self.run.request, self.run.facts.base_commit
        if reviewed := request.reviewed:
            return reviewed.base_commit
        if follow_up := request.follow_up:
            branch = f"refs/remotes/origin/{follow_up.base}"
            return ask_git(request.base_repository, "merge-base", branch, base, may_fail=True) or base
        return base
