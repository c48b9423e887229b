"""The proxy and the additional certificates for a run's own calls, from the job's variables."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import unquote, urlsplit

from stepflow.domain.connection import Connection
from stepflow.domain.text import count
from stepflow.errors import InputError

#: The first one that is set is used; programs agree only on the older, lower-case form.
_PROXIES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
_NO_PROXY = ("no_proxy", "NO_PROXY")
#: Additional variables that apt-get gets.
_PLAIN_PROXIES = ("http_proxy", "HTTP_PROXY")
#: The variables in which different programs look for a file of certificates.
BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS")
_HTTPS_PORT = 443
_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_MOST_BYTES = 4 * 1024 * 1024
_INSTEAD = "Put the certificates themselves, as text, in the input `ca-certificates`."


@dataclass(frozen=True, kw_only=True)
class ProxyConfig:
    """The proxy and the additional certificates for the run's own calls."""

    #: URL of the proxy, and the variable that named it; both empty without a proxy.
    proxy: str = ""
    variable: str = ""
    no_proxy: str = ""
    #: PEM text, and the variables or inputs that it comes from.
    certificates: str = ""
    trusted: tuple[str, ...] = ()
    #: Warnings about variables that are ignored.
    notes: tuple[str, ...] = ()

    def connection_to(self, url: str) -> Connection:
        """Return how to connect to an address. Plain http is only used for this machine itself, so no proxy ever reads
        a secret."""
        parts = urlsplit(url)
        proxied = self.proxy and parts.scheme == "https" and not _is_exempt(parts.netloc, self.no_proxy)
        return Connection(proxy=self.proxy if proxied else "", variable=self.variable, certificates=self.certificates)

    def describe(self, urls: Iterable[str]) -> Iterator[str]:
        """Yield lines for the log that say how each of these addresses is reached."""
        hosts = {urlsplit(url).netloc: self.connection_to(url) for url in urls}
        if through := [host for host, connection in hosts.items() if connection.proxy]:
            shown = Connection(proxy=self.proxy).shown_proxy
            yield f"{', '.join(through)} through the proxy {shown} ({self.variable})"
        if self.proxy and (directly := [host for host, connection in hosts.items() if not connection.proxy]):
            yield f"{', '.join(directly)} without the proxy"
        if self.trusted:
            trusted = count(len(_BLOCK.findall(self.certificates)), "certificate")
            by = ", ".join(self.trusted)
            tools = "; tools see those variables that `pass-env` names" if {*self.trusted} & {*BUNDLES} else ""
            yield f"{trusted} trusted in addition to the public ones, by {by}{tools}"


def read_proxy_config(environment: Mapping[str, str], certificates: str, *, writable: Iterable[Path]) -> ProxyConfig:
    """Read the proxy variables and the certificates. Files below a `writable` folder are ignored: earlier steps can
    write there.

    Raises `InputError` for a proxy or certificates that cannot be used.
    """
    variable = next((name for name in _PROXIES if environment.get(name, "").strip()), "")
    folders = tuple(folder.resolve() for folder in writable)
    bundle_paths = {name: environment[name] for name in BUNDLES if environment.get(name, "").strip()}
    bundles = {name: _read_bundle(name, path, folders) for name, path in bundle_paths.items()}
    blocks = {
        "ca-certificates": _split_certificates(certificates),
        **{name: certificates for name, (certificates, _) in bundles.items()},
    }
    return ProxyConfig(
        proxy=_parse_proxy(variable, environment[variable]) if variable else "",
        variable=variable,
        no_proxy=next((environment[name] for name in _NO_PROXY if environment.get(name)), ""),
        certificates="\n".join(dict.fromkeys(block for certificates in blocks.values() for block in certificates)),
        trusted=tuple(name for name, certificates in blocks.items() if certificates),
        notes=tuple(dict.fromkeys(note for _, note in bundles.values() if note)),
    )


def proxy_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the proxy variables unchanged, for the machine's own package manager."""
    return {name: environment[name] for name in (*_PROXIES, *_PLAIN_PROXIES, *_NO_PROXY) if environment.get(name)}


def proxy_passwords(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return every password in a proxy's URL: as it is written, decoded, and decoded together with its user."""
    return tuple(
        dict.fromkeys(
            form for name in (*_PROXIES, *_PLAIN_PROXIES) for form in _password_forms(environment.get(name, ""))
        )
    )


def proxy_secrets_in(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the variables whose URL contains a password."""
    return tuple(name for name in (*_PROXIES, *_PLAIN_PROXIES) if any(_password_forms(environment.get(name, ""))))


def _password_forms(url: str) -> tuple[str, ...]:
    user, _, password = url.strip().rpartition("@")[0].rpartition("//")[2].partition(":")
    return (password, unquote(password), f"{unquote(user)}:{unquote(password)}") if password else ()


def _parse_proxy(variable: str, value: str) -> str:
    url = value.strip() if "://" in value else f"http://{value.strip()}"
    without_password = url.rpartition("@")[2].removeprefix(f"{url.partition('://')[0]}://")
    try:
        parts = urlsplit(url)
        bad = not parts.hostname or parts.port == 0
    except ValueError:
        bad = True
    if bad or parts.scheme != "http":
        raise InputError(
            f"{variable}: {without_password!r} cannot be used as a proxy.",
            hint="Write it as http://HOST:PORT, optionally with USER:PASSWORD@ before the host; what goes through it "
            "is encrypted anyway. Proxies of other kinds (https, socks5) are not supported.",
        )
    return url


def _is_exempt(netloc: str, no_proxy: str) -> bool:
    """Return whether NO_PROXY exempts the host: by name, by domain, with its port, or as an address in a network."""
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


def _split_certificates(text: str) -> tuple[str, ...]:
    blocks = _certificates_in(text)
    if text.strip() and not blocks:
        raise InputError(
            "The input ca-certificates contains no readable certificate.",
            hint="Give the text of a PEM file, from `-----BEGIN CERTIFICATE-----` on; a variable of the organization "
            "can hold it: `${{ vars.COMPANY_CA }}`.",
        )
    return blocks


def _read_bundle(name: str, value: str, writable: tuple[Path, ...]) -> tuple[tuple[str, ...], str]:
    """Return the certificates of a file, or a note that says why it is ignored."""
    try:
        path = Path(value).resolve(strict=True)
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode("ascii", errors="replace")
    except (OSError, RuntimeError):
        return (), f"{name} names {value}, which cannot be read here, so it is ignored. {_INSTEAD}"
    if any(path.is_relative_to(folder) for folder in writable):
        message = f"{name} names {value}, where earlier steps of the job can write, so it is ignored"
        return (), f"{message} for calls with a key or token. {_INSTEAD}"
    blocks = _certificates_in(text)
    if not blocks:
        return (), f"{name} names {value}, which contains no readable certificate, so it is ignored."
    return blocks, ""


def _certificates_in(text: str) -> tuple[str, ...]:
    """Return the certificates in a text; none if one of them is not readable."""
    blocks = tuple(_BLOCK.findall(text))
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata="\n".join(blocks))
    except (ssl.SSLError, ValueError):
        return ()
    return blocks
