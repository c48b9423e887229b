"""The digest of a journal, on which the statement about a run stands, and what is checked of a pull request by it."""

from __future__ import annotations

from dataclasses import dataclass

from stepflow.domain.reports.report import CheckState

#: Bytes of one link.
LINK = 32
#: The check of who made a statement.
SIGNATURE = "signature"


@dataclass(frozen=True, kw_only=True)
class JournalDigest:
    """SHA-256 of a journal's file, and a chain over its lines: each link is the SHA-256 of the link before it and the
    line with its line break. The link before the first line is 32 zero bytes."""

    sha256: str
    #: The links of all lines, one after the other.
    links: bytes

    @property
    def lines(self) -> int:
        """Return the number of lines."""
        return len(self.links) // LINK

    def link(self, line: int) -> str:
        """Return the link of a line, counted from 1, which stands for this line and all before it; empty if there is no
        such line."""
        return self.links[LINK * (line - 1) : LINK * line].hex() if line > 0 else ""


@dataclass(frozen=True, kw_only=True)
class StatementCheck:
    """One check of a statement. `hint` says what to do if it did not pass."""

    name: str
    state: CheckState
    detail: str
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was checked of a pull request, which is written as `owner/name#number`. Without its signature a statement
    may be anybody's."""

    pull_request: str
    head: str
    checks: tuple[StatementCheck, ...]

    @property
    def is_signed(self) -> bool:
        """Return whether it is known who made each statement."""
        return {each.state for each in self.checks if each.name == SIGNATURE} == {CheckState.OK}

    @property
    def failed(self) -> tuple[StatementCheck, ...]:
        """Return the checks that did not pass."""
        return tuple(each for each in self.checks if each.state is CheckState.FAILED)

    @property
    def is_verified(self) -> bool:
        """Return whether everything passed, and who made the statements is known."""
        return self.is_signed and not self.failed
