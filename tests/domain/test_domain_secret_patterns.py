"""What looks like a credential is found by its form; sources of real packages hold next to none."""

import base64
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


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize("claims", [1, 1_400, 1_990, 6_000, 200_000])
def test_a_json_web_token_of_any_length_is_masked_whole(claims: int) -> None:
    header, body = encoded('{"alg":"RS256"}'), encoded('{"sub":"' + "x" * claims + '"}')
    token = f"{header}.{body}.{'Sig-_' * 70}"
    text = f"x\ntoken={token}; and more"
    assert list(find_secrets(text.split("\n"))) == [(1, "JSON Web Token")]
    assert mask_secrets(text) == "x\ntoken=***; and more"


@pytest.mark.parametrize("kind", ["Anthropic key", "GitHub fine-grained token"])
def test_a_credential_longer_than_a_piece_is_masked_whole(kind: str) -> None:
    assert mask_secrets(f"key: {FORMS[kind]}{A36 * 200}.") == "key: ***."


def test_a_json_web_token_whose_claims_are_nested_deep_is_masked_too() -> None:
    """Its claims are read by nobody: a parser would give up on them."""
    header, body = encoded('{"alg":"none"}'), encoded('{"a":' + "[" * 1_400)
    assert mask_secrets(f"a {header}.{body} b") == "a *** b"


@pytest.mark.whole
def test_a_line_that_almost_holds_a_token_takes_time_that_grows_with_it() -> None:
    assert list(find_secrets(["eyJ" * 200_000, "eyJ." * 200_000, "a" * 500_000])) == []


def test_a_shorter_match_inside_a_longer_one_leaves_nothing_of_it() -> None:
    """Both stand alone as well, so that the text is searched for each."""
    inner, outer = FORMS["GitHub Token"], f"sk-ant-api03-{FORMS['GitHub Token']}-{A36}"
    for text in (f"{inner}\n{outer}\n", f"{outer}\n{inner}\n"):
        assert mask_secrets(text) == "***\n***\n"


#: Characters and sequences that no page and no terminal shows.
UNSEEN = ("\u200b", "\u200d", "\u00ad", "\ufeff", "\x00", "\x1b[0m", "\x1b]8;;x\x07", "\U000e0041", "\u3164")


@pytest.mark.parametrize("unseen", UNSEEN)
@pytest.mark.parametrize("kind", FORMS)
def test_what_nobody_sees_hides_no_credential(kind: str, unseen: str) -> None:
    hidden = unseen.join(FORMS[kind])
    assert list(find_secrets(["", f"settings = '{hidden}'"])) == [(1, kind)]
    masked = mask_secrets(f"first{unseen}\nsettings = '{hidden}' {unseen}\n")
    assert FORMS[kind][12:] not in masked.replace(unseen, "")
    assert masked.startswith(f"first{unseen}\nsettings = '")


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
PACKAGES = ("PyGithub", "anthropic", "google-auth", "hypothesis", "rich")


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
