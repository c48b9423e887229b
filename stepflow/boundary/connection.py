"""Sends PyGithub's and git's calls through the configured proxy and certificates, not those of the environment."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests.adapters
from requests.utils import DEFAULT_CA_BUNDLE_PATH

if TYPE_CHECKING:
    from stepflow.domain.connection import Connection


def configure_session(session: requests.Session, connection: Connection) -> None:
    """Let a session go this way, and only this one: no proxy, certificate or login of the process's environment."""
    session.trust_env = False
    session.proxies = {"https": connection.proxy} if connection.proxy else {}
    session.mount("https://", _Adapter(connection))


def git_connection_settings(connection: Connection, file: Path) -> dict[str, str]:
    """The settings of one git process; certificates are written to the file. Empty means that no proxy is asked."""
    settings = {"http.proxy": connection.proxy}
    if connection.certificates:
        public = Path(DEFAULT_CA_BUNDLE_PATH).read_text(encoding="utf-8")
        system = _system_file()
        own = system.read_text(encoding="utf-8", errors="replace") if system else ""
        file.write_text(f"{public}\n{own}\n{connection.certificates}\n", encoding="utf-8")
        settings |= {"http.sslCAInfo": str(file)}
    return settings


class _Adapter(requests.adapters.HTTPAdapter):
    """Trusts the machine's authorities and those of the way; requests adds the public ones that it brings itself."""

    def __init__(self, connection: Connection) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if system := _system_file():
            self._context.load_verify_locations(cafile=str(system))
        if connection.certificates:
            self._context.load_verify_locations(cadata=connection.certificates)
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - requests' own method
        super().init_poolmanager(*args, ssl_context=self._context, **kwargs)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:  # noqa: ANN401 - requests' own method
        return super().proxy_manager_for(proxy, ssl_context=self._context, **kwargs)


def _system_file() -> Path | None:
    """The machine's own authorities, which an image may have added to, where the libraries were built to look."""
    paths = ssl.get_default_verify_paths()
    places = (Path(paths.openssl_cafile), Path(paths.openssl_capath) / "ca-certificates.crt")
    return next((path for path in places if path.is_file()), None)
