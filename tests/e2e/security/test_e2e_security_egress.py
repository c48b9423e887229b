"""Listed hosts in the image: pip and npm reach the registries that are listed, and nothing reaches another host."""

from __future__ import annotations

import json
import shlex
import socket
import threading
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme

from tests.e2e.repository import labeled
from tests.e2e.script import EVENT_CANARY, answer_the_question
from tests.e2e.security.test_e2e_security_refusals import NO_LANDLOCK
from tests.servers.messages_api import calls
from tests.servers.private_network import TlsFront, pem_of
from tests.servers.registries import Registries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.hosted_runner import Ended, HostedRunner
    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e_security, pytest.mark.timeout(300)]
EXPLOITS = {Path(__file__).parent / "exploits": "/opt/exploits:ro"}
EVENT = labeled("agent:closer", secret=EVENT_CANARY)
NAMES = ("pypi.example", "npm.example", "evil.example", "inner.suffix.example")
#: All of them are this machine, so that whatever gets out arrives.
HERE = tuple(f"--add-host={name}:127.0.0.1" for name in NAMES)


@dataclass(kw_only=True)
class Internet:
    """What is outside: registries behind TLS, and listeners for whatever comes by its address."""

    registries: Registries
    ports: dict[str, int]
    certificate: str
    arrived: list[str] = field(default_factory=list)

    def listen(self, name: str, family: int, kind: int, host: str, ending: ExitStack) -> None:
        """Note what arrives until the test is over."""
        server = ending.enter_context(socket.socket(family, kind))
        server.bind((host, 0))
        self.ports[name] = server.getsockname()[1]
        if kind == socket.SOCK_STREAM:
            server.listen()

        def wait() -> None:
            while True:
                try:
                    if kind == socket.SOCK_STREAM:
                        server.accept()[0].close()
                    else:
                        server.recv(100)
                except OSError:
                    return
                self.arrived.append(name)

        threading.Thread(target=wait, daemon=True).start()

    def come_in(self, runner: HostedRunner, over: threading.Event) -> None:
        """Connect to the port that the tools have written down in the workspace."""
        while not over.wait(0.05):
            if port := runner.read_in_workspace("listens-here"):
                with suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), 2) as end:
                    end.sendall(b"from outside")
                    self.arrived.append("a local program in the sandbox")
                return


@contextmanager
def internet() -> Iterator[Internet]:
    authority = trustme.CA()
    with ExitStack() as ending:
        registries = ending.enter_context(Registries())
        front = ending.enter_context(TlsFront(authority, *NAMES, to=lambda _: ("127.0.0.1", registries.port)))
        outside = Internet(registries=registries, ports={"tls": front.port}, certificate=pem_of(authority))
        outside.listen("tcp", socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1", ending)
        outside.listen("tcp6", socket.AF_INET6, socket.SOCK_STREAM, "::1", ending)
        outside.listen("udp", socket.AF_INET, socket.SOCK_DGRAM, "127.0.0.1", ending)
        outside.listen("udp6", socket.AF_INET6, socket.SOCK_DGRAM, "::1", ending)
        yield outside


@dataclass(frozen=True, kw_only=True)
class Held:
    """A run whose tools tried every way out, and what came of each."""

    ended: Ended
    ways: dict[str, str]
    installed: str
    arrived: list[str]
    asked: list[str]
    hosts: dict[str, tuple[int, int]]
    port: int
    tcp_port: int


@pytest.fixture(scope="module")
def held(new_world: Callable[[], World]) -> Held:
    """One run: `setup` installs with pip, the model with npm, then it looks for a way out."""
    world = new_world()
    with internet() as outside:
        port = outside.ports["tls"]
        certificate = 'cert="$TMPDIR/ca.pem"; printf %s ' + shlex.quote(outside.certificate) + ' > "$cert"'
        index = f"--index-url https://pypi.example:{port}/simple"
        pip = f'python3 -m pip install -q --cert "$cert" --target "$HOME/pip" {index} canary'
        npm = (
            f'npm install --silent --cafile "$cert" --prefix "$HOME/npm" --registry https://npm.example:{port}/ canary'
        )
        sing = (
            'PYTHONPATH="$HOME/pip" python3 -c "import canary; print(canary.SONG)"; '
            "node -p \"require(process.env.HOME + '/npm/node_modules/canary')\""
        )
        attack = f"cd $TMPDIR; python3 /opt/exploits/egress.py {shlex.quote(json.dumps(outside.ports))}"
        commands = (f"{certificate}; {npm}; {sing}", attack)
        runner = world.hosted_runner(
            [
                calls(*(("bash", {"command": command, "timeout_ms": 200_000}) for command in commands)),
                *answer_the_question(),
            ],
            EVENT,
        )
        listed = f"pypi.example:{port} npm.example:{port} *.suffix.example:{port}"
        given = {
            **{**world.inputs(), "network": listed},
            "setup": f"{certificate}\n{pip}",
        }
        over = threading.Event()
        local_program = threading.Thread(target=outside.come_in, args=(runner, over))
        local_program.start()
        with runner.started(given, event_name="issues", volumes=EXPLOITS, options=HERE) as process:
            ended = runner.finish(process, timeout=200)
        over.set()
        local_program.join()
        assert world.tool_results(), ended.log
        installed, attacked = world.tool_results()[:2]
        assert attacked.startswith("{"), f"{attacked}\n{ended.log}"
        report = json.loads((Path(ended.outputs["run-folder"]) / "report.json").read_text())
        return Held(
            ended=ended,
            ways=json.loads(attacked.splitlines()[0]),
            installed=installed,
            arrived=[*outside.arrived],
            asked=[*outside.registries.came],
            hosts={each["host"]: (each["allowed"], each["refused"]) for each in report["hosts"]},
            port=port,
            tcp_port=outside.ports["tcp"],
        )


def test_pip_and_npm_install_from_what_is_listed(held: Held) -> None:
    assert held.ended.outputs["outcome"] == "completed", held.ended.log
    assert "sung by pip\nsung by npm" in held.installed
    assert set(held.asked) == {f"pypi.example:{held.port}", f"npm.example:{held.port}"}


#: What each way ends in.
ENDS = {
    "git": "response 403",
    "git without variables": "128 ",
    "pip": "No matching distribution found for canary",
    "npm": "403 Forbidden",
    "python": "Tunnel connection failed: 403 Forbidden",
    "private address below a listed suffix": "Tunnel connection failed: 403 Forbidden",
    "another name in a tunnel": "refused: ",
    "a record before the name": "403 Forbidden",
    "plain HTTP in a tunnel": "403 Forbidden",
    "plain HTTP": "403 Forbidden",
    "address": "b''",
    "address, version 6": "b''",
    "address by the proxy": "403 Forbidden",
    "child without variables": "b''",
    "node without variables": "0 ",
    "UDP": "Permission denied",
    "UDP, version 6": "Permission denied",
    "name server": "name resolution",
    "raw socket": "Permission denied",
    "packet socket": "Permission denied",
    "a port that listens": "Permission denied",
    "a socket file": "b'hello'",
    "server on this machine": "Permission denied",
    "connection made again": "Permission denied",
    "first bytes with the connection": "not supported",
    "ring": "Function not implemented",
}


def test_nothing_arrives_anywhere_else(held: Held) -> None:
    assert held.arrived == []
    assert {name: came for name, came in held.ways.items() if ENDS[name] not in came} == {}
    assert held.ways.keys() == ENDS.keys()


def test_the_report_names_each_host_that_was_asked_for(held: Held) -> None:
    refused = {name for name, (_, times) in held.hosts.items() if times}
    assert refused == {
        *(f"evil.example:{held.port}", "evil.example", f"inner.suffix.example:{held.port}"),
        *(f"127.0.0.1:{held.tcp_port}", "(no name)", "(UDP)", "(raw IP)", "(other sockets)"),
    }
    assert {name for name, (times, _) in held.hosts.items() if times} == {
        *(f"pypi.example:{held.port}", f"npm.example:{held.port}"),
    }
    assert f"| <code>evil.example:{held.port}</code> | 0 | " in held.ended.summary


def test_where_the_kernel_cannot_hold_it_nothing_starts_whatever_isolation_says(new_world: Callable[[], World]) -> None:
    world = new_world()
    runner = world.hosted_runner(answer_the_question(), EVENT)
    given = {**world.inputs(), "network": "pypi", "isolation": "best-effort"}
    with runner.started(given, event_name="issues", options=NO_LANDLOCK) as process:
        ended = runner.finish(process, timeout=200)
    assert ended.outputs["outcome"] == "refused", ended.log
    assert "`network` with a list of hosts cannot be enforced here" in ended.outputs["reason"]
    assert "set `network: none`, or `full` where you trust what runs" in ended.outputs["reason"]
    assert world.model_bodies() == []
