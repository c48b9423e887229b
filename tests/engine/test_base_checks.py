"""What a check says of a program that is missing, and what it merely prints."""

from __future__ import annotations

import pytest

from stepflow.engine.completion.judge import MISSING


@pytest.mark.parametrize(
    "said",
    [
        "sh: 1: ruff: not found",
        "/bin/sh: line 1: ruff: command not found",
        "bash: line 3: jest: command not found",
        "/usr/bin/python3: No module named pytest",
        "/opt/python3.12: No module named mypy.api",
        "make: *** [Makefile:3: test] Error 127",
        "make[2]: *** [check] Error 127",
    ],
)
def test_a_shell_python_and_make_say_that_a_program_is_missing(said: str) -> None:
    assert MISSING.search(f"building\n{said}\n")


@pytest.mark.parametrize(
    "said",
    [
        "ModuleNotFoundError: No module named 'app'",
        "ImportError: page not found",
        "GET /users: 404 not found",
        "E  assert 'sh: 1: ruff: not found' in out",
        "make: *** [Makefile:3: test] Error 2",
        "test_shell.py: command not found is told",
    ],
)
def test_what_a_test_prints_is_no_missing_program(said: str) -> None:
    assert MISSING.search(f"{said}\n") is None
