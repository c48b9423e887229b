"""What a failed connection is told with, and where a secret may be sent."""

from __future__ import annotations

import pytest

from stepflow.domain.connection import (
    DIRECT,
    Connection,
    address_problem,
    certificate_problem,
    direct,
    is_refused,
    stays_closed,
)

BEHIND = Connection(proxy="http://ann:pass@proxy.example:3128")
EXPIRED = "certificate verify failed: certificate has expired (_ssl.c:1000)"


@pytest.mark.parametrize(
    ("connection", "said", "advice"),
    [
        (DIRECT, EXPIRED, "Renew the certificate"),
        (DIRECT, "certificate verify failed: Hostname mismatch", "another host's"),
        (DIRECT, "certificate verify failed: self-signed certificate", "`ca-certificates`"),
        (DIRECT, "Connection refused", ""),
        (BEHIND, "Tunnel connection failed: 407 Proxy Authentication Required", "needs a user and a password"),
        (BEHIND, "Tunnel connection failed: 403 Forbidden", "allow this host"),
        (BEHIND, "Connection refused", "Check that the proxy http://proxy.example:3128 (HTTPS_PROXY) works"),
    ],
)
def test_advice_names_what_to_change_and_never_the_password(connection: Connection, said: str, advice: str) -> None:
    given = connection.advice(said)
    assert advice in given
    assert bool(given) == bool(advice)
    assert "pass@" not in given + connection.through


def test_a_message_tells_whether_a_retry_can_help() -> None:
    assert certificate_problem(EXPIRED) == "certificate has expired"
    assert certificate_problem("certificate verify failed") == "not trusted"
    assert certificate_problem("Connection refused") == ""
    assert [stays_closed(said) for said in (EXPIRED, "407", "Connection refused")] == [True, True, False]
    assert is_refused("[Errno 111] Connection refused")
    assert direct("https://anywhere.example") is DIRECT


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://model.example/v1", ""),
        ("http://localhost:8080", ""),
        ("http://[::1]:8080", ""),
        ("http://model.example", "the key would travel unencrypted"),
        ("https://", "it names no host"),
        ("https://ann:pass@model.example", "it carries a user name or a password"),
        ("https://model.example?key=1", "it carries a query or a fragment"),
        ("https://model.example:99999", "Port out of range 0-65535"),
    ],
)
def test_a_secret_goes_to_an_encrypted_address_or_to_this_machine(url: str, problem: str) -> None:
    assert address_problem(url, secret="the key") == problem
