"""Globs mean what they mean in shells, and in `.gitignore`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepflow.domain.checkout import folders_before, glob_expression, path_expression


@pytest.mark.parametrize(
    ("pattern", "fits", "fails"),
    [
        ("*.py", ["a.py"], ["a/b.py", "apy", "a.pyc"]),
        ("**/*.py", ["a.py", "x/y/a.py"], ["a.ts"]),
        ("src/**", ["src/a", "src/a/b"], ["a"]),
        ("src/**/b.py", ["src/b.py", "src/x/y/b.py"], ["srcb.py"]),
        ("?.[ch]", ["a.c", "b.h"], ["ab.c", "a.x"]),
        ("[!a]*", ["b"], ["a", "/b"]),
        ("*.{ts,tsx}", ["a.ts", "a.tsx"], ["a.t", "a.ts,tsx"]),
        ("{a,b}/{c,d{1,2}}.x", ["a/c.x", "b/d2.x"], ["a/d.x"]),
        ("a,b", ["a,b"], ["a", "b"]),
        ("a+(b)^$.[", ["a+(b)^$.["], ["aab"]),
        ("[a^\\]", ["a", "^", "\\"], ["b"]),
    ],
)
def test_patterns_mean_what_shells_mean(pattern: str, fits: list[str], fails: list[str]) -> None:
    expression = re.compile(glob_expression(pattern, braces=True))
    assert [name for name in fits if not expression.fullmatch(name)] == []
    assert [name for name in fails if expression.fullmatch(name)] == []


@pytest.mark.parametrize("pattern", ["{a", "a}"])
def test_braces_that_do_not_match_are_told(pattern: str) -> None:
    with pytest.raises(ValueError, match="braces"):
        glob_expression(pattern, braces=True)
    assert re.fullmatch(glob_expression(pattern), pattern)


PATHS = ("x", "x/y", "a/x", "a/x/y", "a/b/x", "a", "b.c", "a/b.c", "x.h", "a/{x}")
PATTERNS = (
    *("x", "/x", "a/x", "/a/x", "**/x", "a/**/x", "**", "*", "/*", "*.c", "/*.c", "a/*", "*/x", "?", "b.?", "*.[ch]"),
    *("[!x]", "a/[a-z]", "{x}", "{x,a}"),
)
#: These fit the folder itself and a file of its name as well, unlike in git.
OF_FOLDERS = {
    "x/": ["x", "x/y", "a/x", "a/x/y", "a/b/x"],
    "a/b/**": ["a/b/x"],
    "a/x/**": ["a/x", "a/x/y"],
    "/**": PATHS,
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_rules_of_paths_mean_what_git_means(pattern: str, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / ".git" / "info" / "exclude").write_text(f"{pattern}\n")
    words = ("git", "-C", tmp_path, "check-ignore", "--no-index", "--stdin")
    ignored = subprocess.run(words, input="\n".join(PATHS), capture_output=True, text=True, check=False).stdout
    assert [path for path in PATHS if re.fullmatch(path_expression(pattern), path)] == ignored.splitlines()


@pytest.mark.parametrize(("pattern", "fits"), OF_FOLDERS.items())
def test_rules_of_folders_fit_all_that_is_below(pattern: str, fits: list[str]) -> None:
    assert [path for path in PATHS if re.fullmatch(path_expression(pattern), path)] == list(fits)


def test_a_point_before_the_path_is_the_root() -> None:
    expression = re.compile(path_expression("./x"))
    assert [path for path in PATHS if expression.fullmatch(path)] == ["x", "x/y"]


@given(st.sampled_from((*PATTERNS, *OF_FOLDERS)), st.sampled_from(PATHS))
def test_nothing_fits_outside_of_the_folders_before(pattern: str, path: str) -> None:
    if re.fullmatch(path_expression(pattern), path):
        names, folders = path.split("/"), folders_before(pattern)
        assert names[: len(folders)] == folders
