"""What git says when it fails, in our words.

Takes: the command, what it wrote to stderr. Gives: a `GitFailed` that says what to change, and whether it may pass.
May touch: nothing.
"""

from __future__ import annotations

import re

from stepflow.boundary.writer import GitHubFailed
from stepflow.domain.way import DIRECT, Way

_AGAIN = "Start the run again when GitHub works (see githubstatus.com): the branch is looked at before it is written."
#: What to change when the server says this; the first that fits.
_HINTS = {
    "verified signature": "A branch rule demands signed commits: exempt the run's branches from it.",
    "workflow": "The token may not change workflow files.",
    "GH006": "A branch rule protects this branch: exempt the run's branches from it.",
    "GH013": "A repository rule forbids this push: exempt the run's branches from it.",
    "hook declined": "A hook of the server refused the commits: what it says is above. Exempt the run's branches from "
    "it, or tell the agent in its prompts what the hook demands.",
    "non-fast-forward": "The server forbids to replace the commits of an earlier run: allow forced updates of the "
    "run's branches, or delete the branch.",
    "stale info": "Somebody else pushes to the run's branches at the same time: start the run again.",
    "error: 403": "The token may not push: the job needs `contents: write`.",
    "could not read Username": "The token is not accepted: check `github-token`.",
    "Authentication failed": "The token is not accepted: check `github-token`.",
    "error: 404": "The repository is not there (any more), or the token may not see it: check `github-server-url`.",
    "not found": "The repository is not there (any more), or the token may not see it: check `github-server-url`.",
}
_MOVED = re.compile(r"returned error: 30\d")
_LIMITED = re.compile(r"returned error: 429")
#: The server's trouble, the network's, and the page of a proxy in the place of an answer.
_PASSES = re.compile(
    r"returned error: (?:5\d\d|429)|Empty reply from server|Could not resolve host|Failed to connect|"
    r"Connection (?:reset|refused|timed out)|Operation (?:timed out|too slow)|early EOF|dumb http transport|"
    r"SSL_ERROR_SYSCALL|handshake(?:\(\))? failed|non-properly terminated|Recv failure|transfer closed",
    re.IGNORECASE,
)

#: The way to the server failed, not the server.
_UNREACHED = re.compile(
    r"Could not resolve|Failed to connect|Couldn't connect|certificate|CONNECT|from proxy|proxy|timed out",
    re.IGNORECASE,
)


class GitFailed(GitHubFailed):
    """A git command failed. `said` is what it wrote to stderr, without secrets."""

    def __init__(self, message: str, *, said: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.said = said
        self.passes, self.limited = bool(_PASSES.search(said)), bool(_LIMITED.search(said))

    @property
    def moved(self) -> bool:
        """True when the repository has another address now."""
        return bool(_MOVED.search(self.said))


def git_failed(command: str, said: str, *, way: Way = DIRECT) -> GitFailed:
    """The failure of one command, with what to do."""
    failed = GitFailed(f"`git {command}` failed: {said}.", said=said)
    failed.hint = next((hint for sign, hint in _HINTS.items() if sign in said), _AGAIN if failed.passes else "")
    if advice := way.advice(said) if _UNREACHED.search(said) else "":
        failed.hint = advice
    if failed.moved:
        failed.hint = "The repository has another address now: start the run again, it then uses the new one."
    return failed
