"""Every page of docs/ can be reached from its first page, and every link of a document leads somewhere."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.page import DOCS
from tests.docs.readme import README, ROOT

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
    first = README
    reached = {(first.parent / link.partition("#")[0]).resolve() for link in links(first)}
    assert [page for page in PAGES if page.resolve() not in reached] == []
    assert len(PAGES) <= 15
