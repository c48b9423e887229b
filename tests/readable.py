"""What reads badly in a message."""

from __future__ import annotations

import re

STUMBLES = re.compile(
    r"(?<!\.)\.\.(?!\.|/)"  # two full stops
    r"|\.\s?[;:,]"  # a full stop inside a sentence
    r"|\. \("  # a remark after the end
    r"|[a-z0-9`\")] (?:Check|Give|Set|Put|Use|Look|Correct|Name) "  # two sentences without a stop between them
    r"|\bNone\b|: \.?$|: \. |<[a-z]+ object"
)


def stumbles(text: str) -> list[str]:
    """Each stumble with what stands around it."""
    return [text[max(0, match.start() - 40) : match.end() + 20] for match in STUMBLES.finditer(text)]
