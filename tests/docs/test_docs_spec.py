"""The tables and lists of docs/spec say what the code has."""

from __future__ import annotations

import re

from stepflow.definition.agent import DEFAULT_MAX_ITERATIONS
from stepflow.definition.rules import rules
from stepflow.definition.validators import MAPPED_ENTRIES
from stepflow.domain.agent.agent_settings import READ_ONLY_TOOLS, TOOL_SPECS_BY_NAME
from stepflow.domain.effect import EffectKind
from stepflow.domain.words import (
    CHECK_DIALECT_LIMIT,
    CODE_OF_OUTCOME,
    INTENT_ALIASES,
    INTENTS_OF_KIND,
    Intent,
    Outcome,
    VerdictType,
)
from stepflow.engine.conversation import FIRST_WAIT
from stepflow.engine.prompt.render import MOST_ERRORS, TEMPLATE_KEYS
from stepflow.engine.prompt.variables import LONGEST_VALUE, run_variable_names
from tests.docs.page import DOCS

CODE = re.compile(r"`([^`]+)`")


def section(page: str, number: str) -> str:
    """The text of a section, without those below it."""
    text = (DOCS / "spec" / f"{page}.md").read_text(encoding="utf-8")
    match = re.search(rf"^#{{2,3}} {re.escape(number)}\.? .*?(?=^#{{2,3}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert match, (page, number)
    return match[0]


def rows(text: str) -> list[list[str]]:
    """The cells of a table's rows, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_outcome_stands_in_the_table_with_its_code() -> None:
    cells = [CODE.findall(first) for first, *_ in rows(section("flow", "10"))]
    named = {name for names in cells for name in names}
    assert named == {*Outcome, *CODE_OF_OUTCOME.values()}
    assert all(
        CODE_OF_OUTCOME[Outcome(name)] == code
        for name, code in (each for each in cells if each[1:] and each[1].isupper())
    )


def test_the_words_that_a_gate_takes_are_listed() -> None:
    text = section("flow", "5")
    said = {
        alias: meaning
        for part, meaning in re.findall(r"((?:`\w+`,? ?(?:and )?)+) mean `(\w+)`", text)
        for alias in CODE.findall(part)
    }
    assert said == {alias: str(intent) for alias, intent in INTENT_ALIASES.items()}


def test_every_intent_leads_somewhere_and_each_kind_has_its_own() -> None:
    assert {name for first, _ in rows(section("flow", "6.1")) for name in CODE.findall(first)} == {*Intent}
    listed = {kind: {*CODE.findall(intents)} for kind, intents in rows(section("definition", "5.2"))}
    assert listed == {str(kind): {*map(str, intents)} for kind, intents in INTENTS_OF_KIND.items()}


def test_every_verdict_that_can_end_an_ungated_flow_is_described() -> None:
    described = [CODE.findall(first)[0] for first, *_ in rows(section("flow", "9.2"))]
    assert {*described} == {*VerdictType} - {VerdictType.DETECT_GRAPH}


def test_the_validation_entry_of_each_verdict_type_is_named() -> None:
    cells = [CODE.findall(cell)[0] for row in rows(section("flow", "8.2")) for cell in row]
    assert dict(zip(cells[::2], cells[1::2], strict=True)) == {str(kind): name for kind, name in MAPPED_ENTRIES.items()}


def test_the_tools_are_those_of_the_code() -> None:
    tools = {
        name: (CODE.findall(tool)[at], plan == "yes")
        for tool, names, plan in rows(section("flow", "14"))
        for at, name in enumerate(CODE.findall(names))
    }
    assert tools == {name: (spec.name, name in READ_ONLY_TOOLS) for name, spec in TOOL_SPECS_BY_NAME.items()}


def test_every_run_variable_is_described() -> None:
    assert {name for first, _ in rows(section("prompts", "4")) for name in CODE.findall(first)} == run_variable_names(
        None
    )


def test_effects_are_written_in_the_order_that_is_said() -> None:
    (line,) = [line for line in section("boundary", "2").splitlines() if "→" in line]
    on_pull_requests = (EffectKind.ANSWER_THREADS, EffectKind.SUBMIT_REVIEW)
    order = [str(kind) for kind in EffectKind if kind not in on_pull_requests]
    assert CODE.findall(line) == order


def test_problem_codes_and_numbers_are_those_of_the_code() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "spec").glob("*.md"))
    assert {*re.findall(r"\bSF\d{3}\b", text)} <= {*rules()}
    assert f"{len(TEMPLATE_KEYS)} templates" in text
    assert f"{DEFAULT_MAX_ITERATIONS} by default, and {CHECK_DIALECT_LIMIT} in the check dialect" in text
    assert f"{LONGEST_VALUE:,} characters" in section("prompts", "4")
    assert f"at most {MOST_ERRORS}" in section("prompts", "9.5")
    assert f"waited out: {FIRST_WAIT:.0f} s, doubled each time" in text
