"""`network: none` closes the network for everything that a tool or a validator starts (docs/threat-model.md)."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import sys
import threading

import pytest
from toolbox_world import Box, reachable_folder, root_only

from stepflow.domain.words import Isolation, Network
from stepflow.errors import IsolationError
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.isolation import ToolboxOptions

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux's own ways to the network")

#: Tries each way out and prints which error it met, empty when it went well: `python3 ways.py PORT`.
WAYS = """
import ctypes, errno, json, os, socket, sys
port = int(sys.argv[1])
def meet(action):
    try:
        action()
    except OSError as exc:
        return errno.errorcode.get(exc.errno, str(exc.errno))
    return ""
def uring():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(425), ctypes.c_long(1), ctypes.create_string_buffer(120)) < 0:
        raise OSError(ctypes.get_errno(), "")
S = socket
ways = {
    "tcp": lambda: S.create_connection(("127.0.0.1", port), 5),
    "tcp listen": lambda: S.socket().bind(("127.0.0.1", 0)),
    "tcp v6": lambda: S.socket(S.AF_INET6),
    "mptcp": lambda: S.socket(S.AF_INET, S.SOCK_STREAM, 262),
    "udp": lambda: S.socket(S.AF_INET, S.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port)),
    "udp v6": lambda: S.socket(S.AF_INET6, S.SOCK_DGRAM),
    "ping": lambda: S.socket(S.AF_INET, S.SOCK_DGRAM, 1),
    "raw": lambda: S.socket(S.AF_INET, S.SOCK_RAW, 1),
    "packet": lambda: S.socket(S.AF_PACKET, S.SOCK_RAW, 0x300),
    "netlink": lambda: S.socket(S.AF_NETLINK, S.SOCK_RAW, 0),
    "vsock": lambda: S.socket(S.AF_VSOCK),
    "crypto": lambda: S.socket(S.AF_ALG, S.SOCK_SEQPACKET),
    "bluetooth": lambda: S.socket(31, S.SOCK_RAW, 1),
    "pair": lambda: S.socketpair(S.AF_INET),
    "future": lambda: S.socket(45),
    "io_uring": uring,
}
found = {name: meet(way) for name, way in ways.items()}
for family in range(256):
    found.setdefault(f"family {family}", meet(lambda: S.socket(family, S.SOCK_DGRAM)) if family != 1 else "EACCES")
print(json.dumps(found))
"""
CLOSED = "EACCES"
#: Also where the kernel says no before the filter of this layer: another one is asked first, or says more.
REFUSED = {CLOSED, "ENOSYS", "EAFNOSUPPORT"}


@contextlib.contextmanager
def listening():
    """A server on this machine; gives its port and what came in."""
    came = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                came.append(connection.recv(100))
                connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 6\r\n\r\ncanary")
                connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server.getsockname()[1], came
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


@pytest.fixture(scope="module")
def closed(template):
    with reachable_folder() as folder:
        checkout = shutil.copytree(template, folder / "checkout", symlinks=True)
        with Toolbox.start(checkout, options=ToolboxOptions(network=Network.NONE)) as toolbox:
            yield Box(toolbox, checkout)


def ways(box: Box, port: int) -> dict[str, str]:
    (box.checkout / "ways.py").write_text(WAYS)
    ended = box.sh(f"python3 ways.py {port}")
    assert ended.exit_code == 0, ended.stderr
    return json.loads(ended.stdout)


def test_every_way_out_is_closed(closed):
    with listening() as (port, came):
        errors = ways(closed, port)
    assert {name for name, error in errors.items() if error != CLOSED} <= {
        "io_uring",
        "vsock",
        "crypto",
        "family 38",
        "family 40",
    }
    assert set(errors.values()) <= REFUSED
    assert came == []
    assert closed.toolbox.isolation["network"].startswith("closed")
    assert closed.toolbox.warnings == ()


@pytest.mark.whole
@pytest.mark.parametrize(
    "options", [{}, {"network": Network.NONE, "disabled_layers": frozenset({"network"})}], ids=["full", "left out"]
)
def test_without_the_layer_they_are_open(start, options):
    box = start(isolation=Isolation.BEST_EFFORT if options else Isolation.REQUIRED, **options)
    with listening() as (port, came):
        errors = ways(box, port)
    assert {errors[attempt] for attempt in ("tcp", "tcp listen", "udp", "netlink")} == {""}
    assert came
    assert box.toolbox.isolation["network"] == ("switched off" if options else "open")


def test_the_io_uring_door_is_shut_by_this_layer_alone_too(start):
    box = start(
        network=Network.NONE, isolation=Isolation.BEST_EFFORT, disabled_layers=frozenset({"seccomp", "landlock"})
    )
    with listening() as (port, _):
        errors = ways(box, port)
    assert errors["io_uring"] == "ENOSYS"
    assert {error for name, error in errors.items() if name != "io_uring"} == {CLOSED}


PROGRAMS = (
    "curl -s --max-time 5 http://127.0.0.1:{0}/",
    "wget -q -O - -T 5 -t 1 http://127.0.0.1:{0}/",
    "bash -c 'exec 3<>/dev/tcp/127.0.0.1/{0}; echo hi >&3; cat <&3'",
    "git ls-remote http://127.0.0.1:{0}/x.git",
    'python3 -c \'import socket; socket.create_connection(("127.0.0.1", {0}), 5).send(b"x")\'',
    "perl -MIO::Socket::INET -e 'IO::Socket::INET->new(\"127.0.0.1:{0}\")->print(1)'",
)


def test_no_program_gets_out_from_the_shell_or_from_a_validator(closed):
    with listening() as (port, came):
        for program in PROGRAMS:
            for ended in (closed.sh(program.format(port)), closed.bash(program.format(port))):
                assert ended.exit_code != 0
    assert came == []


def test_no_tool_inherits_a_socket(closed):
    assert "socket:" not in closed.sh("ls -l /proc/self/fd").stdout + closed.bash("ls -l /proc/$$/fd").output


@root_only
def test_a_user_of_the_tools_own_keeps_its_unix_sockets(closed):
    script = (
        "import socket\n"
        "a = socket.socket(socket.AF_UNIX); a.bind('here.sock'); a.listen()\n"
        "b = socket.socket(socket.AF_UNIX); b.connect('here.sock'); a.accept()[0].send(b'1'); print(b.recv(1))\n"
    )
    (closed.checkout / "unix.py").write_text(script)
    assert closed.sh("python3 unix.py; rm here.sock").stdout == "b'1'\n"


def test_a_network_that_cannot_be_closed_is_refused(checkout):
    with pytest.raises(IsolationError, match="network: switched off"):
        Toolbox.start(checkout, options=ToolboxOptions(network=Network.NONE, disabled_layers=frozenset({"network"})))
