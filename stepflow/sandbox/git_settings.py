"""Which of a repository's settings a copy of it has: those that tools need, and no login."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.sandbox.host_git import ask_git

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

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
_LOGIN = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<userinfo>[^/?#\n]*)@")
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
    """The repository's own settings, those of the files that it includes among them. Raises `BoundaryError` for what
    git cannot read."""
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
    """The configuration of a copy, as the text of a file."""
    return "".join(map(_written, _of_copy(settings)))


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


def _written(setting: Setting) -> str:
    """Git's plainest form, under a heading of its own."""
    subsection = "" if setting.subsection is None else f" {_quoted(setting.subsection)}"
    value = "" if setting.value is None else f" = {_quoted(setting.value)}"
    return f"[{setting.section}{subsection}]\n\t{setting.name}{value}\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
