"""Runs one extractor on a made-up output."""

from __future__ import annotations

from stepflow.domain.checkout import CommandResult
from stepflow.engine.completion.extract import extract


def run(name, stdout="", stderr="", code=1, *, root="/repo", branch="topic"):
    result = CommandResult(exit_code=code, stdout=stdout, stderr=stderr)
    return extract({"value": name}, result, root=root, current_branch=lambda: branch)["value"]
