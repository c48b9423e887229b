"""The checker that the security tests rely on finds a secret in every form that it claims to know."""

import base64
import gzip
import json
import urllib.parse
import zlib

import pytest

from tests.e2e.security.leaks import leaks

SECRET = 'ghs_Canary"/+=Token\\0123'
DATA = SECRET.encode()
FORMS = {
    "raw": DATA,
    "reversed": DATA[::-1],
    "rot13": b'tuf_Pnanel"/+=Gbxra\\0123',
    "json": json.dumps(SECRET).encode(),
    "json twice": json.dumps(json.dumps(SECRET)).encode(),
    "json in unicode escapes": "".join(f"\\u{ord(letter):04x}" for letter in SECRET).encode(),
    "percent signs": urllib.parse.quote(SECRET, safe="").encode(),
    "percent signs everywhere": "".join(f"%{byte:02x}" for byte in DATA).encode(),
    "hex": DATA.hex().encode(),
    "hex in capitals": DATA.hex().upper().encode(),
    "hex with colons": DATA.hex(":").encode(),
    "hex in lines": DATA.hex(" ", 8).replace(" ", "\n").encode(),
    "hex after an odd digit": b"a" + DATA.hex().encode() + b"b",
    **{f"base64 after {n}": base64.b64encode(b"x" * n + DATA + b"yy") for n in range(4)},
    **{f"base64url after {n}": base64.urlsafe_b64encode(b"?" * n + DATA + b">>") for n in range(4)},
    "base64 in lines": base64.encodebytes(DATA * 5),
    "base64 in lines of a JSON text": json.dumps(base64.encodebytes(DATA * 5).decode()).encode(),
    "gzip": base64.b64encode(gzip.compress(DATA)),
    "zlib": base64.b64encode(zlib.compress(DATA)),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_found(form: str) -> None:
    text = b'{"output": "some words before ' + FORMS[form] + b' and after"}'
    assert {name for name, _ in leaks(text, {"token": SECRET, "other": "not-in-there"})} == {"token"}


def test_nothing_is_found_where_nothing_is() -> None:
    assert leaks("an ordinary text, c2hvcnQ=, deadbeefdeadbeef, %41", {"token": SECRET}) == []
