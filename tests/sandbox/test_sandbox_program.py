"""The program on the hostile side stands alone (docs/threat-model.md)."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import stepflow.sandbox.child

INNER = Path(stepflow.sandbox.child.__file__).parent


def test_its_modules_import_the_standard_library_and_their_siblings_only():
    for path in INNER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert {alias.name.partition(".")[0] for alias in node.names} <= sys.stdlib_module_names, path
            elif isinstance(node, ast.ImportFrom):
                top = (node.module or "").partition(".")[0]
                assert node.level == 1 or (node.level == 0 and top in sys.stdlib_module_names), path
