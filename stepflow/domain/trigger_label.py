"""The labels that start agents: a pattern with a place for the agent's name."""

from __future__ import annotations

#: Stands for the agent's name in a pattern.
ANY_NAME = "*"


def name_in(label: str, pattern: str) -> str | None:
    """What a `label` has where the `pattern` has `*`, in lower case, as agents are named and because GitHub's labels do
    not differ by case alone; empty for a pattern without one, None where it does not fit."""
    label, pattern = label.casefold(), pattern.casefold()
    before, star, after = pattern.partition(ANY_NAME)
    if not star:
        return "" if label == pattern else None
    fits = label.startswith(before) and label.endswith(after) and len(label) > len(before) + len(after)
    return label[len(before) : len(label) - len(after)] if fits else None


def label_of(agent: str, pattern: str) -> str:
    """The label that starts the agent."""
    return pattern.replace(ANY_NAME, agent, 1)
