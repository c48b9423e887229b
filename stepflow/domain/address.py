"""Whether a secret may be sent to an address (security.md case 33).

Takes: a URL of the inputs. Gives: what is wrong with it.
May touch: nothing.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit


def address_problem(url: str, *, secret: str) -> str:
    """Why `secret` may not be sent there; empty for https, and for http on the machine itself."""
    try:
        parts = urlsplit(url.strip())
        host = parts.hostname or ""
        parts.port  # noqa: B018 - reading it is what checks it
    except ValueError as exc:
        return str(exc)
    return _problem(parts, host, secret)


def is_loopback(host: str) -> bool:
    """Whether a host's name or address means the machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _problem(parts: SplitResult, host: str, secret: str) -> str:
    if not host:
        return "it names no host"
    if parts.username or parts.password:
        return "it carries a user name or a password"
    if parts.query or parts.fragment:
        return "it carries a query or a fragment"
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)):
        return ""
    return f"{secret} would travel unencrypted"
