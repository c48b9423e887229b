"""How a run reaches the services outside: the proxy and the certificates that variables and inputs name (action.md)."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from stepflow.domain.connection import Connection
from stepflow.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: The first that is set counts; the lower-case form is the older one, which programs agree on.
_PROXIES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
_NO_PROXY = ("no_proxy", "NO_PROXY")
#: What apt-get is given, beside those above.
_PLAIN_PROXIES = ("http_proxy", "HTTP_PROXY")
#: Files of certificates, as programs of different makers look for them.
BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS")
_HTTPS_PORT = 443
_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_MOST_BYTES = 4 * 1024 * 1024
_INSTEAD = "Give the certificates themselves, as text, in the input `ca-certificates`."


@dataclass(frozen=True, kw_only=True)
class ProxyConfig:
    """`variable` named the `proxy`, a URL; both empty for none. `certificates` is PEM, `trusted` says where it is from;
    `notes` are warnings about variables that do not count."""

    proxy: str = ""
    variable: str = ""
    no_proxy: str = ""
    certificates: str = ""
    trusted: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def connection_to(self, url: str) -> Connection:
        """The way to an address. Plain http only leads to this machine itself, so no proxy ever reads a secret."""
        parts = urlsplit(url)
        proxied = self.proxy and parts.scheme == "https" and not _is_exempt(parts.netloc, self.no_proxy)
        return Connection(proxy=self.proxy if proxied else "", variable=self.variable, certificates=self.certificates)

    def describe(self, urls: Iterable[str]) -> Iterator[str]:
        """What the log shows of it (security.md case 33): which of these addresses are reached how."""
        hosts = {urlsplit(url).netloc: self.connection_to(url) for url in urls}
        if through := [host for host, connection in hosts.items() if connection.proxy]:
            shown = Connection(proxy=self.proxy).shown_proxy
            yield f"{', '.join(through)} through the proxy {shown} ({self.variable})"
        if self.proxy and (directly := [host for host, connection in hosts.items() if not connection.proxy]):
            yield f"{', '.join(directly)} without the proxy"
        if self.trusted:
            count = len(_BLOCK.findall(self.certificates))
            by = ", ".join(self.trusted)
            yield f"{count} certificate{'' if count == 1 else 's'} trusted besides the public ones, by {by}"


def read_proxy_config(environment: Mapping[str, str], certificates: str, *, writable: Iterable[Path]) -> ProxyConfig:
    """What variables and input say. Files below a `writable` folder do not count: earlier steps write there.

    Raises `InputError` for a proxy or certificates that cannot be used.
    """
    variable = next((name for name in _PROXIES if environment.get(name, "").strip()), "")
    folders = tuple(folder.resolve() for folder in writable)
    named = {name: environment[name] for name in BUNDLES if environment.get(name, "").strip()}
    read = {name: _bundle(name, path, folders) for name, path in named.items()}
    blocks = {
        "ca-certificates": _given(certificates),
        **{name: certificates for name, (certificates, _) in read.items()},
    }
    return ProxyConfig(
        proxy=_proxy(variable, environment[variable]) if variable else "",
        variable=variable,
        no_proxy=next((environment[name] for name in _NO_PROXY if environment.get(name)), ""),
        certificates="\n".join(dict.fromkeys(block for certificates in blocks.values() for block in certificates)),
        trusted=tuple(name for name, certificates in blocks.items() if certificates),
        notes=tuple(dict.fromkeys(note for _, note in read.values() if note)),
    )


def proxy_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of proxies as they stand, for the machine's own package manager."""
    return {name: environment[name] for name in (*_PROXIES, *_PLAIN_PROXIES, *_NO_PROXY) if environment.get(name)}


def proxy_passwords(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Every password in a proxy's URL, as it is written, as it is meant, and with its user."""
    return tuple(
        dict.fromkeys(form for name in (*_PROXIES, *_PLAIN_PROXIES) for form in _forms(environment.get(name, "")))
    )


def proxy_secrets_in(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the variables whose URL holds a password."""
    return tuple(name for name in (*_PROXIES, *_PLAIN_PROXIES) if any(_forms(environment.get(name, ""))))


def _forms(url: str) -> tuple[str, ...]:
    user, _, password = url.strip().rpartition("@")[0].rpartition("//")[2].partition(":")
    return (password, unquote(password), f"{unquote(user)}:{unquote(password)}") if password else ()


def _proxy(variable: str, value: str) -> str:
    url = value.strip() if "://" in value else f"http://{value.strip()}"
    shown = url.rpartition("@")[2].removeprefix(f"{url.partition('://')[0]}://")
    try:
        parts = urlsplit(url)
        bad = not parts.hostname or parts.port == 0
    except ValueError:
        bad = True
    if bad or parts.scheme != "http":
        raise InputError(
            f"{variable}: {shown!r} cannot be used as a proxy.",
            hint="Write it as http://HOST:PORT, perhaps with USER:PASSWORD@ before the host; what goes through it is "
            "encrypted all the same. Proxies of other kinds (https, socks5) are not supported.",
        )
    return url


def _is_exempt(netloc: str, no_proxy: str) -> bool:
    """Whether NO_PROXY names the host: by name, as part of a domain, with its port, or as an address in a network."""
    parts = urlsplit(f"//{netloc}")
    host, port = parts.hostname or "", parts.port or _HTTPS_PORT
    return any(_covers(name, host, port) for name in re.split(r"[,\s]+", no_proxy.lower()) if name)


def _covers(name: str, host: str, port: int) -> bool:
    if name == "*":
        return True
    try:
        return ip_address(host) in ip_network(name.replace("[", "").replace("]", ""), strict=False)
    except ValueError:
        pass
    domain, _, wanted = name.partition(":")
    domain = domain.removeprefix("*").removeprefix(".")
    return wanted in ("", str(port)) and bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _given(text: str) -> tuple[str, ...]:
    blocks = tuple(_BLOCK.findall(text))
    if text.strip() and not (blocks and _is_readable(blocks)):
        raise InputError(
            "The input ca-certificates holds no certificate that can be read.",
            hint="Give the text of a PEM file, from `-----BEGIN CERTIFICATE-----` on; a variable of the organization "
            "can hold it: `${{ vars.COMPANY_CA }}`.",
        )
    return blocks


def _bundle(name: str, value: str, writable: tuple[Path, ...]) -> tuple[tuple[str, ...], str]:
    """The certificates of a file, or a note why it does not count."""
    try:
        path = Path(value).resolve(strict=True)
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode("ascii", errors="replace")
    except (OSError, RuntimeError):
        return (), f"{name} names {value}, which cannot be read here, so it does not count. {_INSTEAD}"
    if any(path.is_relative_to(folder) for folder in writable):
        message = f"{name} names {value}, where earlier steps of the job can write, so it does not count"
        return (), f"{message} for calls with a key or token. {_INSTEAD}"
    blocks = tuple(_BLOCK.findall(text))
    if not (blocks and _is_readable(blocks)):
        return (), f"{name} names {value}, which holds no certificate that can be read, so it does not count."
    return blocks, ""


def _is_readable(blocks: tuple[str, ...]) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata="\n".join(blocks))
    except (ssl.SSLError, ValueError):
        return False
    return True
