"""Files by which a login step lets later steps of the job log in, such as the one of google-github-actions/auth."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.domain.json import JsonValue

_SECRET_KEY = re.compile(r"private_key|.*_token|.*secret|authorization|password", re.IGNORECASE)
_SETTING = re.compile(r"^[^=\n]*(?:key|token|secret|password)[^=\n]*=\s*(\S+)\s*$", re.IGNORECASE | re.MULTILINE)


def secrets_of_login(text: str) -> frozenset[str]:
    """The secrets of a file in JSON, of one with `name = value` lines, or of one that is a single token."""
    try:
        found = set(_in_json(json.loads(text)))
    except (ValueError, RecursionError):
        whole = text.strip()
        found = {whole} if whole and not whole.split()[1:] else set(_SETTING.findall(text))
    # `Bearer …`: what stands behind the word is the secret.
    return frozenset(form for secret in found for form in (secret, secret.rpartition(" ")[2]) if form)


def _in_json(value: JsonValue) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _in_json(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, str) and _SECRET_KEY.fullmatch(key):
                yield item
            else:
                yield from _in_json(item)
