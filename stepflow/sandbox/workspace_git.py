"""Git in the workspace, run in the sandbox: commits everything for a rehearsal, starts a branch before a run, and runs
the engine's own git beside whatever runs there."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping
from typing import IO

from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.errors import InputError, StepflowError
from stepflow.ports import Commands
from stepflow.sandbox.box import Toolbox

_COMMIT = """
[ -e .git ] || git init --quiet --initial-branch=main
git add --all
if ! git rev-parse --quiet --verify HEAD > /dev/null || ! git diff --cached --quiet; then
  git -c core.hooksPath=/dev/null -c commit.gpgSign=false commit --quiet --allow-empty --no-verify \\
    --message 'Take in what was not committed before the rehearsal'
fi
"""
#: A branch at a commit, without what the checkout had not committed, which is listed. Files that git ignores stay, and
#: so do the packages of an environment that nobody told git to ignore.
_BRANCH = """
git rev-parse --quiet --verify HEAD > /dev/null || { echo 'it has no commit to begin at' >&2; exit 3; }
git reset --quiet
git diff --name-only
git ls-files --others --exclude-standard --directory | while read -r path; do
  if [ -e "$path/pyvenv.cfg" ] || [ "$(basename "$path")" = node_modules ]; then
    echo '*' > "$path/.gitignore"
  else
    echo "$path"
  fi
done
git clean --quiet -d --force --force
git -c core.hooksPath=/dev/null checkout --quiet --force -B "$1" "$2"
"""
_COMMIT_TIMEOUT = 300.0
#: Bytes of a program's output that are read by default.
OUTPUT_LIMIT = 64 * 1024 * 1024


def commit_everything(commands: Commands) -> None:
    """Commit, in the workspace, what the checkout had not committed: a validator may ask for a clean tree."""
    result = commands.run_command(CommandRequest(argv=("sh", "-e", "-c", _COMMIT), timeout=_COMMIT_TIMEOUT))
    if result.exit_code != 0:
        raise InputError(
            f"git cannot commit the copy for the rehearsal: {_output_of(result)}.",
            hint="See what `git status` and `git add --all --dry-run` say in the checkout.",
        )


def start_branch(commands: Commands, branch: str, commit: str) -> tuple[str, ...]:
    """Begin a branch at the commit, in the workspace; the files of the checkout whose uncommitted changes it does not
    have."""
    script = ("sh", "-e", "-c", _BRANCH, "sh", branch, commit)
    result = commands.run_command(CommandRequest(argv=script, timeout=_COMMIT_TIMEOUT))
    if result.exit_code != 0:
        raise InputError(
            f"git cannot start the branch {branch} in the copy of the checkout: {_output_of(result)}.",
            hint="See what `git status` says in the checkout, or let the run work on your branch with --in-place.",
        )
    return tuple(result.stdout.splitlines())


def _output_of(result: CommandResult) -> str:
    return (result.error or result.stderr or result.stdout).strip().rstrip(".")[-1000:]


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
        limit: int = OUTPUT_LIMIT,
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
        limit: int = OUTPUT_LIMIT,
        complaints: list[str] | None = None,
    ) -> bytes:
        """What git prints, unless `feed` takes it; `complaints` gets what it says beside that. Raises
        `WorkspaceGitFailed` for an exit code that is not `fine`."""
        output = bytearray()
        environment = {**self._environment, **(env or {})}
        result = self._programs.run(("git", *words), environment, stdin, feed=feed or output.extend, limit=limit)
        if result.exit_code not in fine:
            why = (result.stderr or result.error).strip()[-500:] or f"exit code {result.exit_code}"
            raise WorkspaceGitFailed(f"git {words[0]} failed: {why}")
        if complaints is not None:
            complaints.append(result.stderr)
        return bytes(output)
