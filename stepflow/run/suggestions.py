"""Tries the suggestions of a review before they are offered: each on a copy of the workspace's commit, with the checks
of the step that closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stepflow.boundary.output_filter import OutputFilter
from stepflow.boundary.review import find_suggestions, requested_review
from stepflow.domain.agent.definition import Condition, Step
from stepflow.domain.decision import FlowResult
from stepflow.domain.event import Noted
from stepflow.domain.proof import TrialLimits
from stepflow.domain.review import Suggestion, SuggestionResults, SuggestionsTried, TriedSuggestion
from stepflow.domain.text import code_span, name_some
from stepflow.domain.words import Outcome
from stepflow.engine.completion.judge import build_request, has_passed, validator_command
from stepflow.run.clock import COMPLETION_GRACE, SystemClock
from stepflow.run.finish import Run
from stepflow.run.proof import Results, Trials
from stepflow.run.request import RunRequest, boundary_settings
from stepflow.sandbox.change import ChangeRepository
from stepflow.sandbox.workspace import temporary_folder


def try_suggestions(run: Run, result: FlowResult) -> SuggestionResults | None:
    """Try the suggestions of a review that is about to be submitted, and record how it went; None without any. Signals
    are held at the end."""
    pull, agent, original = run.facts.reviewed, run.prepared.agent, run.request.original
    if pull is None or result.outcome is not Outcome.COMPLETED:
        return None
    hosts = boundary_settings(run.request).link_hosts(agent.github.allowed_link_hosts)
    output_filter = OutputFilter(allowed_hosts=hosts, redactor=run.request.redactor)
    review = requested_review(result.answer, output_filter)
    worth, problems = find_suggestions(review, pull, output_filter) if review else ((), ())
    if not (worth or problems):
        return None
    tried = SuggestionResults(suggestions=())
    if worth and original is None:
        why = "a trial needs a workspace that stepflow made"
        tried = SuggestionResults(suggestions=tuple(_words(each, why) for each in worth))
    elif worth and original:
        run.cancellation.hold()
        with temporary_folder(original.root) as folder:
            tried = _open_trials(run, original, folder / "change", agent.steps[result.step_id]).run(worth)
    everything = sorted((*tried.suggestions, *problems), key=lambda each: each.comment)
    tried = replace(tried, suggestions=tuple(everything))
    run.journal.append(SuggestionsTried(results=tried))
    return tried


def _open_trials(run: Run, original: RunRequest, folder: Path, step: Step) -> SuggestionTrials:
    def note(what: str) -> None:
        run.journal.append(Noted(level="info", message=f"[Review] running the checks {what}"))

    with run.cancellation.obeyed():
        repository = ChangeRepository(folder, run.request.base_repository)
    trials = Trials(
        repository=repository,
        request=original,
        commands=(),
        cancellation=run.cancellation,
        ends=SystemClock().now() + run.deadline.seconds_left(COMPLETION_GRACE),
        note=note,
    )
    return SuggestionTrials(trials, run.facts.base_commit, _checks_of(step))


def _checks_of(step: Step) -> tuple[Condition, ...]:
    """Return the checks that can speak against a suggestion: no proof, since the run has no change of its own to prove,
    and no check for a clean tree, since every suggestion is committed."""
    conditions = step.validation.conditions if step.validation else ()
    return tuple(each for each in conditions if not (each.validator.proof or each.validator.clean_tree))


class SuggestionTrials:
    """The trials of one review, on versions of the commit that the run reviews. Signals must be held and stay so."""

    def __init__(self, trials: Trials, commit: str, checks: Sequence[Condition]) -> None:
        self._commit, self._checks = commit, checks
        self._names: dict[str, str] = {}
        self._red_before: tuple[str, ...] = ()
        self._trials = replace(
            trials,
            commands=tuple(build_request(validator_command(each), each.validator) for each in checks),
            note=lambda tree: trials.note(self._names[tree]),
        )

    def run(self, suggestions: Sequence[Suggestion]) -> SuggestionResults:
        """Try each suggestion by itself, then together those that are good."""
        repository = self._trials.repository
        with self._trials.cancellation.obeyed():
            edited = [repository.with_suggestions(self._commit, [each]) for each in suggestions]
            before = repository.tree_of(self._commit)
        results = self._try(
            {before: "without a suggestion"}
            | {
                tree.tree: f"with the suggestion for {each}"
                for tree, each in zip(edited, suggestions, strict=True)
                if tree.tree
            }
        )
        base = results[before]
        self._red_before = self._find_red(base) if base else ()
        problems: dict[int, TriedSuggestion] = {}
        good: list[Suggestion] = []
        for tree, each in zip(edited, suggestions, strict=True):
            if tree.problem:
                problems[each.comment] = _words(each, tree.problem)
            elif problem := self._judge(each, base and results[tree.tree]):
                problems[each.comment] = problem
            elif other := next((known for known in good if each.overlaps(known)), None):
                why = f"it overlaps the one for {other}, and people could commit only one of the two"
                problems[each.comment] = _words(each, why)
            else:
                good.append(each)
        problems |= self._try_together(good)
        return SuggestionResults(
            suggestions=tuple(
                problems.get(each.comment, TriedSuggestion(comment=each.comment, place=str(each)))
                for each in suggestions
            ),
            checks=tuple(each.validator.name for each in self._checks),
            red_before=self._red_before,
        )

    def _try_together(self, good: Sequence[Suggestion]) -> dict[int, TriedSuggestion]:
        """Return those that are not good together with the ones before them: people may commit all of them."""
        if len(good) <= 1 or self._judge_together(good) is None:
            return {}
        problems, kept = dict[int, TriedSuggestion](), [good[0]]
        for each in good[1:]:
            if problem := self._judge_together([*kept, each]):
                others = name_some(map(str, kept))
                problems[each.comment] = replace(
                    problem, problem=f"together with the one for {others}, {problem.problem}"
                )
            else:
                kept.append(each)
        return problems

    def _judge_together(self, suggestions: Sequence[Suggestion]) -> TriedSuggestion | None:
        with self._trials.cancellation.obeyed():
            tree = self._trials.repository.with_suggestions(self._commit, suggestions).tree
        places = name_some(map(str, suggestions))
        return self._judge(suggestions[-1], self._try({tree: f"with the suggestions for {places}"})[tree])

    def _try(self, named: Mapping[str, str]) -> dict[str, Results | None]:
        """Try trees, each with what it is called."""
        self._names |= named
        if not self._checks:
            return dict.fromkeys(named, ())
        results = self._trials.run_all([*named], TrialLimits())
        return dict(zip(named, results, strict=True))

    def _judge(self, suggestion: Suggestion, results: Results | None) -> TriedSuggestion | None:
        """Return what is wrong with a suggestion, by the results with it; None if nothing is."""
        if results is None:
            return _words(suggestion, "there was no time left to try it")
        red = tuple(name for name in self._find_red(results) if name not in self._red_before)
        if not red:
            return None
        if (error := results[0].error) and not results[0].started:
            return _words(suggestion, f"with it, {error}", red)
        names = name_some(map(code_span, red))
        return _words(suggestion, f"it turns {names} red", red)

    def _find_red(self, results: Results) -> tuple[str, ...]:
        pairs = zip(self._checks, results, strict=True)
        return tuple(each.validator.name for each, result in pairs if not has_passed(each.validator.success, result))


def _words(suggestion: Suggestion, problem: str, red: tuple[str, ...] = ()) -> TriedSuggestion:
    return TriedSuggestion(comment=suggestion.comment, place=str(suggestion), problem=problem, red=red)
