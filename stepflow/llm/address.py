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


def is_private(url: str) -> bool:
    """Whether what is sent there cannot be read on the way."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and _is_closed(parts, parts.hostname or "")
    except ValueError:
        return False


def vertex_url(region: str) -> str:
    """Where the SDK looks for Vertex AI in this region; a test holds the two together."""
    match region:
        case "global":
            host = "aiplatform.googleapis.com"
        case "us" | "eu":
            host = f"aiplatform.{region}.rep.googleapis.com"
        case _:
            host = f"{region}-aiplatform.googleapis.com"
    return f"https://{host}/v1"


def _problem(parts: SplitResult, host: str) -> str:
    if not host:
        return "it names no host"
    if parts.username or parts.password:
        return "it carries a user name or a password"
    if parts.query or parts.fragment:
        return "it carries a query or a fragment"
    return "" if _is_closed(parts, host) else "the model key would travel unencrypted"


def _is_closed(parts: SplitResult, host: str) -> bool:
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refusal(url: str, problem: str) -> InputError:
    shown = url.rsplit("@", maxsplit=1)[-1]
    return InputError(
        f"The input `anthropic-base-url` ({shown!r}) cannot be used: {problem}.",
        hint="Give an address that begins with https://, or with http:// on this machine, and leave out /v1 "
        "(for Vertex keep it).",
    )
