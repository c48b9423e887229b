"""What the runs of a repository cost and what became of their work."""

from __future__ import annotations

from dataclasses import dataclass, field

from stepflow.domain.text import Spent
from stepflow.domain.words import Outcome

#: Digits of a definition's digest in a record.
DIGEST_DIGITS = 12


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What is recorded on GitHub about one run, whichever comment replaces its own."""

    run: str
    #: The first digits of the digest of the agent's definition.
    digest: str
    #: None while the run is in progress, and for one that was killed.
    outcome: Outcome | None
    cost: Spent = field(default_factory=Spent)
    minutes: float = 0.0
    #: The day (UTC) on which it was written last.
    day: str
