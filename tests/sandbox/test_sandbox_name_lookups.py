"""A name server that stays silent holds up nothing: the run ends at a signal, and what it has opened is closed."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

#: A name is asked for in the C library, which goes on waiting whatever signal comes.
SILENT = """
import signal, socket, time
from stepflow.errors import RunCancelled
from stepflow.run.clock import Cancellation, SIGNALS

def look_up(*words, **named):
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    print("asking", flush=True)
    time.sleep(600)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    raise OSError("the name server is silent")

socket.getaddrinfo = look_up
try:
    with Cancellation().listening():
        {ask}
except RunCancelled:
    print("cancelled", flush=True)
"""
ASKING = {
    "the model's client": """from stepflow.domain.connection import Connection
        from stepflow.model.http_client import http_client
        http_client(Connection()).get("https://model.example/")""",
    "GitHub's client": """import requests
        from stepflow.boundary.github_client import configure_session
        from stepflow.domain.connection import Connection
        session = requests.Session()
        configure_session(session, Connection())
        session.get("https://api.github.example/")""",
    "an event loop": """import anyio
        from anyio.from_thread import start_blocking_portal
        from stepflow.sandbox.egress.name_lookups import abandon_lookups
        import asyncio
        async def ask():
            abandon_lookups(asyncio.get_running_loop())
            await anyio.connect_tcp("mcp.example", 443)
        with start_blocking_portal() as portal:
            asked = portal.start_task_soon(ask)
            try:
                asked.result()
            finally:
                portal.call(portal.stop, True)""",
}


@pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING)
def test_a_signal_ends_the_wait_for_a_silent_name_server(ask: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SILENT.replace("{ask}", ask)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "asking\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
            assert process.stdout.read() == "cancelled\n"
        finally:
            process.kill()
