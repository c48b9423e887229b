"""One redactor for every sink: journal, log, report, summary, traceback (security.md case 29).

Takes: the secrets the parent knows. Gives: text without them, in the forms in which a program might print them.
May touch: nothing.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

from stepflow.domain.json import JsonValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MASK = "***"
#: Anything shorter would mask ordinary words, and is no secret worth the name.
SHORTEST_SECRET = 6
#: A tool may print one line of a multi-line key; shorter lines of it are common words such as `{`.
SHORTEST_LINE = 20
#: Encoders wrap their output: a real or JSON-escaped line break, or blanks, may stand between any two characters.
GAP = r"(?:\\[nrt]|[\s:])*+"


class Redactor:
    """Replaces every secret by `***`: raw, JSON-escaped, URL-encoded, as hex, and as base64 at any offset."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = tuple(secrets)
        known = {piece for secret in self._secrets for piece in _pieces(secret)}
        exact = {form for secret in known for form in _exact_forms(secret)}
        # Longest first: a shorter form inside a longer one must not leave the rest of the longer one standing.
        self._exact = tuple(sorted(exact, key=lambda form: (-len(form), form)))
        encoded = {pattern for secret in known for pattern in _encoded_forms(secret)}
        self._encoded = tuple(re.compile(pattern) for pattern in sorted(encoded, key=lambda p: (-len(p), p)))

    def knowing(self, *secrets: str) -> Redactor:
        """A redactor that knows these secrets too."""
        return Redactor((*self._secrets, *secrets))

    def __call__(self, text: str) -> str:
        """The text with every known form of every secret masked."""
        for form in self._exact:
            text = text.replace(form, MASK)
        for pattern in self._encoded:
            text = pattern.sub(MASK, text)
        return text


def redact_value(value: JsonValue, redact: Callable[[str], str]) -> JsonValue:
    """The same JSON value with every string and key redacted.

    Redacting values instead of serialised text cannot break the JSON around them.
    """
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [redact_value(item, redact) for item in value]
    if isinstance(value, dict):
        return {redact(key): redact_value(item, redact) for key, item in value.items()}
    return value


def _pieces(secret: str) -> Iterator[str]:
    whole = secret.strip()
    if len(whole) >= SHORTEST_SECRET:
        yield whole
        yield from (line.strip() for line in whole.splitlines() if len(line.strip()) >= SHORTEST_LINE)


def _exact_forms(secret: str) -> Iterator[str]:
    yield secret
    for ascii_only in (False, True):
        once = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield once
        yield json.dumps(once, ensure_ascii=ascii_only)[1:-1]
    data = secret.encode("utf-8", "surrogatepass")
    for quoted in (quote(data, safe=""), quote(data), quote_plus(data)):
        yield quoted
        yield re.sub(r"%..", lambda match: match[0].lower(), quoted)


def _encoded_forms(secret: str) -> Iterator[str]:
    data = secret.encode("utf-8", "surrogatepass")
    yield "(?i:" + GAP.join(data.hex()) + ")"
    for offset in range(3):
        core = _base64_core(data, offset)
        yield GAP.join(map(re.escape, core))
        yield GAP.join(map(re.escape, core.replace("+", "-").replace("/", "_")))


def _base64_core(data: bytes, offset: int) -> str:
    """The base64 characters that `data` alone decides when `offset` bytes stand before it, whatever follows."""
    encoded = base64.b64encode(b"\0" * offset + data).decode()
    first = -(-offset * 8 // 6)
    last = (offset + len(data)) * 8 // 6
    return encoded[first:last]
