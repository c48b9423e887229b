"""One page that shows a whole run: events → `report.html`. Imported only where one is written: it needs Jinja2."""

from stepflow.report.html.page import report_html

__all__ = ["report_html"]
