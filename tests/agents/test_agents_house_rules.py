"""The house rules that our own agent is held to: `.agent/fixer/house_rules.py`, run as the validator runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".agent/fixer/house_rules.py"
OPENING = '"""What it is for."""\n'


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-I", SCRIPT], cwd=folder, capture_output=True, text=True, check=False)


def repository(folder: Path, **modules: str) -> Path:
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    (folder / "stepflow").mkdir()
    for name, text in modules.items():
        (folder / f"stepflow/{name}.py").write_text(text, encoding="utf-8")
    return folder


def test_this_repository_keeps_its_own_rules() -> None:
    done = check(ROOT)
    assert (done.stdout, done.returncode) == ("Every file keeps the house rules.\n", 0)


def test_a_good_module_passes(tmp_path: Path) -> None:
    done = check(repository(tmp_path, engine=OPENING, __init__=OPENING))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def broken(:\n", "1:12: H001 this is not Python: "),
        ("", "1:1: H002 the module has no docstring"),
        (OPENING + "a = 1\n" * 500, "1:1: H003 the module has 501 lines, more than 500"),
        (OPENING + "def long():\n" + "    a = 1\n" * 61, "2:1: H004 the body of long has 61 lines, more than 60"),
    ],
    ids=["syntax", "no docstring", "long module", "long function"],
)
def test_each_broken_rule_is_named_with_its_location(tmp_path: Path, text: str, said: str) -> None:
    done = check(repository(tmp_path, engine=text))
    assert done.returncode == 1
    assert done.stdout.startswith(f"stepflow/engine.py:{said}")


@pytest.mark.parametrize(
    "text",
    [OPENING + "a = 1\n" * 499, OPENING + "def long():\n" + '    """Says it."""\n' + "    a = 1\n" * 60],
    ids=["module", "function, whose docstring does not count"],
)
def test_what_is_just_short_enough_passes(tmp_path: Path, text: str) -> None:
    assert check(repository(tmp_path, engine=text)).returncode == 0


def test_a_file_that_was_never_added_is_checked_and_an_ignored_one_is_not(tmp_path: Path) -> None:
    folder = repository(tmp_path, ignored="", known=OPENING)
    (folder / ".gitignore").write_text("ignored.py\n", encoding="utf-8")
    assert check(folder).returncode == 0
    (folder / "stepflow/fresh.py").write_text("", encoding="utf-8")
    assert "stepflow/fresh.py:1:1: H002" in check(folder).stdout


def test_a_deleted_file_is_passed_over(tmp_path: Path) -> None:
    folder = repository(tmp_path, engine=OPENING, gone=OPENING)
    subprocess.run(["git", "-C", folder, "add", "."], check=True)
    (folder / "stepflow/gone.py").unlink()
    assert check(folder).returncode == 0


def test_nothing_is_written_into_the_checkout(tmp_path: Path) -> None:
    folder = repository(tmp_path, engine=OPENING)
    before = sorted(path for path in folder.rglob("*") if ".git" not in path.parts)
    check(folder)
    assert sorted(path for path in folder.rglob("*") if ".git" not in path.parts) == before
