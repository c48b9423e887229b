"""Which addresses a model key may be sent to."""

from __future__ import annotations

import pytest

from stepflow.errors import InputError
from stepflow.model.logins import check_base_url


@pytest.mark.parametrize(
    ("url", "checked"),
    [
        ("https://api.anthropic.com", "https://api.anthropic.com"),
        (" https://proxy.example/claude/ ", "https://proxy.example/claude"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_https_and_loopback_are_fine(url, checked):
    assert check_base_url(url) == checked


@pytest.mark.parametrize(
    "url",
    [
        "http://api.anthropic.com",
        "http://192.168.0.7:8080",
        "http://127.0.0.1.evil.example",
        "http://localhost.evil.example",
        "ftp://127.0.0.1",
        "api.anthropic.com",
        "https://",
        "",
        "https://user:secret@host.example",
        "https://host.example?key=1",
        "https://host.example#x",
        "https://host.example:port",
        "https://[::1",
    ],
)
def test_any_other_address_is_refused_with_the_input_named(url):
    with pytest.raises(InputError, match=r"`model\.base-url`") as caught:
        check_base_url(url)
    assert "https://" in caught.value.hint
    assert "secret" not in str(caught.value)
