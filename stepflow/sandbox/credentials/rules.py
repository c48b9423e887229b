"""Which settings of git tools need, and what in settings and in files of login steps is secret."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.domain.json import JsonValue
    from stepflow.sandbox.credentials.config import Setting

#: What git and its usual companions need to work in a checkout as before, by names as `git help config` has them.
_NEEDED_SECTIONS = frozenset(
    {
        *("annex", "apply", "author", "blame", "branch", "checkout", "clean", "clone", "color", "column", "commit"),
        *("committer", "core", "diff", "extensions", "feature", "fetch", "filter", "format", "fsck", "gc", "gpg"),
        *("grep", "i18n", "index", "init", "lfs", "log", "maintenance", "merge", "notes", "pack", "protocol", "pull"),
        *("push", "rebase", "receive", "remote", "rerere", "stash", "status", "submodule", "tag", "transfer", "url"),
        *("user", "versionsort", "worktree"),
    }
)
_NEEDED_NAMES = frozenset({"http.proxy", "http.sslverify", "http.sslcainfo", "include.path", "includeif.path"})
#: Programs that log in, with what they are given for it.
_LOGIN_PROGRAMS = frozenset({"core.askpass", "core.sshcommand", "core.gitproxy"})
#: `sendemail.smtpPass`, `github.token`, `hub.apiKey` and whatever other programs keep beside git's own settings.
_SECRET_NAME = re.compile(r".*(?:pass|passwd|password|passphrase|token|secret|api-?key|authorization)")
#: Their values are paths of files that hold credentials.
_PATHS = frozenset({"http.cookiefile", "http.sslkey", "http.proxysslkey"})
_STORE = re.compile(r"(?:^|\s|/git-credential-)store\b.*?--file[=\s]\s*(?:'([^']+)'|\"([^\"]+)\"|(\S+))")

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<userinfo>[^/?#\n]*)@")
_QUERY = re.compile(r"(?i)[?&](?:access_token|private_token|token|password|api_?key)=(?P<secret>[^&#\s]+)")
_HEADER = re.compile(r"(?i)\b(?:proxy-)?authorization:\s*(?:(?:basic|bearer|token)\s+)?(?P<secret>[^\s'\"]+)")
#: https://github.blog/changelog/2021-03-31-authentication-token-format-updates-are-generally-available/, and the key
#: of the model's API.
_TOKEN = re.compile(r"\b(?P<secret>(?:gh[pousr]_|github_pat_|glpat-|sk-ant-)[A-Za-z0-9_.-]{10,})")
#: What stands in a URL beside a token, and is none.
_PLACEHOLDERS = frozenset({"x-access-token", "x-oauth-basic", "x-token-auth", "oauth2", "private-token"})
#: A user name of this length, alone or beside a placeholder, is a token.
_TOKEN_LENGTH = 16
_SCHEMES = frozenset({"basic", "bearer", "token", "negotiate", "digest"})
_SECRET_KEY = re.compile(r"private_key|.*_token|.*secret|authorization|password", re.IGNORECASE)
_SETTING = re.compile(r"^[^=\n]*(?:key|token|secret|password)[^=\n]*=\s*(\S+)\s*$", re.IGNORECASE | re.MULTILINE)


def is_needed(setting: Setting) -> bool:
    """Whether tools see the setting at all, without its secrets."""
    if setting.key in _LOGIN_PROGRAMS or _SECRET_NAME.fullmatch(setting.name):
        return False
    return setting.section in _NEEDED_SECTIONS or setting.key in _NEEDED_NAMES


def without_login(text: str) -> str:
    """The text with its URLs as they are without user names and passwords."""
    return _URL.sub(_url_without_login, text)


def _url_without_login(match: re.Match[str]) -> str:
    # Whom ssh logs in is no secret, and without it the URL would name somebody else.
    user = match["userinfo"].partition(":")[0]
    return f"{match['scheme']}://{user}@" if "ssh" in match["scheme"].lower() and user else f"{match['scheme']}://"


def secrets_of(setting: Setting) -> frozenset[str]:
    """What is secret in a setting."""
    value = (setting.value or "").strip()
    secrets = secrets_in(setting.subsection or "") | secrets_in(value)
    if setting.key == "http.extraheader":
        secrets |= _header_secrets(value)
    elif value and _SECRET_NAME.fullmatch(setting.name) and setting.key not in _LOGIN_PROGRAMS:
        secrets |= {value}
    return secrets


def secrets_in(text: str) -> frozenset[str]:
    """The secrets in URLs, headers and tokens, wherever they stand in the text."""
    secrets = {secret for match in _URL.finditer(text) for secret in _userinfo_secrets(match)}
    secrets |= {match["secret"] for pattern in (_QUERY, _HEADER, _TOKEN) for match in pattern.finditer(text)}
    return frozenset(form for secret in secrets for form in (secret, unquote(secret)) if form)


def _userinfo_secrets(match: re.Match[str]) -> set[str]:
    user, _, password = match["userinfo"].partition(":")
    secrets = set() if password in _PLACEHOLDERS else {password}
    alone = not password or password in _PLACEHOLDERS
    if "ssh" not in match["scheme"].lower() and ((alone and len(user) >= _TOKEN_LENGTH) or _TOKEN.match(user)):
        secrets.add(user)
    return secrets - {""}


def _header_secrets(header: str) -> set[str]:
    """The value of a header as a whole, its credential, and what that says when it is base64."""
    value = header.partition(":")[2].strip() or header
    first, _, rest = value.partition(" ")
    credential = rest.strip() if first.lower() in _SCHEMES and rest.strip() else value
    return {credential, *_basic_secrets(credential)} - {""}


def _basic_secrets(credential: str) -> set[str]:
    try:
        text = base64.b64decode(credential, validate=True).decode()
    except (binascii.Error, ValueError):
        return set()
    user, colon, password = text.partition(":")
    if not colon or not text.isprintable():
        return set()
    return {text, password, *([user] if len(user) >= _TOKEN_LENGTH else [])}


def login_files_of(setting: Setting) -> tuple[str, ...]:
    """The files of cookies, passwords or keys to which a setting leads, as it names them."""
    value = setting.value or ""
    if setting.key in _PATHS:
        return (value,) if value else ()
    if setting.section == "credential" and (stored := _STORE.search(value)):
        return tuple(path for path in stored.groups() if path)
    return ()


def secrets_of_login(text: str) -> frozenset[str]:
    """The secrets of a file in JSON, of one with `name = value` lines, or of one that is a single token."""
    try:
        secrets = set(_in_json(json.loads(text)))
    except (ValueError, RecursionError):
        whole = text.strip()
        secrets = {whole} if whole and not whole.split()[1:] else set(_SETTING.findall(text))
    # `Bearer …`: what stands behind the word is the secret.
    return frozenset(form for secret in secrets for form in (secret, secret.rpartition(" ")[2]) if form)


def _in_json(value: JsonValue) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _in_json(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, str) and _SECRET_KEY.fullmatch(key):
                yield item
            else:
                yield from _in_json(item)
