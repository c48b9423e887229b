"""Accounts as the Messages API keeps them.

Takes: the bodies of requests, one after the other. Gives: what each would be billed.
May touch: nothing.

Tools, answer schema, system and messages form one prefix, in this order, of blocks. Up to a `cache_control` it is
written once (1.25×) and read later (0.1×), what follows the last one is input (1×). Four bytes stand for a token. A
top-level `cache_control` marks the last block. The service looks for what it has written up to 20 blocks before each
mark. It caches no prefix of less than about a thousand tokens; these accounts do, or a small flow would show nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

BYTES_PER_TOKEN = 4
WRITE, READ = 1.25, 0.1
LOOK_BACK = 20
MOST_MARKS = 4


@dataclass(frozen=True, kw_only=True)
class Bill:
    """Tokens of one request: sent at the full price, written to the cache, read from it."""

    input: int = 0
    written: int = 0
    read: int = 0

    @property
    def billed(self) -> float:
        """In units of an input token's price."""
        return self.input + WRITE * self.written + READ * self.read


class TooManyMarks(Exception):
    """The API refuses a request with more than four breakpoints."""


@dataclass
class Accounts:
    """One customer's cache and bills."""

    known: set[bytes] = field(default_factory=set)
    bills: list[Bill] = field(default_factory=list)

    def take(self, body: dict[str, Any]) -> Bill:
        """Bill one request."""
        ends, digests, marks = _prefix(body)
        read = max((at for at in _looked_at(marks) if digests[at] in self.known), default=-1)
        last = marks[-1] if marks else -1
        self.known.update(digests[at] for at in marks)
        up_to_read, up_to_last = (ends[read] if read >= 0 else 0), (ends[last] if last >= 0 else 0)
        bill = Bill(
            input=(ends[-1] if ends else 0) // BYTES_PER_TOKEN - up_to_last // BYTES_PER_TOKEN,
            written=up_to_last // BYTES_PER_TOKEN - up_to_read // BYTES_PER_TOKEN,
            read=up_to_read // BYTES_PER_TOKEN,
        )
        self.bills.append(bill)
        return bill

    @property
    def billed(self) -> float:
        """All that was billed until now."""
        return sum(bill.billed for bill in self.bills)


def _prefix(body: dict[str, Any]) -> tuple[list[int], list[bytes], list[int]]:
    """Where each block ends, in bytes; the digest of everything up to there; the blocks that are marked."""
    ends: list[int] = []
    digests: list[bytes] = []
    marks: list[int] = []
    seen, total = hashlib.sha256(), 0
    for block in _blocks(body):
        marked = isinstance(block, dict) and block.get("cache_control") is not None
        plain = {key: value for key, value in block.items() if key != "cache_control"} if marked else block
        data = json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()
        seen.update(data + b"\0")
        total += len(data)
        if marked:
            marks.append(len(ends))
        ends.append(total)
        digests.append(seen.digest())
    if body.get("cache_control") and ends:
        marks.append(len(ends) - 1)
    if len(marks) > MOST_MARKS:
        raise TooManyMarks
    return ends, digests, marks


def _blocks(body: dict[str, Any]) -> Iterator[Any]:
    yield from body.get("tools", ())
    if schema := body.get("output_config", body.get("output_format")):
        # Another schema is another prefix: the service words it into the system prompt.
        yield {"schema": schema}
    yield from _listed(body.get("system", ()))
    for message in body["messages"]:
        for block in _listed(message["content"]):
            yield {"role": message["role"], **block}


def _listed(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _looked_at(marks: list[int]) -> set[int]:
    return {at for mark in marks for at in range(max(0, mark - LOOK_BACK), mark + 1)}
