"""After which changes something else may have to be installed."""

from __future__ import annotations

from stepflow.domain.manifests import changed_manifests


def test_manifests_and_lock_files_are_known_by_their_names_wherever_they_lie() -> None:
    known = (
        *("package.json", "web/pnpm-lock.yaml", "pyproject.toml", "a.gemspec", "requirements-dev.txt"),
        *("requirements/dev.in", "dev-requirements.txt", "constraints.txt", "crates/a/Cargo.toml"),
    )
    others = ("package.js", "src/setup/a.py", "requirements.md", "docs/notes.txt", "tests/package.json.txt")
    assert changed_manifests((*known, *others)) == known
