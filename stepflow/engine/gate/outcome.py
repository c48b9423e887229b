"""Read the outcome of a check, and what it leads to.

Takes: the answer or the text of a check, and the step's `Check`. Gives: `Judged`, then `Decision` (flow.md §7).
May touch: nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.domain.decision import Decided, Decision, Undecided
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.engine.gate.answer import find_object

if TYPE_CHECKING:
    from stepflow.domain.check import Check

PASS_WORDS = frozenset({"ok", "pass", "true"})
FAIL_WORDS = frozenset({"ng", "fail", "false"})

#: `result`, at most five characters that are no letters, and one of the six words (flow.md §7).
RESULT_IN_TEXT = re.compile(r"\bresult[\W\d_]{0,5}(ok|pass|true|ng|fail|false)\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The outcome of a check, with what was said about it."""

    passed: bool
    message: str = ""

    @property
    def word(self) -> str:
        """The outcome's word in log and history."""
        return "ok" if self.passed else "ng"


def read_result(value: JsonValue) -> bool | None:
    """True for a pass, False for a fail, None for what is neither."""
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    return True if word in PASS_WORDS else False if word in FAIL_WORDS else None


def read_check_answer(text: str) -> Judged:
    """The answer to a check question; what cannot be read has failed."""
    answer = find_object(text)
    if answer is None:
        words = {word.lower() for word in RESULT_IN_TEXT.findall(text)}
        return Judged(passed=bool(words) and words <= PASS_WORDS)
    return Judged(passed=read_result(answer.get("result")) is True, message=_message(answer))


def read_own_result(check: Check, answer: JsonObject | None) -> Judged:
    """The outcome that a step's own answer tells, for a check that asks no second question."""
    result = read_result(answer.get("result")) if answer is not None else None
    passed = result is True or (result is None and not check.is_demanded)
    return Judged(passed=passed, message=_message(answer or {}))


def read_handoff(check: Check, answer: JsonObject) -> tuple[JsonObject, tuple[str, ...]]:
    """What the answer hands on, and the declared keys that it does not hold."""
    own = answer.get("handoff")
    holder = own if isinstance(own, dict) else {}
    found = {key: answer.get(key) if holder.get(key) is None else holder[key] for key in check.handoff_keys}
    given: JsonObject = {key: value for key, value in found.items() if value is not None}
    return given, tuple(key for key in found if key not in given)


def decide_outcome(check: Check, judged: Judged, answer: JsonObject, *, runs: int, retries: int) -> Decision:
    """The first rule of the outcome that still holds. `runs` and `retries` are of this visit, this run included."""
    rules = check.on_pass if judged.passed else check.on_fail
    rule = next((rule for rule in rules if rule.holds(runs=runs, retries=retries)), None)
    if rule is None:
        return Undecided(reason=_nothing_left(judged, runs, retries), lacking="no way on from the check")
    handoff, missing = read_handoff(check, answer)
    return Decided(
        intent=rule.intent,
        target=rule.target,
        transition=rule.transition,
        reason=judged.message or f"the check {'passed' if judged.passed else 'failed'}",
        handoff=handoff,
        missing=missing,
    )


def _message(answer: JsonObject) -> str:
    message = answer.get("message")
    return message if isinstance(message, str) else ""


def _nothing_left(judged: Judged, runs: int, retries: int) -> str:
    outcome, key = ("passed", "onPass") if judged.passed else ("failed", "onFail")
    said = f" ({judged.message})" if judged.message else ""
    spent = f"in this visit the step ran {runs} times and used {retries} retries"
    return f'the check {outcome}{said}, and "{key}" leads nowhere: {spent}'
