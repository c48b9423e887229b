"""The repository's guidance: the `AGENTS.md` files that the model is shown, as they were when the agent was loaded."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from stepflow.definition.agent import Agent
from stepflow.definition.diagnostics import FileProblems, shown
from stepflow.definition.files.json_text import Pointer
from stepflow.definition.files.safe_files import FileRefused, Why, read_start_below, text_of
from stepflow.definition.folder import unsafe_reason
from stepflow.domain.definition import SourceText
from stepflow.engine.prompt.variables import CUT_MARK

#: The name of the open convention, https://agents.md.
GUIDANCE_FILE = "AGENTS.md"
OFF = "off"
#: Bytes that are read of one file, and of all files of an agent.
MOST_OF_ONE = 64 * 1024
MOST_OF_ALL = 128 * 1024

_AT = Pointer("/guidance")
_BELOW = 'Name the file or folder itself in "guidance", by its path from the root of the repository.'


class GuidanceFiles:
    """Reads guidance below the root of the repository, each file once. What is wrong with it is reported where
    the file is named."""

    def __init__(self, root: Path, agent: Agent) -> None:
        self._root, self._agent = root, agent
        self._left = MOST_OF_ALL
        self._read: dict[str, SourceText] = {}
        self._shared: tuple[SourceText, ...] = ()

    @property
    def _off(self) -> bool:
        return self._agent.file.guidance == OFF

    def of_agent(self) -> tuple[SourceText, ...]:
        """What every step is shown: the files that agent.json lists, else the one at the root, if there is one."""
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
            problems.add("SF106", _AT, message, f'Write ["{GUIDANCE_FILE}"], for example.')
            return ()
        paths = enumerate(map(str, written))
        return [self._take(path, _AT / index, problems, must_exist=True) for index, path in paths]

    def of_step(self, folders: Iterable[str], at: Pointer, problems: FileProblems) -> tuple[SourceText, ...]:
        """What one step is shown besides: the `AGENTS.md` of these folders and of those above them, the nearest last.
        That of the root is agent.json's own affair."""
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
        """The file's text; None when there is none, and after a problem."""
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
        content, size = read_start_below(self._root, path, most=min(MOST_OF_ONE, self._left))
        self._left -= len(content)
        if len(content) < size:
            # At a line's end; of one long line, behind a whole character.
            content = content[: content.rfind(b"\n") + 1 or codecs.utf_8_decode(content, "replace", False)[1]]
        text = text_of(content).replace("\r\n", "\n").replace("\r", "\n").strip()
        if left_out := size - len(content):
            text = f"{text}\n\n{CUT_MARK}".lstrip()
            message = f'of the guidance file "{path}" the last {left_out:,} of {size:,} bytes are left out'
            most = f"A file may have {MOST_OF_ONE:,} bytes, and all together {MOST_OF_ALL:,}."
            fix = f"{most} Shorten it, or move parts to the {GUIDANCE_FILE} of folders that single steps name."
            problems.report("SF115", at, message, fix)
        return SourceText(text=text, file=path)


def _filled(texts: Iterable[SourceText | None]) -> tuple[SourceText, ...]:
    """Each text that says something, once."""
    return tuple(dict.fromkeys(text for text in texts if text and text.text))
