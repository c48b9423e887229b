"""A proof as people read it on GitHub."""

from __future__ import annotations

import pytest

from stepflow.domain.proof import (
    HunkPolicy,
    Proof,
    ProofVerdict,
    Trial,
    TrialOutcome,
    TriedHunk,
    WeakenedTest,
    Weakening,
)
from stepflow.report.proof import describe_proof, link_into_diff, proof_annotations, proof_section

BAD = "a|<b>`_x_`\n::error::x\n[y](https://z.example)"


def part(file: str, lines: tuple[int, int], held_by: tuple[str, ...] | None, *, exempt: str = "") -> TriedHunk:
    return TriedHunk(file=file, lines=lines, held_by=held_by, tried=not exempt, exempt=exempt)


def proof(*hunks: TriedHunk, tests: tuple[str, ...] = ("test_days", "test_weeks"), **facts: object) -> Proof:
    before = Trial(outcome=TrialOutcome.FAILED, tests=tests, output=f"F.\n```\n{BAD}")
    known = {"verdict": ProofVerdict.PROVEN, "reason": "The tests fail without the change and pass with it.", **facts}
    return Proof(before=before, after=Trial(outcome=TrialOutcome.PASSED), hunks=hunks, **known)  # type: ignore[arg-type]


def test_a_section_shows_what_was_tried_first_and_leads_into_the_diff() -> None:
    whole = proof(
        part("durations.py", (2, 2), None, exempt="comments or formatting"),
        part("durations.py", (5, 5), ("test_days", "b", "c", "d")),
        part("durations.py", (14, 18), None),
        part("old.py", (0, 0), ()),
        weakened=(WeakenedTest(name="test_hours", how=Weakening.REMOVED),),
        notes=("3 changes were not tried: at most 20 are tried.",),
    )
    lines = proof_section(whole, link_into_diff("https://github.com/o/r/pull/3")).split("\n")
    digest = "c66014e218dcc3d20577e700e15e1c7c3059b467a78a41cf503559faa2610642"
    assert lines[0] == (
        "✅ **Proven.** 2 tests fail without the change and pass with it. 2 of 3 changes are held by a test; "
        "durations.py:14-18 is not."
    )
    rows = [line for line in lines if line.startswith("| [")]
    assert [row.rpartition(" | ")[2] for row in rows] == [
        "✅ `test_days`, `b`, `c` and 1 more |",
        "⚠️ no test fails without it |",
        "✅ held |",
        "comments or formatting only |",
    ]
    assert rows[1].startswith(f"| [durations.py:14-18](https://github.com/o/r/pull/3/files#diff-{digest}R14-R18) |")
    assert "#diff-" in rows[2]
    assert rows[2].count("R") == 0
    assert "⚠️ Removed or renamed in the tests: test\\_hours." in lines
    assert "3 changes were not tried: at most 20 are tried." in lines


def test_names_and_output_of_others_stay_text() -> None:
    text = proof_section(proof(part(BAD, (1, 1), (BAD,)), weakened=(WeakenedTest(name=BAD, how=Weakening.FAILS),)))
    row = next(line for line in text.split("\n") if line.startswith("| a"))
    assert "](" not in row.replace("\\]\\(", "")
    assert row.replace("\\|", "").count("|") == 3
    assert "<b>" not in text.partition("````")[0]
    assert text.count("````") == 2
    annotations = proof_annotations(proof(part(BAD, (1, 2), None), policy=HunkPolicy.REQUIRE))
    assert [line.partition(" ")[0] for line in annotations] == ["::warning", "::error"]
    assert not any("\n" in line for line in annotations)


def test_github_shows_ten_warnings_so_the_last_one_names_the_rest() -> None:
    loose = [part("a.py", (line, line), None) for line in range(1, 14)]
    assert len(proof_annotations(proof(*loose[:10]))) == 10
    *first, last = proof_annotations(proof(*loose))
    assert len(first) == 9
    assert last == "::warning title=4 more parts not held by a test::a.py:10, a.py:11, a.py:12, a.py:13"


def test_a_warning_stands_on_all_lines_of_a_part_or_on_the_file_that_lost_some() -> None:
    parts = proof(part("a.py", (3, 5), None), part("b.py", (0, 0), None), part("c.py", (1, 1), ("t",)))
    title = "title=Not held by a test"
    assert proof_annotations(parts) == (
        f"::warning file=a.py,line=3,endLine=5,{title}::No test fails without this.",
        f"::warning file=b.py,{title}::No test fails if what was removed here comes back.",
    )


@pytest.mark.parametrize(
    ("tests", "says"),
    [
        (("a",), "1 test fails without the change and passes with it."),
        (("a", "b"), "2 tests fail without the change and pass with it."),
        ((), "The tests fail without the change and pass with it."),
        (tuple(map(str, range(20))), "The tests fail without the change and pass with it."),
    ],
)
def test_failing_tests_are_counted_where_all_are_known(tests: tuple[str, ...], says: str) -> None:
    assert describe_proof(proof(tests=tests)) == says
