"""The tables of the documents, made from what they describe. `python -m tests.docs.tables --write` puts them in."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import yaml

from stepflow.domain.words import Outcome, exit_code
from stepflow.report.wording import advice
from tests.docs.readme import REFERENCE_PAGE, ROOT
from tests.docs.threats import THREAT_MODEL, threat_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

#: Filled in by the runner.
NOT_FOR_PEOPLE = ("host",)


def tables() -> dict[str, str]:
    """Every generated part of the reference page."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    return {
        "inputs": table(("input", "default", "what it does"), _inputs(action["inputs"])),
        "outputs": table(("output", "what it holds"), _outputs(action["outputs"])),
        "outcomes": table(("outcome", "exit code", "what the summary tells you to do"), _outcomes()),
    }


def _inputs(inputs: dict[str, Any]) -> Iterable[Sequence[str]]:
    for name, described in inputs.items():
        if name not in NOT_FOR_PEOPLE:
            default = f"`{described['default']}`" if described["default"] else ""
            yield f"`{name}`", default, described["description"]


def _outputs(outputs: dict[str, Any]) -> Iterable[Sequence[str]]:
    return ((f"`{name}`", described["description"]) for name, described in outputs.items())


def _outcomes() -> Iterable[Sequence[str]]:
    return ((f"`{outcome}`", str(exit_code(outcome)), advice(outcome)) for outcome in Outcome)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def documents() -> dict[Path, Mapping[str, str]]:
    """Every document with generated parts, and these by name."""
    threats = {name: table(head, rows) for name, (head, *rows) in threat_tables().items()}
    return {REFERENCE_PAGE: tables(), THREAT_MODEL: threats}


def written(document: Path) -> str:
    """The document with its tables as they should be."""
    text = document.read_text(encoding="utf-8")
    for name, rows in documents()[document].items():
        part = re.compile(rf"(<!-- {name}: begin[^\n]*-->\n)(.*?)(<!-- {name}: end -->)", re.S)
        text, replaced = part.subn(lambda match, rows=rows: f"{match[1]}\n{rows}\n{match[3]}", text)
        assert replaced == 1, f"{document.name} has {replaced} parts {name}"
    return text


if __name__ == "__main__":
    for document in documents():
        text = written(document)
        if "--write" in sys.argv:
            document.write_text(text, encoding="utf-8")
        elif text != document.read_text(encoding="utf-8"):
            sys.exit(f"{document.name} is not up to date: make docs")
