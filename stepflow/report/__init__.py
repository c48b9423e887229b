"""Shows people: events → report, log, summary, graph, annotations (house.md "Rooms"). Returns text, touches nothing."""

from typing import TYPE_CHECKING

from stepflow.door import open_when_asked
from stepflow.report.advice import BUG, advice, next_step

if TYPE_CHECKING:
    from stepflow.report.annotations import annotation, outcome_annotation, problem_annotations
    from stepflow.report.collect import collect_report
    from stepflow.report.comment import comment_summary, removed_part
    from stepflow.report.diagnostic import Ink, Paper, diagnostics
    from stepflow.report.diff import TOO_MUCH, Diffs, Room, StepDiff, step_diff
    from stepflow.report.document import ReportDocument, report_json, report_schema
    from stepflow.report.ending import ReportFacts
    from stepflow.report.explain import explanation, rule_list
    from stepflow.report.graph import (
        FlowGraph,
        GraphEdge,
        GraphNode,
        PathEdge,
        cost_words,
        flow_graph,
        graph_json,
        walked_path,
    )
    from stepflow.report.junit import junit_xml
    from stepflow.report.log import LogEntry, log_entries, log_line
    from stepflow.report.many import (
        gathered_document,
        gathered_json,
        gathered_lines,
        gathered_summary,
        gathered_told,
        page_summary,
        page_told,
    )
    from stepflow.report.mermaid import mermaid_graph
    from stepflow.report.plain import cut, harmless
    from stepflow.report.preflight import preflight_lines, preflight_reason, preflight_summary
    from stepflow.report.problem_document import problems_json, problems_schema
    from stepflow.report.rehearsal import (
        rehearsal_annotations,
        rehearsal_lines,
        rehearsal_summary,
        rehearsal_told,
        rehearsed_lines,
    )
    from stepflow.report.rehearsal_document import rehearsal_json
    from stepflow.report.sarif import sarif_log
    from stepflow.report.story_line import LineKind
    from stepflow.report.summary import job_summary
    from stepflow.report.timeline import Timeline
    from stepflow.report.watch import ActionLog, TerminalLog, folded_traceback
    from stepflow.report.words import final_words

__all__ = [
    "BUG",
    "TOO_MUCH",
    "ActionLog",
    "Diffs",
    "FlowGraph",
    "GraphEdge",
    "GraphNode",
    "Ink",
    "LineKind",
    "LogEntry",
    "Paper",
    "PathEdge",
    "ReportDocument",
    "ReportFacts",
    "Room",
    "StepDiff",
    "TerminalLog",
    "Timeline",
    "advice",
    "annotation",
    "collect_report",
    "comment_summary",
    "cost_words",
    "cut",
    "diagnostics",
    "explanation",
    "final_words",
    "flow_graph",
    "folded_traceback",
    "gathered_document",
    "gathered_json",
    "gathered_lines",
    "gathered_summary",
    "gathered_told",
    "graph_json",
    "harmless",
    "job_summary",
    "junit_xml",
    "log_entries",
    "log_line",
    "mermaid_graph",
    "next_step",
    "outcome_annotation",
    "page_summary",
    "page_told",
    "preflight_lines",
    "preflight_reason",
    "preflight_summary",
    "problem_annotations",
    "problems_json",
    "problems_schema",
    "rehearsal_annotations",
    "rehearsal_json",
    "rehearsal_lines",
    "rehearsal_summary",
    "rehearsal_told",
    "rehearsed_lines",
    "removed_part",
    "report_json",
    "report_schema",
    "rule_list",
    "sarif_log",
    "step_diff",
    "walked_path",
]

# A type checker is to know the names above and no others.
if not TYPE_CHECKING:
    __getattr__ = open_when_asked(
        __name__,
        {
            "annotations": "annotation outcome_annotation problem_annotations",
            "collect": "collect_report",
            "comment": "comment_summary removed_part",
            "diagnostic": "Ink Paper diagnostics",
            "diff": "TOO_MUCH Diffs Room StepDiff step_diff",
            "document": "ReportDocument report_json report_schema",
            "ending": "ReportFacts",
            "explain": "explanation rule_list",
            "graph": "FlowGraph GraphEdge GraphNode PathEdge cost_words flow_graph graph_json walked_path",
            "junit": "junit_xml",
            "log": "LogEntry log_entries log_line",
            "many": "gathered_document gathered_json gathered_lines gathered_summary gathered_told "
            "page_summary page_told",
            "mermaid": "mermaid_graph",
            "plain": "cut harmless",
            "preflight": "preflight_lines preflight_reason preflight_summary",
            "problem_document": "problems_json problems_schema",
            "rehearsal": "rehearsal_annotations rehearsal_lines rehearsal_summary rehearsal_told rehearsed_lines",
            "rehearsal_document": "rehearsal_json",
            "sarif": "sarif_log",
            "story_line": "LineKind",
            "summary": "job_summary",
            "timeline": "Timeline",
            "watch": "ActionLog TerminalLog folded_traceback",
            "words": "final_words",
        },
    )
