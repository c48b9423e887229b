"""The cases of an eval: YAML files in `.agent/<agent>/evals/`, each an issue on a commit, with hidden checks."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from stepflow.definition.folder import AGENTS, FileRefused, read_below, text_of
from stepflow.domain.json import JsonObject
from stepflow.domain.run import Issue
from stepflow.errors import InputError
from stepflow.model.scenario import check_path_inside
from stepflow.run.scenarios import MAX_BYTES, FileFault, read_yaml_text

#: The folder of an agent's cases, which no agent is shown.
EVALS = "evals"


def _check_test_path(path: str) -> str:
    if ".git" in path.lower().split("/"):
        raise ValueError("git's own files cannot be test files")
    return check_path_inside(path)


class _CaseShape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class CaseIssue(_CaseShape):
    """The issue as the agent is shown it."""

    number: Annotated[int, Field(ge=1, le=999_999_999)] = 1
    title: Annotated[str, Field(pattern=r"\S")]
    body: str = ""

    def to_issue(self) -> Issue:
        """Convert to the run's own type."""
        return Issue(number=self.number, title=self.title, body=self.body)


class EvalCase(_CaseShape):
    """A case: the issue is solved if all `checks` pass on the result of the run, with the files of `tests` in it.

    `base` is the commit, tag or branch on which the agent starts. `checks` are shell commands; `{tests}` in them stands
    for the test files. `tests` has the text of each hidden file by its path; null removes a file.
    """

    base: Annotated[str, Field(pattern=r"^[^-\s\x00][^\s\x00]*$", max_length=250)]
    issue: CaseIssue
    checks: Annotated[tuple[Annotated[str, Field(pattern=r"^[^\x00]*[^\s\x00][^\x00]*$")], ...], Field(min_length=1)]
    tests: dict[Annotated[str, AfterValidator(_check_test_path)], str | None] = Field(default_factory=dict)

    @property
    def test_files(self) -> tuple[str, ...]:
        """The hidden files that the checks are run on."""
        return tuple(path for path, text in self.tests.items() if text is not None)

    @property
    def digest(self) -> str:
        """Identifies what the case says, however it is written."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class NamedCase:
    """A case with the name of its file."""

    name: str
    case: EvalCase


def case_schema() -> JsonObject:
    """Return the JSON Schema of a case file."""
    head: JsonObject = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A case of stepflow's evals",
    }
    return {**EvalCase.model_json_schema(), **head}


def read_case(agent_folder: Path, name: str) -> EvalCase | tuple[FileFault, ...]:
    """Read a case file, or return all of its problems. Raises `FileRefused` for one that may not be read."""
    return read_yaml_text(text_of(read_below(agent_folder, f"{EVALS}/{name}.yaml", limit=MAX_BYTES)), EvalCase)


def read_cases(root: Path, agent: str) -> tuple[NamedCase, ...]:
    """Return the cases of an agent in the order in which they are tried: a fixed random one, so that the first ones
    stand for all. Raises `InputError` with every problem of every file, or if there is no case."""
    folder, cases, problems = root / AGENTS / agent, list[NamedCase](), list[str]()
    for path in sorted((folder / EVALS).glob("*.yaml")):
        name = f"{AGENTS}/{agent}/{EVALS}/{path.name}"
        try:
            read = read_case(folder, path.stem)
        except FileRefused as refused:
            problems.append(f"{name}: {refused.message}.")
            continue
        if isinstance(read, EvalCase):
            cases.append(NamedCase(name=path.stem, case=read))
        else:
            problems += (fault.describe(name) for fault in read)
    if problems:
        raise InputError(tuple(problems), hint="`stepflow schema eval` prints the form of a case.")
    if not cases:
        raise InputError(
            f'Agent "{agent}" has no case in {folder / EVALS}.',
            hint=f"Write one as {AGENTS}/{agent}/{EVALS}/<name>.yaml, or have `stepflow eval {agent} --collect` write "
            "them from merged pull requests.",
        )
    return tuple(sorted(cases, key=lambda each: hashlib.sha256(each.name.encode()).digest()))
