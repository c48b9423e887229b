"""Runs git in a private bare repository, with an environment built from nothing and never in the checkout; and reads
what its trees and blobs hold."""

from __future__ import annotations

import base64
import io
import os
import re
import resource
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from stepflow.boundary.commit_policy import Change
from stepflow.boundary.connection import git_connection_settings
from stepflow.boundary.retry_policy import GitHubFailed
from stepflow.domain.connection import DIRECT, Connection
from stepflow.domain.definition import LARGEST_MOST_BYTES
from stepflow.domain.secrets import Redactor
from stepflow.errors import BoundaryError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path


_AGAIN = "Start the run again when GitHub works (see githubstatus.com): the branch is looked at before it is written."
#: What to change when the server says this; the first that fits.
_HINTS = {
    "verified signature": "A branch rule demands signed commits: set `commits: verified`, or exempt the run's branches "
    "from it.",
    "workflow": "The token may not change workflow files.",
    "GH006": "A branch rule protects this branch: exempt the run's branches from it.",
    "GH013": "A repository rule forbids this push: exempt the run's branches from it.",
    "hook declined": "A hook of the server refused the commits: what it says is above. Exempt the run's branches from "
    "it, or tell the agent in its prompts what the hook demands.",
    "non-fast-forward": "The server forbids to replace the commits of an earlier run: allow forced updates of the "
    "run's branches, or delete the branch.",
    "stale info": "Somebody else pushes to the run's branches at the same time: start the run again.",
    "error: 403": "The token may not push: the job needs `contents: write`.",
    "could not read Username": "The token is not accepted: check `github-token`.",
    "Authentication failed": "The token is not accepted: check `github-token`.",
    "error: 404": "The repository is not there (any more), or the token may not see it: check `github-server-url`.",
    "not found": "The repository is not there (any more), or the token may not see it: check `github-server-url`.",
}
#: Far beyond what the policy lets through.
MOST_ENTRIES, DEEPEST = 20_000, 100
#: The mode of a path that is no longer there.
REMOVED = "000000"
#: A tree that names itself over and over is a few bytes, and `git diff-tree` lists it in memory first.
_DIFF_MEMORY = 512 * 1024 * 1024
_MOVED = re.compile(r"returned error: 30\d")
_LIMITED = re.compile(r"returned error: 429")
#: The server's trouble, the network's, and the page of a proxy in the place of an answer.
_PASSES = re.compile(
    r"returned error: (?:5\d\d|429)|Empty reply from server|Could not resolve host|Failed to connect|"
    r"Connection (?:reset|refused|timed out)|Operation (?:timed out|too slow)|early EOF|dumb http transport|"
    r"SSL_ERROR_SYSCALL|handshake(?:\(\))? failed|non-properly terminated|Recv failure|transfer closed",
    re.IGNORECASE,
)

#: The way to the server failed, not the server.
_UNREACHED = re.compile(
    r"Could not resolve|Failed to connect|Couldn't connect|certificate|CONNECT|from proxy|proxy|timed out",
    re.IGNORECASE,
)


class GitFailed(GitHubFailed):
    """A git command failed. `said` is what it wrote to stderr, without secrets."""

    def __init__(self, message: str, *, said: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.said = said
        self.passes, self.limited = bool(_PASSES.search(said)), bool(_LIMITED.search(said))

    @property
    def moved(self) -> bool:
        """True when the repository has another address now."""
        return bool(_MOVED.search(self.said))


def git_failed(command: str, said: str, *, connection: Connection = DIRECT) -> GitFailed:
    """The failure of one command, with what to do."""
    failed = GitFailed(f"`git {command}` failed: {said}.", said=said)
    failed.hint = next((hint for sign, hint in _HINTS.items() if sign in said), _AGAIN if failed.passes else "")
    if advice := connection.advice(said) if _UNREACHED.search(said) else "":
        failed.hint = advice
    if failed.moved:
        failed.hint = "The repository has another address now: start the run again, it then uses the new one."
    return failed


FIXED_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOCAL_SECONDS, NETWORK_SECONDS = 120, 300
LONGEST_DETAIL, LONGEST_STDERR = 600, 100_000
#: What `git push --porcelain` says of a ref that was not taken.
REJECTED = re.compile(r"(?m)^!\t.*?\t(\[.*)$")
#: Commits within the policy's limits stay far below this.
MOST_OUTPUT = 32 * 1024 * 1024
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_CONFIG = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.askPass": "",
    # Larger blobs are streamed, not held in memory; the policy refuses them afterwards.
    "core.bigFileThreshold": "16m",
    "credential.helper": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "http.followRedirects": "false",
    # A base that no branch points to any more is known to the server all the same: do not send it again.
    "push.negotiate": "true",
    "transfer.fsckObjects": "true",
    # What the server already holds is not ours to judge: old history may have oddities that fsck rejects.
    "fetch.fsckObjects": "false",
}


class TooMuch(BoundaryError):
    """A git command wrote more than any honest commits make it write."""


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A repository on a server, and the token for it. Only https, or http to this machine."""

    url: str
    token: str = field(repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.username or not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)):
            raise BoundaryError(
                f"Git cannot use the server {parts.scheme}://{parts.hostname}: only https is allowed.",
                hint="Check `github-server-url`.",
            )

    @property
    def header(self) -> str:
        """The credential as an HTTP header."""
        return f"Authorization: Basic {base64.b64encode(f'x-access-token:{self.token}'.encode()).decode()}"


class Git:
    """One bare repository in `folder`, which is made here. Its server is reached on this `connection`."""

    def __init__(
        self,
        folder: Path,
        remote: Remote,
        *,
        object_format: str = "sha1",
        redactor: Redactor | None = None,
        connection: Connection = DIRECT,
        local_seconds: float = LOCAL_SECONDS,
        most_output: int = MOST_OUTPUT,
    ) -> None:
        self._folder, self._remote, self._object_format = folder, remote, object_format
        self._local_seconds, self._most_output = local_seconds, most_output
        self._redactor = (redactor or Redactor()).knowing(remote.token, remote.header)
        self._connection = connection
        folder.mkdir(mode=0o700)
        self.run("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}", str(folder))

    def make_sibling(self, name: str) -> Git:
        """A new repository beside this one, with the same server."""
        return Git(
            self._folder.with_name(name),
            self._remote,
            object_format=self._object_format,
            redactor=self._redactor,
            connection=self._connection,
        )

    def run(
        self,
        *args: str,
        stdin: bytes | IO[bytes] = b"",
        env: Mapping[str, str] | None = None,
        memory: int | None = None,
    ) -> bytes:
        """Run git without the credential and without a way to the network, on text or on an open file from where it
        stands. `memory`: its limit, in bytes."""
        environment = {**self._environment(_CONFIG), **(env or {}), "GIT_ALLOW_PROTOCOL": "none"}
        return self._run(args, environment, self._local_seconds, stdin=stdin, memory=memory)

    def run_remote(self, *args: str) -> bytes:
        """Run one git command that talks to the server; this process alone holds the credential."""
        proxied = git_connection_settings(self._connection, self._folder / "authorities.pem")
        config = {**_CONFIG, **proxied, f"http.{self._remote.url}.extraHeader": self._remote.header}
        scheme = urlsplit(self._remote.url).scheme
        environment = {**self._environment(config), "GIT_ALLOW_PROTOCOL": scheme}
        return self._run(args, environment, NETWORK_SECONDS)

    def _environment(self, config: Mapping[str, str]) -> dict[str, str]:
        environment = {
            "PATH": FIXED_PATH,
            "HOME": str(self._folder),
            "LC_ALL": "C",
            "GIT_DIR": str(self._folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_COUNT": str(len(config)),
        }
        for number, (key, value) in enumerate(config.items()):
            environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return environment

    def _run(
        self,
        args: tuple[str, ...],
        environment: Mapping[str, str],
        seconds: float,
        *,
        stdin: bytes | IO[bytes] = b"",
        memory: int | None = None,
    ) -> bytes:
        with tempfile.TemporaryFile(dir=self._folder) as text, tempfile.TemporaryFile(dir=self._folder) as errors:
            if isinstance(stdin, bytes):
                text.write(stdin)
                text.seek(0)
                stdin = text
            with subprocess.Popen(  # noqa: S603 - an absolute path, fixed options, no shell
                (_git_path(), *args),
                cwd=self._folder,
                env=dict(environment),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=errors,
                # A Ctrl-C at the terminal is the run's to handle: an effect that has begun is finished.
                start_new_session=True,
            ) as process:
                if memory:
                    resource.prlimit(process.pid, resource.RLIMIT_DATA, (memory, memory))
                output = _read(process, args[0], seconds, self._most_output)
            errors.seek(0)
            said = self._redactor(errors.read(LONGEST_STDERR).decode(errors="replace")).strip()[-LONGEST_DETAIL:]
        if process.returncode:
            rejected = " ".join(REJECTED.findall(output.decode(errors="replace")))
            message = "\n".join(filter(None, (said, self._redactor(rejected)[:LONGEST_DETAIL])))
            raise git_failed(args[0], message or f"exit {process.returncode}", connection=self._connection)
        return output


def _read(process: subprocess.Popen[bytes], command: str, seconds: float, most: int) -> bytes:
    """What the process writes until it ends; it is killed when that takes too long or is too much."""
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        process.kill()

    timer = threading.Timer(seconds, expire)
    timer.start()
    try:
        output = process.stdout.read(most + 1) if process.stdout else b""
        if len(output) > most:
            process.kill()
            raise TooMuch(f"`git {command}` wrote more than {most} bytes")
        process.wait()
    except BaseException:
        # `Popen` waits for what it started, and nobody would end it any more.
        process.kill()
        raise
    finally:
        timer.cancel()
    if expired.is_set():
        raise GitFailed(f"`git {command}` took longer than {seconds:g} seconds and was stopped.")
    return output


def _git_path() -> str:
    path = shutil.which("git", path=FIXED_PATH)
    if path is None:
        raise BoundaryError(f"git is not installed in {FIXED_PATH}.", hint="Install git where the boundary runs.")
    return path


class GitReader(Protocol):
    """Git in a repository that holds the commits of a run."""

    def run(self, *args: str, stdin: bytes = b"", memory: int | None = None) -> bytes:
        """What the command prints. Raises `BoundaryError`, or `TooMuch` for more output than is taken. `memory` is its
        limit in bytes, where that can be set."""
        ...


def compare_trees(git: GitReader, base: str, trees: Iterable[str]) -> tuple[Change, ...]:
    """Every file, symlink and submodule that differs from the base in any of the trees. Raises `TooMuch`."""
    changes: set[Change] = set()
    for tree in sorted(set(trees)):
        try:
            output = git.run(
                "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--no-ext-diff", "--no-textconv",
                "--ignore-submodules=none", base, tree, memory=_DIFF_MEMORY,
            )  # fmt: skip
        except GitFailed as exc:
            raise TooMuch(str(exc)) from exc
        words = output.decode(errors="surrogateescape").removesuffix("\0").split("\0") if output else []
        for head, path in zip(words[::2], words[1::2], strict=True):
            mode_before, mode, before, oid, _ = head.removeprefix(":").split(" ")
            changes.add(Change(path=path, mode=mode, oid=oid, before=before, mode_before=mode_before))
        if len(changes) > MOST_ENTRIES:
            raise TooMuch(f"they change more than {MOST_ENTRIES} paths")
    if any(change.path.count("/") > DEEPEST for change in changes):
        raise TooMuch(f"their folders are nested more than {DEEPEST} deep")
    return tuple(sorted(changes, key=lambda change: (change.path, change.mode, change.oid)))


def sizes_of(git: GitReader, blobs: Collection[str]) -> dict[str, int]:
    """The sizes in bytes of those of these blobs that are there."""
    lines = git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin="\n".join(sorted(blobs)).encode())
    pairs = (line.split() for line in lines.decode().splitlines() if not line.endswith(" missing"))
    return {oid: int(size) for oid, size in pairs}


def blobs_of(git: GitReader, oids: Collection[str]) -> dict[str, bytes]:
    """The contents of those of these blobs that are there and no larger than what may ever be pushed."""
    present = {oid: size for oid, size in sizes_of(git, oids).items() if size <= LARGEST_MOST_BYTES}
    output = io.BytesIO(git.run("cat-file", "--batch", stdin="\n".join(present).encode(), memory=_DIFF_MEMORY))
    contents: dict[str, bytes] = {}
    while head := output.readline():
        oid, _, size = head.split()
        contents[oid.decode()] = output.read(int(size))
        output.read(1)
    return contents


def lines_of(git: GitReader, blobs: Collection[str]) -> dict[str, list[str]]:
    """The lines of such blobs. A null byte is left out: UTF-16 has one beside each letter."""
    return {
        oid: content.replace(b"\0", b"").decode(errors="replace").split("\n")
        for oid, content in blobs_of(git, blobs).items()
    }


def tree_of(git: GitReader, commit: str) -> str:
    """The id of a commit's tree."""
    return git.run("rev-parse", "--verify", f"{commit}^{{tree}}").decode().strip()
