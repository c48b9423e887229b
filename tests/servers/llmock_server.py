"""LLMock, a chaos server for clients of language models that others made, as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen

_SERVE = """
import sys, threading
from llmock.testing import LLMockServer
server = LLMockServer().start()
print(server.url, flush=True)
sys.stdin.read()
server.stop()
"""


@dataclass(frozen=True, kw_only=True)
class LLMock:
    """A running server. `url` is its root."""

    url: str

    @property
    def messages_url(self) -> str:
        """What the SDK of the Messages API takes as its base URL."""
        return f"{self.url}/anthropic"

    def queue(self, *behaviors: dict[str, Any]) -> None:
        """What it does next, by kind and in order; the first one that matches a request is taken."""
        body = json.dumps({"behaviors": behaviors}).encode()
        with urlopen(Request(f"{self.url}/_llmock/scenario", data=body, method="POST"), timeout=10) as answer:
            assert json.load(answer)["queued"] == len(behaviors)

    def pending(self) -> list[dict[str, Any]]:
        """What it was told to do and has not done."""
        return self._get("scenario")["pending"]

    def requests(self) -> list[dict[str, Any]]:
        """Every request, with the fault it got."""
        return self._get("requests")["requests"]

    def verdict(self) -> dict[str, Any]:
        """How the client behaved, by its own rules."""
        return self._get("verdict")

    def report(self) -> subprocess.CompletedProcess[str]:
        """Its command for CI, which exits with 1 when the client misbehaved; warnings count."""
        words = [sys.executable, "-I", "-m", "llmock.cli", "report", "--strict", "--url", self.url]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    def _get(self, what: str) -> dict[str, Any]:
        with urlopen(f"{self.url}/_llmock/{what}", timeout=10) as answer:
            answered: dict[str, Any] = json.load(answer)
            return answered


@contextmanager
def open_llmock(**settings: str) -> Iterator[LLMock]:
    """A server until the block ends; `settings` are its environment variables."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", _SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], **settings},
    )
    try:
        assert process.stdout is not None
        yield LLMock(url=process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate()
