"""Formats a proof of fix: lines for the terminal, a section for pages on GitHub, annotations, and JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from markupsafe import Markup
from pydantic import TypeAdapter

from stepflow.domain.json import JsonObject
from stepflow.domain.proof import (
    MOST_TESTS,
    ChangedLines,
    Proof,
    ProofVerdict,
    Trial,
    TrialOutcome,
    TriedHunk,
    WeakenedTest,
    Weakening,
)
from stepflow.domain.text import count, name_some
from stepflow.report.diagnostic import annotation
from stepflow.report.safe_text import (
    FILTERS,
    Command,
    Line,
    Tone,
    clean_line,
    last_lines,
    link,
    mark_of,
    one_line,
    render,
)

CELL = 80
#: Lines of output shown of a trial that decided against the change.
OUTPUT_LINES = 10
#: Parts in the table of a section, and tests named for each.
MOST_ROWS = 40
MOST_NAMES = 3
#: GitHub shows so many warnings of a step (actions/toolkit, docs/problem-matchers.md).
MOST_WARNINGS = 10
_TITLES = {
    ProofVerdict.PROVEN: "Proven",
    ProofVerdict.UNPROVEN: "Not proven",
    ProofVerdict.NO_TESTS: "No tests",
    ProofVerdict.NOT_TRIED: "Not tried",
}


def proof_lines(proof: Proof) -> list[Line]:
    """Return the verdict with its reason, and a row for each part of the change."""
    proven = proof.verdict is ProofVerdict.PROVEN
    mark = mark_of(proven)
    lines = [Line(mark.tone, f"{mark.text} {proof.verdict.value}: {describe_proof(proof)}")]
    for each in proof.hunks:
        tone = Tone.WARNING if each in proof.not_held else Tone.PLAIN
        lines.append(Line(tone, f"  {_place(each)}  {_holds(each)}"))
    decisive = _decisive(proof)
    if not proven and decisive and decisive.output:
        lines += [Line(Tone.PLAIN, f"  │ {text}") for text in last_lines(decisive.output, OUTPUT_LINES)]
    return lines


def _place(tried: TriedHunk) -> str:
    return one_line(tried.place, CELL)


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


def correction(proof: Proof) -> str:
    """Return what a model that made the change is told of it: the verdict, what is missing, and the output that shows
    it. Empty parts are left out."""
    decisive = _decisive(proof)
    advice = {
        ProofVerdict.NO_TESTS: _ADD_TEST,
        ProofVerdict.UNPROVEN: _TEST_THE_CHANGE if proof.before else "",
    }.get(proof.verdict, "")
    loose = "".join(f"- No test notices when {_place(hunk)} is reverted.\n" for hunk in proof.not_held)
    hold = f"{loose}\n{_HOLD}" if loose else ""
    output = decisive.output if decisive and proof.verdict is not ProofVerdict.PROVEN else ""
    return "\n\n".join(filter(None, (describe_proof(proof), advice, hold, output)))


_ADD_TEST = "Add a test that fails without your change and passes with it, and commit it."
_TEST_THE_CHANGE = (
    "The changed test files were run on the base commit, without the rest of your change. At least one of their tests "
    "must fail there, because of what your change repairs, and pass with it."
)
_HOLD = "Test these parts as well, or leave out of the change what it does not need."


def describe_proof(proof: Proof) -> str:
    """Return the proof in two or three sentences."""
    return clean_line(" ".join((*_sentences(proof), *_describe_weakened(proof.weakened), *proof.notes)))


def _sentences(proof: Proof) -> Iterator[str]:
    """Yield what is shown, and which parts are held."""
    failed = len(proof.before.tests) if proof.before and proof.before.outcome is TrialOutcome.FAILED else 0
    if proof.verdict is ProofVerdict.PROVEN and 0 < failed < MOST_TESTS:
        fail, pass_ = ("fails", "passes") if failed == 1 else ("fail", "pass")
        yield f"{count(failed, 'test')} {fail} without the change and {pass_} with it."
    else:
        yield proof.reason
    judged, loose = sum(each.tried for each in proof.hunks), proof.not_held
    if judged:
        held = judged - len(loose)
        sentence = f"{held} of {count(judged, 'change')} {'is' if held == 1 else 'are'} held by a test"
        places = name_some(map(_place, loose))
        yield f"{sentence}; {places} {'is' if len(loose) == 1 else 'are'} not." if loose else f"{sentence}."


_WEAKENED = {
    Weakening.FAILS: "With the change, these tests of the base fail",
    Weakening.REMOVED: "Removed or renamed in the tests",
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


def _decisive(proof: Proof) -> Trial | None:
    return proof.before if proof.before and proof.before.output else proof.after


#: Where the lines of a part are shown; empty if nowhere.
LinkTo = Callable[[ChangedLines], str]


def without_links(_part: ChangedLines) -> str:
    """Return no link, where the lines are shown nowhere."""
    return ""


def proof_section(proof: Proof, link_to: LinkTo = without_links) -> str:
    """Return the proof as Markdown for GitHub, without a heading."""
    return render(
        "proof.md.j2",
        proof=proof,
        accepted=proof.is_accepted,
        title=_title(proof),
        described=" ".join(_sentences(proof)),
        # The parts that were tried come first.
        rows=sorted(proof.hunks, key=lambda each: not each.tried)[:MOST_ROWS],
        link_to=link_to,
        names=_names,
        weakened=tuple(_describe_weakened(proof.weakened)),
        decisive=_decisive(proof),
    )


def proof_summary(proof: Proof, link_to: LinkTo, *, job_url: str = "") -> str:
    """Return the proof as a page of its own, with a link to the job that made it."""
    below = (link("The job that tried it", job_url),) if job_url else ()
    return "\n\n".join(("## Proof of fix", proof_section(proof, link_to), *below))


def _title(proof: Proof) -> str:
    proven = proof.verdict is ProofVerdict.PROVEN
    return "Not every part is held" if proven and not proof.is_accepted else _TITLES[proof.verdict]


def _names(names: Sequence[str]) -> Markup:
    """Return names as Markdown."""
    shown = ", ".join(FILTERS["code_cell"](name, CELL) for name in names[:MOST_NAMES])
    return Markup(shown + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""))  # noqa: S704 - each is escaped


def link_into_diff(pull_request_url: str) -> LinkTo:
    """Return where a pull request shows the lines of a part: GitHub names files there by the digest of their path."""

    def link_to(part: ChangedLines) -> str:
        digest = hashlib.sha256(part.file.encode(errors="surrogateescape")).hexdigest()
        first, last = part.lines
        lines = f"R{first}" if first == last else f"R{first}-R{last}"
        return f"{pull_request_url}/files#diff-{digest}{lines if first else ''}"

    return link_to


def proof_annotations(proof: Proof) -> tuple[Command, ...]:
    """Return the verdict as an error unless the change is proven, and a warning on the lines of each part that no test
    holds, as far as GitHub shows them."""
    parts = proof.not_held
    shown = parts if len(parts) <= MOST_WARNINGS else parts[: MOST_WARNINGS - 1]
    lines = [
        annotation(
            "warning",
            "No test fails without this." if each.lines[0] else "No test fails if what was removed here comes back.",
            file=each.file,
            line=each.lines[0] or None,
            end_line=each.lines[1] or None,
            title="Not held by a test",
        )
        for each in shown
    ]
    if rest := parts[len(shown) :]:
        places = name_some(map(_place, rest))
        lines.append(annotation("warning", places, title=f"{count(len(rest), 'more part')} not held by a test"))
    if not proof.is_accepted:
        lines.append(annotation("error", describe_proof(proof), title=_title(proof)))
    return tuple(lines)
