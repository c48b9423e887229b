"""Retry texts (prompts.md §9.1, §9.3 and §9.4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prompt_parts import texts

from stepflow.domain.agent.definition import SourceText, ValidationEntry
from stepflow.domain.flow import ValidatorFailure
from stepflow.engine.prompt.render import RetryText, render_retry

FAILURE = ValidatorFailure(
    validator="git-clean",
    pattern="git-dirty",
    description="There are uncommitted changes.",
    error="two files\n\n are dirty\n",
    exit_code=1,
    stdout="out",
    stderr="two files\n\n are dirty\n",
    attempt=1,
    max_attempts=3,
    values={"changedFiles": ["a.py", "b.py"], "diff": "", "count": 0},
)


def entry(special=None, general=None):
    return ValidationEntry(
        id="closure.issue",
        conditions=(),
        retry_prompts={"git-dirty": SourceText(text=special, file="f_failed_git-dirty.md")} if special else {},
        any_retry_prompt=SourceText(text=general, file="f_failed.md") if general else None,
    )


def retry(validation, failure=FAILURE):
    return render_retry(validation, failure, "closure.issue", texts(issue="7"))


@pytest.mark.parametrize(
    ("validation", "expected"),
    [
        (
            entry("Commit {{changedFiles}}.", "General."),
            RetryText(text="Commit a.py, b.py.", source="f_failed_git-dirty.md"),
        ),
        (entry(general="{{error}}"), RetryText(text=FAILURE.error, source="f_failed.md")),
        (entry("{{#bad}}", "General."), RetryText(text="General.", source="f_failed.md")),
    ],
    ids=["of the pattern", "of the folder", "of the folder when the pattern's cannot be parsed"],
)
def test_the_most_special_prompt_wins(validation, expected):
    assert retry(validation) == expected


@pytest.mark.parametrize("validation", [entry(), entry("{{#bad}}", "{{")], ids=["no file", "none parses"])
def test_without_a_prompt_the_generic_text_is_used(validation):
    assert retry(validation).source == "generic"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("validator", "git-clean"), ("pattern", "git-dirty"), ("description", "There are uncommitted changes."),
        ("details", "two files,  are dirty"), ("exitCode", "1"), ("stdout", "out"), ("stderr", FAILURE.stderr),
        ("attempt", "1"), ("maxAttempts", "3"), ("attemptsLeft", "2"), ("stepId", "closure.issue"),
        ("uv.issue", "7"), ("uv.none", ""), ("changedFiles.1", "b.py"), ("count", "0"),
    ],
)  # fmt: skip
def test_a_retry_prompt_knows_the_failure(name, expected):
    assert retry(entry("{{" + name + "}}")).text == expected


def test_an_extracted_parameter_hides_a_built_in_of_the_same_name():
    failure = replace(FAILURE, values={"error": ["mine"]})
    assert retry(entry("{{error}} {{details}}"), failure).text == "mine two files,  are dirty"


def test_at_most_fifty_details_are_given():
    failure = replace(FAILURE, error="\n\n".join(f"line {number}" for number in range(60)))
    text = retry(entry("{{#each details}}{{this}};{{/each}}"), failure).text
    assert text.count("line ") == 50
    assert "line 59;" in text


@pytest.mark.parametrize("name", ["error", "stdout", "stderr", "output"])
def test_of_a_long_output_the_failure_in_its_middle_and_the_end_are_shown(name):
    long = "\n".join((*["ok"] * 20_000, "--- FAIL: TestGreet", "  got hi", *["ok"] * 20_000, "exit status 1"))
    failure = replace(FAILURE, error=long, stdout=long, stderr=long, values={"output": long})
    for text in (retry(entry("{{" + name + "}}"), failure).text, retry(entry(), failure).text):
        assert "--- FAIL: TestGreet\n  got hi\n" in text.replace("\n  ", "\n") + text
        assert "exit status 1" in text


@pytest.mark.parametrize("name", ["stdout", "list.0", "object.key"])
def test_long_texts_are_cut_in_the_middle_wherever_they_stand(name):
    long = "a" * 15_000 + "b" * 15_000
    failure = replace(FAILURE, stdout=long, values={"list": [long], "object": {"key": long}})
    text = retry(entry("{{" + name + "}}"), failure).text
    assert len(text) <= 20_000
    assert text.startswith("aaa")
    assert text.endswith("bbb")
    assert "characters cut]" in text


def test_the_generic_text_tells_everything_in_order():
    failure = replace(
        FAILURE, values={**FAILURE.values, "errors": [{"file": "x.py", "line": 3}], "note": "a\nb ``` c", "none": None}
    )
    assert retry(entry(), failure).text == (
        "## The closing check did not pass\n\n"
        "Validator `git-clean` failed: There are uncommitted changes.\n\n"
        "```\ntwo files\n\n are dirty\n```\n\n"
        "What was found:\n\n"
        "- changedFiles:\n  - a.py\n  - b.py\n"
        "- count: 0\n"
        '- errors:\n  - {"file":"x.py","line":3}\n'
        "- note:\n\n  ````\n  a\n  b ``` c\n  ````\n\n\n"
        "This was attempt 1 of 3; 2 left.\n\n"
        "Fix the cause, then close again."
    )


def test_the_generic_text_lists_at_most_a_hundred_items():
    text = retry(entry(), replace(FAILURE, values={"files": [f"{number}.py" for number in range(103)]})).text
    assert text.count(".py") == 100
    assert "  - … and 3 more\n" in text


def test_without_error_and_parameters_the_generic_text_has_neither_part():
    text = retry(entry(), replace(FAILURE, error=" \n", values={}, attempt=3)).text
    assert "```" not in text
    assert "What was found" not in text
    assert "attempt 3 of 3; none left" in text
