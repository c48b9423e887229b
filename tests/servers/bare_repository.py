"""The git repository behind the loopback API: its refs, and commits as GitHub makes and signs them."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NOTHING = "0" * 40
GITHUB = "GitHub <noreply@github.com>"
_SIGNATURE = "-----BEGIN PGP SIGNATURE-----\n\nc2lnbmVk\n-----END PGP SIGNATURE-----"
_AT = "1767323045 +0000"


class Rejected(Exception):
    """What was asked for cannot be; `kind` is GraphQL's type of the error."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class StoredCommit:
    """A commit object; `author` and `committer` as git writes them, without the time."""

    oid: str
    tree: str
    parents: tuple[str, ...]
    author: str
    committer: str
    signature: str | None
    message: str


@dataclass(frozen=True)
class BareRepository:
    """Runs git's plumbing in `folder`."""

    folder: Path

    def tip(self, branch: str) -> str | None:
        """The commit of a branch."""
        return self._git("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}", check=False) or None

    def commit(self, oid: str) -> StoredCommit | None:
        """What a commit object holds."""
        if self._git("cat-file", "-t", oid, check=False) != "commit":
            return None
        head, _, message = self._git("cat-file", "commit", oid).partition("\n\n")
        lines = re.findall(r"(?m)^(\S+) ((?:.*)(?:\n .*)*)", head)
        values = {name: value for name, value in lines if name != "parent"}
        people = {role: values[role].rsplit(" ", 2)[0] for role in ("author", "committer")}
        parents = tuple(value for name, value in lines if name == "parent")
        signature = values["gpgsig"].replace("\n ", "\n") if "gpgsig" in values else None
        return StoredCommit(oid, values["tree"], parents, people["author"], people["committer"], signature, message)

    def between(self, base: str, head: str) -> list[str]:
        """The commits that `head` has and `base` has not, oldest first."""
        return self._git("rev-list", "--topo-order", "--reverse", f"{base}..{head}").split()

    def changed(self, base: str, head: str) -> list[tuple[str, str, str]]:
        """What `head` changed since it left `base`: git's letter for it, the path before it, and the path now."""
        words = iter(self._git("diff", "--name-status", "-z", "-M", f"{base}...{head}").split("\0")[:-1])
        files = []
        for letter in words:
            old = next(words)
            files.append((letter[0], old, next(words) if letter[0] in "RC" else old))
        return files

    def diff(self, base: str, head: str, path: str) -> str:
        """What `head` changed in a file since it left `base`, with three lines around each change."""
        return self._git("diff", "-M", f"{base}...{head}", "--", path)

    def merge_base(self, base: str, head: str) -> str:
        """The newest commit that both have; empty when there is none, or one of the two does not exist."""
        return self._git("merge-base", base, head, check=False)

    def update_refs(self, updates: list[Mapping[str, str]]) -> None:
        """All of them or none."""
        lines = [f"update {each['name']} {each['afterOid']} {each['beforeOid']}\n" for each in updates]
        try:
            self._git("update-ref", "--stdin", stdin="".join(lines).encode())
        except subprocess.CalledProcessError as exc:
            raise Rejected("UNPROCESSABLE", f"A ref could not be updated: {exc.stderr.decode()}") from exc

    def append(
        self,
        branch: str,
        head: str,
        message: str,
        additions: Mapping[str, str],
        deletions: list[str],
        *,
        author: str,
        signs: bool,
    ) -> str:
        """What `createCommitOnBranch` does; contents come in base64, by path."""
        tip = self.tip(branch)
        if tip is None:
            raise Rejected("NOT_FOUND", f"A branch named {branch!r} does not exist")
        if tip != head:
            raise Rejected("STALE_DATA", f'Expected branch to point to "{head}" but it did not. Pull and try again.')
        tree = self._tree(tip, additions, deletions)
        signature = "gpgsig " + _SIGNATURE.replace("\n", "\n ") + "\n" if signs else ""
        text = f"tree {tree}\nparent {tip}\nauthor {author} {_AT}\ncommitter {GITHUB} {_AT}\n{signature}\n{message}"
        oid = self._git("hash-object", "-t", "commit", "-w", "--stdin", stdin=text.encode())
        self._git("update-ref", f"refs/heads/{branch}", oid, tip)
        return oid

    def _tree(self, tip: str, additions: Mapping[str, str], deletions: list[str]) -> str:
        with tempfile.TemporaryDirectory() as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            self._git("read-tree", tip, env=index)
            present = set(self._git("ls-files", "-z", env=index).split("\0"))
            if missing := [path for path in deletions if path not in present]:
                raise Rejected("UNPROCESSABLE", f"A path was requested for deletion which does not exist: {missing}")
            entries = [f"0 {NOTHING}\t{path}\0" for path in deletions]
            for path, contents in additions.items():
                blob = self._git("hash-object", "-w", "--stdin", stdin=base64.b64decode(contents, validate=True))
                entries.append(f"100644 {blob}\t{path}\0")
            self._git("update-index", "-z", "--index-info", stdin="".join(entries).encode(), env=index)
            return self._git("write-tree", env=index)

    def _git(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None, check: bool = True) -> str:
        environment = {
            "PATH": os.defpath, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, **(env or {})
        }  # fmt: skip
        command = ["git", "--git-dir", str(self.folder), *args]
        done = subprocess.run(command, input=stdin, env=environment, capture_output=True, check=check)
        return done.stdout.decode().removesuffix("\n") if done.returncode == 0 else ""
