"""How a run's own calls leave the machine, by the variables and the input `ca-certificates`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trustme

from stepflow.errors import InputError
from stepflow.run.proxy_config import ProxyConfig, proxy_passwords, proxy_secrets_in, read_proxy_config
from stepflow.run.request import RunRequest
from stepflow.run.start.inputs import read_inputs
from stepflow.run.start.server import check_addresses
from stepflow.run.start.trigger import Trigger
from tests.servers.private_network import pem_of

PROXY = "http://proxy.corp:3128"
DAMAGED = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"


def proxy_config(certificates: str = "", writable: tuple[Path, ...] = (), **environment: str) -> ProxyConfig:
    return read_proxy_config(environment, certificates, writable=writable)


@pytest.fixture(scope="module")
def authority() -> str:
    return pem_of(trustme.CA())


@pytest.mark.parametrize(
    ("environment", "variable"),
    [
        ({"https_proxy": PROXY, "HTTPS_PROXY": "http://other:1"}, "https_proxy"),
        ({"ALL_PROXY": PROXY}, "ALL_PROXY"),
        ({"all_proxy": PROXY, "HTTPS_PROXY": ""}, "all_proxy"),
        ({"HTTPS_PROXY": "proxy.corp:3128"}, "HTTPS_PROXY"),
    ],
)
def test_the_usual_variables_name_the_proxy(environment: dict[str, str], variable: str) -> None:
    connection = proxy_config(**environment).connection_to("https://api.example/v1")
    assert (connection.shown_proxy, connection.variable) == (PROXY, variable)


def test_plain_http_goes_through_no_proxy() -> None:
    assert proxy_config(HTTP_PROXY=PROXY, HTTPS_PROXY=PROXY).connection_to("http://127.0.0.1:8080").proxy == ""
    assert proxy_config(HTTP_PROXY=PROXY).connection_to("https://api.example").proxy == ""


@pytest.mark.parametrize(
    ("no_proxy", "url", "exempt"),
    [
        ("example.com", "https://ghes.example.com/api/v3", True),
        (".example.com", "https://ghes.example.com", True),
        ("example.com", "https://notexample.com", False),
        ("example.com:8443", "https://example.com:8443", True),
        ("example.com:8443", "https://example.com", False),
        ("10.0.0.0/8", "https://10.1.2.3", True),
        ("10.0.0.0/8", "https://11.1.2.3", False),
        ("[fd00::]/8", "https://[fd00::5]", True),
        ("*", "https://anything.example", True),
    ],
)
def test_no_proxy_names_hosts_domains_ports_and_networks(no_proxy: str, url: str, exempt: bool) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        assert (proxy_config(HTTPS_PROXY=PROXY, **{name: no_proxy}).connection_to(url).proxy == "") is exempt


@pytest.mark.parametrize(
    "value", ["socks5://ann:open-sesame@proxy:1080", "https://proxy:3128", "http://", "http://proxy:port", "ftp://x"]
)
def test_a_proxy_that_cannot_be_used_is_named_with_its_variable_and_without_its_password(value: str) -> None:
    with pytest.raises(InputError, match=r"^HTTPS_PROXY: ") as caught:
        proxy_config(HTTPS_PROXY=value)
    assert "http://HOST:PORT" in caught.value.hint
    assert "open-sesame" not in str(caught.value)


def test_passwords_are_known_as_written_decoded_and_with_their_user() -> None:
    environment = {
        "HTTPS_PROXY": "http://ann:p%40ss-word@proxy:1",
        "http_proxy": "ben:other-one@proxy:1",
        "PATH": "a:b@c",
    }
    assert set(proxy_passwords(environment)) == {
        *("p%40ss-word", "p@ss-word", "ann:p@ss-word"),
        *("other-one", "ben:other-one"),
    }
    assert set(proxy_secrets_in(environment)) == {"HTTPS_PROXY", "http_proxy"}
    assert proxy_passwords({"HTTPS_PROXY": PROXY}) == ()


def test_certificates_of_input_and_variables_count_together(tmp_path: Path, authority: str) -> None:
    other = pem_of(trustme.CA())
    (tmp_path / "other.pem").write_text(
        f"# ÄCME Inc.\n{other}\n-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    )
    variables = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS")
    config = proxy_config(authority, **dict.fromkeys(variables, str(tmp_path / "other.pem")))
    assert config.certificates.count("BEGIN CERTIFICATE") == 2
    assert "PRIVATE KEY" not in config.certificates
    assert config.trusted == ("ca-certificates", *variables)
    assert config.notes == ()
    assert list(config.describe(["https://a.example"])) == [
        f"2 certificates trusted in addition to the public ones, by {', '.join(config.trusted)}; tools see those "
        "variables that `pass-env` names"
    ]


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("link.pem", "earlier steps of the job can write, .* in the input `ca-certificates`"),
        (
            "missing.pem",
            "^GIT_SSL_CAINFO names .*/missing.pem, which cannot be read here.* in the input `ca-certificates`",
        ),
        ("damaged.pem", "GIT_SSL_CAINFO .* contains no readable certificate"),
    ],
)
def test_a_file_that_cannot_be_trusted_or_read_does_not_count_and_a_note_says_why(
    tmp_path: Path, authority: str, name: str, note: str
) -> None:
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "ca.pem").write_text(authority)
    (tmp_path / "link.pem").symlink_to(tmp_path / "checkout" / "ca.pem")
    for file, text in (("empty", ""), ("text", "no certificate"), ("damaged", DAMAGED)):
        (tmp_path / f"{file}.pem").write_text(text)
    config = proxy_config(writable=(tmp_path / "checkout",), GIT_SSL_CAINFO=str(tmp_path / name))
    assert config.certificates == ""
    assert re.search(note, config.notes[0])


@pytest.mark.parametrize("text", ["/etc/corp.pem", DAMAGED])
def test_an_input_without_certificates_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="ca-certificates contains no readable certificate") as caught:
        proxy_config(text)
    assert "vars.COMPANY_CA" in caught.value.hint


def test_the_log_names_each_connection() -> None:
    config = proxy_config(HTTPS_PROXY="http://ann:secret-word@proxy:3128", NO_PROXY="ghes.corp")
    assert list(config.describe(["https://api.anthropic.com", "https://ghes.corp/api/v3", "https://ghes.corp"])) == [
        "api.anthropic.com through the proxy http://proxy:3128 (HTTPS_PROXY)",
        "ghes.corp without the proxy",
    ]


@pytest.mark.parametrize(
    ("api", "server"),
    [
        ("https://api.github.com", "https://github.com"),
        ("https://ghes.example/api/v3", "https://ghes.example"),
        ("https://api.octo.ghe.com", "https://octo.ghe.com"),
        ("http://127.0.0.1:1234/api/v3", "http://localhost:4321"),
    ],
)
def test_both_addresses_of_one_server_fit(api: str, server: str) -> None:
    check_addresses(read_inputs({"github-api-url": api, "github-server-url": server}))


@pytest.mark.parametrize(
    ("api", "server", "message"),
    [
        ("https://ghes.example/api/v3", "https://github.com", "two servers"),
        ("https://ghes.example.evil.example/api/v3", "https://ghes.example", "two servers"),
        ("http://ghes.example/api/v3", "https://ghes.example", "github-api-url .* unencrypted"),
        ("https://ghes.example/api/v3", "http://ghes.example", "github-server-url .* unencrypted"),
        ("https://ann:pw@ghes.example/api/v3", "https://ghes.example", "user name or a password"),
        ("ghes.example/api/v3", "https://ghes.example", "names no host"),
    ],
)
def test_a_token_goes_to_one_server_only_and_never_unencrypted(api: str, server: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_addresses(read_inputs({"github-api-url": api, "github-server-url": server}))


def test_nothing_that_a_step_of_the_job_can_fill_counts_as_certificates(tmp_path: Path, authority: str) -> None:
    """A step may set any variable for later ones; it must not bring an authority along by it."""
    for folder in ("root", "workspace", "temp", "commands", "event"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ca.pem").write_text(authority)
    environment = {
        "GITHUB_WORKSPACE": str(tmp_path / "workspace"),
        "RUNNER_TEMP": str(tmp_path / "temp"),
        "GITHUB_OUTPUT": str(tmp_path / "commands" / "output"),
        "GITHUB_EVENT_PATH": str(tmp_path / "event" / "event.json"),
    }
    files = [*tmp_path.glob("*/ca.pem"), Path("/proc/self/environ"), Path("/proc/self/cmdline")]
    assert len(files) == 7
    for file in files:
        request = RunRequest(
            run_id="r",
            inputs=read_inputs({}),
            trigger=Trigger(agent="a", actor="", actor_is_bot=False),
            root=tmp_path / "root",
            folder=tmp_path / "run",
            environment={**environment, "SSL_CERT_FILE": str(file)},
        )
        assert request.proxy_config.certificates == "", file
        assert "can write" in request.proxy_config.notes[0], file
