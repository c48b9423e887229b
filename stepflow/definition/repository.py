"""What the repository tells whoever works on it: its guidance (`AGENTS.md` files) and its skills (folders with a
`SKILL.md`, https://agentskills.io), as they were when the agent was loaded."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from stepflow.definition.agent import Agent
from stepflow.definition.diagnostics import FileProblems, shown
from stepflow.definition.folder import (
    FileRefused,
    Why,
    first_link,
    read_start_below,
    text_of,
    unsafe_reason,
    walk_files,
)
from stepflow.definition.parsing import Pointer, YamlFault, read_yaml
from stepflow.definition.prompt_files import split_prompt
from stepflow.domain.definition import SKILL_FILE, Skill, SourceText
from stepflow.engine.prompt.variables import CUT_MARK

#: The name of the open convention, https://agents.md.
GUIDANCE_FILE = "AGENTS.md"
OFF = "off"
#: How many bytes of one file, and of all files of an agent, are read.
MOST_OF_GUIDANCE_FILE = 64 * 1024
MOST_OF_GUIDANCE = 128 * 1024
_GUIDANCE = Pointer("/guidance")
_BELOW = 'Name the file or folder itself in "guidance", by its path from the root of the repository.'


class GuidanceFiles:
    """Reads guidance below the root of the repository, each file once. Problems are reported where it is named."""

    def __init__(self, root: Path, agent: Agent) -> None:
        self._root, self._agent = root, agent
        self._left = MOST_OF_GUIDANCE
        self._read: dict[str, SourceText] = {}
        self._shared: tuple[SourceText, ...] = ()

    @property
    def _off(self) -> bool:
        return self._agent.file.guidance == OFF

    def of_agent(self) -> tuple[SourceText, ...]:
        """What every step is shown: the files that agent.json lists, else the one at the root, if it exists."""
        self._shared = _filled(self._named())
        return self._shared

    def _named(self) -> Sequence[SourceText | None]:
        written, problems = self._agent.file.guidance, self._agent.problems
        if self._off or not self._agent.known:
            return ()
        if written is None:
            return (self._take(GUIDANCE_FILE, Pointer(), problems),)
        if not isinstance(written, list) or not all(isinstance(path, str) for path in written):
            message = f'"guidance" is {shown(written)}, but it must be a list of files, or "{OFF}"'
            problems.add("SF106", _GUIDANCE, message, f'Write ["{GUIDANCE_FILE}"], for example.')
            return ()
        paths = enumerate(map(str, written))
        return [self._take(path, _GUIDANCE / index, problems, must_exist=True) for index, path in paths]

    def of_step(self, folders: Iterable[str], at: Pointer, problems: FileProblems) -> tuple[SourceText, ...]:
        """What one step is shown in addition: the `AGENTS.md` of these folders and of their parents, the nearest last.
        The one at the root is up to agent.json."""
        found: list[SourceText | None] = []
        for index, folder in enumerate(folders):
            here, path = at / index, PurePosixPath(folder)
            if self._off:
                problems.report("SF111", here, f'agent.json says "guidance": "{OFF}"', "Remove one of the two.")
                continue
            if reason := unsafe_reason(folder):
                problems.report("SF109", here, f'the guidance folder "{folder}" {reason}', _BELOW)
                continue
            above = [one for one in (*reversed(path.parents), path) if one.parts]
            texts = [self._take(str(one / GUIDANCE_FILE), here, problems) for one in above]
            if not any(texts) and not problems.at(here):
                message = f'neither the folder "{folder}" nor one above it, below the root, has an {GUIDANCE_FILE}'
                problems.report("SF114", here, message, "Write one there, or name another folder.")
            found += texts
        return _filled(text for text in found if text not in self._shared)

    def _take(self, path: str, at: Pointer, problems: FileProblems, *, must_exist: bool = False) -> SourceText | None:
        """The file's text; None when the file is missing, and after a problem."""
        path = PurePosixPath(path).as_posix() if unsafe_reason(path) is None else path
        try:
            if path not in self._read:
                self._read[path] = self._read_now(path, at, problems)
        except FileRefused as refused:
            if must_exist or refused.why is not Why.MISSING:
                code, fix = ("SF109", _BELOW) if refused.unsafe else ("SF114", refused.fix)
                problems.report(code, at, f'the guidance file "{path}" {refused.message}', fix)
            return None
        return self._read[path]

    def _read_now(self, path: str, at: Pointer, problems: FileProblems) -> SourceText:
        if reason := unsafe_reason(path):
            raise FileRefused(Why.OUTSIDE, reason)
        content, size = read_start_below(self._root, path, most=min(MOST_OF_GUIDANCE_FILE, self._left))
        self._left -= len(content)
        if len(content) < size:
            # At the end of a line; in one long line, after a whole character.
            content = content[: content.rfind(b"\n") + 1 or codecs.utf_8_decode(content, "replace", False)[1]]
        text = text_of(content).replace("\r\n", "\n").replace("\r", "\n").strip()
        if left_out := size - len(content):
            text = f"{text}\n\n{CUT_MARK}".lstrip()
            message = f'of the guidance file "{path}" the last {left_out:,} of {size:,} bytes are left out'
            most = f"A file may have {MOST_OF_GUIDANCE_FILE:,} bytes, and all together {MOST_OF_GUIDANCE:,}."
            fix = f"{most} Shorten it, or move parts to the {GUIDANCE_FILE} of folders that single steps name."
            problems.report("SF115", at, message, fix)
        return SourceText(text=text, file=path)


def _filled(texts: Iterable[SourceText | None]) -> tuple[SourceText, ...]:
    """The texts that are not empty, each once."""
    return tuple(dict.fromkeys(text for text in texts if text and text.text))


#: The limits of the format, in characters.
LONGEST_NAME = 64
LONGEST_DESCRIPTION = 1024
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
#: For one skill. The limit of a file is that of one `read`.
MOST_FILES = 100
MOST_OF_SKILL_FILE = 256 * 1024
MOST_OF_SKILL = 1024 * 1024


class _Unusable(Exception):
    """A skill that cannot be used: the message completes `the skill "x": …`, the fix says what to do."""

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
            agent.problems.add(fault.code, _SKILLS / index, f'the skill "{folder}": {fault.message}', fault.fix)
    return tuple(skills.values())


_SKILLS = Pointer("/skills")


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
    """Every text in the folder by its path in it. Files that are not UTF-8 are left out: `read` would not return them
    either."""
    paths = sorted(islice(walk_files(root / folder), MOST_FILES + 1))
    if len(paths) > MOST_FILES:
        raise _Unusable(f"it has more than {MOST_FILES} files", "Keep only what the skill itself names.")
    left = MOST_OF_SKILL
    for path in paths:
        try:
            content, size = read_start_below(root, folder / path, most=min(MOST_OF_SKILL_FILE, left))
            if size > len(content):
                most = f"a file may have {MOST_OF_SKILL_FILE:,} bytes, and all together {MOST_OF_SKILL:,}"
                raise _Unusable(f'the file "{path}" with its {size:,} bytes is too much', f"Make it smaller: {most}.")
            left -= size
            yield path, text_of(content)
        except FileRefused as refused:
            if refused.why is not Why.NOT_TEXT:
                message = f'the file "{path}" {refused.message}'
                raise _Unusable(message, "Make it a regular file that can be read.", unsafe=refused.unsafe) from refused
