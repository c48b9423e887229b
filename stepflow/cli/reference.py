"""Prints reference information: `stepflow explain [CODE …]`, `schema NAME` and `completion SHELL`."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys

from argcomplete.shell_integration import shellcode

from stepflow.cli.terminal import print_document, print_lines
from stepflow.definition.diagnostics import closest_match
from stepflow.definition.rules import rules
from stepflow.errors import InputError
from stepflow.report.diagnostic import explanation, rule_list


def add_explain_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument of `explain`."""
    parser.add_argument("codes", nargs="*", metavar="CODE", help="the code of a problem, such as SF343")


def execute_explain(arguments: argparse.Namespace) -> int:
    """Print the requested rules."""
    known = rules()
    if not arguments.codes:
        print_lines(sys.stdout, rule_list(known.values()))
    for code in [_known_code(word) for word in arguments.codes]:
        print_lines(sys.stdout, explanation(known[code]))
    return 0


def _known_code(word: str) -> str:
    """Parse a code in any spelling. Raise `InputError` if it does not exist."""
    known = rules()
    number = re.fullmatch(r"(?:SF)?[ -]?([0-9]{3})", word.strip(), re.IGNORECASE)
    code = f"SF{number[1]}" if number else word.upper()
    if code in known:
        return code
    # Codes differ in single digits, so only a code with one wrong character is a likely match.
    match = closest_match(code, known, 0.85)
    near = [match] if match else [one for one in known if one[:4] == code[:4]]
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise InputError(f'There is no code "{word}".{hint}', hint="`stepflow explain` lists all of them.")


#: Format → the function that returns its schema. The package is imported only when the schema is requested.
FORMATS = {
    "registry": "stepflow.definition.published:registry_schema",
    "agent": "stepflow.definition.published:agent_schema",
    "scenario": "stepflow.model.scenario:scenario_schema",
    "eval": "stepflow.modes.eval.cases:case_schema",
    "journal": "stepflow.journal:journal_schema",
    "report": "stepflow.report.document:report_schema",
    "problems": "stepflow.report.document:problems_schema",
    "ledger": "stepflow.report.ledger:ledger_schema",
}


def add_schema_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument of `schema`."""
    parser.add_argument(
        "format",
        choices=tuple(FORMATS),
        help="registry: steps_registry.json; agent: agent.json; scenario: scenarios/*.yaml; eval: evals/*.yaml; "
        "journal: one line of journal.jsonl; report: report.json; problems: `validate --format json`; "
        "ledger: `ledger --json`",
    )


def execute_schema(arguments: argparse.Namespace) -> int:
    """Print the schema."""
    module, _, name = FORMATS[arguments.format].partition(":")
    print_document(json.dumps(getattr(importlib.import_module(module), name)(), indent=2, ensure_ascii=False))
    return 0


def add_completion_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument of `completion`."""
    parser.epilog = 'For bash, add this line to ~/.bashrc: eval "$(stepflow completion bash)"'
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell to print the script for")


def execute_completion(arguments: argparse.Namespace) -> int:
    """Print the script."""
    print_document(shellcode(["stepflow"], shell=arguments.shell).strip())
    return 0
