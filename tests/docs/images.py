"""docs/how-to/images.md as data: its blocks, its tables, and the Dockerfile that they speak of."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.docs.page import DOCS, ROOT, PageBlock, page_blocks

PAGE = DOCS / "how-to" / "images.md"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A layer as the page tells it; sizes in megabytes of 10⁶ bytes."""

    megabytes: float
    made_by: str
    why: str


def block(name: str) -> PageBlock:
    """The only block that is called so, by its comment, its file or its language."""
    (block,) = (each for each in page_blocks(PAGE) if name in {each.note, each.file, each.language})
    return block


def told_layers() -> list[Row]:
    """The rows of the table of layers, lowest first."""
    rows = re.findall(r"^\| ([\d.]+) \| `([^`]+?)(?: …)?` \| (.+) \|$", _table("layers"), re.M)
    return [Row(megabytes=float(size), made_by=made_by, why=why) for size, made_by, why in rows]


def told_variants() -> dict[str, tuple[float, float]]:
    """File of packages → unpacked and compressed size."""
    rows = re.findall(r"^\| `(\S+)` \| .+ \| (\d+) MB \| (\d+) MB \|$", _table("variants"), re.M)
    return {file: (float(unpacked), float(packed)) for file, unpacked, packed in rows}


def promised_megabytes() -> float:
    """What the whole image stays below."""
    (most,) = re.findall(r"the image stays below (\d+) MB,", PAGE.read_text(encoding="utf-8"), re.M)
    return float(most)


def made_layers() -> list[str]:
    """The instructions of the Dockerfile's last stage that make layers, each on one line."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    stage = re.findall(r"^(?:FROM|RUN|COPY|ADD|WORKDIR) .+$", text, re.M)
    return stage[max(number for number, line in enumerate(stage) if line.startswith("FROM ")) :]


def _table(name: str) -> str:
    return PAGE.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n")[2].partition("\n\n")[0]
