"""What the engine asks about the workspace: whether what validators depend on is as it was, and for snapshots."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

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

_MIB = 1024 * 1024
#: GitHub takes no file above 100 MiB, so no pull request can hold more than what a snapshot leaves out.
FILE_LIMIT = 100 * _MIB
#: What one snapshot may have: a quarter hour's worth of downloads into the tree should not fill the runner's disk.
SNAPSHOT_LIMIT = 1024 * _MIB
_TAKE_SECONDS, _RESTORE_SECONDS = 120.0, 600.0
#: Bytes of a difference that are read; far fewer are shown.
_DIFF_LIMIT = 8 * _MIB

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


@dataclass(frozen=True, kw_only=True)
class TakenSnapshot:
    """`name` is the commit; so many `files` differ from the snapshot before. `texts` are what people have named. How
    many bytes the pack has, and each difference, with whether that is all of it; or the problem with these."""

    name: str
    files: int
    left_out: Mapping[bytes, str]
    texts: bytes
    pack: int
    diffs: tuple[tuple[int, bool], ...]
    problem: str


class WorkspaceSnapshots:
    """The snapshots in the sandbox's private repository. `base` is the commit that a fresh clone has, or HEAD's at the
    start if it is empty. `packs` are those of all snapshots that were kept so far."""

    def __init__(
        self, ask: Callable[..., dict[str, Any]], folder: Path, *, base: str, packs: Callable[[], Iterable[Path]]
    ) -> None:
        self._ask, self._folder, self._base, self._packs = ask, folder, base, packs
        self._is_open = False

    def take(
        self, last: str, *, anew: bool, limit: int, starts: Sequence[str], sink: Callable[[bytes], object]
    ) -> TakenSnapshot | None:
        """Commit what is there, on top of the `last` snapshot; None where nothing has changed since, unless it shall be
        made `anew`. At most `limit` bytes of files are taken in. The sink gets the pack of what it has beyond the base
        and the last one, then how the files went from each of the `starts` to it, as git shows it. Raises
        `StepflowError`."""
        request: JsonObject = {"last": last, "anew": anew, "starts": [*starts]}
        request |= {"limit": limit, "file_limit": FILE_LIMIT, "diff_limit": _DIFF_LIMIT}
        most = limit + len(starts) * _DIFF_LIMIT
        with self._open_repository(_TAKE_SECONDS):
            answer = self._ask("take_snapshot", request, seconds=_TAKE_SECONDS, sink=sink, limit=most)
        if not answer["name"]:
            return None
        left_out = _read_left_out(answer)
        return TakenSnapshot(
            name=answer["name"],
            files=answer["files"],
            left_out=left_out,
            texts=b"\0".join((os.fsencode(answer["branch"]), *left_out)),
            pack=answer["pack"],
            diffs=tuple((size, is_whole) for size, is_whole in answer["diffs"]),
            problem=answer["problem_of_diffs"],
        )

    def restore(self, name: str) -> Mapping[bytes, str]:
        """Bring files, HEAD and index to what they were, with nothing of the tools alive; gives why which paths were
        left out. What can be refused is refused before anything is changed. Raises `StepflowError`."""
        request: JsonObject = {"name": name, "limit": SNAPSHOT_LIMIT}
        with self._open_repository(_RESTORE_SECONDS):
            return _read_left_out(self._ask("restore_snapshot", request, seconds=_RESTORE_SECONDS))

    @contextlib.contextmanager
    def _open_repository(self, seconds: float) -> Iterator[None]:
        """Where the last operation in such a block has failed, the repository is made anew, with everything that was
        kept so far."""
        if not self._is_open:
            request: JsonObject = {"folder": str(self._folder), "base": self._base}
            self._base = self._ask("open_snapshots", request, seconds=seconds)["base"]
            for path in self._packs():
                self._ask("receive_snapshot", {}, seconds=seconds, given=path.read_bytes())
        self._is_open = False
        yield
        self._is_open = True


def _read_left_out(answer: Mapping[str, Any]) -> dict[bytes, str]:
    return {path.encode("latin-1"): why for path, why in answer["left_out"].items()}
