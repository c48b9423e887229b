"""GitHub behind a proxy and a private authority: the API and git, over real TLS and through a real CONNECT proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import trustme

from stepflow.boundary.git import Git, Remote
from stepflow.boundary.github_api import GitHubReader
from stepflow.domain.connection import Connection
from stepflow.errors import BoundaryError
from tests.servers.git_http import GitServer
from tests.servers.github_api import GitHubServer, State
from tests.servers.private_network import Proxy, TlsFront, address_of, closed_port, pem_of

HOST = "ghes.corp.example"
TOKEN = "ghs_tokenofatest0123456789"
PASSWORD = "open-sesame-42"

pytestmark = pytest.mark.whole


@dataclass
class Corporate:
    """A GitHub of one host, as an Enterprise Server is: the API below /api/v3, git beside it."""

    folder: Path
    api: GitHubServer
    git: GitServer
    proxy: Proxy
    front: TlsFront
    authority: trustme.CA

    @property
    def connection(self) -> Connection:
        return Connection(proxy=self.proxy.url, certificates=pem_of(self.authority))

    def read(self, connection: Connection, host: str = HOST) -> str:
        reader = GitHubReader(api_url=f"https://{host}/api/v3", repository="o/r", token=TOKEN, connection=connection)
        try:
            issue = reader.issue(7)
            return issue.title if issue else ""
        finally:
            reader.close()

    def list(self, connection: Connection, host: str = HOST) -> str:
        remote = Remote(url=f"https://{host}/o/r.git", token=TOKEN)
        repository = self.folder / f"git-{len(list(self.folder.glob('git-*')))}"
        return Git(repository, remote, connection=connection).run_remote("ls-remote", remote.url).decode()


@pytest.fixture
def corporate(tmp_path: Path) -> Iterator[Corporate]:
    authority, state = trustme.CA(), State("o/r")
    state.add_issue(7, "Greet the world", "")
    with GitHubServer(state, TOKEN) as api, GitServer(tmp_path / "served", TOKEN) as git:
        git.create("o/r")
        front = TlsFront(
            authority,
            HOST,
            "127.0.0.1",
            to=lambda path: address_of(api.plain_url if path.startswith("/api/") else git.url),
        )
        with front, Proxy({HOST: ("127.0.0.1", front.port)}) as proxy:
            yield Corporate(tmp_path, api, git, proxy, front, authority)


Call = Callable[[Corporate, Connection], str]
BOTH = pytest.mark.parametrize("call", [Corporate.read, Corporate.list], ids=["the API", "git"])


@BOTH
def test_a_call_goes_through_the_proxy_which_sees_no_token(corporate: Corporate, call: Call) -> None:
    call(corporate, corporate.connection)
    assert corporate.proxy.targets() == {f"{HOST}:443"}
    heads = "".join(requests.head.lower() for requests in corporate.proxy.requests)
    assert TOKEN not in heads
    assert "\r\nauthorization:" not in heads


@BOTH
def test_the_login_in_a_proxys_url_is_given_to_the_proxy(corporate: Corporate, call: Call) -> None:
    corporate.proxy.login = f"ann:{PASSWORD}"
    call(corporate, replace(corporate.connection, proxy=corporate.proxy.url_with_login))


@BOTH
def test_without_a_proxy_the_server_itself_is_called(corporate: Corporate, call: Callable[..., str]) -> None:
    call(corporate, Connection(certificates=pem_of(corporate.authority)), host=f"127.0.0.1:{corporate.front.port}")
    assert corporate.proxy.requests == []


@BOTH
def test_variables_of_the_process_open_no_way(
    corporate: Corporate, call: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{closed_port()}")
    bundle = tmp_path / "authority.pem"
    bundle.write_text(pem_of(corporate.authority))
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO"):
        monkeypatch.setenv(name, str(bundle))
    there = f"127.0.0.1:{corporate.front.port}"
    call(corporate, Connection(certificates=pem_of(corporate.authority)), host=there)
    with pytest.raises(BoundaryError, match="certificate"):
        call(corporate, Connection(), host=there)


@BOTH
def test_an_authority_that_is_not_trusted_ends_at_once_and_names_the_input(corporate: Corporate, call: Call) -> None:
    for strangers in ("", pem_of(trustme.CA())):
        with pytest.raises(BoundaryError, match="certificate") as caught:
            call(corporate, replace(corporate.connection, certificates=strangers))
        assert "`ca-certificates`" in caught.value.hint
        assert not caught.value.passes
    assert corporate.api.requests == []
    assert corporate.git.requests == []


@BOTH
def test_a_certificate_of_another_host_is_named_in_the_hint(corporate: Corporate, call: Callable[..., str]) -> None:
    corporate.proxy.hosts["other.example"] = ("127.0.0.1", corporate.front.port)
    with pytest.raises(BoundaryError) as caught:
        call(corporate, corporate.connection, host="other.example")
    assert "another host's" in caught.value.hint


@BOTH
def test_a_proxy_that_wants_a_login_is_named_without_the_wrong_one(corporate: Corporate, call: Call) -> None:
    corporate.proxy.login = "ann:another-password"
    connection = replace(corporate.connection, proxy=f"http://ann:{PASSWORD}@127.0.0.1:{corporate.proxy.port}")
    with pytest.raises(BoundaryError) as caught:
        call(corporate, connection)
    assert f"The proxy {corporate.proxy.url} (HTTPS_PROXY) wants a user and a password" in caught.value.hint
    assert PASSWORD not in str(caught.value)
    assert not caught.value.passes


@BOTH
def test_a_proxy_that_forbids_the_host_is_named(corporate: Corporate, call: Call) -> None:
    corporate.proxy.refuses = "403 Forbidden"
    with pytest.raises(BoundaryError) as caught:
        call(corporate, corporate.connection)
    assert f"Let the proxy {corporate.proxy.url} (HTTPS_PROXY) allow this host" in caught.value.hint


@BOTH
def test_a_proxy_that_is_down_is_named_without_its_password(corporate: Corporate, call: Call) -> None:
    port = closed_port()
    with pytest.raises(BoundaryError) as caught:
        call(corporate, replace(corporate.connection, proxy=f"http://ann:{PASSWORD}@127.0.0.1:{port}"))
    assert f"Check that the proxy http://127.0.0.1:{port} (HTTPS_PROXY) works" in caught.value.hint
    assert PASSWORD not in str(caught.value)
