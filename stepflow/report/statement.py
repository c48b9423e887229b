"""The statement about a run that pushed its work, an in-toto Statement (v1) derived from the journal alone, and what
`stepflow verify` found when it checked one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter
from pydantic.alias_generators import to_camel

from stepflow.domain.conversation import ModelTurn
from stepflow.domain.effect import EffectKind
from stepflow.domain.event import Entry, RunResumed, RunStarted, ValidatorRan, WorkCollected
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.proof import Proof
from stepflow.domain.reports.report import CheckState, JournalDigest, Verification
from stepflow.domain.text import count
from stepflow.domain.words import Outcome
from stepflow.report.collect import collect_report
from stepflow.report.safe_text import Line, Tone, aligned, mark_of, one_line

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
#: Describes the predicate. The tag moves with the first major version, as the predicate may grow with it.
PREDICATE_TYPE = "https://github.com/org/stepflow-action/blob/v1/docs/how-to/verify.md"
#: The attested file's name in the run folder, and so the subject's.
SUBJECT = "journal.jsonl"


@dataclass
class _Watched:
    """What a statement says in addition to the report: collected while the report reads the entries."""

    started: RunStarted | None = None
    tree: str = ""
    models: dict[str, None] = field(default_factory=dict)
    versions: dict[str, None] = field(default_factory=dict)
    #: The last line of each part of a run that was resumed.
    ends: list[int] = field(default_factory=list)

    def watch(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        for entry in entries:
            match entry.event:
                case RunStarted(stepflow_version=version):
                    self.started = entry.event
                    self.versions[version] = None
                case RunResumed(stepflow_version=version, events=lines):
                    self.versions[version] = None
                    self.ends.append(lines)
                case WorkCollected(tree=tree):
                    self.tree = tree
                case ModelTurn(model=model):
                    self.models[model] = None
                case _:
                    pass
            yield entry


def make_statement(entries: Iterable[Entry], digest: JournalDigest) -> JsonObject | None:
    """Return the statement about the run in this journal; None unless it completed and pushed a commit."""
    seen = _Watched()
    report = collect_report(seen.watch(entries))
    receipts = {receipt.kind: receipt for receipt in report.effects}
    pushed = receipts.get(EffectKind.PUSH_BRANCH)
    if seen.started is None or report.outcome is not Outcome.COMPLETED or pushed is None or not pushed.commit:
        return None
    opened = receipts.get(EffectKind.OPEN_PULL_REQUEST)
    follow_up = seen.started.follow_up
    predicate: JsonObject = {
        "run": {
            "id": report.run_id,
            "stepflow": [*seen.versions],
            "repository": seen.started.repository,
            "issue": report.issue,
            "pullRequest": opened.number if opened else follow_up.pull_request if follow_up else None,
        },
        "commit": {
            "gitCommit": pushed.commit,
            "gitTree": seen.tree,
            "branch": pushed.branch,
            "base": {"gitCommit": report.base_commit},
        },
        "definition": {"agent": report.agent, "digest": {"sha256": report.definition_digest}},
        "result": {"outcome": report.outcome, "validated": report.validated, "verdict": report.verdict},
        "validators": [_validator(each) for each in report.validators],
        "proof": TypeAdapter(Proof).dump_python(report.proof, mode="json") if report.proof else None,
        "models": [*seen.models],
        "usage": {**{to_camel(name): n for name, n in asdict(report.usage).items()}, "costUsd": report.cost_usd},
        "sandbox": {"layers": {**report.isolation}, "selfTest": {**report.canaries}},
        "hosts": [asdict(each) for each in report.hosts],
        "journal": {
            "lines": digest.lines,
            "chain": digest.link(digest.lines),
            "parts": [{"lines": end, "chain": digest.link(end)} for end in (*seen.ends, digest.lines)],
        },
    }
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": SUBJECT, "digest": {"sha256": digest.sha256}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }


def _validator(run: ValidatorRan) -> JsonObject:
    # The journal keeps the end of the output, without secrets: what else there was is not known any more.
    tail = hashlib.sha256(run.output_tail.encode("utf-8", "backslashreplace")).hexdigest()
    return {
        "iteration": run.iteration,
        "name": run.name,
        "command": run.command,
        "passed": run.passed,
        "exitCode": run.exit_code,
        "outputTail": {"sha256": tail},
    }


def find_differences(given: JsonValue, derived: JsonValue, path: str = "") -> Iterator[str]:
    """Yield the dotted path of each value that two statements do not share."""
    if isinstance(given, dict) and isinstance(derived, dict):
        for key in sorted({*given, *derived}):
            inner = f"{path}.{key}" if path else key
            if key not in given or key not in derived:
                yield inner
            else:
                yield from find_differences(given[key], derived[key], inner)
    elif isinstance(given, list) and isinstance(derived, list) and len(given) == len(derived):
        for number, pair in enumerate(zip(given, derived, strict=True)):
            yield from find_differences(*pair, f"{path}.{number}")
    # JSON tells 1 from true and from 1.0.
    elif type(given) is not type(derived) or given != derived:
        yield path


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
    return lines


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
