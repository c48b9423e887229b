"""`stepflow validate [NAME|PATH …]` prints every problem of agents at once, each with its location and its fix."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from stepflow.cli.options import add_flags, add_switch
from stepflow.cli.terminal import print_json, print_lines
from stepflow.definition.folder import AGENTS, NoAgent, find_agents
from stepflow.definition.rules import rules
from stepflow.domain.agent.definition import Inspection
from stepflow.errors import InputError, Problem
from stepflow.modes.validate import Checked, check_agents, from_above, programs_in, repository_above
from stepflow.report.diagnostic import WIDE, diagnostics, problem_annotations
from stepflow.report.document import problems_json, sarif_log
from stepflow.report.safe_text import Line, Tone
from stepflow.run.start.inputs import read_inputs
from stepflow.sandbox.environment import SYSTEM_PATH, user_programs


def add_validate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `validate`."""
    parser.add_argument("agents", nargs="*", metavar="NAME|PATH", help="agents to check (default: all under .agent/)")
    parser.add_argument(
        "--format",
        choices=("text", "json", "github", "sarif"),
        default="text",
        help="text: for people; json: for programs (`stepflow schema problems`); "
        "github: annotations of a workflow; sarif: for code scanning",
    )
    add_switch(parser, "--strict", "treat warnings as errors")
    parser.add_argument(
        "--private",
        action=argparse.BooleanOptionalAction,
        help="whether the repository is private, for the rule of two: strangers' text, something private and a way out "
        "may not meet in a step (default: look at both)",
    )
    add_flags(parser, ["allow"])


def execute_validate(arguments: argparse.Namespace) -> int:
    """Check the agents, print the problems, and return 2 if there is an error."""
    root = Path.cwd()
    inputs = read_inputs({"allow": arguments.allow or ""})
    try:
        checked = check_agents(
            arguments.agents,
            root,
            allow_spec_violations=inputs.allow_spec_violations,
            programs=programs_in((*user_programs(arguments.path, os.environ), *map(Path, SYSTEM_PATH))),
            private=arguments.private,
            strict=arguments.strict,
        )
    except InputError as missing:
        if arguments.format not in ("json", "sarif"):
            raise
        # Programs expect exactly one document.
        problem = NoAgent("SF101", AGENTS, missing.message, missing.hint).problem
        checked = Checked(inspections={AGENTS: Inspection(problems=(problem,))})
    match arguments.format:
        case "json":
            print_json(problems_json(checked.inspections, rules()), indent=2)
        case "github":
            print_lines(sys.stdout, problem_annotations(_of_repository(checked, root)))
        case "sarif":
            from importlib.metadata import version  # noqa: PLC0415 - costs more than the rest, and one format needs it

            log = sarif_log(_of_repository(checked, root), rules(), version=version("stepflow"))
            print_json(log, indent=2)
        case _:
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDE
            print_lines(sys.stdout, diagnostics(checked.inspections, rules(), width))
            if not checked.failed:
                print_lines(sys.stdout, (_next(checked, root),))
    return 2 if checked.failed else 0


def _next(checked: Checked, root: Path) -> Line:
    """Say what validating leaves out, and which command does it."""
    here = [agent for agent in checked.inspections if agent in find_agents(root)]
    one = len(checked.inspections) == len(here) == 1
    name, its = (here[0], "its") if one else ("NAME", "an agent's")
    return Line(Tone.PLAIN, f"Next: `stepflow preflight {name}` tries whether {its} checks can run here.")


def _of_repository(checked: Checked, root: Path) -> Sequence[Problem]:
    """Return the problems with paths from the root of the repository, which GitHub uses to identify files."""
    return from_above(checked.problems, root, repository_above(root))
