"""Listed hosts: the tools reach them by name and through the parent, and nothing else."""

from __future__ import annotations

import contextlib
import ctypes
import json
import socket
import sys
import threading
import time
from urllib.parse import quote

import pytest
import trustme
from test_sandbox_network import CLOSED, listening, ways
from toolbox_world import root_only

from stepflow.domain.connection import Connection
from stepflow.domain.words import Isolation, Network
from stepflow.errors import InputError, IsolationError, StepflowError
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.egress.allowed_hosts import is_public, parse_allowed_hosts
from stepflow.sandbox.egress.proxy import Internet
from stepflow.sandbox.egress.socket_calls import connected_pair
from stepflow.sandbox.isolation import ToolboxOptions
from stepflow.sandbox.selftest import Outside, try_canaries
from tests.servers.private_network import Proxy, TlsFront, pem_of
from tests.servers.web_pages import Pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux's own ways to the network")

#: Sends the second argument over a bare socket that was never told of a proxy, and prints what comes back in hex.
BARE = """
import socket, sys
end = socket.create_connection(("192.0.2.1", 443), 5)
end.sendall(bytes.fromhex(sys.argv[1]))
print(end.recv(65536).hex())
"""
#: Asks for a page over TLS by a bare socket with the server name of the first argument.
TLS = """
import socket, ssl, sys
name, tunnel = sys.argv[1:3]
end = socket.create_connection(("192.0.2.1", 443), 5)
if tunnel:
    end.sendall(f"CONNECT {tunnel}:443 HTTP/1.1\\r\\n\\r\\n".encode())
    assert b" 200 " in end.recv(4096)
with ssl.create_default_context(cafile="ca.pem").wrap_socket(end, server_hostname=name) as wrapped:
    wrapped.sendall(f"GET / HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n".encode())
    page = b""
    while piece := wrapped.recv(4096):
        page += piece
print(page.decode().splitlines()[-1])
"""


@pytest.fixture
def pages():
    with Pages() as server:
        yield server


@pytest.fixture
def allow(start, pages):
    """Starts a toolbox that may reach these hosts; those of `known` are names of the web server."""
    with contextlib.ExitStack() as ending:

        def begin(*entries: str, known: tuple[str, ...] = (), **options: object):
            proxy = ending.enter_context(Proxy(dict.fromkeys(known, ("127.0.0.1", pages.port))))
            way = {"connection_to": lambda _: Connection(proxy=f"http://127.0.0.1:{proxy.port}")} if known else {}
            box = start(network=Network.ALLOW, allowed_hosts=parse_allowed_hosts(entries), **way, **options)
            box.proxy = proxy
            return box

        yield begin


def filters_are_locked() -> bool:
    given, ours = connected_pair()
    with given, ours:
        try:
            given.setsockopt(socket.SOL_SOCKET, 44, 0)
        except PermissionError:
            return True
    return False


def asked(box) -> dict[str, tuple[int, int]]:
    return {one.host: (one.allowed, one.refused) for one in box.toolbox.egress.requests()}


def curl(box, *words: str) -> str:
    return box.sh(f"curl -sS --max-time 10 {' '.join(words)}").stdout


class TestByName:
    def test_a_listed_host_is_reached_and_another_is_not(self, allow):
        box = allow("good.example", known=("good.example", "bad.example"))
        assert curl(box, "http://good.example/page") == "canary"
        refused = box.sh("curl -sS --max-time 10 http://bad.example/")
        assert refused.stdout == "stepflow: bad.example is not among the allowed hosts\n"
        tunnel = box.sh("curl -sS --max-time 10 https://bad.example/")
        assert tunnel.exit_code != 0
        assert "403" in tunnel.stderr
        assert box.proxy.targets() == {"good.example:80"}
        assert asked(box) == {"good.example": (1, 0), "bad.example": (0, 2)}

    def test_a_port_must_be_listed_unless_it_is_one_of_the_web(self, allow, pages):
        box = allow("good.example", "other.example:8443", known=("good.example", "other.example"))
        assert "not among the allowed hosts" in curl(box, "http://good.example:8443/")
        assert "not among the allowed hosts" in curl(box, "http://other.example/")
        assert curl(box, "http://other.example:8443/") == "canary"
        assert pages.came == [("/", "other.example:8443")]
        assert asked(box) == {"good.example:8443": (0, 1), "other.example": (0, 1), "other.example:8443": (1, 0)}

    def test_every_request_is_judged_by_itself(self, allow, pages):
        box = allow("good.example", known=("good.example", "bad.example"))
        answer = curl(box, "http://good.example/1", "http://bad.example/2", "http://good.example/3")
        assert answer == "canarystepflow: bad.example is not among the allowed hosts\ncanary"
        assert curl(box, "-d body -H 'Host: bad.example' http://good.example/4") == "body"
        assert {host for _, host in pages.came} == {"good.example"}

    def test_no_second_request_is_smuggled_behind_the_first(self, allow, pages):
        box = allow("good.example", known=("good.example",))
        second = "GET /second HTTP/1.1\r\nHost: bad.example\r\n\r\n"
        for head in ("Host: good.example\r\n\r\n", "Host: good.example\r\nConnection: keep-alive\r\n\r\n"):
            bare(box, f"GET /first HTTP/1.1\r\n{head}{second}".encode())
        assert [path for path, _ in pages.came] == ["/first", "/first"]

    @pytest.mark.whole
    def test_what_names_no_host_goes_nowhere(self, allow, pages):
        box = allow("good.example", known=("good.example",))
        heads = [
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: good.example\r\nHost: bad.example\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: good.example\r\n folded\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"GET ftp://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
            b"CONNECT good.example HTTP/1.1\r\n\r\n",
            b"CONNECT user@good.example:443 HTTP/1.1\r\n\r\n",
            b"SSH-2.0-hello\r\n\r\n",
            b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00",
            b"\x16\x03\x01\x00\x06\x01\x00\x00\x02\x03\x03",
        ]
        for number, head in enumerate(heads, 1):
            assert bare(box, head) == b"", head
            assert (pages.came, asked(box)) == ([], {"(no name)": (0, number)})


def bare(box, data: bytes) -> bytes:
    (box.checkout / "bare.py").write_text(BARE)
    done = box.sh(f"python3 bare.py {data.hex()}")
    return bytes.fromhex(done.stdout) if "Connection reset" not in done.stderr else b""


class TestTls:
    @pytest.fixture(params=["", "secp384r1"], ids=["at once", "after a second ClientHello"])
    def tls(self, start, pages, request):
        authority = trustme.CA()
        names = ("good.example", "bad.example")
        with (
            TlsFront(authority, *names, to=lambda _: ("127.0.0.1", pages.port), curve=request.param) as front,
            Proxy(dict.fromkeys(names, ("127.0.0.1", front.port))) as proxy,
        ):
            box = start(
                network=Network.ALLOW,
                allowed_hosts=parse_allowed_hosts(["good.example"]),
                connection_to=lambda _: Connection(proxy=f"http://127.0.0.1:{proxy.port}"),
            )
            (box.checkout / "ca.pem").write_text(pem_of(authority))
            (box.checkout / "tls.py").write_text(TLS)
            box.proxy = proxy
            yield box

    def test_a_program_that_knows_no_proxy_is_judged_by_the_server_name(self, tls):
        assert tls.sh("python3 tls.py good.example ''").stdout == "canary\n"
        refused = tls.sh("python3 tls.py bad.example ''")
        assert "UNRECOGNIZED_NAME" in refused.stderr.upper()
        assert tls.proxy.targets() == {"good.example:443"}
        assert asked(tls) == {"good.example": (1, 0), "bad.example": (0, 1)}

    @pytest.mark.whole
    def test_a_tunnel_to_one_host_does_not_lead_to_another(self, tls):
        assert tls.sh("python3 tls.py good.example good.example").stdout == "canary\n"
        assert tls.sh("python3 tls.py bad.example good.example").exit_code != 0
        assert asked(tls) == {"good.example": (2, 0), "bad.example": (0, 1)}


class FakeInternet(Internet):
    """Names, and one server behind every address. Keeps which addresses were asked for."""

    def __init__(self, port: int, names: dict[str, tuple[str, ...]], closed: tuple[str, ...] = ()) -> None:
        self.port, self.names, self.closed, self.addresses = port, names, closed, list[str]()

    async def look_up(self, host: str, port: int) -> list[str]:
        if host not in self.names:
            raise OSError(0, "no such name")
        return list(self.names[host])

    async def connect(self, address: str, port: int):
        self.addresses.append(address)
        if address in self.closed:
            raise ConnectionRefusedError(0, "refused")
        return await super().connect("127.0.0.1", self.port)


class TestNames:
    """Where names lead that are looked up."""

    @pytest.fixture
    def internet(self, pages):
        private, public = ("10.0.0.7", "fd00:ec2::254"), ("9.9.9.9", "2620:fe::fe")
        names = {
            "public": public,
            "private": private,
            "azure": ("168.63.129.16",),
            "mapped": ("::ffff:168.63.129.16", "64:ff9b::a83f:8110", "2002:a83f:8110::"),
            "both": (*private, *public),
            "both-after": (*public, *private),
            "none": (),
        }
        full = {f"{name}.{suffix}": found for name, found in names.items() for suffix in ("suffix.example", "example")}
        return FakeInternet(pages.port, {**full, "pypi.org": private}, closed=public[:1])

    @pytest.fixture
    def open_to(self, start, internet):
        return lambda *hosts: start(network=Network.ALLOW, allowed_hosts=parse_allowed_hosts(hosts), internet=internet)

    def test_a_suffix_leads_to_public_addresses_alone(self, open_to, internet):
        box = open_to("*.suffix.example")
        for name in ("public", "both", "both-after"):
            assert curl(box, f"http://{name}.suffix.example/") == "canary"
            # The first one refuses.
            assert internet.addresses == ["9.9.9.9", "2620:fe::fe"]
            internet.addresses.clear()
        for name in ("private", "azure", "mapped", "none"):
            assert "not among the allowed hosts" in curl(box, f"http://{name}.suffix.example/")
        assert internet.addresses == []

    def test_a_name_that_is_written_out_leads_where_its_owner_says(self, open_to, internet):
        box = open_to("both.example", "azure.suffix.example", "*.suffix.example", "pypi", "pypi.org")
        for name, address in (("both.example", "10.0.0.7"), ("azure.suffix.example", "168.63.129.16")):
            assert curl(box, f"http://{name}/") == "canary"
            assert internet.addresses.pop() == address
        assert curl(box, "http://pypi.org/") == "canary"
        assert "could not be reached" in curl(box, "http://none.example.suffix.example/")


class TestSilentNameServer:
    """It holds up the program that asks, and nothing else."""

    def test_the_sandbox_is_closed_while_a_name_is_looked_up(self, start, monkeypatch):
        asked, answer = threading.Event(), threading.Event()
        look_up = socket.getaddrinfo

        def stay_silent(host, *words, **named):
            if host != "silent.example":
                return look_up(host, *words, **named)
            asked.set()
            answer.wait()
            raise OSError("the name server was silent")

        monkeypatch.setattr(socket, "getaddrinfo", stay_silent)
        box = start(network=Network.ALLOW, allowed_hosts=parse_allowed_hosts(["silent.example"]))

        def ask():
            # Closing the sandbox ends the command.
            with contextlib.suppress(StepflowError):
                curl(box, "http://silent.example/")

        threading.Thread(target=ask, daemon=True).start()
        assert asked.wait(60)
        closing = threading.Thread(target=box.toolbox.close, daemon=True)
        closing.start()
        closing.join(60)
        is_closed = not closing.is_alive()
        answer.set()
        closing.join()
        assert is_closed


class TestCompanyProxy:
    @pytest.mark.whole
    @pytest.mark.parametrize("login", ["user:password", "user@corp:p@ss:w%rd/?#", "Jürgen:grüße"])
    def test_its_password_is_sent_as_it_is_and_seen_by_no_tool(self, start, pages, login):
        user, _, password = login.partition(":")
        with Proxy({"good.example": ("127.0.0.1", pages.port)}, login=login) as proxy:
            coded = f"http://{quote(user, safe='')}:{quote(password, safe='')}@127.0.0.1:{proxy.port}"
            box = start(
                network=Network.ALLOW,
                allowed_hosts=parse_allowed_hosts(["good.example"]),
                connection_to=lambda _: Connection(proxy=coded),
            )
            assert curl(box, "http://good.example/") == "canary"
            tools = box.sh("env").stdout + box.bash("env").output
            assert quote(password, safe="") not in tools
            assert password not in tools

    def test_a_refused_login_is_no_answer_of_the_host(self, start):
        with Proxy({}, login="user:password") as proxy:
            box = start(
                network=Network.ALLOW,
                allowed_hosts=parse_allowed_hosts(["good.example"]),
                connection_to=lambda _: Connection(proxy=f"http://user:other@127.0.0.1:{proxy.port}"),
            )
            answer = curl(box, "http://good.example/")
        assert answer == "stepflow: good.example could not be reached: the proxy answered 407\n"


class TestAddresses:
    @pytest.mark.parametrize(("listed", "other"), [("localhost", "127.0.0.1"), ("127.0.0.1", "localhost")])
    def test_a_private_address_is_for_what_is_written_out(self, allow, pages, listed, other):
        box = allow(f"{listed}:{pages.port}")
        assert curl(box, f"http://{listed}:{pages.port}/") == "canary"
        assert "not among the allowed hosts" in curl(box, f"http://{other}:{pages.port}/")

    @pytest.mark.parametrize(
        ("address", "public"),
        [
            ("9.9.9.9", True),
            ("2620:fe::fe", True),
            ("fe80::1%eth0", False),
            ("224.0.0.1", False),
            # Addresses of version 4 in every way to write them.
            *(("64:ff9b::909:909", True), ("::ffff:9.9.9.9", True), ("2002:909:909::1", True)),
            *(("64:ff9b::a9fe:a9fe", False), ("::ffff:169.254.169.254", False), ("2002:7f00:1::", False)),
            *(("::127.0.0.1", False), ("64:ff9b:1::7f00:1", False), ("2001:0:7f00:1::1", False)),
            # Platforms of clouds.
            *(("168.63.129.16", False), ("168.63.129.15", True), ("::ffff:168.63.129.16", False)),
            *(("161.26.0.10", False), ("166.11.255.255", False), ("166.12.0.0", True), ("192.0.0.192", False)),
            *(("100.100.100.200", False), ("fd00:ec2::254", False)),
        ],
    )
    def test_what_is_private(self, address, public):
        assert is_public(address) is public


class TestKernel:
    def test_no_way_leads_past_the_parent(self, allow):
        box = allow("good.example")
        with listening() as (port, came):
            errors = ways(box, port)
            udp = {name: error for name, error in errors.items() if name.startswith("udp")}
            # Sockets of TCP are there, connected to the parent.
            assert {name for name, error in errors.items() if not error} == {"tcp", "tcp v6", "mptcp"}
            assert set(udp.values()) == {CLOSED}
            time.sleep(0.1)
            assert came == []
        assert errors["io_uring"] == "ENOSYS"
        requests = asked(box)
        assert requests["(UDP)"][1] > 0
        assert requests["(raw IP)"][1] > 0
        assert requests["(other sockets)"][1] > 0

    #: Dissolves the connection to the parent, and tries every way to make another.
    ESCAPES = """
import ctypes, json, os, socket, struct, sys
host, port = sys.argv[1], int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
SENDMSG = {"x86_64": 46, "aarch64": 211}[os.uname().machine]
def connect(end, family, length):
    address = (struct.pack("=H", family) + struct.pack("!H", port) + socket.inet_aton(host)).ljust(128, b"\\0")
    if libc.connect(end.fileno(), address, length) < 0:
        raise OSError(ctypes.get_errno(), "")
def freed():
    end = socket.socket()
    connect(end, 0, 8)
    try:
        end.getpeername()
    except OSError:
        return end
    raise SystemExit("still connected")
def send(end, call):
    text = ctypes.create_string_buffer(b"LEAK")
    place = ctypes.create_string_buffer(struct.pack("PN", ctypes.addressof(text), 4))
    to = ctypes.create_string_buffer(struct.pack("=H", 2) + struct.pack("!H", port) + socket.inet_aton(host) + bytes(8))
    head = struct.pack("PI4xPNPNi4x", ctypes.addressof(to), 16, ctypes.addressof(place), 1, 0, 0, 0)
    many = ctypes.create_string_buffer(head + bytes(8))
    if call(end.fileno(), many) < 0:
        raise OSError(ctypes.get_errno(), "")
def option(end):
    end.setsockopt(socket.IPPROTO_TCP, 30, 1)
    connect(end, 2, 20)
    end.send(b"LEAK")
def listen(device):
    end = freed()
    end.listen()
    return end.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
attempts = {
    "dissolve by the usual length": lambda: connect(socket.socket(), 0, 16) or socket.socket().getpeername(),
    "connect again": lambda: connect(freed(), 2, 20),
    "connect again, longer": lambda: connect(freed(), 2, 128),
    "fast open": lambda: freed().sendto(b"LEAK", 0x20000000, (host, port)),
    "fast open by message": lambda: freed().sendmsg([b"LEAK"], [], 0x20000000, (host, port)),
    # With an argument more than the call has: nothing that stands there by chance is looked at.
    "fast open by the call": lambda: send(freed(), lambda *to: libc.syscall(SENDMSG, *to, 0x20000000, 0, 0, 0)),
    "fast open by messages": lambda: send(freed(), lambda *to: libc.sendmmsg(*to, 1, 0x20000000)),
    "fast open by messages and more flags": lambda: send(freed(), lambda *to: libc.sendmmsg(*to, 1, 0x20004000)),
    "fast open by option": lambda: option(freed()),
    "bind": lambda: freed().bind(("0.0.0.0", 0)),
    "leave the loopback device": lambda: freed().setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b""),
    "listen elsewhere": lambda: listen(b"eth0"),
}
met = {}
for name, attempt in attempts.items():
    try:
        attempt()
        met[name] = ""
    except OSError as exc:
        met[name] = os.strerror(exc.errno)
print(json.dumps(met))
"""

    def test_a_socket_never_leads_elsewhere(self, allow):
        box = allow("good.example")
        (box.checkout / "escapes.py").write_text(self.ESCAPES)
        with listening() as (port, came):
            done = box.sh(f"python3 escapes.py 127.0.0.1 {port}")
            assert json.loads(done.stdout) == {
                "dissolve by the usual length": "",
                "connect again": "Permission denied",
                "connect again, longer": "Permission denied",
                "fast open": "Operation not supported",
                "fast open by message": "Operation not supported",
                "fast open by the call": "Operation not supported",
                "fast open by messages": "Operation not supported",
                "fast open by messages and more flags": "Operation not supported",
                "fast open by option": "Permission denied",
                "bind": "Permission denied",
                "leave the loopback device": "Operation not permitted",
                "listen elsewhere": "Permission denied",
            }, done.stderr
            assert came == []

    #: Dissolves the connection to the parent, and waits for another.
    LISTENS = """
import ctypes, socket
end = socket.socket()
ctypes.CDLL(None).connect(end.fileno(), bytes(128), 8)
for option, value in ((26, bytes(16)), (27, 0), (44, 0)):
    try:
        end.setsockopt(socket.SOL_SOCKET, option, value)
        print("filter", option, "was changed")
    except OSError:
        pass
for descriptor in (end, socket.socket()):
    try:
        descriptor.listen()
        print("it listens")
    except PermissionError:
        pass
"""

    @pytest.mark.whole
    def test_no_socket_but_a_file_listens(self, allow):
        box = allow("good.example")
        (box.checkout / "listens.py").write_text(self.LISTENS)
        done = box.sh("python3 listens.py")
        # Where only CAP_NET_ADMIN may filter, an ordinary user's sockets have no filter that could be unlocked.
        assert (done.stdout, done.stderr) == ("" if filters_are_locked() else "filter 44 was changed\n", "")

    @pytest.mark.whole
    @root_only
    def test_a_socket_that_listens_lets_nobody_in(self):
        given, ours = connected_pair()
        with given, ours:
            ctypes.CDLL(None).connect(given.fileno(), bytes(128), 8)
            given.listen()
            with pytest.raises(TimeoutError):
                socket.create_connection(given.getsockname(), 1)

    #: Serves on socket files, and connects to them by addresses of every length.
    FILES = """
import os, socket
for size in range(1, 60):
    for name in ("s" * size, "\\0" + "a" * size):
        server = socket.socket(socket.AF_UNIX)
        server.bind(name)
        server.listen()
        client = socket.socket(socket.AF_UNIX)
        client.connect(name)
        client.settimeout(2)
        end, _ = server.accept()
        end.send(b"x")
        assert client.recv(9) == b"x", (size, name)
        if name[0] == "s":
            os.remove(name)
        gone = socket.socket(socket.AF_UNIX)
        server.close()
        try:
            gone.connect(name)
            raise SystemExit(f"{name!r}: connected to nobody")
        except (FileNotFoundError, ConnectionRefusedError):
            pass
print("all")
"""

    @root_only
    def test_socket_files_are_connected_to_whatever_the_length_of_their_names(self, allow):
        box = allow("good.example")
        (box.checkout / "files.py").write_text(self.FILES)
        done = box.sh("python3 files.py")
        assert (done.stdout, done.stderr) == ("all\n", "")

    def test_the_listener_stays_with_the_parent(self, allow):
        box = allow("good.example")
        links = box.sh("ls -l /proc/self/fd").stdout + box.bash("ls -l /proc/$$/fd").output
        assert "seccomp" not in links
        assert "socket:" not in links

    @pytest.mark.whole
    def test_sockets_are_bounded(self, allow, pages):
        box = allow("good.example", known=("good.example",))
        script = "import socket\nkept = []\ntry:\n    while True: kept.append(socket.socket())\n"
        (box.checkout / "many.py").write_text(f"{script}except OSError as exc: print(len(kept), exc.strerror)\n")
        assert box.sh("python3 many.py").stdout == "256 Too many open files\n"
        assert curl(box, "http://good.example/") == "canary"

    def test_the_self_test_finds_nothing_and_is_not_counted(self, allow):
        box = allow("good.example")
        states = try_canaries(box.toolbox, Outside()).states
        assert {states[place] for place in ("TCP", "UDP")} == {"kept"}
        assert asked(box) == {}


class TestRefusals:
    @pytest.mark.whole
    @pytest.mark.parametrize("isolation", Isolation)
    @pytest.mark.parametrize("layer", ["network", "landlock"])
    def test_where_the_kernel_does_not_hold_it_nothing_starts(self, checkout, isolation, layer):
        options = ToolboxOptions(
            network=Network.ALLOW,
            allowed_hosts=parse_allowed_hosts(["good.example"]),
            isolation=isolation,
            disabled_layers=frozenset({layer}),
        )
        threads = threading.active_count()
        with pytest.raises(
            IsolationError, match=r"network: switched off|landlock: switched off|with a list of hosts cannot"
        ):
            Toolbox.start(checkout, options=options)
        assert threading.active_count() == threads

    def test_proxy_variables_are_not_passed_by_hand(self, allow):
        with pytest.raises(InputError, match="HTTPS_PROXY"):
            allow("good.example", pass_env={"HTTPS_PROXY": "http://elsewhere"})


class TestEntries:
    @pytest.mark.parametrize(
        ("entry", "shown"),
        [
            ("PyPI.org", "pypi.org"),
            ("*.Example.org.", "*.example.org"),
            ("localhost:8080", "localhost:8080"),
            ("[::1]:8080", "[::1]:8080"),
            ("::1", "[::1]"),
        ],
    )
    def test_a_host_is_read(self, entry, shown):
        assert [str(host) for host in parse_allowed_hosts([entry])] == [shown]

    @pytest.mark.parametrize(
        "entry",
        ["*", "*.", "*.com", "pipy", "https://pypi.org", "pypi.org/simple", "a b", "pypi.org:", "x.org:0", "ü.org"],
    )
    def test_what_is_no_host_is_refused(self, entry):
        with pytest.raises(ValueError, match="host"):
            parse_allowed_hosts([entry])
