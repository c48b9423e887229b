"""A page that shows Markdown as GitHub's page of a job does, with Mermaid drawn by its own package.

The style is our own, near enough to GitHub's to see what a table or a fold looks like there.
"""

from __future__ import annotations

import html
from pathlib import Path

from markdown_it import MarkdownIt

STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem; font: 16px/1.5 system-ui, sans-serif;
  background: light-dark(#fff, #0d1117); color: light-dark(#1f2328, #e6edf3); overflow-wrap: break-word; }
h2, h3 { border-bottom: 1px solid light-dark(#d0d7de, #30363d); padding-bottom: 0.3em; }
table { display: block; width: max-content; max-width: 100%; overflow: auto; border-collapse: collapse; }
th, td { border: 1px solid light-dark(#d0d7de, #30363d); padding: 6px 13px; }
tr:nth-child(2n) { background: light-dark(#f6f8fa, #161b22); }
code { font: 85% ui-monospace, monospace; background: light-dark(#eff1f3, #262c36); border-radius: 6px;
  padding: 0.2em 0.4em; }
pre { background: light-dark(#f6f8fa, #161b22); padding: 16px; overflow: auto; border-radius: 6px; }
pre code { background: none; padding: 0; }
.mermaid { background: none; text-align: center; }
a { color: light-dark(#0969da, #4493f8); }
"""
DRAW = """
const theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "default";
mermaid.initialize({ startOnLoad: false, securityLevel: "strict", theme });
mermaid.run({ querySelector: ".mermaid" })
  .catch((error) => console.error(`mermaid: ${error.message ?? error}`))
  .finally(() => { document.documentElement.dataset.drawn = "yes"; });
"""


def github_page(markdown: str, packages: Path, version: str) -> str:
    """The page; a script in it draws every Mermaid block and says so then."""
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    reader.options["highlight"] = _highlight
    return _page(reader.render(markdown), packages, version)


def pictures_page(pictures: list[str], packages: Path, version: str) -> str:
    """A page of pictures alone."""
    return _page("".join(f'<pre class="mermaid">{html.escape(one)}</pre>' for one in pictures), packages, version)


def _page(body: str, packages: Path, version: str) -> str:
    library = (
        (packages / version / "dist" / "mermaid.min.js").read_text(encoding="utf-8").replace("</script", "<\\/script")
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Summary</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style>'
        f"<main>{body}</main><script>{library}</script><script>{DRAW}</script></html>"
    )


def _highlight(text: str, language: str, attributes: str) -> str:
    del attributes
    return f'<pre class="mermaid">{html.escape(text)}</pre>' if language == "mermaid" else ""
