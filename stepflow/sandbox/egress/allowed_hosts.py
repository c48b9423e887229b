"""Which hosts the sandbox may reach, as the input `network` lists them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from urllib.parse import urlsplit

import yaml

DEFAULT_PORTS = (443, 80)
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_LONGEST_NAME = 253
_ANY = "*."
#: IPv4 addresses written as IPv6 ones for a gateway (RFC 6052), and all that the internet's own are taken from (IANA).
_NAT64, _GLOBAL_UNICAST = IPv6Network("64:ff9b::/96"), IPv6Network("2000::/3")
#: Addresses of the internet's ranges at which a machine meets the platform that it runs on.
_PLATFORMS = (
    # Azure's agent, name server and DHCP: learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16.
    IPv4Network("168.63.129.16/32"),
    # IBM Cloud's service endpoints: cloud.ibm.com/docs/vpc?topic=vpc-service-endpoints-for-vpc.
    *(IPv4Network("161.26.0.0/16"), IPv4Network("166.8.0.0/14")),
    # Protocol assignments (RFC 6890), with Oracle's 192.0.0.192; older versions of Python count them as public.
    IPv4Network("192.0.0.0/24"),
)


@dataclass(frozen=True, kw_only=True)
class AllowedHost:
    """One host, or with `*.` all below a suffix. Without a `port` it may be reached on the ports of the web. Only one
    that the workflow's author wrote out, `is_exact`, may lead to a private address."""

    name: str
    port: int | None = None
    is_exact: bool = False

    def __str__(self) -> str:
        return describe_host(self.name, self.port or DEFAULT_PORTS[0])

    def covers(self, host: str, port: int) -> bool:
        """Return whether it is this host that is asked for."""
        is_suffix = self.name.startswith(_ANY)
        is_named = host.endswith(self.name[1:]) and not is_address(host) if is_suffix else host == self.name
        return is_named and (port == self.port if self.port else port in DEFAULT_PORTS)

    def includes(self, other: AllowedHost) -> bool:
        """Return whether each host that the other one allows is allowed by this one as well. Addresses behind the
        names do not count."""
        is_port = self.port == other.port or (self.port is None and other.port in DEFAULT_PORTS)
        if not self.name.startswith(_ANY) or is_address(other.name):
            return is_port and other.name == self.name
        return is_port and other.name.endswith(self.name[1:])


def parse_allowed_hosts(entries: Iterable[str]) -> tuple[AllowedHost, ...]:
    """Return what the entries mean, exact names first. Raises `ValueError` for one that means nothing."""
    hosts = dict.fromkeys(host for entry in entries for host in _parse(entry.lower()))
    return tuple(sorted(hosts, key=lambda host: not host.is_exact))


def _parse(entry: str) -> tuple[AllowedHost, ...]:
    if entry in _ecosystems():
        return tuple(AllowedHost(name=name) for name in _ecosystems()[entry])
    host, port = _split(entry)
    name = normalize_host(host.removeprefix(_ANY))
    if not name:
        raise ValueError(
            f"{entry!r} is not a host: write a name, `*.suffix`, or an address, optionally with `:port`, "
            "without scheme or path"
        )
    is_suffix = host.startswith(_ANY)
    if not (port or "." in name or ":" in name):
        known = ", ".join(sorted(_ecosystems()))
        raise ValueError(f"{entry!r} is neither an ecosystem ({known}) nor a host with a dot or a port")
    return (AllowedHost(name=f"{_ANY}{name}" if is_suffix else name, port=port, is_exact=not is_suffix),)


def _split(entry: str) -> tuple[str, int | None]:
    try:
        return str(ip_address(entry)), None
    except ValueError:
        pass
    host, colon, port = entry.rpartition(":")
    if not colon or entry.endswith("]"):
        return entry, None
    return (host, int(port)) if port.isdecimal() and 0 < int(port) < 1 << 16 else ("", None)


@cache
def _ecosystems() -> Mapping[str, tuple[str, ...]]:
    text = (Path(__file__).parent / "ecosystems.yaml").read_text(encoding="utf-8")
    return {name: tuple(hosts) for name, hosts in yaml.safe_load(text).items()}


def normalize_host(host: str) -> str:
    """Return a name in lower case without the last dot, or an address in its usual form; empty for what is neither."""
    host = host.lower().removesuffix(".")
    try:
        return str(ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        return host if len(host) <= _LONGEST_NAME and _NAME.fullmatch(host) else ""


def split_host_port(text: str, default: int | None) -> tuple[str, int]:
    """Return the normalized host and the port. Raises `ValueError` for any other text."""
    parts = urlsplit(f"//{text}")
    host, port = normalize_host(parts.hostname or ""), parts.port or default
    if not host or not port or "@" in text or any(sign in text for sign in "/?#\\"):
        raise ValueError(f"{text!r} is not a host with a port")
    return host, port


def describe_host(host: str, port: int, *, usual: tuple[int, ...] = DEFAULT_PORTS) -> str:
    """Host and port as they are written, the port only where it is not a usual one."""
    shown = f"[{host}]" if ":" in host else host
    return shown if port in usual else f"{shown}:{port}"


def is_address(host: str) -> bool:
    """Return whether a host is an address and no name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_public(address: str) -> bool:
    """Return whether an address is one of the internet: not this machine, its network, or the platform of a cloud."""
    ip: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        inner = IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else ip.ipv4_mapped or ip.sixtofour
        if not inner:
            return ip.is_global and ip in _GLOBAL_UNICAST
        ip = inner
    return ip.is_global and not ip.is_multicast and not any(ip in platform for platform in _PLATFORMS)
