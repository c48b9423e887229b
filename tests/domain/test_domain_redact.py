"""Secrets are found in every spelling that a model could hide them in."""

import base64
import re
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepflow.domain.secrets import Redactor

SECRET = "ghs_16C7e42F292c6912E7/710c+838347Ae178B4a"
SPELLINGS = {
    "raw": SECRET,
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "base64, shifted by one": base64.b64encode(b"x" + SECRET.encode()).decode(),
    "base64 of a basic credential": base64.b64encode(f"x-access-token:{SECRET}".encode()).decode(),
    "base64 for URLs": base64.urlsafe_b64encode(b"ab" + SECRET.encode() + b"c").decode(),
    "hex": SECRET.encode().hex(),
    "capital hex": SECRET.encode().hex().upper(),
    "URL encoding": quote(SECRET, safe=""),
    "lower-case URL encoding": re.sub("%..", lambda match: match[0].lower(), quote(SECRET, safe="")),
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_a_secret_is_replaced_in_every_spelling(spelling: str) -> None:
    redacted = Redactor((SECRET,))(f"before {spelling} after")
    assert redacted.startswith("before ")
    assert redacted.endswith(" after")
    assert "***" in redacted
    assert SECRET[8:-8] not in redacted
    assert spelling not in redacted


def test_a_redactor_prints_without_its_secrets() -> None:
    assert SECRET not in repr(Redactor((SECRET,)))


def test_very_short_values_are_no_secrets_so_that_text_stays_readable() -> None:
    assert Redactor(("a", "", "main"))("a main road") == "a main road"


@given(before=st.text(), after=st.text(), secret=st.text(st.characters(categories=["L", "N"]), min_size=6))
def test_no_text_around_it_saves_a_secret(before: str, after: str, secret: str) -> None:
    assert secret not in Redactor((secret,))(before + secret + after)


@given(before=st.binary(), after=st.binary(), secret=st.text("abcdefghijk_0123456789", min_size=8))
def test_no_bytes_around_it_save_a_secret_in_base64(before: bytes, after: bytes, secret: str) -> None:
    redacted = Redactor((secret,))(base64.b64encode(before + secret.encode() + after).decode())
    assert "***" in redacted
