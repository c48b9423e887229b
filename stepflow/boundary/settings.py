"""What the action's inputs decide about writing, and whether the person who triggered the run may have it write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stepflow.domain.words import OnFailure, Permission
from stepflow.errors import BoundaryError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepflow.boundary.github_api import GitHub

#: Packed commits that are larger are not pushed, and so not collected either; what they unpack to is limited by the
#: policy.
MOST_BUNDLE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class BoundarySettings:
    """The inputs of the group GitHub, and who and what started the run.

    `trigger_labels` is the input; `started_by_label` the label whose putting on started this run, if one did.
    `issue_text_from_event`: false when the text came from an input, so that comparing it with the issue means nothing.
    """

    repository: str
    actor: str
    actor_is_bot: bool = False
    server_url: str = "https://github.com"
    trigger_labels: tuple[str, ...] = ("agent:*",)
    started_by_label: str | None = None
    min_permission: Permission = Permission.WRITE
    allow_bots: tuple[str, ...] = ()
    on_failure: OnFailure = OnFailure.COMMENT
    issue_text_from_event: bool = True

    @property
    def repository_url(self) -> str:
        """Where people see the repository."""
        return f"{self.server_url.rstrip('/')}/{self.repository}"

    def link_hosts(self, allowed: Iterable[str]) -> frozenset[str]:
        """The hosts that links in posted text may lead to: the server, and those that the agent is allowed."""
        server = urlsplit(self.server_url).hostname or ""
        return frozenset(host.strip().lower() for host in (server, *allowed) if host.strip())


class Refused(BoundaryError):
    """The trust rules forbid writing; nothing was written. About commits the message begins with `refused: `."""


def check_actor(github: GitHub, settings: BoundarySettings, approver: Permission = Permission.NONE) -> str | None:
    """Why nothing may be written, or None. A bot that `allow-bots` names needs no permission of its own, but only a
    person can be the `approver` of a step."""
    actor = settings.actor
    if not actor:
        return "Nothing was written: the event does not say who triggered the run, so nobody's permission can be asked."
    is_bot = settings.actor_is_bot or actor.endswith("[bot]")
    if is_bot and approver is not Permission.NONE:
        return f"Nothing was begun: {actor} is a bot, and only people approve or reject a plan."
    if is_bot:
        return None if is_named(actor, settings.allow_bots) else _bot_refusal(actor)
    permission = Permission(github.permission(actor))
    if settings.min_permission.rank <= permission.rank < approver.rank:
        return (
            f"Nothing was begun: {actor} has the permission '{permission}' on {settings.repository}, and the "
            f"`approval` demands '{approver}'. Let somebody with that permission answer."
        )
    if permission.rank < settings.min_permission.rank:
        return (
            f"Nothing was written: {actor}, who triggered the run, has the permission '{permission}' on "
            f"{settings.repository}, and `min-permission` demands '{settings.min_permission}'. Let somebody with that "
            "permission trigger the run, or lower `min-permission`."
        )
    return None


def is_named(actor: str, allowed: tuple[str, ...]) -> bool:
    """Whether `allow-bots` names this account."""
    names = {name.strip().removesuffix("[bot]").casefold() for name in allowed}
    return actor.removesuffix("[bot]").casefold() in names


def _bot_refusal(actor: str) -> str:
    return (
        f"Nothing was written: {actor}, which triggered the run, is a bot that `allow-bots` does not name. Add it "
        "there if it may write."
    )
