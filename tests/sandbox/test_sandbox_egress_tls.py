"""Listed hosts: what a connection of TLS and a tunnel may begin with, so that the name that was judged counts."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import ssl
import sys

import pytest
from toolbox_world import Box, reachable_folder

from stepflow.domain.connection import Connection
from stepflow.domain.words import Isolation, Network
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.egress.allowed_hosts import parse_allowed_hosts
from stepflow.sandbox.isolation import ToolboxOptions
from tests.servers.private_network import Proxy, Recorder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux's own ways to the network")

#: Sends each further argument once the one before is answered, then waits as many seconds as the second says.
STAGES = """
import socket, sys
target, seconds, *stages = sys.argv[1:]
end = socket.create_connection(("192.0.2.1", 443), 5)
if target:
    end.sendall(f"CONNECT {target} HTTP/1.1\\r\\n\\r\\n".encode())
    print(end.recv(4096).split()[1].decode())
try:
    for stage in stages[:-1]:
        end.sendall(bytes.fromhex(stage))
        end.recv(65536)
    end.sendall(bytes.fromhex(stages[-1]))
    end.settimeout(float(seconds))
    end.shutdown(socket.SHUT_WR)
    print(end.recv(65536))
except OSError as exc:
    print(exc.strerror)
"""


def client_hello(name: str | None) -> bytes:
    """The first record of a real client."""
    context, outgoing = ssl.create_default_context(), ssl.MemoryBIO()
    context.check_hostname = False
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def hello_retry_request() -> bytes:
    """What a server answers that wants another ClientHello."""
    body = b"\x03\x03" + hashlib.sha256(b"HelloRetryRequest").digest() + b"\0\x13\x01\0\0\0"
    message = b"\x02" + len(body).to_bytes(3) + body
    return b"\x16\x03\x03" + len(message).to_bytes(2) + message


GOOD, BAD = client_hello("good.example"), client_hello("bad.example")
#: A record by which middleboxes are calmed, an alert, and one of data.
CHANGE, WARNING, DATA = b"\x14\x03\x03\0\1\1", b"\x15\x03\x03\0\2\1\0", b"\x17\x03\x03\0\1x"


def split(hello: bytes, at: int) -> bytes:
    """The same message in two records."""
    message = hello[5:]
    return b"".join(b"\x16\x03\x01" + len(part).to_bytes(2) + part for part in (message[:at], message[at:]))


def together(one: bytes, other: bytes) -> bytes:
    """Both messages in one record."""
    return b"\x16\x03\x01" + (len(one) + len(other) - 10).to_bytes(2) + one[5:] + other[5:]


@pytest.fixture(scope="module")
def tunnel(template):
    """A toolbox that may reach a host which keeps what comes."""
    with (
        Recorder() as recorder,
        Proxy({"good.example": ("127.0.0.1", recorder.port)}) as proxy,
        reachable_folder() as folder,
    ):
        checkout = shutil.copytree(template, folder / "checkout", symlinks=True)
        options = ToolboxOptions(
            network=Network.ALLOW,
            isolation=Isolation.BEST_EFFORT,
            allowed_hosts=parse_allowed_hosts(["good.example", "good.example:8080"]),
            connection_to=lambda _: Connection(proxy=f"http://127.0.0.1:{proxy.port}"),
        )
        with Toolbox.start(checkout, options=options) as toolbox:
            box = Box(toolbox, checkout)
            (box.checkout / "stages.py").write_text(STAGES)

            def run(
                target: str, *stages: bytes, answer: bytes = b"", seconds: float = 5, at_least: int = 0
            ) -> tuple[bytes, str]:
                """What reached the host, once so many bytes did, and what the program saw."""
                before = len(recorder.came)
                recorder.answer = answer
                words = " ".join(stage.hex() for stage in stages)
                seen = box.sh(f"python3 stages.py {target or chr(39) * 2} {seconds} {words}").stdout
                return recorder.bytes_since(before, at_least=at_least), seen

            yield run


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\nHost: bad.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\nGET / HTTP/1.1\r\nHost: bad.example\r\n\r\n",
        b"\r\nget / HTTP/1.1\r\nHost: bad.example\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"SSH-2.0-hello\r\n",
        b"\x80\x2e\x01\x03\x01",
        *(CHANGE + BAD, WARNING + BAD, DATA + BAD),
    ],
    ids=["other host", "two hosts", "line before", "HTTP/2", "SSH", "old hello", "change", "alert", "data"],
)
def test_it_carries_tls_alone(tunnel, first):
    port = {b"GET": 80, b"SSH": 8080}.get(first[:3], 443)
    came, seen = tunnel(f"good.example:{port}", first)
    assert came == b""
    assert "200" in seen
    assert "carries only TLS" in seen or "reset" in seen


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", ["good.example:443", ""], ids=["tunnel", "bare"])
@pytest.mark.parametrize(
    ("stages", "passes"),
    [
        ([GOOD], True),
        ([BAD], False),
        ([split(GOOD, 20)], False),
        ([split(BAD, 20)], False),
        ([together(GOOD, BAD)], False),
        ([together(BAD, GOOD)], False),
        ([GOOD[:5] + GOOD[5:9] + BAD[9:]], False),
    ],
    ids=["good", "bad", "good in two", "bad in two", "good and bad", "bad and good", "of another length"],
)
def test_the_first_record_is_one_client_hello(tunnel, target, stages, passes):
    if GOOD[:5] == BAD[:5] and stages[0][:9] == GOOD[:9] and stages[0] not in (GOOD, BAD):
        pytest.skip("both messages are as long")
    wanted = stages[0] if passes else b""
    came, _ = tunnel(target, *stages, answer=b"no TLS", at_least=len(wanted))
    assert came == wanted


@pytest.mark.whole
@pytest.mark.parametrize("target", ["good.example:443", ""], ids=["tunnel", "bare"])
def test_a_second_one_unasked_does_not_arrive(tunnel, target):
    for second in (BAD, CHANGE + BAD, WARNING + BAD, DATA + BAD, GOOD):
        assert tunnel(target, GOOD + second, seconds=0.2, at_least=len(GOOD))[0] == GOOD


@pytest.mark.whole
@pytest.mark.parametrize("target", ["good.example:443", ""], ids=["tunnel", "bare"])
def test_one_that_was_asked_for_names_the_same_host(tunnel, target):
    def assert_arrives(second: bytes, wanted: bytes) -> None:
        came, _ = tunnel(target, GOOD, second, answer=hello_retry_request(), at_least=len(wanted))
        assert came == wanted

    assert_arrives(CHANGE + GOOD + DATA, GOOD + CHANGE + GOOD + DATA)
    for records in (b"", CHANGE, DATA + CHANGE + DATA):
        assert_arrives(records + BAD, GOOD + records)
    assert_arrives(split(BAD, 20), GOOD)
    assert_arrives(b"GET / HTTP/1.1\r\nHost: bad.example\r\n\r\n", GOOD)


def test_after_the_servers_answer_nothing_is_read(tunnel):
    for answer in (b"\x16\x03\x03\0\x04\x02\0\0\0", b"no TLS"):
        wanted = GOOD + b"\0anything"
        came, _ = tunnel("good.example:443", GOOD, b"\0anything", answer=answer, at_least=len(wanted))
        assert came == wanted
