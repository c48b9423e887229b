"""The tools' environment, which starts empty, and where they find programs: the system's and this interpreter's, or at
a terminal the person's own. Also installs Debian packages before any tool runs, and closes the parent's own process to
the tools."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from stepflow.domain.checkout import CommandResult
from stepflow.domain.secrets import logs_in
from stepflow.domain.words import Network
from stepflow.errors import InputError
from stepflow.programs import TimedOut, run_program
from stepflow.sandbox.child.enter_sandbox import become_undumpable
from stepflow.sandbox.child.git import config_variables
from stepflow.sandbox.copying import copy_files
from stepflow.sandbox.installed import interpreters_of, is_environment, mentions, move_environment
from stepflow.sandbox.isolation import Identity, ToolboxOptions, closed_folder, closed_interpreter

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
#: Any address will do: with listed hosts every connection leads to the parent's proxy. Programs that know of one
#: leave the host's name to it.
_PROXY = "http://127.0.0.1:3128"
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
_GIT_CONFIG = (
    ("user.name", "stepflow"),
    ("user.email", "agent@stepflow.invalid"),
    # A collection in the background would outlive its command and be killed half-way.
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
)
_LIBC = ctypes.CDLL(None)
_LIBC.getenv.restype = ctypes.c_void_p
_BIN = frozenset({"bin", "sbin", "Scripts"})
#: What programs in a `bin` read beside it. Not the whole prefix: below `~/.local` and `~/.cargo` secrets may stand too.
_BESIDE = ("lib", "lib64", "libexec", "include")
#: Version managers (pyenv, rbenv, asdf) keep everything else beside the folder of this name.
_SHIMS = "shims"
_RUSTUP, _RUSTUP_HOME = "rustup", "RUSTUP_HOME"
_SYSTEM = tuple(Path(folder) for folder in SYSTEM_PATH)
_OUTPUT_LIMIT = 64 * 1024
#: A name with perhaps an architecture and a version. To apt-get a dash at the end would mean "remove".
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.:=~-]*(?<!-)")


def build_environment(
    *, checkout: Path, private: Path, programs: tuple[Path, ...], options: ToolboxOptions
) -> dict[str, str]:
    """Return every variable of every tool. Raises `InputError` for a name in `pass_env` that tools must not be
    given."""
    home, settings = private / "home", (("safe.directory", str(checkout)), *_GIT_CONFIG)
    fixed = {
        "PATH": _path(home, programs, options),
        "HOME": str(home),
        "TMPDIR": str(private / "tmp"),
        # Where pnpm 12 puts its locks. Without it, that is /tmp, where tools cannot write.
        "XDG_RUNTIME_DIR": str(private / "tmp"),
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
        **config_variables(settings),
    }
    _check_names(options.pass_env, fixed)
    inherited = os.environ if "environment" in options.disabled_layers else {}
    return {**inherited, **fixed, **options.pass_env}


def check_pass_env(pass_env: Mapping[str, str]) -> None:
    """Raise `InputError` for a variable that tools must not be given, before anything is started."""
    build_environment(checkout=Path("/"), private=Path("/"), programs=(), options=ToolboxOptions(pass_env=pass_env))


def _path(home: Path, programs: tuple[Path, ...], options: ToolboxOptions) -> str:
    """What is installed into the tools' home comes last, so nothing there can stand in for another program."""
    if "path" in options.disabled_layers:
        return os.environ["PATH"]
    last = (home / _HOME_PROGRAMS,) if options.home_programs else ()
    return ":".join(str(folder) for folder in (*programs, *last))


def is_never_given(name: str) -> bool:
    """Return whether a variable of this name would be a way out; git's settings are given by the toolbox itself."""
    return _is_barred(name) and not name.startswith("GIT_CONFIG_")


def _is_barred(name: str) -> bool:
    return bool(_NEVER.fullmatch(name)) or logs_in(name)


def _check_names(pass_env: Mapping[str, str], fixed: Mapping[str, str]) -> None:
    for name, value in pass_env.items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise InputError(f"pass-env: `{name}` is not a valid name of a variable.", hint="Correct the name.")
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


@dataclass(frozen=True, kw_only=True)
class Programs:
    """The folders of the tools' PATH, and what the report says about them."""

    folders: tuple[Path, ...]
    state: str
    #: The folders with the interpreters of environments that are called by their paths.
    interpreters: tuple[Path, ...] = ()

    @property
    def read(self) -> tuple[Path, ...]:
        """What these programs must read, beside what the system's do."""
        behind = (path for folder in self.interpreters for path in _prefix(folder))
        return (*(path for folder in self.folders for path in _read_by(folder)), *behind)


def tool_programs(options: ToolboxOptions, identity: Identity | None) -> Programs:
    """Return the folders that the caller names, then the system's; or the system's, then this interpreter's (mypy,
    pytest), so that nothing there stands in for a system program. Where tools cannot enter, every program would look
    forbidden."""
    if options.programs is None:
        return replace(_fixed_programs(identity), interpreters=options.interpreters)
    closed = [folder for folder in options.programs if identity and closed_folder(folder, identity.uid)]
    folders = (folder for folder in (*options.programs, *_SYSTEM) if folder not in closed)
    without = f", without {', '.join(map(str, closed))}, which only their owner may enter" if closed else ""
    state = f"your own PATH{without}"
    return Programs(folders=tuple(dict.fromkeys(folders)), state=state, interpreters=options.interpreters)


def _fixed_programs(identity: Identity | None) -> Programs:
    folder = Path(sys.executable).parent
    if closed := closed_interpreter(identity.uid) if identity else None:
        state = f"fixed; the interpreter's programs are behind {closed}, which only its owner may enter"
        enters = not (identity and closed_folder(folder, identity.uid))
        return Programs(folders=(*_SYSTEM, *((folder,) if enters else ())), state=state)
    return Programs(folders=(*_SYSTEM, folder), state="fixed")


def user_programs(path: str, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the folders of the person's PATH, but for stepflow's own environment: a check that finds its program
    there would pass by accident. An active environment in which stepflow is installed is the person's own."""
    own = Path(sys.prefix) if sys.prefix != sys.base_prefix else None
    active = environment.get("VIRTUAL_ENV")
    if active and own and own.resolve() == Path(active).resolve():
        own = None
    folders = (Path(entry) for entry in path.split(os.pathsep))
    # The question whether a folder exists fails where it may not be asked.
    existing = (folder for folder in folders if folder.is_absolute() and os.access(folder, os.X_OK) and folder.is_dir())
    return tuple(dict.fromkeys(folder for folder in existing if own is None or not folder.is_relative_to(own)))


def variables_for(programs: tuple[Path, ...], environment: Mapping[str, str]) -> dict[str, str]:
    """Return what programs of these folders look for below HOME, which is another one for tools: Rust's tool chains."""
    manager = next((folder for folder in programs if (folder / _RUSTUP).exists()), None)
    return {_RUSTUP_HOME: environment.get(_RUSTUP_HOME) or str(_rustup_home(manager))} if manager else {}


def _rustup_home(folder: Path) -> Path:
    return folder.parents[1] / ".rustup"


def _read_by(folder: Path) -> Iterator[Path]:
    """Return what programs of the folder must read: the folder, its libraries, and those of the interpreter behind
    it."""
    yield folder
    if is_environment(folder.parent):
        yield folder.parent
        for interpreter in interpreters_of(folder.parent):
            yield from _prefix(interpreter)
    elif folder.name == _SHIMS:
        yield folder.parent
    else:
        yield from _prefix(folder.resolve())
        if (folder / _RUSTUP).exists():
            yield _rustup_home(folder)
        for programs in _linked_environments(folder):
            yield from _read_by(programs)


def _linked_environments(folder: Path) -> set[Path]:
    """Return the programs of the virtual environments into which links of the folder lead, as pipx and uv leave
    them."""
    if folder in _SYSTEM or not os.access(folder, os.R_OK):
        return set()
    behind = {Path(os.path.realpath(path)).parent for path in folder.iterdir() if path.is_symlink()}
    return {programs for programs in behind if is_environment(programs.parent)}


def _prefix(folder: Path) -> Iterator[Path]:
    yield folder
    if folder.name in _BIN:
        yield from (folder.parent / name for name in _BESIDE)


def programs_of_copy(programs: tuple[Path, ...], source: Path, copy: Path) -> tuple[Path, ...]:
    """Return the same for a copy of the checkout `source`: environments of the checkout stand beside the copy, where
    tools cannot change them. Other folders of the checkout are left out."""
    moved = {folder: _place(folder.parent, source, copy) / folder.name for folder in _of_checkout(programs, source)}
    outside = (folder for folder in programs if folder in moved or not folder.is_relative_to(source))
    return tuple(moved.get(folder, folder) for folder in outside)


def copy_environments(programs: tuple[Path, ...], source: Path, copy: Path) -> None:
    """Copy the environments of the checkout to where `programs_of_copy` names them; they then lead to the copy."""
    for environment in dict.fromkeys(folder.parent for folder in _of_checkout(programs, source)):
        target = _place(environment, source, copy)
        target.parent.mkdir(parents=True, exist_ok=True)
        copy_files((str(environment.resolve()),), target, as_a_whole=True)
        move_environment(environment, target, checkout=source, to=copy)


def _of_checkout(programs: tuple[Path, ...], source: Path) -> tuple[Path, ...]:
    """Return the programs of the environments in the checkout, and of those elsewhere that use its files."""
    environments = (folder for folder in programs if is_environment(folder.parent))
    return tuple(folder for folder in environments if folder.is_relative_to(source) or mentions(folder.parent, source))


def _place(environment: Path, source: Path, copy: Path) -> Path:
    inside = environment.is_relative_to(source)
    name = environment.relative_to(source) if inside else Path("outside", *environment.parts[1:])
    return copy.with_name("environments") / name


def check_packages(names: Sequence[str], *, path: Sequence[str] = SYSTEM_PATH, uid: int | None = None) -> None:
    """Raise `InputError` for what cannot be installed here. `uid` is who installs, by default this process's user."""
    if not names:
        return
    if bad := [name for name in names if not _PACKAGE.fullmatch(name)]:
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
        exit_code, output = _apt_get((program, *words), path, proxies, timeout - (time.monotonic() - begun))
        log = f"{log}{output}"[-_OUTPUT_LIMIT:]
        if exit_code != 0:
            break
    return CommandResult(exit_code=exit_code, stdout=log, seconds=time.monotonic() - begun)


def _apt_get(
    words: tuple[str, ...], path: Sequence[str], proxies: Mapping[str, str], timeout: float
) -> tuple[int, str]:
    environment = {**proxies, "PATH": os.pathsep.join(path), "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    try:
        done = run_program(
            *words, folder=Path("/"), environment=environment, seconds=timeout, new_session=True, merge_stderr=True
        )
    except TimedOut as exc:
        return -signal.SIGKILL, f"{_text(exc.output)}\n{' '.join(words[:2])} took too long and was ended."
    return done.returncode, _text(done.stdout)


def _text(output: bytes) -> str:
    # A figure of progress is written over the one before.
    return re.sub(r"\r\n?", "\n", output.decode(errors="replace"))
