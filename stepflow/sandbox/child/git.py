"""Runs git for the engine, past everything by which a checkout redirects its view of history
(docs/threat-model.md, case 13)."""

from __future__ import annotations

import math
import os
import re
import select
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from .paths import OperationRefused, read_regular

#: Takes the next piece of what a program writes.
Sink = Callable[[bytes], object]

GIT_TIMEOUT = 120.0
#: Git may wait for a pipe that a configuration or a ref leads to.
_HEAD_SECONDS = 10.0
_PIECE = 65536
#: Seconds without output after which it is asked whether git has ended.
_BEAT = 0.1
#: Replaced objects and grafts show another history than the one that is there; taking a lock would be a change.
PLAIN_ENVIRONMENT = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": "/dev/null", "GIT_OPTIONAL_LOCKS": "0"}
#: Neither the machine's configuration nor a personal one, and no program that git would run by itself.
NO_CONFIGURATION = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
NO_PROGRAMS = (("core.hooksPath", os.devnull), ("core.fsmonitor", "false"))
#: Naming a graft file makes git advise against grafts, at length and before it says what is wrong.
NO_GRAFT_ADVICE = "advice.graftFileDeprecated=false"
GIT = ".git"
ALTERNATES = "objects/info/alternates"
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
BRANCHES = "refs/heads/"
_ERROR_BYTES = 1024 * 1024
#: Of what git prints so much is read by default.
_OUTPUT_BYTES = 64 * 1024 * 1024
#: More changed files than this are not looked at one by one: trees that hold one another make any number of them out of
#: a few bytes.
MOST_CHANGED = 200_000
#: Lines are not counted where this many files or more are new; nothing with so many is pushed.
_MOST_NEW = 20_000
#: So many paths of one kind are listed.
FILES_LIMIT = 1000
_LONG_LISTS = 64 * 1024 * 1024
#: So deep git would wait for a pipe, a socket or a device as if it were a file of its own.
_DEPTH = 3
_CONFIG = {
    40: b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
    64: b"[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectFormat = sha256\n",
}


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a program ended, what it printed where no sink took that, and what it said beside that."""

    exit_code: int
    output: bytes = b""
    complaint: str = ""


class PrintsTooMuch(OperationRefused):
    """A git prints more than is read of it."""


@dataclass(frozen=True, kw_only=True)
class GitProgram:
    """git with these variables, for the files below `top`. Without a deadline each call has two minutes. What is not
    `fine` is refused with the `failure`, by default the command's name."""

    top: str
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = GIT_TIMEOUT
    deadline: float | None = None
    failure: str = "git could not tell"

    def run(
        self,
        *words: str,
        stdin: bytes | int = b"",
        env: Mapping[str, str] | None = None,
        fine: Sequence[int] | None = (0,),
        sink: Sink | None = None,
        limit: float | None = None,
    ) -> Ended:
        """Run git to its end. Raises `OperationRefused` for an exit code that is not `fine`, `PrintsTooMuch` for more
        than `limit` bytes; what the sink raises ends it."""
        most = limit if limit is not None else math.inf if sink else _OUTPUT_BYTES
        command, output, left = words[0], bytearray(), most

        def take(data: bytes) -> None:
            nonlocal left
            left -= len(data)
            if left < 0:
                raise PrintsTooMuch(f"git {command} prints more than {most} bytes")
            (sink or output.extend)(data)

        seconds = self.seconds if self.deadline is None else max(self.deadline - time.monotonic(), 0.0)
        environment = {**os.environ, **PLAIN_ENVIRONMENT, **self.environment, **(env or {})}
        words = ("git", "-c", NO_GRAFT_ADVICE, "-C", self.top, *words)
        ended = run_program(words, environment, seconds, take, stdin=stdin)
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise OperationRefused(f"It took longer than {self.seconds:g} s.")
        if fine is not None and ended.exit_code not in fine:
            why = ended.complaint.strip()[-500:] or f"exit code {ended.exit_code}"
            raise OperationRefused(f"{self.failure or f'git {command} failed'}: {why}")
        return replace(ended, output=bytes(output))

    def __call__(self, *words: str, stdin: bytes | int = b"", env: Mapping[str, str] | None = None) -> bytes:
        """Return what git prints. Raises `OperationRefused`."""
        return self.run(*words, stdin=stdin, env=env).output

    def line(self, *words: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> str:
        """Return the one line that git prints. Raises `OperationRefused`."""
        return self(*words, stdin=stdin, env=env).decode().strip()

    def ask(self, *words: str, stdin: bytes = b"") -> list[str]:
        """Return what git prints, cut at its NUL characters. Raises `OperationRefused`."""
        return [record for record in os.fsdecode(self(*words, stdin=stdin)).split("\0") if record]


def config_variables(settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the environment variables that give git these settings, after those of every file."""
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def run_program(
    words: Sequence[str], environment: Mapping[str, str], timeout: float, sink: Sink, *, stdin: bytes | int = b""
) -> Ended:
    """Run a program with this input, bytes or a descriptor, and hand on what it prints. What the sink raises ends it.
    Raises `OperationRefused` where it cannot be started."""
    # Files: who reads one thing and writes another at once needs no threads then.
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as given:
        if isinstance(stdin, bytes):
            given.write(stdin)
            given.seek(0)
            stdin = given.fileno()
        try:
            process = subprocess.Popen(  # noqa: S603 - no shell
                words, env=environment, stdin=stdin, stdout=subprocess.PIPE, stderr=errors
            )
        except OSError as exc:
            raise OperationRefused(f"`{words[0]}` could not be started: {exc.strerror}") from exc
        with process:
            try:
                in_time = _read(process, sink, time.monotonic() + timeout)
            finally:
                process.kill()
        if not in_time:
            return Ended(exit_code=-1, complaint=f"timed out after {timeout:g} s; it was killed")
        errors.seek(0)
        return Ended(exit_code=process.returncode, complaint=errors.read(_ERROR_BYTES).decode("utf-8", "replace"))


def _read(process: subprocess.Popen[bytes], sink: Sink, deadline: float) -> bool:
    """Read until the program ends; false when that takes too long. What it has started may keep its output open."""
    assert process.stdout  # noqa: S101 - a pipe
    output = process.stdout.fileno()
    while (left := deadline - time.monotonic()) > 0:
        if select.select([output], [], [], min(left, _BEAT))[0]:
            data = os.read(output, _PIECE)
            if not data:
                break
            sink(data)
        elif process.poll() is not None:
            return True
    try:
        process.wait(max(deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        return False
    return True


def join_paths(paths: Iterable[str | bytes]) -> bytes:
    """Paths as git reads them with `-z`."""
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def refuse_to_wait(dot_git: str) -> None:
    """Refuses a git folder where git would wait for a pipe, a socket or a device as if it were a file of its own."""
    if found := _find_special(dot_git, _DEPTH):
        raise OperationRefused(f"{found!r} is not a regular file, so git would wait there.")


def _find_special(path: str, depth: int) -> str:
    """Return the first pipe, socket or character device there, links followed; empty for none."""
    with suppress(OSError):
        mode = os.stat(path).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode):
            return path
        if depth and stat.S_ISDIR(mode):
            with os.scandir(path) as entries:
                # A regular file is told without a look at it.
                inner = [entry.path for entry in entries if not entry.is_file(follow_symlinks=False)]
            return next(filter(None, (_find_special(one, depth - 1) for one in inner)), "")
    return ""


@dataclass(frozen=True, kw_only=True)
class Repository:
    """The repository of a work tree, with the folder of its objects, its history's `shallow` ends, and the `alternates`
    that it borrows objects from, as they were when it was located."""

    top: str
    objects: str
    shallow: bytes = b""
    alternates: bytes = b""

    @classmethod
    def locate(cls, checkout: str) -> Repository | None:
        """None where there is no repository."""
        dot_git = os.path.join(checkout, GIT)
        if not os.path.lexists(dot_git):
            return None
        git = GitProgram(top=checkout, environment={"GIT_DIR": dot_git, **NO_CONFIGURATION}, seconds=_HEAD_SECONDS)
        names = [word for name in ("objects", "shallow") for word in ("--git-path", name)]
        answer = git.run("rev-parse", "--path-format=absolute", *names, fine=None)
        places = os.fsdecode(answer.output).splitlines() if not answer.exit_code else []
        objects, shallow = places if len(places) == len(names) // 2 else (os.path.join(dot_git, "objects"), "")
        return cls(
            top=checkout,
            objects=objects,
            shallow=read_regular(shallow, _LONG_LISTS)[0],
            alternates=read_regular(os.path.join(objects, "info/alternates"), _LONG_LISTS)[0],
        )

    def head(self) -> tuple[str, str]:
        """Return the commit that HEAD stands on, and the branch if it stands on one. Raises `OperationRefused`."""
        dot_git = os.path.join(self.top, GIT)
        refuse_to_wait(dot_git)
        environment = {"GIT_DIR": dot_git, "GIT_WORK_TREE": self.top, **NO_CONFIGURATION}
        git = GitProgram(top=self.top, environment=environment, seconds=_HEAD_SECONDS)
        ended = git.run("rev-parse", "--verify", "HEAD", fine=(0, 128))
        if ended.exit_code:
            raise OperationRefused("there is no commit yet")
        named = git.run("symbolic-ref", "--quiet", "HEAD", fine=(0, 1)).output
        commit, branch = ended.output.decode().strip(), os.fsdecode(named).removesuffix("\n")
        # A link may lead to what is no branch, such as a replacement of a commit.
        return commit, branch if branch.startswith(BRANCHES) else ""


@dataclass(frozen=True, kw_only=True)
class EngineGit(GitProgram):
    """Git that knows one repository, one commit as HEAD, and the settings and rules that it is given, all of it in the
    folder."""

    folder: str

    def count_files(self, commit: str, most: int | None = None) -> int:
        """Return how many files a commit has. Raises `OperationRefused` for more than so many, before git goes
        through the others."""
        count = 0

        def take(data: bytes) -> None:
            nonlocal count
            count += data.count(b"\0")
            if most is not None and count > most:
                raise OperationRefused(f"the commit has more than {most} files")

        self.run("ls-tree", "-r", "-z", "--name-only", commit, sink=take)
        return count

    def refresh_index(self) -> None:
        """Let the index know the times of the files that are as it says."""
        self.run("update-index", "-q", "--refresh", fine=None)

    def read(self, name: str) -> bytes:
        """Return a file in the engine's folder."""
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()

    def write(self, name: str, data: bytes) -> str:
        """Write a file in the engine's folder and return its path."""
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(data)
        return path


@contextmanager
def engine_git(
    repository: Repository,
    commit: str,
    *,
    settings: Iterable[tuple[str, str]] = (),
    attributes: bytes = b"",
) -> Iterator[EngineGit]:
    """Open it for the block. `settings` and `attributes` decide how files of the work tree are compared."""
    folder = os.path.join(os.environ["TMPDIR"], f"engine-git-{os.urandom(8).hex()}")
    given = (
        *settings,
        *NO_PROGRAMS,
        ("core.attributesFile", os.devnull),
        ("core.excludesFile", os.devnull),
        ("core.untrackedCache", "false"),
        ("core.preloadIndex", "true"),
    )
    environment = {
        "HOME": folder,
        "XDG_CONFIG_HOME": folder,
        "GIT_DIR": folder,
        "GIT_WORK_TREE": repository.top,
        **NO_CONFIGURATION,
        **config_variables(given),
    }
    os.mkdir(folder, 0o700)
    try:
        for name in ("refs", "info", "objects/info"):
            os.makedirs(os.path.join(folder, name))
        opened = EngineGit(folder=folder, environment=environment, top=repository.top)
        opened.write("HEAD", f"{commit}\n".encode())
        opened.write("config", _CONFIG[len(commit)])
        opened.write("info/attributes", attributes)
        opened.write(ALTERNATES, os.fsencode(repository.objects) + b"\n")
        if repository.shallow:
            opened.write("shallow", repository.shallow)
        yield opened
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_objects(repository: Repository, arguments: Sequence[str], *, base: str, stdin: str, hand_on: Sink) -> None:
    """Hand on what a git command prints that only reads objects. `base` is any commit of the repository."""
    if not COMMIT.fullmatch(base):
        raise OperationRefused(f"{base!r} is no commit id")
    with engine_git(repository, base) as own:
        own.run(*arguments, sink=hand_on, stdin=stdin.encode())


def bundle(repository: Repository, *, base: str, commit: str, most_bytes: int, hand_on: Sink) -> dict[str, object]:
    """Hand on a bundle of `base..commit`; nothing is handed on when there is no commit since the base, or when its
    objects have more than `most_bytes`."""
    for name in (base, commit):
        if not COMMIT.fullmatch(name):
            raise OperationRefused(f"{name!r} is no commit id")
    with engine_git(repository, commit) as own:
        tree = own.line("rev-parse", "--verify", "HEAD^{tree}")
        count, too_large = stream_bundle(own, base, most_bytes=most_bytes, hand_on=hand_on)
        if too_large:
            return {"too_large": too_large}
        changes = _diff_stat(own, base) if count else None
    return {"commits": count, "commit": commit, "tree": tree, "changes": changes}


def stream_bundle(own: EngineGit, base: str, *, most_bytes: int, hand_on: Sink) -> tuple[int, str]:
    """Hand on a bundle of `base..HEAD` and return how many commits it has. Instead return what is too much if the
    objects have more than `most_bytes`."""
    count = int(own.line("rev-list", "--count", f"{base}..HEAD"))
    too_large = _describe_size(own, base, most_bytes) if count else ""
    if count and not too_large:
        # Without deltas: what it holds is searched for secrets.
        plain = ("-c", "pack.window=0", "-c", "pack.depth=0")
        own.run(*plain, "bundle", "create", "--quiet", "-", f"^{base}", "HEAD", sink=hand_on)
    return count, too_large


def _describe_size(own: EngineGit, base: str, most_bytes: int) -> str:
    """Say what is too much in the commits since the base; empty if nothing is. Only git's index of objects is read, so
    this costs nothing, however large a file is."""
    try:
        objects = own.run("rev-list", "--objects", f"^{base}", "HEAD").output
        lines = own.run("cat-file", "--batch-check=%(objectsize) %(rest)", stdin=objects).output.split(b"\n")[:-1]
    except PrintsTooMuch:
        return "they have more files than can be listed"
    sizes = [(int(size), path) for size, _, path in (line.partition(b" ") for line in lines)]
    total = sum(size for size, _ in sizes)
    if total <= most_bytes:
        return ""
    size, path = max(sizes)
    name = os.fsdecode(path).encode("unicode_escape").decode()
    return f"{total >> 20:,} MiB in all; the largest is {name or 'a commit'} with {size >> 20:,} MiB"


def _diff_stat(own: EngineGit, base: str) -> dict[str, object] | None:
    """Return the lines added and removed by HEAD, per file and in all; None for too many files and where git cannot
    compare, as with a base of which the clone lacks files: the commits can be taken out of it all the same."""
    try:
        own.count_files("HEAD", own.count_files(base) + _MOST_NEW)
        lines = own.ask("diff", "--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", base, "HEAD")
    except OperationRefused:
        return None
    files = [_line_counts(*line.split("\t", 2)) for line in lines]
    return {
        "files": files[:FILES_LIMIT],
        "count": len(files),
        "added": sum(added or 0 for _, added, _ in files),
        "removed": sum(removed or 0 for _, _, removed in files),
    }


def _line_counts(added: str, removed: str, path: str) -> tuple[str, int | None, int | None]:
    # For a binary file git prints dashes.
    return path, int(added) if added.isdigit() else None, int(removed) if removed.isdigit() else None
