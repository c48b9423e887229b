"""The reference page is made from the code, and is complete."""

from __future__ import annotations

import re

import pytest

from stepflow.definition.diagnostics import rules
from stepflow.definition.shapes import field_notes
from stepflow.domain.words import VerdictType
from stepflow.engine.extract import EXTRACTORS
from tests.docs.reference import PAGE, page
from tests.docs.reference_words import EXTRACTED, GROUPS, VERDICTS


@pytest.fixture(scope="module")
def text() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.whole
def test_the_page_is_up_to_date(text: str) -> None:
    assert text == page(), "docs/registry.md is not up to date: make docs"


def test_every_key_and_every_code_is_on_the_page(text: str) -> None:
    for notes in field_notes().values():
        for key, note in notes.items():
            assert re.search(rf"^\| (\*\*)?`{re.escape(key)}`", text, re.M), key
            assert note.text.replace("|", "\\|") in text
    assert re.findall(r"</a>(SF\d{3}) \|", text) == list(rules())


def test_every_code_that_the_corpus_shows_has_an_example_on_the_page(text: str) -> None:
    rows = re.findall(r"</a>(SF\d{3}) \| \w+ \| .+? \| (.*) \|$", text, re.M)
    assert len(rows) > 70
    # SF608 depends on the machine that looks.
    assert [code for code, example in rows if not example] == ["SF608"]
    assert not re.search(r"/tmp|/home|/work", text)


def test_every_verdict_type_extractor_and_group_has_its_words() -> None:
    assert set(VERDICTS) == set(VerdictType)
    assert {EXTRACTORS[name] for name in EXTRACTED} == set(EXTRACTORS.values())
    assert {code[2] for code in rules()} == set(GROUPS)
