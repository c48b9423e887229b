"""The pages of keys and rules are made from the code, and are complete."""

from __future__ import annotations

import re

import pytest

from stepflow.definition.rules import GROUPS, group_of, rules
from stepflow.definition.shapes import field_notes
from stepflow.domain.words import VerdictType
from stepflow.engine.extract import EXTRACTORS
from tests.docs.reference import KEYS, RULES, outdated
from tests.docs.reference_words import EXTRACTED, VERDICTS


@pytest.mark.whole
def test_the_pages_are_up_to_date() -> None:
    assert outdated() == [], "run `make docs`"


def test_every_key_is_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in sorted(KEYS.glob("*.md")))
    for notes in field_notes().values():
        for key, note in notes.items():
            assert re.search(rf"^\| (\*\*)?`{re.escape(key)}`", text, re.M), key
            assert note.text.replace("|", "\\|") in text


def test_every_rule_has_one_section_on_the_page_of_its_group_and_a_row_in_the_index() -> None:
    for group in GROUPS.values():
        text = (RULES / f"{group.page}.md").read_text(encoding="utf-8")
        assert re.findall(r"^## (SF\d{3})$", text, re.M) == [code for code in rules() if group_of(code) == group]
    index = (RULES / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \[(SF\d{3})\]", index, re.M) == list(rules())


def test_the_address_that_explain_prints_is_that_of_the_section() -> None:
    rule = rules()["SF342"]
    assert rule.page == "https://github.com/org/stepflow-action/blob/v1/docs/rules/steps.md#sf342"
    assert f"## {rule.code}\n" in (RULES / "steps.md").read_text(encoding="utf-8")


def test_every_rule_has_a_message_as_an_example() -> None:
    text = "".join((RULES / f"{group.page}.md").read_text(encoding="utf-8") for group in GROUPS.values())
    sections = dict(re.findall(r"^## (SF\d{3})\n(.*?)(?=^## SF|\Z)", text, re.M | re.S))
    # SF608 depends on the machine that looks.
    assert [code for code, section in sections.items() if "\nFor example: " not in section] == ["SF608"]
    assert not re.search(r"/tmp|/home|/work", text)


def test_every_verdict_type_extractor_and_group_has_its_words() -> None:
    assert set(VERDICTS) == set(VerdictType), "say in VERDICTS, in tests/docs/reference_words.py, when it is finished"
    described = {EXTRACTORS[name] for name in EXTRACTED}
    missing = [name for name, extractor in EXTRACTORS.items() if extractor not in described]
    assert not missing, f"say in tests/docs/reference_words.py, in EXTRACTED, what {', '.join(missing)} finds"
    assert {code[2] for code in rules()} == set(GROUPS)
