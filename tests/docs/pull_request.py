"""The picture of a pull request and its comment, in the words that a run of `stepflow demo` writes for GitHub.

`python -m tests.docs.pull_request` draws it again.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt

from tests.docs.page import ROOT
from tests.docs.story import run_demo

if TYPE_CHECKING:
    from collections.abc import Mapping

PICTURE = ROOT / "docs" / "pull-request.svg"

#: Pixels: the picture does not grow with its text, so look at it after a change.
WIDTH, HEIGHT = 880, 1100
STYLE = """
.page { color-scheme: light dark; box-sizing: border-box; height: 100%; padding: 24px;
  font: 14px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; color: #1f2328; background: #fff;
  border: 1px solid #d0d7de; border-radius: 6px; overflow: hidden }
h1 { font-size: 24px; font-weight: 400; margin: 0 0 8px } h1 span { color: #59636e; font-weight: 300 }
h2 { font-size: 16px; font-weight: 600; margin: 28px 0 12px }
.state { display: inline-block; padding: 4px 12px; border-radius: 2em; background: #59636e; color: #fff }
.small, .small code { color: #59636e; font-size: 12px }
.box { border: 1px solid #d0d7de; border-radius: 6px; margin-top: 16px }
.head { padding: 8px 16px; background: #f6f8fa; border-bottom: 1px solid #d0d7de; border-radius: 6px 6px 0 0;
  color: #59636e }
.head b { color: #1f2328 }
.body { padding: 4px 16px 0 } .body p, .body ul { margin: 10px 0 } .body ul { padding-left: 24px }
code { font: 12px ui-monospace, Menlo, Consolas, monospace; background: #eff1f3; border-radius: 6px; padding: 2px 5px }
hr { border: 0; border-top: 3px solid #d0d7de; margin: 16px 0 }
@media (prefers-color-scheme: dark) {
  .page { color: #f0f6fc; background: #0d1117; border-color: #3d444d } .head b { color: #f0f6fc }
  .box, .head { border-color: #3d444d } .head { background: #151b23; color: #9198a1 } hr { border-color: #3d444d }
  h1 span, .small, .small code { color: #9198a1 } code { background: #262c36 }
}
"""


def draw(issue: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    """Return the picture as SVG. Nothing is fetched to show it."""
    title, _, body = _steady(report["texts"]["open_pull_request"]).partition("\n\n")
    branch = next(effect["detail"] for effect in report["effects"] if effect["kind"] == "push_branch")
    labels = next(effect["detail"] for effect in report["effects"] if effect["kind"] == "add_labels")
    page = (
        f'<h1>{_inline(title)} <span>#8</span></h1><span class="state">Draft</span> <span class="small">'
        f"<b>github-actions</b> wants to merge into <code>main</code> from <code>{escape(branch)}</code></span>"
        f"{_box('opened this pull request', body)}"
        f"<h2>On the issue: {_inline(issue['title'])} #{issue['number']}</h2>"
        f'<span class="small"><b>github-actions</b> added the label <code>{escape(labels)}</code></span>'
        f"{_box('commented', _steady(report['texts']['post_comment']))}"
    )
    words = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(describe(report))}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {words}>\n<style>{STYLE}</style>\n'
        f'<foreignObject width="{WIDTH}" height="{HEIGHT}">'
        f'<div xmlns="http://www.w3.org/1999/xhtml" class="page">\n{page}\n'
        "</div></foreignObject>\n</svg>\n"
    )


def describe(report: Mapping[str, Any]) -> str:
    """Return the picture in words, for whoever cannot see it."""
    title = report["texts"]["open_pull_request"].partition("\n")[0]
    return f"The draft pull request “{title}” with what changed and which checks passed, and the comment on the issue."


def _steady(text: str) -> str:
    """A run's text without what differs from one run to the next: its seconds and its name."""
    return re.sub(
        r"run `\d{8}-\d{6}-\w{6}`", "run `20261128-101500-00ef4a`", re.sub(r"\b\d+(?:\.\d+)? s\b", "30 s", text)
    )


def _box(doing: str, markdown: str) -> str:
    html = MarkdownIt("commonmark", {"xhtmlOut": True}).render(markdown)
    return f'<div class="box"><div class="head"><b>github-actions</b> {doing}</div><div class="body">{html}</div></div>'


def _inline(markdown: str) -> str:
    return MarkdownIt("commonmark", {"xhtmlOut": True}).renderInline(markdown)


if __name__ == "__main__":
    PICTURE.write_text(draw(*run_demo()), encoding="utf-8")
