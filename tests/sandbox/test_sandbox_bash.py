"""The bash tool: one shell per step (docs/threat-model.md, case 27)."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from toolbox_world import stays_root


@pytest.fixture
def box(cleared_box):
    return cleared_box


def test_a_command_gives_its_output_and_exit_code(box):
    result = box.bash("echo out; echo err >&2")
    assert (result.output, result.is_error, result.exit_code) == ("out\nerr\n", False, 0)
    assert result.tool_use_id == "toolu_1"
    assert result.seconds > 0


def test_folder_variables_and_functions_stay_within_a_step(box):
    box.bash("mkdir sub; cd sub; X='a b'; declare -A M=([k]=v); greet() { echo hi $1; }; export Y=2")
    assert box.bash("basename $PWD; echo $X ${M[k]}; greet you; env | grep ^Y=").output == "sub\na b v\nhi you\nY=2\n"


def test_a_step_ends_with_its_shell(box):
    box.bash("cd /; X=1")
    box.toolbox.end_step()
    assert box.bash("echo ${X-unset}; pwd").output == f"unset\n{box.checkout}\n"


def test_a_timeout_kills_the_command_and_says_that_the_shell_is_fresh(box):
    result = box.bash("X=1; echo begun; sleep 60", timeout_ms=300)
    assert result.is_error
    assert result.exit_code is None
    assert result.output.startswith("begun\n[timed out after 0.3 s")
    assert "fresh shell" in result.output
    assert result.seconds < 10
    assert box.bash("echo ${X-unset}").output == "unset\n"


@pytest.mark.whole
def test_the_callers_longest_time_bounds_what_the_model_asks_for(start):
    result = start(bash_max_timeout=0.3).bash("sleep 60", timeout_ms=60_000)
    assert "timed out after 0.3 s" in result.output


@pytest.mark.parametrize("command", ["exit 3", "set -e; (exit 3)", "exec sh -c 'exit 3'", "exec >&- 2>&-; exit 3"])
def test_a_command_that_ends_the_shell_is_told_and_the_next_call_works(shared_box, command):
    result = shared_box.bash(command)
    assert result.exit_code == 3
    assert "the shell ended with exit code 3" in result.output
    assert shared_box.bash("echo again").output == "again\n"


def test_commands_have_no_standard_input_and_cannot_swallow_the_next_one(box):
    assert box.bash("cat; read line; echo \"got '$line'\"").output == "got ''\n"
    assert box.bash("echo next").output == "next\n"


@pytest.mark.parametrize("command", ["echo 'open", "if true; then", "break; continue", "cat <<END\nno end"])
def test_a_broken_command_never_blocks_the_shell(shared_box, command):
    shared_box.bash(command, timeout_ms=5000)
    assert shared_box.bash("echo fine").output == "fine\n"


def test_the_status_line_cannot_be_forged_without_its_nonce(box):
    result = box.bash("for fd in /proc/self/fd/*; do echo 'abc 0' > $fd; done 2>/dev/null; false")
    assert result.exit_code == 1


@pytest.mark.whole
def test_long_output_keeps_head_and_tail_and_the_program_stays_small(box):
    result = box.bash("echo FIRST; yes 0123456789 | head -c 300M; echo LAST")
    assert result.output.startswith("FIRST\n")
    assert result.output.endswith("LAST\n")
    assert re.search(r"\[… \d{9} bytes left out here …\]", result.output)
    assert len(result.output.encode()) <= 100 * 1024
    status = Path(f"/proc/{box.launcher}/status").read_text()
    assert int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) < 60_000


@pytest.mark.parametrize("between", [" ", '","'])
def test_a_line_that_is_too_long_is_cut_between_its_words(box, between):
    result = box.bash(f"seq --format='number-%.0f-ends-here' 1 20000 | tr '\\n' '#' | sed 's/#/{between}/g'")
    begin, left_out, end = result.output.split("\n")
    assert re.fullmatch(r"\[… \d+ bytes left out here …\]", left_out)
    words = [word for part in (begin, end) for word in re.split(r'[ ",]+', part) if word]
    assert [word for word in words if not re.fullmatch(r"number-\d+-ends-here", word)] == []


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "command is missing"),
        ({"command": " "}, "command is missing"),
        ({"command": 7}, "command must be a string"),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "x", "timeout_ms": -1}, "timeout_ms must be a whole number"),
        ({"command": "x", "restart": "yes"}, "restart must be true or false"),
        ({"command": ": " + "x" * 3_000_000}, "write tool"),
    ],
)
def test_bad_input_is_answered_with_what_is_wrong(shared_box, inputs, message):
    result = shared_box.tool("bash", **inputs)
    assert result.is_error
    assert message in result.output


def test_an_unknown_tool_is_answered_with_the_names_of_the_known(shared_box):
    result = shared_box.tool("browser")
    assert result.is_error
    assert "bash, read, write, edit, glob, grep" in result.output


def test_a_shell_whose_pipe_tools_have_filled_is_replaced(start, checkout):
    box = start(**stays_root(checkout))
    fill = "exec 9<>/proc/$$/fd/10; (sleep 0.1; kill -STOP $$; yes '#' >&9) & echo $$"
    state = Path(f"/proc/{int(box.bash(fill).output)}/stat")
    deadline = time.monotonic() + 30
    while state.read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # Where the pipe is not full yet, the command is never read.
    assert box.bash("echo lost", timeout_ms=2000).is_error
    assert box.bash("echo fine").output == "fine\n"


@pytest.mark.whole
def test_tools_that_read_their_own_output_stop_nobody(start):
    box = start()
    theft = "(exec 9</dev/stdout; timeout 3 cat <&9 > /dev/null) & for i in $(seq 20000); do echo $i; done; sleep 1"
    assert box.bash(theft, timeout_ms=10_000).exit_code == 0
    assert box.sh(theft, timeout=10).exit_code == 0
    assert box.bash("echo fine").output == "fine\n"


@pytest.mark.parametrize("command", ["echo \ud800", "echo '\udfff'"])
def test_an_unpaired_surrogate_in_a_command_is_refused_and_nothing_breaks(shared_box, command):
    assert "unpaired surrogate" in shared_box.bash(command).output
    assert shared_box.bash("echo fine").output == "fine\n"


@pytest.mark.parametrize(
    "command",
    [
        *(
            "exec >file.txt",
            "exec 2>&1 >/dev/null",
            "exec &>/dev/null; false",
            "exec 1>&-",
            "exec 2>&-",
            "exec >&- 2>&-",
        ),
        *(
            "exec 4>file.txt 1>&4",
            "trap 'exec >file.txt 2>&1' DEBUG; true",
            "set -e; exec >file.txt",
            "set -u; exec >&-",
        ),
    ],
)
def test_output_that_a_command_redirects_for_good_comes_back_and_is_told(box, command):
    result = box.bash(command)
    assert "redirected the output of the shell" in result.output
    assert result.exit_code == (1 if "false" in command else 0)
    assert box.bash("echo again; echo error >&2").output == "again\nerror\n"
    assert box.bash("cd / && pwd").output == "/\n"
    assert box.bash("pwd").output == "/\n"


@pytest.mark.parametrize("command", ["exec <file.txt", "exec 3>&- 4>&-", "exec 5>file.txt", "stty raw; true", "set -e"])
def test_what_a_command_does_to_other_descriptors_harms_nothing(box, command):
    box.bash("echo in the file > file.txt")
    box.bash(command)
    assert box.bash("cat; echo again").output == "again\n"
