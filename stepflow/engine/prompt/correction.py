"""The message that asks for a corrected answer (prompts.md §9.5).

Takes: the places where an answer does not fit its schema. Gives: the text to send in the same conversation.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.figures import count

if TYPE_CHECKING:
    from stepflow.domain.decision import FormatError

#: More errors than this are only counted.
MOST_ERRORS = 20
ROOT = "(answer)"


def correction_message(errors: tuple[FormatError, ...]) -> str:
    """What is wrong, sorted by path, and the request to send the whole object again."""
    lines = [_line(error) for error in sorted(errors, key=lambda error: (error.path, error.message))]
    left_out = len(lines) - MOST_ERRORS
    more = [f"… and {count(left_out, 'more error')}."] if left_out > 0 else []
    return "\n".join(
        (
            "Your answer does not fit the answer schema:",
            "",
            *lines[:MOST_ERRORS],
            *more,
            "",
            "Send the whole corrected JSON object again, and nothing else.",
        )
    )


def _line(error: FormatError) -> str:
    return f"{error.path or ROOT}: {' '.join(error.message.split())}"
