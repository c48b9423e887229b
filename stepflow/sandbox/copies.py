"""A copy of the checkout for a rehearsal or a run: whatever happens in it, the checkout itself stays as it is."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.domain.checkout import CommandRequest
from stepflow.errors import InputError
from stepflow.sandbox.child.paths import vanishing_suppressed
from stepflow.sandbox.tree_walk import remove_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.domain.checkout import CommandResult
    from stepflow.ports import Commands

GIT = ".git"
_GITDIR = "gitdir:"
#: Another git is at work while these exist; in a copy nobody would ever remove them.
_LOCK = ".lock"
#: The history of a copy must be its own: git's configuration could name the work tree of the original (core.worktree).
_COMMIT = """
if [ -e .git ]; then
  [ "$(git rev-parse --show-toplevel)" -ef . ] || { echo 'git works in another folder than this copy' >&2; exit 3; }
else
  git init --quiet --initial-branch=main
fi
git add --all
if ! git rev-parse --quiet --verify HEAD > /dev/null || ! git diff --cached --quiet; then
  git -c core.hooksPath=/dev/null -c commit.gpgSign=false commit --quiet --allow-empty --no-verify \\
    --message 'Take in what was not committed before the rehearsal'
fi
"""
#: A branch at a commit, without what the checkout had not committed, which is listed. Files that git ignores stay, and
#: so do the packages of an environment that nobody told git to ignore.
_BRANCH = """
[ "$(git rev-parse --show-toplevel)" -ef . ] || { echo 'git works in another folder than this copy' >&2; exit 3; }
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


@contextlib.contextmanager
def copy_folder() -> Iterator[Path]:
    """A folder that the tools' user can walk, removed at the end whatever tools left in it."""
    folder = Path(tempfile.mkdtemp(prefix="stepflow-copy-")).resolve()
    try:
        if os.geteuid() == 0:
            # Only for a root parent the tools are somebody else; nobody else's copy is for others to read.
            folder.chmod(0o755)
        yield folder
    finally:
        remove_path(folder)


def copy_checkout(source: Path, target: Path, *, history: bool = True) -> None:
    """Copy files, folders, links and modes; ignored files too, since validators may need them (`node_modules`).

    A `.git` folder is copied with its `history`, where that is wanted. A `.git` file leads out of the checkout (a
    linked worktree) and stays behind, so that nothing in the copy can change the repository that it belongs to.
    """
    root = source.resolve()
    # The folder for temporary files may lie in the checkout itself.
    own = (target, target.parent)
    try:
        _copy_folder(root, target, root, own, history)
    except OSError as exc:
        raise InputError(
            f"The checkout {source} cannot be copied: {exc.strerror}: {exc.filename}.",
            hint="Make the file readable, or remove it; and see whether there is room for temporary files.",
        ) from exc


def commit_everything(commands: Commands) -> None:
    """Commit, in the copy, what the checkout had not committed: a validator may ask for a clean tree."""
    result = commands.run_command(CommandRequest(argv=("sh", "-e", "-c", _COMMIT), timeout=_COMMIT_TIMEOUT))
    if result.exit_code != 0:
        raise InputError(
            f"git cannot commit the copy for the rehearsal: {_output_of(result)}.",
            hint="See what `git status` and `git add --all --dry-run` say in the checkout.",
        )


def start_branch(commands: Commands, branch: str, commit: str) -> tuple[str, ...]:
    """Begin a branch at the commit, in the copy; the files of the checkout whose uncommitted changes it does not
    have."""
    script = ("sh", "-e", "-c", _BRANCH, "sh", branch, commit)
    result = commands.run_command(CommandRequest(argv=script, timeout=_COMMIT_TIMEOUT))
    if result.exit_code != 0:
        raise InputError(
            f"git cannot start the branch {branch} in the copy of the checkout: {_output_of(result)}.",
            hint="See what `git status` says in the checkout, or let the run work there with --in-place.",
        )
    return tuple(result.stdout.splitlines())


def _output_of(result: CommandResult) -> str:
    return (result.error or result.stderr or result.stdout).strip().rstrip(".")[-1000:]


def _copy_folder(folder: Path, target: Path, source: Path, own: tuple[Path, ...], history: bool) -> None:
    target.mkdir()
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name == GIT and not history:
                continue
            with vanishing_suppressed(Path(entry.path)):
                _copy_entry(entry, target / entry.name, source, own, history)
    shutil.copystat(folder, target)


def _copy_entry(entry: os.DirEntry[str], copy: Path, source: Path, own: tuple[Path, ...], history: bool) -> None:
    path = Path(entry.path)
    if entry.is_symlink():
        copy.symlink_to(_inside_copy(path.readlink(), source, copy, path))
    elif entry.is_dir():
        if path not in own and not _is_of_no_use(path, source):
            _copy_folder(path, copy, source, own, history)
    elif stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode) and not _is_of_no_use(path, source):
        shutil.copy2(path, copy, follow_symlinks=False)


def _inside_copy(link: Path, source: Path, copy: Path, path: Path) -> Path:
    """A link by its full path into the checkout would lead from the copy back to it."""
    if not link.is_absolute() or not link.is_relative_to(source):
        return link
    depth = len(path.relative_to(source).parts) - 1
    return Path(*[".."] * depth) / link.relative_to(source)


def _is_of_no_use(path: Path, source: Path) -> bool:
    """What belongs to git processes of the moment, to other worktrees, or to a repository elsewhere."""
    if path.name == GIT:
        return path.is_file() and not _is_submodule(path, source)
    if not path.is_relative_to(source / GIT):
        return False
    return path.suffix == _LOCK or path == source / GIT / "worktrees"


def _is_submodule(file: Path, source: Path) -> bool:
    """A submodule's file leads, from where it stands, into the checkout's own `.git`."""
    text = file.read_text(encoding="utf-8", errors="replace").removeprefix(_GITDIR).strip()
    inside = (file.parent / text).resolve().is_relative_to(source / GIT)
    return inside and not Path(text).is_absolute() and (source / GIT).is_dir()
