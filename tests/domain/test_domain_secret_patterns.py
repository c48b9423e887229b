"""What looks like a credential is found by its form; sources of real packages hold next to none."""

from importlib.metadata import files

import pytest

from stepflow.boundary.output_filter import OutputFilter, filter_line, filter_text
from stepflow.domain.secrets import find_secrets, mask_secrets

A36 = "aZ09" * 9
#: Put together here, so that this file holds none itself.
FORMS = {
    "GitHub Token": "ghp_" + A36,
    "GitHub fine-grained token": "github_pat_" + A36 * 2,
    "Anthropic key": "sk-ant-" + "api03-" + A36,
    "AWS Access Key": "AKIA" + "Q3EGRIUTAPBO2MLJ",
    "OpenAI Token": "sk-" + "a1B2" * 5 + "T3Blbk" + "FJ" + "c3D4" * 5,
    "Slack Token": "xoxb" + "-123456789012-" + A36[:24],
    "PyPI Token": "pypi-" + "AgEIcHlwaS5vcmc" + A36 * 2,
    "GitLab Token": "glpat-" + A36[:20],
    "Stripe Access Key": "sk_live_" + A36[:24],
    "NPM tokens": "//registry.npmjs.org/:_auth" + "Token=npm_" + A36,
    "Azure Storage Account access key": "Account" + "Key=" + A36 * 2 + A36[:14] + "==",
    "JSON Web Token": "eyJ" + "hbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxIn0" + "." + "c2ln",
}


@pytest.mark.parametrize("kind", FORMS)
def test_a_credential_is_found_by_its_line_and_masked(kind: str) -> None:
    text = f"first\nsettings = '{FORMS[kind]}'\n"
    assert list(find_secrets(text.split("\n"))) == [(1, kind)]
    masked = mask_secrets(text)
    assert "***" in masked
    assert FORMS[kind][12:] not in masked
    assert list(find_secrets(masked.split("\n"))) == []


def test_a_private_key_is_masked_from_its_first_line_to_its_last() -> None:
    key = "-----BEGIN OPENSSH " + "PRIVATE KEY-----\nb3BlbnNzaC1rZXkt\nAAAA\n-----END OPENSSH " + "PRIVATE KEY-----"
    assert list(find_secrets(f"a\n{key}\nb".split("\n"))) == [(1, "Private Key")]
    assert mask_secrets(f"a\n{key}\nb") == "a\n***\nb"
    assert mask_secrets(f"a\n{key[:60]}") == "a\n***"


def test_a_credential_across_the_pieces_of_a_long_line_is_found() -> None:
    for before in range(900, 2_200, 7):
        line = "." * before + FORMS["GitHub Token"] + "." * 3_000
        assert list(find_secrets([line])) == [(0, "GitHub Token")]


def test_what_only_looks_random_or_is_an_example_is_none() -> None:
    lines = [
        "AKIA" + "IOSFODNN7EXAMPLE",
        "postgres://user:password@localhost/db",
        "0123456789abcdef" * 4,
        "password = 'x'",
    ]
    assert list(find_secrets(lines)) == []


def test_every_text_that_leaves_is_without_them() -> None:
    token = FORMS["GitHub Token"]
    assert token[4:] not in filter_text(f"Use `{token}`.", OutputFilter())
    assert token[4:] not in filter_line(f"Use {token}", OutputFilter())


#: Files of packages that hold what looks like a credential, and why it is none.
EXPLAINED = {
    "google/auth/transport/_mtls_helper.py": "the first line of a key file, by which such files are told",
    "google/auth/crypt/_python_rsa.py": "the first line of a key file, by which such files are told",
    "google/oauth2/gdch_credentials.py": "the first line of a key file, in documentation",
}
PACKAGES = (
    "PyGithub", "anthropic", "google-auth", "hypothesis", "jsonschema", "mypy", "pip", "pydantic", "pytest", "rich",
)  # fmt: skip


@pytest.mark.whole
@pytest.mark.parametrize("package", PACKAGES)
def test_the_sources_of_large_packages_hold_none_that_is_not_explained(package: str) -> None:
    sources = [each for each in files(package) or () if each.suffix in (".py", ".pyi", ".json", ".md", ".txt")]
    assert len(sources) >= 20
    found = {
        str(each): number + 1
        for each in sources
        for number, _ in find_secrets(each.locate().read_bytes().decode(errors="replace").split("\n"))
    }
    assert [f"{path}:{line}" for path, line in found.items() if path not in EXPLAINED] == []
