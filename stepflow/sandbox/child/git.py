"""Runs git in the checkout for the engine: with a time limit, and past what redirects its view of history.

Takes: arguments. Gives: how it ended, or what it said.
May touch: git in the checkout, as the tools' user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .commands import run_command
from .paths import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .commands import Ended
    from .family import Family, Sink

_TIMEOUT = 120.0
#: Replaced objects and grafts show another history than the one that is there; taking a lock would be a change.
_PLAIN = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": "/dev/null", "GIT_OPTIONAL_LOCKS": "0"}
#: Naming a graft file makes git advise against grafts, at length and before it says what is wrong.
_UNADVISED = ("-c", "advice.graftFileDeprecated=false")


def git(
    family: Family, *arguments: str, stdout: Sink | None = None, extra_env: Mapping[str, str] | None = None
) -> Ended:
    """Run git. What else the toolbox has running goes on."""
    environment = {**_PLAIN, **(extra_env or {})}
    words = ("git", *_UNADVISED, *arguments)
    return run_command(family, words, _TIMEOUT, alone=False, stdout=stdout, extra_env=environment)


def said(ended: Ended) -> str:
    """What git printed; raises `Refusal` with its complaint when it failed."""
    if ended.exit_code != 0:
        raise Refusal(f"git could not tell: {ended.error or ended.stderr.strip() or f'exit code {ended.exit_code}'}")
    return ended.stdout


def listing(ended: Ended) -> list[str]:
    """The records of output that NUL characters part."""
    return [record for record in said(ended).split("\0") if record]
