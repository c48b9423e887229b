"""The repository that a release is made in: what HEAD holds, a commit upon it, the remote's tags.

It changes git's objects in the checkout and the remote's tags, but neither the working tree nor a branch.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Who GitHub shows as its own bot.
BOT = {"NAME": "github-actions[bot]", "EMAIL": "41898282+github-actions[bot]@users.noreply.github.com"}


@dataclass(frozen=True)
class Repository:
    """A checkout of the commit that is released."""

    folder: Path
    remote: str

    def read(self, name: str) -> bytes:
        """A file as HEAD has it, whatever lies in the working tree."""
        return self._git("show", f"HEAD:{name}")

    def commit_file(self, name: str, content: bytes, *, message: str) -> str:
        """A commit upon HEAD that changes one file. Its date is HEAD's, so that the same content is the same commit."""
        with tempfile.TemporaryDirectory() as scratch:
            index = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
            self._git("read-tree", "HEAD", environment=index)
            blob = self._git("hash-object", "-w", "--stdin", given=content).decode().strip()
            self._git("update-index", "--cacheinfo", f"100644,{blob},{name}", environment=index)
            tree = self._git("write-tree", environment=index).decode().strip()
        date = self._git("show", "--no-patch", "--format=%cI", "HEAD").decode().strip()
        who = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in BOT.items()}
        who |= {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        made = self._git("commit-tree", "-p", "HEAD", "-m", message, tree, environment=who)
        return made.decode().strip()

    def tags(self) -> dict[str, str]:
        """The remote's tags and the commits they name."""
        named = {}
        for line in self._git("ls-remote", "--tags", self.remote).decode().splitlines():
            commit, _, name = line.partition("\trefs/tags/")
            named[name] = commit
        # An annotated tag is listed twice; the second line has the commit.
        return {name: named.get(f"{name}^{{}}", commit) for name, commit in named.items() if not name.endswith("^{}")}

    def push_tags(self, commit: str, tags: Mapping[str, str]) -> None:
        """Let each tag name the commit, all or none. A tag that has moved since it was looked at, is left alone."""
        leases = [f"--force-with-lease=refs/tags/{tag}:{before}" for tag, before in tags.items()]
        self._git("push", "--atomic", "--quiet", *leases, self.remote, *(f"{commit}:refs/tags/{tag}" for tag in tags))

    def _git(self, *arguments: str, given: bytes = b"", environment: Mapping[str, str] | None = None) -> bytes:
        command = ["git", *arguments]
        around = {**os.environ, **(environment or {})}
        done = subprocess.run(  # noqa: S603 - fixed words and names that were checked, no shell
            command, cwd=self.folder, input=given, env=around, capture_output=True, check=False
        )
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, command, done.stdout.decode(), done.stderr.decode())
        return done.stdout
