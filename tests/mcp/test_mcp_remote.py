"""A server over https is called by the parent, with a secret that stays there."""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import replace
from http.server import ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
import trustme

from stepflow.domain.agent.agent_settings import McpServer
from stepflow.domain.connection import Connection
from stepflow.domain.secrets import Redactor
from stepflow.errors import InputError
from stepflow.mcp.transports import RemoteAccess
from stepflow.run.request import RunRequest
from stepflow.run.start.inputs import Inputs
from stepflow.run.start.trigger import Trigger
from stepflow.run.workspace import remote_access
from tests.servers.loopback import Handler, LoopbackServer
from tests.servers.mcp_remote import RemoteMcp
from tests.servers.private_network import Proxy, TlsFront, pem_of

TOKEN = "mcp-token-0123456789"
ACCESS = RemoteAccess(secrets={"DOCS_TOKEN": TOKEN})


def remote(url: str, **headers: str) -> McpServer:
    return McpServer(name="docs", url=url, headers=headers or {"Authorization": "Bearer ${DOCS_TOKEN}"})


@pytest.fixture(scope="module")
def docs():
    with RemoteMcp(TOKEN) as server:
        yield server


@pytest.mark.whole
def test_it_is_called_with_the_secret_in_its_header(open_step, docs):
    step = open_step(remote(docs.url), access=ACCESS)
    step.begin()
    assert step.call("search", query="loops").output == "found loops"
    assert TOKEN not in step.bash("env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'")


def test_a_secret_that_it_sends_back_is_masked(open_step, docs):
    step = open_step(remote(docs.url), access=ACCESS, redact=Redactor([TOKEN]))
    step.begin()
    assert step.call("search", query=TOKEN).output == "found ***"


def test_a_wrong_secret_is_said(open_step, docs):
    locked = open_step(remote(docs.url), access=ACCESS).server
    step = open_step(locked, access=RemoteAccess(secrets={"DOCS_TOKEN": "wrong"}))
    with pytest.raises(InputError, match="answered with the HTTP status 401"):
        step.begin()


def test_nobody_there_is_said(open_step, docs):
    locked = open_step(remote(docs.url), access=ACCESS).server
    step = open_step(replace(locked, url="http://127.0.0.1:9/mcp"), access=ACCESS)
    with pytest.raises(InputError, match="cannot be reached: "):
        step.begin()


@pytest.mark.whole
def test_certificates_of_a_private_authority_count_and_without_them_the_input_is_named(open_step, docs):
    authority = trustme.CA()
    backend = ("127.0.0.1", urlsplit(docs.url).port)
    locked = open_step(remote(docs.url), access=ACCESS).server
    with TlsFront(authority, "127.0.0.1", to=lambda _: backend) as front:

        def step(certificates: str):
            access = replace(ACCESS, connection_to=lambda _: Connection(certificates=certificates))
            return open_step(replace(locked, url=f"https://127.0.0.1:{front.port}/mcp"), access=access)

        trusting = step(pem_of(authority))
        trusting.begin()
        assert trusting.call("search", query="loops").output == "found loops"
        trusting.tools.end_step()
        with pytest.raises(InputError, match="certificate") as refused:
            step("").begin()
        assert "`ca-certificates`" in str(refused.value)


def test_the_certificates_and_the_proxy_of_a_run_count(open_step, docs, tmp_path):
    authority = trustme.CA()
    backend = ("127.0.0.1", urlsplit(docs.url).port)
    locked = open_step(remote(docs.url), access=ACCESS).server
    with (
        TlsFront(authority, "localhost", to=lambda _: backend) as front,
        Proxy({"localhost": ("127.0.0.1", front.port)}, login="user:pass") as proxy,
    ):
        request = RunRequest(
            run_id="r-1",
            inputs=Inputs(ca_certificates=pem_of(authority), mcp_secrets={"DOCS_TOKEN": TOKEN}),
            trigger=Trigger(agent="demo", actor="", actor_is_bot=False),
            root=tmp_path,
            folder=tmp_path,
            environment={"HTTPS_PROXY": proxy.url_with_login},
        )
        server = replace(locked, url="https://localhost:8443/mcp")
        step = open_step(server, access=remote_access((server,), request))
        step.begin()
        assert step.call("search", query="loops").output == "found loops"
        assert proxy.targets() == {"localhost:8443"}


class Answering(Handler):
    """Does with every request what its class says."""

    status, headers_of_answer, parts = 200, (("Content-Type", "application/json"),), (b"{}",)
    asked: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(self.path)
        self.send_response(self.status)
        for name, value in self.headers_of_answer:
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        with contextlib.suppress(OSError):
            for part in self.parts:
                self.wfile.write(part)
        self.close_connection = True

    do_GET = do_DELETE = do_POST


SSE = (("Content-Type", "text/event-stream"),)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"status": 307, "headers_of_answer": (("Location", "/elsewhere"),)}, "leads to another address"),
        ({"status": 307, "headers_of_answer": (("Location", "http://169.254.169.254/"),)}, "leads to another address"),
        ({"headers_of_answer": (*SSE, ("Content-Encoding", "gzip"))}, "packs what it sends"),
        ({"parts": (b"x" * 65536,) * 400}, "sent more than 1000 messages or 16 MiB"),
        (
            {"headers_of_answer": SSE, "parts": (b'data: {"jsonrpc": "2.0", "method": "x"}\n\n' * 2000,) * 400},
            "sent more",
        ),
        ({"headers_of_answer": SSE, "parts": (b"data: " + b"x" * 5 * 1024 * 1024,)}, "gave no answer|sent more"),
        ({"parts": (b"[" * 100_000,)}, "gave no answer"),
        ({"headers_of_answer": SSE, "parts": (b"data: {}\n\n",)}, "gave no answer"),
        ({"headers_of_answer": (("Content-Type", "text/html"),)}, "gave no answer: Unexpected content type"),
    ],
    ids=[
        "redirect",
        "redirect away",
        "packed",
        "endless",
        "endless events",
        "one event",
        "deep",
        "no message",
        "a page",
    ],
)
def test_a_hostile_answer_is_bounded_and_followed_nowhere(open_step, docs, answer, problem, caplog, capfd):
    locked = open_step(remote(docs.url), access=ACCESS).server
    handler = type("Server", (Answering,), {**answer, "asked": []})
    with LoopbackServer(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        step = open_step(replace(locked, url=f"{server.url}/mcp"), access=ACCESS)
        with pytest.raises(InputError, match=problem):
            step.begin()
    assert set(handler.asked) <= {"/mcp"}
    assert TOKEN not in caplog.text + "".join(capfd.readouterr())


class Forgetful(Handler):
    """Answers as a server does, but fails at the notification that everything is ready."""

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "docs", "version": "1"}}
        answers = {
            "initialize": {"result": {"protocolVersion": "2025-06-18", **about}},
            "tools/list": {"result": {"tools": [{"name": "search", "inputSchema": {"type": "object"}}]}},
            "tools/call": {"error": {"code": -32000, "message": "nothing is found"}},
        }
        answer = answers.get(message["method"]) or {"error": {"code": -32601, "message": "Method not found"}}
        self.send_response(200 if "id" in message else 500)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(json.dumps({"jsonrpc": "2.0", "id": message.get("id"), **answer}).encode())
        self.close_connection = True

    def do_GET(self) -> None:
        self.send_error(405)

    do_DELETE = do_GET


def test_an_error_is_told_by_what_happened_last(open_step):
    with LoopbackServer(ThreadingHTTPServer(("127.0.0.1", 0), Forgetful)) as server:
        step = open_step(remote(f"{server.url}/mcp"), access=ACCESS)
        step.begin()
        assert step.call("search").output == 'The MCP server "docs" gave no answer: nothing is found.'


def test_no_thread_is_left(open_step, docs):
    step = open_step(remote(docs.url), access=ACCESS)
    before = threading.active_count()
    step.begin()
    step.tools.end_step()
    assert threading.active_count() <= before
