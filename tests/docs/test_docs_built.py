"""The page for contributors names files and functions that are there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.readme import BUILT_PAGE, ROOT

ROWS = re.findall(r"^\| \[`[^`]+`\]\(\.\./([^)]+)\) \| (?:`(\w+)`)? ?\| .+ \|$", BUILT_PAGE.read_text(), re.MULTILINE)
FILES_TO_CHANGE = re.findall(r"^\| [^|`]+ \| \[`[^`]+`\]\(\.\./([^)]+)\) \|$", BUILT_PAGE.read_text(), re.MULTILINE)


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
