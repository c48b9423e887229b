"""`stepflow explain [CODE …]`: the rule behind a problem, with an example; without a code, all of them."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from stepflow.cli.output import theme_for
from stepflow.definition.diagnostics import closest_match, rules
from stepflow.errors import InputError
from stepflow.report.diagnostic import explanation, rule_list

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The argument of `explain`."""
    parser.add_argument("codes", nargs="*", metavar="CODE", help="the code of a problem, such as SF343")


def execute(arguments: argparse.Namespace) -> int:
    """Print the rules that were asked for."""
    known, theme = rules(), theme_for(sys.stdout)
    if not arguments.codes:
        print(*rule_list(known.values(), theme), sep="\n")
    for code in [_known_code(word) for word in arguments.codes]:
        print(*explanation(known[code], theme), sep="\n")
    return 0


def _known_code(word: str) -> str:
    """The code in any spelling. Raises `InputError` for one that does not exist."""
    known = rules()
    number = re.fullmatch(r"(?:SF)?[ -]?([0-9]{3})", word.strip(), re.IGNORECASE)
    code = f"SF{number[1]}" if number else word.upper()
    if code in known:
        return code
    # Codes differ in single digits: only one that is a typo away is more likely than its neighbors.
    match = closest_match(code, known, 0.85)
    near = [match] if match else [one for one in known if one[:4] == code[:4]]
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise InputError(f'There is no code "{word}".{hint}', hint="`stepflow explain` lists all of them.")
