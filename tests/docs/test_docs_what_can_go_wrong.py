"""docs/what-can-go-wrong.md: each message that it quotes is one that the code says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from stepflow.domain.words import Outcome
from stepflow.run.start.inputs import Inputs
from tests.docs.page import DOCS, ROOT

TEXT = (DOCS / "what-can-go-wrong.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\| `([^`]+)` \|", TEXT, re.M)
#: What a page writes where the code has a value.
VALUE = "…"


@cache
def said() -> str:
    """The texts of the code, one a line and without its comments and docstrings; a value within a text as `…`."""
    return "\n".join(text for path in (ROOT / "stepflow").rglob("*.py") for text in _texts(ast.parse(path.read_text())))


def _texts(tree: ast.Module) -> Iterator[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, documented) and _has_one(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value.replace("\n", " ")
        elif isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
            yield "".join(parts).replace("\n", " ")


def _has_one(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return ast.get_docstring(node, clean=False) is not None


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


def test_the_inputs_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)(?:: [^`]+)?`", TEXT))
    assert named - {name.replace("_", "-") for name in Inputs.model_fields} == {
        "git-clean",
        "id-token",
        "timeout-minutes",
        "pull-requests",
    }
