"""Asks whether the one who started the run may have it write.

Takes: who can tell permissions, the settings. Gives: None, or the refusal as text.
May touch: GitHub, only to read (boundary.md "Before anything is written", security.md 19 and 20).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from stepflow.domain.words import Permission

if TYPE_CHECKING:
    from stepflow.boundary.settings import BoundarySettings


class Permissions(Protocol):
    """Knows what accounts may do: a `Writer`, or the reader that asks before a run."""

    def permission(self, login: str) -> str:
        """A word of `Permission`, `none` for a stranger."""
        ...


def check_actor(known: Permissions, settings: BoundarySettings) -> str | None:
    """Why nothing may be written, or None. A bot that `allow-bots` names needs no permission of its own."""
    actor = settings.actor
    if not actor:
        return "Nothing was written: the event does not say who triggered the run, so nobody's permission can be asked."
    if settings.actor_is_bot or actor.endswith("[bot]"):
        return None if _named(actor, settings.allow_bots) else _bot_refusal(actor)
    permission = Permission(known.permission(actor))
    if permission.rank < settings.min_permission.rank:
        return (
            f"Nothing was written: {actor}, who triggered the run, has the permission '{permission}' on "
            f"{settings.repository}, and `min-permission` demands '{settings.min_permission}'. Let somebody with that "
            "permission trigger the run, or lower `min-permission`."
        )
    return None


def _named(actor: str, allowed: tuple[str, ...]) -> bool:
    names = {name.strip().removesuffix("[bot]").casefold() for name in allowed}
    return actor.removesuffix("[bot]").casefold() in names


def _bot_refusal(actor: str) -> str:
    return (
        f"Nothing was written: {actor}, which triggered the run, is a bot that `allow-bots` does not name. Add it "
        "there if it may write."
    )
