"""Programs of the machine are run within bounds, and nothing that was started is left when one of these is passed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from stepflow.programs import TimedOut, TooMuchOutput, run_program


def is_gone(pid: int) -> bool:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False


def test_output_and_errors_are_returned_apart_or_together() -> None:
    words = ("sh", "-c", "echo out; echo err >&2; exit 3")
    done = run_program(*words)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert run_program(*words, merge_stderr=True).stdout == b"out\nerr\n"


def test_a_program_may_write_before_it_has_read_everything() -> None:
    text = b"line\n" * 400_000
    assert run_program("cat", stdin=text).stdout == text


def test_an_open_file_is_read_from_where_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("first second")
    with path.open("rb", buffering=0) as file:
        file.seek(6)
        assert run_program("cat", stdin=file).stdout == b"second"


def test_the_environment_is_this_one_in_english_or_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN", "1")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert run_program("sh", "-c", "echo $OWN $LC_ALL").stdout == b"1 C\n"
    assert run_program("/usr/bin/env", environment={"OTHER": "2"}).stdout == b"OTHER=2\n"


def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        run_program("no-such-program")


def test_too_much_output_ends_the_program(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(TooMuchOutput):
        run_program("sh", "-c", f"echo $$ > {pid}; exec yes", most_output=1_000)
    assert is_gone(int(pid.read_text()))


def test_what_takes_too_long_is_ended_with_the_output_so_far() -> None:
    with pytest.raises(TimedOut, match=r"`sh` took longer than 0\.5 seconds") as caught:
        run_program("sh", "-c", "echo begun; sleep 60", seconds=0.5, new_session=True)
    assert caught.value.output == b"begun\n"


def test_a_child_that_keeps_the_output_open_is_ended_as_well(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(TimedOut):
        run_program("sh", "-c", f"sleep 60 & echo $! > {pid}", seconds=0.5, new_session=True)
    assert is_gone(int(pid.read_text()))


def test_a_signal_ends_the_program(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    listens = "import signal; signal.signal(signal.SIGTERM, signal.default_int_handler)"
    call = f"run_program('sh', '-c', 'echo $$ > {pid}; exec sleep 60')"
    script = f"{listens}; from stepflow.programs import run_program; {call}"
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL) as parent:
        until = time.monotonic() + 20
        while not (pid.exists() and pid.read_text().strip()) and time.monotonic() < until:
            time.sleep(0.02)
        parent.terminate()
        parent.wait(timeout=10)
    assert is_gone(int(pid.read_text()))
