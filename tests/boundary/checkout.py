"""A checkout as the model leaves it: real git, real commits, real bundles."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

PATH = "/usr/local/bin:/usr/bin:/bin"


class Repository:
    """Its git runs as the model's would, not as the boundary's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def git(self, *args: str, stdin: bytes = b"", check: bool = True, committer: str = "", author: str = "") -> str:
        environment = {
            "PATH": PATH,
            "HOME": str(self.folder.parent),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            **{f"GIT_{who}_{key}": value for who in ("AUTHOR", "COMMITTER") for key, value in MODEL.items()},
            **({"GIT_COMMITTER_EMAIL": committer} if committer else {}),
            **({"GIT_AUTHOR_EMAIL": author} if author else {}),
        }
        done = subprocess.run(
            ["git", *args], cwd=self.folder, env=environment, input=stdin, capture_output=True, check=False
        )
        assert not check or done.returncode == 0, done.stderr.decode()
        return done.stdout.decode(errors="replace").strip()

    def write(self, path: str, text: str | bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())

    def commit(self, message: str = "Work", *, committer: str = "", author: str = "") -> str:
        self.git("add", "--all")
        self.git(
            "commit",
            "--quiet",
            "--allow-empty",
            "--allow-empty-message",
            "--cleanup=verbatim",
            "-F",
            "-",
            stdin=message.encode(),
            committer=committer,
            author=author,
        )
        return self.git("rev-parse", "HEAD")


@cache
def _begin() -> tuple[Path, str]:
    """A repository with one commit, and that."""
    parent = Path(tempfile.mkdtemp(prefix="stepflow-test-boundary-"))
    atexit.register(shutil.rmtree, parent)
    repository = Repository(parent / "checkout")
    repository.folder.mkdir()
    repository.git("init", "--quiet", "--initial-branch=main")
    repository.write("README.md", "# demo\n")
    repository.write("src/parser.py", "def parse():\n    return None\n")
    repository.write(".github/workflows/ci.yml", "on: push\n")
    return repository.folder, repository.commit("Start")


class Checkout(Repository):
    """A clone with a base commit that the server has, copied from one that is made once."""

    def __init__(self, folder: Path, origin: Path) -> None:
        super().__init__(folder)
        self.origin = origin
        begun, self.base = _begin()
        shutil.copytree(begun, folder, symlinks=True)
        # What a push would write.
        shutil.copytree(folder / ".git" / "objects", origin / "objects", dirs_exist_ok=True)
        (origin / "refs" / "heads" / "main").write_text(f"{self.base}\n")

    def merge_two_sides(self) -> None:
        """A merge commit on main, of two commits that change different files."""
        self.git("checkout", "--quiet", "-b", "side")
        self.write("side.txt", "side\n")
        self.commit("Side")
        self.git("checkout", "--quiet", "main")
        self.write("main.txt", "main\n")
        self.commit("Main")
        self.git("merge", "--quiet", "--no-edit", "side")

    def bundle(self, base: str | None = None, *more: str) -> Path:
        """What the toolbox hands over."""
        file = self.folder.parent / "commits.bundle"
        self.git("bundle", "create", "--quiet", str(file), "HEAD", f"^{base or self.base}", *more)
        return file


MODEL = {"NAME": "Mallory", "EMAIL": "mallory@evil.com", "DATE": "@1767323045 +0200"}


def served(origin: Path, *args: str) -> str:
    """What the server's repository answers."""
    environment = {"PATH": PATH, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(["git", "--git-dir", str(origin), *args], env=environment, capture_output=True, check=True)
    return done.stdout.decode().strip()
