"""The one place where HTTP clients for models and their logins are made.

Takes: a proxy, a timeout. Gives: a client that the environment does not steer.
May touch: nothing by itself; what is sent through it goes over the network.
"""

from __future__ import annotations

import socket

import httpx2

from stepflow.llm.bounds import BoundedTransport

#: Seconds that one request of a login may be silent.
LOGIN_TIMEOUT = 30.0


def http_client(proxy: str | None = None, *, timeout: float = LOGIN_TIMEOUT) -> httpx2.Client:
    """A client that the environment does not steer; the SDK's own takes proxies from it even when told not to.

    `timeout` holds where a request brings none of its own, as the SDK's do.
    """
    transport = BoundedTransport(
        trust_env=False,
        # A turn lasts much longer than a handshake, and what a fault or a long tool call left of a connection is not
        # used again.
        limits=httpx2.Limits(max_keepalive_connections=0),
        proxy=httpx2.Proxy(proxy) if proxy else None,
        # A model may think for minutes; without keep-alive probes a router on the way forgets the connection.
        socket_options=[(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)],
    )
    return httpx2.Client(transport=transport, trust_env=False, follow_redirects=False, timeout=timeout)
