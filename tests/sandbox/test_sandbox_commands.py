"""Validators and command steps."""

from __future__ import annotations

import time

import pytest

from stepflow.domain.checkout import CommandRequest
from stepflow.sandbox import launcher


def test_a_command_runs_in_the_repository_root_with_its_streams_apart(shared_box):
    shared_box.bash("cd /")
    result = shared_box.sh("pwd; echo err >&2; exit 4")
    assert (result.exit_code, result.stdout, result.stderr) == (4, f"{shared_box.checkout}\n", "err\n")
    assert (result.timed_out, result.started, result.error) == (False, True, "")
    assert result.seconds > 0


def test_a_timeout_kills_everything_and_is_exit_code_minus_one(shared_box):
    result = shared_box.sh("echo begun; sleep 60 & sleep 61", timeout=2)
    assert (result.exit_code, result.timed_out, result.stdout) == (-1, True, "begun\n")
    assert "timed out after 2 s" in result.error
    assert result.seconds < 10


def test_a_program_that_does_not_exist_is_not_started(shared_box):
    result = shared_box.toolbox.run_command(CommandRequest(argv=("no-such-program", "x"), timeout=5))
    assert (result.exit_code, result.started, result.timed_out) == (-1, False, False)
    assert "`no-such-program` could not be started: No such file" in result.error


def test_a_command_that_a_signal_ends_has_the_code_that_shells_give(shared_box):
    result = shared_box.sh("kill -TERM $$")
    assert (result.exit_code, result.error) == (143, "ended by signal 15")


def test_a_child_that_keeps_the_streams_open_does_not_hold_the_command_up(shared_box):
    result = shared_box.sh("echo done; sleep 60 &")
    assert (result.exit_code, result.stdout) == (0, "done\n")
    assert result.seconds < 10


def test_each_stream_keeps_at_most_one_mebibyte_with_head_and_tail(shared_box):
    result = shared_box.sh("echo FIRST; yes | head -c 5M; echo LAST; yes e | head -c 3M >&2")
    assert result.stdout.startswith("FIRST\n")
    assert result.stdout.endswith("LAST\n")
    assert "bytes left out" in result.stdout
    assert len(result.stdout.encode()) <= 1024 * 1024
    assert len(result.stderr.encode()) <= 1024 * 1024


def test_a_command_has_no_standard_input(shared_box):
    assert shared_box.sh("cat; echo end").stdout == "end\n"


def test_the_shell_of_a_step_does_not_outlive_a_command(shared_box):
    shared_box.bash("X=1")
    shared_box.sh("true")
    assert shared_box.bash("echo ${X-unset}").output == "unset\n"


@pytest.mark.whole
def test_both_streams_are_also_kept_in_the_order_in_which_they_were_written(shared_box):
    result = shared_box.sh("for n in 1 2 3; do echo out $n; sleep 0.2; printf 'err ' >&2; echo $n >&2; sleep 0.2; done")
    assert result.stdout == "out 1\nout 2\nout 3\n"
    assert result.combined == "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"


def test_of_a_very_long_output_lines_that_may_name_a_failure_are_kept_from_its_middle(shared_box):
    result = shared_box.sh("yes fine | head -c 3M; echo 'FAILED in the middle' >&2; yes fine | head -c 3M; echo END")
    assert result.combined.count("FAILED in the middle\n") == 1
    assert result.combined.endswith("END\n")
    assert "bytes left out" in result.combined
    assert len(result.combined) < 3 * 1024 * 1024


@pytest.mark.whole
def test_somebody_may_look_up_while_a_command_runs_which_changes_nothing_of_it(shared_box, monkeypatch):
    monkeypatch.setattr(launcher, "_LOOK_EVERY", 0.05)
    looked = []
    with shared_box.toolbox.while_waiting(lambda: looked.append(time.monotonic())):
        result = shared_box.sh("echo begun; sleep 1; exit 3")
    assert (result.exit_code, result.stdout) == (3, "begun\n")
    assert len(looked) > 3
    seen = len(looked)
    assert shared_box.sh("sleep 0.2").exit_code == 0
    assert len(looked) == seen, "only inside the block"


@pytest.mark.whole
def test_the_time_of_a_look_is_not_taken_from_the_command(start, monkeypatch):
    """Somebody looks for longer than an answer may take altogether."""
    monkeypatch.setattr(launcher, "_LOOK_EVERY", 0.05)
    box = start(grace=0.4)
    with box.toolbox.while_waiting(lambda: time.sleep(3)):
        result = box.sh("sleep 0.2; echo done", timeout=2)
    assert (result.exit_code, result.stdout) == (0, "done\n")
