"""Checks a closing while the agent can still fix it: its commits against the boundary's rules, and each suggestion of a
review on a copy of the workspace's commit, with the checks of the step that closed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from stepflow.boundary.bundle_push import read_bundle
from stepflow.boundary.commit_check import (
    COMMIT_LESS,
    CheckedCommits,
    check_commits,
    judge_lfs_pointers,
    printable,
    rewrite_advice,
)
from stepflow.boundary.git import MOST_OUTPUT, TooMuch
from stepflow.boundary.output_filter import OutputFilter
from stepflow.boundary.plan import plan_effects
from stepflow.boundary.review import find_suggestions, requested_review
from stepflow.boundary.settings import CommitsInfo, Plan
from stepflow.domain.agent.definition import Condition, Step
from stepflow.domain.checkout import TreeState
from stepflow.domain.effect import PushBranch, Suggestion, SuggestionResults, SuggestionsTried, TriedSuggestion
from stepflow.domain.event import FlowEnded
from stepflow.domain.flow import Violation
from stepflow.domain.json import JsonObject
from stepflow.domain.proof import TrialLimits
from stepflow.domain.secrets import UnsearchablePack, search_pack, secrets_to_find
from stepflow.domain.text import code_span, name_some
from stepflow.domain.words import Outcome, Stage
from stepflow.engine.judge import build_request, has_passed, validator_command
from stepflow.errors import BoundaryError
from stepflow.run.clock import COMPLETION_GRACE, SystemClock
from stepflow.run.finish import Run, find_unkeepable, stream_commits, uncommitted_files
from stepflow.run.proof import Results, Trials
from stepflow.run.request import boundary_settings, commit_rules
from stepflow.sandbox.box import BundleTooLarge, Toolbox
from stepflow.sandbox.change import ChangeRepository
from stepflow.sandbox.workspace import temporary_folder


def try_suggestions(run: Run, result: FlowEnded) -> SuggestionResults | None:
    """Try the suggestions of a review that is about to be submitted, and record how it went; None without any. Signals
    are held at the end."""
    pull, agent, request = run.facts.reviewed, run.prepared.agent, run.request
    if pull is None or result.outcome is not Outcome.COMPLETED:
        return None
    hosts = boundary_settings(request).link_hosts(agent.github.allowed_link_hosts)
    output_filter = OutputFilter(allowed_hosts=hosts, redactor=request.redactor)
    review = requested_review(result.answer, output_filter)
    worth, problems = find_suggestions(review, pull, output_filter) if review else ((), ())
    if not (worth or problems):
        return None
    tried = SuggestionResults(suggestions=())
    if worth and request.original is None:
        why = "a trial needs a workspace that stepflow made"
        tried = SuggestionResults(suggestions=tuple(_words(each, why) for each in worth))
    elif worth:
        run.cancellation.hold()
        with temporary_folder(request.checkout) as folder:
            tried = _open_trials(run, folder / "change", agent.steps[result.step_id]).run(worth)
    everything = sorted((*tried.suggestions, *problems), key=lambda each: each.comment)
    tried = replace(tried, suggestions=tuple(everything))
    run.journal.append(SuggestionsTried(results=tried))
    return tried


def _open_trials(run: Run, folder: Path, step: Step) -> SuggestionTrials:
    with run.cancellation.obeyed():
        repository = ChangeRepository(folder, run.request.base_repository)
    trials = Trials(
        repository=repository,
        request=run.request.of_checkout,
        commands=(),
        cancellation=run.cancellation,
        ends=SystemClock().now() + run.deadline.seconds_left(COMPLETION_GRACE),
        note=lambda what: run.note("info", f"[Review] running the checks {what}"),
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
        return _words(suggestion, f"it makes {names} fail", red)

    def _find_red(self, results: Results) -> tuple[str, ...]:
        pairs = zip(self._checks, results, strict=True)
        return tuple(each.validator.name for each, result in pairs if not has_passed(each.validator.success, result))


def _words(suggestion: Suggestion, problem: str, red: tuple[str, ...] = ()) -> TriedSuggestion:
    return TriedSuggestion(comment=suggestion.comment, place=str(suggestion), problem=problem, red=red)


#: Hexadecimal digits of a SHA-256 commit id.
SHA256_DIGITS = 64
_NO_CHANGES = (
    "Make the change and commit it, then close again. If there is nothing to change, close again and say why: the run "
    "then ends as it is."
)
_OBJECTION = "Answer with usable values: those named above have no effect."
_TAKE_OUT = "Take the secret out of every commit."


class ClosingRules:
    """Implements the port `BoundaryRules` for one run: the boundary's own functions, on commits in the sandbox."""

    def __init__(self, run: Run, toolbox: Toolbox) -> None:
        self._run, self._toolbox = run, toolbox
        self._pushes = False

    def judge_request(self, step: Step, answer: JsonObject | None) -> tuple[Violation, ...]:
        """Return the rules that the commits up to HEAD and the answer break."""
        self._pushes = False
        try:
            with tempfile.TemporaryFile(buffering=0) as file:
                violations = tuple(self._judge(step, answer, file))
        except (BoundaryError, OSError) as exc:
            message = f"[Boundary] this closing cannot be checked before the end of the run: {exc}"
            self._run.note("warning", message)
            return ()
        redact = self._run.request.redactor
        return tuple(replace(each, message=redact(each.message)) for each in violations)

    def judge_checked(self, closing: TreeState) -> tuple[Violation, ...]:
        """Return a violation if the checks ran while there were files that would not be pushed."""
        return (uncommitted_files(closing.untracked),) if self._pushes and closing.untracked else ()

    def _judge(self, step: Step, answer: JsonObject | None, file: IO[bytes]) -> Iterator[Violation]:
        base = self._run.facts.base_commit
        try:
            bundle = stream_commits(self._toolbox, file, base) if base else None
        except BundleTooLarge as exc:
            yield Violation(
                message=exc.message.rstrip("."), advice=f"{COMMIT_LESS} {rewrite_advice(base)}", hint=exc.hint
            )
            return
        plan = self._plan(step, answer, bundle.commits if bundle else 0)
        self._pushes = any(isinstance(effect, PushBranch) for effect in plan.effects)
        if plan.no_changes:
            yield from self._judge_no_commit(step, plan.no_changes)
        if bundle:
            yield from self._judge_commits(bundle.commit, file)
        for objection in plan.objections:
            yield Violation(message=objection, advice=_OBJECTION, refuses=False)

    def _judge_no_commit(self, step: Step, message: str) -> Iterator[Violation]:
        """Yield a violation for a closing without a commit, unless there are uncommitted files and the step itself
        checks for a clean tree."""
        uncommitted = self._toolbox.tree().uncommitted
        if uncommitted and step.validation and any(each.validator.clean_tree for each in step.validation.conditions):
            return
        names = f" Not committed: {name_some(uncommitted)}." if uncommitted else ""
        yield Violation(message=f"{message}{names}", advice=_NO_CHANGES, refuses=False)

    def _judge_commits(self, tip: str, file: IO[bytes]) -> Iterator[Violation]:
        request, git = self._run.request, SandboxGit(self._toolbox, self._run.facts.base_commit)
        checked = check_commits(git, tip, base=git.base, rules=commit_rules(request, self._run.prepared.agent))
        if problem := find_unkeepable(file, request):
            file.seek(0)
            places = name_some(self._places_of_secrets(checked, file))
            yield Violation(
                message=f"{problem} It is in {places}" if places else problem,
                advice=f"{_TAKE_OUT} {rewrite_advice(git.base)}",
            )
        if self._pushes:
            yield from checked.violations
            yield from judge_lfs_pointers(git, checked.changes)

    def _places_of_secrets(self, checked: CheckedCommits, file: IO[bytes]) -> Iterator[str]:
        """Yield the places where the commits contain a secret of this run, never the secret itself: a file's name may
        be one, too."""
        read_bundle(file)
        sha = "sha256" if len(self._run.facts.base_commit) == SHA256_DIGITS else "sha1"
        secrets = secrets_to_find(self._run.request.secrets())
        try:
            holders = [each for each in search_pack(file, secrets, object_format=sha) if each.has_secret]
        except UnsearchablePack:
            return
        for found in holders:
            match found.kind:
                case "blob":
                    yield from map(printable, checked.places_of(found.name))
                case "commit":
                    yield f"the message or the author of commit {found.name[:12]}"
                case _:
                    yield "the name of a file"

    def _plan(self, step: Step, answer: JsonObject | None, commits: int) -> Plan:
        """Plan what the boundary would do now."""
        run = self._run
        result = FlowEnded(
            outcome=Outcome.COMPLETED, stage=Stage.COMPLETION, reason="", step_id=step.id, iterations=0, answer=answer
        )
        return plan_effects(
            run.prepared.agent,
            run.facts,
            result,
            boundary_settings(run.request),
            summary="",
            commits=CommitsInfo(count=commits),
            redactor=run.request.redactor,
        )


class SandboxGit:
    """Runs git in the sandbox to read the workspace's objects. `base` is the commit from which the run started."""

    def __init__(self, toolbox: Toolbox, base: str) -> None:
        self._toolbox, self.base = toolbox, base

    def run(self, *args: str, stdin: bytes = b"", memory: int | None = None) -> bytes:
        """Return the output of the command. Raises `BoundaryError`, or `TooMuch` if the output is too long."""
        output = self._toolbox.read_objects(*args, base=self.base, stdin=stdin.decode(), limit=MOST_OUTPUT)
        if output is None:
            raise TooMuch(f"`git {args[0]}` writes more than {MOST_OUTPUT} bytes")
        return output
