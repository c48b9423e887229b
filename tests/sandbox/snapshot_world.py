"""What the tests of snapshots share: a listing of a checkout that owes nothing to the code under test."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from toolbox_world import Box

from stepflow.run.snapshots import Snapshots
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.isolation import ToolboxOptions


def git_bytes(folder: Path, *words: str, given: bytes = b"") -> bytes:
    """What git says. It works on an index of its own with the same entries that knows no file times, so that it looks
    at every file anew and writes nothing to the checkout's.
    """
    with tempfile.TemporaryDirectory() as home:
        env = {"PATH": os.environ["PATH"], "HOME": home, "GIT_CONFIG_NOSYSTEM": "1", "GIT_OPTIONAL_LOCKS": "0"}
        safe = ("git", "-c", f"safe.directory={folder}")
        entries = subprocess.run(
            [*safe, "ls-files", "--stage", "-z"], cwd=folder, env=env, capture_output=True, check=False
        ).stdout
        env["GIT_INDEX_FILE"] = f"{home}/index"
        subprocess.run([*safe, "update-index", "-z", "--index-info"], cwd=folder, env=env, input=entries, check=True)
        done = subprocess.run([*safe, *words], cwd=folder, env=env, input=given, capture_output=True, check=False)
    return done.stdout + (b"" if done.returncode in (0, 1) else b"failed: " + done.stderr)


def listing(folder: Path) -> dict[bytes, object]:
    """Each file that git does not ignore with kind, right to run and content, and what git says of the whole. What is
    in repositories inside the repository is no part of it, nor are folders and other rights.
    """
    paths = [path for path in folder.rglob("*") if not is_folder(path)]
    nested = [path.parent for path in folder.rglob(".git")]
    paths = [path for path in paths if not any(one in path.parents for one in nested if one != folder)]
    names = {os.fsencode(path.relative_to(folder)): path for path in paths if folder / ".git" not in path.parents}
    known = set(git_bytes(folder, "ls-files", "-z").split(b"\0"))
    given = b"".join(b"./%s\0" % name for name in names if name not in known)
    ignored = {name[2:] for name in git_bytes(folder, "check-ignore", "-z", "--stdin", given=given).split(b"\0")}
    states: dict[bytes, object] = {name: entry(path) for name, path in names.items() if name not in ignored}
    outer = "--ignore-submodules=all"
    status = git_bytes(folder, "status", "--porcelain=v2", "-z", "--untracked-files=all", outer).split(b"\0")
    return {
        **states,
        b"> HEAD": git_bytes(folder, "symbolic-ref", "HEAD") + git_bytes(folder, "rev-parse", "HEAD"),
        b"> status": [line for line in status if not (line.startswith(b"? ") and line.endswith(b"/"))],
        b"> staged": git_bytes(folder, "diff", "--cached", "--binary"),
        b"> unstaged": git_bytes(folder, "diff", "--binary", outer),
        b"> log": git_bytes(folder, "log", "--format=raw", "--stat"),
    }


def is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def entry(path: Path) -> tuple[object, ...]:
    """Kind, right to run, content."""
    info = path.lstat()
    if stat.S_ISLNK(info.st_mode):
        return "link", os.fsencode(path.readlink())
    return "file", bool(info.st_mode & 0o100), path.read_bytes() if stat.S_ISREG(info.st_mode) else "special"


@dataclass
class Worked:
    """A checkout with a running toolbox whose snapshots go to a run folder."""

    box: Box
    run_folder: Path
    snapshots: Snapshots

    @property
    def folder(self) -> Path:
        return self.box.checkout

    def sh(self, script: str) -> None:
        done = self.box.sh(script)
        assert done.exit_code == 0, done.stderr


@contextlib.contextmanager
def worked(checkout: Path, run_folder: Path, *, base: str = "", **options: object):
    """Open the checkout for work."""
    with Toolbox.start(checkout, options=ToolboxOptions(**options)) as toolbox:
        yield Worked(Box(toolbox, checkout), run_folder, Snapshots(toolbox, run_folder, base=base))


def copy_of(checkout: Path, target: Path) -> Path:
    """A fresh clone, as a job that resumes has it."""
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    words = ("git", "-c", "safe.directory=*", "clone", "--quiet", "--no-local", f"file://{checkout}", str(target))
    subprocess.run(words, env=env, check=True)
    return target
