"""Which label names which agent."""

from __future__ import annotations

import pytest

from stepflow.domain.run import label_of, name_in


@pytest.mark.parametrize(
    ("label", "pattern", "name"),
    [
        ("agent:fixer", "agent:*", "fixer"),
        ("run the fixer now", "run the * now", "fixer"),
        ("fixer", "*", "fixer"),
        ("please fix", "please fix", ""),
        ("agent:", "agent:*", None),
        ("bug", "agent:*", None),
        ("aa", "a*a", None),
        ("please fix it", "please fix", None),
    ],
)
def test_a_pattern_finds_the_name_in_a_label(label: str, pattern: str, name: str | None) -> None:
    assert name_in(label, pattern) == name
    assert not name or label_of(name, pattern) == label


@pytest.mark.parametrize(
    ("label", "pattern", "name"),
    [
        ("Agent:fixer", "agent:*", "fixer"),
        ("AGENT:FIXER", "agent:*", "fixer"),
        ("agent:fixer", "Agent:*", "fixer"),
        ("Fixer", "*", "fixer"),
        ("Please Fix", "please fix", ""),
        ("AGENT:", "agent:*", None),
        ("Bug", "agent:*", None),
    ],
)
def test_the_case_of_a_label_or_a_pattern_does_not_count(label: str, pattern: str, name: str | None) -> None:
    assert name_in(label, pattern) == name
