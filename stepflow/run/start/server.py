"""The GitHub server of a run: the addresses of its API and of its pages, from flags or from the job's variables."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from stepflow.domain.connection import address_problem, is_loopback, printable_address
from stepflow.errors import InputError
from stepflow.run.start.inputs import Inputs

API, SERVER = "github-api-url", "github-server-url"
#: The variable of each address, which every runner sets. The address of GraphQL follows from that of the API.
VARIABLES = {API: "GITHUB_API_URL", SERVER: "GITHUB_SERVER_URL"}
_API_OF_SERVER, _VERSION = "api.", "/api/v3"
#: GitHub's own hosts, whose API has a host of its own: github.com, and those with data residency.
_OWN, _RESIDENCY = "github.com", ".ghe.com"


def read_addresses(environ: Mapping[str, str], flags: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses in the flags, otherwise those of the job. If one of the two is missing, it follows from the
    other, so that a flag and a variable never name two servers."""
    of_job = {name: environ[variable] for name, variable in VARIABLES.items() if environ.get(variable)}
    given = {name: flags[name] for name in VARIABLES if flags.get(name)} or of_job
    both = {**of_job, **given}
    if API in both and SERVER in both and is_one_server(both[API], both[SERVER]):
        return both
    if len(given) == 1:
        derived = {SERVER: _server_of(given.get(API, "")), API: _api_of(given.get(SERVER, ""))}
        return {name: address for name, address in {**derived, **given}.items() if address}
    return given


def _server_of(api: str) -> str:
    """Return the server of an API; empty for a tunnel on this machine, which may lead to any."""
    host = host_of(api)
    if not host or is_loopback(host):
        return ""
    parts = urlsplit(api)
    return f"{parts.scheme}://{parts.netloc.removeprefix(_API_OF_SERVER) if _has_own_api(host) else parts.netloc}"


def _api_of(server: str) -> str:
    host = host_of(server)
    if not host:
        return ""
    parts = urlsplit(server)
    return f"{parts.scheme}://" + (
        f"{_API_OF_SERVER}{parts.netloc}" if _has_own_api(host) else f"{parts.netloc}{_VERSION}"
    )


def _has_own_api(host: str) -> bool:
    return host.removeprefix(_API_OF_SERVER) == _OWN or host.endswith(_RESIDENCY)


def signing_host(inputs: Inputs) -> str:
    """Return the host under which GitHub signs attestations of the server's jobs; empty for an Enterprise Server, which
    signs none."""
    host = host_of(inputs.github_server_url)
    return _OWN if is_loopback(host) else host if _has_own_api(host) else ""


def check_addresses(inputs: Inputs) -> None:
    """Raise `InputError` if a token would be sent unencrypted, or to the wrong server."""
    api, server = inputs.github_api_url, inputs.github_server_url
    for name, url in ((API, api), (SERVER, server)):
        if problem := address_problem(url, secret="the token"):  # noqa: S106 - what it is called
            shown = printable_address(url)
            raise InputError(f"{name} ({shown!r}) cannot be used: {problem}.", hint="Give an address with https://.")
    if not is_one_server(api, server):
        raise InputError(
            f"GitHub's API is at {host_of(api)} and its server at {host_of(server)}: these are two servers.",
            hint="Give both addresses, such as https://HOST/api/v3 and https://HOST, so that no token reaches the "
            "wrong server.",
        )


def is_one_server(api: str, server: str) -> bool:
    """Return whether both addresses are of one server. The API has the server's own name or `api.` before it, like
    `api.github.com`; a tunnel ends on this machine."""
    api, server = host_of(api), host_of(server)
    return api in (server, f"{_API_OF_SERVER}{server}") or is_loopback(api) or is_loopback(server)


def host_of(url: str) -> str:
    """Return the host of an address, without its port; empty if there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
