"""The step graph as a picture: definition and path → SVG. Imported only where one is drawn: it needs libraries."""

from stepflow.report.svg.draw import graph_svg

__all__ = ["graph_svg"]
