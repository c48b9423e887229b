"""Accounts as the Messages API keeps them: what each request would be billed, by the price list of stepflow itself.

Tools, answer schema, system and messages form one prefix, in this order, of blocks. Up to a `cache_control` it is
written once and read later, what follows the last one is input; the price list says for each model what a token of each
costs. Four bytes stand for a token. A top-level `cache_control` marks the last block. The service looks for what it has
written up to 20 blocks before each mark. It caches no prefix of less than some hundred tokens; these accounts do, or a
small flow would show nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from stepflow.domain.conversation import Usage
from stepflow.model.models import price_of

BYTES_PER_TOKEN = 4
LOOK_BACK = 20
MOST_MARKS = 4


class Bill(NamedTuple):
    """Tokens of one request to a model: sent at the full price, written to the cache, read from it."""

    model: str
    input: int
    written: int
    read: int

    @property
    def usd(self) -> float:
        """What the request costs, without its answer."""
        usage = Usage(input_tokens=self.input, cache_write_tokens=self.written, cache_read_tokens=self.read)
        return _price(self.model, usage)

    @property
    def billed(self) -> float:
        """The same in units of an input token's price."""
        return self.usd / _price(self.model, Usage(input_tokens=1))


class TooManyMarks(Exception):
    """The API refuses a request with more than four breakpoints."""


class Accounts:
    """One customer's cache and bills. `is_perfect`: whatever was sent once is read from the cache ever after, as if
    each block had a mark."""

    def __init__(self, *, is_perfect: bool = False) -> None:
        self.bills: list[Bill] = []
        self._is_perfect = is_perfect
        self._cached: set[bytes] = set()

    def take(self, body: dict[str, Any]) -> Bill:
        """Bill one request."""
        # After each block: the size of everything up to there, and its digest. Before the first one there is nothing.
        ends, digests, marks = [0], [b""], []
        prefix = hashlib.sha256()
        for block in _blocks(body):
            plain = {key: value for key, value in block.items() if key != "cache_control"}
            data = json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()
            prefix.update(data + b"\0")
            ends.append(ends[-1] + len(data))
            digests.append(prefix.digest())
            if block.get("cache_control"):
                marks.append(len(ends) - 1)
        if body.get("cache_control"):
            marks.append(len(ends) - 1)
        if len(marks) > MOST_MARKS:
            raise TooManyMarks
        if self._is_perfect:
            marks = list(range(len(ends)))
        looked_at = {at for mark in marks for at in range(max(0, mark - LOOK_BACK), mark + 1)}
        read_end = max((at for at in looked_at if digests[at] in self._cached), default=0)
        self._cached.update(digests[mark] for mark in marks)
        read, marked, whole = (ends[at] // BYTES_PER_TOKEN for at in (read_end, max(marks, default=0), -1))
        self.bills.append(Bill(model=body["model"], input=whole - marked, written=marked - read, read=read))
        return self.bills[-1]

    @property
    def billed(self) -> float:
        """All that was billed until now, in units of an input token's price."""
        return sum(bill.billed for bill in self.bills)

    @property
    def usd(self) -> float:
        """The same in dollars."""
        return sum(bill.usd for bill in self.bills)


def _price(model: str, usage: Usage) -> float:
    price = price_of(model, usage)
    if price is None:
        raise LookupError(f"the price list has no model {model}")
    return price


def _blocks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
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
