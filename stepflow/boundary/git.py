"""Runs git in a private bare repository, never in the checkout, with an environment that starts empty, and asks
before a run whether its commits could be pushed."""

from __future__ import annotations

import base64
import os
import re
import shutil
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import urlsplit

from stepflow.boundary.github_failures import (
    FORBIDDEN,
    NOT_FOUND,
    TOO_MANY,
    UNAUTHORIZED,
    GitHubFailed,
    describe_policy,
)
from stepflow.domain.checkout import excludes_branch
from stepflow.domain.connection import DIRECT, Connection
from stepflow.domain.secrets import Redactor
from stepflow.errors import BoundaryError, InputError
from stepflow.programs import TimedOut, TooMuchOutput, run_program

_AGAIN = "Start the run again when GitHub works (see githubstatus.com): it checks the branch before it writes."
_PREFIX = (
    "give the run's branches another name (`runner.integrations.github.pullRequest.branchPrefix` in agent.json), or "
    "exempt them from it."
)
_SIGNED = f"A branch rule requires signed commits: set `commits: verified`, {_PREFIX}"
_LEAK = (
    "GitHub found a secret in the commits: make sure that no commit contains it. If it is a false alarm, allow it at "
    "the address that GitHub names, and start the run again."
)
_PROTECTED = f"A branch protection rule forbids this push: {_PREFIX}"
_RULE = f"A repository rule on GitHub forbids this push: {_PREFIX}"
#: What to do by the code of GitHub's error: https://docs.github.com has them as GH001 and so on.
_CODE_HINTS = {
    "GH001": "A file is larger than GitHub accepts: make sure that no commit contains it, or store it in Git LFS.",
    "GH006": _PROTECTED,
    "GH008": "The commits add files stored in Git LFS, and the boundary pushes git's own objects only: let people add "
    "such files, or remove them from `.gitattributes`.",
    "GH009": _LEAK,
    "GH013": _RULE,
}
#: Rules that GitHub names below such a code.
_RULE_HINTS = {"verified signature": _SIGNED, "Push cannot contain secrets": _LEAK, "PUSH PROTECTION": _LEAK}
#: What to do by the beginning of the reason that `git push --porcelain` gives for a ref.
_REASON_HINTS = {
    "refusing to allow": "The token may not change workflow files: leave them to people, or give the action the token "
    "of a GitHub App with the permission `workflows` as `github-token`.",
    "protected branch": _PROTECTED,
    "push declined": _RULE,
    "non-fast-forward": "The server forbids replacing the commits of an earlier run: allow forced updates of the "
    "run's branches, or delete the branch.",
    "stale info": "Somebody else is pushing to the run's branches: start the run again.",
    "cannot lock ref": "Another branch is in the way, or somebody else is writing to this one: delete the branch that "
    f"the server names, or {_PREFIX.partition(', or')[0]}.",
    "pre-receive hook": "A server hook refused the commits: exempt the run's branches from it, or "
    "tell the agent in its prompts what the hook requires.",
}
#: What git and servers say of a branch that is not where it was; a push whose answer was lost may have moved it itself.
_OUTDATED = ("stale info", "already exists", "cannot lock ref")
#: What they say where the commit is not there.
_LACKS_COMMIT = ("not our ref", "unadvertised object", "couldn't find remote ref", "no such remote ref")
_NO_LOGIN = ("could not read Username", "Authentication failed")
_REFUSED_LOGIN = "The token is not accepted: check `github-token`."
_ABSENT = (
    "The repository does not exist (any more), or the token may not see it: check `github-server-url`, and that "
    "`github-token` is for this repository."
)
#: Git must not follow a redirect with a credential.
_MOVED = (
    "The repository has another address now: start the run by a new event, since running a job again keeps the old "
    "name, or give the new name in GITHUB_REPOSITORY."
)
#: A line that the server wrote, not git, and the code in it.
_SERVER = re.compile(r"(?m)^remote:[ \t]*+(.*)$")
_CODE = re.compile(r"\bGH\d{3}\b")
_STATUS = re.compile(r"returned error: (\d{3})")
#: Without a letter or digit it is a rule or a blank.
_WORDS = re.compile(r"\w")
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
    """A git command failed. `said` is what git and the server wrote, for people; `status` the HTTP status in what git
    has `written`, None where no server answered with one; `denied`: the token may not do this; `moved`: the repository
    has another address now; `outdated`: the branch is not where it was; `lacks_commit`: the server has no such commit.
    """

    def __init__(self, message: str, *, said: str = "", written: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.said = said
        self.outdated = any(words in said for words in _OUTDATED)
        self.lacks_commit = any(words in said for words in _LACKS_COMMIT)
        by_git = _SERVER.sub("", written)
        found = _STATUS.search(by_git)
        # Of this status git says no number.
        absent = NOT_FOUND if by_git.rstrip().endswith("not found") else None
        self.status = int(found[1]) if found else absent
        login = any(sign in by_git for sign in _NO_LOGIN)
        self.denied = login or self.status in (UNAUTHORIZED, FORBIDDEN)
        self.passes, self.limited = bool(_PASSES.search(by_git)), self.status == TOO_MANY
        self.moved = self.status is not None and 300 <= self.status < 400


def git_failed(
    command: str, written: str, *, rejected: Sequence[str] = (), connection: Connection = DIRECT
) -> GitFailed:
    """Return the failure of one command, with what to do. `written` is what git and the server wrote to stderr, and
    `rejected` why the refs of a push were not taken."""
    said = "\n".join(filter(None, (_shorten(written), " ".join(rejected)[:LONGEST_DETAIL])))
    failed = GitFailed(f"`git {command}` failed: {said}.", said=said, written=written)
    policy = describe_policy("\n".join(_SERVER.findall(written))) if failed.denied else ""
    failed.hint = policy or _hint(command, failed, written, rejected) or (_AGAIN if failed.passes else "")
    if advice := connection.advice(said) if _UNREACHED.search(said) else "":
        failed.hint = advice
    if failed.moved:
        failed.hint = _MOVED
    return failed


def _hint(command: str, failed: GitFailed, written: str, rejected: Sequence[str]) -> str:
    """By the facts: the code of the server's error, the reason that git gives for a ref, the HTTP status."""
    by_server = "\n".join(line.rstrip() for line in _SERVER.findall(written))
    if code := _CODE.search(by_server):
        named = (hint for rule, hint in _RULE_HINTS.items() if rule in by_server)
        return next(named, "") or _CODE_HINTS.get(code[0], "")
    reasons = [reason.partition("(")[2] for reason in rejected]
    for begin, hint in _REASON_HINTS.items():
        if any(reason.startswith(begin) for reason in reasons):
            return hint
    if failed.denied and failed.status != FORBIDDEN:
        return _REFUSED_LOGIN
    if failed.denied:
        what = "push" if command == "push" else "read the repository"
        return f"The token may not {what}: the job needs `contents: write`."
    return _ABSENT if failed.status == NOT_FOUND else ""


def describe_rule(said: str) -> str:
    """Return what to do about a rule for branches by which GitHub's API refuses a commit; empty for other errors."""
    is_rule = any(words in said.lower() for words in ("rule violation", "protected branch", "must be made through"))
    leaks = any(rule in said for rule, hint in _RULE_HINTS.items() if hint is _LEAK)
    return (_LEAK if leaks else _RULE) if is_rule else ""


def _shorten(written: str) -> str:
    """Return what git and the server wrote, without the server's decoration; of a long text both ends."""
    lines = (_SERVER.sub(r"\1", line).rstrip() for line in written.splitlines())
    text = "\n".join(line for line in lines if _WORDS.search(line))
    half = LONGEST_DETAIL // 2
    return text if len(text) <= LONGEST_DETAIL else f"{text[:half]} … {text[-half:]}"


HEADS = "refs/heads/"
FIXED_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOCAL_SECONDS, NETWORK_SECONDS = 120, 300
LONGEST_DETAIL, LONGEST_STDERR = 1_200, 100_000
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
    """A repository on a server, the token for it, and the connection to it."""

    url: str
    token: str = field(repr=False)
    redactor: Redactor = field(default_factory=Redactor)
    connection: Connection = DIRECT

    def moved_to(self, repository: str) -> Remote:
        """Return the same server's repository of this name."""
        return replace(self, url=f"{self.url.rsplit('/', 2)[0]}/{repository}.git")

    @property
    def header(self) -> str:
        """The credential as an HTTP header."""
        return f"Authorization: Basic {base64.b64encode(f'x-access-token:{self.token}'.encode()).decode()}"


class Git:
    """One bare repository in `folder`, which is made here, for commits with ids like that of `commit`. Its `remote` is
    reached by https, or by http on this machine."""

    def __init__(
        self,
        folder: Path,
        remote: Remote,
        *,
        commit: str = "",
        local_seconds: float = LOCAL_SECONDS,
        most_output: int = MOST_OUTPUT,
    ) -> None:
        parts = urlsplit(remote.url)
        if parts.username or not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)):
            raise BoundaryError(
                f"Git cannot use the server {parts.scheme}://{parts.hostname}: only https is allowed.",
                hint="Check `github-server-url`.",
            )
        self.remote, self._folder, self._commit = remote, folder, commit
        self._local_seconds, self._most_output = local_seconds, most_output
        self._redactor = remote.redactor.knowing(remote.token, remote.header)
        folder.mkdir(mode=0o700)
        object_format = "sha256" if len(commit) == 64 else "sha1"
        self.run("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}", str(folder))

    def make_sibling(self, name: str) -> Git:
        """Make a new repository next to this one, with the same server."""
        return Git(self._folder.with_name(name), self.remote, commit=self._commit)

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

    def run_remote(self, *args: str, settings: Mapping[str, str] | None = None) -> bytes:
        """Run one git command that talks to the server; this process alone holds the credential."""
        proxied = _connection_settings(self.remote.connection, self._folder / "authorities.pem")
        config = {**_CONFIG, **(settings or {}), **proxied, f"http.{self.remote.url}.extraHeader": self.remote.header}
        scheme = urlsplit(self.remote.url).scheme
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
        try:
            done = run_program(
                _git_path(),
                *args,
                folder=self._folder,
                environment=environment,
                stdin=stdin,
                seconds=seconds,
                most_output=self._most_output,
                memory=memory,
                # A Ctrl-C at the terminal is the run's to handle: an effect that has begun is finished.
                new_session=True,
            )
        except TooMuchOutput:
            raise TooMuch(f"`git {args[0]}` wrote more than {self._most_output} bytes") from None
        except TimedOut:
            raise GitFailed(f"`git {args[0]}` took longer than {seconds:g} seconds and was stopped.") from None
        if done.returncode:
            said = self._redactor(done.stderr.decode(errors="replace"))[:LONGEST_STDERR].strip()
            rejected = [self._redactor(reason) for reason in REJECTED.findall(done.stdout.decode(errors="replace"))]
            written = said or ("" if rejected else f"exit {done.returncode}")
            raise git_failed(args[0], written, rejected=rejected, connection=self.remote.connection)
        return done.stdout


def _git_path() -> str:
    path = shutil.which("git", path=FIXED_PATH)
    if path is None:
        raise BoundaryError(f"git is not installed in {FIXED_PATH}.", hint="Install git where the boundary runs.")
    return path


class GitReader(Protocol):
    """Git in a repository that holds the commits of a run."""

    def run(self, *args: str, stdin: bytes = b"", memory: int | None = None) -> bytes:
        """Return the command's output. Raises `BoundaryError`, or `TooMuch` if the output is too long. `memory` limits
        the process, in bytes, if that is possible."""
        ...


def _connection_settings(connection: Connection, file: Path) -> dict[str, str]:
    """Return the settings of one git process; certificates are written to the file. An empty proxy is none."""
    settings = {"http.proxy": connection.proxy}
    if connection.certificates:
        from requests.utils import DEFAULT_CA_BUNDLE_PATH  # noqa: PLC0415 - costs time that most runs need not pay

        public = Path(DEFAULT_CA_BUNDLE_PATH).read_text(encoding="utf-8")
        system = system_authorities()
        own = system.read_text(encoding="utf-8", errors="replace") if system else ""
        file.write_text(f"{public}\n{own}\n{connection.certificates}\n", encoding="utf-8")
        settings |= {"http.sslCAInfo": str(file)}
    return settings


def system_authorities() -> Path | None:
    """Return the machine's own authorities, which an image may have added to, where the libraries were built to
    look."""
    paths = ssl.get_default_verify_paths()
    places = (Path(paths.openssl_cafile), Path(paths.openssl_capath) / "ca-certificates.crt")
    return next((path for path in places if path.is_file()), None)


_UNKNOWN = "Whether the run's commits can be pushed could not be checked"
_IDENTITY = {f"GIT_{role}_{key}": "stepflow" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}


def check_server(
    remote: Remote, *, pushes: bool, commit: str, branch: str, base: str, is_there: bool = False
) -> tuple[str, ...]:
    """Return warnings. Raises `InputError` where the commit is not there, where no branch of this name can be made,
    where the base is missing, where the repository has another address now, or where the token may not push, which only
    a token that `pushes` is asked; an answer that fails otherwise is only a warning. A branch that `is_there` is one
    that the run goes on with: then only the token is in question."""

    try:
        with tempfile.TemporaryDirectory(prefix="stepflow-ask-") as folder:
            git = Git(Path(folder) / "repository.git", remote, commit=commit)
            if not is_there:
                _demand_place(git, commit, branch, base)
            if pushes:
                tree = git.run("hash-object", "-t", "tree", "-w", "--stdin").decode().strip()
                own = git.run("commit-tree", tree, "-m", "probe", env=_IDENTITY).decode().strip()
                options, ref = ("--dry-run", "--quiet", "--porcelain", "--no-verify"), f"+{own}:{HEADS}{branch}"
                git.run_remote("push", *options, remote.url, ref, settings={"push.negotiate": "false"})
    except GitFailed as exc:
        if exc.moved or (pushes and (exc.denied or exc.status == NOT_FOUND)):
            message = f"The run's commits could not be pushed to {remote.url} at its end: {exc.message}"
            raise InputError(message, hint=exc.hint) from exc
        return (f"{_UNKNOWN}: {exc.message} {exc.hint}".strip(),)
    return ()


def _demand_place(git: Git, commit: str, branch: str, base: str) -> None:
    tips = _read_tips(git, branch, base)
    _demand_room(branch, tips)
    if base and base not in tips:
        raise InputError(
            f"The branch `{base}`, which the pull request targets, is not in the repository.",
            hint="Push it, or set `pullRequest.base` in agent.json to a branch that is there.",
        )
    if commit not in tips.values():
        _demand_commit(git, commit)


def _read_tips(git: Git, branch: str, base: str) -> dict[str, str]:
    parts = branch.split("/")
    names = {"/".join(parts[:depth]) for depth in range(1, len(parts))} | ({base} if base else set())
    wanted = (*sorted(HEADS + name for name in names), f"{HEADS}{branch}*")
    lines = git.run_remote("ls-remote", git.remote.url, *wanted).decode(errors="replace").split("\n")
    pairs = (line.split("\t") for line in lines if line)
    return {name.removeprefix(HEADS): value for value, name in pairs if name.startswith(HEADS)}


def _demand_commit(git: Git, commit: str) -> None:
    try:
        git.run_remote("fetch", "--quiet", "--no-tags", "--filter=tree:0", "--depth=1", git.remote.url, commit)
    except GitFailed as exc:
        if not exc.lacks_commit:
            raise
        raise InputError(
            f"The commit {commit[:12]}, which is checked out, is not in the repository on the server, so nothing "
            "that builds on it can be pushed.",
            hint="Push it first. If an earlier step made it: leave its changes uncommitted, or let the "
            "agent or the input `setup` do what that step does.",
        ) from exc


def _demand_room(branch: str, tips: dict[str, str]) -> None:
    """Raise `InputError` if the name extends that of an existing branch or the other way around, as in `a` and
    `a/b`, which git cannot have together."""
    in_the_way = next((name for name in sorted(tips) if excludes_branch(name, branch)), "")
    if in_the_way:
        raise InputError(
            f"The run's branch would be `{branch}`, and git cannot create it next to the branch `{in_the_way}`, which "
            "is in the repository.",
            hint="Set `runner.integrations.github.pullRequest.branchPrefix` in agent.json to another prefix, such as "
            f"`agents/`, or rename or delete the branch `{in_the_way}`.",
        )
