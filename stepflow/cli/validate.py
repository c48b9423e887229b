"""`stepflow validate [NAME|PATH …]`: every problem of every agent at once.

Takes: names or folders. Gives: exit code 2 when an agent has an error.
May touch: the agent folders, through `load/`, which imports neither the model's nor GitHub's library.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.domain.problem import Severity
from stepflow.errors import InputError
from stepflow.load import find_agents, validate_agent
from stepflow.report import problem_annotations, problem_lines, problems_counted

if TYPE_CHECKING:
    import argparse

    from stepflow.domain.problem import Problem


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `validate`."""
    parser.add_argument("agents", nargs="*", metavar="NAME|PATH", help="agents to check (default: all under .agent/)")
    parser.add_argument("--format", choices=("text", "json", "github"), default="text", help="how to print problems")
    parser.add_argument("--allow-spec-violations", action="store_true", help="accept `failFast: false` with a warning")
    parser.add_argument("--allow-custom-verdict", action="store_true", help="accept the verdict type `meta:custom`")


def execute(arguments: argparse.Namespace) -> int:
    """Check, print, and exit 2 on an error."""
    root = Path.cwd()
    agents = tuple(arguments.agents) or find_agents(root)
    if not agents:
        raise InputError(f"there is no agent under {root / '.agent'}.", hint="Name one, or stand in its repository.")
    found = {
        agent: validate_agent(
            agent,
            root=root,
            allow_spec_violations=arguments.allow_spec_violations,
            allow_custom_verdict=arguments.allow_custom_verdict,
        )
        for agent in agents
    }
    _print(found, arguments.format)
    return 2 if any(problem.severity is Severity.ERROR for each in found.values() for problem in each) else 0


def _print(found: dict[str, tuple[Problem, ...]], form: str) -> None:
    problems = [problem for each in found.values() for problem in each]
    match form:
        case "json":
            # Read by programs; the escape keeps a job's runner from obeying a text of the definition.
            told = json.dumps([asdict(problem) for problem in problems], indent=2)
            print(told.replace("##[", "##\\u005b"))
        case "github":
            for line in problem_annotations(problems):
                print(line)
        case _:
            for agent, each in found.items():
                print(*problem_lines(each), problems_counted(agent, each), sep="\n")
