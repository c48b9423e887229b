"""Digests the bytes of a journal, line by line."""

from __future__ import annotations

import hashlib
from pathlib import Path

from stepflow.domain.reports.statement import LINK, JournalDigest
from stepflow.errors import InputError
from stepflow.journal.file import LONGEST_LINE


def digest_journal(path: Path) -> JournalDigest:
    """Digest the file as it is. Raises `InputError` if it cannot be read, or has a line that no run writes."""
    whole, links, link = hashlib.sha256(), bytearray(), bytes(LINK)
    try:
        with path.open("rb") as file:
            while line := file.readline(LONGEST_LINE + 1):
                if len(line) > LONGEST_LINE:
                    raise InputError(f"A line of {path} is longer than any run writes.", hint="Name a run folder.")
                whole.update(line)
                link = hashlib.sha256(link + line).digest()
                links += link
    except OSError as exc:
        raise InputError(f"The journal {path} cannot be read: {exc.strerror}.", hint="Name a run folder.") from exc
    return JournalDigest(sha256=whole.hexdigest(), links=bytes(links))
