"""The boundary's settings from the action's inputs, the check of the actor's permission, and the labels that a run may
change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stepflow.domain.agent.agent_settings import GitHubSettings
from stepflow.domain.run import ANY_NAME, name_in
from stepflow.domain.words import OnFailure, Permission
from stepflow.errors import BoundaryError

if TYPE_CHECKING:
    from stepflow.boundary.github_api import GitHub

#: Larger packed commits are neither collected nor pushed; their unpacked size is limited by `CommitRules`.
MOST_BUNDLE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class BoundarySettings:
    """The inputs about GitHub, and who and what started the run."""

    #: `owner/name`.
    repository: str
    actor: str
    actor_is_bot: bool = False
    server_url: str = "https://github.com"
    trigger_labels: tuple[str, ...] = ("agent:*",)
    #: The label that started this run, if one did.
    started_by_label: str | None = None
    min_permission: Permission = Permission.WRITE
    allow_bots: tuple[str, ...] = ()
    on_failure: OnFailure = OnFailure.NOTHING
    #: File name of the workflow to start on a pushed branch; empty for none.
    ci_workflow: str = ""
    #: Whether the definition of the agent lets people without the permission start a run.
    anyone_may_start: bool = False
    #: False if the text came from an input, so that it cannot be compared with the issue.
    issue_text_from_event: bool = True

    @property
    def repository_url(self) -> str:
        """Address of the repository's page."""
        return f"{self.server_url.rstrip('/')}/{self.repository}"

    def link_hosts(self, allowed: Iterable[str]) -> frozenset[str]:
        """Return the hosts that links in posted text may lead to: the server and the `allowed` ones."""
        server = urlsplit(self.server_url).hostname or ""
        return frozenset(host.strip().lower() for host in (server, *allowed) if host.strip())


class Refused(BoundaryError):
    """The trust rules forbid writing; nothing was written."""


class BeyondCap(Refused):
    """The caps of the day leave nothing for a run of somebody without write access, who is not told."""


def check_actor(github: GitHub, settings: BoundarySettings, approver: Permission = Permission.NONE) -> str | None:
    """Say why nothing may be written, or return None. A bot in `allow-bots` needs no permission, but only a person can
    be the `approver` of a step."""
    actor = settings.actor
    if not actor:
        return "Nothing was written: the event does not say who triggered the run, so no permission can be checked."
    is_bot = settings.actor_is_bot or actor.endswith("[bot]")
    if is_bot and approver is not Permission.NONE:
        return f"No run was started: {actor} is a bot, and only people approve or reject a plan."
    if is_bot:
        refusal = (
            f"Nothing was written: {actor}, which triggered the run, is a bot that `allow-bots` does not name. Add it "
            "there if it may write."
        )
        return None if is_named(actor, settings.allow_bots) else refusal
    if settings.anyone_may_start and approver is Permission.NONE:
        return None
    permission = Permission(github.permission(actor))
    if settings.min_permission.rank <= permission.rank < approver.rank:
        return (
            f"No run was started: {actor} has the permission '{permission}' on {settings.repository}, and the "
            f"`approval` requires '{approver}'. Let somebody with that permission answer."
        )
    refusal = (
        f"Nothing was written: {actor}, who triggered the run, has the permission '{permission}' on "
        f"{settings.repository}, and `min-permission` requires '{settings.min_permission}'. Let somebody with that "
        "permission trigger the run, or lower `min-permission`."
    )
    return refusal if permission.rank < settings.min_permission.rank else None


def is_named(actor: str, allowed: tuple[str, ...]) -> bool:
    """Whether `allow-bots` names this account."""
    names = {name.strip().removesuffix("[bot]").casefold() for name in allowed}
    return actor.removesuffix("[bot]").casefold() in names


MOST_LABEL_CHANGES = 10
#: GitHub's own limit for a label's name.
LONGEST_LABEL = 50


def choose_labels(
    add: tuple[str, ...],
    remove: tuple[str, ...],
    github: GitHubSettings,
    settings: BoundarySettings,
    warnings: list[str],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the allowed labels to add and to remove, without duplicates and at most ten together. The label that
    started the run is always removed, and first."""
    started = (settings.started_by_label,) if settings.started_by_label else ()
    wanted_add = _check_labels(add, "add", github, settings, warnings)
    wanted_remove = _check_labels(remove, "remove", github, settings, warnings)
    keeps = {label.casefold() for label in wanted_add}
    removals = _distinct((*started, *(label for label in wanted_remove if label.casefold() not in keeps)))
    changes = [*((False, label) for label in removals[: len(started)]), *((True, label) for label in wanted_add)]
    changes += [(False, label) for label in removals[len(started) :]]
    for _, label in changes[MOST_LABEL_CHANGES:]:
        warnings.append(f"Label `{label}` stays as it is: a run changes at most {MOST_LABEL_CHANGES} labels.")
    done = changes[:MOST_LABEL_CHANGES]
    return (
        tuple(label for put_on, label in done if put_on),
        tuple(label for put_on, label in done if not put_on),
    )


def object_to_labels(
    add: tuple[str, ...], remove: tuple[str, ...], github: GitHubSettings, settings: BoundarySettings
) -> Iterator[str]:
    """Yield objections to labels that the answer asks for. The label that started the run is removed in any case."""
    started = (settings.started_by_label or "").casefold()
    for label in _distinct((*add, *(label for label in remove if label.casefold() != started))):
        if reason := _objection(label, github, settings):
            yield f"Label `{label[:LONGEST_LABEL]}` cannot be changed: {reason}."


def is_trigger_label(label: str, settings: BoundarySettings) -> bool:
    """Whether adding this label would start an agent."""
    if label.casefold() == (settings.started_by_label or "").casefold():
        return True
    # The bare name of an agent may be any word.
    patterns = (pattern for pattern in settings.trigger_labels if pattern != ANY_NAME)
    return any(name_in(label, pattern) is not None for pattern in patterns)


def _check_labels(
    labels: tuple[str, ...], verb: str, github: GitHubSettings, settings: BoundarySettings, warnings: list[str]
) -> tuple[str, ...]:
    allowed = []
    for label in _distinct(labels):
        if reason := _objection(label, github, settings):
            warnings.append(f"Label `{label[:LONGEST_LABEL]}` is not touched ({verb}): {reason}.")
        else:
            allowed.append(label)
    return tuple(allowed)


def _objection(label: str, github: GitHubSettings, settings: BoundarySettings) -> str | None:
    if is_trigger_label(label, settings):
        return "it starts agents, and the boundary never uses such a label"
    if len(label) > LONGEST_LABEL:
        return f"a label has at most {LONGEST_LABEL} characters"
    globs = github.allowed_labels
    if globs is not None and not any(fnmatchcase(label.casefold(), glob.casefold()) for glob in globs):
        return "`allowedLabels` in agent.json does not list it"
    return None


def _distinct(labels: tuple[str, ...]) -> tuple[str, ...]:
    """Remove duplicates, ignoring case as GitHub does."""
    first: dict[str, str] = {}
    for label in labels:
        first.setdefault(label.casefold(), label)
    return tuple(first.values())
