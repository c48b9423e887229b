"""The statement about a run: derived from its journal alone, and from every part of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from stepflow.run.ending import statement_of

PLAUSIBLE = Path(__file__).parent / "plausible_run.jsonl"


def statement_about(folder: Path, lines: list[bytes]) -> dict:
    journal = folder / "journal.jsonl"
    journal.write_bytes(b"".join(lines))
    statement = statement_of(journal)
    assert statement is not None
    return statement


def links_of(lines: list[bytes]) -> list[str]:
    link, links = bytes(32), []
    for line in lines:
        link = hashlib.sha256(link + line).digest()
        links.append(link.hex())
    return links
