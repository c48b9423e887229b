"""The step graph as a picture: definition and path → SVG. Imported only where one is drawn: it needs libraries."""
