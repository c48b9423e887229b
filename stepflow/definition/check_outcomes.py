"""What the outcomes of one check lead to (registry.md §6.2).

Takes: the `check` of a step as a model. Gives: the rules of each outcome in the order of reading, or problems SF702,
SF703, SF706 and SF709.
May touch: nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.definition.findings import did_you_mean, listed
from stepflow.definition.json_text import child
from stepflow.domain.check import OutcomeRule
from stepflow.domain.words import Intent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepflow.definition.check_file import CheckEntry, CheckStepEntry, TransitionEntry
    from stepflow.definition.findings import FileFindings


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Reads what the two outcomes of one check lead to."""

    step_id: str
    at: str
    check: CheckEntry
    steps: Mapping[str, CheckStepEntry]
    found: FileFindings

    def check_rules(self, high: int) -> None:
        """Report an outcome that leads nowhere, and keys that are never reached."""
        if not self.rules("onPass") and not self.rules("onFail"):
            if not self.found.failed_at(f"{re.escape(self.at)}/on(Pass|Fail)(/.*)?"):
                message = f'step "{self.step_id}": neither "onPass" nor "onFail" of the check says what follows'
                fix = 'Write "onPass", for example {"next": "<step id>"}.'
                self.found.add("SF702", self.at, message, fix)
            return
        for key in ("onPass", "onFail"):
            self._check_targets(key)
            self._note_unreached(key)
            if not self.rules(key) and not (key == "onFail" and high > 1):
                self._warn_nothing(key)

    def _entry(self, key: str) -> TransitionEntry | None:
        return self.check.on_pass if key == "onPass" else self.check.on_fail

    def rules(self, key: str) -> tuple[OutcomeRule, ...]:
        """What follows, in the order of reading (registry.md §6.2)."""
        entry = self._entry(key)
        return tuple(_rules(entry)) if entry is not None else ()

    def _warn_nothing(self, key: str) -> None:
        outcome = "pass" if key == "onPass" else "fail"
        entry, place = self._entry(key), child(self.at, key)
        message = f'step "{self.step_id}": nothing says what follows a {outcome}, so it ends the run as failed'
        if not self.found.at(place):
            fix = f'Give "{key}" one of "next", "fallback", "retry" and "complete".'
            self.found.add("SF706", self.at if entry is None else place, message, fix)

    def _check_targets(self, key: str) -> None:
        entry = self._entry(key)
        for name, target in (("next", entry.next), ("fallback", entry.fallback)) if entry else ():
            if target is not None and target not in self.steps:
                message = f'step "{self.step_id}": "{name}" names "{target}", which does not exist'
                message += did_you_mean(target, self.steps)
                place = child(child(self.at, key), name)
                self.found.add("SF703", place, message, f"Name a step; there are {listed(self.steps)}.")

    def _note_unreached(self, key: str) -> None:
        entry = self._entry(key)
        for name, why in _unreached(entry) if entry else ():
            message = f'step "{self.step_id}": "{name}" of "{key}" is never reached, because {why}'
            place = child(child(self.at, key), name)
            self.found.add("SF709", place, message, "Remove the key, or leave it.")


def _rules(entry: TransitionEntry) -> Iterator[OutcomeRule]:
    if entry.complete:
        yield OutcomeRule(intent=Intent.CLOSING, transition="complete")
    elif entry.next is not None:
        yield OutcomeRule(intent=Intent.NEXT, transition="next", target=entry.next)
    else:
        if entry.retry:
            most = entry.max_retries or None
            yield OutcomeRule(intent=Intent.REPEAT, transition="retry", retries_below=most)
        if entry.fallback is not None and not (entry.retry and not entry.max_retries):
            yield OutcomeRule(intent=Intent.JUMP, transition="fallback", target=entry.fallback)


def _unreached(entry: TransitionEntry) -> Iterator[tuple[str, str]]:
    """The written keys that the order of reading never comes to, each with the reason."""
    given = {
        "next": entry.next is not None,
        "retry": entry.retry,
        "maxRetries": entry.max_retries > 0,
        "fallback": entry.fallback is not None,
    }
    if entry.complete or entry.next is not None:
        first = "complete" if entry.complete else "next"
        yield from ((name, f'"{first}" comes first') for name in given if given[name] and name != first)
    elif not entry.retry and given["maxRetries"]:
        yield "maxRetries", 'there is no "retry": true'
    elif entry.retry and not given["maxRetries"] and given["fallback"]:
        yield "fallback", '"retry" has no limit of its own'
