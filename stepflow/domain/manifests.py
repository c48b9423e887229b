"""Files by which package managers know what to install."""

from __future__ import annotations

from collections.abc import Iterable

from stepflow.domain.checkout import fits_one_of

#: The manifests and lock files of the usual package managers, wherever they lie in a repository.
_NAMES = frozenset(
    {
        *("package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", ".yarnrc.yml"),
        *("pnpm-lock.yaml", "pnpm-workspace.yaml", "bun.lock", "bun.lockb", "deno.json", "deno.jsonc", "deno.lock"),
        *("pyproject.toml", "setup.py", "setup.cfg", "Pipfile", "Pipfile.lock", "poetry.lock", "uv.lock", "pdm.lock"),
        *("pixi.toml", "pixi.lock", "environment.yml", "environment.yaml", "tox.ini", "noxfile.py"),
        *("Gemfile", "Gemfile.lock", "composer.json", "composer.lock", "go.mod", "go.sum", "go.work"),
        *("Cargo.toml", "Cargo.lock", "pom.xml", "build.gradle", "build.gradle.kts", "settings.gradle"),
        *("settings.gradle.kts", "mix.exs", "mix.lock", ".tool-versions", ".pre-commit-config.yaml"),
    }
)
_OF_PIP = ("requirements", "constraints")


def changed_manifests(paths: Iterable[str], patterns: Iterable[str] = ()) -> tuple[str, ...]:
    """Return those of the paths after whose change something else may have to be installed: manifests, and what fits
    one of the patterns."""
    fits = fits_one_of(patterns)
    return tuple(path for path in paths if _is_manifest(path) or fits(path))


def _is_manifest(path: str) -> bool:
    *_, folder, name = ("", *path.split("/"))
    if name in _NAMES or name.endswith(".gemspec"):
        return True
    # `requirements-dev.txt`, `requirements/dev.in`.
    return name.endswith((".txt", ".in")) and any(word in part for part in (folder, name) for word in _OF_PIP)
