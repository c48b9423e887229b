"""Git in the parent: its words and settings, a checkout's state, and branches that a run's commits are brought to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from stepflow.domain.bundle import INDEX_PACK, Bundle
from stepflow.domain.checkout import excludes_branch
from stepflow.errors import BoundaryError, InputError
from stepflow.programs import run_program
from stepflow.sandbox.child.git import BRANCHES, NO_CONFIGURATION, NO_GRAFT_ADVICE

#: Nothing of the user's configuration may run or rewrite anything.
_QUIET = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "gc.auto=0", "maintenance.auto=false")
#: Looking at a repository that somebody else owns is harmless, and configuration of this machine is not the checkout's.
_ONLY_LOOKING = ("safe.directory=*",)
_OWN_ENVIRONMENT = {**NO_CONFIGURATION, "GIT_OPTIONAL_LOCKS": "0"}
_SECONDS = 300
#: What git and its usual companions need to work in a checkout as before, by names as `git help config` has them.
_NEEDED_SECTIONS = frozenset(
    {
        *("annex", "apply", "author", "blame", "branch", "checkout", "clean", "clone", "color", "column", "commit"),
        *("committer", "core", "diff", "extensions", "feature", "fetch", "filter", "format", "fsck", "gc", "gpg"),
        *("grep", "i18n", "index", "init", "lfs", "log", "maintenance", "merge", "notes", "pack", "protocol", "pull"),
        *("push", "rebase", "receive", "remote", "rerere", "stash", "status", "submodule", "tag", "transfer", "url"),
        *("user", "versionsort"),
    }
)
_NEEDED_KEYS = frozenset({"http.proxy", "http.sslverify", "http.sslcainfo"})
#: Programs that log in, and what is said of the original's folders and files alone.
_LEFT_OUT = frozenset(
    {
        *("core.askpass", "core.sshcommand", "core.gitproxy", "core.worktree", "core.bare", "core.fsmonitor"),
        *("core.splitindex", "core.untrackedcache", "extensions.worktreeconfig", "extensions.refstorage"),
    }
)
#: `sendemail.smtpPass`, `github.token`, `hub.apiKey` and whatever other programs keep beside git's own settings.
_SECRET_NAME = re.compile(r".*(?:pass|passwd|password|passphrase|token|secret|api-?key|authorization)")
_LOGIN = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30})://(?P<userinfo>[^/?#\n]*)@")
_QUERY = re.compile(r"(?i)([?&](?:access_token|private_token|token|password|api_?key)=)[^&#\s]+")
#: https://github.blog/changelog/2021-03-31-authentication-token-format-updates-are-generally-available/, and the key
#: of the model's API.
_TOKEN = re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|sk-ant-)[A-Za-z0-9_.-]{10,}")
#: What stands in the place of a secret, also in the name of a ref.
_HIDDEN = "hidden"
#: The copies of files have other numbers and times of change; size and modification time tell that they are as git
#: knows them. A collection in the background would outlive its command and be killed halfway.
_OWN = (
    ("core", "trustctime", "false"),
    ("core", "checkstat", "minimal"),
    ("core", "bare", "false"),
    ("gc", "auto", "0"),
    ("maintenance", "auto", "false"),
)
_BRANCH_ALONE = ("--no-write-fetch-head", "--no-recurse-submodules")


def run_git(
    repository: Path,
    *words: str,
    may_fail: bool = False,
    settings: tuple[str, ...] = (),
    extra_env: Mapping[str, str] | None = None,
    stdin: bytes | IO[bytes] = b"",
) -> str:
    """Return what git prints, without the line break at its end. Raises `BoundaryError` where it fails and may not."""
    given = [word for setting in (NO_GRAFT_ADVICE, *_QUIET, *settings) for word in ("-c", setting)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = run_program(
            "git",
            *given,
            *words,
            folder=repository,
            environment=environment | {"LC_ALL": "C"} | dict(extra_env or {}),
            stdin=stdin,
            seconds=_SECONDS,
        )
    except OSError as exc:
        raise BoundaryError(f"git does not run in {repository}: {exc}.", hint="Install git.") from exc
    if done.returncode and not may_fail:
        raise BoundaryError(f"git failed in {repository}: {done.stderr.decode(errors='replace').strip()}.")
    return done.stdout.decode(errors="surrogateescape").rstrip("\n")


def ask_git(repository: Path, *words: str, may_fail: bool = False, git_dir: Path | None = None) -> str:
    """Return what git says of a checkout as it stands, whoever owns it: nothing there is written and none of it
    runs."""
    where = {"GIT_DIR": str(git_dir)} if git_dir else {}
    return run_git(
        repository, *words, may_fail=may_fail, settings=_ONLY_LOOKING, extra_env={**_OWN_ENVIRONMENT, **where}
    )


def write_files_of(commit: str, repository: Path, folder: Path) -> None:
    """Write the files of a commit into a new folder, without a repository. Raises `BoundaryError` where the commit is
    not there."""
    folder.mkdir()
    elsewhere = {**_OWN_ENVIRONMENT, "GIT_WORK_TREE": str(folder), "GIT_INDEX_FILE": str(folder.with_suffix(".index"))}
    elsewhere["GIT_DIR"] = ask_git(repository, "rev-parse", "--absolute-git-dir")
    for words in (("read-tree", commit), ("checkout-index", "--all")):
        run_git(folder, *words, settings=_ONLY_LOOKING, extra_env=elsewhere)


def head_commit(repository: Path) -> str:
    """Return the commit that is checked out; empty without a commit, or where there is no repository."""
    return ask_git(repository, "rev-parse", "--quiet", "--verify", "HEAD^{commit}", may_fail=True)


def pushed_branch(repository: Path) -> str:
    """Return the branch that is checked out, where the remote `origin` had one of this name when it was asked last."""
    name = ask_git(repository, "symbolic-ref", "--quiet", "HEAD", may_fail=True).removeprefix(BRANCHES)
    known = name and ask_git(
        repository, "rev-parse", "--quiet", "--verify", f"refs/remotes/origin/{name}", may_fail=True
    )
    return name if known else ""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting under git's canonical names: section and name in lower case; None where a part is missing."""

    section: str
    subsection: str | None
    name: str
    value: str | None

    @property
    def key(self) -> str:
        """The key without its subsection."""
        return f"{self.section}.{self.name}"

    @property
    def is_needed(self) -> bool:
        """Whether tools need it, and may see it."""
        if self.key in _LEFT_OUT or _SECRET_NAME.fullmatch(self.name):
            return False
        return self.section in _NEEDED_SECTIONS or self.key in _NEEDED_KEYS


def read_settings(repository: Path, *, git_dir: Path | None = None) -> tuple[Setting, ...]:
    """Return the repository's own settings, those of the files that it includes among them. Raises `BoundaryError`
    for what git cannot read."""
    listed = ask_git(repository, "config", "--list", "--includes", "--show-scope", "-z", git_dir=git_dir)
    records = listed.split("\0")[:-1]
    own = (entry for scope, entry in zip(records[::2], records[1::2], strict=True) if scope in ("local", "worktree"))
    return tuple(map(_setting, own))


def _setting(entry: str) -> Setting:
    key, has_value, value = entry.partition("\n")
    section, _, rest = key.partition(".")
    subsection, dot, name = rest.rpartition(".")
    return Setting(
        section=section, subsection=subsection if dot else None, name=name, value=value if has_value else None
    )


def settings_of_copy(settings: Iterable[Setting]) -> str:
    """Return the configuration of a copy, as the text of a file."""
    return "".join(map(_write_setting, _of_copy(settings)))


def _of_copy(settings: Iterable[Setting]) -> Iterator[Setting]:
    for setting in settings:
        if setting.is_needed:
            yield replace(setting, subsection=_without_login(setting.subsection), value=_without_login(setting.value))
    for section, name, value in _OWN:
        yield Setting(section=section, subsection=None, name=name, value=value)


def _without_login(text: str | None) -> str | None:
    return text and _TOKEN.sub(_HIDDEN, _QUERY.sub(rf"\1{_HIDDEN}", _LOGIN.sub(_url_without_login, text)))


def _url_without_login(match: re.Match[str]) -> str:
    # Whom ssh logs in is no secret, and without it the URL would name somebody else.
    user = match["userinfo"].partition(":")[0]
    return f"{match['scheme']}://{user}@" if "ssh" in match["scheme"].lower() and user else f"{match['scheme']}://"


def _write_setting(setting: Setting) -> str:
    """Git's plainest form, under a heading of its own."""
    subsection = "" if setting.subsection is None else f" {_quote(setting.subsection)}"
    value = "" if setting.value is None else f" = {_quote(setting.value)}"
    return f"[{setting.section}{subsection}]\n\t{setting.name}{value}\n"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def local_branch(agent: str, issue: int | None, run_id: str) -> str:
    """Return the name of the branch of a run's commits."""
    return f"stepflow/{agent}/{f'issue-{issue}' if issue else f'run-{run_id}'}"


def fetch_bundle(
    repository: Path,
    bundle: Path,
    refspec: str,
    *options: str,
    settings: tuple[str, ...] = (),
    extra_env: Mapping[str, str] | None = None,
) -> None:
    """Fetch the commits of a bundle into a repository. Nothing of it arrives there where git would call one of its
    objects an error; then, and for what is no bundle, raises `BoundaryError`."""
    with bundle.open("rb", buffering=0) as file:
        if Bundle.read(file) is None:
            raise BoundaryError(f"git cannot read {bundle}: it is not a bundle.")
        # Not `--strict`: a partial clone lacks objects of its own. The fetch looks whether all that it needs is there.
        run_git(repository, *INDEX_PACK, "--fsck-objects", settings=settings, extra_env=extra_env, stdin=file)
    fetch = ("fetch", "--quiet", "--no-tags", *options, str(bundle), refspec)
    run_git(repository, *fetch, settings=settings, extra_env=extra_env)


def bring_branch(repository: Path, bundle: Path, branch: str) -> str:
    """Fetch the commits of the bundle as a branch of this name, or with a number behind it; the name. Neither the work
    tree nor any branch that is there changes. Raises `BoundaryError` when git cannot."""
    name, number = branch, 1
    while run_git(repository, "rev-parse", "--quiet", "--verify", f"{BRANCHES}{name}", may_fail=True):
        number += 1
        name = f"{branch}-{number}"
    fetch_bundle(repository, bundle, f"HEAD:{BRANCHES}{name}", *_BRANCH_ALONE)
    return name


def has_commits(repository: Path, bundle: Path) -> bool:
    """Return whether a branch of the repository holds the commits of the bundle."""
    commit = run_git(repository, "bundle", "list-heads", str(bundle), "HEAD", may_fail=True).partition(" ")[0]
    return bool(commit and run_git(repository, "for-each-ref", "--contains", commit, BRANCHES, may_fail=True))


@dataclass(frozen=True, kw_only=True)
class CheckedOut:
    """The branch that is checked out, empty where HEAD is detached, and its commit."""

    branch: str
    commit: str


def checked_out(repository: Path) -> CheckedOut:
    """Return what is checked out now."""
    return CheckedOut(
        branch=run_git(repository, "symbolic-ref", "--quiet", "--short", "HEAD", may_fail=True),
        commit=run_git(repository, "rev-parse", "--quiet", "--verify", "HEAD", may_fail=True),
    )


def move_branch(repository: Path, bundle: Path, before: CheckedOut) -> str:
    """Move the branch that is checked out to the commits of the bundle, with the files. Gives its name; empty, and
    nothing has changed, where it is not what was checked out `before`, or where files are in the way."""
    if not before.branch or checked_out(repository) != before:
        return ""
    fetch_bundle(repository, bundle, "HEAD", *_BRANCH_ALONE)
    commit = run_git(repository, "bundle", "list-heads", str(bundle), "HEAD").partition(" ")[0]
    try:
        run_git(repository, "merge", "--quiet", "--ff-only", "--no-stat", commit)
    except BoundaryError:
        return ""
    return before.branch


def check_branch(repository: Path, branch: str) -> None:
    """Try before a run what `bring_branch` needs at its end. Raises `InputError` where it would fail."""
    try:
        objects = repository / run_git(repository, "rev-parse", "--git-path", "objects")
        names = run_git(repository, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").split("\n")
    except BoundaryError as exc:
        raise InputError(
            f"The run's commits could not be brought into {repository} at its end: {exc.message}",
            hint="If the repository belongs to somebody else, run as its owner, or trust it as git says.",
        ) from exc
    if not os.access(objects, os.W_OK):
        raise InputError(
            f"The run's commits could not be brought into {repository} at its end: {objects} cannot be written.",
            hint="Run as the owner of the repository.",
        )
    if in_the_way := next((name for name in names if excludes_branch(name, branch)), ""):
        raise InputError(
            f"The run's branch would be `{branch}`, and git cannot create it next to the branch `{in_the_way}`, which "
            f"is in {repository}.",
            hint=f"Rename it: git branch -m {in_the_way} NEW-NAME",
        )
