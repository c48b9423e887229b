"""git for snapshots: words and environment that nothing in the workspace changes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from .enter_sandbox import config_variables
from .git import PLAIN_ENVIRONMENT, Sink, run_program
from .paths import OperationRefused

#: Bytes of git's output that are read by default.
_OUTPUT_LIMIT = 64 * 1024 * 1024
_ENVIRONMENT = {
    **PLAIN_ENVIRONMENT,
    "LC_ALL": "C",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    **{f"GIT_{who}_{what}": "stepflow" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    # Later than any commit of the repository, so that git goes through its history no further than to the base.
    "GIT_AUTHOR_DATE": "@4102444800 +0000",
    "GIT_COMMITTER_DATE": "@4102444800 +0000",
    # Whatever the workspace configures: nothing is started, no content is converted, and nothing goes on afterwards.
    **config_variables(
        (
            ("safe.directory", "*"),
            ("advice.graftFileDeprecated", "false"),
            ("core.hooksPath", os.devnull),
            ("core.fsmonitor", "false"),
            ("core.untrackedCache", "false"),
            ("core.splitIndex", "false"),
            ("core.logAllRefUpdates", "false"),
            ("core.attributesFile", os.devnull),
            ("core.autocrlf", "false"),
            ("core.safecrlf", "false"),
            ("core.fileMode", "true"),
            ("core.symlinks", "true"),
            ("core.sparseCheckout", "false"),
            # Any name that the tools can give a file is one; `.git` itself never is.
            ("core.protectNTFS", "false"),
            ("core.quotePath", "false"),
            # Larger files are shown as binary ones are, and not unpacked in memory: a pack of a few kilobytes may hold
            # one of a gigabyte.
            ("core.bigFileThreshold", "256k"),
            ("core.looseCompression", "1"),
            ("core.fsync", "none"),
            ("pack.compression", "1"),
            ("pack.threads", "1"),
            ("gc.auto", "0"),
            ("submodule.recurse", "false"),
        )
    ),
}


class PrintsTooMuch(OperationRefused):
    """A git prints more than is read of it."""


@dataclass(frozen=True, kw_only=True)
class SnapshotGit:
    """git in one repository, until the deadline."""

    environment: Mapping[str, str]
    #: Where its input is kept.
    stdin: str
    seconds: float
    deadline: float

    def __call__(
        self,
        *words: str,
        stdin: bytes | int = b"",
        env: Mapping[str, str] | None = None,
        fine: tuple[int, ...] = (0,),
        sink: Sink | None = None,
        limit: int = _OUTPUT_LIMIT,
        complaints: list[str] | None = None,
    ) -> bytes:
        """What git prints, unless the sink takes it; `complaints` gets what it says beside that. Raises
        `OperationRefused` for an exit code that is not `fine`."""
        _, output, said = self.run(("git", *words), stdin=stdin, env=env, fine=fine, sink=sink, limit=limit)
        if complaints is not None:
            complaints.append(said)
        return output

    def run(
        self,
        words: Sequence[str],
        *,
        stdin: bytes | int = b"",
        env: Mapping[str, str] | None = None,
        fine: tuple[int, ...] | None = (0,),
        sink: Sink | None = None,
        limit: int = _OUTPUT_LIMIT,
    ) -> tuple[int, bytes, str]:
        """How a program ended, what it printed, unless the sink takes it, and what it said beside that. Raises
        `OperationRefused` for an exit code that is not `fine`, `PrintsTooMuch` for more than `limit` bytes."""
        output, left = bytearray(), limit

        def take(data: bytes) -> None:
            nonlocal left
            left -= len(data)
            if left < 0:
                raise PrintsTooMuch(f"{' '.join(words[:2])} prints more than {limit} bytes.")
            (sink or output.extend)(data)

        environment = {**os.environ, **_ENVIRONMENT, **self.environment, **(env or {})}
        run = partial(run_program, words, environment, max(self.deadline - time.monotonic(), 0.0), stdout=take)
        if isinstance(stdin, int):
            ended = run(stdin=stdin)
        elif stdin:
            with open(self.stdin, "w+b", buffering=0) as file:
                file.write(stdin)
                file.seek(0)
                ended = run(stdin=file.fileno())
        else:
            ended = run()
        if time.monotonic() >= self.deadline:
            raise OperationRefused(f"It took longer than {self.seconds:g} s.")
        if fine is not None and ended.exit_code not in fine:
            why = (ended.stderr or ended.error).strip()[-500:] or f"exit code {ended.exit_code}"
            raise OperationRefused(f"{' '.join(words[:2])} failed: {why}")
        return ended.exit_code, bytes(output), ended.stderr

    def line(self, *words: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> str:
        """The one line that git prints."""
        return self(*words, stdin=stdin, env=env).decode().strip()
