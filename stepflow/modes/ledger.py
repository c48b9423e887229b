"""Reads what the runs of a repository left on GitHub, and computes the ledger."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime

from stepflow.boundary.github_failures import RetryPolicy
from stepflow.domain.reports.ledger import Ledger
from stepflow.errors import InputError
from stepflow.ports import Clock
from stepflow.report.ledger import compute_ledger
from stepflow.run.readiness import check_addresses
from stepflow.run.request import ProxyConfig
from stepflow.run.start.inputs import Inputs


def read_ledger(
    inputs: Inputs,
    repository: str,
    *,
    clock: Clock,
    proxy_config: ProxyConfig,
    note: Callable[[str], None] = lambda _line: None,
    since: date | None = None,
    author: str = "",
) -> Ledger:
    """Read with `read-token`, or with `github-token` if there is no other. Raises `InputError` for a wrong token or
    repository, and `BoundaryError` where GitHub fails or its limit is nearly used up. `note` gets every wait."""
    from stepflow.boundary.ledger_reader import LedgerReader  # noqa: PLC0415 - as the other readers

    owner, slash, name = repository.partition("/")
    if not (owner and slash and name) or "/" in name:
        raise InputError(f'"{repository}" is no repository.', hint="Give it as owner/name, or set GITHUB_REPOSITORY.")
    token = inputs.read_token or inputs.github_token
    if token is None:
        raise InputError(
            "GitHub gives this list to no one without a token.", hint="Set GITHUB_TOKEN; reading is enough."
        )
    check_addresses(inputs)
    for warning in proxy_config.notes:
        note(warning)
    read_on = datetime.fromtimestamp(clock.now(), UTC).date()
    reader = LedgerReader(
        api_url=inputs.github_api_url,
        repository=repository,
        token=token.get_secret_value(),
        retry_policy=RetryPolicy.of(clock, None, note),
        connection=proxy_config.connection_to(inputs.github_api_url),
    )
    with closing(reader):
        return compute_ledger(reader.history(read_on=read_on, since=since, author=author))
