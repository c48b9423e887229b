"""The one place where HTTP clients for models and their logins are made.

Takes: a `Way`, a timeout. Gives: an `httpx2.Client` that the environment does not steer.
May touch: nothing; the client touches the service, and the proxy where the way has one.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import httpx2

from stepflow.model.bounds import BoundedTransport

if TYPE_CHECKING:
    import ssl

    from stepflow.domain.way import Way

#: Seconds that one request of a login may be silent.
LOGIN_TIMEOUT = 30.0
#: Seconds after which a connection that nobody uses is not used again.
KEPT = 5.0


def http_client(way: Way, *, timeout: float = LOGIN_TIMEOUT) -> httpx2.Client:
    """One client for one service. The SDK's own takes proxies from the environment even when told not to.

    `timeout` holds where a request brings none of its own, as the SDK's do.
    """
    transport = BoundedTransport(
        verify=_context(way),
        trust_env=False,
        # A connection is used again by the next turn of a quick step. What a long tool call left of it is not: many a
        # router forgets it. What a fault left of it the library closes itself.
        limits=httpx2.Limits(max_keepalive_connections=1, keepalive_expiry=KEPT),
        proxy=httpx2.Proxy(way.proxy) if way.proxy else None,
        # A model may think for minutes; without keep-alive probes a router on the way forgets the connection.
        socket_options=[(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)],
    )
    return httpx2.Client(transport=transport, trust_env=False, follow_redirects=False, timeout=timeout)


def _context(way: Way) -> ssl.SSLContext:
    context = httpx2.create_ssl_context(trust_env=False)
    if way.certificates:
        context.load_verify_locations(cadata=way.certificates)
    return context
