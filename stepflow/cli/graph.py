"""`stepflow graph NAME` draws an agent's steps, with the path of a run if one is given."""

from __future__ import annotations

import argparse
from pathlib import Path

from stepflow.cli.options import add_agent, add_flags
from stepflow.cli.terminal import print_document, print_json
from stepflow.definition.loading import load_agent
from stepflow.definition.rule_of_two import UNKNOWN, find_exposures
from stepflow.definition.rules import rules
from stepflow.domain.agent.definition import Inspection
from stepflow.errors import DefinitionError
from stepflow.journal import iter_journal
from stepflow.report.collect import collect_report
from stepflow.report.document import problems_json
from stepflow.report.flow_graph import cost_words, graph_json, mermaid_graph, walked_path
from stepflow.run.start.inputs import read_inputs


def add_graph_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `graph`."""
    add_agent(parser)
    parser.add_argument("--format", choices=("mermaid", "svg", "json"), default="mermaid", help="how to draw it")
    parser.add_argument("--run", metavar="DIR", help="a run folder whose path is drawn into the graph")
    add_flags(parser, ["allow"])


def execute_graph(arguments: argparse.Namespace) -> int:
    """Print the graph."""
    inputs = read_inputs({"allow": arguments.allow or ""})
    try:
        agent = load_agent(arguments.agent, root=Path.cwd(), allow_spec_violations=inputs.allow_spec_violations)
    except DefinitionError as refused:
        if arguments.format != "json":
            raise
        problems = refused.problems
        print_json(problems_json({arguments.agent: Inspection(problems=problems)}, rules()), indent=2)
        return refused.exit_code
    report = collect_report(iter_journal(Path(arguments.run) / "journal.jsonl"), agent) if arguments.run else None
    path = walked_path(report) if report else None
    exposures = find_exposures(agent, UNKNOWN)
    match arguments.format:
        case "json":
            print_json(graph_json(agent, path, exposures), indent=2)
        case "svg":
            from stepflow.report.graph_svg import graph_svg  # noqa: PLC0415 - templates and layout cost time

            costs = cost_words(report) if report else None
            print_document(graph_svg(agent, path, costs=costs, exposures=exposures))
        case _:
            print_document(mermaid_graph(agent, path, exposures))
    return 0
