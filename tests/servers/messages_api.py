"""A Messages API on loopback: real HTTP and real event streams, answers by script.

Takes: replies, or a function from the request to its reply. Gives: an address, and every request that came.
May touch: a loopback port; as a program (`python -m tests.servers.messages_api --help`) also the files it is given.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

Json = dict[str, Any]

_FIELDS = {"model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream", "output_config"}
_FIELDS |= {"cache_control", "thinking", "metadata", "stop_sequences", "temperature", "service_tier"}
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CHARS_PER_TOKEN = 4
_PIECE = 7


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An assistant message. The knobs spoil the way it is sent, never what it says."""

    content: tuple[Json, ...]
    stop_reason: str | None = "end_turn"
    stop_details: Json | None = None
    usage: Json | None = None
    """None: counted by the server, with the cache accounts of `MessagesApi`."""
    model: str | None = None
    cut_after: int | None = None
    """End the stream politely after so many events."""
    reset_after: int | None = None
    """Reset the connection after so many events; 0 is right after the headers."""
    garble_at: int | None = None
    """Send the event of this number with data that is no JSON."""
    extra_events: tuple[tuple[int, str, Json], ...] = ()
    """(position, name, data) of events that are pushed in between."""
    pause: float = 0.0
    """Seconds between two events."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An HTTP answer that is no message."""

    status: int
    error: str = "api_error"
    message: str = "scripted failure"
    details: Json | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    page: str | None = None
    """A body of text/html instead of the API's JSON."""


@dataclass(frozen=True, kw_only=True)
class Drop:
    """Close the connection (reset it) before a byte is answered; or keep silent for some seconds before that."""

    silent: float = 0.0


Reply = Answer | Failure | Drop


def says(text: str, **more: Any) -> Answer:
    """A plain answer."""
    return Answer(content=({"type": "text", "text": text},), **more)


def answers(value: Json, **more: Any) -> Answer:
    """A structured answer."""
    return says(json.dumps(value, separators=(",", ":")), **more)


def calls(*tools: tuple[str, Json], text: str = "", first_id: int = 1, **more: Any) -> Answer:
    """A turn of tool calls: (name, input) each."""
    blocks: list[Json] = [{"type": "text", "text": text}] if text else []
    for number, (name, arguments) in enumerate(tools, start=first_id):
        blocks.append({"type": "tool_use", "id": f"toolu_srv_{number}", "name": name, "input": arguments})
    return Answer(content=tuple(blocks), stop_reason="tool_use", **more)


@dataclass(frozen=True, kw_only=True)
class Received:
    """One request as it came. `headers` are lower-cased."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Json


class MessagesApi:
    """The server; a context manager. Requests that the API would refuse are refused with its kind of error."""

    def __init__(
        self,
        replies: Iterable[Reply] | Callable[[Json], Reply] = (),
        *,
        api_key: str = "sk-ant-test-key",
        models: frozenset[str] | None = None,
        unknown_fields: frozenset[str] = frozenset(),
        checks: bool = True,
        port: int = 0,
    ) -> None:
        """`unknown_fields` are known to the API but not to this server; `checks=False` takes any message."""
        self.api_key, self.models, self.unknown_fields, self.checks = api_key, models, unknown_fields, checks
        self.requests: list[Received] = []
        self._reply = replies if callable(replies) else _one_after_another(replies)
        self._lock = threading.Lock()
        self._cached: set[tuple[str, str]] = set()
        self._signatures: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler_for(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        """The base URL for a client."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    @property
    def bodies(self) -> list[Json]:
        """The JSON bodies of the message requests, in order."""
        return [request.body for request in self.requests if request.method == "POST"]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(timeout=5)
        self._server.server_close()

    def take(self, request: Received) -> Reply:
        """Keep the request and choose what comes back."""
        with self._lock:
            self.requests.append(request)
            refusal = self._refusal(request)
            if refusal or request.method == "GET":
                return refusal or says("")
            reply = self._reply(request.body)
            if isinstance(reply, Answer):
                self._signatures |= {str(block["signature"]) for block in reply.content if "signature" in block}
            return reply

    def count(self, body: Json, answer: Answer) -> Json:
        """Usage with a billing account by prefix: what an earlier request sent is read from the cache."""
        segments = [json.dumps(body.get("tools", [])), json.dumps(body.get("system", ""))]
        segments += [json.dumps(block) for message in body["messages"] for block in _blocks(message)]
        sizes = [max(1, len(segment) // _CHARS_PER_TOKEN) for segment in segments]
        out = max(1, len(json.dumps(answer.content)) // _CHARS_PER_TOKEN)
        if "cache_control" not in body:
            return {"input_tokens": sum(sizes), "output_tokens": out}
        read = self._read_prefix(str(body["model"]), segments, sizes)
        return {
            "input_tokens": 0,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": sum(sizes) - read,
            "output_tokens": out,
        }

    def _read_prefix(self, model: str, segments: list[str], sizes: list[int]) -> int:
        digest, read, total = hashlib.sha256(), 0, 0
        with self._lock:
            for segment, size in zip(segments, sizes, strict=True):
                digest.update(segment.encode() + b"\0")
                total += size
                if (model, digest.hexdigest()) in self._cached:
                    read = total
                self._cached.add((model, digest.hexdigest()))
        return read

    def _refusal(self, request: Received) -> Failure | None:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.api_key not in (request.headers.get("x-api-key"), bearer):
            return Failure(status=401, error="authentication_error", message="invalid x-api-key")
        if not request.headers.get("anthropic-version"):
            return _bad("anthropic-version: header is required")
        path = request.path.partition("?")[0]
        if request.method == "GET" and path.startswith("/v1/models/"):
            return self._unknown_model(path.rpartition("/")[2])
        if (request.method, path) != ("POST", "/v1/messages"):
            return Failure(status=404, error="not_found_error", message="Not Found")
        if self.checks and (problem := self._problem(request.body)):
            return _bad(problem)
        return self._unknown_model(str(request.body.get("model")))

    def _unknown_model(self, name: str) -> Failure | None:
        if self.models is None or name in self.models:
            return None
        return Failure(status=404, error="not_found_error", message=f"model: {name}")

    def _problem(self, body: Json) -> str | None:
        if unknown := sorted(body.keys() - (_FIELDS - self.unknown_fields)):
            return f"{unknown[0]}: Extra inputs are not permitted"
        if not isinstance(body.get("model"), str) or not body["model"]:
            return "model: Field required"
        if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
            return "max_tokens: must be greater than or equal to 1"
        return (
            next(_problems_of_messages(body.get("messages"), self._signatures), None)
            or next(_problems_of_tools(body.get("tools", [])), None)
            or next(_problems_of_format(body.get("output_config", {})), None)
        )


def events_of(answer: Answer, *, model: str, usage: Json) -> Iterator[tuple[str, Json]]:
    """The event stream of an answer as the API sends it: (name, data)."""
    started = {**usage, "output_tokens": 1}
    yield "message_start", {"type": "message_start", "message": _message(answer, model, started, begun=True)}
    for index, block in enumerate(answer.content):
        yield from _block_events(index, block)
    delta = {"stop_reason": answer.stop_reason, "stop_sequence": None, "stop_details": answer.stop_details}
    yield "message_delta", {"type": "message_delta", "delta": delta, "usage": usage}
    yield "message_stop", {"type": "message_stop"}


def _message(answer: Answer, model: str, usage: Json, *, begun: bool = False) -> Json:
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": answer.model or model,
        "content": [] if begun else list(answer.content),
        "stop_reason": None if begun else answer.stop_reason,
        "stop_sequence": None,
        "usage": usage,
    }


def _block_events(index: int, block: Json) -> Iterator[tuple[str, Json]]:
    empty, deltas = _taken_apart(block)
    yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": empty}
    if index == 0:
        yield "ping", {"type": "ping"}
    for delta in deltas:
        yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": index}


def _taken_apart(block: Json) -> tuple[Json, list[Json]]:
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": text} for text in _pieces(block["text"])]
        case "thinking":
            deltas: list[Json] = [{"type": "thinking_delta", "thinking": text} for text in _pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case "tool_use":
            pieces = _pieces(json.dumps(block["input"]))
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text} for text in pieces]
        case _:
            return block, []


def _pieces(text: str) -> list[str]:
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def _blocks(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _problems_of_messages(messages: Any, signatures: set[str]) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    open_calls: set[str] = set()
    for number, message in enumerate(messages):
        expected = "assistant" if number % 2 else "user"
        if message.get("role") != expected:
            yield f"messages.{number}: roles must alternate between user and assistant, beginning with user"
        if not message.get("content"):
            yield f"messages.{number}: all messages must have non-empty content"
        answered = {block["tool_use_id"] for block in _blocks(message) if block["type"] == "tool_result"}
        if open_calls - answered:
            yield f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after"
        if answered - open_calls:
            yield f"messages.{number}: unexpected `tool_use_id` found in `tool_result` blocks"
        open_calls = {block["id"] for block in _blocks(message) if block["type"] == "tool_use"}
        yield from _problems_of_blocks(number, _blocks(message), signatures)
    if messages[-1].get("role") == "assistant":
        yield "messages: this model does not support assistant message prefill"


def _problems_of_blocks(number: int, blocks: list[Json], signatures: set[str]) -> Iterator[str]:
    for place, block in enumerate(blocks):
        where = f"messages.{number}.content.{place}"
        if block["type"] == "text" and not block.get("text"):
            yield f"{where}: text content blocks must be non-empty"
        if block["type"] == "thinking" and block.get("signature") not in signatures:
            yield f"{where}: Invalid `signature` in `thinking` block"
        if any(value is None for value in block.values()):
            yield f"{where}: Input should not be null"


def _problems_of_tools(tools: list[Json]) -> Iterator[str]:
    names = [tool.get("name", "") for tool in tools]
    if len(set(names)) != len(names):
        yield "tools: Tool names must be unique."
    for number, tool in enumerate(tools):
        if not _TOOL_NAME.fullmatch(names[number]):
            yield f"tools.{number}.custom.name: String should match pattern"
        if tool.get("input_schema", {}).get("type") != "object":
            yield f"tools.{number}.custom.input_schema.type: Field required"


def _problems_of_format(config: Json) -> Iterator[str]:
    if not config:
        return
    wanted = config.get("format", {})
    if wanted.get("type") != "json_schema" or not isinstance(wanted.get("schema"), dict):
        yield "output_config.format.schema: Field required"
    else:
        yield from schema_problems(wanted["schema"])


def schema_problems(schema: Json) -> Iterator[str]:
    """The subset that structured output takes."""
    where = "output_config.format.schema"
    allowed = {"type", "properties", "required", "additionalProperties", "items", "minItems", "anyOf", "allOf"}
    allowed |= {"enum", "const", "description", "title", "format", "default", "$ref", "$defs"}
    if extra := sorted(schema.keys() - allowed):
        yield f"{where}: property '{extra[0]}' is not supported"
    if not schema.keys() & {"type", "anyOf", "allOf", "enum", "const", "$ref"}:
        yield f"{where}: a type is required"
    if isinstance(schema.get("type"), list):
        yield f"{where}: lists of types are not supported"
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        yield f"{where}: For 'object' type, 'additionalProperties' must be explicitly set to false"
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", []), *schema.get("allOf", [])]
    for sub in [*inner, *([schema["items"]] if "items" in schema else [])]:
        yield from schema_problems(sub)


def _bad(message: str) -> Failure:
    return Failure(status=400, error="invalid_request_error", message=message)


def _one_after_another(replies: Iterable[Reply]) -> Callable[[Json], Reply]:
    waiting = iter(replies)
    return lambda _: next(waiting, _bad("the scripted server has no more replies"))


def _handler_for(api: MessagesApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", "0")))
            self._take(json.loads(raw or b"{}"))

        def do_GET(self) -> None:
            self._take({})

        def log_message(self, format: str, *args: object) -> None:
            """Keep quiet."""

        def _take(self, body: Json) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = api.take(Received(method=self.command, path=self.path, headers=headers, body=body))
            match reply:
                case Failure():
                    self._fail(reply)
                case Drop():
                    time.sleep(reply.silent)
                    self._reset()
                case Answer() if self.command == "GET":
                    name = self.path.rpartition("/")[2]
                    entry = {"id": name, "type": "model", "display_name": name, "created_at": "2026-01-01T00:00:00Z"}
                    self._send(200, "application/json", json.dumps(entry).encode(), {})
                case Answer():
                    self._answer(body, reply)

        def _fail(self, failure: Failure) -> None:
            error = {"type": failure.error, "message": failure.message}
            if failure.details:
                error["details"] = failure.details  # type: ignore[assignment]
            body = json.dumps({"type": "error", "error": error, "request_id": "req_scripted"})
            kind = "application/json" if failure.page is None else "text/html; charset=utf-8"
            self._send(failure.status, kind, (body if failure.page is None else failure.page).encode(), failure.headers)

        def _answer(self, body: Json, answer: Answer) -> None:
            usage = answer.usage or api.count(body, answer)
            if not body.get("stream"):
                message = _message(answer, body["model"], usage)
                self._send(200, "application/json", json.dumps(message).encode(), {})
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream; charset=utf-8")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            self._stream(answer, list(events_of(answer, model=body["model"], usage=usage)))

        def _stream(self, answer: Answer, events: list[tuple[str, Json]]) -> None:
            for position, name, data in answer.extra_events:
                events.insert(position, (name, data))
            for number, (name, data) in enumerate(events):
                if number == answer.reset_after:
                    return self._reset()
                if number == answer.cut_after:
                    break
                text = "{not json" if number == answer.garble_at else json.dumps(data)
                if not self._chunk(f"event: {name}\ndata: {text}\n\n"):
                    return None
                time.sleep(answer.pause)
            self._chunk("")
            return None

        def _chunk(self, text: str) -> bool:
            data = text.encode()
            try:
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                self.wfile.flush()
            except OSError:
                self.close_connection = True
                return False
            return True

        def _send(self, status: int, kind: str, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {"content-type": kind, "content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def _reset(self) -> None:
            self.close_connection = True
            # Closing without lingering sends RST instead of FIN.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    return Handler


def main(arguments: list[str] | None = None) -> None:
    """Serve replies from a JSON file until the process is ended; the address goes to stdout and to `--url-file`."""
    parser = argparse.ArgumentParser(description="A scripted Messages API on loopback.")
    parser.add_argument("--replies", type=Path, required=True, help="JSON list of Answer or Failure fields")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--api-key", default="sk-ant-test-key")
    parser.add_argument("--url-file", type=Path, help="is written when the server is ready")
    parser.add_argument("--requests", type=Path, help="every request body, one JSON line each")
    given = parser.parse_args(arguments)
    waiting = _one_after_another(_reply_from(item) for item in json.loads(given.replies.read_text()))

    def reply(body: Json) -> Reply:
        if given.requests:
            with given.requests.open("a") as log:
                log.write(json.dumps(body) + "\n")
        return waiting(body)

    with MessagesApi(reply, api_key=given.api_key, port=given.port) as api:
        if given.url_file:
            given.url_file.write_text(api.url)
        print(api.url, flush=True)
        threading.Event().wait()


def _reply_from(item: Json) -> Reply:
    if "status" in item:
        return Failure(**item)
    return Answer(**{**item, "content": tuple(item["content"])})


if __name__ == "__main__":
    sys.exit(main())
