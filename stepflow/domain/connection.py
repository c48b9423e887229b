"""Connections to outside services: how to reach one, whether a secret may be sent there, what to change when a
connection fails, and which hosts the sandbox requested."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

_CERTIFICATE = re.compile(
    r"certificate verify failed(?:: ([^(\"'\n]+[^(\"'\s.]))?|certificate verification failed|SSL certificate problem"
    r"|certificate subject name|no alternative certificate subject",
    re.IGNORECASE,
)
_OTHER_NAME = re.compile(r"mismatch|not valid for|does not match|subject name", re.IGNORECASE)
_EXPIRED = re.compile(r"expired|not yet valid", re.IGNORECASE)
_LOGIN = re.compile(r"\b407\b")
_REFUSED = re.compile(
    r"(?:tunnel connection failed:|CONNECT tunnel failed, response|HTTP code) 4\d\d|^4\d\d ", re.IGNORECASE
)

_TRUST_HINT = (
    "Its authority is not trusted here. If a server or proxy of your company signs, give that authority's certificate, "
    "as text (PEM), in the input `ca-certificates`."
)
_NAME_HINT = "The certificate is another host's: check the address, and what is between the runner and it."
_EXPIRED_HINT = "Renew the certificate, or set the clock of the runner."


@dataclass(frozen=True, kw_only=True)
class Connection:
    """How to reach one service."""

    #: A URL, which may contain a user and a password; empty for a direct connection.
    proxy: str = field(default="", repr=False)
    #: The variable that the proxy comes from.
    variable: str = "HTTPS_PROXY"
    #: Certificate authorities (PEM) to trust in addition to the public ones.
    certificates: str = field(default="", repr=False)

    @property
    def shown_proxy(self) -> str:
        """Return the proxy for display, without user and password; empty without a proxy."""
        parts = urlsplit(self.proxy)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if self.proxy else ""

    @property
    def through(self) -> str:
        """Return the words to put after "reached": ` through the proxy …`, empty for a direct connection."""
        return f" through the proxy {self.shown_proxy}" if self.proxy else ""

    def advice(self, said: str) -> str:
        """Return what to change after a failed connection, given a library's error message; empty if the connection is
        not the cause."""
        if _CERTIFICATE.search(said):
            return _EXPIRED_HINT if _EXPIRED.search(said) else _NAME_HINT if _OTHER_NAME.search(said) else _TRUST_HINT
        if not self.proxy:
            return ""
        proxy = f"the proxy {self.shown_proxy} ({self.variable})"
        if _LOGIN.search(said):
            return (
                f"{proxy[0].upper()}{proxy[1:]} needs a user and a password, or other ones: put them into the URL, "
                "http://USER:PASSWORD@HOST:PORT, from a secret."
            )
        if _REFUSED.search(said):
            return f"Let {proxy} allow this host, or name the host in NO_PROXY if it is reached without it."
        return f"Check that {proxy} works, or name the host in NO_PROXY if it is reached without it."


@dataclass(frozen=True, kw_only=True)
class HostRequests:
    """How often the sandbox requested a host. The port is included unless it is 80 or 443. A name in parentheses
    represents requests without a host name, or all names beyond the first 200."""

    host: str
    allowed: int
    refused: int


@dataclass(frozen=True, kw_only=True)
class HostsRequested:
    """Hosts that the sandbox requested where hosts are listed, since the previous event of this kind, and how often."""

    hosts: list[HostRequests]
    event: Literal["hosts_requested"] = "hosts_requested"


#: Returns the connection to use for an address.
ConnectionTo = Callable[[str], Connection]
#: A direct connection that trusts the public certificate authorities.
DIRECT = Connection()


def direct(_url: str) -> Connection:
    """Return a direct connection, whatever the address."""
    return DIRECT


def certificate_problem(said: str) -> str:
    """Describe briefly what is wrong with a certificate; empty if the error is about something else."""
    match = _CERTIFICATE.search(said)
    return (match[1] or "").strip() or "not trusted" if match else ""


def stays_closed(said: str) -> bool:
    """Return whether a retry cannot help: an invalid certificate, or a proxy that requires a login."""
    return bool(_CERTIFICATE.search(said) or _LOGIN.search(said))


def is_refused(said: str) -> bool:
    """Return whether the connection was refused."""
    return "Connection refused" in said


def address_problem(url: str, *, secret: str) -> str:
    """Return why `secret` may not be sent to the address; empty for https, and for http on the machine itself."""
    try:
        parts = urlsplit(url.strip())
        host = parts.hostname or ""
        parts.port  # noqa: B018 - reading it is what checks it
    except ValueError as exc:
        return str(exc)
    if not host:
        return "it names no host"
    if parts.username or parts.password:
        return "it carries a user name or a password"
    if parts.query or parts.fragment:
        return "it carries a query or a fragment"
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)):
        return ""
    return f"{secret} would travel unencrypted"


def printable_address(url: str) -> str:
    """Return an address without what may be a secret in it: login, query and fragment."""
    return re.split(r"[?#]", url.rpartition("@")[2], maxsplit=1)[0]


def is_loopback(host: str) -> bool:
    """Return whether a host name or address refers to the machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
