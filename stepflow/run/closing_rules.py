"""Checks a closing against the boundary's rules while the agent can still fix what breaks them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
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
from stepflow.boundary.plan import CommitsInfo, Plan, plan_effects
from stepflow.domain.agent.definition import Step
from stepflow.domain.checkout import Closing
from stepflow.domain.decision import FlowResult, Violation
from stepflow.domain.effect import PushBranch
from stepflow.domain.event import Noted
from stepflow.domain.json import JsonObject
from stepflow.domain.secrets import search_pack, secrets_to_find
from stepflow.domain.text import name_some
from stepflow.domain.words import Outcome, Stage
from stepflow.errors import BoundaryError
from stepflow.run.finish import Run, find_unkeepable, stream_commits, uncommitted_files
from stepflow.run.request import boundary_settings, commit_rules
from stepflow.sandbox.box import BundleTooLarge, Toolbox

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
            self._run.journal.append(Noted(level="warning", message=message))
            return ()
        redact = self._run.request.redactor
        return tuple(replace(each, message=redact(each.message)) for each in violations)

    def judge_checked(self, closing: Closing) -> tuple[Violation, ...]:
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
            places = name_some([*self._places_of_secrets(checked, file)])
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
        for found in (each for each in search_pack(file, secrets, object_format=sha) if each.has_secret):
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
        result = FlowResult(
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
