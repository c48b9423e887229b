"""Formats a proof of fix: lines for the terminal, and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import TypeAdapter

from stepflow.domain.json import JsonObject
from stepflow.domain.proof import Proof, ProofVerdict, TriedHunk, WeakenedTest, Weakening
from stepflow.domain.text import count, name_some
from stepflow.report.safe_text import defuse, one_line
from stepflow.report.wording import Line, Tone, mark_of

CELL = 80
#: Lines of output shown of a trial that decided against the change.
OUTPUT_LINES = 10


def proof_lines(proof: Proof) -> list[Line]:
    """Return the verdict with its reason, and a row for each part of the change."""
    proven = proof.verdict is ProofVerdict.PROVEN
    mark = mark_of(proven)
    lines = [Line(mark.tone, f"{mark.text} {proof.verdict.value}: {describe_proof(proof)}")]
    lines += [Line(Tone.PLAIN if each.held_by or not each.tried else Tone.WARNING, _row(each)) for each in proof.hunks]
    decisive = None if proven else proof.before if proof.before and proof.before.output else proof.after
    if decisive and decisive.output:
        lines += [Line(Tone.PLAIN, f"  │ {line}") for line in decisive.output.splitlines()[-OUTPUT_LINES:]]
    return [Line(line.tone, defuse(line.text)) for line in lines]


def _row(tried: TriedHunk) -> str:
    return f"  {one_line(tried.place, CELL)}  {_holds(tried)}"


def _holds(tried: TriedHunk) -> str:
    if tried.exempt:
        return f"no test can notice: {tried.exempt} only"
    if not tried.tried:
        return "not tried"
    if tried.held_by is None:
        return "not held: no test fails without it"
    names = ", ".join(one_line(name, CELL) for name in tried.held_by[:3])
    return f"held by {names}" if names else "held"


def proof_json(proof: Proof) -> JsonObject:
    """Return the proof as a JSON object, as `report.json` has it, with its summary."""
    return {"proof": {"summary": describe_proof(proof), **TypeAdapter(Proof).dump_python(proof, mode="json")}}


def describe_proof(proof: Proof) -> str:
    """Return the proof in two or three sentences."""
    sentences = [proof.reason]
    judged = [each for each in proof.hunks if each.tried]
    if judged:
        held = [each for each in judged if each.held_by is not None]
        loose = [each for each in judged if each.held_by is None]
        sentence = f"{len(held)} of {count(len(judged), 'change')} {'is' if len(held) == 1 else 'are'} held by a test"
        places = name_some(hunk.place for hunk in loose)
        sentences.append(f"{sentence}; no test notices without {places}." if loose else f"{sentence}.")
    sentences += _describe_weakened(proof.weakened)
    return " ".join((*sentences, *proof.notes))


_WEAKENED = {
    Weakening.FAILS: "With the change, these tests of the base fail",
    Weakening.REMOVED: "Removed or renamed tests",
    Weakening.SKIPPED: "Tests that are skipped now",
    Weakening.MAY_BE_SKIPPED: "Tests that may be skipped now",
    Weakening.EXPECTED_FAILURE: "Tests that are expected to fail now",
    Weakening.ASSERTS_LESS: "Tests that may assert less now",
    Weakening.REWRITTEN: "Expected output that was rewritten",
}


def _describe_weakened(weakened: Iterable[WeakenedTest]) -> Iterator[str]:
    for how, words in _WEAKENED.items():
        if names := list(dict.fromkeys(one_line(each.name, CELL) for each in weakened if each.how is how)):
            yield f"{words}: {name_some(names)}."
