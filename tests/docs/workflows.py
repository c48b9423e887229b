"""Workflows that documents show, held against actionlint, zizmor and action.yml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tests.docs.page import ROOT, USE_PAGE, around_action, named_block

if TYPE_CHECKING:
    from collections.abc import Mapping

BIN = Path(sys.executable).parent
INPUTS = set(yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"])
ACTION = "org/stepflow-action@v1"


def with_lines(given: Mapping[str, object]) -> str:
    """The workflow of docs/use.md with these inputs beside its own; one of the same name is replaced."""
    before, step, after = around_action(named_block("workflow", USE_PAGE))
    lines = yaml.safe_dump(dict(given), sort_keys=False)
    unchanged = "".join(
        line
        for line in step.splitlines(keepends=True)
        if not line.startswith(tuple(f"{' ' * 10}{name}:" for name in given))
    )
    return before + unchanged + "".join(f"{' ' * 10}{line}\n" for line in lines.splitlines()) + after


def lint_workflow(text: str, folder: Path, *, pedantic: bool = True) -> None:
    """Both linters are silent."""
    file = folder / ".github" / "workflows" / "stepflow.yml"
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    zizmor = ("zizmor", "--offline", "--quiet", "--no-progress", *(["--pedantic"] if pedantic else []))
    for words in (("actionlint",), zizmor):
        checked = subprocess.run([BIN / words[0], *words[1:], file], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def check_workflow(text: str, folder: Path) -> None:
    """Both linters are silent, and the action, or an image that begins with ours, gets only inputs that it has."""
    lint_workflow(text, folder)
    jobs = yaml.safe_load(text)["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    given = [step.get("with", {}) for step in steps if step.get("uses", "").startswith((ACTION, "docker://"))]
    assert given, "nobody uses the action"
    assert all(set(names) <= INPUTS for names in given)
