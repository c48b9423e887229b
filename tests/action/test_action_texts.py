"""What people read at the end of six kinds of run, as files: comment, pull request, summary, last lines.

`STEPFLOW_ACCEPT=1` writes the files anew; read them aloud before they are committed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkout import Invocation, labeled
from tests.world import READ_TOKEN, World, answer, bash, solve, understood

GOLDEN = Path(__file__).parent / "golden"
NOT_YET = answer("continuation.issue", "repeat", summary="not there yet")
HANDED_OFF = answer("continuation.issue", "handoff", summary="the world is greeted")

#: What differs from run to run.
MASKS = (
    (r"http://127\.0\.0\.1:\d+", "https://github.example"),
    (r"1001-1-[0-9a-f]{6}", "RUN"),
    (r"\b[0-9a-f]{40}\b", "COMMIT"),
    (r"[\d,]+ tokens · \$[\d.]+ · [\d.]+ s", "N tokens · $N · N s"),
    (r"(cost|today|spent)=[\d.]+", r"\1=N"),
    (r"(day|month)=[\d-]+", r"\1=DATE"),
    (r"history=\S+", "history=RUNS"),
    (r"(stepflow title=)[0-9a-f]{16} text=[0-9a-f]{16}", r"\1DIGEST text=DIGEST"),
    (r"(run folder\s+)\S+", r"\1FOLDER"),
)


def red(world: World) -> Invocation:
    """The model says three times that it is done, and a check says that it is not."""
    closing = solve()[-1]
    return world.run([understood(), bash("true"), HANDED_OFF, closing, HANDED_OFF, closing, HANDED_OFF, closing])


def refused(world: World) -> Invocation:
    """Whoever put the label on may only read."""
    world.github.state.permissions["bob"] = "read"
    world.github.read_token = READ_TOKEN
    return world.run(solve(), read_token=READ_TOKEN)


RUNS: dict[str, Callable[[World], Invocation]] = {
    "success": lambda world: world.run(solve()),
    "red check": red,
    "limit": lambda world: world.run([understood(), NOT_YET, NOT_YET], limits={"iterations": 2}),
    "refused": refused,
    "misconfigured": lambda world: world.run([], anthropic_api_key=""),
    "nothing to do": lambda world: world.run(solve(), labeled("bug")),
}


@pytest.mark.usefixtures("checked_base")
@pytest.mark.whole
@pytest.mark.parametrize("name", RUNS)
def test_what_people_read_is_what_was_read_aloud(name: str, world: World) -> None:
    text = masked(texts(world, RUNS[name](world)))
    golden = GOLDEN / f"{name.replace(' ', '-')}.md"
    if os.environ.get("STEPFLOW_ACCEPT"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
    prose = re.sub(r"`[^`]*`|<!--.*?-->|\(\w+_\w+\)", "", text)
    codes = r"Completion loop|Flow loop|FAILED_STEP_ROUTING|invalid_definition|validation_failed|limit_reached"
    assert not re.search(codes, prose), "a code is no sentence"


def texts(world: World, done: Invocation) -> str:
    """All of them, one below the other. Of the summary what stands above the picture of the steps."""
    parts = [f"# Comment\n\n{body}" for body in world.comments()]
    parts += [f"# Pull request: {pull['title']}\n\n{pull['body']}" for pull in world.pulls()]
    parts += [f"# Summary\n\n{done.summary.partition('### The path it took')[0].strip()}"]
    last = re.search(r"^(?:[✓✗].*\n(?:  .*\n)+)?(?:::(?:error|notice).*\n)?\Z", done.log, re.M)
    parts += [f"# Last lines of the log\n\n{last[0].strip()}" if last and last[0].strip() else "# No last lines"]
    return "\n\n".join(parts) + "\n"


def masked(text: str) -> str:
    for pattern, word in MASKS:
        text = re.sub(pattern, word, text)
    return text
