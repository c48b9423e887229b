"""Where the model service is: only what the run was given counts, and only where a key can be sent safely.

Takes: the base URL of the inputs. Gives: the same without a trailing slash, or an `InputError`.
May touch: nothing.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from stepflow.domain.address import address_problem, is_loopback
from stepflow.errors import InputError

ANTHROPIC_URL = "https://api.anthropic.com"


def check_base_url(url: str) -> str:
    """The address, if it is https, or http on the machine itself (security.md case 33)."""
    if problem := address_problem(url, secret="the model key"):  # noqa: S106 - what it is called
        raise _refusal(url, problem)
    return url.strip().rstrip("/")


def is_private(url: str) -> bool:
    """Whether what is sent there cannot be read on the way."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


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


def _refusal(url: str, problem: str) -> InputError:
    shown = url.rsplit("@", maxsplit=1)[-1]
    return InputError(
        f"The input `anthropic-base-url` ({shown!r}) cannot be used: {problem}.",
        hint="Give an address that begins with https://, or with http:// on this machine, and leave out /v1 "
        "(for Vertex keep it).",
    )
