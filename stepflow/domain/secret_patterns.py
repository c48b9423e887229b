"""Finds credentials in what is about to leave, by the formats that their issuers gave them.

The patterns are those of detect-secrets, which names each kind. Text that only looks random, or that follows the word
"password", does not count.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from stepflow.domain.secrets import MASK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from detect_secrets.plugins.base import BasePlugin, RegexBasedDetector

#: Lines are looked at in pieces that overlap by half: some patterns take time that grows with the square of a line.
_PIECE = 2_000
#: What detect-secrets does not know yet.
_MORE_PATTERNS = {
    "Anthropic key": re.compile(r"sk-ant-[A-Za-z0-9_-]{20,}"),
    "GitHub fine-grained token": re.compile(r"github_pat_[A-Za-z0-9_]{36,}"),
}
#: In what AWS writes in its own documentation.
_EXAMPLE = "EXAMPLE"
#: Patterns that match something else most of the time: documentation writes addresses as `http://user:password@host`.
_VAGUE = frozenset({"Basic Auth Credentials", "Public IP (ipv4)"})
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL
)


def find_secrets(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The 0-based line and the kind of each credential in a text."""
    for number, line in enumerate(lines):
        yield from ((number, kind) for kind in dict.fromkeys(kind for kind, _ in _secrets(line)))


def mask_secrets(text: str) -> str:
    """The text with `***` where a credential stands."""
    masked = _PRIVATE_KEY.sub(MASK, text)
    for value in sorted({value for line in masked.split("\n") for _, value in _secrets(line)}, key=len, reverse=True):
        masked = masked.replace(value, MASK)
    return masked


def _secrets(line: str) -> Iterator[tuple[str, str]]:
    for begin in range(0, max(len(line) - _PIECE // 2, 1), _PIECE // 2):
        piece = line[begin : begin + _PIECE]
        for kind, patterns in _patterns(piece):
            found = (match[0] for pattern in patterns for match in pattern.finditer(piece))
            yield from ((kind, value) for value in found if _EXAMPLE not in value)


def _patterns(piece: str) -> Iterator[tuple[str, Iterable[re.Pattern[str]]]]:
    yield from ((kind, (pattern,)) for kind, pattern in _MORE_PATTERNS.items())
    # Some patterns capture only a part of the credential, and one detector looks more closely than its patterns do.
    yield from ((each.secret_type, each.denylist) for each in _detectors() if any(each.analyze_string(piece)))


@cache
def _detectors() -> tuple[RegexBasedDetector, ...]:
    # Loads requests, as PyGithub does, which most of a run does without.
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class  # noqa: PLC0415
    from detect_secrets.plugins.base import RegexBasedDetector  # noqa: PLC0415

    kinds: Mapping[str, type[BasePlugin]] = get_mapping_from_secret_type_to_class()
    by_pattern = (make for kind, make in kinds.items() if kind not in _VAGUE)
    return tuple(make() for make in by_pattern if issubclass(make, RegexBasedDetector))
