"""The texts that a model is given to read: prompt files, and the repository's guidance (`AGENTS.md`) and skills
(folders with a `SKILL.md`, https://agentskills.io), as they were when the agent was loaded."""

from __future__ import annotations

import codecs
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path, PurePosixPath

from stepflow.definition.agent import Agent
from stepflow.definition.diagnostics import FileProblems
from stepflow.definition.file_models import GUIDANCE_OFF, GateRegistry, Registry
from stepflow.definition.folder import (
    AgentFolder,
    FileRefused,
    Why,
    first_link,
    read_start_below,
    text_of,
    unsafe_reason,
    walk_files,
)
from stepflow.definition.parsing import Pointer, YamlFault, read_yaml
from stepflow.definition.shapes import fill_path
from stepflow.domain.agent.agent_settings import SKILL_FILE, GitHubSettings, Skill
from stepflow.domain.agent.definition import SourceText
from stepflow.domain.words import ClosureAction, StepKind
from stepflow.engine.prompt.template import Tag, parse_template
from stepflow.engine.prompt.variables import CUT_MARK


def split_prompt(text: str) -> tuple[str, str, int]:
    """A prompt file's front matter, its text with plain line ends and trimmed, and the line on which that begins."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    begin = lines.index("---", 1) + 1 if lines[0] == "---" and "---" in lines[1:] else 0
    body = "\n".join(lines[begin:])
    blank = body[: len(body) - len(body.lstrip())].count("\n")
    return "\n".join(lines[1 : begin - 1]) if begin else "", body.strip(), begin + blank + 1


DEFAULT_BASE = "prompts"
DEFAULT_TEMPLATE = "{c1}/{c2}/{c3}/f_{edition}_{adaptation}.md"
DEFAULT_PLAIN_TEMPLATE = "{c1}/{c2}/{c3}/f_{edition}.md"
DEFAULT_EDITION = "default"


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A text with the line of its file on which it begins."""

    source: SourceText
    first_line: int = 1
    #: False for a file that exists and cannot be used, which was reported: nothing is concluded from its text.
    usable: bool = True

    def tags(self, known: Container[str] = (), *, is_open: bool = False, is_closed: bool = False) -> tuple[Tag, ...]:
        """The tags of the text as `parse_template` reads them; those of a shipped template need no check."""
        if self.source.template:
            return ()
        return parse_template(self.source.text, known, is_open=is_open, is_closed=is_closed).tags

    def report(self, code: str, tag: Tag, message: str, fix: str, problems: FileProblems, *, word: str = "") -> None:
        """Report a problem with a tag, at its line of the file; `word` is the part of the tag that is meant."""
        line = self.first_line + self.source.text.count("\n", 0, tag.start)
        own = problems.diagnostics.of(self.source.file)
        own.add(code, "", message, fix, line=line, word=word or tag.written)


@dataclass(frozen=True, kw_only=True)
class Address:
    """The parts of a prompt address that an entry gives; the registry's `c1` stands in for a missing one."""

    c2: str
    c3: str
    edition: str = DEFAULT_EDITION
    c1: str | None = None


@dataclass(frozen=True, kw_only=True)
class PromptFiles:
    """Reads prompts below one base folder. Closure steps without an adaptation use this `adaptation`."""

    folder: AgentFolder
    base: str
    c1: str
    template: str
    plain_template: str
    adaptation: ClosureAction | None
    problems: FileProblems

    def find(self, kind: StepKind | None, address: Address, adaptation: str | None, at: Pointer) -> Prompt | None:
        """The prompt of a step, from the file for its adaptation if that exists. `at` is the pointer of the address."""
        plain = self.path(address, None)
        fitting = adaptation or (self.adaptation if kind is StepKind.CLOSURE else None)
        adapted = self.read(self.path(address, fitting)) if fitting else None
        prompt = adapted or self.read(plain)
        if prompt is not None and adapted is None and adaptation:
            own = self.path(address, adaptation)
            message = f'the adaptation file "{own}" is missing, "{plain}" is used'
            self.problems.report("SF502", at, message, 'Write the file, or remove "adaptation".')
        return prompt

    def path(self, address: Address, adaptation: str | None) -> str:
        """The file of an address, relative to the agent folder."""
        parts = {**vars(address), "c1": address.c1 or self.c1, "adaptation": adaptation or ""}
        return self.below_base(fill_path(self.template if adaptation else self.plain_template, parts))

    def below_base(self, path: str) -> str:
        """A path under the base, relative to the agent folder."""
        return path if self.base == "." else f"{self.base}/{path}"

    def read(self, path: str) -> Prompt | None:
        """The prompt in a file; None when the file is missing or empty."""
        own = self.problems.diagnostics.of(path)
        try:
            raw = self.folder.read(path)
        except FileRefused as refused:
            if refused.why is Why.MISSING:
                return None
            code = "SF109" if refused.unsafe else "SF104"
            own.add(code, "", f'the prompt file "{path}" {refused.message}', refused.fix)
            return Prompt(source=SourceText(text="", file=path), usable=False)
        front, text, first_line = split_prompt(raw)
        try:
            if front:
                read_yaml(front, build=False)  # its content has no effect
        except YamlFault as fault:
            message = f"the front matter is not valid YAML: {fault.problem}"
            own.add("SF508", "", message, "Correct it, or remove it: it has no effect.", line=(fault.line or 1) + 1)
        return Prompt(source=SourceText(text=text, file=path), first_line=first_line) if text else None


def shipped_prompt(key: str) -> Prompt:
    """A template of the package. A missing one means a broken installation, not a fault of the agent: this raises."""
    file = files("stepflow.engine.prompt") / "templates" / f"{key}.md"
    _, text, first_line = split_prompt(file.read_text(encoding="utf-8"))
    source = SourceText(text=text, file=f"stepflow/engine/prompt/templates/{key}.md", template=key)
    return Prompt(source=source, first_line=first_line)


def open_prompts(
    registry: Registry, folder: AgentFolder, problems: FileProblems, github: GitHubSettings
) -> PromptFiles:
    """The prompt files of a registry. A closure step's prompt is adapted to the closure action that agent.json sets
    under `github`."""
    template = plain = None
    if isinstance(registry, GateRegistry):
        template, plain = registry.path_template, registry.path_template_no_adaptation
    closure_action = github.default_closure_action
    return PromptFiles(
        folder=folder,
        base=folder.base(registry.prompts_base or DEFAULT_BASE),
        c1=registry.c1 or registry.default_c1,
        template=template or DEFAULT_TEMPLATE,
        plain_template=plain or DEFAULT_PLAIN_TEMPLATE,
        adaptation=closure_action if github.enabled and closure_action in _CLOSURE_ADAPTATIONS else None,
        problems=problems,
    )


_CLOSURE_ADAPTATIONS = (ClosureAction.LABEL_ONLY, ClosureAction.LABEL_AND_CLOSE)
#: The name of the open convention, https://agents.md.
GUIDANCE_FILE = "AGENTS.md"
#: How many bytes of one file, and of all files of an agent, are read.
MOST_OF_GUIDANCE_FILE = 64 * 1024
MOST_OF_GUIDANCE = 128 * 1024
_GUIDANCE = Pointer("/guidance")
_BELOW = 'Name the file or folder itself in "guidance", by its path from the root of the repository.'


class GuidanceFiles:
    """Reads guidance below the root of the repository, each file once. Problems are reported where it is named."""

    def __init__(self, root: Path, agent: Agent) -> None:
        self._root, self._agent = root, agent
        self._off = agent.file.guidance == GUIDANCE_OFF
        self._left = MOST_OF_GUIDANCE
        self._read: dict[str, SourceText] = {}
        #: What every step is shown: the files that agent.json lists, else the one at the root, if it exists.
        self.shared = _without_empty(self._named_files())

    def _named_files(self) -> Sequence[SourceText | None]:
        written, problems = self._agent.file.guidance, self._agent.problems
        if self._off or not self._agent.known:
            return ()
        if written is None:
            return (self._take(GUIDANCE_FILE, Pointer(), problems),)
        return [self._take(path, _GUIDANCE / index, problems, must_exist=True) for index, path in enumerate(written)]

    def of_step(self, folders: Iterable[str], at: Pointer, problems: FileProblems) -> tuple[SourceText, ...]:
        """What one step is shown in addition: the `AGENTS.md` of these folders and of their parents, the nearest last.
        The one at the root is up to agent.json."""
        found: list[SourceText | None] = []
        for index, folder in enumerate(folders):
            here, path = at / index, PurePosixPath(folder)
            if self._off:
                problems.report(
                    "SF111", here, f'agent.json says "guidance": "{GUIDANCE_OFF}"', "Remove one of the two."
                )
                continue
            if reason := unsafe_reason(folder):
                problems.report("SF109", here, f'the guidance folder "{folder}" {reason}', _BELOW)
                continue
            above = [one for one in (*reversed(path.parents), path) if one.parts]
            known = len(problems.diagnostics.collected)
            texts = [self._take(str(one / GUIDANCE_FILE), here, problems) for one in above]
            if not any(texts) and len(problems.diagnostics.collected) == known:
                message = f'neither the folder "{folder}" nor one above it, below the root, has an {GUIDANCE_FILE}'
                problems.report("SF114", here, message, "Write one there, or name another folder.")
            found += texts
        return _without_empty(text for text in found if text not in self.shared)

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


def _without_empty(texts: Iterable[SourceText | None]) -> tuple[SourceText, ...]:
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
    files = dict(_texts_of_skill(root, path))
    if SKILL_FILE not in files:
        raise _Unusable(f'there is no text file "{path / SKILL_FILE}"', "Write one, or correct the path.")
    try:
        front = read_yaml(split_prompt(files[SKILL_FILE])[0])[1]
    except YamlFault as fault:
        message = f"the front matter of {SKILL_FILE} is not valid YAML: {fault.problem}"
        raise _Unusable(message, "Correct it.") from fault
    front = front if isinstance(front, dict) else {}
    name, description = (str(front.get(key) or "").strip() for key in ("name", "description"))
    if name != path.name or not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        form = f"lowercase letters, digits, and single hyphens between them; at most {LONGEST_NAME}"
        raise _Unusable(f'the name in {SKILL_FILE} is "{name}"', f"Give folder and skill one name: {form}.")
    if not 0 < len(description) <= LONGEST_DESCRIPTION:
        message = f"the description in {SKILL_FILE} has {len(description):,} characters"
        raise _Unusable(message, f"Say in at most {LONGEST_DESCRIPTION:,} what it is for and when to use it.")
    return Skill(name=name, description=" ".join(description.split()), folder=str(path), files=files)


def _texts_of_skill(root: Path, folder: PurePosixPath) -> Iterator[tuple[str, str]]:
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
