"""One page that shows a whole run: events → `report.html`. Imported only where one is written: it needs Jinja2."""
