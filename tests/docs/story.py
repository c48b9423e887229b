"""The README's first picture: the issue, the checks and the draft pull request of `stepflow demo`.

`python -m tests.docs.story` draws it again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.docs.page import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PICTURE = ROOT / "docs" / "story.svg"

#: Pixels. A README is about 830 wide, and the text stays readable on a phone that shrinks the picture by half.
WIDTH, HEIGHT, TOP, LINE = 960, 264, 20, 22
CARDS = ((0, 240), (280, 380), (700, 260))
STYLE = """
text { font: 14px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.code { font: 13px ui-monospace, Menlo, Consolas, monospace }
.title { font-weight: 600; font-size: 15px }
.small { fill: #59636e; font-size: 12px }
.good { fill: #1a7f37 }
.bad { fill: #d1242f }
.card { fill: #fff; stroke: #d0d7de }
.label { fill: #ddf4ff; stroke: #54aeff }
.draft { fill: #59636e }
.on-draft { fill: #fff; font-size: 12px; font-weight: 600 }
.arrow { stroke: #59636e; stroke-width: 2; fill: none }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .small { fill: #9198a1 }
  .good { fill: #3fb950 }
  .bad { fill: #f85149 }
  .card { fill: #0d1117; stroke: #3d444d }
  .label { fill: #10233d; stroke: #1f6feb }
  .draft { fill: #656c76 }
  .arrow { stroke: #9198a1 }
}
"""


def run_demo() -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the demo and return its issue and its report."""
    with tempfile.TemporaryDirectory(prefix="stepflow-story-") as folder:
        kept = Path(folder) / "kept"
        command = [sys.executable, "-m", "stepflow", "demo", "--keep", str(kept)]
        subprocess.run(command, env={"PATH": os.environ["PATH"]}, cwd=ROOT, capture_output=True, check=True)
        issue = json.loads((kept / "issue.json").read_text(encoding="utf-8"))["issue"]
        return issue, json.loads((kept / "run/report.json").read_text(encoding="utf-8"))


def draw(issue: dict[str, Any], report: dict[str, Any]) -> str:
    """Return the picture as SVG. It names no font file and no address: nothing is fetched to show it."""
    columns = (_draw_issue(issue, report), _draw_checks(report), _draw_pull_request(report))
    cards = "\n".join(
        f'<g transform="translate({left} 0)">'
        f'<rect class="card" x="1" y="1" width="{width - 2}" height="{HEIGHT - 2}" rx="8"/>{"".join(column)}</g>'
        for (left, width), column in zip(CARDS, columns, strict=True)
    )
    arrows = "".join(f'<path class="arrow" d="M{left + width + 8} 40h22m-7-6l7 6l-7 6"/>' for left, width in CARDS[:-1])
    words = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(describe(report))}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {words}>\n<style>{STYLE}</style>\n{cards}\n{arrows}\n</svg>\n'


def describe(report: dict[str, Any]) -> str:
    """Return the picture in words, for whoever cannot see it."""
    failed = next(check for check in report["validators"] if not check["passed"])
    return (
        f"An issue with the label agent:{report['agent']}; the check {failed['command']} fails and sends the agent "
        "back; both checks pass the second time, and a draft pull request is opened."
    )


def _text(line: float, text: str, *names: str, left: int = 16) -> str:
    return f'<text x="{left}" y="{TOP + LINE * line + 4:g}" class="{" ".join(names)}">{escape(text)}</text>'


def _paragraph(line: float, text: str, width: int, *names: str) -> Iterator[str]:
    for at, part in enumerate(textwrap.wrap(text, width)):
        yield _text(line + at, part, *names)


def _draw_issue(issue: dict[str, Any], report: dict[str, Any]) -> Iterator[str]:
    yield _text(0.5, f"Issue #{issue['number']}", "small")
    yield from _paragraph(1.6, issue["title"], 22, "title")
    label = f"agent:{report['agent']}"
    yield f'<rect class="label" x="16" y="{TOP + LINE * 4.2:g}" width="{9 * len(label)}" height="22" rx="11"/>'
    yield _text(4.75, label, left=26)
    wish = issue["body"].strip().splitlines()[-1].replace("`", "")
    yield from _paragraph(6.6, wish, 30, "small")


def _draw_checks(report: dict[str, Any]) -> Iterator[str]:
    line = 0.5
    rounds = sorted({check["iteration"] for check in report["validators"]})
    for number, iteration in enumerate(rounds, start=1):
        yield _text(line, f"The agent says it is done: your checks, round {number}", "small")
        line += 1.1
        for check in (check for check in report["validators"] if check["iteration"] == iteration):
            mark, name = ("✓", "good") if check["passed"] else ("✗", "bad")
            yield _text(line, mark, name)
            yield _text(line, f"{check['name']}: {check['command']}", "code", left=36)
            line += 1
            if not check["passed"]:
                failed = re.search(r"^(?:ERROR|FAIL): (\w+)", check["output_tail"], re.MULTILINE)
                assert failed is not None
                yield _text(line, failed[1], "code", "bad", left=36)
                yield _text(line + 1, "sent back, with the output of the check", left=36)
                line += 2
        line += 0.6
    yield _text(line, "Only now does a separate process write to GitHub.", "small")


def _draw_pull_request(report: dict[str, Any]) -> Iterator[str]:
    yield f'<rect class="draft" x="16" y="{TOP + 1}" width="52" height="22" rx="11"/>'
    yield _text(0.55, "Draft", "on-draft", left=26)
    yield _text(0.55, "pull request", "small", left=76)
    yield from _paragraph(1.9, report["structured_output"]["pull_request"]["title"], 28, "title")
    changes = report["changes"]
    yield _text(4.2, f"{changes['count']} files changed", "small")
    yield _text(4.2, f"+{changes['added']}", "small", "good", left=120)
    yield _text(4.2, f"−{changes['removed']}", "small", "bad", left=152)
    last = report["iterations"]
    for at, check in enumerate(check for check in report["validators"] if check["iteration"] == last):
        yield _text(5.5 + at, "✓", "good")
        yield _text(5.5 + at, check["name"], "code", left=36)
    yield _text(7.9, f"{report['iterations']} iterations", "small")
    yield _text(8.8, f"${report['cost_usd']:.2f}: the demo's model is scripted", "small")
    yield _text(9.7, f"Closes #{report['issue']}", "small")


if __name__ == "__main__":
    PICTURE.write_text(draw(*run_demo()), encoding="utf-8")
    print(f"{PICTURE.relative_to(Path.cwd())}: {PICTURE.stat().st_size} bytes")
