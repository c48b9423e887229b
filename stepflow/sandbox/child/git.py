"""Runs git for the engine, past everything by which a checkout redirects its view of history
(docs/threat-model.md, case 13)."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from .enter_sandbox import config_variables
from .paths import OperationRefused, below, digest, read_regular

#: Takes the next piece of what a program writes.
Sink = Callable[[bytes], object]

GIT_TIMEOUT = 120.0
_PIECE = 65536
#: Seconds without output after which it is asked whether git has ended.
_BEAT = 0.1
#: Until a program that has closed its output has ended.
_MOMENT = 0.001
#: Replaced objects and grafts show another history than the one that is there; taking a lock would be a change.
PLAIN_ENVIRONMENT = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": "/dev/null", "GIT_OPTIONAL_LOCKS": "0"}
#: Naming a graft file makes git advise against grafts, at length and before it says what is wrong.
NO_GRAFT_ADVICE = ("-c", "advice.graftFileDeprecated=false")
_GITDIR = b"gitdir: "
_LONGEST = 8192
#: `commondir` is where a linked work tree's repository has its objects and branches.
ALTERNATES = "objects/info/alternates"
_LENDERS = ("commondir", ALTERNATES, "info/grafts")
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF = re.compile(rb"refs/[^\0-\x20\x7f~^:?*\[\\]{1,1000}")
_BRANCH = re.compile(r"refs/heads/[\w./+@-]{1,250}")
_ERROR_BYTES = 1024 * 1024
_LISTING_BYTES = 32 * 1024 * 1024
#: More changed files than this are not looked at one by one: trees that hold one another make any number of them out of
#: a few bytes.
MOST_CHANGED = 200_000
#: Lines are not counted where this many files or more are new; nothing with so many is pushed.
_MOST_NEW = 20_000
_SMALL_FILE = 4096
#: So many paths of one kind are listed.
FILES_LIMIT = 1000
_PACKED_REFS = 64 * 1024 * 1024
_CONFIG = {
    40: b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
    64: b"[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectFormat = sha256\n",
}


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a git ended: by an error of ours or with an exit code, and what it printed where no sink took that."""

    exit_code: int = -1
    stdout: str = ""
    stderr: str = ""
    error: str = ""


class _Head:
    """The first `limit` bytes of a stream, and whether that is all of it."""

    def __init__(self, limit: int) -> None:
        self._limit, self._data, self.is_whole = limit, bytearray(), True

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        self._data += data[: self._limit + 1 - len(self._data)]
        self.is_whole = len(self._data) <= self._limit

    def text(self) -> str:
        """Bytes that are no UTF-8 are replaced."""
        return self._data[: self._limit].decode("utf-8", "replace")


def git(
    *arguments: str,
    stdin: int | None = None,
    stdout: Sink | None = None,
    extra_env: Mapping[str, str] | None = None,
) -> Ended:
    """Run git. What the sink raises ends it."""
    environment = {**os.environ, **PLAIN_ENVIRONMENT, **(extra_env or {})}
    return run_program(("git", *NO_GRAFT_ADVICE, *arguments), environment, GIT_TIMEOUT, stdin=stdin, stdout=stdout)


def run_program(
    words: Sequence[str],
    environment: Mapping[str, str],
    timeout: float,
    *,
    stdin: int | None = None,
    stdout: Sink | None = None,
) -> Ended:
    """Run a program, by default without input. What the sink raises ends it. Not by `subprocess`: that imports
    `threading`, and then every fork of the launcher costs half as much again."""
    output, errors = _Head(_LISTING_BYTES), _Head(_ERROR_BYTES)
    try:
        (out, out_end), (err, err_end), null = os.pipe(), os.pipe(), os.open(os.devnull, os.O_RDONLY)
    except OSError as exc:
        return Ended(error=f"`{words[0]}` could not be started: {exc.strerror}")
    ends = (null if stdin is None else stdin, out_end, err_end)
    try:
        try:
            places = [(os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate(ends)]
            # Python itself ignores these signals.
            defaults = (signal.SIGPIPE, signal.SIGXFSZ)
            pid = os.posix_spawnp(words[0], list(words), environment, file_actions=places, setsigdef=defaults)
        except OSError as exc:
            return Ended(error=f"`{words[0]}` could not be started: {exc.strerror}")
        finally:
            for end in (null, out_end, err_end):
                os.close(end)
        code = _read(pid, {out: stdout or output.feed, err: errors.feed}, time.monotonic() + timeout)
    finally:
        os.close(out)
        os.close(err)
    error = f"timed out after {timeout:g} s; it was killed" if code is None else ""
    if not output.is_whole:
        code, error = None, error or f"`{words[0]}` prints more than {_LISTING_BYTES} bytes"
    return Ended(
        exit_code=-1 if code is None else code,
        stdout=output.text(),
        stderr=errors.text(),
        error=error,
    )


def _read(pid: int, sinks: dict[int, Sink], deadline: float) -> int | None:
    """Read until the program ends; gives its exit code, None when that takes too long. What it has started may keep
    its output open."""
    code = None
    try:
        while code is None and (left := deadline - time.monotonic()) > 0:
            ready = select.select(list(sinks), [], [], min(left, _BEAT if sinks else _MOMENT))[0]
            for descriptor in ready:
                if data := os.read(descriptor, _PIECE):
                    sinks[descriptor](data)
                else:
                    del sinks[descriptor]
            if not (ready and sinks):
                code = _exit_code(pid, os.WNOHANG)
    finally:
        if code is None:
            os.kill(pid, signal.SIGKILL)
            _exit_code(pid, 0)
    return code


def _exit_code(pid: int, options: int) -> int | None:
    reaped, status = os.waitpid(pid, options)
    return os.waitstatus_to_exitcode(status) if reaped else None


def output_of(ended: Ended) -> str:
    """What git printed; raises `OperationRefused` with its complaint when it failed."""
    if ended.exit_code != 0:
        raise OperationRefused(
            f"git could not tell: {ended.error or ended.stderr.strip() or f'exit code {ended.exit_code}'}"
        )
    return ended.stdout


def records_of(ended: Ended) -> list[str]:
    """The records that git printed, each ended by a NUL character."""
    return [record for record in output_of(ended).split("\0") if record]


def repository_fingerprint(checkout: str) -> dict[str, str]:
    """The repository that the checkout lies in; empty when it lies in none."""
    dot_git = find_dot_git(checkout)
    if dot_git is None:
        return {}
    info = os.lstat(dot_git)
    folder, common = folders_behind(dot_git)
    return {
        ".git": f"{stat.S_IFMT(info.st_mode):o} {info.st_dev} {info.st_ino}",
        **{name: f"{digest(os.path.join(folder, name))}, {digest(os.path.join(common, name))}" for name in _LENDERS},
    }


def check_repository_fingerprint(checkout: str, start: dict[str, str]) -> None:
    """Refuses a repository that stands on something else than at the start."""
    now = repository_fingerprint(checkout)
    for name in sorted(start.keys() | now.keys()):
        if start.get(name) != now.get(name):
            what = "`.git` is not the one that" if name == ".git" else f"`.git/{name}` is not what"
            raise OperationRefused(f"{what} was there when the run began")


def find_dot_git(checkout: str) -> str | None:
    """The `.git` that git would find: here, then further up."""
    folder = os.path.abspath(checkout)
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == os.path.dirname(folder):
            return None
        folder = os.path.dirname(folder)
    return os.path.join(folder, ".git")


def folders_behind(dot_git: str) -> tuple[str, str]:
    """The folder with HEAD, which a `.git` is or names, and the one with branches and objects, which others may
    share."""
    folder = _pointed_to(dot_git, os.path.dirname(dot_git)) if os.path.isfile(dot_git) else dot_git
    return folder, _pointed_to(os.path.join(folder, "commondir"), folder)


def _pointed_to(pointer: str, base: str) -> str:
    """The folder that a small file such as `commondir` names, by itself or after `gitdir:`; without it, the base."""
    try:
        if not os.path.isfile(pointer):
            return base
        with open(pointer, "rb") as file:
            target = file.read(_LONGEST).removeprefix(_GITDIR).rstrip(b"\r\n")
    except OSError:
        return base
    return os.path.join(base, os.fsdecode(target.replace(b"\0", b"")))


@dataclass(frozen=True, kw_only=True)
class Repository:
    """Where the workspace's repository lies: the work tree, the folder with HEAD, the one with branches and objects;
    and its history's `shallow` ends and the `alternates` that it borrows objects from, as they were when it was
    located."""

    top: str
    folder: str
    common: str
    shallow: bytes = b""
    alternates: bytes = b""

    @classmethod
    def locate(cls, checkout: str) -> Repository | None:
        """Looks as git does, without git and before any tool has run; None where there is no repository."""
        dot_git = find_dot_git(checkout)
        if dot_git is None:
            return None
        folder, common = folders_behind(dot_git)
        return cls(
            top=os.path.dirname(dot_git),
            folder=folder,
            common=common,
            shallow=_small(common, b"shallow", _PACKED_REFS),
            alternates=_small(common, ALTERNATES.encode(), _PACKED_REFS),
        )

    @property
    def objects(self) -> str:
        """The folder that holds its objects."""
        return os.path.join(self.common, "objects")

    def head(self) -> str:
        """The commit that HEAD stands on, read without git and without following a link. Raises `OperationRefused`."""
        said_by_head = _small(self.folder, b"HEAD", _SMALL_FILE).strip()
        name = said_by_head.removeprefix(b"ref: ")
        if name != said_by_head:
            commit_bytes = self._branch(name) if _REF.fullmatch(name) and b".." not in name else b""
        else:
            commit_bytes = said_by_head
        commit = commit_bytes.decode("ascii", "replace")
        if not COMMIT.fullmatch(commit):
            raise OperationRefused("there is no commit yet")
        return commit

    def branch(self) -> str:
        """The full name of the branch that HEAD stands on; empty for none that this program would write."""
        name = _small(self.folder, b"HEAD", _SMALL_FILE).strip().removeprefix(b"ref: ").decode("utf-8", "replace")
        return name if _BRANCH.fullmatch(name) and ".." not in name else ""

    def _branch(self, name: bytes) -> bytes:
        if loose := _small(self.common, name, _SMALL_FILE).strip():
            return loose
        lines = (line.split(b" ") for line in _small(self.common, b"packed-refs", _PACKED_REFS).splitlines())
        return next((words[0] for words in lines if words[1:] == [name]), b"")


@dataclass(frozen=True, kw_only=True)
class EngineGit:
    """Git that knows one repository, one commit as HEAD, and the settings and rules that it is given."""

    folder: str
    environment: dict[str, str]
    top: str

    def ask(self, *arguments: str, stdin: bytes = b"") -> list[str]:
        """What git prints, cut at its NUL characters. Raises `OperationRefused`."""
        output = _Head(_LISTING_BYTES)
        self.stream(*arguments, sink=output.feed, stdin=stdin)
        if not output.is_whole:
            raise OperationRefused(f"git {arguments[0]} prints more than {_LISTING_BYTES} bytes")
        return [record for record in output.text().split("\0") if record]

    def count_files(self, commit: str, most: int | None = None) -> int:
        """How many files a commit has. Raises `OperationRefused` for more than so many, before git goes through
        the others."""
        count = 0

        def take(data: bytes) -> None:
            nonlocal count
            count += data.count(b"\0")
            if most is not None and count > most:
                raise OperationRefused(f"the commit has more than {most} files")

        self.stream("ls-tree", "-r", "-z", "--name-only", commit, sink=take)
        return count

    def line(self, *arguments: str) -> str:
        """The one line that git prints. Raises `OperationRefused`."""
        return "".join(self.ask(*arguments)).strip()

    def stream(self, *arguments: str, sink: Sink, stdin: bytes = b"") -> None:
        """Hand on what git prints. Raises `OperationRefused`."""
        with open(self.write("stdin", stdin), "rb") as file:
            output_of(self.run(*arguments, stdin=file.fileno(), stdout=sink))

    def run(self, *arguments: str, stdin: int | None = None, stdout: Sink | None = None) -> Ended:
        """Run git to its end."""
        return git("-C", self.top, *arguments, stdin=stdin, stdout=stdout, extra_env=self.environment)

    def with_work_tree(self, name: str) -> EngineGit:
        """The same git over an empty folder of the engine's in the place of the work tree."""
        top = os.path.join(self.folder, name)
        os.mkdir(top)
        return replace(self, top=top, environment={**self.environment, "GIT_WORK_TREE": top})

    def refresh_index(self) -> None:
        """Let the index know the times of the files that are as it says."""
        self.run("update-index", "-q", "--refresh")

    def read(self, name: str) -> bytes:
        """A file in the engine's folder."""
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()

    def write(self, name: str, data: bytes) -> str:
        """A file in the engine's folder; gives its path."""
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
    os.mkdir(folder, 0o700)
    try:
        for name in ("refs", "info", "objects/info"):
            os.makedirs(os.path.join(folder, name))
        opened = EngineGit(
            folder=folder,
            environment=_environment(repository, folder, settings),
            top=repository.top,
        )
        opened.write("HEAD", f"{commit}\n".encode())
        opened.write("config", _CONFIG[len(commit)])
        opened.write("info/attributes", attributes)
        opened.write(ALTERNATES, os.fsencode(repository.objects) + b"\n")
        if repository.shallow:
            opened.write("shallow", repository.shallow)
        yield opened
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _environment(repository: Repository, folder: str, settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    given = [
        *settings,
        ("core.attributesFile", os.devnull),
        ("core.excludesFile", os.devnull),
        ("core.hooksPath", os.devnull),
        ("core.fsmonitor", "false"),
        ("core.untrackedCache", "false"),
        ("core.preloadIndex", "true"),
    ]
    return {
        "HOME": folder,
        "XDG_CONFIG_HOME": folder,
        "GIT_DIR": folder,
        "GIT_WORK_TREE": repository.top,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        **config_variables(given),
    }


def _small(folder: str, path: bytes, limit: int) -> bytes:
    """A regular file below the folder, empty where there is none; no link on the way is followed."""
    try:
        with below(folder) as tree:
            file = read_regular(tree, path, limit)
    except OSError:
        return b""
    return file[0] if file else b""


def read_objects(repository: Repository, arguments: Sequence[str], *, base: str, stdin: str, hand_on: Sink) -> None:
    """Hand on what a git command prints that only reads objects. `base` is any commit of the repository."""
    if not COMMIT.fullmatch(base):
        raise OperationRefused(f"{base!r} is no commit id")
    with engine_git(repository, base) as own:
        own.stream(*arguments, sink=hand_on, stdin=stdin.encode())


def bundle(repository: Repository, *, base: str, commit: str, hand_on: Sink) -> dict[str, object]:
    """Hand on a bundle of `base..commit`; nothing is handed on when there is no commit since the base."""
    for name in (base, commit):
        if not COMMIT.fullmatch(name):
            raise OperationRefused(f"{name!r} is no commit id")
    with engine_git(repository, commit) as own:
        tree = own.line("rev-parse", "--verify", "HEAD^{tree}")
        count = int(own.line("rev-list", "--count", f"{base}..HEAD"))
        if count == 0:
            return {"commits": 0, "commit": commit, "tree": tree}
        # Without deltas: what it holds is searched for secrets.
        plain = ("-c", "pack.window=0", "-c", "pack.depth=0")
        own.stream(*plain, "bundle", "create", "--quiet", "-", f"^{base}", "HEAD", sink=hand_on)
        changes = _diff_stat(own, base)
    return {"commits": count, "commit": commit, "tree": tree, "changes": changes}


def _diff_stat(own: EngineGit, base: str) -> dict[str, object] | None:
    """The lines added and removed by HEAD, per file and in all; None for too many files and where git cannot compare,
    as with a base of which the clone lacks files: the commits can be taken out of it all the same."""
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
