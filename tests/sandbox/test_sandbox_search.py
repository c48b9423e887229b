"""The tools glob and grep."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="module")
def tree(shared_box):
    shared_box.bash(
        "mkdir -p src/deep node_modules/lib .venv/x sub/__pycache__\n"
        "echo 'alpha = 1' > src/a.py; echo 'beta' > src/deep/b.py; echo 'alpha' > src/c.ts; echo x > src/deep/d.tsx\n"
        "echo alpha > node_modules/lib/a.py; echo alpha > .venv/x/a.py; echo alpha > sub/__pycache__/a.py\n"
        "echo alpha > .hidden.py; ln -s src/a.py link.py; ln -s / outside; printf 'alpha\\0' > bin.dat"
    )
    return shared_box


class TestGlob:
    def test_lists_files_and_folders_by_name_without_links_and_what_tools_made(self, tree):
        assert tree.tool("glob", pattern="**").output.splitlines() == [
            ".hidden.py",
            "bin.dat",
            "hello.txt",
            "src/",
            "src/a.py",
            "src/c.ts",
            "src/deep/",
            "src/deep/b.py",
            "src/deep/d.tsx",
            "sub/",
        ]

    @pytest.mark.parametrize(
        ("inputs", "paths"),
        [
            ({"pattern": "**/*.py"}, [".hidden.py", "src/a.py", "src/deep/b.py"]),
            ({"pattern": "*.py", "path": "src"}, ["src/a.py"]),
            ({"pattern": "**/*.{ts,tsx}"}, ["src/c.ts", "src/deep/d.tsx"]),
            ({"pattern": "node_modules/**/*.py"}, ["node_modules/lib/a.py"]),
            ({"pattern": "**/*.py", "path": ".venv"}, [".venv/x/a.py"]),
            ({"pattern": "*.go"}, ["no file or folder matches"]),
        ],
    )
    def test_gives_paths_from_the_repository_root(self, tree, inputs, paths):
        assert tree.tool("glob", **inputs).output.splitlines() == paths

    @pytest.mark.parametrize(
        ("inputs", "message"),
        [
            ({"pattern": "/etc/*"}, "relative"),
            ({"pattern": "../*"}, "relative"),
            ({"pattern": "*", "path": "outside"}, "leads outside"),
            ({"pattern": "*", "path": "nowhere"}, "does not exist"),
            ({"pattern": "*", "path": "hello.txt"}, "not a folder"),
            ({}, "pattern is missing"),
        ],
    )
    def test_what_it_cannot_do_is_told(self, tree, inputs, message):
        result = tree.tool("glob", **inputs)
        assert result.is_error
        assert message in result.output


class TestGrep:
    def test_gives_path_line_number_and_text_sorted_by_path(self, tree):
        assert tree.tool("grep", pattern=r"^alpha|wor").output.splitlines() == [
            ".hidden.py:1:alpha",
            "hello.txt:2:world",
            "src/a.py:1:alpha = 1",
            "src/c.ts:1:alpha",
        ]

    @pytest.mark.parametrize(
        ("inputs", "lines"),
        [
            ({"pattern": "alpha", "path": "src"}, ["src/a.py:1:alpha = 1", "src/c.ts:1:alpha"]),
            ({"pattern": "alpha", "path": "src/a.py"}, ["src/a.py:1:alpha = 1"]),
            ({"pattern": "alpha", "path": "node_modules"}, ["node_modules/lib/a.py:1:alpha"]),
            ({"pattern": "nothing has this"}, ["no line matches"]),
        ],
    )
    def test_searches_where_it_is_told(self, tree, inputs, lines):
        assert tree.tool("grep", **inputs).output.splitlines() == lines

    def test_leaves_out_links_pipes_and_files_with_other_names(self, box, open_folder):
        (open_folder / "outside.txt").write_text("needle")
        os.link(open_folder / "outside.txt", box.checkout / "hard")
        box.bash(f"mkfifo pipe; ln -s {open_folder}/outside.txt soft")
        assert box.tool("grep", pattern="needle").output == "no line matches"

    @pytest.mark.whole
    def test_a_pattern_that_never_ends_is_stopped(self, start):
        box = start(file_timeout=2)
        box.bash(f"echo {'a' * 40}b > evil.txt")
        result = box.tool("grep", pattern="(a+)+$")
        assert result.is_error
        assert "took longer than 2 s" in result.output
        assert box.tool("grep", pattern="aab").output.startswith("evil.txt:1:")

    @pytest.mark.parametrize(
        ("inputs", "message"),
        [
            ({"pattern": "("}, "not a valid Python regular expression"),
            ({"pattern": "a{99999999999}"}, "not a valid Python regular expression"),
            ({"pattern": "x", "path": "../"}, "leads outside"),
            ({"pattern": "x", "path": "nowhere"}, "nowhere: does not exist"),
            ({"pattern": None}, "pattern is missing"),
        ],
    )
    def test_what_it_cannot_do_is_told(self, tree, inputs, message):
        result = tree.tool("grep", **inputs)
        assert result.is_error
        assert message in result.output


def test_a_pattern_without_end_takes_no_time(shared_box):
    assert "at most 4096 characters" in shared_box.tool("glob", pattern="[" * 40_000).output
