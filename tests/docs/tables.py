"""The README's tables, made from what they describe. `python -m tests.docs.tables --write` puts them in.

Takes: action.yml and the tables of outcomes. Gives: Markdown tables by the name of their markers.
May touch: README.md with `--write`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import yaml

from stepflow.domain.words import Outcome, exit_code
from stepflow.report.advice import advice
from tests.docs.readme import README, ROOT, part_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Filled in by the runner.
NOT_FOR_PEOPLE = ("host",)


def tables() -> dict[str, str]:
    """Every generated part of the README."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    return {
        "inputs": _table(("input", "default", "what it does"), _inputs(action["inputs"])),
        "outputs": _table(("output", "what it holds"), _outputs(action["outputs"])),
        "outcomes": _table(("outcome", "exit code", "what the summary tells you to do"), _outcomes()),
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


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def written(text: str) -> str:
    """The README with its tables as they should be."""
    for name, table in tables().items():
        text, found = part_pattern(name).subn(lambda match, table=table: f"{match[1]}\n{table}\n{match[3]}", text)
        assert found == 1, f"README.md has {found} parts {name}"
    return text


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    if "--write" in sys.argv:
        README.write_text(written(text), encoding="utf-8")
    elif written(text) != text:
        sys.exit("README.md is not up to date: make docs")
