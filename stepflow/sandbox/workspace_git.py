"""The engine's git in the sandbox: words and environment that nothing in the workspace changes."""

from __future__ import annotations

import io
import os
import shlex
import time
from collections.abc import Callable, Mapping
from typing import IO

from stepflow.domain.checkout import CommandResult
from stepflow.errors import StepflowError
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.child.enter_sandbox import config_variables
from stepflow.sandbox.child.git import PLAIN_ENVIRONMENT

#: Bytes of a program's output that are read by default.
_PROGRAM_OUTPUT_LIMIT = 64 * 1024 * 1024
#: The exit code of a script that found what git would wait for.
_WOULD_WAIT = 3
#: Ends where git would wait for a pipe, a socket or a device as if it were a file of its own.
REFUSE_TO_WAIT = f"""
found=$(find -L .git -maxdepth 3 '(' -type p -o -type s -o -type c ')' -print -quit) || :
[ -z "$found" ] || {{ printf %s "$found"; exit {_WOULD_WAIT}; }}
"""
ENVIRONMENT = {
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


class WorkspaceGitFailed(StepflowError):
    """git did not do what it was asked for."""


class ProgramRunner:
    """Runs programs in the sandbox with these variables, all of them together within so many seconds from `begin`."""

    def __init__(self, toolbox: Toolbox, environment: Mapping[str, str]) -> None:
        self._toolbox, self._environment = toolbox, environment
        self._seconds = self._deadline = 0.0

    def begin(self, seconds: float) -> None:
        """Count from now."""
        self._seconds, self._deadline = seconds, time.monotonic() + seconds

    def run(
        self,
        argv: tuple[str, ...],
        environment: Mapping[str, str],
        stdin: bytes | IO[bytes],
        *,
        feed: Callable[[bytes], object],
        limit: int = _PROGRAM_OUTPUT_LIMIT,
    ) -> CommandResult:
        """How it ended. Raises `StepflowError` when there is no time left."""
        result = self._toolbox.run_program(
            argv,
            environment={**self._environment, **environment},
            timeout=max(self._deadline - time.monotonic(), 0.0),
            stdin=io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin,
            sink=feed,
            limit=limit,
        )
        if result.timed_out:
            raise StepflowError(f"It took longer than {self._seconds:g} s.")
        return result


class WorkspaceGit:
    """git in one repository."""

    def __init__(self, programs: ProgramRunner, environment: Mapping[str, str]) -> None:
        self._programs, self._environment = programs, environment

    def __call__(
        self,
        *words: str,
        stdin: bytes | IO[bytes] = b"",
        env: Mapping[str, str] | None = None,
        fine: tuple[int, ...] = (0,),
        feed: Callable[[bytes], object] | None = None,
        limit: int = _PROGRAM_OUTPUT_LIMIT,
        complaints: list[str] | None = None,
    ) -> bytes:
        """What git prints, unless `feed` takes it; `complaints` gets what it says beside that. Raises
        `WorkspaceGitFailed` for an exit code that is not `fine`."""
        output = bytearray()
        environment = {**self._environment, **(env or {})}
        result = self._programs.run(("git", *words), environment, stdin, feed=feed or output.extend, limit=limit)
        _demand(result, fine, f"git {words[0]}")
        if complaints is not None:
            complaints.append(result.stderr)
        return bytes(output)

    def run_script(self, script: str, *, stdin: bytes = b"") -> tuple[bytes, str]:
        """What a shell script prints that ends at the first program that fails, and what it complains of. Raises
        `WorkspaceGitFailed`, and `StepflowError` for what `REFUSE_TO_WAIT` finds."""
        output = bytearray()
        argv = ("sh", "-e", "-c", script)
        result = self._programs.run(argv, self._environment, stdin, feed=output.extend)
        if result.exit_code == _WOULD_WAIT:
            raise StepflowError(
                f"{os.fsdecode(bytes(output)).strip()!r} is not a regular file, so git would wait there."
            )
        _demand(result, (0,), "git")
        return bytes(output), result.stderr

    def as_shell(self, *words: str) -> str:
        """A command of this git for a script of another one."""
        variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in self._environment.items())
        return f"{variables} git {shlex.join(words)}"


def _demand(result: CommandResult, fine: tuple[int, ...], name: str) -> None:
    if result.exit_code not in fine:
        why = (result.stderr or result.error).strip()[-500:] or f"exit code {result.exit_code}"
        raise WorkspaceGitFailed(f"{name} failed: {why}")
