"""What git does in a workspace before a run: everything committed for a rehearsal, or a branch begun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.checkout import CommandRequest
from stepflow.errors import InputError

if TYPE_CHECKING:
    from stepflow.domain.checkout import CommandResult
    from stepflow.ports import Commands

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
