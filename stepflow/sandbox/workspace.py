"""A run's own workspace: the files of a checkout and a `.git` that is written anew, so that no tool ever touches the
checkout; and how its work is committed, or put on a branch, before the run."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stepflow.domain.activity import activity
from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.errors import BoundaryError, InputError
from stepflow.ports import Commands
from stepflow.programs import run_program
from stepflow.sandbox.child.git import BRANCHES
from stepflow.sandbox.copying import COPY, CopiedFiles, copied_files, copy_files
from stepflow.sandbox.host_git import ask_git, head_commit, read_settings, settings_of_copy
from stepflow.sandbox.installed import move_environment
from stepflow.sandbox.isolation import closed_folder

GIT = ".git"
ALTERNATES = "objects/info/alternates"
#: What of a git folder is a repository's state, beside HEAD, its refs and its settings.
_STATE = ("index", "shallow", "info/exclude", "info/attributes", "info/sparse-checkout", "lfs/objects")
#: Hooks run where commits are made, in the sandbox; samples have a dot in their names.
_HOOKS = "hooks"
_COMMIT = """
[ -e .git ] || git init --quiet --initial-branch=main
git add --all
if ! git rev-parse --quiet --verify HEAD > /dev/null || ! git diff --cached --quiet; then
  git -c core.hooksPath=/dev/null -c commit.gpgSign=false commit --quiet --allow-empty --no-verify \\
    --message 'Take in what was not committed before the rehearsal'
fi
"""
#: A branch at a commit, without what the checkout had not committed, which is listed. Files that git ignores stay.
_BRANCH = """
git rev-parse --quiet --verify HEAD > /dev/null || { echo 'it has no commit to start from' >&2; exit 3; }
git reset --quiet
git diff --name-only
git ls-files --others --exclude-standard --directory --no-empty-directory
git clean --quiet -d --force --force
git -c core.hooksPath=/dev/null checkout --quiet --force -B "$1" "$2"
"""
_COMMIT_TIMEOUT = 300.0
_PLACES = ("/tmp", "/var/tmp")  # noqa: S108 - only where the usual place lies in the checkout


@contextlib.contextmanager
def temporary_folder(beside: Path) -> Iterator[Path]:
    """Yield a folder outside the checkout `beside`, which the tools' user can walk; removed at the end with all that
    tools left in it."""
    usual = Path(tempfile.gettempdir()).resolve()
    places = (usual, *(Path(place) for place in _PLACES))
    outside = (place for place in places if not place.is_relative_to(beside.resolve()) and os.access(place, os.W_OK))
    folder = Path(tempfile.mkdtemp(prefix="stepflow-workspace-", dir=next(outside, usual))).resolve()
    try:
        if os.geteuid() == 0:
            # Only for a root parent the tools are somebody else; nobody else's files are for others to read.
            folder.chmod(0o711)
        yield folder
    finally:
        if os.getpid() != 1:
            # A container goes with its first process, and a cancelled job has no time to wait for this.
            with activity("removing the copy"):
                remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder with everything in it, whatever tools have left there; what cannot be removed stays."""
    remove = ("rm", "-rf", "--", str(folder))
    if run_program(*remove).returncode:
        # Its owner may have closed folders to itself.
        run_program("chmod", "-R", "u+rwx", "--", str(folder))
        run_program(*remove)


def give_to(folder: Path, uid: int, gid: int) -> None:
    """Let everything in the folder belong to this user."""
    _run("chown", "-Rh", f"{uid}:{gid}", "--", str(folder))


@contextlib.contextmanager
def given_back(folder: Path) -> Iterator[None]:
    """Give a folder of the caller's back to its owner when the block ends."""
    owner = folder.stat()
    try:
        yield
    finally:
        if os.geteuid() == 0:
            give_to(folder, owner.st_uid, owner.st_gid)


def make_workspace(
    checkout: Path,
    workspace: Path,
    *,
    files: CopiedFiles | None = None,
    without: Iterable[Path] = (),
    with_history: bool = True,
    branch: str = "",
) -> None:
    """Copy `files` of the checkout, by default all, with links and modes; write each `.git` anew; and let environments
    work where they now are.

    `without` are paths of the checkout to leave out: files to log in by. Without `with_history` the checkout's own
    `.git` is left out. With a `branch` the copy stands on it, at the checkout's commit. Raises `InputError` where that
    cannot be done.
    """
    source = checkout.resolve()
    with _copying(checkout, workspace):
        files = files or copied_files(source)
        files.copy(workspace)
        for path in without:
            (workspace / path).unlink(missing_ok=True)
        for path in _found_in(workspace):
            if path.name == GIT:
                _rewrite_repository(source, workspace, path)
            else:
                _keep_inside(path, source, workspace)
        for path in files.environments:
            move_environment(source / path, workspace / path, checkout=source, to=workspace)
        if with_history:
            _copy_history(source, workspace, branch)


def make_empty_workspace(checkout: Path, workspace: Path) -> None:
    """Make a workspace with the history of the checkout and none of its files. Raises `InputError`."""
    with _copying(checkout, workspace):
        workspace.mkdir()
        _copy_history(checkout.resolve(), workspace)


def _copy_history(source: Path, workspace: Path, branch: str = "") -> None:
    if os.path.lexists(source / GIT):
        _write_repository(_find_repository(source, source / GIT), workspace)
        if branch:
            _start_on(branch, workspace)


@contextlib.contextmanager
def _copying(checkout: Path, workspace: Path) -> Iterator[None]:
    """Turn what goes wrong into an `InputError`."""
    try:
        yield
    except BoundaryError as exc:
        raise InputError(
            f"The repository {checkout} cannot be copied: {exc.message}",
            hint="Fix what git complains about, or check the repository out again.",
        ) from exc
    except OSError as exc:
        raise InputError(
            f"The checkout {checkout} cannot be copied: {exc.strerror or exc}: {exc.filename or workspace}.",
            hint="Make the file readable, or remove it; and check that there is room for temporary files.",
        ) from exc


def _found_in(workspace: Path) -> list[Path]:
    """Return every `.git`, and every link."""
    words = ("find", str(workspace), "-name", GIT, "-prune", "-print0", "-o", "-type", "l", "-print0")
    return [Path(name) for name in _run(*words).split("\0") if name]


def _keep_inside(link: Path, source: Path, workspace: Path) -> None:
    """A link by its full path into the checkout would lead from the workspace back to it. One that git tracks stays
    what the commit says."""
    target = link.readlink()
    if target.is_absolute() and target.is_relative_to(source):
        name = str(link.relative_to(workspace))
        if ask_git(source, "ls-files", "--", f":(literal){name}", may_fail=True):
            return
        up = [".."] * (len(link.relative_to(workspace).parts) - 1)
        link.unlink()
        link.symlink_to(Path(*up) / target.relative_to(source))


@dataclass(frozen=True, kw_only=True)
class _SourceRepository:
    """A repository of the checkout: its work tree, the folder with its HEAD, and the one that worktrees share."""

    top: Path
    folder: Path
    common: Path

    def ask(self, *words: str, may_fail: bool = False) -> str:
        return ask_git(self.top, *words, may_fail=may_fail, git_dir=self.folder)

    def file(self, name: str) -> Path:
        """Return where the repository keeps this file of its state."""
        return next((folder / name for folder in (self.folder, self.common) if (folder / name).exists()), Path())


def _find_repository(top: Path, entry: Path) -> _SourceRepository:
    said = ask_git(top, "rev-parse", "--absolute-git-dir", "--git-common-dir", git_dir=entry).split("\n")
    folder = Path(said[0]).resolve()
    return _SourceRepository(top=top, folder=folder, common=(top / said[1]).resolve())


def _rewrite_repository(source: Path, workspace: Path, copy: Path) -> None:
    """Give a repository in the repository, such as a submodule, a `.git` folder of its own; what only looks like one is
    left out."""
    original = source / copy.relative_to(workspace)
    try:
        repository = _find_repository(original.parent, original)
    except BoundaryError:
        repository = None
    if copy.is_dir() and not copy.is_symlink():
        remove_folder(copy)
    else:
        copy.unlink()
    if repository:
        _write_repository(repository, workspace, copy, copies_objects=True)


def write_repository(history: Path, target: Path) -> None:
    """Write a `.git` for a workspace, with this history."""
    _write_repository(_find_repository(history, history), target.parent)


def objects_beside(workspace: Path) -> Path:
    """Return where copies of objects are that tools read and do not write: the history is what checks compare with."""
    return workspace.with_name(f"{workspace.name}-objects")


def _write_repository(
    repository: _SourceRepository, workspace: Path, dot_git: Path | None = None, *, copies_objects: bool = False
) -> None:
    """Write a repository's state and nothing else of what its folder holds: no login, no program. Its objects are read
    where they are, or from a copy beside the workspace."""
    target = dot_git or workspace / GIT
    for name in ("info", "objects/info", "objects/pack", "refs"):
        (target / name).mkdir(parents=True)
    (target / "config").write_text(
        settings_of_copy(read_settings(repository.top, git_dir=repository.folder)), "utf-8", "surrogateescape"
    )
    _write_refs(repository, target)
    for name in _STATE:
        file = repository.file(name)
        if file.name:
            (target / name).parent.mkdir(exist_ok=True)
            _run(*COPY, "--", str(file), str(target / name))
    for shared in repository.folder.glob("sharedindex.*"):
        _run(*COPY, "--", str(shared), str(target / shared.name))
    _copy_hooks(repository.common / _HOOKS, target / _HOOKS)
    folders = object_folders(repository.common / "objects")
    if copies_objects or not all(map(_is_open_to_others, folders)):
        beside = objects_beside(workspace)
        copy = beside / target.relative_to(workspace)
        copy.mkdir(parents=True)
        _copy_objects(folders, copy)
        _run("chmod", "-R", "a+rX", "--", str(beside))
        folders = (copy,)
    (target / ALTERNATES).write_text("".join(f"{folder}\n" for folder in folders), "utf-8", "surrogateescape")


def _copy_objects(folders: Iterable[Path], into: Path) -> None:
    for folder in folders:
        _run(*COPY, "--", f"{folder}/.", str(into))
    (into / "info/alternates").unlink(missing_ok=True)


def _write_refs(repository: _SourceRepository, target: Path) -> None:
    branch = repository.ask("symbolic-ref", "--quiet", "HEAD", may_fail=True)
    head = f"ref: {branch}" if branch else repository.ask("rev-parse", "--verify", "HEAD")
    (target / "HEAD").write_text(f"{head}\n", "utf-8", "surrogateescape")
    packed: list[str] = []
    listed = repository.ask("for-each-ref", "--format=%(objectname) %(refname) %(symref)")
    for commit, name, leads_to in (line.split(" ") for line in listed.split("\n") if line):
        if leads_to:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_text(f"ref: {leads_to}\n", "utf-8", "surrogateescape")
        else:
            packed.append(f"{commit} {name}\n")
    (target / "packed-refs").write_text("".join(packed), "utf-8", "surrogateescape")


def _start_on(branch: str, workspace: Path) -> None:
    """Put HEAD on a branch at its commit, and leave the files alone. HEAD stays where it is if there is no commit, or
    if git refuses the name, as it does beside a branch that is called `stepflow`."""
    name = f"{BRANCHES}{branch}"
    if commit := head_commit(workspace):
        ask_git(workspace, "update-ref", name, commit, may_fail=True)
        if ask_git(workspace, "rev-parse", "--quiet", "--verify", name, may_fail=True) == commit:
            ask_git(workspace, "symbolic-ref", "HEAD", name)


def _copy_hooks(hooks: Path, target: Path) -> None:
    target.mkdir()
    if programs := [str(path) for path in hooks.glob("*") if "." not in path.name and path.is_file()]:
        copy_files(programs, target)


def object_folders(objects: Path) -> tuple[Path, ...]:
    """Return a repository's folder of objects and those that it borrows from, however many hands they have gone
    through."""
    found: dict[Path, None] = {}
    waiting = [objects.resolve()]
    while waiting:
        folder = waiting.pop()
        if folder not in found and folder.is_dir():
            found[folder] = None
            file = folder / "info/alternates"
            lines = file.read_text("utf-8", "surrogateescape").split("\n") if file.is_file() else ()
            waiting += [(folder / line).resolve() for line in lines if line and not line.startswith("#")]
    return tuple(found)


def _is_open_to_others(objects: Path) -> bool:
    """Return whether the tools' user can read the objects where they are."""
    if os.geteuid() != 0:
        return True
    if closed_folder(objects, -1) is not None:
        return False
    # Whoever closes loose objects closes their folders as well.
    found = (*objects.iterdir(), *(file for folder in ("pack", "info") for file in (objects / folder).glob("*")))
    return all(path.stat().st_mode & stat.S_IROTH for path in found)


def _run(*words: str) -> str:
    done = run_program(*words)
    if done.returncode:
        said = os.fsdecode(done.stderr).strip().splitlines()
        raise OSError(said[0].removeprefix(f"{words[0]}: ") if said else f"{words[0]} failed")
    return os.fsdecode(done.stdout)


def commit_everything(commands: Commands) -> None:
    """Commit, in the workspace, what the checkout had not committed: a validator may ask for a clean tree."""
    script = ("sh", "-e", "-c", _COMMIT)
    result = commands.run_command(CommandRequest(argv=script, timeout=_COMMIT_TIMEOUT, about="git commit"))
    if result.exit_code != 0:
        raise InputError(
            f"git cannot commit the copy for the rehearsal: {_last_words(result)}.",
            hint="See what `git status` and `git add --all --dry-run` say in the checkout.",
        )


def start_branch(commands: Commands, branch: str, commit: str) -> tuple[str, ...]:
    """Begin a branch at the commit, in the workspace; the files of the checkout whose uncommitted changes it does not
    have."""
    script = ("sh", "-e", "-c", _BRANCH, "sh", branch, commit)
    result = commands.run_command(CommandRequest(argv=script, timeout=_COMMIT_TIMEOUT, about="git switch"))
    if result.exit_code != 0:
        raise InputError(
            f"git cannot start the branch {branch} in the copy of the checkout: {_last_words(result)}.",
            hint="See what `git status` says in the checkout, or let the run work on your branch with --in-place.",
        )
    return tuple(result.stdout.splitlines())


def _last_words(result: CommandResult) -> str:
    return (result.error or result.stderr or result.stdout).strip().rstrip(".")[-1000:]
