"""No output, however odd or large, breaks the extractors or holds them up."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepflow.domain.checkout import CommandResult
from stepflow.engine.completion.extract import EXTRACTORS, extract

PIECES = ["FAILED ", "a.py", "::t[", "] - ", "error: ", ":1", ":2: ", "E501 ", "\n", "  ", "--> ",
          "x", '"', "\\3", "?? ",          " -> ", "TS1 [ERROR]: ", "at file:///", "--- FAIL: ", "=> ", "(", ")",
          "[warn] ", "\x1b[", "\x1b]", "é", "R  "]  # fmt: skip


@settings(derandomize=True, deadline=None)
@given(text=st.lists(st.sampled_from(PIECES), max_size=30).map("".join), code=st.sampled_from([0, 1, -1]))
def test_no_output_makes_an_extractor_fail(text, code):
    names = {name: name for name in EXTRACTORS}
    extracted = extract(
        names, CommandResult(exit_code=code, stdout=text, stderr=text), root="/r", current_branch=lambda: None
    )
    assert set(extracted) == set(EXTRACTORS)


@pytest.mark.parametrize(
    "line",
    [" " * 200_000, "FAILED a." * 30_000, "a.b:1(" * 40_000, "[1] - " * 40_000, '?? "' + "\\\\" * 100_000,
     "x ... " * 40_000,
     " => a:1:" * 30_000, ("a:1: error: x" + " " * 900 + "x\n") * 300,
     "\x1b]" * 100_000, "a.py:1: error: x\n" * 5_000,
     "--- FAIL: T (0s)\n" * 5_000, "--- x\n" * 10_000],
    ids=lambda line: repr(line[:12]),
)  # fmt: skip
def test_hostile_output_cannot_hold_the_extractors_up(line):
    names = {name: name for name in EXTRACTORS}
    begin = time.process_time()
    extract(names, CommandResult(exit_code=1, stdout=line), root="/r", current_branch=lambda: None)
    assert time.process_time() - begin < 10
