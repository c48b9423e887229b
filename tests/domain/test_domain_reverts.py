"""Which pull requests count as reverted, by what titles, bodies and messages say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from stepflow.domain.reports.ledger import DAYS_TO_REVERT
from stepflow.domain.reports.reverts import Landed, find_reverted

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
OID = "0123456789abcdef0123456789abcdef01234567"


def landed(number: int | None, *texts: str, day: float, branch: str = "main", oids: tuple[str, ...] = ()) -> Landed:
    return Landed(at=BEGIN + timedelta(days=day), number=number, oids=oids, branch=branch, texts=texts)


FIRST = landed(1, "Add a cache", day=0, oids=(OID,))


def is_own(name: str) -> bool:
    return name.casefold() == "o/r"


@pytest.mark.parametrize(
    ("text", "is_reverted"),
    [
        ("Undo the cache\n\nThis reverts commit 0123456789abcdef0123456789abcdef01234567.", True),
        ("Undo the cache\n\nThis reverts commit 0123456.", True),
        ("Undo the cache\n\nThis reverts commit 0123457.", False),
        ("Undo the cache\n\nReverts o/r#1", True),
        ("Undo the cache\n\nreverts O/R#1 and o/r#9", True),
        ("Undo the cache\n\nReverts other/r#1", False),
        ("Undo the cache\n\nReverts https://github.com/o/r/pull/1", True),
        ("Undo the cache\n\nReverts https://github.com/o/r/commit/0123456789abcdef", True),
        ("Undo the cache\n\nThis PR reverts #1.", True),
        ("Undo the cache\r\n\r\nReverting: #1", True),
        ('Revert "Add a cache" (#1)', True),
        ('Revert "Add a cache (#1)" (#2)', True),
        ("fix!: revert the cache (#1)", True),
        ("Reverting the cache is easy (#1)", False),
        ("Document reverts\n\nIf it breaks, this reverts #1 when asked.", False),
        ("Document reverts\n\n> This reverts #1.", False),
        ("Document reverts\n\n`This reverts #1.`", False),
        ("Document reverts\n\n```\nThis reverts #1.\n```", False),
        ("Document reverts\n\n<!-- This reverts #1. -->", False),
        ("Undo another\n\nThis reverts #3.", False),
    ],
)
def test_what_a_later_change_says_decides(text: str, is_reverted: bool) -> None:
    assert find_reverted([landed(2, text, day=1), FIRST], is_own) == (frozenset({1}) if is_reverted else frozenset())


@pytest.mark.parametrize(
    ("later", "reverted"),
    [
        ([landed(2, "Reverts #1", day=DAYS_TO_REVERT)], {1}),
        ([landed(2, "Reverts #1", day=DAYS_TO_REVERT + 1)], set()),
        ([landed(2, "Reverts #1", day=-1)], set()),
        ([landed(None, "Undo it\n\nThis reverts #1.", day=1)], {1}),
        ([landed(2, "Reverts #1", day=1, branch="release")], set()),
        ([landed(2, "Reverts #1", day=1, branch="")], {1}),
        # A revert that was reverted took nothing back.
        ([landed(2, "Reverts #1", day=1), landed(3, "Reverts #2", day=2)], {2}),
        ([landed(2, "Reverts #1", day=1), landed(3, "Reverts #2", day=2), landed(4, "Reverts #3", day=3)], {1, 3}),
        ([landed(2, "Reverts #1", day=1), landed(3, 'Reapply "Add a cache" (#1)', day=2)], {2}),
        ([landed(2, "Reverts #1", day=1), landed(3, "Reverts #1", day=2), landed(4, "Reverts #2", day=3)], {1, 2}),
    ],
)
def test_what_became_of_the_revert_decides(later: list[Landed], reverted: set[int]) -> None:
    assert find_reverted([FIRST, *later], is_own) == reverted
