"""The one redactor: which forms of a secret it finds, and what it leaves alone."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepflow.domain.secrets import MASK, Redactor, redact_value

SECRET = 'sk-ant-"a\\b/c+d=é_7x9'
PLAIN = "ghs_16C7e42F292c6912E7710c838347Ae178B4a"


@pytest.mark.parametrize("secret", [SECRET, PLAIN])
@pytest.mark.parametrize(
    "encode",
    [
        lambda secret: secret,
        lambda secret: json.dumps(secret),
        lambda secret: json.dumps(secret, ensure_ascii=False),
        lambda secret: json.dumps(json.dumps({"key": secret})),
        lambda secret: quote(secret, safe=""),
        lambda secret: quote(secret, safe="").lower() if "%" in quote(secret, safe="") else secret,
        lambda secret: secret.encode().hex(),
        lambda secret: secret.encode().hex().upper(),
        lambda secret: ":".join(f"{byte:02x}" for byte in secret.encode()),
        lambda secret: base64.b64encode(f"x-access-token:{secret}".encode()).decode(),
        lambda secret: base64.urlsafe_b64encode(b"ab" + secret.encode() + b"c").decode(),
    ],
)
def test_a_secret_is_masked_in_every_form_a_program_might_print(secret, encode):
    redacted = Redactor([secret])(f"before {encode(secret)} after")
    assert MASK in redacted
    assert redacted.startswith("before ")
    assert redacted.endswith(" after")
    assert secret[4:] not in redacted


@given(st.binary(max_size=7), st.binary(max_size=7))
def test_base64_of_a_secret_is_masked_at_any_offset(before, after):
    text = base64.b64encode(before + PLAIN.encode() + after).decode()
    redacted = Redactor([PLAIN])(text)
    assert MASK in redacted
    # 40 bytes decide at least 51 characters; at most one at each edge is shared with a neighbor and stays.
    assert len(redacted) <= len(text) - 51 + len(MASK)


def test_wrapped_and_url_safe_base64_is_masked_too():
    key = "key?~~>>" * 20
    wrapped = base64.encodebytes(key.encode()).decode()
    assert "\n" in wrapped.strip()
    redact = Redactor([key])
    assert len(redact(wrapped)) < 12
    assert len(redact(json.dumps(wrapped))) < 14
    assert len(redact(base64.urlsafe_b64encode(key.encode()).decode())) < 12


def test_one_line_of_a_multi_line_key_is_masked():
    key = "-----BEGIN-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\n-----END-----\n"
    assert Redactor([key])("line: MIIEvQIBADANBgkqhkiG9w0BAQEF.") == "line: ***."
    assert Redactor([key])(key) == "***\n"


def test_an_empty_or_short_secret_masks_nothing_and_no_redactor_prints_its_secrets():
    redact = Redactor(["", "   ", "abc", "12345", PLAIN])
    assert redact("abc 12345 and the rest") == "abc 12345 and the rest"
    assert PLAIN not in repr(redact)


@given(before=st.text(), after=st.text(), secret=st.text(st.characters(categories=["L", "N"]), min_size=6))
def test_no_text_around_it_saves_a_secret(before, after, secret):
    assert secret not in Redactor((secret,))(before + secret + after)


def test_a_secret_inside_a_longer_one_does_not_leave_its_rest_standing():
    assert Redactor(["abcdef", "abcdefghijkl"])("x abcdefghijkl y") == "x *** y"


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_text_without_the_secret_stays_as_it_was(text):
    assert Redactor(["Zq9-Zq9-Zq9-Zq9"])(text) == text


def test_values_are_redacted_at_any_depth_and_in_keys():
    value = {"a": [PLAIN, 1, None, True, {f"k {PLAIN}": 1.5}]}
    assert redact_value(value, Redactor([PLAIN])) == {"a": [MASK, 1, None, True, {f"k {MASK}": 1.5}]}


#: Characters and sequences that no page and no terminal shows.
UNSEEN = ["\u200b", "\u200d", "\u00ad", "\ufeff", "\x00", "\x1b[31m", "\u3164", "\r"]


@pytest.mark.parametrize("unseen", UNSEEN)
@pytest.mark.parametrize("every", [1, 5, 17])
def test_what_nobody_sees_hides_no_secret(unseen: str, every: int):
    encoded = base64.b64encode(f"x-access-token:{PLAIN}".encode()).decode()
    for form in (PLAIN, encoded, PLAIN.encode().hex()):
        hidden = unseen.join(form[at : at + every] for at in range(0, len(form), every))
        redacted = Redactor([PLAIN])(f"a{unseen}b {hidden} c{unseen}d")
        assert MASK in redacted
        assert redacted.startswith(f"a{unseen}b ")
        assert redacted.endswith(f"c{unseen}d")
        assert form[-12:-4] not in redacted.replace(unseen, "")


def test_a_secret_that_holds_what_nobody_sees_is_masked_however_it_is_written():
    key = "-----BEGIN-----\r\nMIIEvQIBADANBgkqhkiG9w0BAQEF\r\n-----END-----\r\n"
    for text in (key, key.replace("\r", ""), f"\u200b{key}"):
        assert "MIIE" not in Redactor([key])(text)
        assert "MIIE" not in Redactor([key.replace("\r", "")])(text)


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_a_text_that_holds_what_nobody_sees_stays_as_it_was(text: str):
    assert Redactor(["Zq9-Zq9-Zq9-Zq9"])(f"\u200b{text}") == f"\u200b{text}"


@pytest.mark.parametrize("encode", [bytes.hex, lambda data: base64.b64encode(data).decode()], ids=["hex", "base64"])
def test_a_line_of_a_secret_does_not_leave_the_rest_of_its_encoded_form_standing(encode):
    # 21 bytes are a whole number of base64's groups, so that the line's own form is a part of the whole one's.
    secret = "a-long-line-of-a-key!" + "\nthe rest"
    assert Redactor([secret])(f"<{encode(secret.encode())}>") == f"<{MASK}>"


def test_of_secrets_that_overlap_where_nobody_sees_a_character_nothing_stands():
    redact = Redactor(["first-secret-shared", "shared-second-secret"])
    assert redact("<first-\u200bsecret-shared-second-\u200bsecret>") == f"<{MASK}>"
