"""One step of two hundred calls: what it is billed in a small window, beside a bare loop with room for all of it and
perfect caching."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.billing import Accounts
from bench.flows import make_flow
from bench.script import reply_to
from tests.servers.messages_api import Answer, MessagesApi, size_of
from tests.servers.messages_api_rules import clear_results

NOTES, OUTPUT_BYTES = 200, 2_000
#: Tokens; the results alone are 100,000.
WINDOW = 120_000
KEY = "sk-ant-bench"
FLOOR = Path(__file__).parent / "peers" / "floor.py"


def make_long_step(folder: Path) -> Path:
    """A checkout with an agent whose first step reads every note, and whose second one closes."""
    return make_flow(folder, 1, notes=NOTES, output_bytes=OUTPUT_BYTES)


def serve_long(*, window: int | None = None) -> MessagesApi:
    """The server; it takes no conversation whose beginning has changed."""

    def reply(body: dict[str, Any]) -> Answer:
        content, reason = reply_to(body)
        return Answer(content=tuple(content), stop_reason=reason)

    return MessagesApi(reply, api_key=KEY, window=window)


def run_bare_loop(folder: Path) -> list[dict[str, Any]]:
    """The bodies of the requests of the bare script for the task in the folder."""
    with serve_long() as api:
        subprocess.run([sys.executable, FLOOR, api.url, folder], check=True)
        return api.bodies


def bill(bodies: Iterable[dict[str, Any]], *, is_perfect: bool = False) -> Accounts:
    """What requests are billed, as the service sees them: without what it has cleared."""
    accounts = Accounts(is_perfect=is_perfect)
    for body in bodies:
        seen, _ = clear_results(body, size_of)
        accounts.take(seen)
    return accounts
