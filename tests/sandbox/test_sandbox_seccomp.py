"""Doors of the kernel that no tool needs are shut (docs/threat-model.md)."""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from toolbox_world import root_only, stays_root

import stepflow.sandbox.child
from stepflow.domain.words import Isolation
from stepflow.errors import IsolationError
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.child import seccomp
from stepflow.sandbox.isolation import ToolboxOptions

SANDBOX = Path(stepflow.sandbox.child.__file__).parent.parent
MACHINE = platform.machine()
pytestmark = pytest.mark.skipif(MACHINE not in seccomp.NUMBERS, reason="a machine that there is a filter for")

#: Makes a system call and prints which error it was: `python3 call.py NUMBER ARGUMENT…`.
CALL = """
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(*(ctypes.c_long(int(word)) for word in sys.argv[1:]))
print(errno.errorcode[ctypes.get_errno()] if result < 0 else "")
"""
#: Calls the kernel answers with another error before it looks at any right, so that the filter is what is seen.
CALLS = {
    "io_uring_setup": ((0, 0), "ENOSYS"),
    "io_uring_enter": ((-1, 0, 0, 0, 0, 0), "ENOSYS"),
    "io_uring_register": ((-1, 0, 0, 0), "ENOSYS"),
    "clone3": ((0, 0), "ENOSYS"),
    "unshare": ((0x10000000 | 1,), "EPERM"),
    "clone": ((0x10000000 | 0x200, 0, 0, 0, 0), "EPERM"),
    "add_key": ((0, 0, 0, 0, 0), "EPERM"),
    "request_key": ((0, 0, 0, 0), "EPERM"),
    "keyctl": ((-1, 0, 0, 0, 0), "EPERM"),
    "bpf": ((0, 0, 1 << 20), "EPERM"),
    "perf_event_open": ((0, 0, 0, 0, -1), "EPERM"),
    "userfaultfd": ((-1,), "EPERM"),
    "socket": ((40, 1 << 30, 0), "EAFNOSUPPORT"),
    **dict.fromkeys(
        (
            *("setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
            *("removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
        ),
        ((-1, 0, 0, 0, 0, 0), errno.errorcode[errno.EOPNOTSUPP]),
    ),
    **dict.fromkeys(("shmget", "semget", "msgget"), ((-1, 1 << 40, 0, 0), "ENOSPC")),
    "setpriority": ((2, -1, 0), "EPERM"),
    "ioprio_set": ((3, -1, 0), "EPERM"),
}
#: For these an id decides: the launcher's, which is known once there is one. Without the filter they are asked for
#: something that the kernel never grants, and answers with another error.
WITH_AN_ID = {
    "sched_setscheduler": (-1, 0),
    "sched_setparam": (0,),
    "sched_setattr": (0, 0),
    "sched_setaffinity": (0, 0),
}


def ask(box, call: str) -> str:
    (box.checkout / "call.py").write_text(CALL)
    words = (seccomp.NUMBERS[MACHINE][call], *CALLS[call][0])
    ended = box.sh(f"python3 call.py {' '.join(map(str, words))}")
    return ended.stdout.strip() or ended.stderr or "it went well"


class TestDoors:
    @pytest.mark.sample(5)
    @pytest.mark.parametrize("call", CALLS)
    def test_are_shut(self, shared_box, call):
        assert ask(shared_box, call) == CALLS[call][1]

    @pytest.mark.whole
    def test_are_open_without_the_layer(self, start):
        if "Seccomp:\t0" not in Path("/proc/self/status").read_text():
            pytest.skip("this process is already under a filter")
        box = start(disabled_layers=frozenset({"seccomp"}), isolation=Isolation.BEST_EFFORT)
        assert {call for call in CALLS if ask(box, call) == CALLS[call][1]} == set()
        assert box.toolbox.isolation["seccomp"] == "switched off"

    def test_what_tools_do_all_day_is_not_touched(self, shared_box):
        script = (
            "import subprocess, threading, os, socket\n"
            "t = threading.Thread(target=os.getpid); t.start(); t.join()\n"
            "subprocess.run(['true'], check=True); os.fork() or os._exit(0)\n"
            "socket.socketpair(); socket.socket().close(); open('here', 'w')\n"
        )
        (shared_box.checkout / "all_day.py").write_text(script)
        assert shared_box.sh("python3 all_day.py && rm here").stderr == ""


#: Changes what the scheduler knows of a process, by every call that there is; prints what was refused.
SCHEDULE = """
import os, resource, sys
process = int(sys.argv[1])
for change in (
    lambda: os.sched_setscheduler(process, os.SCHED_BATCH, os.sched_param(0)),
    lambda: os.sched_setparam(process, os.sched_param(0)),
    lambda: os.sched_setaffinity(process, os.sched_getaffinity(process)),
    lambda: os.setpriority(os.PRIO_PROCESS, process, 5),
    lambda: os.setpriority(os.PRIO_PGRP, process and os.getpgid(process), 5),
    lambda: resource.prlimit(process, resource.RLIMIT_CORE, (0, 0)),
):
    try:
        change()
        print("done")
    except OSError as refusal:
        print(refusal.strerror)
"""
NONE, ALL = ["Operation not permitted"] * 6, ["done"] * 6


class TestScheduling:
    @pytest.fixture
    def schedule(self, shared_box):
        def ask(process: str) -> list[str]:
            (shared_box.checkout / "schedule.py").write_text(SCHEDULE)
            return shared_box.bash(f"python3 schedule.py {process}").output.splitlines()

        return ask

    def test_the_launchers_and_the_parents_is_not_changed(self, schedule):
        assert schedule("$PPID") == NONE
        assert schedule(str(os.getpid())) == NONE

    def test_a_process_changes_its_own_and_that_of_others_of_the_tools(self, schedule):
        assert schedule("0") == ALL
        assert schedule("$$") == ALL

    @pytest.mark.parametrize("call", WITH_AN_ID)
    def test_no_call_for_it_is_open(self, shared_box, call):
        words = f"{seccomp.NUMBERS[MACHINE][call]} $PPID {' '.join(map(str, WITH_AN_ID[call]))}"
        (shared_box.checkout / "call.py").write_text(CALL)
        assert shared_box.bash(f"python3 call.py {words}").output == "EPERM\n"


#: Copies files in the ways that know of attributes.
COPY = """
set -e
mkdir from && echo text > from/file && chmod 750 from/file && ln -s file from/link && touch -d 2001-02-03 from/file
cp -a from copied
mkdir unpacked && tar --create --xattrs from | tar --extract --xattrs --directory unpacked
mkdir plain && tar --create from | tar --extract --directory plain
install -m 750 from/file installed
mv from/file from/moved && mv from/moved from/file
python3 -c 'import shutil; shutil.copytree("from", "by-python", symlinks=True)'
git init --quiet cloned && git -C cloned add --all
for folder in from copied unpacked/from plain/from by-python; do
  stat --format='%a %Y %F' $folder/file $folder/link | sed 's/ [0-9]* symbolic link/ symbolic link/'
done | sort | uniq --count | sed 's/^ *//'
"""


def test_what_postgresql_asks_for_is_granted(shared_box):
    segment = (
        "import ctypes; libc = ctypes.CDLL(None); made = libc.shmget(0, ctypes.c_size_t(56), 0o1600); "
        "print(made >= 0, libc.shmctl(made, 0, None))"
    )
    assert shared_box.sh(f"python3 -c '{segment}'").stdout == "True 0\n"


#: getpid by the door that 32-bit programs use, where the filter's numbers would mean other calls.
OTHER_CONVENTION = """
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
print(call())
"""


@pytest.mark.skipif(MACHINE != "x86_64", reason="machine code for x86_64")
class TestOtherConventions:
    def test_calls_as_of_32_bits_are_refused(self, shared_box):
        (shared_box.checkout / "other.py").write_text(OTHER_CONVENTION)
        assert shared_box.sh("python3 other.py").stdout.strip() == str(-errno.EPERM)

    def test_they_work_without_the_layer(self, start):
        box = start(disabled_layers=frozenset({"seccomp"}), isolation=Isolation.BEST_EFFORT)
        (box.checkout / "other.py").write_text(OTHER_CONVENTION)
        ended = box.sh("python3 other.py")
        assert ended.stdout.strip() != str(-errno.EPERM)
        assert ended.exit_code != 0 or int(ended.stdout) > 0

    def test_calls_with_the_bit_of_x32_are_refused(self, shared_box):
        (shared_box.checkout / "call.py").write_text(CALL)
        assert shared_box.sh(f"python3 call.py {0x40000000 | 39}").stdout == "ENOSYS\n"


#: Root without capabilities talks to root's own services unless it cannot have a socket.
AS_ROOT = """
import errno, json, os, socket, sys
sys.path.insert(0, sys.argv[1])
from child import enter_sandbox, seccomp
enter_sandbox.drop_capabilities()
enter_sandbox.forgo_new_privileges()
if sys.argv[2] == "filtered":
    assert not seccomp.refuse(seccomp.NO_UNIX_SOCKETS)
def reach(open_it, name):
    try:
        open_it().connect(os.path.join(sys.argv[3], name))
    except OSError as exc:
        return errno.errorcode[exc.errno]
    return ""
pair = lambda kind: lambda: socket.socketpair(socket.AF_UNIX, kind)[0]
print(json.dumps([
    reach(lambda: socket.socket(socket.AF_UNIX), "stream"),
    reach(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), "datagram"),
    reach(pair(socket.SOCK_DGRAM), "datagram"),
    reach(pair(socket.SOCK_RAW), "datagram"),
    reach(pair(socket.SOCK_STREAM), "stream"),
    reach(pair(socket.SOCK_SEQPACKET), "sequence"),
]))
"""


@root_only
class TestStayingRoot:
    @pytest.fixture
    def services(self, tmp_path):
        import socket

        kinds = {"stream": socket.SOCK_STREAM, "datagram": socket.SOCK_DGRAM, "sequence": socket.SOCK_SEQPACKET}
        sockets = []
        for name, kind in kinds.items():
            sockets.append(socket.socket(socket.AF_UNIX, kind))
            sockets[-1].bind(str(tmp_path / name))
            if name != "datagram":
                sockets[-1].listen()
        yield tmp_path
        for service in sockets:
            service.close()

    @pytest.mark.parametrize(
        ("how", "expected"),
        [
            ("filtered", ["EACCES", "EACCES", "EACCES", "EACCES", "EISCONN", "EISCONN"]),
            ("open", ["", "", "", "", "EISCONN", "EISCONN"]),
        ],
    )
    def test_sockets_of_roots_services_are_out_of_reach(self, services, how, expected):
        argv = [sys.executable, "-I", "-S", "-c", AS_ROOT, str(SANDBOX), how, str(services)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert (done.stderr, json.loads(done.stdout or "[]")) == ("", expected)

    def test_the_filter_is_on_where_the_tools_stay_root(self, start, checkout, services):
        box = start(**stays_root(checkout))
        ended = box.sh(f"python3 -c 'import socket; socket.socket(1).connect(\"{services}/stream\")'")
        assert "Permission denied" in ended.stderr
        assert box.sh("python3 -c 'import socket; socket.socketpair()'").exit_code == 0
        assert "unix sockets" in box.toolbox.isolation["seccomp"]

    def test_files_of_root_are_closed(self, start, checkout, tmp_path):
        (tmp_path / "secret").write_text("canary")
        box = start(**stays_root(checkout))
        assert "Permission denied" in box.sh(f"cat {tmp_path}/secret").stderr
        assert "Permission denied" in box.sh(f"cat /proc/{os.getpid()}/environ").stderr

    @pytest.mark.parametrize("layer", ["landlock", "seccomp", "no_new_privs"])
    def test_it_is_refused_also_with_best_effort_where_a_layer_is_missing(self, checkout, layer):
        options = ToolboxOptions(**stays_root(checkout, disabled_layers=frozenset({layer, "network"})))
        with pytest.raises(IsolationError, match=r"would stay root .* needs .*(landlock|seccomp)"):
            Toolbox.start(checkout, options=options)
