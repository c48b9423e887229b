"""What the engine asks about the workspace: whether what validators depend on is as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath
from typing import cast

from stepflow.domain.agent.validation import Validator
from stepflow.domain.checkout import (
    Closing,
    GuardDiagnostics,
    folders_before,
    path_expression,
)
from stepflow.domain.json import JsonObject
from stepflow.domain.text import name_some
from stepflow.errors import InputError

#: About ten calls of git, each with its own two minutes.
_LOOK_SECONDS = 1200.0
_DIGEST_SECONDS = 120.0

#: Folders that hold what a tool can make again, with an ignore file that the tool itself writes.
_CACHES = frozenset({".mypy_cache", ".pytest_cache", ".ruff_cache"})

#: What became of each file: its digest by its path.
Files = dict[str, str]


class NoGuards:
    """For commands of the caller: what stands behind them is the caller's to look at."""

    def closing(self) -> Closing:
        """Not known."""
        return Closing()

    def look_again(self, _validator: Validator, *, passed: bool) -> GuardDiagnostics:
        """Nothing was found."""
        return GuardDiagnostics()


class CheckoutGuards:
    """What the validators depend on, as it was when this was made. Without validators nothing is looked at."""

    def __init__(
        self, ask: Callable[[str, JsonObject, float], dict[str, object]], validators: Iterable[Validator]
    ) -> None:
        self._ask = ask
        given = tuple(validators)
        self._files = {guards: self._first_digests(guards) for guards in {one.guards for one in given} if guards}
        #: Why nothing can be compared, such as a folder that is no repository: nothing can be pushed from it either.
        self._unwatched = self._begin() if given else "there are no validators"
        #: Why the newest closing could not be looked at: then there is nothing to compare with.
        self._unseen = ""

    def closing(self) -> Closing:
        """HEAD and what differs from it now."""
        if self._unwatched:
            return Closing()
        answer = self._look("closing")
        self._unseen = _printable(str(answer.get("problem", "")))
        if self._unseen:
            return Closing(problem=self._unseen)
        return Closing(
            commit=str(answer["commit"]),
            tree=str(answer["tree"]),
            changed=_texts(answer["changed"]),
            untracked=_texts(answer["untracked"]),
        )

    def look_again(self, validator: Validator, *, passed: bool) -> GuardDiagnostics:
        """What was changed since the start under this validator and since the closing; what was hidden from it, when it
        passed."""
        changed = self._find_changed(validator.guards)
        if self._unwatched:
            return GuardDiagnostics(changed=changed, notes=(f"git could not be asked: {self._unwatched}",))
        if self._unseen:
            return GuardDiagnostics(
                changed=changed, problem=f"git could not be asked before the checks: {self._unseen}"
            )
        answer = self._look("look_again")
        if "problem" in answer:
            problem = f"git could not be asked a second time: {_printable(str(answer['problem']))}"
            return GuardDiagnostics(changed=changed, problem=problem)
        new = _texts(answer["ignore_files"]) if validator.clean_tree else ()
        ignores = tuple(path for path in new if PurePosixPath(path).parent.name not in _CACHES)
        return GuardDiagnostics(
            changed=changed,
            hidden=_texts(answer["hidden"]) if passed and validator.clean_tree else (),
            moved=_texts(answer["moved"]),
            created=_texts(answer["created"]),
            notes=(f"new ignore files, which may hide other files from git: {name_some(ignores)}",) if ignores else (),
        )

    def _begin(self) -> str:
        """Have the start recorded; gives why there is nothing to compare with."""
        answer = self._look("begin")
        if "problem" in answer:
            raise InputError(
                f"What the checks rely on cannot be recorded after `setup`: {_printable(str(answer['problem']))}.",
                hint="Look at what `setup` left in the repository, in HOME and in TMPDIR.",
            )
        return str(answer.get("unwatched", ""))

    def _look(self, what: str) -> dict[str, object]:
        return self._ask(what, {}, _LOOK_SECONDS)

    def _first_digests(self, guards: tuple[str, ...]) -> Files:
        files = self._digests(guards)
        if isinstance(files, str):
            raise InputError(
                f"The files that validators depend on could not be read: {files}.",
                hint=f"Narrow the `guards` {', '.join(guards)} in the agent's registry.",
            )
        return files

    def _find_changed(self, guards: tuple[str, ...]) -> tuple[str, ...]:
        if not guards:
            return ()
        now = self._digests(guards)
        if isinstance(now, str):
            return (f"{', '.join(guards)} (cannot be read: {now})",)
        return _differences(self._files[guards], now)

    def _digests(self, patterns: tuple[str, ...]) -> Files | str:
        """The digests, or why there are none."""
        request: JsonObject = {
            "expressions": [path_expression(pattern) for pattern in patterns],
            "folders": [list(folders_before(pattern)) for pattern in patterns],
        }
        answer = self._ask("digests", request, _DIGEST_SECONDS)
        if "problem" in answer:
            return str(answer["problem"])
        files = cast("Mapping[object, object]", answer["files"])
        return {str(path): str(digest) for path, digest in files.items()}


def _differences(before: Files, now: Files) -> tuple[str, ...]:
    words = dict.fromkeys(before.keys() - now.keys(), "removed")
    words |= dict.fromkeys(now.keys() - before.keys(), "added")
    words |= {path: "changed" for path in before.keys() & now.keys() if before[path] != now[path]}
    return tuple(f"{_printable(path)} ({words[path]})" for path in sorted(words))


def _texts(values: object) -> tuple[str, ...]:
    return tuple(_printable(str(value)) for value in cast("list[object]", values))


def _printable(path: str) -> str:
    """Names are the tools' own: no line break, no control character and no half of a surrogate pair gets further."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in path)
