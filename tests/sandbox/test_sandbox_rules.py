"""One file with the rules of all folders means to git what the folders' own files mean."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toolbox_world import git

from stepflow.sandbox.child.clean_tree import attribute_rules, ignore_rules

FOLDERS = ("", "a", "a/b", "c d", "e[1]*")
FILES = ("x.py", "y.log", "a", "#z", "!w", "sp ace")
NAMES = st.sampled_from(
    ["x.py", "*.py", "*.log", "a", "b", "*", "**", "x*y", "?.py", "\\#z", "\\!w", "sp ace", "[xy].*"]
)
PATTERNS = st.one_of(
    NAMES,
    st.builds("/{}".format, NAMES),
    st.builds("{}/".format, NAMES),
    st.builds("a/{}".format, NAMES),
    st.builds("**/{}".format, NAMES),
    st.builds("{}/**".format, NAMES),
)
IGNORE_LINES = st.one_of(
    PATTERNS, st.builds("!{}".format, PATTERNS), st.sampled_from(["", "# words", "/", "x.py  ", "x.py\r", "!"])
)
VALUES = st.sampled_from(["text", "-text", "!text", "eol=crlf", "binary", "filter=x", "mine", "ident"])
ATTRIBUTE_LINES = st.one_of(
    st.builds("{} {}".format, PATTERNS.filter(lambda pattern: " " not in pattern), VALUES),
    st.builds('"{}" {}'.format, PATTERNS.filter(lambda pattern: "\\" not in pattern), VALUES),
    st.sampled_from(["", "  # words", "[attr]mine eol=lf", "!x.py text"]),
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A repository without rules that holds each of the files in each of the folders."""
    top = tmp_path_factory.mktemp("rules")
    git(top, "init", "--quiet")
    for folder in FOLDERS:
        for name in FILES:
            file = top / folder / name
            if not file.is_dir():
                file.parent.mkdir(exist_ok=True)
                if not (folder == "" and name == "a"):
                    file.write_text("")
    return top


def rule_files(line: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, str]]:
    texts = st.lists(line, max_size=4).map("\n".join)
    return st.dictionaries(st.sampled_from(FOLDERS), texts, max_size=3)


def written(top: Path, name: str, files: dict[str, str]) -> None:
    for folder in FOLDERS:
        (top / folder / name).unlink(missing_ok=True)
    for folder, text in files.items():
        (top / folder / name).write_text(text)


def as_bytes(files: dict[str, str]) -> dict[str, bytes]:
    return {folder: text.encode() for folder, text in files.items()}


@settings(max_examples=60)
@given(files=rule_files(IGNORE_LINES))
def test_ignored_is_what_the_folders_ignore_files_ignore(tree, files):
    written(tree, ".gitignore", files)
    by_git = git(tree, "ls-files", "--others", "--exclude-per-directory=.gitignore")
    with tempfile.NamedTemporaryFile() as rules:
        rules.write(ignore_rules(as_bytes(files)))
        rules.flush()
        assert git(tree, "ls-files", "--others", f"--exclude-from={rules.name}") == by_git


def attributes(top: Path) -> str:
    paths = "\0".join(
        str(file.relative_to(top))
        for file in sorted(top.rglob("*"))
        if not any(part.startswith(".git") for part in file.relative_to(top).parts)
    )
    done = subprocess.run(
        ["git", "check-attr", "--stdin", "-z", "text", "eol", "filter", "ident", "crlf", "working-tree-encoding"],
        cwd=top,
        input=paths,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@settings(max_examples=60)
@given(files=rule_files(ATTRIBUTE_LINES), later=rule_files(ATTRIBUTE_LINES))
def test_attributes_are_those_of_the_start_whatever_the_folders_say_later(tree, files, later):
    info = tree / ".git" / "info" / "attributes"
    info.parent.mkdir(exist_ok=True)
    info.write_bytes(b"")
    written(tree, ".gitattributes", files)
    at_the_start = attributes(tree)
    written(tree, ".gitattributes", later)
    info.write_bytes(attribute_rules(as_bytes(files)))
    assert attributes(tree) == at_the_start
