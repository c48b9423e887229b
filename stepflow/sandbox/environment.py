"""What the tools see of an environment, built from nothing, and how the parent closes its own (security.md cases 1, 7
and 15)."""

from __future__ import annotations

import ctypes
import os
import re
import resource
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.domain.secrets import logs_in
from stepflow.domain.words import Network
from stepflow.errors import InputError
from stepflow.sandbox.child.enter_sandbox import become_undumpable, config_variables
from stepflow.sandbox.options import ToolboxOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
#: Where `pip install --user`, `npm install --global --prefix ~/.local` and most installers put programs without root.
_HOME_PROGRAMS = ".local/bin"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Inputs, runtime tokens and the files that later steps of the job read; what decides which program or library runs.
_NEVER = re.compile(
    r"INPUT_.*|ACTIONS_.*|GIT_CONFIG_.*|LD_.*|BASH_ENV|ENV|SHELLOPTS|BASHOPTS"
    r"|GH_TOKEN|STEPFLOW_READ_TOKEN"
    r"|GITHUB_(?:TOKEN|ENV|PATH|OUTPUT|STATE|STEP_SUMMARY)"
)
#: Any address will do: with `network: allow` every connection leads to the parent's proxy. Programs that know of one
#: leave the host's name to it.
_PROXY = "http://127.0.0.1:3128"
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
_GIT_CONFIG = (
    ("user.name", "stepflow"),
    ("user.email", "stepflow@users.noreply.github.com"),
    # A collection in the background would outlive its command and be killed half-way.
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
)
_LIBC = ctypes.CDLL(None)
_LIBC.getenv.restype = ctypes.c_void_p


def build_environment(
    *, checkout: Path, private: Path, programs: tuple[Path, ...], options: ToolboxOptions
) -> dict[str, str]:
    """Every variable of every tool. Raises `InputError` for a name in `pass_env` that tools must not be given."""
    home = private / "home"
    fixed = {
        "PATH": _path(home, programs, options),
        "HOME": str(home),
        "TMPDIR": str(private / "tmp"),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        # Some programs (Deno) color what no terminal will show; models and reports would pay for the codes.
        "NO_COLOR": "1",
        "CI": "true",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        # Validators ask for a clean tree; byte code beside the sources would be the tools' own dirt.
        "PYTHONDONTWRITEBYTECODE": "1",
        **(dict.fromkeys(_PROXIES, _PROXY) if options.network is Network.ALLOW else {}),
        **config_variables((("safe.directory", str(checkout)), *_GIT_CONFIG)),
    }
    _check_names(options.pass_env, fixed)
    inherited = os.environ if "environment" in options.disabled_layers else {}
    return {**inherited, **fixed, **options.pass_env}


def check_pass_env(pass_env: Mapping[str, str]) -> None:
    """Raises `InputError` for a variable that tools must not be given, before anything is started."""
    build_environment(checkout=Path("/"), private=Path("/"), programs=(), options=ToolboxOptions(pass_env=pass_env))


def _path(home: Path, programs: tuple[Path, ...], options: ToolboxOptions) -> str:
    """What is installed into the tools' home comes last, so nothing there can stand in for another program."""
    if "path" in options.disabled_layers:
        return os.environ["PATH"]
    last = (home / _HOME_PROGRAMS,) if options.home_programs else ()
    return ":".join(str(folder) for folder in (*programs, *last))


def is_never_given(name: str) -> bool:
    """Whether a variable of this name would be a way out; git's settings are given by the toolbox itself."""
    return _is_barred(name) and not name.startswith("GIT_CONFIG_")


def _is_barred(name: str) -> bool:
    return bool(_NEVER.fullmatch(name)) or logs_in(name)


def _check_names(pass_env: Mapping[str, str], fixed: Mapping[str, str]) -> None:
    for name, value in pass_env.items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise InputError(f"pass-env: `{name}` is no variable that a process can have.", hint="Correct the name.")
        if name in fixed or _is_barred(name):
            raise InputError(
                f"pass-env: `{name}` cannot be given to the tools; it is set by the toolbox or would reach secrets.",
                hint="Remove it from pass-env; pass the value under another name if tools need it.",
            )


def close_process() -> None:
    """Keep other processes of the same user out of our /proc entries and our memory, and leave no core file.

    From here on PATH is the fixed one, also for what libraries start: Python's `platform` runs `uname`.
    """
    become_undumpable()
    os.environ["PATH"] = os.pathsep.join(SYSTEM_PATH)
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def wipe_variables(names: Iterable[str]) -> None:
    """Take these variables out of the environment, and their values out of what /proc shows of it for good.

    Unsetting alone leaves the bytes where the kernel put them when it started this process.
    """
    for name in names:
        address = _LIBC.getenv(os.fsencode(name))
        if address:
            ctypes.memset(address, ord("*"), len(ctypes.string_at(address)))
        os.environ.pop(name, None)
