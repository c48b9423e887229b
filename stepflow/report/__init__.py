"""Shows people: events → report, log, summary, graph, annotations (house.md "Rooms"). Returns text, touches nothing."""

from stepflow.report.collect import ReportFacts, collect_report
from stepflow.report.document import ReportDocument, report_json, report_schema
from stepflow.report.history import RESUMED

__all__ = [
    "RESUMED",
    "ReportDocument",
    "ReportFacts",
    "collect_report",
    "report_json",
    "report_schema",
]
