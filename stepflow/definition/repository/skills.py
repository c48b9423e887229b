"""Agent Skills: folders with a `SKILL.md` (https://agentskills.io), frozen as they were when the agent was loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from stepflow.definition.agent import Agent
from stepflow.definition.files.json_text import Pointer
from stepflow.definition.files.safe_files import (
    FileRefused,
    Why,
    first_link,
    read_start_below,
    text_of,
    walk_files,
)
from stepflow.definition.files.yaml_text import YamlFault, read_yaml
from stepflow.definition.folder import unsafe_reason
from stepflow.definition.prompt_files import split_prompt
from stepflow.domain.definition import SKILL_FILE, Skill

#: The limits of the format, in characters.
LONGEST_NAME = 64
LONGEST_DESCRIPTION = 1024
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
#: Of one skill. The bytes of a file are what one `read` gives at most.
MOST_FILES = 100
MOST_OF_ONE = 256 * 1024
MOST_OF_ALL = 1024 * 1024


class _Unusable(Exception):
    """A skill that cannot be used: what is wrong completes `the skill "x": …`, with what to do about it."""

    def __init__(self, message: str, fix: str, *, unsafe: bool = False) -> None:
        super().__init__(message)
        self.message, self.fix, self.code = message, fix, "SF109" if unsafe else "SF116"


def read_skills(root: Path, agent: Agent) -> tuple[Skill, ...]:
    """The skills that agent.json lists by their folders below the root of the repository."""
    skills: dict[str, Skill] = {}
    for index, folder in enumerate(agent.file.skills):
        try:
            skill = _read_skill(root, folder)
            if other := skills.get(skill.name):
                raise _Unusable(f'"{other.folder}" has the same name', "Rename one of them.")
            skills[skill.name] = skill
        except _Unusable as fault:
            agent.problems.add(fault.code, _AT / index, f'the skill "{folder}": {fault.message}', fault.fix)
    return tuple(skills.values())


_AT = Pointer("/skills")


def _read_skill(root: Path, folder: str) -> Skill:
    if reason := unsafe_reason(folder):
        raise _Unusable(f"the path {reason}", "Name a folder by its path from the root of the repository.", unsafe=True)
    path = PurePosixPath(folder)
    if link := first_link(root, path):
        raise _Unusable(f'"{link}" is a symbolic link', "Name the folder itself.", unsafe=True)
    files = dict(_texts(root, path))
    if SKILL_FILE not in files:
        raise _Unusable(f'there is no text file "{path / SKILL_FILE}"', "Write one, or correct the path.")
    front = _front_matter(files[SKILL_FILE])
    name, description = (str(front.get(key) or "").strip() for key in ("name", "description"))
    if name != path.name or not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        form = f"small letters, digits, and single hyphens between them; at most {LONGEST_NAME}"
        raise _Unusable(f'the name in {SKILL_FILE} is "{name}"', f"Give folder and skill one name: {form}.")
    if not 0 < len(description) <= LONGEST_DESCRIPTION:
        message = f"the description in {SKILL_FILE} has {len(description):,} characters"
        raise _Unusable(message, f"Say in at most {LONGEST_DESCRIPTION:,} what it is for and when to use it.")
    return Skill(name=name, description=" ".join(description.split()), folder=str(path), files=files)


def _front_matter(text: str) -> dict[str, Any]:
    try:
        front = read_yaml(split_prompt(text)[0])[1]
    except YamlFault as fault:
        message = f"the front matter of {SKILL_FILE} is not valid YAML: {fault.problem}"
        raise _Unusable(message, "Correct it.") from fault
    return front if isinstance(front, dict) else {}


def _texts(root: Path, folder: PurePosixPath) -> Iterator[tuple[str, str]]:
    """Every text of the folder by its path in it. What is no UTF-8, `read` would not give either."""
    paths = sorted(islice(walk_files(root / folder), MOST_FILES + 1))
    if len(paths) > MOST_FILES:
        raise _Unusable(f"it has more than {MOST_FILES} files", "Keep only what the skill itself names.")
    left = MOST_OF_ALL
    for path in paths:
        try:
            content, size = read_start_below(root, folder / path, most=min(MOST_OF_ONE, left))
            if size > len(content):
                most = f"a file may have {MOST_OF_ONE:,} bytes, and all together {MOST_OF_ALL:,}"
                raise _Unusable(f'the file "{path}" with its {size:,} bytes is too much', f"Make it smaller: {most}.")
            left -= size
            yield path, text_of(content)
        except FileRefused as refused:
            if refused.why is not Why.NOT_TEXT:
                message = f'the file "{path}" {refused.message}'
                raise _Unusable(message, "Make it a regular file that can be read.", unsafe=refused.unsafe) from refused
