"""Nothing of the tools outlives its time (docs/threat-model.md, cases 26 and 27)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from toolbox_world import alive, gone_within, root_only, stays_root

from stepflow.domain.words import Isolation
from stepflow.errors import IsolationError
from stepflow.sandbox.isolation import ProcessLimits

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds on to daemons")
pytestmark = [linux_only, pytest.mark.whole]

#: A daemon as daemons are made: two forks, a session of its own, deaf to hang-ups, all streams elsewhere.
DAEMON = "(setsid nohup sh -c 'echo $$ > daemon.pid; exec sleep 300' > /dev/null 2>&1 < /dev/null &) ; sleep 0.3"


def daemon(box) -> int:
    pid = int((box.checkout / "daemon.pid").read_text())
    assert alive(pid)
    return pid


#: What no daemon of a tool outlives, or is alive beside.
ENDS = {
    "a step": lambda box: box.toolbox.end_step(),
    "a command": lambda box: box.sh("true"),
    "a bundle": lambda box: box.toolbox.stream_bundle(box.toolbox.tree().commit, bytearray().extend, max_bytes=10**6),
    "the toolbox, closed twice": lambda box: (box.toolbox.close(), box.toolbox.close()),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_daemon_of_a_tool_does_not_live_on(box, end):
    box.bash(DAEMON)
    pid = daemon(box)
    end(box)
    assert not alive(pid)


def test_processes_that_fork_all_the_time_are_killed_too(start):
    box = start(limits=ProcessLimits(processes=60))
    result = box.sh("f() { f | f & }; f 2> /dev/null; exec sleep 60", timeout=1.0)
    assert (result.exit_code, result.timed_out) == (-1, True)
    assert "still alive" not in result.error
    assert box.sh("echo fine").stdout == "fine\n"


#: Its first thread ends, and so it looks like a dead one that nobody has waited for; another thread goes on.
HEADLESS = """
import ctypes, os, threading, time
def live():
    while True:
        open("next", "w").write(str(time.monotonic()))
        os.replace("next", "beat")
        time.sleep(0.01)
os.setsid()
threading.Thread(target=live, daemon=True).start()
ctypes.CDLL(None).pthread_exit(None)
"""
#: Each starts the next and ends, before anybody who has read its number can look at it.
RELAY = """
import os, time
number = 0
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
    number += 1
    if number % 20 == 0:
        open("next", "w").write(str(time.monotonic()))
        os.replace("next", "beat")
"""


@pytest.mark.parametrize("hidden", [HEADLESS, RELAY], ids=["headless", "relay"])
@pytest.mark.parametrize("disabled", [frozenset[str](), frozenset({"landlock"})], ids=["scoped", "unscoped"])
def test_a_process_that_hides_in_the_process_table_is_dead_after_the_step(start, hidden, disabled):
    box = start(isolation=Isolation.BEST_EFFORT, disabled_layers=disabled)
    box.bash(f"python3 -c '{hidden}' > /dev/null 2>&1 & while [ ! -e beat ]; do sleep 0.1; done")
    beat = box.checkout / "beat"
    first, deadline = beat.read_text(), time.monotonic() + 30
    while beat.read_text() == first:
        assert time.monotonic() < deadline, "it does not live"
        time.sleep(0.01)
    box.toolbox.end_step()
    last = beat.read_text()
    time.sleep(0.2)
    assert beat.read_text() == last


FAST_RELAYS = """
#include <time.h>
#include <unistd.h>
int main(void) {
    time_t end = time(0) + 15;
    for (int i = 0; i < 40; i++)
        if (fork() == 0 && setsid()) for (;;) if (fork() > 0 || time(0) > end) _exit(0);
    sleep(60);
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a compiler for processes that end so fast")
def test_processes_that_end_as_fast_as_they_are_reaped_stretch_no_timeout(start):
    box = start(bash_timeout=1.0, bash_max_timeout=1.0, grace=8.0)
    subprocess.run(["cc", "-xc", "-static", "-o", box.checkout / "relays", "-"], input=FAST_RELAYS.encode(), check=True)
    assert "timed out after 1 s" in box.bash("./relays").output
    box.toolbox.end_step()


def test_a_file_ends_where_the_limit_is(start):
    box = start(limits=ProcessLimits(file_bytes=1024 * 1024))
    assert box.sh("head -c 3000000 /dev/zero > big").exit_code != 0
    assert (box.checkout / "big").stat().st_size == 1024 * 1024
    assert box.tool("write", file_path="big", content="x" * 2_000_000).is_error
    assert box.bash("echo fine").output == "fine\n"


def test_programs_are_started_with_their_limits(start):
    box = start(limits=ProcessLimits(processes=100, file_bytes=1 << 30, open_files=512))
    limits = box.bash("cat /proc/self/limits; grep NoNewPrivs /proc/self/status").output
    rows = {line[:26].strip(): line[26:].split()[:2] for line in limits.splitlines()}
    assert rows["Max file size"] == [str(1 << 30)] * 2
    assert rows["Max open files"] == ["512"] * 2
    assert rows["Max core file size"] == ["0", "0"]
    assert int(rows["Max processes"][0]) >= 100
    assert limits.endswith("NoNewPrivs:\t1\n")


def test_when_memory_runs_out_the_tools_are_ended_first_then_the_launcher_then_the_parent(box):
    score = "cat /proc/self/oom_score_adj"
    tools = {box.bash(score).output, box.sh(score).stdout, box.bash(f"setsid {score}").output}
    launcher = Path(f"/proc/{box.launcher}/oom_score_adj").read_text()
    parent = Path("/proc/self/oom_score_adj").read_text()
    assert [*map(int, tools)] == [1000] > [int(launcher)] > [int(parent)]


def test_tools_cannot_be_ended_later(box):
    assert box.bash("echo 0 > /proc/self/oom_score_adj; cat /proc/self/oom_score_adj").output.endswith("denied\n1000\n")


PARENT = """
import signal, sys, time
from pathlib import Path
from stepflow.domain.conversation import ToolUse
from stepflow.domain.words import Isolation
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.isolation import ToolboxOptions
checkout, how = Path(sys.argv[1]), sys.argv[2]
# In the background of a shell a program begins with this signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
with Toolbox.start(checkout, options=ToolboxOptions(private_root=checkout.parent)) as box:
    def bash(command):
        return box.run_tool(ToolUse(tool_use_id="t", name="bash", input={"command": command})).output
    bash(sys.argv[3])
    print(bash("echo $PPID").strip(), bash("cat daemon.pid").strip(), flush=True)
    try:
        bash("sleep 300") if how == "busy" else time.sleep(300)
    except KeyboardInterrupt:
        begun = time.monotonic()
        box.close()
        print("closed", time.monotonic() - begun, flush=True)
"""


@pytest.fixture
def parent(checkout):
    """Starts a real parent process; gives it with the ids of its launcher and its tools' daemon."""
    started = []

    def begin(how: str) -> tuple[subprocess.Popen, int, int]:
        argv = [sys.executable, "-c", PARENT, str(checkout), how, DAEMON]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        started.append(process)
        launcher, pid = map(int, process.stdout.readline().split())
        assert alive(launcher)
        assert alive(pid)
        return process, launcher, pid

    yield begin
    for process in started:
        process.kill()
        process.stdout.close()
        process.wait()


@pytest.mark.parametrize("how", ["idle", "busy"])
def test_everything_dies_with_a_parent_that_is_killed(parent, how):
    process, launcher, pid = parent(how)
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert gone_within(3, launcher, pid)


@pytest.mark.parametrize("how", ["idle", "busy"])
def test_an_interrupted_call_leaves_a_toolbox_that_closes_within_two_seconds(parent, checkout, how):
    process, launcher, pid = parent(how)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    word, seconds = process.stdout.readline().split()
    assert (word, float(seconds) < 2) == ("closed", True)
    assert not alive(launcher)
    assert not alive(pid)
    assert process.wait(5) == 0


def test_the_end_of_the_thread_that_started_it_is_not_the_end_of_the_parent(start):
    from threading import Thread

    started = []
    thread = Thread(target=lambda: started.append(start()))
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert started[0].bash("echo still here").output == "still here\n"


def test_a_launcher_that_is_killed_is_a_broken_toolbox_and_nothing_of_it_stays(start, checkout):
    box = start(**stays_root(checkout))
    with pytest.raises(IsolationError, match=r"ended during `tool` \(exit status -9\)"):
        box.bash("kill -9 $PPID; sleep 300")
    with pytest.raises(IsolationError, match="ended during"):
        box.bash("echo again")
    box.toolbox.close()


#: A daemon of tools that hides from /proc: its files belong to root then.
HIDDEN = (
    "import ctypes, os, time; ctypes.CDLL(None).prctl(4, 0); "
    "open('daemon.pid', 'w').write(str(os.getpid())); time.sleep(300)"
)


@root_only
@pytest.mark.parametrize(
    "attempt", ["kill -9 $PPID; sleep 300", "kill -9 -1; sleep 300", "kill -STOP $PPID; sleep 300"]
)
def test_tools_that_end_their_own_launcher_have_won_nothing(start, attempt):
    box = start(grace=2.0, bash_timeout=3.0)
    box.bash(DAEMON)
    pid = daemon(box)
    with pytest.raises(IsolationError, match=r"ended during `tool`|no complete answer to `tool`"):
        box.bash(attempt)
    box.toolbox.close()
    assert box.toolbox.ended_all
    assert not alive(pid)


#: Ends the launcher, and then lets nothing run that it may signal.
STOPPER = """
import os, signal
os.setsid()
if os.fork() == 0:
    os.kill(int(os.environ["LAUNCHER"]), signal.SIGKILL)
    while True:
        os.kill(-1, signal.SIGSTOP)
"""


@root_only
def test_tools_that_stop_all_of_their_user_do_not_hold_up_the_end(start):
    box = start(isolation=Isolation.BEST_EFFORT, disabled_layers=frozenset({"landlock"}), grace=2.0)
    (box.checkout / "stopper.py").write_text(STOPPER)
    with pytest.raises(IsolationError):
        box.bash("LAUNCHER=$PPID python3 stopper.py; sleep 300", timeout_ms=2000), box.bash("true")
    begun = time.monotonic()
    box.toolbox.close()
    assert time.monotonic() - begun < 60
    assert box.toolbox.ended_all


@root_only
def test_nothing_of_the_tools_stays_when_their_launcher_is_killed(box):
    box.bash(f'setsid python3 -c "{HIDDEN}" & until [ -s daemon.pid ]; do sleep 0.05; done')
    pid = daemon(box)
    os.kill(box.launcher, signal.SIGKILL)
    # The shell dies with it, perhaps with an answer.
    with pytest.raises(IsolationError, match=r"ended during `tool`"):
        box.bash("true"), box.tool("read", file_path="hello.txt")
    box.toolbox.close()
    assert not alive(pid)
    assert box.toolbox.ended_all


def test_a_launcher_that_gets_no_processor_for_a_while_is_waited_for(start, checkout):
    """Its last word, that nothing is left alive, decides whether a run that is complete counts."""
    box = start(**stays_root(checkout))
    launcher = box.launcher
    os.kill(launcher, signal.SIGSTOP)
    later = threading.Timer(2.0, os.kill, (launcher, signal.SIGCONT))
    later.start()
    box.toolbox.close()
    later.join()
    assert box.toolbox.ended_all


@pytest.mark.whole
def test_a_launcher_that_hangs_is_not_waited_for_and_what_it_had_running_dies_with_it(start, checkout):
    box = start(**stays_root(checkout), grace=0.5, file_timeout=0.1)
    launcher = box.launcher
    box.bash(DAEMON)
    pid = daemon(box)
    os.kill(launcher, signal.SIGSTOP)
    with pytest.raises(IsolationError, match="no complete answer to `tool` in time"):
        box.tool("read", file_path="hello.txt")
    begun = time.monotonic()
    box.toolbox.close()
    assert time.monotonic() - begun < 10
    assert gone_within(10, launcher, pid)


def test_a_toolbox_is_closed_with_many_programs_at_work(start, checkout):
    box = start(**stays_root(checkout))
    with contextlib.ExitStack() as servers:
        for _ in range(5):
            servers.enter_context(box.toolbox.start_server(("sleep", "300"), {}))
        pids = [int(pid) for pid in box.bash("sleep 300 & echo $!; ps -o pid= --ppid $PPID").output.split()]
        box.toolbox.close()
    assert box.toolbox.ended_all
    assert len(pids) > 6
    assert not any(map(alive, pids))


def test_no_private_folder_stays(start, open_folder):
    private = open_folder / "private"
    private.mkdir()
    box = start(private_root=private)
    box.bash("mkdir -p $HOME/a/b $TMPDIR/c; chmod 0 $HOME/a")
    assert [path.name.startswith("stepflow-tools-") for path in private.iterdir()] == [True]
    box.toolbox.close()
    assert list(private.iterdir()) == []
