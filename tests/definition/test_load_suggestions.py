"""Suggestions are right or absent: in the corpus, and in texts that are almost JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_cases import Case, cases
from mending import apply_suggestion, offset

from stepflow.definition.json_mend import looks_like_yaml, mend
from stepflow.definition.json_text import JsonFault, parse_json
from stepflow.definition.loading import validate_agent
from stepflow.definition.placing import Source, place
from stepflow.definition.suggest import meant, rename, write
from stepflow.domain.problem import Problem, Severity
from tests.tried import tried

#: Mending these shows what stood behind them, or moves another error to another item.
SHOWS_ANOTHER = {("check-handoff-keys", "SF708"), ("check-prompt-reference", "SF701")}
CASES = [case for case in cases("invalid") if "arguments" not in case.data]


def same(problem: Problem) -> tuple[str, ...]:
    return problem.code, problem.file, problem.path, problem.message


@pytest.mark.whole
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_suggestion_of_the_corpus_mends_its_problem_and_brings_no_error(case: Case, tmp_path: Path) -> None:
    before = validate_agent(case.agent, root=case.build(tmp_path / "0"), **case.options)
    known = {same(problem) for problem in before}
    for number, problem in enumerate(before, 1):
        assert problem.fix.endswith((".", "!"))
        if problem.suggestion is None:
            continue
        assert problem.suggestion.words.endswith(".")
        root = case.build(tmp_path / str(number))
        apply_suggestion(problem.suggestion, root)
        after = validate_agent(case.agent, root=root, **case.options)
        assert same(problem) not in {same(each) for each in after}, problem.suggestion
        if (case.name, problem.code) not in SHOWS_ANOTHER:
            assert [each for each in after if each.severity is Severity.ERROR and same(each) not in known] == []


@pytest.mark.parametrize("missing", ["/a/stepId", "/b"])
def test_half_a_suggestion_is_none(missing: str) -> None:
    """A key that is renamed and a value that is to follow it: one without the other would bring the next error."""
    problem = Problem(code="SF606", severity=Severity.ERROR, file="r.json", path="/a", line=None, message="m", fix="f.")
    sources = {"r.json": Source.of('{"a": {"id": "a"}}', is_json=True)}
    whole = (*rename("/a", "b"), *write("/a/id", "b"))
    assert place(problem, "", whole, ".agent/demo", sources).suggestion is not None
    half = (*rename("/a", "b"), *write(missing, "b"))
    assert place(problem, "", half, ".agent/demo", sources).suggestion is None


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ('{"a": [1, 2,],}', '{"a": [1, 2],}'),
        ('{"a": 1,}', '{"a": 1}'),
        ('{"a": 1,\n}\n', '{"a": 1\n}\n'),
        ('{"a": 1 // one\n}', '{"a": 1\n}'),
        ('{\n  # one\n  "a": 1\n}', '{\n  "a": 1\n}'),
        ('{"a": /* one\n two */ 1}', '{"a": 1}'),
        ("{'a': 1}", '{"a": 1}'),
        ('{a: 1}', '{"a": 1}'),
        ('{"a": True}', '{"a": true}'),
        ('{"a": None}', '{"a": null}'),
        ('{"a": 1 "b": 2}', '{"a": 1, "b": 2}'),
        ('{"a": "x\ty"}', '{"a": "x\\ty"}'),
        ('{"a": "\\d+"}', '{"a": "\\\\d+"}'),
        ('{"a": 1}}', '{"a": 1}'),
        ('{"a": [1', '{"a": [1]}'),
        ('{"a": 1', '{"a": 1}'),
    ],
)  # fmt: skip
def test_what_is_almost_json_is_mended(text: str, mended: str) -> None:
    assert " ".join(once(text).split()) == " ".join(mended.split())


@pytest.mark.parametrize("text", ["", "hello", "a: 1\nb: 2\n", '{"a" 1}', '{"a": }', '{"a": "x\ny"}', "[" * 200])
def test_where_nobody_knows_what_was_meant_nothing_is_suggested(text: str) -> None:
    assert once(text) == text


def once(text: str) -> str:
    """The text after the first suggestion, if there is one."""
    try:
        parse_json(text)
    except JsonFault as fault:
        if fault.line is not None and fault.column is not None:
            for idea in mend(text, fault.line, fault.column):
                assert idea.span is not None
                assert text[slice(*idea.span)] == idea.old
                text = text[: idea.span[0]] + idea.value + text[idea.span[1] :]
    return text


@tried(300)
@given(st.text(alphabet="{}[]\",:/#*'\\\n\t 1aTrue", max_size=40))
def test_a_mended_text_can_be_read_further_than_before(text: str) -> None:
    better = once(text)
    if better != text:
        assert reach(better) > reach(text)


def reach(text: str) -> float:
    try:
        json.loads(text)
    except json.JSONDecodeError as exc:
        return exc.pos - len(text)  # what is left behind counts: an edit may take text away
    return 1


def test_yaml_is_known_from_its_first_line() -> None:
    assert looks_like_yaml("# a registry\nsteps:\n  a: 1\n")
    assert looks_like_yaml("steps:\n")
    assert not looks_like_yaml('{"steps": {}}')
    assert not looks_like_yaml("http://x")


@pytest.mark.parametrize(
    ("word", "known", "found"),
    [
        ("continuation.isue", ["continuation.issue", "initial.issue"], "continuation.issue"),
        ("INITIAL.ISSUE", ["continuation.issue", "initial.issue"], "initial.issue"),
        ("step.c", ["step.a", "step.b"], None),
        ("nothing", ["continuation.issue"], None),
        ("x", [], None),
    ],
)
def test_only_the_one_word_that_is_surely_meant_is_suggested(word: str, known: list[str], found: str | None) -> None:
    assert meant(word, known) == found


def test_offsets_count_lines_and_columns_from_one() -> None:
    assert offset("ab\ncd", 2, 2) == 4
