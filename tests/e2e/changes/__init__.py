"""Changes to small repositories, fakes and true fixes, and what a proof must say of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.e2e.repository import git

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PASS_WITHOUT = "pass without the change too"
FAIL_WITHOUT = "The tests fail without the change and pass with it."


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of a repository. Files are texts; None removes one."""

    change: Mapping[str, str | None]
    verdict: str
    #: What the summary must say.
    says: str
    base: Mapping[str, str] = field(default_factory=dict)
    """What the base has beside or instead of the repository's files."""
    command: str = ""
    """Empty for the one that runs everything."""
    #: The changed files, each hunk with the tests that hold it: None if none does, or why no test can notice it.
    held: tuple[tuple[str, tuple[str, ...] | str | None], ...] = ()
    #: The tests that fail on the base, if the proof gets that far.
    before: tuple[str, ...] | None = None
    #: The tests that are weaker than they were, and how.
    weakened: tuple[tuple[str, str], ...] | None = None


def commit_change(folder: Path, files: Mapping[str, str], change: Change) -> None:
    """Let HEAD be a change, its parent the base, and nothing else be there but what git ignores."""
    git(folder, "checkout", "--quiet", "--orphan", "change")
    git(folder, "rm", "-r", "--quiet", "--force", "--ignore-unmatch", ".")
    for subject, more in (("base", {**files, **change.base}), ("change", change.change)):
        for name, text in more.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.unlink(missing_ok=True) if text is None else file.write_text(text, encoding="utf-8")
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", subject)
    git(folder, "branch", "--quiet", "--move", "--force", "main")


def edit(text: str, *changes: tuple[str, str]) -> str:
    """Return the text with each first string replaced by its second; each must be there once."""
    for old, new in changes:
        assert text.count(old) == 1, (old, text)
        text = text.replace(old, new)
    return text


def fake(change: dict[str, str | None], says: str = PASS_WITHOUT, **more: object) -> Change:
    """A change that must not be called proven."""
    return Change(**{"change": change, "says": says, "verdict": "unproven", **more})


def named(change: dict[str, str | None], says: str, **more: object) -> Change:
    """A change whose tests do fail without it, and of which the proof says what it is."""
    return fake(change, says, verdict="proven", **more)


def fix(change: dict[str, str | None], says: str = FAIL_WITHOUT, **more: object) -> Change:
    """A true fix."""
    return named(change, says, **more)
