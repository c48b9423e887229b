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
        ("AGENT:FIXER", "agent:*", "fixer"),
        ("agent:fixer", "Agent:*", "fixer"),
        ("Please Fix", "please fix", ""),
        ("agent:", "agent:*", None),
        ("bug", "agent:*", None),
        ("aa", "a*a", None),
        ("please fix it", "please fix", None),
    ],
)
def test_a_pattern_finds_the_name_in_a_label_in_any_case(label: str, pattern: str, name: str | None) -> None:
    assert name_in(label, pattern) == name
    assert not name or label_of(name, pattern).casefold() == label.casefold()
