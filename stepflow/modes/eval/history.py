"""Writes cases from merged pull requests: the commit before, the issue as it was, and the tests that came with the
merge as hidden checks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from stepflow.boundary.repository_reader import ClosedIssue, MergedPull
from stepflow.definition.folder import AGENTS
from stepflow.domain.reports.evaluation import DroppedCase
from stepflow.domain.text import count
from stepflow.domain.value_errors import describe_error
from stepflow.engine.proof import is_test
from stepflow.errors import BoundaryError, InputError
from stepflow.model.scenario import yaml_text
from stepflow.modes.eval.cases import EVALS, EvalCase, NamedCase
from stepflow.modes.eval.trial import announce_copies, open_case, resolve_commit
from stepflow.report.safe_text import ADDRESS
from stepflow.run.clock import Cancellation, SystemClock
from stepflow.run.ending import make_folder, write_whole
from stepflow.run.issue import repository_reader
from stepflow.run.readiness import check_request, requested_agent
from stepflow.run.request import RunRequest
from stepflow.run.resume import COMMIT
from stepflow.run.scenarios import MAX_BYTES
from stepflow.run.workspace import demand_repository
from stepflow.sandbox.change import ChangeRepository
from stepflow.sandbox.host_git import ask_git
from stepflow.sandbox.workspace import temporary_folder

#: Bytes of all hidden files of a case.
LARGEST_TESTS = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class CollectRequest:
    """Which cases to write: by which command their tests run, how many at most, and for how many minutes to look."""

    command: str
    most_cases: int
    most_minutes: float


@dataclass(frozen=True, kw_only=True)
class CollectedCases:
    """The files that were written, and the changes with an issue that make no case."""

    files: tuple[str, ...]
    left_out: tuple[DroppedCase, ...]


class _NoCase(Exception):
    """Why a pull request makes no case."""


def collect_cases(
    request: RunRequest, asked: CollectRequest, cancellation: Cancellation, note: Callable[[str], None]
) -> CollectedCases:
    """Look through the merged pull requests, newest first, and write a file for each that makes a case. One that has a
    file already is left alone. `note` is called with each result."""
    demand_repository(request.root)
    check_request(request)
    if not asked.command.strip():
        raise InputError("There is no command that runs the tests.", hint="Give one: --command 'pytest -q {tests}'.")
    folder, token = request.definition_root / AGENTS / requested_agent(request) / EVALS, request.inputs.read_token
    files, left_out = list[str](), list[DroppedCase]()
    end = SystemClock().now() + asked.most_minutes * 60
    cancellation.hold()
    with cancellation.obeyed():
        announce_copies(request, note)
    with closing(repository_reader(request, token.get_secret_value() if token else None)) as reader:
        make_folder(folder)
        with cancellation.obeyed():
            # Issues are listed under the present name of their repository.
            request = replace(request, repository=reader.full_name())
        pulls = reader.merged_pulls()
        while len(files) < asked.most_cases and SystemClock().now() < end:
            with cancellation.obeyed():
                pull = next(pulls, None)
            if pull is None:
                break
            path = folder / f"pr-{pull.number}.yaml"
            if path.exists() or not pull.issues:
                continue
            try:
                case = _build(request, pull, asked.command)
                text = _text(pull, case)
                failing = _try(request, NamedCase(name=path.stem, case=case), pull.merge, cancellation)
            except (_NoCase, InputError, BoundaryError) as error:
                reason = error.message if isinstance(error, InputError | BoundaryError) else str(error)
                left_out.append(DroppedCase(case=path.stem, reason=reason))
                note(f"{path.stem} makes no case: {reason}")
                continue
            write_whole(path, text)
            files.append(str(path))
            note(f"{path.stem}: #{case.issue.number} {case.issue.title}; without the change {failing}")
    return CollectedCases(files=tuple(files), left_out=tuple(left_out))


def _build(request: RunRequest, pull: MergedPull, command: str) -> EvalCase:
    """Return the case that a pull request makes. Raises `_NoCase`."""
    if len(pull.issues) > 1:
        raise _NoCase("it closes more than one issue")
    (issue,) = pull.issues
    title = _title_then(request, pull, issue)
    base = _base_of(request.root, pull)
    with temporary_folder(request.root) as folder:
        repository = ChangeRepository(folder / "change", request.root)
        changed = repository.changed_files(base, pull.merge)
        tests = [path for path in changed if is_test(path)]
        if not tests or len(tests) == len(changed):
            raise _NoCase("no test came with it" if not tests else "it changes nothing but tests")
        texts = {path: _test_text(repository, pull.merge, path) for path in tests}
    if sum(len(text or "") for text in texts.values()) > LARGEST_TESTS:
        raise _NoCase(f"its tests are larger than {LARGEST_TESTS // 1024} KiB")
    about = {"number": issue.number, "title": title, "body": issue.body}
    try:
        return EvalCase.model_validate({"base": base, "issue": about, "checks": (command,), "tests": texts})
    except ValidationError as error:
        raise _NoCase(
            "; ".join(f"its {each['loc'][-1]} {describe_error(each)}" for each in error.errors(include_input=False))
        ) from None


def _title_then(request: RunRequest, pull: MergedPull, issue: ClosedIssue) -> str:
    """Return the issue's title when the pull request was opened. GitHub does not say what the body was before an
    edit."""
    if issue.repository.lower() != request.repository.lower():
        raise _NoCase("its issue is in another repository")
    if issue.edited_at and issue.edited_at > pull.opened_at:
        raise _NoCase(f"issue #{issue.number} was edited after the pull request was opened")
    return issue.title_at(pull.opened_at)


def _base_of(root: Path, pull: MergedPull) -> str:
    """Return the commit of the base branch before the merge. A pull request that was rebased has as many commits on the
    branch as before, and the last one has the same headline."""
    if not COMMIT.fullmatch(pull.merge):
        raise _NoCase("GitHub does not know its merge commit")
    listed = ask_git(root, "rev-list", "--max-count=1", "--parents", pull.merge, "--", may_fail=True).split()
    if len(listed) < 2:
        raise _NoCase("its merge commit, or the one before, is not in this clone")
    headline = ask_git(root, "log", "--max-count=1", "--format=%s", pull.merge, "--", may_fail=True)
    is_rebased = len(listed) == 2 and pull.commits > 1 and headline == pull.headline
    before = f"{pull.merge}~{pull.commits}" if is_rebased else f"{pull.merge}^1"
    base = resolve_commit(root, before)
    if not base:
        raise _NoCase("the commit before it is not in this clone")
    return base


def _test_text(repository: ChangeRepository, commit: str, path: str) -> str | None:
    content = repository.read_file(commit, path)
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        raise _NoCase(f"its test file {path} is not text") from None


def _try(request: RunRequest, named: NamedCase, merge: str, cancellation: Cancellation) -> str:
    """Return how the hidden tests fail before the change. Raises `_NoCase` if they pass then, or fail after it."""
    with open_case(request, named, cancellation) as opened:
        before, after = opened.check_trees((opened.tree, opened.repository.tree_of(merge)), cancellation)
    if not before:
        raise _NoCase("its tests pass without the change too")
    if after:
        raise _NoCase(f"its tests fail with the change too: {after}")
    return before


def _text(pull: MergedPull, case: EvalCase) -> str:
    """Return the text of the case's file. Raises `_NoCase` for one that is too large to be read again."""
    where = pull.url if ADDRESS.fullmatch(pull.url) else f"pull request #{pull.number}"
    files = count(len(case.tests), "test file")
    head = f"# From {where}, merged as {pull.merge}, with the {files} that came with it.\n"
    text = head + yaml_text(case.model_dump(mode="json"))
    if len(text.encode()) > MAX_BYTES:
        raise _NoCase(f"its file would be larger than {MAX_BYTES // 1024**2} MiB")
    return text
