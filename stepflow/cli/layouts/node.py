"""Projects of npm, pnpm and Yarn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stepflow.cli.layouts.files import Check, RepositoryFiles, table_of

_SCRIPTS = ("test", "lint", "typecheck", "type-check")
#: The text that `npm init` writes if there are no tests.
_NO_TESTS = "no test specified"
NPM_INSTALL = "npm install --global --prefix ~/.local"
#: How a package manager runs a script in each package that has it.
_IN_PACKAGES = {"npm": "npm run {} --workspaces --if-present", "pnpm": "pnpm --recursive --if-present run {}"}
#: The format of a lock file → the version of the package manager that reads and writes it.
_PNPM_OF_LOCK = {"5": "7", "6": "8"}
#: Yarn 4.18 refuses format 8 with `--immutable`, and 4.9.1 takes it.
_YARN_OF_LOCK = {"4": "2", "6": "3", "8": "4.9.1"}


def node_checks(program: str, repository: RepositoryFiles) -> Iterator[Check]:
    """Yield the scripts of the root's `package.json`, or those of the packages of a workspace."""
    own = _scripts(repository.package)
    shared = [_scripts(repository.json(name)) for name in _member_manifests(repository)]
    for name in _SCRIPTS:
        purpose = name.replace("typecheck", "types").replace("type-check", "types")
        if name in own:
            yield purpose, f"{program} run {name}"
        elif program in _IN_PACKAGES and any(name in scripts for scripts in shared):
            yield purpose, _IN_PACKAGES[program].format(name)


def _scripts(package: Mapping[str, Any]) -> set[str]:
    scripts = table_of(package, "scripts")
    return {name for name in _SCRIPTS if isinstance(scripts.get(name), str) and _NO_TESTS not in scripts[name]}


def _member_manifests(repository: RepositoryFiles) -> list[str]:
    """Return the manifests of the packages in the repository, if it has a workspace."""
    if not (repository.package.get("workspaces") or repository.find("pnpm-workspace.yaml")):
        return []
    names = [*repository.names("*/package.json"), *repository.names("*/*/package.json")]
    return [name for name in names if "node_modules" not in name.split("/")]


def _manager(repository: RepositoryFiles, name: str) -> str:
    """Return the version that `packageManager` in `package.json` names, such as `9.1.0`."""
    match = re.match(rf"{name}@([0-9][^+\s]*)", str(repository.package.get("packageManager", "")))
    return match[1] if match else ""


def pnpm_setup(repository: RepositoryFiles) -> Iterator[str]:
    """Install the pnpm that the repository names, or the one that reads its lock file."""
    format_ = re.search(r"^lockfileVersion: '?(\d+)", repository.text("pnpm-lock.yaml"), re.M)
    version = _manager(repository, "pnpm") or _PNPM_OF_LOCK.get(format_[1] if format_ else "", "")
    yield f"{NPM_INSTALL} {_versioned('pnpm', version)} && pnpm install --frozen-lockfile"


def yarn_setup(repository: RepositoryFiles) -> Iterator[str]:
    """Yarn 2 and later is another package in npm's registry. One that is committed (`yarnPath`) takes over."""
    format_ = re.search(r"^__metadata:\s+version: (\d+)", repository.text("yarn.lock"), re.M)
    version = _manager(repository, "yarn")
    if format_ or version[:1] > "1":
        package = _versioned("@yarnpkg/cli-dist", version or _YARN_OF_LOCK.get(format_[1] if format_ else "", ""))
        yield f"{NPM_INSTALL} {package} && yarn install --immutable"
    else:
        yield f"{NPM_INSTALL} {_versioned('yarn', version)} && yarn install --frozen-lockfile"


def _versioned(package: str, version: str) -> str:
    return f"{package}@{version}" if version else package


def npm_setup(repository: RepositoryFiles) -> Iterator[str]:
    """Without a lock file, npm must not leave one, which would make the tree dirty."""
    if repository.find("package-lock.json", "npm-shrinkwrap.json"):
        yield "npm ci"
    elif any(repository.package.get(key) for key in ("dependencies", "devDependencies", "workspaces")):
        yield "npm install --no-package-lock"
