"""Puts a snapshot back into the checkout and its repository."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from typing import IO, TYPE_CHECKING, cast

from .git import COMMIT
from .paths import Refusal, below
from .snapshot_git import BRANCHES, GitFailed
from .work_tree import WorkTree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .snapshot_git import SnapshotGit

#: An ignore file that is put back or goes lets other files show, and a folder that is opened to its owner too.
_ROUNDS = 5
_NO_LIMIT = 1 << 60


def restore(git: SnapshotGit, request: Mapping[str, object], pack: IO[bytes]) -> None:
    """Put everything back. What can be refused is refused before anything is changed. Raises `Refusal` or OSError."""
    snapshot = cast("Mapping[str, str]", request["snapshot"])
    base, tree, index = snapshot["base"], snapshot["tree"], snapshot["index"]
    head, commit = snapshot["head"], snapshot["commit"]
    _check_names(git, snapshot)
    if (base or commit) and not git.has_repository:
        raise Refusal("there is no repository in the checkout")
    git.make(base)
    if int(str(request["bytes"])):
        git.ask("index-pack", "--stdin", given=pack, env=git.objects_of_checkout)
    wanted = [name for name in (tree, index, commit) if name]
    git.ask("rev-list", "--objects", "--quiet", *wanted, "--not", *([base, f"{base}^{{tree}}"] if base else []))
    # Paths that lead elsewhere are refused by this.
    git.ask("read-tree", tree, env={"GIT_INDEX_FILE": os.path.join(git.folder, "index.checked")})
    if git.has_repository:
        _move_head(git, head, commit)
    left_out = cast("Mapping[str, str]", request["left_out"])
    _restore_files(git, request, tree, {path.encode("latin-1") for path in left_out})
    if git.has_repository:
        _restore_index(git, index or (git.tree_of(commit) if commit else ""))


def _check_names(git: SnapshotGit, snapshot: Mapping[str, str]) -> None:
    for name in ("base", "tree", "index", "commit"):
        if (snapshot[name] or name == "tree") and not COMMIT.fullmatch(snapshot[name]):
            raise Refusal(f"the snapshot's {name} is no name of an object")
    head = snapshot["head"]
    if head and not head.startswith(BRANCHES):
        raise Refusal("the snapshot's HEAD stands on no branch")
    if git.has_repository:
        if not head and not snapshot["commit"]:
            raise Refusal("the snapshot's HEAD stands nowhere")
        if head:
            git.ask_checkout("check-ref-format", head)


def _move_head(git: SnapshotGit, head: str, commit: str) -> None:
    if not head:
        git.ask_checkout("update-ref", "--no-deref", "HEAD", commit)
        return
    if commit:
        git.ask_checkout("update-ref", "--no-deref", head, commit)
    else:
        git.ask_checkout("update-ref", "--no-deref", "-d", head)
    git.ask_checkout("symbolic-ref", "HEAD", head)


def _restore_files(git: SnapshotGit, request: Mapping[str, object], tree: str, left_out: set[bytes]) -> None:
    """First the private index learns of everything that is there; then git makes of it what the tree says. What was
    left out of the snapshot, what git ignores and what cannot be read stay as they are."""
    work_tree = WorkTree(git, request)
    work_tree.drop(sorted(left_out))
    folders = git.ask("ls-tree", "-r", "-d", "-z", "--name-only", tree).split(b"\0")
    git.take_rules()
    is_put = False
    for _ in range(_ROUNDS):
        paths, left = work_tree.changed()
        paths = [path for path in paths if not _is_in(path, left_out)]
        left |= work_tree.add(paths, _NO_LIMIT)
        waiting = [path for path in paths if path not in left]
        if is_put and not waiting:
            return
        _open_folders(git.checkout, {*folders, *(path.rpartition(b"/")[0] for path in paths)})
        git.ask("read-tree", "--reset", "-u", tree)
        is_put = True
    raise Refusal(f"{waiting[0].decode('utf-8', 'replace')!r} cannot be put back")


def _is_in(path: bytes, places: set[bytes]) -> bool:
    while path:
        if path in places:
            return True
        path = path.rpartition(b"/")[0]
    return False


def _open_folders(checkout: str, folders: set[bytes]) -> None:
    """Give the owner of folders back the rights to work in them."""
    with below(checkout) as tree:
        for path in sorted(folders - {b""}):
            with contextlib.suppress(OSError):
                above, name = tree.holder(path)
                info = os.stat(name, dir_fd=above, follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode) and info.st_mode & 0o700 != 0o700:
                    os.chmod(name, stat.S_IMODE(info.st_mode) | 0o700, dir_fd=above)


def _restore_index(git: SnapshotGit, tree: str) -> None:
    """The index that is there stays when it has this tree already, and keeps what it knows of files that stay."""
    if git.look_at_standing().index == tree:
        return
    copy = os.path.join(git.folder, "index.checkout")
    env = {"GIT_INDEX_FILE": copy}
    if tree:
        try:
            git.ask("read-tree", "--reset", tree, env=env)
        except GitFailed:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(copy)
            git.ask("read-tree", tree, env=env)
    with below(git.checkout) as root:
        folder = root.folder(b".git")
        if not tree:
            with contextlib.suppress(FileNotFoundError):
                os.unlink("index", dir_fd=folder)
            return
        draft = f"index.{secrets.token_hex(8)}"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
        with os.fdopen(fd, "wb") as file, open(copy, "rb") as made:
            file.write(made.read())
        os.rename(draft, "index", src_dir_fd=folder, dst_dir_fd=folder)
