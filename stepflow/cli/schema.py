"""`stepflow schema NAME`: the JSON Schema of one of our file formats."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

#: Format → the function that gives its schema; its room is imported only when it is asked for.
FORMATS = {
    "registry": "stepflow.definition.published_schemas:registry_schema",
    "agent": "stepflow.definition.published_schemas:agent_schema",
    "scenario": "stepflow.model.scenario:scenario_schema",
    "journal": "stepflow.journal.file:journal_schema",
    "report": "stepflow.report.document:report_schema",
    "problems": "stepflow.report.document:problems_schema",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The argument of `schema`."""
    parser.add_argument(
        "format",
        choices=tuple(FORMATS),
        help="registry: steps_registry.json; agent: agent.json; scenario: scenarios/*.yaml; "
        "journal: one line of journal.jsonl; report: report.json; problems: `validate --format json`",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Print the schema."""
    module, _, name = FORMATS[arguments.format].partition(":")
    print(json.dumps(getattr(importlib.import_module(module), name)(), indent=2, ensure_ascii=False))
    return 0
