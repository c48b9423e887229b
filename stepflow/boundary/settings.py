"""What the action's inputs decide about writing.

Takes: nothing. Gives: `BoundarySettings`.
May touch: nothing. None means "not given": then agent.json decides, then the built-in default (action.md "Inputs").
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from stepflow.domain.words import OnFailure, Permission

#: Packed commits that are larger are not pushed, and so not collected either; what they unpack to is limited by the
#: policy.
MOST_BUNDLE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class BoundarySettings:
    """The inputs of the group GitHub, and who and what started the run.

    `trigger_label` is the input; `started_by_label` the label whose putting on started this run, if one did.
    `issue_text_from_event`: false when the text came from an input, so that comparing it with the issue means nothing.
    """

    repository: str
    actor: str
    actor_is_bot: bool = False
    server_url: str = "https://github.com"
    api_url: str = "https://api.github.com"
    label_prefix: str = "agent:"
    trigger_label: str | None = None
    started_by_label: str | None = None
    min_permission: Permission = Permission.WRITE
    allow_bots: tuple[str, ...] = ()
    base_branch: str | None = None
    branch_prefix: str | None = None
    draft: bool | None = None
    allowed_link_hosts: tuple[str, ...] = ()
    report_failures: bool = True
    on_failure: OnFailure = OnFailure.NOTHING
    issue_text_from_event: bool = True

    @property
    def repository_url(self) -> str:
        """Where people see the repository."""
        return f"{self.server_url.rstrip('/')}/{self.repository}"

    @property
    def link_hosts(self) -> frozenset[str]:
        """The hosts that links in posted text may lead to."""
        server = urlsplit(self.server_url).hostname or ""
        return frozenset(host.strip().lower() for host in (server, *self.allowed_link_hosts) if host.strip())
