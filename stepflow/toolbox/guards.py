"""The port `Guards` over a running toolbox: remembers the start of the run and compares with it.

Takes: the validators, after `setup` and before the first model call. Gives: `GuardFindings` for each run of one.
May touch: the checkout, through the toolbox; what it remembers stays on this side, out of the tools' reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from stepflow.domain.guard import GuardFindings
from stepflow.domain.words import CleanTree
from stepflow.errors import InputError
from stepflow.toolbox.environment import HOME_PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from stepflow.domain.definition import Validator
    from stepflow.domain.json import JsonObject
    from stepflow.ports import Guards

#: About ten calls of git, each with its own two minutes.
_LOOK_SECONDS = 1200.0
_DIGEST_SECONDS = 120.0
#: So many paths are named; how many more there are is said.
_NAMED = 20

Files = dict[str, str]


class CheckoutGuards:
    """What the validators depend on, as it was when this was made."""

    def __init__(
        self,
        ask: Callable[[JsonObject, float], dict[str, object]],
        validators: Iterable[Validator],
        *,
        home_programs: bool,
    ) -> None:
        self._ask = ask
        given = tuple(validators)
        self._files = {guards: self._first_digests(guards) for guards in {one.guards for one in given} if guards}
        self._programs = self._digests((HOME_PROGRAMS,), "home") if home_programs else None
        asks_git = any(one.clean_tree is not CleanTree.NONE for one in given)
        self._start = ask({"op": "guard", "ask": "begin_clean_tree"}, _LOOK_SECONDS) if asks_git else {}

    def head_tree(self) -> str:
        """The tree of HEAD, empty when there is none."""
        return str(self._ask({"op": "guard", "ask": "head_tree"}, _DIGEST_SECONDS)["tree"])

    def look_again(self, validator: Validator, *, passed: bool) -> GuardFindings:
        """What was changed since the start under this validator; what was hidden from it, when it was green."""
        changed, notes = self._changed(validator.guards), self._changed_programs()
        if not passed or validator.clean_tree is CleanTree.NONE:
            return GuardFindings(changed=changed, notes=notes)
        if "start" not in self._start:
            why = f"git could not be asked a second time: {self._start.get('problem')}"
            return GuardFindings(changed=changed, notes=(*notes, why))
        partly = validator.clean_tree is CleanTree.PARTLY
        answer = self._ask(
            {"op": "guard", "ask": "clean_tree", "start": cast("JsonObject", self._start["start"]), "partly": partly},
            _LOOK_SECONDS,
        )
        if "problem" in answer:
            problem = f"git could not be asked a second time: {answer['problem']}"
            return GuardFindings(changed=changed, notes=notes, problem=problem)
        if ignores := _texts(answer["ignore_files"]):
            notes = (*notes, f"ignore files that are new in this run may hide files from git: {_named(ignores)}")
        return GuardFindings(changed=changed, notes=notes, hidden=_texts(answer["hidden"]))

    def _first_digests(self, guards: tuple[str, ...]) -> Files:
        files = self._digests(guards, "checkout")
        if isinstance(files, str):
            raise InputError(
                f"The files that validators depend on could not be read: {files}.",
                hint=f"Narrow the `guards` {', '.join(guards)} in the agent's registry.",
            )
        return files

    def _changed(self, guards: tuple[str, ...]) -> tuple[str, ...]:
        if not guards:
            return ()
        now = self._digests(guards, "checkout")
        if isinstance(now, str):
            return (f"{', '.join(guards)} (cannot be read: {now})",)
        return _differences(self._files[guards], now)

    def _changed_programs(self) -> tuple[str, ...]:
        """Programs of the tools' own home come last on PATH, but they are there, and the tools can change them."""
        if self._programs is None:
            return ()
        now = self._digests((HOME_PROGRAMS,), "home")
        if isinstance(now, str) or isinstance(self._programs, str):
            return (f"the programs in ~/{HOME_PROGRAMS} could not be compared with those that setup left there",)
        changed = _differences(self._programs, now)
        return (f"programs that setup left in ~/{HOME_PROGRAMS} are not what they were: {_named(changed)}",) * bool(
            changed
        )

    def _digests(self, patterns: tuple[str, ...], place: str) -> Files | str:
        """The digests, or why there are none."""
        answer = self._ask(
            {"op": "guard", "ask": "digests", "place": place, "patterns": list(patterns)}, _DIGEST_SECONDS
        )
        if "problem" in answer:
            return str(answer["problem"])
        files = cast("Mapping[object, object]", answer["files"])
        return {str(path): str(digest) for path, digest in files.items()}


if TYPE_CHECKING:

    def _fills_the_port(guards: CheckoutGuards) -> Guards:
        return guards


def _differences(before: Files, now: Files) -> tuple[str, ...]:
    words = dict.fromkeys(before.keys() - now.keys(), "removed")
    words |= dict.fromkeys(now.keys() - before.keys(), "added")
    words |= {path: "changed" for path in before.keys() & now.keys() if before[path] != now[path]}
    return tuple(f"{_printable(path)} ({words[path]})" for path in sorted(words))


def _named(paths: tuple[str, ...]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more


def _texts(values: object) -> tuple[str, ...]:
    return tuple(_printable(str(value)) for value in cast("list[object]", values))


def _printable(path: str) -> str:
    """Names are the tools' own: no line break, no control character and no half of a surrogate pair gets further."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in path)
