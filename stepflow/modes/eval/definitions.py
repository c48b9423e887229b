"""The two definitions of an eval: the one in the working tree, and one from the repository's history."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from stepflow.definition.folder import AGENTS
from stepflow.domain.reports.evaluation import Variant
from stepflow.errors import DefinitionError, InputError
from stepflow.modes.eval.trial import resolve_commit
from stepflow.run.caps import run_budget
from stepflow.run.prepare import load_requested
from stepflow.run.readiness import requested_agent
from stepflow.run.request import RunRequest
from stepflow.sandbox.change import ChangeRepository
from stepflow.sandbox.host_git import ask_git
from stepflow.sandbox.workspace import temporary_folder

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
    model = request.inputs.model or ""
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
        run_usd=run_budget(agent, request.inputs),
    )
