"""docs/what-can-go-wrong.md: each message that it quotes is one that the code says."""

from __future__ import annotations

import re
from functools import cache

import pytest

from stepflow.domain.words import Outcome
from stepflow.run.inputs import Inputs
from tests.docs.page import DOCS
from tests.docs.readme import ROOT

TEXT = (DOCS / "what-can-go-wrong.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\| `([^`]+)` \|", TEXT, re.M)
#: What a page writes where the code has a value.
VALUE = "…"


#: Where a text of the code goes on in the next line.
_GOES_ON = re.compile(r"""["']\n\s*f?["']""")


@cache
def said() -> str:
    """The code, its texts each in one line; a value within a text as `…`."""
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "stepflow").rglob("*.py"))
    return re.sub(r"\{[^{}\n]*\}", VALUE, _GOES_ON.sub("", sources))


def is_said(message: str) -> bool:
    """A `…` of the page stands for some words of one text."""
    return re.search(".*?".join(map(re.escape, message.strip(VALUE).split(VALUE))), said()) is not None


def test_there_are_messages_for_each_part_of_a_run() -> None:
    assert len(MESSAGES) > 40
    assert len(set(MESSAGES)) == len(MESSAGES)
    headings = " ".join(re.findall(r"^## (.+)$", TEXT, re.M))
    assert set(re.findall(r"`(\w+)`", headings)) <= {outcome.value for outcome in Outcome}


@pytest.mark.parametrize("message", MESSAGES)
def test_a_quoted_message_is_one_of_the_code(message: str) -> None:
    assert is_said(message), f"the code does not say {message!r} (any more)"


def test_a_message_that_nobody_says_is_seen() -> None:
    assert not is_said("the input github-token is full")
    assert not is_said("the label … has no colour")


def test_the_inputs_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)(?:: [^`]+)?`", TEXT))
    assert named - {name.replace("_", "-") for name in Inputs.model_fields} == {
        "git-clean",
        "id-token",
        "persist-credentials",
        "pull-requests",
    }
