"""Which labels change when a run completes.

Takes: what agent.json and the answer ask for, the settings. Gives: labels to add and to remove, and why others stay.
May touch: nothing (boundary.md, security.md 17 and 20).
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepflow.boundary.settings import BoundarySettings
    from stepflow.domain.definition import GitHubSettings

MOST_LABEL_CHANGES = 10
#: GitHub's own limit for a label's name.
LONGEST_LABEL = 50


@dataclass(frozen=True, kw_only=True)
class LabelChanges:
    """Label names to put on and to take off, without doubles; together ten at most."""

    add: tuple[str, ...]
    remove: tuple[str, ...]
    warnings: tuple[str, ...]


def choose_labels(
    add: tuple[str, ...], remove: tuple[str, ...], github: GitHubSettings, settings: BoundarySettings
) -> LabelChanges:
    """The changes that are allowed. The label that started the run always comes off, and first."""
    warnings: list[str] = []
    started = (settings.started_by_label,) if settings.started_by_label else ()
    wanted_add = _allowed(add, "add", github, settings, warnings)
    wanted_remove = _allowed(remove, "remove", github, settings, warnings)
    keeps = {label.casefold() for label in wanted_add}
    taken = _distinct((*started, *(label for label in wanted_remove if label.casefold() not in keeps)))
    changes = [*((False, label) for label in taken[: len(started)]), *((True, label) for label in wanted_add)]
    changes += [(False, label) for label in taken[len(started) :]]
    for _, label in changes[MOST_LABEL_CHANGES:]:
        warnings.append(f"Label `{label}` stays as it is: a run changes at most {MOST_LABEL_CHANGES} labels.")
    kept = changes[:MOST_LABEL_CHANGES]
    return LabelChanges(
        add=tuple(label for put_on, label in kept if put_on),
        remove=tuple(label for put_on, label in kept if not put_on),
        warnings=tuple(warnings),
    )


def is_trigger_label(label: str, settings: BoundarySettings) -> bool:
    """True for a label whose putting on would start an agent."""
    name, prefix = label.casefold(), settings.label_prefix.casefold()
    triggers = {trigger.casefold() for trigger in (settings.trigger_label, settings.started_by_label) if trigger}
    return name in triggers or bool(prefix and name.startswith(prefix))


def _allowed(
    labels: tuple[str, ...], verb: str, github: GitHubSettings, settings: BoundarySettings, warnings: list[str]
) -> tuple[str, ...]:
    kept = []
    for label in _distinct(labels):
        if reason := _objection(label, github, settings):
            warnings.append(f"Label `{label[:LONGEST_LABEL]}` is not touched ({verb}): {reason}.")
        else:
            kept.append(label)
    return tuple(kept)


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
    """Each label once: GitHub's labels do not differ by case alone."""
    first: dict[str, str] = {}
    for label in labels:
        first.setdefault(label.casefold(), label)
    return tuple(first.values())
