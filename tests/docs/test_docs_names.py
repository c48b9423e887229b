"""One name, one thing: whoever searches the code for a name finds what it stands for."""

from __future__ import annotations

import ast
from collections import defaultdict

import pytest

from tests.docs.page import ROOT


@pytest.mark.whole
def test_no_two_classes_share_a_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file in sorted((ROOT / "stepflow").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
