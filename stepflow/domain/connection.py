"""How a service outside is reached, whether a secret may go there, what to change when a connection fails, and which
hosts the sandbox asked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Literal
from urllib.parse import SplitResult, urlsplit

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
_NAME_HINT = "The certificate is another host's: check the address, and what stands between the runner and it."
_EXPIRED_HINT = "Renew the certificate, or set the clock of the runner."


@dataclass(frozen=True, kw_only=True)
class Connection:
    """The way to one service. `proxy` is a URL, perhaps with a user and a password in it, and empty for the direct way;
    `variable` is what named it. `certificates` (PEM) are those of authorities trusted besides the public ones."""

    proxy: str = field(default="", repr=False)
    variable: str = "HTTPS_PROXY"
    certificates: str = field(default="", repr=False)

    @property
    def shown_proxy(self) -> str:
        """The proxy for people: no user, no password; empty without one."""
        parts = urlsplit(self.proxy)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if self.proxy else ""

    @property
    def through(self) -> str:
        """The words that follow "reached": ` through the proxy …`, empty for the direct way."""
        return f" through the proxy {self.shown_proxy}" if self.proxy else ""

    def advice(self, said: str) -> str:
        """What to change where a connection failed and a library said this; empty when the way is not to blame."""
        if _CERTIFICATE.search(said):
            return _EXPIRED_HINT if _EXPIRED.search(said) else _NAME_HINT if _OTHER_NAME.search(said) else _TRUST_HINT
        if not self.proxy:
            return ""
        proxy = f"the proxy {self.shown_proxy} ({self.variable})"
        if _LOGIN.search(said):
            return (
                f"{proxy[0].upper()}{proxy[1:]} wants a user and a password, or other ones: put them into the URL, "
                "http://USER:PASSWORD@HOST:PORT, from a secret."
            )
        if _REFUSED.search(said):
            return f"Let {proxy} allow this host, or name the host in NO_PROXY if it is reached without it."
        return f"Check that {proxy} works, or name the host in NO_PROXY if it is reached without it."


@dataclass(frozen=True, kw_only=True)
class HostRequests:
    """How often the sandbox asked for a host, with its port where that is not one of the web. A name in parentheses
    stands for what has none, or for all names beyond the first 200."""

    host: str
    allowed: int
    refused: int


@dataclass(frozen=True, kw_only=True)
class HostsRequested:
    """With `network: allow`, which hosts the sandbox asked for since the event before, and how often."""

    hosts: list[HostRequests]
    event: Literal["hosts_requested"] = "hosts_requested"


#: The way to an address.
ConnectionTo = Callable[[str], Connection]
#: Straight to the service, with the public authorities.
DIRECT = Connection()


def direct(_url: str) -> Connection:
    """To any address straight."""
    return DIRECT


def certificate_problem(said: str) -> str:
    """What is wrong with a certificate, in a few words; empty when it is not about one."""
    match = _CERTIFICATE.search(said)
    return (match[1] or "").strip() or "not trusted" if match else ""


def stays_closed(said: str) -> bool:
    """Whether waiting cannot help: a certificate that does not count, a proxy that wants a login."""
    return bool(_CERTIFICATE.search(said) or _LOGIN.search(said))


def is_refused(said: str) -> bool:
    """Whether nobody listens there."""
    return "Connection refused" in said


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
