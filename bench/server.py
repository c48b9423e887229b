"""The model service of the bench: the Messages API on loopback, as JSON and as an event stream, with accounts.

Takes: a script that says what the model answers. Gives: its address on standard output; figures under /bench/account.
May touch: one loopback port. It runs as a process of its own and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import time
from typing import Any

from bench.billing import Accounts, Bill, TooManyMarks
from bench.script import reply_to

_ERROR = "invalid_request_error"


class Service:
    """Answers at once, and remembers what was asked since the last reset."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """A new customer."""
        self.accounts = Accounts()
        self.first: float | None = None
        self.requests = self.bytes = 0

    def figures(self) -> dict[str, Any]:
        """What the runs of the bench read. `first` is a time of the system's monotonic clock."""
        return {
            "first": self.first,
            "requests": self.requests,
            "bytes": self.bytes,
            "billed": round(self.accounts.billed, 2),
            "input": sum(bill.input for bill in self.accounts.bills),
            "written": sum(bill.written for bill in self.accounts.bills),
            "read": sum(bill.read for bill in self.accounts.bills),
        }

    def answer(self, method: str, path: str, data: bytes) -> tuple[int, str, bytes]:
        """Status, type and body of one answer."""
        path = path.partition("?")[0]
        if path == "/bench/account":
            return 200, "application/json", json.dumps(self.figures()).encode()
        if path == "/bench/reset":
            self.reset()
            return 200, "application/json", b"{}"
        if method == "POST" and path == "/v1/messages":
            return self._message(data)
        if method == "POST" and path == "/v1/messages/count_tokens":
            return 200, "application/json", json.dumps({"input_tokens": len(data) // 4}).encode()
        return 404, "application/json", _error("not_found_error", f"nothing is served at {path}")

    def _message(self, data: bytes) -> tuple[int, str, bytes]:
        self.first = self.first or time.monotonic()
        self.requests += 1
        self.bytes += len(data)
        body = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        try:
            bill = self.accounts.take(body)
        except TooManyMarks:
            return 400, "application/json", _error(_ERROR, "a request may have 4 blocks with cache_control")
        content, reason = reply_to(body)
        message = _message_of(body, content, reason, bill)
        if body.get("stream"):
            return 200, "text/event-stream; charset=utf-8", b"".join(_events(message))
        return 200, "application/json", json.dumps(message).encode()


class _Connection(asyncio.Protocol):
    def __init__(self, service: Service) -> None:
        self._service = service
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._held += data
        while (request := self._take()) is not None:
            status, kind, body = self._service.answer(*request)
            head = f"HTTP/1.1 {status} .\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
            self._transport.write(head.encode() + (b"" if request[0] == "HEAD" else body))

    def _take(self) -> tuple[str, str, bytes] | None:
        head, found, rest = self._held.partition(b"\r\n\r\n")
        if not found:
            return None
        lines = head.decode("latin-1").split("\r\n")
        method, path, _ = lines[0].split(" ", 2)
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if fields.get("expect", "").lower() == "100-continue" and not rest:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if fields.get("transfer-encoding", "").lower() == "chunked":
            whole = _unchunked(rest)
            if whole is None:
                return None
            body, self._held = whole
            return method, path, body
        length = int(fields.get("content-length", "0"))
        if len(rest) < length:
            return None
        self._held = rest[length:]
        return method, path, rest[:length]


def _unchunked(data: bytes) -> tuple[bytes, bytes] | None:
    body = b""
    while True:
        line, found, data = data.partition(b"\r\n")
        if not found:
            return None
        size = int(line.partition(b";")[0], 16)
        if len(data) < size + 2:
            return None
        body, data = body + data[:size], data[size + 2 :]
        if not size:
            return body, data


def _error(kind: str, message: str) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()


def _message_of(body: dict[str, Any], content: list[dict[str, Any]], reason: str, bill: Bill) -> dict[str, Any]:
    return {
        "id": f"msg_{time.monotonic_ns()}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model", "bench"),
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {
            "input_tokens": bill.input,
            "cache_creation_input_tokens": bill.written,
            "cache_read_input_tokens": bill.read,
            "output_tokens": len(json.dumps(content)) // 4,
        },
    }


def _events(message: dict[str, Any]) -> list[bytes]:
    start = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty, delta = (
                {**block, "input": {}},
                {"type": "input_json_delta", "partial_json": json.dumps(block["input"])},
            )
        events += [
            {"type": "content_block_start", "index": index, "content_block": empty},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events += [
        {"type": "message_delta", "delta": ending, "usage": {"output_tokens": message["usage"]["output_tokens"]}},
        {"type": "message_stop"},
    ]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


async def serve() -> None:
    """Serve until standard input ends."""
    service = Service()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(service), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(serve())
