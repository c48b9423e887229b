"""The problems of one load: sorted, each once, with its position in the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from stepflow.definition.parsing import Positions, Span, keys_of
from stepflow.definition.rules import rules
from stepflow.domain.agent.definition import Inspection
from stepflow.domain.json import JsonValue, compact
from stepflow.domain.text import cut
from stepflow.errors import Problem, Severity

#: Problems that are about a key, whatever its value is.
_ABOUT_KEYS = frozenset({"SF104", "SF108", "SF111", "SF112", "SF310", "SF331", "SF606", "SF709"})

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def escape_control(text: str) -> str:
    """Escape control characters: the content of a file must not write lines of its own into a log."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def find_place(
    problem: Problem, word: str, text: str, positions: Positions | None
) -> tuple[int | None, int | None, int | None]:
    """The line of a problem, its first column and the one after its last, as far as they are known.

    In a file that is not JSON and has no `positions`, `word` is what the problem is about on its line.
    """
    line, column = problem.line, problem.column
    if column is not None:
        return line, column, column + 1
    if positions is None or word:
        at = "".join(text.split("\n")[line - 1 : line]).find(word) if line and word else -1
        return (line, at + 1, at + 1 + len(word)) if at >= 0 else (line, None, None)
    value = positions.nearest(problem.path)
    begin = positions.line(value.key[0] if value.key else value.start)
    if line not in (None, begin):  # that of a key that is written twice was given
        return line, None, None
    span = _mark_span(value, text, about_key=problem.code in _ABOUT_KEYS)
    start, end = (offset - text.rfind("\n", 0, offset) for offset in span)
    return begin, start, end


def _mark_span(value: Span, text: str, *, about_key: bool) -> tuple[int, int]:
    """The value when it is a scalar on the line of its key, else the key, else the first character."""
    plain = text[value.start] not in "{["
    if value.key is not None and (about_key or not plain or "\n" in text[value.key[1] : value.start]):
        return value.key
    return (value.start, value.end if plain else value.start + 1)


@dataclass
class Diagnostics:
    """Collects problems of one load; files are named relative to the agent folder."""

    #: Each problem with the words on its line that it is about, where the file is no JSON.
    collected: dict[Problem, str] = field(default_factory=dict)
    #: The text of each JSON file that was parsed.
    documents: dict[str, str] = field(default_factory=dict)
    #: The steps, validators, … whose shape is broken, as pointers into the registry: nothing is known of them but that
    #: they exist.
    broken: set[str] = field(default_factory=set)

    @property
    def failed(self) -> bool:
        """Whether there is an error: with one the definition must not run."""
        return any(problem.severity is Severity.ERROR for problem in self.collected)

    def of(self, file: str, origin: Callable[[str], str] | None = None) -> FileProblems:
        """The same collection, for one file. `origin` maps a pointer that a check knows to the one in the file."""
        return FileProblems(diagnostics=self, file=file, origin=origin or str)

    def inspection(self, *, prefix: str, texts: Mapping[str, str]) -> Inspection:
        """The problems with the text of each file that has one; `texts` are all files that were read, JSON or not."""
        known = {**texts, **self.documents}
        positions = {
            file: Positions(self.documents[file])
            for file in self.documents.keys() & {one.file for one in self.collected}
        }
        placed = [
            _place(one, word, known.get(one.file), positions.get(one.file), prefix)
            for one, word in self.collected.items()
        ]
        return Inspection(
            problems=tuple(sorted(placed, key=lambda one: (one.file, one.line or 0, one.code, one.path, one.message))),
            texts={
                escape_control(file_below(prefix, one.file)): known[one.file]
                for one in self.collected
                if one.file in known
            },
        )


def _place(problem: Problem, word: str, text: str | None, positions: Positions | None, prefix: str) -> Problem:
    line, column, end = (problem.line, problem.column, None)
    if text is not None:
        line, column, end = find_place(problem, word, text, positions)
    return replace(
        problem,
        file=escape_control(file_below(prefix, problem.file)),
        path=escape_control(problem.path),
        message=escape_control(problem.message),
        fix=escape_control(problem.fix),
        line=line,
        column=column,
        end_column=end,
    )


def file_below(prefix: str, file: str) -> str:
    """The path of an agent's file as problems name it; `prefix` is `.` when the agent's own folder is the root."""
    return file if prefix == "." else f"{prefix}/{file}"


@dataclass(frozen=True, kw_only=True)
class FileProblems:
    """A `Diagnostics` bound to one file."""

    diagnostics: Diagnostics
    file: str
    origin: Callable[[str], str]

    def add(
        self,
        code: str,
        path: str,
        message: str,
        fix: str,
        *,
        line: int | None = None,
        column: int | None = None,
        word: str = "",
        severity: Severity | None = None,
    ) -> None:
        """Report a problem at the JSON Pointer `path`. In a file that is not JSON, give its `line`, and as `word` what
        the problem is about on that line."""
        problem = Problem(
            severity=severity or rules()[code].severity,
            code=code,
            file=self.file,
            path=self.origin(path),
            line=line,
            column=column,
            message=message,
            fix=fix,
        )
        self.diagnostics.collected[problem] = word

    def report(self, code: str, path: str, message: str, fix: str, *, severity: Severity | None = None) -> None:
        """Add a problem whose message begins with the step, the validator, … that `path` leads into."""
        self.add(code, path, f"{owner(path)}{message}", fix, severity=severity)

    def broken(self, kind: str) -> frozenset[str]:
        """Return the ids of the steps whose shape is broken, or of the entries of another `kind`."""
        pointers = map(keys_of, self.diagnostics.broken)
        return frozenset(key for holder, key in pointers if holder == kind)

    def note_idle(self, path: str, message: str, what: str = "key") -> None:
        """Note something known that has no effect in this place (SF111)."""
        self.report("SF111", path, message, f"Remove the {what}, or leave it.")


def owner(pointer: str) -> str:
    """Whose key a pointer names, to begin a message with: `step "x": `, `validator "x": `, or nothing."""
    parts = keys_of(pointer)
    word = _OWNERS.get(parts[0]) if len(parts) > 1 else None
    return f'{word} "{parts[1]}": ' if word else ""


_OWNERS = {
    "steps": "step",
    "validators": "validator",
    "validationSteps": "validation step",
    "failurePatterns": "failure pattern",
    "parameters": "parameter",
    "mcpServers": "MCP server",
    "servers": "MCP server",
}


def format_value(value: JsonValue) -> str:
    """A value for a message: JSON, shortened when long."""
    return cut(compact(value), 80)


#: How similar two words must be, from 0 to 1, and two paths, which often share their folder and suffix.
LIKE_WORDS = 0.6
LIKE_PATHS = 0.75


def closest_match(word: str, known: Iterable[str], likeness: float = LIKE_WORDS) -> str | None:
    """The known word that is most similar to this one, if any is similar enough. Case is ignored."""
    plain = {one.casefold(): one for one in sorted(known, reverse=True)}
    close = get_close_matches(word.casefold(), sorted(plain), n=1, cutoff=likeness)
    return plain[close[0]] if close else None


def did_you_mean(word: str, known: Iterable[str], likeness: float = LIKE_WORDS) -> str:
    """` (did you mean "x"?)`, or nothing when no known word is similar."""
    return hint(closest_match(word, known, likeness))


def hint(near: str | None) -> str:
    """` (did you mean "x"?)`, or nothing."""
    return f' (did you mean "{near}"?)' if near else ""


def list_words(words: Iterable[str]) -> str:
    """Words as `"a", "b"`, or `none`."""
    return ", ".join(f'"{word}"' for word in words) or "none"
