"""Which settings of git, and which files of login steps, are credentials or lead to one."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from stepflow.domain.secrets import MASK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.domain.json import JsonValue
    from stepflow.sandbox.credentials.config import Setting

#: Names as `git help config` has them. All of `credential.*` and `imap.*` goes with its section.
_SECTIONS = frozenset({"credential", "imap"})
_NAMES = frozenset(
    {
        *("http.extraheader", "http.cookiefile", "http.savecookies", "http.sslcert", "http.sslkey"),
        *("http.proxysslcert", "http.proxysslkey"),
        *("core.askpass", "core.sshcommand", "core.gitproxy"),
    }
)
#: `sendemail.smtpPass`, `github.token`, `hub.apiKey` and whatever other programs keep beside git's own settings.
_SECRET_NAME = re.compile(r".*(?:pass|passwd|password|passphrase|token|secret|api-?key|authorization)")
#: Their values are paths of files that hold credentials.
_PATHS = frozenset({"http.cookiefile", "http.sslkey", "http.proxysslkey"})
_STORE = re.compile(r"(?:^|\s|/git-credential-)store\b.*?--file[=\s]\s*(?:'([^']+)'|\"([^\"]+)\"|(\S+))")

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<userinfo>[^/?#\n]*)@")
_QUERY = re.compile(r"(?i)(?P<name>[?&](?:access_token|private_token|token|password|api_?key)=)(?P<secret>[^&#\s]+)")
_HEADER = re.compile(r"(?i)\b(?:proxy-)?authorization:\s*(?:(?:basic|bearer|token)\s+)?(?P<secret>[^\s'\"]+)")
#: https://github.blog/changelog/2021-03-31-authentication-token-format-updates-are-generally-available/, and the key
#: of the model's API.
_TOKEN = re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|sk-ant-)[A-Za-z0-9_.-]{10,}")
#: What stands in a URL beside a token, and is none.
_PLACEHOLDERS = frozenset({"x-access-token", "x-oauth-basic", "x-token-auth", "oauth2", "private-token"})
#: A user name of this length, alone or beside a placeholder, is a token.
_TOKEN_LENGTH = 16
_SCHEMES = frozenset({"basic", "bearer", "token", "negotiate", "digest"})
_SECRET_KEY = re.compile(r"private_key|.*_token|.*secret|authorization|password", re.IGNORECASE)
_SETTING = re.compile(r"^[^=\n]*(?:key|token|secret|password)[^=\n]*=\s*(\S+)\s*$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """`visible` is what the tools see of the setting, None for nothing; `paths` are files as the setting names them."""

    visible: Setting | None
    secrets: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()


def judge_setting(setting: Setting) -> Judged:
    """Take every credential out of a setting."""
    value = setting.value or ""
    secrets = set(secrets_in(setting.subsection or "")) | set(secrets_in(value))
    if setting.section in _SECTIONS or setting.key in _NAMES or _SECRET_NAME.fullmatch(setting.name):
        return Judged(visible=None, secrets=frozenset(secrets | _secrets_of(setting)), paths=_paths(setting))
    visible = replace(
        setting,
        subsection=None if setting.subsection is None else _without_secrets(setting.subsection),
        value=None if setting.value is None else _without_secrets(value),
    )
    return Judged(visible=visible, secrets=frozenset(secrets))


def secrets_in(text: str) -> frozenset[str]:
    """The secrets in URLs, headers and tokens, wherever they stand in the text."""
    secrets = {secret for match in _URL.finditer(text) for secret in _userinfo_secrets(match)}
    secrets |= {match["secret"] for pattern in (_QUERY, _HEADER) for match in pattern.finditer(text)}
    secrets |= {match[0] for match in _TOKEN.finditer(text)}
    return frozenset(form for secret in secrets for form in (secret, unquote(secret)) if form)


def _without_secrets(text: str) -> str:
    text = _URL.sub(_url_without_secrets, text)
    text = _QUERY.sub(lambda match: match["name"] + MASK, text)
    return _TOKEN.sub(MASK, _HEADER.sub("", text))


def _url_without_secrets(match: re.Match[str]) -> str:
    # Whom ssh logs in is no secret, and without it the URL would name somebody else.
    user = match["userinfo"].partition(":")[0]
    return f"{match['scheme']}://{user}@" if "ssh" in match["scheme"].lower() and user else f"{match['scheme']}://"


def _userinfo_secrets(match: re.Match[str]) -> set[str]:
    user, _, password = match["userinfo"].partition(":")
    secrets = set() if password in _PLACEHOLDERS else {password}
    alone = not password or password in _PLACEHOLDERS
    if "ssh" not in match["scheme"].lower() and ((alone and len(user) >= _TOKEN_LENGTH) or _TOKEN.match(user)):
        secrets.add(user)
    return secrets - {""}


def _secrets_of(setting: Setting) -> set[str]:
    """What is secret in the value of a setting that goes as a whole."""
    value = (setting.value or "").strip()
    if setting.key == "http.extraheader":
        return _header_secrets(value)
    return {value} if value and _SECRET_NAME.fullmatch(setting.name) and setting.key != "core.askpass" else set()


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


def _paths(setting: Setting) -> tuple[str, ...]:
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
