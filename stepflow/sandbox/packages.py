"""Debian packages for the container, installed before any tool runs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import MappingProxyType

from stepflow.domain.checkout import CommandResult
from stepflow.errors import InputError
from stepflow.sandbox.environment import SYSTEM_PATH

_OUTPUT_LIMIT = 64 * 1024
#: A name with perhaps an architecture and a version. To apt-get a dash at the end would mean "remove".
_NAME = re.compile(r"[a-z0-9][a-z0-9+.:=~-]*(?<!-)")


def check_packages(names: Sequence[str], *, path: Sequence[str] = SYSTEM_PATH, uid: int | None = None) -> None:
    """Raises `InputError` for what cannot be installed here. `uid` is who installs, by default this process's user."""
    if not names:
        return
    if bad := [name for name in names if not _NAME.fullmatch(name)]:
        raise InputError(
            f"apt-packages: {', '.join(repr(name[:100]) for name in bad)} cannot be the name of a Debian package.",
            hint="Write names as `apt-get install` takes them, such as `shellcheck` or `g++`.",
        )
    if (os.geteuid() if uid is None else uid) != 0:
        raise InputError(
            "apt-packages: packages can only be installed as root, and this process is not root.",
            hint="Use the action's container, or install the packages on the machine and leave the input out.",
        )
    if shutil.which("apt-get", path=os.pathsep.join(path)) is None:
        raise InputError(
            "apt-packages: there is no apt-get on this machine.",
            hint="Use an image based on Debian or Ubuntu, or install the programs with the input `setup`.",
        )


def install_packages(
    names: Sequence[str],
    *,
    path: Sequence[str] = SYSTEM_PATH,
    timeout: float,
    proxies: Mapping[str, str] = MappingProxyType({}),
) -> CommandResult:
    """Update the package lists and install; call `check_packages` first. stdout holds the end of what apt-get said.
    Both together may take `timeout` seconds. `proxies` are variables that name them; nothing that a tool runs is alive
    yet to see them."""
    program = shutil.which("apt-get", path=os.pathsep.join(path)) or "apt-get"
    begun = time.monotonic()
    log = ""
    for words in (("update",), ("install", "-y", "--no-install-recommends", "--", *names)):
        exit_code, output = _run((program, *words), path, proxies, timeout - (time.monotonic() - begun))
        log = f"{log}{output}"[-_OUTPUT_LIMIT:]
        if exit_code != 0:
            break
    return CommandResult(exit_code=exit_code, stdout=log, seconds=time.monotonic() - begun)


def _run(words: tuple[str, ...], path: Sequence[str], proxies: Mapping[str, str], timeout: float) -> tuple[int, str]:
    """One call of apt-get in a process group of its own, which ends with it, also when a signal ends the run."""
    # A signal that struck inside `Popen` itself would leave a process that nobody knows; only the main thread gets one.
    # It is known before anyone waits for it, since a signal can strike as soon as the thread runs.
    started: list[subprocess.Popen[str]] = []
    with ThreadPoolExecutor(max_workers=1) as starter:
        try:
            starter.submit(lambda: started.append(_start(words, path, proxies))).result()
            output, _ = started[0].communicate(timeout=max(timeout, 0))
        except subprocess.TimeoutExpired:
            _kill(started[0])
            output, _ = started[0].communicate()
            output += f"\n{' '.join(words[:2])} took too long and was ended."
        except BaseException:
            starter.shutdown()
            for process in started:
                _kill(process)
            raise
    return started[0].returncode, output


def _start(words: tuple[str, ...], path: Sequence[str], proxies: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - the system's own program; the names were checked
        words,
        env={**proxies, "PATH": os.pathsep.join(path), "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
