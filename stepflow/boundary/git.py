"""Runs git in a private bare repository, with an environment built from nothing.

Takes: a fresh folder, the server's URL, the token. Gives: git's output, or `BoundaryError` with what git said.
May touch: that folder, and the server when told to (boundary.md "Commits"). Never the checkout: what is planted there
(hooks, filters, fsmonitor, insteadOf, includes) is not in reach of these commands.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from stepflow.boundary.git_errors import GitFailed, git_failed
from stepflow.boundary.leading import lead_git
from stepflow.domain.redact import Redactor
from stepflow.domain.way import DIRECT, Way
from stepflow.errors import BoundaryError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

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
                f"Commits cannot be pushed to {parts.scheme}://{parts.hostname}: only https is allowed.",
                hint="Check `github-server-url`.",
            )

    @property
    def header(self) -> str:
        """The credential as an HTTP header."""
        return f"Authorization: Basic {base64.b64encode(f'x-access-token:{self.token}'.encode()).decode()}"


class Git:
    """One bare repository in `folder`, which is made here. Its server is reached on this `way`."""

    def __init__(
        self,
        folder: Path,
        remote: Remote,
        *,
        object_format: str = "sha1",
        redactor: Redactor | None = None,
        way: Way = DIRECT,
        local_seconds: float = LOCAL_SECONDS,
        most_output: int = MOST_OUTPUT,
    ) -> None:
        self._folder, self._remote = folder, remote
        self._local_seconds, self._most_output = local_seconds, most_output
        self._redactor = (redactor or Redactor()).knowing(remote.token, remote.header)
        self._way = way
        folder.mkdir(mode=0o700)
        self.run("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}", str(folder))

    def run(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
        """Run git without the credential and without a way to the network."""
        environment = {**self._environment(_CONFIG), **(env or {}), "GIT_ALLOW_PROTOCOL": "none"}
        return self._run(args, environment, self._local_seconds, stdin=stdin)

    def run_on_file(self, *args: str, file: IO[bytes]) -> bytes:
        """Run git on an open file, from where it stands."""
        environment = {**self._environment(_CONFIG), "GIT_ALLOW_PROTOCOL": "none"}
        return self._run(args, environment, self._local_seconds, file=file)

    def run_remote(self, *args: str) -> bytes:
        """Run one git command that talks to the server; this process alone holds the credential."""
        led = lead_git(self._way, self._folder / "authorities.pem")
        config = {**_CONFIG, **led, f"http.{self._remote.url}.extraHeader": self._remote.header}
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
        stdin: bytes = b"",
        file: IO[bytes] | None = None,
    ) -> bytes:
        with tempfile.TemporaryFile(dir=self._folder) as given, tempfile.TemporaryFile(dir=self._folder) as errors:
            given.write(stdin)
            given.seek(0)
            with subprocess.Popen(  # noqa: S603 - an absolute path, fixed options, no shell
                (_git_path(), *args),
                cwd=self._folder,
                env=dict(environment),
                stdin=file or given,
                stdout=subprocess.PIPE,
                stderr=errors,
                # A Ctrl-C at the terminal is the run's to handle: an effect that has begun is finished.
                start_new_session=True,
            ) as process:
                output = _read(process, args[0], seconds, self._most_output)
            errors.seek(0)
            said = self._redactor(errors.read(LONGEST_STDERR).decode(errors="replace")).strip()[-LONGEST_DETAIL:]
        if process.returncode:
            rejected = " ".join(REJECTED.findall(output.decode(errors="replace")))
            told = "\n".join(filter(None, (said, self._redactor(rejected)[:LONGEST_DETAIL])))
            raise git_failed(args[0], told or f"exit {process.returncode}", way=self._way)
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
    found = shutil.which("git", path=FIXED_PATH)
    if found is None:
        raise BoundaryError(f"git is not installed in {FIXED_PATH}.", hint="Install git where the boundary runs.")
    return found
