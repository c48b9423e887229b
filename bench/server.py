"""The model of the bench: the Messages API on loopback, as JSON and as an event stream, with accounts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bench.billing import Accounts, Bill
from bench.script import reply_to


class ModelServer(ThreadingHTTPServer):
    """Answers at once. `first` is when the first request since the last reset came, on the monotonic clock."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.reset()

    def reset(self) -> None:
        """A new customer."""
        self.accounts = Accounts()
        self.bodies: list[dict[str, Any]] = []
        self.first = 0.0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ModelServer

    def do_POST(self) -> None:
        if self.path.partition("?")[0] != "/v1/messages":
            self.send_error(404)
            return
        self.server.first = self.server.first or time.monotonic()
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        message = _message(body, self.server.accounts.take(body))
        streamed = body.get("stream", False)
        data = "".join(_events(message)) if streamed else json.dumps(message)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8" if streamed else "application/json")
        self.send_header("content-length", str(len(data.encode())))
        self.end_headers()
        self.wfile.write(data.encode())

    def log_message(self, *_: object) -> None:
        """Requests are counted, not printed."""


def _message(body: dict[str, Any], bill: Bill) -> dict[str, Any]:
    content, reason = reply_to(body)
    return {
        "id": f"msg_{time.monotonic_ns()}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
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


def _events(message: dict[str, Any]) -> Iterator[str]:
    """The message as a stream: a start without content, each block in one piece, the end."""
    block, usage = message["content"][0], message["usage"]
    if block["type"] == "text":
        empty, delta = {"text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        empty, delta = {"input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    start = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    for event in (
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {**block, **empty}},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": usage["output_tokens"]}},
        {"type": "message_stop"},
    ):
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


@contextmanager
def serve() -> Iterator[ModelServer]:
    """The server, until the block ends."""
    with ModelServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
