"""The pages of docs/: links lead somewhere, and the files, functions and keys that they name are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel

from stepflow.domain.words import Intent, StepKind
from stepflow.model.scenario import Expect, Scenario, Turn
from tests.docs.page import BUILT_PAGE, DOCS, README, ROOT, SCENARIOS_PAGE

PAGES = sorted(DOCS.rglob("*.md"))
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *PAGES]
_FENCED = re.compile(r"^ *```.*?^ *```$", re.M | re.S)


def links(page: Path) -> list[str]:
    """Where the links of a page lead, those to other sites left out."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]


@cache
def anchors(page: Path) -> set[str]:
    """The places that GitHub makes of a page's headings, and those that it names itself."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r"<a id='([^']+)'>", text))


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for link in links(page):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_reached_from_the_first_one() -> None:
    reached, todo = {README}, [README]
    while todo:
        page = todo.pop()
        targets = {(page.parent / link.partition("#")[0]).resolve() for link in links(page)} & set(PAGES)
        todo += targets - reached
        reached |= targets
    assert [str(page) for page in PAGES if page not in reached] == []


#: Words in a row that no two pages share; the pages of keys and rules are made, and have the words of the code.
SAID_TWICE = 12


def test_nothing_is_said_on_two_pages() -> None:
    """Say it on one page, and let the other link there."""
    pages_of: dict[str, set[str]] = {}
    for page in DOCUMENTS:
        if page.parent.name not in {"keys", "rules"}:
            for words in _runs_of_words(page):
                pages_of.setdefault(words, set()).add(str(page.relative_to(ROOT)))
    assert {words: sorted(pages) for words, pages in pages_of.items() if len(pages) > 1} == {}


def _runs_of_words(page: Path) -> Iterator[str]:
    text = re.sub(
        r"<!-- (\w+): begin.*?<!-- \1: end -->", "", _FENCED.sub("", page.read_text("utf-8")), flags=re.DOTALL
    )
    for line in re.sub(r"\]\([^)]*\)", "]", text).lower().splitlines():
        words = re.findall(r"[\w'./-]+", line)
        yield from (" ".join(words[at : at + SAID_TWICE]) for at in range(len(words) - SAID_TWICE + 1))


# docs/how-it-is-built.md

ROWS = re.findall(r"^\| \[`[^`]+`\]\(\.\./([^)]+)\) \| (?:`(\w+)`)? ?\| .+ \|$", BUILT_PAGE.read_text(), re.MULTILINE)
FILES_TO_CHANGE = re.findall(r"^\| [^|`]+ \| \[`[^`]+`\]\(\.\./([^)]+)\).* \|$", BUILT_PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize(("file", "function"), ROWS)
def test_the_path_of_an_event_passes_functions_that_are_there(file: str, function: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert not function or function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_path_of_an_event_opens_few_files_and_none_twice() -> None:
    files = [file for file, _ in ROWS]
    assert 20 < len(files) == len(set(files)) <= 30


def test_what_people_change_has_its_file() -> None:
    assert len(FILES_TO_CHANGE) >= 10
    assert [path for path in FILES_TO_CHANGE if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize(("heading", "model"), [("The file", Scenario), ("A turn", Turn), ("Expectations", Expect)])
def test_the_page_about_scenarios_has_every_key_and_no_other(heading: str, model: type[BaseModel]) -> None:
    part = SCENARIOS_PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", part, re.M)) == set(model.model_fields)


# docs/glossary.md

GLOSSARY = DOCS / "glossary.md"
WORDS = re.findall(r"^\| ([a-z ,-]+) \| (.+) \| \[[^\]]+\]\(([^)]+)\) \|$", GLOSSARY.read_text(), re.MULTILINE)


def test_the_glossary_has_every_word_of_the_method() -> None:
    """A new step kind or intent needs its word there."""
    text = "".join(meaning for _, meaning, _ in WORDS)
    assert [str(word) for word in (*StepKind, *Intent) if f"`{word}`" not in text] == []


def test_a_word_of_the_glossary_is_used_where_its_link_leads() -> None:
    assert len(WORDS) > 30
    for name, _, link in WORDS:
        text = (GLOSSARY.parent / link.partition("#")[0]).read_text(encoding="utf-8").lower()
        assert name.partition(",")[0].removesuffix("al") in text, f"{link} does not use the word {name}"
