"""Colours and width of a terminal, without a library: what answers at once must not load one.

Takes: the stream and the environment. Gives: the `Theme` that a report writes on.
May touch: asks the terminal for its width.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from stepflow.report.diagnostic import Style, Theme

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

_CODES = {Style.ERROR: "1;31", Style.WARNING: "1;33", Style.NOTE: "1;36", Style.FRAME: "34", Style.HELP: "1;32"}
NARROWEST, WIDEST = 40, 100


def paper_for(out: TextIO, environ: Mapping[str, str] = os.environ) -> Theme:
    """Coloured and wrapped on a terminal, plain and with lines of any length where it is piped."""
    width = None
    if out.isatty():
        width = min(max(shutil.get_terminal_size().columns, NARROWEST), WIDEST)
    return Theme(width=width, style=_coloured) if coloured(out, environ) else Theme(width=width)


def coloured(out: TextIO, environ: Mapping[str, str]) -> bool:
    """https://no-color.org, and FORCE_COLOR as rich reads it."""
    if environ.get("NO_COLOR"):
        return False
    return bool(environ.get("FORCE_COLOR")) or (out.isatty() and environ.get("TERM") != "dumb")


def _coloured(style: Style, text: str) -> str:
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"
