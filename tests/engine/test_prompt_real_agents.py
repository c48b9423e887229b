"""The retry prompts of a public agent work as they are (prompts.md §9.2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepflow.engine.prompt.template import parse_retry_template, parse_template, render_template

RETRY = Path(__file__).parents[2].parent / "shared" / "real-agents" / "iterator" / "prompts" / "steps" / "retry"
pytestmark = pytest.mark.skipif(not RETRY.is_dir(), reason="the public agents are not beside the repository")


def test_every_retry_prompt_of_the_public_iterator_parses():
    files = sorted(RETRY.rglob("*.md"))
    assert len(files) > 5
    assert {file.name: parse_retry_template(file.read_text(encoding="utf-8")) for file in files} == dict.fromkeys(
        (file.name for file in files), None
    )


def test_the_iterators_git_dirty_prompt_lists_the_files_and_leaves_no_gaps():
    template = parse_template((RETRY / "issue" / "f_failed_git-dirty.md").read_text(encoding="utf-8"))
    text = render_template(template, {"changedFiles": ["a.py", "b.py"], "untrackedFiles": []})
    assert "- `a.py`\n- `b.py`\n\n" in text
    assert "{{" not in text
    assert text.count("###") == 1
