"""A Messages API on loopback: real HTTP and real event streams, answers by script."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from http.server import ThreadingHTTPServer

from tests.servers.dialects import AnthropicDialect, Dialect, Document, Received
from tests.servers.loopback import Handler, LoopbackServer
from tests.servers.messages_api_replies import (
    Answer,
    Drop,
    Failure,
    Json,
    Reply,
    answers,
    calls,
    events_of,
    message_of,
    says,
)
from tests.servers.messages_api_rules import (
    BINDING_CONTROLS,
    CONTEXT_MANAGEMENT,
    blocks_of,
    clear_results,
    name_answer,
    prefixes_of,
    problems_of,
    without_breakpoints,
)

__all__ = ["Answer", "Drop", "Failure", "MessagesApi", "Received", "Reply", "answers", "calls", "says"]


_CHARS_PER_TOKEN = 4
#: Seconds.
CACHE_LIFETIME = 300


class MessagesApi(LoopbackServer):
    """The server; a context manager. Requests that the API would refuse are refused with its kind of error."""

    def __init__(
        self,
        replies: Iterable[Reply] | Callable[[Json], Reply] = (),
        *,
        api_key: str = "sk-ant-test-key",
        models: frozenset[str] | None = None,
        unknown_fields: frozenset[str] = frozenset(),
        checks: bool = True,
        dialect: Dialect | None = None,
        window: int | None = None,
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`dialect`: the way of another service. `unknown_fields` are known to the API but not to this server;
        `checks=False` takes any message. `window`, in tokens: longer requests are refused, and its list of models says
        that it makes room when asked to. What it has cached is gone five minutes after its last use, by `now`."""
        self.window, self._now = window, now
        self.api_key, self.models, self.unknown_fields, self.checks = api_key, models, unknown_fields, checks
        self.dialect = dialect or AnthropicDialect(key=api_key)
        self.requests: list[Received] = []
        #: What every look-up of a model gets, in the place of the model's entry.
        self.list_of_models: Failure | Drop | None = None
        self._reply = replies if callable(replies) else _one_after_another(replies)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        #: When what was cached for each model was last used.
        self._cached: dict[tuple[str, str], float] = {}
        #: Behind which prefixes each answer was given, and each signature of a thinking block.
        self._given: defaultdict[str, set[str]] = defaultdict(set)
        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(self)))

    @property
    def bodies(self) -> list[Json]:
        """The JSON bodies of the message requests, in order."""
        return [request.body for request in self.requests if request.method == "POST"]

    def close_connections(self) -> None:
        """As a server does that has not been asked for a while."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def begin(self, connection: socket.socket) -> None:
        """Remember a connection."""
        self._open.add(connection)

    def take(self, request: Received) -> tuple[Received, Reply | Document]:
        """Keep the request as the Anthropic API would see it, and choose what comes back."""
        with self._lock:
            read = self.dialect.read(request)
            if not isinstance(read, Received):
                if isinstance(read, Failure):
                    self.requests.append(request)
                return request, read
            self.requests.append(read)
            return read, self._choose(read)

    def _choose(self, request: Received) -> Reply:
        refusal = self._refusal(request)
        if refusal or request.method == "GET":
            return refusal or (self.list_of_models if request.method == "GET" else None) or says("")
        if request.body["max_tokens"] <= 1:
            # There is no room for an answer: the script stays where it is.
            return Answer(content=(), stop_reason="max_tokens")
        reply = self._reply(request.body)
        if isinstance(reply, Answer):
            *_, prefix = prefixes_of(request.body)
            signatures = [str(block["signature"]) for block in reply.content if "signature" in block]
            for name in (*signatures, name_answer(list(reply.content))):
                self._given[name].add(prefix)
        return reply

    def count(self, body: Json, answer: Answer) -> Json:
        """Usage with a billing account by prefix: what an earlier request sent is read from the cache."""
        body, _ = clear_results(body, size_of)
        segments = _segments_of(body)
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
        digest, read, total, now = hashlib.sha256(), 0, 0, self._now()
        with self._lock:
            for segment, size in zip(segments, sizes, strict=True):
                digest.update(segment.encode() + b"\0")
                total += size
                prefix = model, digest.hexdigest()
                if now - self._cached.get(prefix, -math.inf) < CACHE_LIFETIME:
                    read = total
                self._cached[prefix] = now
        return read

    def _refusal(self, request: Received) -> Failure | None:
        path = request.path.partition("?")[0]
        if request.method == "GET" and path.startswith("/v1/models/"):
            return self._unknown_model(path.rpartition("/")[2])
        if (request.method, path) != ("POST", "/v1/messages"):
            return Failure(status=404, error="not_found_error", message="Not Found")
        if self.checks and (
            problem := next(problems_of(request.body, given=self._given, unknown=self.unknown_fields), None)
        ):
            return _bad(problem)
        if "block_binding" in (request.body.get("thinking") or {}) and BINDING_CONTROLS not in request.headers.get(
            "anthropic-beta", ""
        ):
            return _bad(f"thinking.block_binding: requires the `{BINDING_CONTROLS}` beta header")
        if "context_management" in request.body and CONTEXT_MANAGEMENT not in request.headers.get("anthropic-beta", ""):
            return _bad("context_management: Extra inputs are not permitted")
        seen = size_of(clear_results(request.body, size_of)[0]) if self.window else 0
        if self.window and seen > self.window:
            return _bad(f"prompt is too long: {seen} tokens > {self.window} maximum")
        return self._unknown_model(str(request.body.get("model")))

    def _unknown_model(self, name: str) -> Failure | None:
        if self.models is None or name in self.models:
            return None
        return Failure(status=404, error="not_found_error", message=f"model: {name}")


def _segments_of(body: Json) -> list[str]:
    body = without_breakpoints(body)
    segments = [json.dumps(body.get("tools", [])), json.dumps(body.get("system", ""))]
    return segments + [json.dumps(block) for message in body["messages"] for block in blocks_of(message)]


def size_of(body: Json) -> int:
    """The tokens of a request."""
    return sum(max(1, len(segment) // _CHARS_PER_TOKEN) for segment in _segments_of(body))


def _bad(message: str) -> Failure:
    return Failure(status=400, error="invalid_request_error", message=message)


def _one_after_another(replies: Iterable[Reply]) -> Callable[[Json], Reply]:
    waiting = iter(replies)
    return lambda _: next(waiting, _bad("the scripted server has no more replies"))


def _handler_for(api: MessagesApi) -> type[Handler]:
    class MessagesHandler(Handler):
        def setup(self) -> None:
            api.begin(self.request)
            super().setup()

        def handle(self) -> None:
            # A client may leave a connection that it kept without a word.
            with contextlib.suppress(ConnectionError):
                super().handle()

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", "0")))
            self._take(json.loads(raw or b"{}"), raw)

        def do_GET(self) -> None:
            self._take({}, b"")

        def _take(self, body: Json, raw: bytes) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            came = Received(
                method=self.command,
                path=self.path,
                headers=headers,
                body=body,
                raw=raw,
                connection=self.client_address[1],
            )
            read, reply = api.take(came)
            match reply:
                case Document():
                    self._send(200, "application/json", json.dumps(reply.value).encode(), {})
                case Failure():
                    self._fail(reply)
                case Drop():
                    time.sleep(reply.silent)
                    self._reset()
                case Answer() if self.command == "GET":
                    name = self.path.rpartition("/")[2]
                    entry = {"id": name, "type": "model", "display_name": name, "created_at": "2026-01-01T00:00:00Z"}
                    if api.window:
                        clearing = {"supported": True, "clear_tool_uses_20250919": {"supported": True}}
                        entry |= {"max_input_tokens": api.window, "capabilities": {"context_management": clearing}}
                    self._send(200, "application/json", json.dumps(entry).encode(), {})
                case Answer():
                    self._answer(read.body, reply)

        def _fail(self, failure: Failure) -> None:
            body = json.dumps(api.dialect.error(failure))
            kind = "application/json" if failure.page is None else "text/html; charset=utf-8"
            self._send(failure.status, kind, (body if failure.page is None else failure.page).encode(), failure.headers)

        def _answer(self, body: Json, answer: Answer) -> None:
            usage = answer.usage or api.count(body, answer)
            if not body.get("stream"):
                message = message_of(answer, body["model"], usage)
                self._send(200, "application/json", json.dumps(message).encode(), {})
                return
            if answer.drip:
                self._drip(answer.drip)
                return
            self.send_response(200)
            self.send_header("content-type", api.dialect.stream_type)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            while answer.flood and self._chunk(f": {'.' * answer.flood}\n".encode()):
                pass
            _, applied = clear_results(body, size_of)
            self._stream(answer, list(events_of(answer, model=body["model"], usage=usage, context_management=applied)))

        def _stream(self, answer: Answer, events: list[tuple[str, Json]]) -> None:
            for position, name, data in answer.extra_events:
                events.insert(position, (name, data))
            for number, (name, data) in enumerate(events):
                if number == answer.reset_after:
                    return self._reset()
                if number == answer.cut_after:
                    break
                text = "{not json" if number == answer.garble_at else json.dumps(data)
                if not self._chunk(api.dialect.frame(name, text)):
                    return None
                time.sleep(answer.pause)
            self._chunk(b"")
            return None

        def _drip(self, seconds: float) -> None:
            """Headers that hold out forever: there is progress, but never an answer."""
            for byte in itertools.chain(b"HTTP/1.1 200 OK\r\nx-drip: ", itertools.repeat(ord("."))):
                try:
                    self.wfile.write(bytes([byte]))
                except OSError:
                    self.close_connection = True
                    return
                time.sleep(seconds)

        def _chunk(self, data: bytes) -> bool:
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
            try:
                self.wfile.write(body)
            except OSError:
                self.close_connection = True

        def _reset(self) -> None:
            self.close_connection = True
            # Closing without lingering sends RST instead of FIN.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    return MessagesHandler
