"""Model and GitHub behind a proxy and a private authority: over real TLS, through a real CONNECT proxy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import trustme

from stepflow.boundary.git import Git, Remote
from stepflow.boundary.github_api import GitHubReader
from stepflow.boundary.github_failures import GitHubFailed
from stepflow.domain.connection import Connection
from stepflow.domain.conversation import ModelFault
from stepflow.model.anthropic_model import AnthropicModel
from tests.model.asking import KEY, ask
from tests.servers.git_http import GitServer
from tests.servers.github_api import GitHubServer, State
from tests.servers.messages_api import MessagesApi, says
from tests.servers.private_network import Proxy, TlsFront, address_of, closed_port, pem_of

HOST = "ghes.corp.example"
TOKEN = "ghs_tokenofatest0123456789"
PASSWORD = "open-sesame-42"

pytestmark = pytest.mark.whole


@dataclass
class Corporate:
    """All services of a company on one host, as an Enterprise Server is: the API below /api/v3, git beside it."""

    folder: Path
    api: GitHubServer
    git: GitServer
    model: MessagesApi
    proxy: Proxy
    front: TlsFront
    authority: trustme.CA

    @property
    def connection(self) -> Connection:
        return Connection(proxy=self.proxy.url, certificates=pem_of(self.authority))

    def read(self, connection: Connection, host: str = HOST) -> None:
        api_url = f"https://{host}/api/v3"
        with closing(GitHubReader(api_url=api_url, repository="o/r", token=TOKEN, connection=connection)) as reader:
            assert reader.issue(7)

    def list(self, connection: Connection, host: str = HOST) -> None:
        remote = Remote(url=f"https://{host}/o/r.git", token=TOKEN, connection=connection)
        repository = self.folder / f"git-{len(list(self.folder.glob('git-*')))}"
        Git(repository, remote).run_remote("ls-remote", remote.url)

    def ask(self, connection: Connection, host: str = HOST, **options: float) -> None:
        with AnthropicModel(KEY, f"https://{host}", connection_to=lambda _: connection, **options) as model:
            answer = model.ask(ask())
        if isinstance(answer, ModelFault):
            failed = GitHubFailed(answer.reason, hint=answer.hint)
            failed.passes = answer.transient
            raise failed

    def requests(self) -> int:
        return len(self.api.requests) + len(self.git.requests) + len(self.model.requests)


@pytest.fixture
def corporate(tmp_path: Path) -> Iterator[Corporate]:
    authority, state = trustme.CA(), State("o/r")
    state.add_issue(7, "Greet the world", "")

    def backend(path: str) -> tuple[str, int]:
        if path.startswith("/v1/"):
            return address_of(model.url)
        return address_of(api.plain_url if path.startswith("/api/") else git.url)

    with (
        GitHubServer(state, TOKEN) as api,
        GitServer(tmp_path / "served", TOKEN) as git,
        MessagesApi(lambda _body: says("hello"), api_key=KEY) as model,
        TlsFront(authority, HOST, "127.0.0.1", to=backend) as front,
        Proxy({HOST: ("127.0.0.1", front.port)}) as proxy,
    ):
        git.create("o/r")
        yield Corporate(tmp_path, api, git, model, proxy, front, authority)


Call = Callable[..., None]
EACH = pytest.mark.parametrize("call", [Corporate.read, Corporate.list, Corporate.ask], ids=["API", "git", "model"])


@EACH
def test_a_call_goes_through_the_proxy_which_sees_no_secret(corporate: Corporate, call: Call) -> None:
    call(corporate, corporate.connection)
    assert corporate.proxy.targets() == {f"{HOST}:443"}
    heads = "".join(requests.head.lower() for requests in corporate.proxy.requests)
    assert not any(secret in heads for secret in (TOKEN, KEY, "\r\nauthorization:"))


@EACH
def test_the_login_in_a_proxys_url_is_shown_to_the_proxy_only(corporate: Corporate, call: Call) -> None:
    corporate.proxy.login = f"ann:{PASSWORD}"
    call(corporate, replace(corporate.connection, proxy=corporate.proxy.url_with_login))
    assert not any("proxy-authorization" in request.headers for request in corporate.model.requests)


@EACH
def test_variables_of_the_process_open_no_way(
    corporate: Corporate, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    bundle = tmp_path / "authority.pem"
    bundle.write_text(pem_of(corporate.authority))
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO"):
        monkeypatch.setenv(name, str(bundle))
    there = f"127.0.0.1:{corporate.front.port}"
    call(corporate, Connection(certificates=pem_of(corporate.authority)), host=there)
    with pytest.raises(GitHubFailed, match="certificate"):
        call(corporate, Connection(), host=there)


@EACH
def test_an_authority_that_is_not_trusted_ends_at_once_and_names_the_input(corporate: Corporate, call: Call) -> None:
    for strangers in ("", pem_of(trustme.CA())):
        with pytest.raises(GitHubFailed, match="certificate") as caught:
            call(corporate, replace(corporate.connection, certificates=strangers))
        said = "verification failed" if call is Corporate.list else "unable to get local issuer certificate"
        assert said in caught.value.message
        assert "`ca-certificates`" in caught.value.hint
        assert not caught.value.passes
    assert corporate.requests() == 0


@EACH
def test_a_proxy_that_wants_a_login_is_named_without_the_wrong_one(corporate: Corporate, call: Call) -> None:
    corporate.proxy.login = "ann:another-password"
    connection = replace(corporate.connection, proxy=f"http://ann:{PASSWORD}@127.0.0.1:{corporate.proxy.port}")
    with pytest.raises(GitHubFailed) as caught:
        call(corporate, connection)
    assert f"The proxy {corporate.proxy.url} (HTTPS_PROXY) needs a user and a password" in caught.value.hint
    assert PASSWORD not in str(caught.value)
    assert not caught.value.passes


@EACH
def test_a_proxy_that_is_down_is_named_without_its_password(corporate: Corporate, call: Call) -> None:
    port = closed_port()
    proxy = f"http://ann:{PASSWORD}@127.0.0.1:{port}"
    with pytest.raises(GitHubFailed) as caught:
        call(corporate, replace(corporate.connection, proxy=proxy, variable="ALL_PROXY"))
    # It may be up again soon; a reader without a clock waits for nothing.
    assert caught.value.passes or call is Corporate.read
    assert f"Check that the proxy http://127.0.0.1:{port} (ALL_PROXY) works" in caught.value.hint
    assert PASSWORD not in str(caught.value)


def test_a_proxy_that_never_answers_is_cut_when_the_calls_time_is_up(corporate: Corporate) -> None:
    corporate.proxy.silent = True
    begun = time.monotonic()
    with pytest.raises(GitHubFailed) as caught:
        corporate.ask(corporate.connection, longest_call=0.5)
    assert caught.value.passes
    assert time.monotonic() - begun < 20
