"""The placeholder `org` for whoever publishes stepflow stands in many files; one command replaces all of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from release.owner import main, name_owner
from tests.docs.page import README, ROOT

#: `org` as a name of its own: followed by a slash, or in backticks.
ANY = re.compile(r"(?<![\w./-])@?org/|ghcr\.io/org/|github\.com/org/|`org`")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of every text that speaks of the project to its users, as a repository of its own."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", ":!tests", ":!release/owner.py", ":!requirements"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "--all"], cwd=tmp_path, check=True)
    return tmp_path


def test_after_the_command_no_file_names_the_placeholder(copy: Path) -> None:
    assert "`org` is a placeholder" in README.read_text(encoding="utf-8")
    changed = name_owner(copy, "acme")
    assert {"README.md", ".github/CODEOWNERS", "stepflow/modes/verify.py", "Dockerfile"} <= set(changed)
    files = [path for path in copy.rglob("*") if path.is_file() and ".git" not in path.relative_to(copy).parts]
    left = {
        str(path.relative_to(copy)): found
        for path in files
        if (found := ANY.findall(path.read_text(encoding="utf-8", errors="replace")))
    }
    assert left == {"RELEASING.md": ["`org`"]}
    assert "uses: acme/stepflow-action@v1" in (copy / "README.md").read_text(encoding="utf-8")
    assert name_owner(copy, "acme") == ()


@pytest.mark.parametrize("account", ["", "Acme", "-acme", "a/b", "acme\n", "ａcme"])
def test_what_is_no_account_is_refused(copy: Path, account: str, capsys, monkeypatch) -> None:
    monkeypatch.chdir(copy)
    assert main(["--", account]) == 1
    assert "is no account of GitHub" in capsys.readouterr().err
    assert subprocess.run(["git", "diff", "--quiet"], cwd=copy, check=False).returncode == 0
