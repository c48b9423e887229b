"""Asks, before a model is asked and the way a tool would, for everything that no tool may reach (docs/threat-model.md).

Nothing is planted anywhere: neither the kernel nor a file's mode asks who made a file.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import secrets
import shlex
import socket
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from stepflow.domain.checkout import CommandRequest
from stepflow.domain.conversation import ToolUse
from stepflow.domain.secrets import Redactor
from stepflow.domain.words import CanaryState, Isolation, Network
from stepflow.errors import IsolationError
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.environment import is_never_given
from stepflow.sandbox.isolation import closed_interpreter

_PROBE = Path(__file__).parent / "child" / "probe.py"
_UNPACK = (
    "import base64, json, sys, zlib\n"
    "program, sys.argv[1] = json.loads(zlib.decompress(base64.b64decode(sys.argv[1])))\n"
    "exec(program)"
)
_TIMEOUT = 60.0
#: Kinds whose answer is text that the parent judges; the shell's output has no room for it.
_TEXTS = frozenset({"bytes", "git-config"})
#: Of many ways the first ones say enough.
_SHOWN = 3
_LAST_WORDS = 500
#: Of a folder's files, those that their modes leave open first.
_MOST_FILES = 8
#: Far more than any machine has in a folder, or below /run; a self-test must end.
_MOST_ENTRIES = 20_000
_REQUIRED_HINT = (
    "Run the action in its own container on a kernel with Landlock (`stepflow preflight` shows each layer), or set "
    "`isolation: best-effort` where you trust everyone who writes issues and everything that the repository runs."
)
_ALWAYS_HINT = (
    "This is refused with `isolation: best-effort` too. Remove what leads there, such as a secret in pass-env or in "
    "git's configuration or a socket that every user may use, or run the action in its own container."
)


@dataclass(frozen=True)
class Place:
    """Something that no tool may reach, in the words of the report. `layer` should stop a tool on its way there.

    `always` refuses with `isolation: best-effort` too: who reaches such a place has the secrets.
    """

    name: str
    layer: str = "landlock"
    always: bool = False

    def __str__(self) -> str:
        return self.name


class Location(Enum):
    """Every place that is tried, in the order of the report."""

    ENVIRONMENT = Place("a tool's environment", "environment", always=True)
    DESCRIPTORS = Place("a tool's open descriptors", "environment", always=True)
    CHECKOUT = Place("the checkout")
    GIT_CONFIG = Place("git's configuration", "the workspace's own settings", always=True)
    PARENT = Place("the parent in /proc", "uid or landlock", always=True)
    MEMORY = Place("the parent's memory", "uid or landlock", always=True)
    FIRST_PROCESS = Place("process 1 in /proc", "uid or landlock")
    SIGNAL = Place("signals to the parent", "uid or landlock")
    RUNNER_TEMP = Place("RUNNER_TEMP")
    RUN_FOLDER = Place("the run folder")
    GITHUB_HOME = Place("/github/home")
    WORKFLOW = Place("/github/workflow and the event")
    FILE_COMMANDS = Place("/github/file_commands")
    ACT = Place("/var/run/act/workflow")
    HOME = Place("the parent's home")
    TEMPORARY = Place("the parent's temporary files")
    DOCKER = Place("the docker socket", "gid, or seccomp for uid 0")
    SOCKETS = Place("other sockets under /run", "gid, or seccomp for uid 0")
    ABSTRACT = Place("abstract sockets")
    TCP = Place("TCP", "network")
    TCP6 = Place("TCP over IPv6", "network")
    UDP = Place("UDP", "network")


#: Where the runner mounts its folders into a Docker action, and where act keeps its own in place of them.
_MOUNTED = (
    (Location.RUNNER_TEMP, "/github/runner_temp"),
    (Location.GITHUB_HOME, "/github/home"),
    (Location.WORKFLOW, "/github/workflow"),
    (Location.FILE_COMMANDS, "/github/file_commands"),
    (Location.ACT, "/var/run/act/workflow"),
)
#: The files by which a job's steps speak to the runner.
_JOB_FILES = (
    (Location.WORKFLOW, "GITHUB_EVENT_PATH"),
    (Location.FILE_COMMANDS, "GITHUB_ENV"),
    (Location.FILE_COMMANDS, "GITHUB_PATH"),
    (Location.FILE_COMMANDS, "GITHUB_OUTPUT"),
    (Location.FILE_COMMANDS, "GITHUB_STATE"),
    (Location.FILE_COMMANDS, "GITHUB_STEP_SUMMARY"),
)
#: Listeners of the parent on this machine, by the kind of attempt.
_LISTENERS = (
    (Location.TCP, "tcp", socket.AF_INET, "127.0.0.1"),
    (Location.UDP, "udp", socket.AF_INET, "127.0.0.1"),
    (Location.TCP6, "tcp", socket.AF_INET6, "::1"),
)
#: Each asks the kernel for more than that the process is there.
_OF_A_PROCESS = (
    *(("read", "environ"), ("read", "mem"), ("read", "maps")),
    *(("follow", "fd/0"), ("follow", "cwd"), ("follow", "root")),
)


@dataclass(frozen=True, kw_only=True)
class Outside:
    """`environment` is the parent's, with the names that a runner sets; `checkout` is what the workspace was made from;
    `secrets` is everything that it knows; every socket below `socket_folders` is tried, and `docker` are those whose
    reach is root on the machine."""

    environment: Mapping[str, str] = field(default_factory=dict)
    checkout: Path | None = None
    run_folder: Path | None = None
    secrets: Iterable[str] = ()
    socket_folders: tuple[str, ...] = ("/run", "/var/run")
    docker: tuple[str, ...] = ("/run/docker.sock", "/var/run/docker.sock")


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Something that the probe tries: its kind, and what it is tried on. `shown` is where, in words without chance."""

    location: Location
    kind: str
    target: str = ""
    shown: str


@dataclass(frozen=True, kw_only=True)
class Canary:
    """What became of one place. `ways` says by what and how it was reached. `refuses`: reaching it ends every run."""

    location: Location
    state: CanaryState
    ways: str = ""
    refuses: bool = False

    @property
    def description(self) -> str:
        """The state, with the way if there was one."""
        return f"{self.state} {self.ways}" if self.ways else self.state.value

    def __str__(self) -> str:
        place = self.location.value
        return f"{place}, {self.description} (what should stop that: {place.layer})"


@dataclass(frozen=True, kw_only=True)
class CanaryReport:
    """What the self-test found, place by place."""

    canaries: tuple[Canary, ...]

    @property
    def reached(self) -> tuple[Canary, ...]:
        """Where a tool got that it should not."""
        return tuple(canary for canary in self.canaries if canary.state is CanaryState.REACHED)

    @property
    def states(self) -> Mapping[str, str]:
        """Each place's state, for journal and report."""
        return {canary.location.value.name: canary.description for canary in self.canaries}

    @property
    def open(self) -> tuple[str, ...]:
        """What is open and no reason to refuse, in one line each."""
        return tuple(f"open: {canary}" for canary in self.reached if not canary.refuses)

    def demand(self, isolation: Isolation) -> None:
        """Raise `IsolationError` when something was reached that this isolation does not let pass."""
        bad = [canary for canary in self.reached if canary.refuses or isolation is Isolation.REQUIRED]
        if bad:
            raise IsolationError(
                f"The self-test got out of the sandbox, so nothing else runs in it. {'; '.join(map(str, bad))}.",
                hint=_ALWAYS_HINT if any(canary.refuses for canary in bad) else _REQUIRED_HINT,
            )


def try_canaries(toolbox: Toolbox, outside: Outside) -> CanaryReport:
    """Ask for every place from inside the sandbox. Raises `IsolationError` when that is not possible."""
    with contextlib.ExitStack() as stack:
        listeners = stack.enter_context(_listeners(toolbox.options.network))
        if toolbox.egress:
            stack.enter_context(toolbox.egress.uncounted())
        attempts = [*_at_files(outside, toolbox.checkout), *_at_sockets(outside), *_at_processes(), *listeners]
        reached = list(_by_shell(toolbox, attempts, Redactor(outside.secrets)))
        # The others need no listener: nobody else can own the abstract name, and a datagram that was sent is a reach.
        ports = [(attempt, server) for attempt, server in listeners.items() if attempt.kind == "tcp"]
        reached += (attempt for attempt, server in ports if _was_called(attempt, server))
    tried = {attempt.location for attempt in attempts} | {Location.ENVIRONMENT, Location.DESCRIPTORS}
    return CanaryReport(canaries=tuple(_judge(location, tried, reached) for location in Location))


def _judge(location: Location, tried: set[Location], reached: Iterable[Attempt]) -> Canary:
    ways = _ways(attempt for attempt in reached if attempt.location is location)
    state = CanaryState.REACHED if ways else CanaryState.UNREACHED if location in tried else CanaryState.NOT_HERE
    refuses = location.value.always or (location is Location.DOCKER and os.geteuid() == 0)
    return Canary(location=location, state=state, ways=ways, refuses=refuses)


def _ways(reached: Iterable[Attempt]) -> str:
    """Return all of them in a few words, empty when there were none."""
    kinds: dict[str, dict[str, None]] = {}
    for attempt in reached:
        kinds.setdefault(attempt.shown, {})[attempt.kind] = None
    described = [f"{shown} ({', '.join(names)})" for shown, names in kinds.items()]
    more = f" and {len(described) - _SHOWN} more" if len(described) > _SHOWN else ""
    return f"by shell: {', '.join(described[:_SHOWN])}{more}" if described else ""


def _by_shell(toolbox: Toolbox, attempts: Sequence[Attempt], redact: Redactor) -> Iterator[Attempt]:
    """Once in the shell that `bash` keeps, once as the single command that a validator is."""
    short = [attempt for attempt in attempts if attempt.kind not in _TEXTS]
    command = shlex.join(_probe(toolbox, short))
    result = toolbox.run_tool(ToolUse(tool_use_id="self-test", name="bash", input={"command": command}))
    yield from _read_probe(result.output, short, redact)
    done = toolbox.run_command(CommandRequest(argv=_probe(toolbox, attempts), timeout=_TIMEOUT, about="self-test"))
    yield from _read_probe(done.stdout or done.stderr or done.error, attempts, redact)


def _probe(toolbox: Toolbox, attempts: Sequence[Attempt]) -> tuple[str, ...]:
    """The program itself is in the command: no file of ours need be readable for the tools. It is packed, since the
    pipe to a shell may be small."""
    python = "python3" if closed_interpreter(toolbox.uid) else sys.executable
    tried = json.dumps([[attempt.kind, attempt.target] for attempt in attempts])
    packed = zlib.compress(json.dumps([_PROBE.read_text(encoding="utf-8"), tried]).encode())
    return (python, "-I", "-S", "-c", _UNPACK, base64.b64encode(packed).decode())


def _read_probe(output: str, attempts: Sequence[Attempt], redact: Redactor) -> Iterator[Attempt]:
    """Return what one probe reports that it reached."""
    try:
        answer = json.loads(output)
    except ValueError:
        said = redact(output.strip())[-_LAST_WORDS:] or "no answer"
        raise IsolationError(
            f"The self-test of the sandbox could not be run in it: {said}.",
            hint="The tools' user must be able to run Python 3: install it where every user may enter.",
        ) from None
    for attempt, result in zip(attempts, answer["results"], strict=True):
        if not result or (result.startswith(":") and _holds_secret(result[1:], redact)):
            yield attempt
    for leads_to in answer["descriptors"]:
        yield Attempt(location=Location.DESCRIPTORS, kind="open", shown=leads_to)
    # Names and values come as hex, since they may be any bytes.
    for name_hex, value in answer["environment"].items():
        name = bytes.fromhex(name_hex).decode("utf-8", "replace")
        if is_never_given(name) or _holds_secret(name_hex, redact) or _holds_secret(value, redact):
            yield Attempt(location=Location.ENVIRONMENT, kind="set", shown=redact(name))


def _holds_secret(data: str, redact: Redactor) -> bool:
    text = bytes.fromhex(data).decode("utf-8", "replace")
    return redact(text) != text


def _at_files(outside: Outside, workspace: Path) -> Iterator[Attempt]:
    """Folders and files around the workspace, which itself belongs to the tools."""
    named = ((location, outside.environment.get(name)) for location, name in _JOB_FILES)
    files = [(location, Path(name)) for location, name in named if name]
    for folder, location in _folders(outside, files, workspace).items():
        if not folder.is_relative_to(workspace):
            yield from _try_all(location, ("list", "make"), folder, str(folder))
            yield from _try_files(location, _files_in(folder), str(folder))
    for location, path in files:
        if _is_there(path, stat.S_ISREG) and not path.resolve().is_relative_to(workspace):
            yield from _try_files(location, (path,), str(path))
    checkout = outside.checkout
    if checkout and not checkout.resolve().is_relative_to(workspace):
        # Not even for a moment is a file made here.
        yield from _try_all(Location.CHECKOUT, ("list",), checkout, str(checkout))
        for folder in (checkout, checkout / ".git"):
            yield from _try_files(Location.CHECKOUT, _files_in(folder), str(folder))
    yield from _try_all(Location.GIT_CONFIG, ("git-config",), "", "git config --list")
    yield from _try_all(Location.GIT_CONFIG, ("bytes",), workspace / ".git" / "config", ".git/config")


def _folders(outside: Outside, files: Iterable[tuple[Location, Path]], workspace: Path) -> Mapping[Path, Location]:
    """Return each folder that is there once, under the name that says most."""
    temp, home = outside.environment.get("RUNNER_TEMP"), outside.environment.get("HOME")
    named: tuple[tuple[Location, str | Path], ...] = (
        *_MOUNTED,
        *([(Location.RUNNER_TEMP, temp)] if temp else []),
        *([(Location.RUN_FOLDER, outside.run_folder)] if outside.run_folder else []),
        *((location, file.parent) for location, file in files),
        (Location.HOME, home or Path.home()),
        # A workspace that was made of a checkout stands among them.
        (Location.TEMPORARY, workspace.parent if outside.checkout else tempfile.gettempdir()),
    )
    folders: dict[Path, Location] = {}
    for location, path in named:
        if _is_there(path, stat.S_ISDIR):
            folders.setdefault(Path(path).resolve(), location)
    return folders


def _is_there(path: str | Path, is_kind: Callable[[int], bool]) -> bool:
    """Where the parent itself may not look, something may well be."""
    try:
        return is_kind(Path(path).stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _files_in(folder: Path) -> list[str]:
    """Some of the files that are there, those that anybody may read or write before others."""
    found: list[tuple[int, str]] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in itertools.islice(entries, _MOST_ENTRIES):
            with contextlib.suppress(FileNotFoundError):
                mode = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISREG(mode):
                    found.append((-(mode & (stat.S_IROTH | stat.S_IWOTH)), entry.path))
    return [path for _, path in sorted(found)[:_MOST_FILES]]


def _try_files(location: Location, files: Iterable[str | Path], shown: str) -> Iterator[Attempt]:
    """Nothing is written: opening says enough."""
    for file in files:
        yield from _try_all(location, ("read", "append"), file, shown)


def _try_all(location: Location, kinds: Iterable[str], target: str | Path, shown: str) -> Iterator[Attempt]:
    for kind in kinds:
        yield Attempt(location=location, kind=kind, target=str(target), shown=shown)


def _at_processes() -> Iterator[Attempt]:
    parent = str(os.getpid())
    if sys.platform == "linux":
        yield from _try_all(Location.MEMORY, ("peek", "trace"), parent, "the parent")
    yield from _try_all(Location.SIGNAL, ("signal",), parent, "the parent")
    for pid, location in {"1": Location.FIRST_PROCESS, parent: Location.PARENT}.items():
        folder = Path("/proc") / pid
        for kind, name in _OF_A_PROCESS if folder.is_dir() else ():
            yield from _try_all(location, (kind,), folder / name, name)


def _at_sockets(outside: Outside) -> Iterator[Attempt]:
    docker = {Path(path).resolve() for path in outside.docker if Path(path).exists()}
    for path in dict.fromkeys((*sorted(docker), *sockets_under(outside.socket_folders))):
        yield from _try_all(Location.DOCKER if path in docker else Location.SOCKETS, ("connect",), path, str(path))


@contextlib.contextmanager
def _listeners(network: Network) -> Iterator[Mapping[Attempt, socket.socket]]:
    """Sockets of the parent on this machine, while the block lasts: nothing of a tool's may come in at one."""
    servers: dict[Attempt, socket.socket] = {}
    with contextlib.ExitStack() as closing:
        for location, kind, address_family, host in _LISTENERS if network is not Network.FULL else ():
            with contextlib.suppress(OSError):
                server = socket.socket(address_family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
                closing.enter_context(server)
                server.bind((host, 0))
                if kind != "udp":
                    server.listen()
                target = f"{host}:{server.getsockname()[1]} {secrets.token_hex(8)}"
                servers[Attempt(location=location, kind=kind, target=target, shown=host)] = server
        if sys.platform == "linux":
            name = f"stepflow-self-test-{secrets.token_hex(8)}"
            server = closing.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            server.bind(f"\0{name}")
            server.listen()
            attempt = Attempt(location=Location.ABSTRACT, kind="connect", target=f"@{name}", shown="one of the parent")
            servers[attempt] = server
        yield servers


def _was_called(attempt: Attempt, server: socket.socket) -> bool:
    """Return whether the probe reached a port of ours. Any program on the machine may connect there, but only the probe
    knows the mark."""
    mark = attempt.target.partition(" ")[2].encode()
    server.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            with server.accept()[0] as caller, contextlib.suppress(OSError):
                caller.setblocking(False)
                if caller.recv(len(mark)) == mark:
                    return True
    return False


def sockets_under(folders: Iterable[str]) -> Iterator[Path]:
    """Return each socket once, by the name that leads to it without a link."""
    fuse_mounts = _fuse_mounts()
    waiting = sorted({os.path.realpath(folder) for folder in folders}, reverse=True)
    seen = 0
    while waiting and seen < _MOST_ENTRIES:
        with contextlib.suppress(OSError):
            for path in sorted(Path(waiting.pop()).iterdir()):
                seen += 1
                with contextlib.suppress(OSError):
                    mode = path.lstat().st_mode
                    if stat.S_ISSOCK(mode):
                        yield path
                    elif stat.S_ISDIR(mode) and str(path) not in fuse_mounts:
                        waiting.append(str(path))


def _fuse_mounts() -> frozenset[str]:
    """In mountinfo the fifth field is the mount point, and after the dash comes the type (proc(5))."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    parted = (line.partition(" - ") for line in lines)
    return frozenset(location.split()[4] for location, _, kind in parted if kind.startswith("fuse"))
