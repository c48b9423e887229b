"""Check agents, for the action and for a person at a terminal."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.definition.folder import find_folders, where_else
from stepflow.definition.loading import inspect_agent
from stepflow.domain.problem import Inspection, Severity
from stepflow.errors import InputError
from stepflow.modes.validate_scenarios import scenario_problems

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from stepflow.domain.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The agents that were checked, by the name or path that was given."""

    inspections: Mapping[str, Inspection]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems of all agents."""
        return tuple(problem for inspection in self.inspections.values() for problem in inspection.problems)

    @property
    def failed(self) -> bool:
        """True when some agent cannot run."""
        return any(problem.severity is Severity.ERROR for problem in self.problems)


def check_agents(
    names: Sequence[str],
    root: Path,
    *,
    allow_spec_violations: bool = False,
    allow_custom_verdict: bool = False,
    programs: Collection[str] | None = None,
    strict: bool = False,
) -> Checked:
    """The named agents, or all below `.agent`. `programs` are those of the machine, where that is the one on which the
    agents will run; with `strict` a warning is an error. Raises `InputError` when there is no agent."""
    agents = tuple(names) or find_folders(root)
    if not agents:
        raise InputError(f"There is no agent under {root / '.agent'}.", hint=where_else(root))
    inspections = {
        agent: inspect_agent(
            agent,
            root=root,
            allow_spec_violations=allow_spec_violations,
            allow_custom_verdict=allow_custom_verdict,
            programs=programs,
        )
        for agent in agents
    }
    checked = {agent: _with_scenarios(each) for agent, each in inspections.items()}
    return Checked(inspections={agent: _strictly(each) for agent, each in checked.items()} if strict else checked)


def _strictly(inspection: Inspection) -> Inspection:
    problems = (
        replace(each, severity=Severity.ERROR) if each.severity is Severity.WARNING else each
        for each in inspection.problems
    )
    return replace(inspection, problems=tuple(problems))


def programs_in(folders: Iterable[Path]) -> frozenset[str]:
    """The names of all that can be started from these folders of a PATH."""
    there = (folder for folder in folders if folder.is_dir() and os.access(folder, os.R_OK))
    return frozenset(file.name for folder in there for file in folder.iterdir() if os.access(file, os.X_OK))


def _with_scenarios(inspection: Inspection) -> Inspection:
    if inspection.folder is None:
        return inspection
    problems, texts = scenario_problems(Path(inspection.folder), inspection.prefix, inspection.mcp_tools)
    return replace(inspection, problems=(*inspection.problems, *problems), texts={**inspection.texts, **texts})


def from_above(problems: Sequence[Problem], root: Path, top: Path) -> tuple[Problem, ...]:
    """The problems with files as seen from a folder above the one that was checked."""
    below = root.relative_to(top).as_posix()
    return (
        tuple(problems)
        if below == "."
        else tuple(replace(problem, file=f"{below}/{problem.file}") for problem in problems)
    )


def repository_above(root: Path) -> Path:
    """The root of the repository that a folder is in; the folder itself when it is in none."""
    return next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)
