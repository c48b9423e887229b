"""Tries two definitions of an agent on the same cases, within caps, and compares them after every case. An eval that
was stopped continues where it was: each finished trial is a file in its folder."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from stepflow.definition.builtin import PREFIX
from stepflow.domain.json import compact
from stepflow.domain.reports.evaluation import DroppedCase, EvalComparison, EvalPair, EvalTrial, Evaluation, EvalVerdict
from stepflow.domain.text import count, minutes, usd
from stepflow.domain.words import Outcome, Provider
from stepflow.errors import BoundaryError, DefinitionError, InputError
from stepflow.journal import MemoryJournal, hold_alone
from stepflow.modes.eval.cases import EvalCase, NamedCase, read_cases
from stepflow.modes.eval.power import REJECTING_WEALTH, describe_power
from stepflow.modes.eval.trial import (
    Definition,
    OpenedCase,
    announce_copies,
    cost_so_far,
    finish_trial,
    open_case,
    open_definitions,
    resolve_commit,
    run_case,
    trial_request,
)
from stepflow.report.many_runs import evaluation_html, evaluation_json
from stepflow.run.clock import Cancellation, Deadline, SystemClock
from stepflow.run.ending import make_folder, write_whole
from stepflow.run.readiness import check_policy, check_request, requested_agent
from stepflow.run.request import RunRequest
from stepflow.run.workspace import demand_repository, install

#: Trials in a row that the model's service may fail before the eval ends.
MOST_FAULTS = 3
#: Inputs that do not change what a trial shows.
_OTHER_INPUTS = frozenset({"agent", "boundary", "debug", "resume", "run-folder"})
_TRIAL = TypeAdapter(EvalTrial)


@dataclass(frozen=True, kw_only=True)
class EvalRequest:
    """What to compare, and what it may cost: US dollars and minutes for the whole eval, and the most cases."""

    against: str = ""
    against_model: str = ""
    most_usd: float
    most_minutes: float
    most_cases: int


@dataclass(frozen=True, kw_only=True)
class EvalListener:
    """Called with messages, and with each finished trial, its case, and whether it is the candidate's."""

    on_note: Callable[[str], None] = lambda _: None
    on_trial: Callable[[str, bool, EvalTrial], None] = lambda *_: None


def evaluate(request: RunRequest, asked: EvalRequest, cancellation: Cancellation, listener: EvalListener) -> Evaluation:
    """Run both definitions on the cases until one is shown to be better or a cap is reached, and write the page.

    Raises `InputError` and `DefinitionError` before anything is spent.
    """
    demand_repository(request.root)
    check_policy(request)
    check_request(request)
    agent = requested_agent(request)
    if agent.startswith(PREFIX):
        raise InputError("A shipped agent has no cases.", hint="Write an agent of your own in .agent/<agent>/.")
    cases = read_cases(request.definition_root, agent)
    cancellation.hold()
    with (
        _alone_in(request.folder),
        open_definitions(request, asked.against, asked.against_model, listener.on_note) as definitions,
    ):
        clock = SystemClock()
        end = clock.now() + asked.most_minutes * 60
        with cancellation.obeyed():
            announce_copies(request, listener.on_note)
            install(request, MemoryJournal(clock), Deadline(clock=clock, at=end))
        trying = _Trying(
            request=request,
            asked=asked,
            agent=agent,
            candidate=definitions[0],
            baseline=definitions[1],
            cancellation=cancellation,
            listener=listener,
            end=end,
        )
        return trying.try_cases(cases)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Make the eval's folder and hold it. Raises `InputError` if another eval does."""
    for name in ("trials", "runs"):
        make_folder(folder / name)
    path = folder / "eval.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        hold_alone(fd, path)
        yield
    finally:
        os.close(fd)


@dataclass(frozen=True, kw_only=True)
class _PlannedTrial:
    """A trial on a case. `key` identifies everything that its result depends on."""

    named: NamedCase
    definition: Definition
    is_candidate: bool
    key: str


@dataclass(kw_only=True)
class _Trying:
    """The trials of one eval, as far as they have come."""

    request: RunRequest
    asked: EvalRequest
    agent: str
    candidate: Definition
    baseline: Definition
    cancellation: Cancellation
    listener: EvalListener
    #: When the minutes are over, in seconds since the epoch.
    end: float
    #: Finished trials, and the cost of all trials, by key; those of earlier starts too.
    done: dict[str, EvalTrial] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)
    pairs: list[EvalPair] = field(default_factory=list)
    dropped: list[DroppedCase] = field(default_factory=list)
    #: Trials in a row that the model's service failed.
    faults: int = 0
    #: The cap that ended a run, so that this has no result yet.
    reached: str = ""

    def try_cases(self, cases: Sequence[NamedCase]) -> Evaluation:
        """Try case after case, and write the page after each."""
        planned = [self._plan(named) for named in cases]
        most, asked = min(len(cases), self.asked.most_cases), self.asked
        most_usd = max(self.candidate.run_usd, self.baseline.run_usd)
        self.listener.on_note(
            f"{self.candidate.variant} against {self.baseline.variant}: up to {count(2 * most, 'run')} on "
            f"{count(most, 'case')}, at most {usd(most_usd)} each, {usd(asked.most_usd)} and "
            f"{minutes(asked.most_minutes)} minutes in all"
        )
        self.listener.on_note(describe_power(most))
        self.listener.on_note(f"finished trials are kept in {self.request.folder}, where the same command continues")
        ended = ""
        for number, trials in enumerate(planned):
            if ended := self._find_end(trials):
                break
            # Neither is always first, in case the model's service changes.
            self._try_case(trials[:: 1 if number % 2 else -1])
            self._write(self._evaluation("the eval was stopped"))
        evaluation = self._evaluation(ended or self._find_end(()) or "every case was tried")
        self._write(evaluation)
        return evaluation

    def _find_end(self, trials: Sequence[_PlannedTrial]) -> str:
        """Return why no further case may be tried; empty if these trials may be made."""
        if compare(self._results()).verdict is not EvalVerdict.NOT_SHOWN:
            return "the difference is shown"
        if len(self.pairs) >= self.asked.most_cases:
            return f"as many cases as --cases allows, {self.asked.most_cases}, were tried"
        if self.faults >= MOST_FAULTS:
            return f"the model's service failed {MOST_FAULTS} trials in a row"
        if self.reached or all(each.key in self.done for each in trials):
            return self.reached
        if self._usd_left() <= 0:
            return self._describe_budget()
        return "" if self._minutes_left() > 0 else self._describe_minutes()

    def _try_case(self, trials: Sequence[_PlannedTrial]) -> None:
        """Make the trials that are missing. Adds the pair, or says why there is none."""
        named, issue = trials[0].named, trials[0].named.case.issue
        if not all(each.key in self.done for each in trials):
            problem = self._make_missing(trials)
            if self.reached:
                return
            if problem:
                self.dropped.append(DroppedCase(case=named.name, reason=problem))
                self.listener.on_note(f"{named.name} is left out: {problem}")
                return
        by_role = {each.is_candidate: self.done[each.key] for each in trials}
        pair = EvalPair(
            case=named.name, issue=issue.number, title=issue.title, candidate=by_role[True], baseline=by_role[False]
        )
        self.pairs.append(pair)

    def _make_missing(self, trials: Sequence[_PlannedTrial]) -> str:
        """Make the trials that have no result yet. Returns why the case shows nothing, or why one of them has none."""
        with ExitStack() as stack:
            try:
                opened = stack.enter_context(open_case(self.request, trials[0].named, self.cancellation))
                problem = self._check_base(opened)
            except (InputError, BoundaryError) as error:
                return error.message
            if problem:
                return problem
            try:
                return next(filter(None, (self._run(opened, each) for each in trials if each.key not in self.done)), "")
            except DefinitionError as error:
                # Both are sound here and now, but not with the files of the base.
                return str(error)

    def _check_base(self, opened: OpenedCase) -> str:
        """Return why the case can show nothing: its checks pass before anything was done. Asked once."""
        file = self.request.folder / "trials" / f"base-{self._identify(opened.case, opened.tree)}.txt"
        if not file.exists():
            write_whole(file, opened.check_tree(opened.tree, self.cancellation))
        return "" if file.read_text(encoding="utf-8") else "its checks pass on the base commit already"

    def _identify(self, case: EvalCase, start: str, **more: str) -> str:
        """Return a name for what follows from the case, the commit or tree it starts on, the inputs, and more."""
        options = {name: value for name, value in self.request.inputs.options().items() if name not in _OTHER_INPUTS}
        return hashlib.sha256(compact({**options, "case": case.digest, "start": start, **more}).encode()).hexdigest()[
            :16
        ]

    def _run(self, opened: OpenedCase, planned: _PlannedTrial) -> str:
        """Make a trial and keep it. Returns why it is no result; empty if it is one."""
        # What an interrupted run has cost counts as its own.
        usd_left = self._usd_left() + self.costs[planned.key]
        run_usd, minutes_left, inputs = planned.definition.run_usd, max(0.01, self._minutes_left()), self.request.inputs
        request = trial_request(self.request, opened, self.agent, planned.key, planned.definition.variant.model)
        least = {"usd": min(run_usd, usd_left), "minutes": min(inputs.limits.minutes, minutes_left)}
        limits = request.inputs.limits.model_copy(update=least)
        request = replace(request, inputs=request.inputs.model_copy(update={"limits": limits}))
        report = run_case(opened, planned.definition.agents, request, self.cancellation)
        self.costs[planned.key] = run_usd if report.cost_usd is None else report.cost_usd
        self.cancellation.check()
        self.faults = self.faults + 1 if report.outcome is Outcome.MODEL_FAILED else 0
        match report.outcome:
            case Outcome.BUDGET_EXHAUSTED if limits.usd < run_usd:
                self.reached = self._describe_budget()
                return self.reached
            case Outcome.TIMED_OUT if minutes_left < inputs.limits.minutes:
                self.reached = self._describe_minutes()
                return self.reached
            case Outcome.MODEL_FAILED if inputs.model.provider is not Provider.SCRIPTED:
                return f"the model's service failed: {report.explanation}"
            case Outcome.INTERNAL_ERROR | Outcome.MISCONFIGURED:
                return report.explanation
            case _:
                pass
        failure = opened.check_result(request, self.cancellation) if report.outcome is Outcome.COMPLETED else ""
        trial = finish_trial(report, failure, f"runs/{planned.key}")
        write_whole(self._file(planned.key), _TRIAL.dump_json(trial, indent=2).decode())
        self.done[planned.key] = trial
        self.listener.on_trial(planned.named.name, planned.is_candidate, trial)
        return ""

    def _plan(self, named: NamedCase) -> tuple[_PlannedTrial, ...]:
        """Return the case's trials, with what is known of them from earlier starts."""
        commit = resolve_commit(self.request.root, named.case.base)
        trials = []
        for definition in (self.candidate, self.baseline):
            variant = definition.variant
            key = self._identify(named.case, commit, definition=variant.digest, model=variant.model)
            is_candidate = definition is self.candidate
            trials.append(_PlannedTrial(named=named, definition=definition, is_candidate=is_candidate, key=key))
            if trial := self._read(key):
                self.done[key] = trial
            cost = trial.cost_usd if trial else cost_so_far(self.request.folder / "runs" / key)
            self.costs[key] = definition.run_usd if cost is None else cost
        return tuple(trials)

    def _file(self, key: str) -> Path:
        return self.request.folder / "trials" / f"{key}.json"

    def _read(self, key: str) -> EvalTrial | None:
        try:
            return _TRIAL.validate_json(self._file(key).read_bytes())
        except (OSError, ValidationError):
            return None

    def _describe_budget(self) -> str:
        return f"--usd {self.asked.most_usd:g} is spent"

    def _describe_minutes(self) -> str:
        return f"--minutes {self.asked.most_minutes:g} are over"

    def _usd_left(self) -> float:
        return self.asked.most_usd - sum(self.costs.values())

    def _minutes_left(self) -> float:
        return (self.end - SystemClock().now()) / 60

    def _results(self) -> Iterator[tuple[bool, bool]]:
        return ((pair.candidate.success, pair.baseline.success) for pair in self.pairs)

    def _evaluation(self, ended: str) -> Evaluation:
        return Evaluation(
            agent=self.agent,
            candidate=self.candidate.variant,
            baseline=self.baseline.variant,
            pairs=tuple(self.pairs),
            dropped=tuple(self.dropped),
            comparison=compare(self._results()),
            spent_usd=sum(self.costs.values()),
            ended=ended,
            folder=str(self.request.folder),
        )

    def _write(self, evaluation: Evaluation) -> None:
        redact = self.request.redactor
        write_whole(self.request.folder / "eval.json", redact(compact(evaluation_json(evaluation))))
        write_whole(self.request.folder / "eval.html", redact(evaluation_html(evaluation)))


#: How many bets stand for all of them, how often a bound is halved, and how near to ±1 a mean is tried.
BETS, HALVINGS, LARGEST_MEAN = 200, 30, 1 - 1e-9


def compare(results: Iterable[tuple[bool, bool]]) -> EvalComparison:
    """Compare pairs of successes: the candidate's and the baseline's on each case."""
    pairs = tuple(results)
    wins, losses = pairs.count((True, False)), pairs.count((False, True))
    low, high = find_interval(wins, losses, len(pairs) - wins - losses)
    return EvalComparison(
        cases=len(pairs),
        only_candidate=wins,
        only_baseline=losses,
        both=pairs.count((True, True)),
        difference=(wins - losses) / len(pairs) if pairs else 0.0,
        low=low,
        high=high,
        verdict=EvalVerdict.BETTER if low > 0 else EvalVerdict.WORSE if high < 0 else EvalVerdict.NOT_SHOWN,
    )


def find_interval(wins: int, losses: int, ties: int) -> tuple[float, float]:
    """Return the bounds of the means that are not rejected."""
    center = (wins - losses) / max(1, wins + losses + ties)

    def find_bound(outside: float) -> float:
        inside = max(-LARGEST_MEAN, min(LARGEST_MEAN, center))
        if wealth_against(outside * LARGEST_MEAN, wins, losses, ties) < REJECTING_WEALTH:
            return outside
        for _ in range(HALVINGS):
            middle = (inside + outside) / 2
            if wealth_against(middle, wins, losses, ties) < REJECTING_WEALTH:
                inside = middle
            else:
                outside = middle
        return outside

    return find_bound(-1.0), find_bound(1.0)


def wealth_against(mean: float, wins: int, losses: int, ties: int) -> float:
    """Return what the bets against a mean between −1 and 1 have made of one dollar."""
    least, most = -1 / (1 - mean), 1 / (1 + mean)
    bets = (least + (most - least) * (number + 0.5) / BETS for number in range(BETS))
    gains = (
        wins * math.log1p(bet * (1 - mean)) + losses * math.log1p(-bet * (1 + mean)) + ties * math.log1p(-bet * mean)
        for bet in bets
    )
    # What is larger is rejected anyway.
    return sum(math.exp(min(gain, 500.0)) for gain in gains) / BETS
