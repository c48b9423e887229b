"""Text that tries to be more than text, and what GitHub's runner would obey of a log."""

from __future__ import annotations

import re

from hypothesis import strategies as st

PIECES = (
    "::error::x",
    "::set-output name=a::b",
    "::stop-commands::t",
    "##[group]x",
    "##[error]",
    "#\u200b#[error]x",
    "\u200b::add-mask::x",
    ":\u2060:error::x",
    "\x1b[31mred\x1b[0m",
    "\x1b]8;;https://evil.test\x07link\x1b]8;;\x07",
    "\r\n",
    "\n",
    "\r",
    "\u2028",
    "\x85",
    "\x0c",
    "\u3000",
    "\u00a0",
    " ",
    "| a | b |",
    "|\n| --- |\n",
    "`",
    "```",
    "~~~~",
    "<script>alert(1)</script>",
    "</details>",
    "<img src=x onerror=y>",
    "<!-- -->",
    "![i](https://evil.test/i.png)",
    "[l](https://evil.test)",
    "https://evil.test/a",
    "www.evil.test",
    "<https://evil.test>",
    "# h",
    "- item",
    "1. one",
    "**b**",
    "_e_",
    "~~s~~",
    "$x$",
    "\\",
    '"',
    "'",
    "]]",
    "}}",
    "end",
    "style a:#;",
    "%%{init: {}}%%",
    "#quot;",
    "&lt;",
    "\udc80",
    "😀",
    "é",
    "%0A",
    "=",
    "+",
    ">",
)
TEXT = st.lists(st.sampled_from(PIECES) | st.text(st.characters(), max_size=4), max_size=7).map("".join)

#: Commands of the runner; anything else between `::` is only text to it.
COMMANDS = (
    "add-mask|add-matcher|debug|echo|endgroup|error|group|notice|remove-matcher|save-state|set-env|add-path|"
    "set-output|stop-commands|warning|internal-set-repo-path"
)
#: What a comparison by culture skips, as the runner's does.
SKIPPED = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]"
)


def obeyed(output: str) -> list[str]:
    """The workflow commands that the runner would carry out, by name. `stop-commands` tokens are not modeled."""
    commands = []
    for line in re.split(r"\r\n|\r|\n", output):
        seen = SKIPPED.sub("", line)
        at_start = re.match(rf"\s*::({COMMANDS})( [^\n]*?)?::", seen)
        anywhere = re.search(r"##\[([^\]]*)\]?", seen)
        commands += [match[1] for match in (at_start or anywhere,) if match]
    return commands
