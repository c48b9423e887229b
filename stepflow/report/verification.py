"""Shows what `stepflow verify` checked, on a terminal and as JSON."""

from __future__ import annotations

from dataclasses import asdict

from stepflow.domain.json import JsonObject
from stepflow.domain.reports.report import CheckState
from stepflow.domain.reports.statement import Verification
from stepflow.domain.text import count
from stepflow.report.safe_text import aligned, defuse, one_line
from stepflow.report.wording import Line, Tone, mark_of

LONGEST_DETAIL = 600


def describe_verification(verification: Verification) -> str:
    """Return the verdict in one sentence."""
    failed, checks = len(verification.failed), len(verification.checks)
    where = f"{verification.pull_request} at {verification.head[:12]}"
    if failed:
        return f"{where} is not verified: {failed} of {count(checks, 'check')} failed"
    if not verification.is_signed:
        return f"{where} agrees with its statement, but who made that was not checked"
    return f"{where} is verified"


def verification_lines(verification: Verification) -> list[Line]:
    """Return the verdict, and one line per check; what to do follows those that did not pass."""
    state = CheckState.OK if verification.is_verified else CheckState.WARNING
    mark = mark_of(CheckState.FAILED if verification.failed else state)
    lines = [Line(mark.tone, f"{mark.text} {describe_verification(verification)}")]
    rows = aligned(
        (f"  {mark_of(check.state).text} {check.name}", one_line(check.detail, LONGEST_DETAIL))
        for check in verification.checks
    )
    for check, row in zip(verification.checks, rows, strict=True):
        lines.append(Line(mark_of(check.state).tone, row))
        if check.hint:
            lines.append(Line(Tone.PLAIN, f"    → {one_line(check.hint, LONGEST_DETAIL)}"))
    return [Line(tone, defuse(text)) for tone, text in lines]


def verification_json(verification: Verification) -> JsonObject:
    """Return the same as a JSON object."""
    return {
        "schema": 1,
        "pull_request": verification.pull_request,
        "head": verification.head,
        "verified": verification.is_verified,
        "signed": verification.is_signed,
        "summary": describe_verification(verification),
        "checks": [{**asdict(check), "state": check.state.value} for check in verification.checks],
    }
