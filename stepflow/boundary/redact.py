"""Takes secrets out of texts.

Takes: the secrets that the parent knows. Gives: `Redactor`, a function from text to text that anybody may see.
May touch: nothing (boundary.md "Text that leaves", security.md 18 and 29).
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import quote, quote_plus

#: A shorter value is no secret that could be told from ordinary text.
SHORTEST_SECRET = 6
REPLACEMENT = "***"


@dataclass(frozen=True)
class Redactor:
    """Replaces each secret by `***`, raw or as base64, hex or URL encoding. Prints without its secrets."""

    secrets: tuple[str, ...] = field(default=(), repr=False)

    def __call__(self, text: str) -> str:
        """The text without any of the secrets."""
        return self._pattern.sub(REPLACEMENT, text) if self._pattern else text

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        forms = {form for secret in self.secrets if len(secret) >= SHORTEST_SECRET for form in _forms(secret)}
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        return re.compile("|".join(longest_first)) if longest_first else None


def _forms(secret: str) -> set[str]:
    """The secret's spellings as regular expressions."""
    data = secret.encode()
    encoded = {quote(secret, safe=""), quote_plus(secret), quote(secret)}
    spelled = {secret} | _base64_forms(data)
    anyhow = encoded | {data.hex()}
    return {re.escape(form) for form in spelled} | {f"(?i:{re.escape(form)})" for form in anyhow}


def _base64_forms(data: bytes) -> set[str]:
    """What base64 makes of the bytes wherever they stand in the encoded text: three alignments, two alphabets."""
    forms: set[str] = set()
    for offset in range(3):
        first, last = -(-offset * 8 // 6), (offset + len(data)) * 8 // 6
        text = base64.b64encode(b"\0" * offset + data + b"\0" * 2).decode()[first:last]
        forms |= {text, text.replace("+", "-").replace("/", "_")}
    return forms
