"""Where the model service is: only what the run was given counts, and only where a key can be sent safely.

Takes: the base URL of the inputs. Gives: the same without a trailing slash, or an `InputError`.
May touch: nothing.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from stepflow.errors import InputError

ANTHROPIC_URL = "https://api.anthropic.com"


def check_base_url(url: str) -> str:
    """The address, if it is https, or http on the machine itself (security.md case 33)."""
    try:
        parts = urlsplit(url.strip())
        host = parts.hostname or ""
        parts.port  # noqa: B018 - reading it is what checks it
    except ValueError as exc:
        raise _refusal(url, str(exc)) from exc
    if problem := _problem(parts, host):
        raise _refusal(url, problem)
    return url.strip().rstrip("/")


def _problem(parts: SplitResult, host: str) -> str:
    if not host:
        return "it names no host"
    if parts.username or parts.password:
        return "it carries a user name or a password"
    if parts.query or parts.fragment:
        return "it carries a query or a fragment"
    if parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host)):
        return ""
    return "the model key would travel unencrypted"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refusal(url: str, problem: str) -> InputError:
    shown = url.rsplit("@", maxsplit=1)[-1]
    return InputError(
        f"The input `anthropic-base-url` ({shown!r}) cannot be used: {problem}.",
        hint="Give an address that begins with https://, or with http:// on this machine, and leave out /v1.",
    )
