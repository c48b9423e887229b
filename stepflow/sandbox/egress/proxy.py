"""The proxy to which every TCP connection of the sandbox leads, and which decides by the host's name."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import threading
from asyncio import StreamReader, StreamWriter
from base64 import b64encode
from collections.abc import Iterator, Sequence
from urllib.parse import unquote, urlsplit

from stepflow.domain.connection import ConnectionTo, HostRequests
from stepflow.errors import IsolationError
from stepflow.sandbox.egress.allowed_hosts import AllowedHost, describe_host, is_address, is_public, normalize_host
from stepflow.sandbox.egress.destination import (
    ALERT,
    HANDSHAKE,
    Destination,
    read_before_second_hello,
    read_client_hello,
    read_destination,
    read_server_answer,
)
from stepflow.sandbox.egress.name_lookups import abandon_lookups
from stepflow.sandbox.egress.socket_calls import (
    ConnectCall,
    ListenCall,
    SocketCall,
    answer_connect,
    answer_listen,
    connected_pair,
    give_socket,
    is_over,
    receive_call,
    refuse_call,
)

_MOST_CONNECTIONS = 256
_MOST_NAMES = 200
_HEAD_BYTES = 64 * 1024
_PIECE = 64 * 1024
#: Until a program has said where it wants to go and TLS has begun, until a host has answered, and without a byte in
#: either direction.
_HEAD_SECONDS, _CONNECT_SECONDS, _IDLE_SECONDS = 60.0, 20.0, 300.0
_FLUSH_SECONDS = 5.0
#: For a connection to end where a program asks for one more.
_PLACE_SECONDS = 1.0
_NO_NAME = "(no name)"
_OTHERS = "(other names)"


class NotAllowed(Exception):
    """The host is not one that the sandbox may reach."""


class Internet:
    """Where listed hosts are, beside a company's proxy."""

    async def look_up(self, host: str, port: int) -> list[str]:
        """Return the addresses of a name. Raises `OSError`."""
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [str(address[0]) for *_, address in found]

    async def connect(self, address: str, port: int) -> tuple[StreamReader, StreamWriter]:
        """Open a connection. Raises `OSError`."""
        return await asyncio.open_connection(address, port, limit=_HEAD_BYTES)


class EgressProxy:
    """Gives the sandbox its sockets and serves them, in a thread of its own. `child_end` goes to the sandbox's program,
    which sends its listener there. Made before the program, closed after it."""

    def __init__(self, hosts: Sequence[AllowedHost], connection_to: ConnectionTo, internet: Internet) -> None:
        self._hosts, self._connection_to, self._internet = hosts, connection_to, internet
        self._parent_end, self.child_end = socket.socketpair()
        self._listener: int | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        #: Calls for which there was no place.
        self._waiting: set[asyncio.Task[None]] = set()
        self._counts: dict[str, tuple[int, int]] = {}
        self._counting = True

    def start(self, beside: EgressProxy | None = None) -> None:
        """Take the listener that the program has sent, and begin to answer; count the hosts together with the proxy
        `beside`, if there is one. Raises `IsolationError`."""
        self._counts = beside._counts if beside else self._counts
        try:
            for end in connected_pair():
                end.close()
            flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
            _, (self._listener,), _, _ = socket.recv_fds(self._parent_end, 1, 1, flags)
        except OSError as exc:
            raise IsolationError(
                "`network` with a list of hosts cannot be enforced here: no socket can be given to the tools "
                f"({exc.strerror}).",
                hint="Set `network: none`, or `network: full` where you trust what runs.",
            ) from exc
        ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(self._listener, ready),), name="egress")
        self._thread.start()
        ready.wait()

    def close(self) -> None:
        """Let go of every connection. May be called again."""
        self._parent_end.close()
        self.child_end.close()
        if self._thread and self._loop:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join()
        if self._listener is not None:
            os.close(self._listener)
            self._listener = None

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Do not count what is opened inside the block: the tools did not ask for it."""
        self._counting = False
        try:
            yield
        finally:
            self._counting = True

    def requests(self) -> tuple[HostRequests, ...]:
        """Return every host that was asked for, in the order of the first time."""
        counts = self._counts.copy()
        return tuple(
            HostRequests(host=host, allowed=allowed, refused=refused) for host, (allowed, refused) in counts.items()
        )

    async def _run(self, listener: int, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        abandon_lookups(self._loop)
        self._loop.add_reader(listener, self._answer_call, listener)
        ready.set()
        await self._stopped.wait()
        self._loop.remove_reader(listener)
        tasks = (*self._waiting, *self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _answer_call(self, listener: int) -> None:
        if is_over(listener):
            asyncio.get_running_loop().remove_reader(listener)
            return
        # A process that is gone is owed nothing.
        with contextlib.suppress(OSError):
            call = receive_call(listener)
            if isinstance(call, ConnectCall):
                answer_connect(listener, call)
            elif isinstance(call, ListenCall):
                answer_listen(listener, call)
            elif not call.is_tcp:
                if call.description:
                    self._count(call.description, is_allowed=False, counting=self._counting)
                refuse_call(listener, call, errno.EACCES)
            elif len(self._connections) >= _MOST_CONNECTIONS:
                waiting = asyncio.get_running_loop().create_task(self._give_later(listener, call))
                self._waiting.add(waiting)
                waiting.add_done_callback(self._waiting.discard)
            else:
                self._give_connection(listener, call)

    async def _give_later(self, listener: int, call: SocketCall) -> None:
        """Give a connection once another one ends, as those of a program that has just ended do; else refuse."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PLACE_SECONDS):
                # Others may wait for the same place.
                while len(self._connections) >= _MOST_CONNECTIONS:
                    await asyncio.wait(self._connections, return_when=asyncio.FIRST_COMPLETED)
        with contextlib.suppress(OSError):
            if len(self._connections) >= _MOST_CONNECTIONS:
                refuse_call(listener, call, errno.EMFILE)
            else:
                self._give_connection(listener, call)

    def _give_connection(self, listener: int, call: SocketCall) -> None:
        try:
            given, ours = connected_pair()
        except OSError:
            refuse_call(listener, call, errno.ENOBUFS)
            return
        with given:
            try:
                give_socket(listener, call, given)
            except OSError as exc:
                ours.close()
                refuse_call(listener, call, exc.errno or errno.EMFILE)
                return
        connection = asyncio.get_running_loop().create_task(self._serve(ours, counting=self._counting))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)
        # One that never began has nobody else to close it.
        connection.add_done_callback(lambda _: ours.close())

    async def _serve(self, ours: socket.socket, *, counting: bool) -> None:
        """Serve one connection of a program."""
        async with contextlib.AsyncExitStack() as ending:
            reader, writer = await asyncio.open_connection(sock=ours, limit=_HEAD_BYTES)
            ending.push_async_callback(_close, writer)
            try:
                async with asyncio.timeout(_HEAD_SECONDS):
                    wanted = await read_destination(reader)
            except (ValueError, EOFError, TimeoutError, asyncio.LimitOverrunError):
                self._count(_NO_NAME, is_allowed=False, counting=counting)
                return
            except OSError:
                return
            if wanted is None:
                return
            shown = describe_host(wanted.host, wanted.port)
            try:
                upstream = await self._connect(wanted)
            except NotAllowed:
                self._count(shown, is_allowed=False, counting=counting)
                writer.write(_refusal(wanted, 403, f"{shown} is not among the allowed hosts"))
                return
            except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as exc:
                # A time limit of ours has no words of its own.
                reason = str(exc) or type(exc).__name__
                self._count(shown, is_allowed=True, counting=counting)
                writer.write(_refusal(wanted, 502, f"{shown} could not be reached: {reason}"))
                return
            ending.push_async_callback(_close, upstream[1])
            self._count(shown, is_allowed=True, counting=counting)
            if wanted.is_tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            try:
                await _relay((reader, writer), upstream, wanted)
            except NotAllowed as fronted:
                self._count(str(fronted), is_allowed=False, counting=counting)
                is_named = str(fronted) != _NO_NAME
                writer.write(ALERT if is_named else _refusal(wanted, 403, f"a tunnel to {shown} carries only TLS"))
            except (OSError, EOFError):
                # Either side may go away at any moment.
                return

    async def _connect(self, wanted: Destination) -> tuple[StreamReader, StreamWriter]:
        """To the host by its name, whatever address the program had. Raises `NotAllowed`, or what a failure raises."""
        allowed = [host for host in self._hosts if host.covers(wanted.host, wanted.port)]
        may_be_private = any(host.is_exact for host in allowed)
        if not allowed:
            raise NotAllowed
        host = f"[{wanted.host}]" if ":" in wanted.host else wanted.host
        connection = self._connection_to(f"https://{host}:{wanted.port}")
        async with asyncio.timeout(_CONNECT_SECONDS):
            if connection.proxy:
                return await _connect_through(connection.proxy, f"{host}:{wanted.port}")
            addresses = await self._internet.look_up(wanted.host, wanted.port)
            reachable = [address for address in addresses if may_be_private or is_public(address)]
            if not reachable:
                raise NotAllowed
            problem = OSError("no address")
            for address in reachable:
                try:
                    return await self._internet.connect(address, wanted.port)
                except OSError as exc:
                    problem = exc
            raise problem

    def _count(self, host: str, *, is_allowed: bool, counting: bool) -> None:
        if counting:
            name = host if host in self._counts or len(self._counts) < _MOST_NAMES else _OTHERS
            allowed, refused = self._counts.get(name, (0, 0))
            self._counts[name] = (allowed + is_allowed, refused + (not is_allowed))


async def _connect_through(proxy: str, target: str) -> tuple[StreamReader, StreamWriter]:
    """Open a tunnel through the company's own proxy."""
    parts = urlsplit(proxy)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80, limit=_HEAD_BYTES)
    try:
        login = ""
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            login = f"Proxy-Authorization: Basic {b64encode(user.encode()).decode()}\r\n"
        writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{login}\r\n".encode())
        status = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1:2]
        if not status or not status[0].startswith(b"2"):
            raise OSError(f"the proxy answered {b' '.join(status).decode('ascii', 'replace')}")
    except BaseException:
        writer.close()
        raise
    return reader, writer


def _refusal(wanted: Destination, status: int, reason: str) -> bytes:
    if wanted.is_tls:
        return ALERT
    body = f"stepflow: {reason}\n".encode()
    words = "Forbidden" if status == 403 else "Bad Gateway"
    head = f"HTTP/1.1 {status} {words}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close"
    return f"{head}\r\n\r\n".encode() + body


async def _relay(
    program: tuple[StreamReader, StreamWriter], upstream: tuple[StreamReader, StreamWriter], wanted: Destination
) -> None:
    """Carry bytes in both directions until both ends are done or silent. Raises `NotAllowed` with the name for which
    the connection to another host was to be used."""
    loop = asyncio.get_running_loop()

    async def carry(reader: StreamReader, writer: StreamWriter, left: int | None = None) -> None:
        while left != 0 and (piece := await reader.read(_PIECE if left is None else min(left, _PIECE))):
            idle.reschedule(loop.time() + _IDLE_SECONDS)
            left = None if left is None else left - len(piece)
            writer.write(piece)
            await writer.drain()
        if left is None:
            writer.write_eof()

    async with asyncio.timeout(_IDLE_SECONDS) as idle:
        if wanted.is_tunnel or wanted.is_tls:
            async with asyncio.timeout(_HEAD_SECONDS):
                await _begin_tls(program, upstream, wanted)
        else:
            upstream[1].write(wanted.data)
        both = asyncio.gather(carry(program[0], upstream[1], wanted.body), carry(upstream[0], program[1]))
        try:
            await both
        finally:
            both.cancel()


async def _begin_tls(
    program: tuple[StreamReader, StreamWriter], upstream: tuple[StreamReader, StreamWriter], wanted: Destination
) -> None:
    """Carry each ClientHello and what the server answers. No other byte of the program comes before that answer: the
    server would take whatever it is for the beginning. Raises `NotAllowed` for what is no TLS or names another host."""
    (reader, writer), (answers, server) = program, upstream
    try:
        if wanted.is_tunnel and await reader.readexactly(1) != HANDSHAKE:
            raise NotAllowed(_NO_NAME)
        server.write(await _read_hello(reader, wanted.host) if wanted.is_tunnel else wanted.data)
        answer, is_retry = await read_server_answer(answers)
        writer.write(answer)
        if is_retry:
            while record := await read_before_second_hello(reader):
                server.write(record)
                await server.drain()
            server.write(await _read_hello(reader, wanted.host))
    except ValueError:
        raise NotAllowed(_NO_NAME) from None


async def _read_hello(reader: StreamReader, host: str) -> bytes:
    hello, name = await read_client_hello(reader)
    if name and not is_address(host) and normalize_host(name) != host:
        raise NotAllowed(normalize_host(name) or _NO_NAME)
    return hello


async def _close(writer: StreamWriter) -> None:
    """Send what is left, but not to somebody who takes nothing."""
    writer.close()
    try:
        async with asyncio.timeout(_FLUSH_SECONDS):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()
