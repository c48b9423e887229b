"""The model's service behind a proxy and a private authority: real TLS, a real CONNECT proxy, nobody's environment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import trustme

from stepflow.domain.connection import Connection
from stepflow.domain.conversation import ModelFault, ModelTurn
from stepflow.model.anthropic_model import AnthropicModel
from tests.model.asking import ask
from tests.servers.messages_api import MessagesApi, says
from tests.servers.private_network import Proxy, TlsFront, address_of, closed_port, pem_of

KEY = "sk-ant-test-key"
HOST = "model.corp.example"
PASSWORD = "open-sesame-42"

pytestmark = pytest.mark.whole


@dataclass
class Corporate:
    """A service that only the proxy finds, with a certificate of an authority that only the company knows."""

    api: MessagesApi
    proxy: Proxy
    front: TlsFront
    authority: trustme.CA

    @property
    def connection(self) -> Connection:
        return Connection(proxy=self.proxy.url, certificates=pem_of(self.authority))

    def ask(self, connection: Connection, url: str = f"https://{HOST}", **options: float) -> ModelTurn | ModelFault:
        with AnthropicModel(KEY, url, connection_to=lambda _: connection, **options) as model:
            return model.ask(ask())


@pytest.fixture
def corporate() -> Iterator[Corporate]:
    authority = trustme.CA()
    with MessagesApi(lambda _body: says("hello"), api_key=KEY) as api:
        front = TlsFront(authority, HOST, "127.0.0.1", to=lambda _path: address_of(api.url))
        with front, Proxy({HOST: ("127.0.0.1", front.port)}) as proxy:
            yield Corporate(api, proxy, front, authority)


def test_a_call_goes_through_the_proxy_and_the_proxy_sees_no_key(corporate: Corporate) -> None:
    assert isinstance(corporate.ask(corporate.connection), ModelTurn)
    assert corporate.proxy.targets() == {f"{HOST}:443"}
    assert KEY not in "".join(request.head for request in corporate.proxy.requests)


def test_the_login_in_a_proxys_url_is_shown_to_the_proxy_only(corporate: Corporate) -> None:
    corporate.proxy.login = f"ann:{PASSWORD}"
    assert isinstance(corporate.ask(replace(corporate.connection, proxy=corporate.proxy.url_with_login)), ModelTurn)
    [received] = corporate.api.requests
    assert "proxy-authorization" not in received.headers


def test_without_a_proxy_the_service_itself_is_called(corporate: Corporate) -> None:
    url = f"https://127.0.0.1:{corporate.front.port}"
    assert isinstance(corporate.ask(Connection(certificates=pem_of(corporate.authority)), url), ModelTurn)
    assert corporate.proxy.requests == []


def test_an_authority_that_is_not_trusted_ends_at_once_and_names_the_input(corporate: Corporate) -> None:
    for strangers in ("", pem_of(trustme.CA())):
        fault = corporate.ask(replace(corporate.connection, certificates=strangers))
        assert isinstance(fault, ModelFault)
        assert not fault.transient
        assert fault.reason == (
            f"The certificate of the model service at https://{HOST} does not count through the proxy "
            f"{corporate.proxy.url}: unable to get local issuer certificate."
        )
        assert "`ca-certificates`" in fault.hint
    assert corporate.api.requests == []


def test_a_certificate_of_another_host_is_told_as_such(corporate: Corporate) -> None:
    corporate.proxy.hosts["other.example"] = ("127.0.0.1", corporate.front.port)
    fault = corporate.ask(corporate.connection, "https://other.example")
    assert isinstance(fault, ModelFault)
    assert "another host's" in fault.hint
    assert "`ca-certificates`" not in fault.hint


def test_a_proxy_that_wants_a_login_is_named_without_the_wrong_one(corporate: Corporate) -> None:
    corporate.proxy.login = "ann:another-password"
    connection = replace(corporate.connection, proxy=f"http://ann:{PASSWORD}@127.0.0.1:{corporate.proxy.port}")
    fault = corporate.ask(connection)
    assert isinstance(fault, ModelFault)
    assert not fault.transient
    assert f"The proxy {corporate.proxy.url} (HTTPS_PROXY) wants a user and a password" in fault.hint
    assert PASSWORD not in f"{fault.reason} {fault.hint}"


def test_a_proxy_that_forbids_the_host_is_named(corporate: Corporate) -> None:
    corporate.proxy.refuses = "403 Forbidden"
    fault = corporate.ask(corporate.connection)
    assert isinstance(fault, ModelFault)
    assert "403" in fault.reason
    assert f"Let the proxy {corporate.proxy.url} (HTTPS_PROXY) allow this host" in fault.hint


def test_a_proxy_that_is_down_is_named_without_its_password(corporate: Corporate) -> None:
    port = closed_port()
    connection = replace(corporate.connection, proxy=f"http://ann:{PASSWORD}@127.0.0.1:{port}", variable="ALL_PROXY")
    fault = corporate.ask(connection)
    assert isinstance(fault, ModelFault)
    assert fault.transient, "it may be up again soon"
    assert f"through the proxy http://127.0.0.1:{port}" in fault.reason
    assert f"Check that the proxy http://127.0.0.1:{port} (ALL_PROXY) works" in fault.hint
    assert PASSWORD not in f"{fault.reason} {fault.hint}"


def test_a_proxy_that_never_answers_is_cut_when_the_calls_time_is_up(corporate: Corporate) -> None:
    corporate.proxy.silent = True
    begun = time.monotonic()
    fault = corporate.ask(corporate.connection, longest_call=0.5)
    assert isinstance(fault, ModelFault)
    assert fault.transient
    assert time.monotonic() - begun < 20


def test_variables_of_the_process_open_no_way(corporate: Corporate, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    url = f"https://127.0.0.1:{corporate.front.port}"
    assert isinstance(corporate.ask(Connection(certificates=pem_of(corporate.authority)), url), ModelTurn)
