"""A rehearsal for programs (`stepflow rehearse --json`).

Takes: `Rehearsal`. Gives: JSON.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.words import Outcome

if TYPE_CHECKING:
    from stepflow.domain.json import JsonObject
    from stepflow.domain.rehearsal import Difference, Rehearsal, Rehearsed

SCHEMA = 1


def rehearsal_json(rehearsal: Rehearsal) -> JsonObject:
    """Everything that the table shows, under the same words."""
    return {
        "schema": SCHEMA,
        "outcome": rehearsal.outcome.value,
        "success": rehearsal.outcome is Outcome.COMPLETED,
        "scenarios": [_scenario(each) for each in rehearsal.scenarios],
        "unrehearsed": list(rehearsal.unrehearsed),
    }


def _scenario(rehearsed: Rehearsed) -> JsonObject:
    return {
        "agent": rehearsed.agent,
        "scenario": rehearsed.name,
        "file": rehearsed.file,
        "line": rehearsed.line,
        "passed": rehearsed.passed,
        "updated": rehearsed.updated,
        "refusal": rehearsed.refusal,
        "outcome": rehearsed.outcome.value,
        "reason": rehearsed.reason,
        "iterations": rehearsed.iterations,
        "seconds": round(rehearsed.seconds, 3),
        "differences": [_difference(each) for each in rehearsed.differences],
        "notes": list(rehearsed.notes),
        "run_folder": rehearsed.run_folder,
    }


def _difference(difference: Difference) -> JsonObject:
    return {
        "what": difference.what,
        "rows": [{"place": row.place, "expected": row.expected, "came": row.came} for row in difference.rows],
    }
