"""CONTRIBUTING.md: its commands exist, and `make test-changed` chooses the tests that a change needs."""

from __future__ import annotations

import re

import pytest

from tests.changed import ROOT, changed_files, modules_of, nearest_tests, pages_that_quote, quoting_tests

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def test_every_target_that_the_page_names_exists() -> None:
    named = set(re.findall(r"(?:`|^)make ([a-z0-9-]+)(?=`|\s)", TEXT, re.MULTILINE))
    assert {"test-changed", "docs", "lint"} <= named
    assert named - TARGETS == set()


@pytest.mark.parametrize(
    ("file", "test"),
    [
        ("stepflow/engine/extract.py", "tests/engine/test_extract.py"),
        ("stepflow/engine/extract.py", "tests/docs/test_docs_reference.py"),
        ("stepflow/run/start/inputs.py", "tests/docs/test_docs_readme.py"),
        ("action.yml", "tests/docs/test_docs_readme.py"),
        ("docs/use.md", "tests/docs/test_docs_pages.py"),
        ("tests/engine/test_extract.py", "tests/engine/test_extract.py"),
    ],
)
def test_a_change_has_the_tests_that_would_notice_it(file: str, test: str) -> None:
    assert nearest_tests([file])[test] == 0


def test_a_file_that_is_no_module_counts_as_those_that_read_it() -> None:
    assert "stepflow.definition.rules" in modules_of(["stepflow/definition/rules.md"])


def test_what_quotes_a_text_that_is_gone_is_named_with_the_test() -> None:
    gone = "`stepflow explain CODE` shows a rule offline."
    file = ROOT / "tests/docs/test_docs_contributing.py"
    assert list(quoting_tests(file, {gone}, set())) == [
        "tests/docs/test_docs_contributing.py::test_what_quotes_a_text_that_is_gone_is_named_with_the_test"
    ]
    assert list(quoting_tests(file, {gone}, {gone + " Still."})) == []
    assert pages_that_quote({gone}, set()) == ["docs/rules/README.md"]


def test_a_base_that_is_not_here_is_named_with_what_to_write() -> None:
    with pytest.raises(SystemExit, match=r"There is no branch nowhere here\. .* make test-changed BASE="):
        changed_files("nowhere")
