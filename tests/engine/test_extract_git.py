"""The extractors of git output (prompts.md §10)."""

from __future__ import annotations

import pytest
from extract_parts import run

STATUS = (
    " M src/a.py\nM  b.py\nMM c.py\nA  d.py\nD  e.py\nUU f.py\n?? g.py\n!! h.pyc\n"
    'R  old.py -> new.py\nR  "a \\"b\\".py" -> "c\\td.py"\n?? "caf\\303\\251.txt"\nR  x -> "y z"\n'
    "not a status line\n## main\n"
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("parseChangedFiles", ["src/a.py", "b.py", "c.py", "d.py", "e.py", "f.py", "new.py", "c\td.py", "y z"]),
        ("parseUntrackedFiles", ["g.py", "café.txt"]),
        ("parseStagedFiles", ["b.py", "c.py", "d.py", "e.py", "f.py", "new.py", "c\td.py", "y z"]),
        ("parseUnstagedFiles", ["src/a.py", "c.py", "f.py"]),
    ],
)
def test_git_status_lines_are_sorted_by_their_two_columns(name, expected):
    assert run(name, STATUS, code=0) == expected
    assert run(name, STATUS.replace("\n", "\r\n"), code=0) == expected
    assert run(name, "", STATUS) == []


def test_a_file_named_twice_is_listed_once_where_it_came_first():
    assert run("parseChangedFiles", " M b\n M a\nM  b\n") == ["b", "a"]


@pytest.mark.parametrize(
    ("stdout", "stderr", "expected"),
    [
        ("", "fatal: The branch 'feat/x' is not fully merged.", "feat/x"),
        ("feat/y\n", "", "feat/y"),
        ("\n feat/y \nmore", "", "feat/y"),
        ("two words\n", "", "topic"),
        ("", "", "topic"),
    ],
)
def test_the_branch_is_named_or_printed_or_asked_for(stdout, stderr, expected):
    assert run("parseBranchName", stdout, stderr) == expected


def test_without_any_branch_the_name_is_null():
    assert run("parseBranchName", branch=None) is None


@pytest.mark.parametrize(
    ("stdout", "stderr", "code", "expected"),
    [
        ("origin/main\nx", "", 0, "origin/main"),
        ("", "warning: old\n", 0, "warning: old"),
        ("ignored", "fatal: no such ref\nmore", 1, "fatal: no such ref"),
        ("", "", 1, None),
        ("x", "The current branch has NO UPSTREAM branch.", 0, "no upstream"),
        ("", "You are in 'detached HEAD' state.", 0, "detached HEAD"),
    ],
)
def test_the_remote_status_says_what_is_wrong_or_what_the_upstream_is(stdout, stderr, code, expected):
    assert run("parseRemoteStatus", stdout, stderr, code) == expected


@pytest.mark.parametrize(
    ("stdout", "stderr", "code", "expected"),
    [
        (" \n", "", 0, "merged"),
        ("a1\n\nb2\n", "", 0, "2 commits not merged"),
        ("a1", "\nfatal: bad revision\n", 128, "fatal: bad revision"),
        ("", "", 1, None),
    ],
)
def test_the_merge_status_counts_commits(stdout, stderr, code, expected):
    assert run("parseMergeStatus", stdout, stderr, code) == expected
