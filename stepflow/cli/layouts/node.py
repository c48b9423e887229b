"""Projects with a `package.json`: which package manager they use, and which of their scripts check something."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stepflow.cli.layouts.files import RepositoryFiles, table_of
from stepflow.cli.layouts.layout import NPM_INSTALL, Check, ProjectLayout
from stepflow.definition.judged import runs_code

#: Names of scripts → what they check. Of those for one purpose the first is taken.
_SCRIPTS = {
    **dict.fromkeys(("test", "test:ci", "ci:test", "test:run", "test:unit", "tests", "unit", "unit-test"), "test"),
    "lint": "lint",
    **dict.fromkeys(("typecheck", "type-check", "check-types"), "types"),
}
#: The text that `npm init` writes if there are no tests.
_NO_TESTS = "no test specified"
#: A script that waits for changes never ends.
_WATCHES = re.compile(r"--watch(?:All)?(?![\w=-])|--watch(?:All)?=true|\bwatch\b(?=\s|$)")
#: How a package manager runs a script in each package that has it. Yarn 1 would fail in a package without it.
_IN_PACKAGES = {
    "npm": "npm run {} --workspaces --if-present",
    "pnpm": "pnpm --recursive --if-present run {}",
    "yarn": "yarn workspaces foreach --all run {}",
    "bun": "bun run --filter '*' {}",
}
#: Test runners that a project without a script for them may have → how they run once.
_RUNNERS = {"vitest": "vitest run", "jest": "jest", "mocha": "mocha", "ava": "ava", "tap": "tap", "jasmine": "jasmine"}
#: What runs a program of the project's dependencies.
_EXEC = {"npm": "npx --no-install", "pnpm": "pnpm exec", "yarn": "yarn run", "bun": "bunx"}
#: The files that `node --test` finds.
_NODE_TESTS = tuple(
    f"{folder}{name}.{suffix}"
    for suffix in ("js", "mjs", "cjs")
    for folder, name in (("", "*.test"), ("**/", "*.test"), ("", "test"), ("test/**/", "*"))
)
#: The format of a lock file → the version of the package manager that reads and writes it.
_PNPM_OF_LOCK = {"5": "7", "6": "8"}
#: Yarn 4.18 refuses format 8 with `--immutable`, and 4.9.1 takes it.
_YARN_OF_LOCK = {"4": "2", "6": "3", "8": "4.9.1"}
_LOCKS = {
    "pnpm": ("pnpm-lock.yaml",),
    "yarn": ("yarn.lock",),
    "bun": ("bun.lock", "bun.lockb"),
    "npm": ("package-lock.json", "npm-shrinkwrap.json"),
}


def manager_of(repository: RepositoryFiles) -> str:
    """Return the package manager: the one that `packageManager` names, since the others refuse to work then, or the one
    whose lock file is nearest."""
    if named := re.match(r"(npm|pnpm|yarn|bun)@", str(_root_package(repository).get("packageManager", ""))):
        return named[1]
    for find in (repository.find, repository.find_above):
        for manager, locks in _LOCKS.items():
            if find(*locks):
                return manager
    return "pnpm" if repository.find("pnpm-workspace.yaml") or repository.find_above("pnpm-workspace.yaml") else "npm"


def _root_package(repository: RepositoryFiles) -> Mapping[str, Any]:
    """Return the manifest that names the package manager: the folder's own, or that of the workspace around it."""
    above = repository.find_above("package.json")
    return repository.package if "packageManager" in repository.package or not above else repository.json(above)


def _lock(repository: RepositoryFiles, manager: str) -> str:
    return repository.find(*_LOCKS[manager]) or repository.find_above(*_LOCKS[manager])


def node_checks(repository: RepositoryFiles) -> Iterator[Check]:
    """Yield the scripts of the root's `package.json`, or those of the packages of a workspace."""
    manager = manager_of(repository)
    own = _scripts(repository.package)
    members = [_scripts(repository.json(name)) for name in _member_manifests(repository)]
    taken = set[str]()
    for scripts, command in (
        (own, f"{manager} run {{}}"),
        *((each, _in_packages(repository, manager)) for each in members),
    ):
        for name, purpose in _SCRIPTS.items():
            if name in scripts and purpose not in taken:
                taken.add(purpose)
                yield purpose, command.format(name)
    if "test" not in taken and (command := _bare_test(repository, manager)):
        yield "test", command


def _scripts(package: Mapping[str, Any]) -> set[str]:
    scripts = table_of(package, "scripts")
    return {name for name in _SCRIPTS if isinstance(scripts.get(name), str) and _checks(scripts[name])}


def _checks(script: str) -> bool:
    return _NO_TESTS not in script and runs_code(script) and not _WATCHES.search(script)


def _member_manifests(repository: RepositoryFiles) -> list[str]:
    """Return the manifests of the packages in the repository, if it has a workspace."""
    if not (repository.package.get("workspaces") or repository.find("pnpm-workspace.yaml")):
        return []
    return [*repository.names("*/package.json"), *repository.names("*/*/package.json")]


def _in_packages(repository: RepositoryFiles, manager: str) -> str:
    is_classic = manager == "yarn" and not _is_modern_yarn(repository)
    return _IN_PACKAGES["npm" if is_classic else manager]


def _bare_test(repository: RepositoryFiles, manager: str) -> str:
    """Return the command of the test runner that no script starts: one of the dependencies, or Node's own."""
    package = repository.package
    needed = table_of(package, "devDependencies").keys() | table_of(package, "dependencies").keys()
    if runner := next((runner for runner in _RUNNERS if runner in needed), ""):
        return f"{_EXEC[manager]} {_RUNNERS[runner]}"
    found = (name for pattern in _NODE_TESTS for name in repository.names(pattern))
    if any("node:test" in repository.text(name) for name in found):
        return "node --test"
    return "bun test" if manager == "bun" and repository.find("*.test.ts", "**/*.test.ts") else ""


def _version(repository: RepositoryFiles, manager: str) -> str:
    """Return the version that `packageManager` names, such as `9.1.0`."""
    match = re.match(rf"{manager}@([0-9][^+\s]*)", str(_root_package(repository).get("packageManager", "")))
    return match[1] if match else ""


def _package(name: str, version: str) -> str:
    return f"{NPM_INSTALL} {'@'.join(filter(None, (name, version)))}"


def _is_modern_yarn(repository: RepositoryFiles) -> bool:
    return bool(_yarn_format(repository)) or _version(repository, "yarn")[:1] > "1"


def _yarn_format(repository: RepositoryFiles) -> str:
    match = re.search(r"^__metadata:\s+version: (\d+)", repository.text(_lock(repository, "yarn")), re.M)
    return match[1] if match else ""


def node_setup(repository: RepositoryFiles, _text: str) -> Iterator[str]:
    """Install what is locked. Without a lock file, none may be left, which would make the tree dirty."""
    manager = manager_of(repository)
    lock, version = _lock(repository, manager), _version(repository, manager)
    match manager:
        case "pnpm":
            format_ = re.search(r"^lockfileVersion: '?(\d+)", repository.text(lock), re.M)
            pnpm = _package("pnpm", version or _PNPM_OF_LOCK.get(format_[1] if format_ else "", ""))
            yield f"{pnpm} && pnpm install {'--frozen-lockfile' if lock else '--no-lockfile'}"
        case "yarn" if _is_modern_yarn(repository):
            # Yarn 2 and later is another package in npm's registry. One that is committed (`yarnPath`) takes over.
            yarn = _package("@yarnpkg/cli-dist", version or _YARN_OF_LOCK.get(_yarn_format(repository), ""))
            yield f"{yarn} && yarn install {'--immutable' if lock else '--no-immutable'}"
        case "yarn":
            yield f"{_package('yarn', version)} && yarn install {'--frozen-lockfile' if lock else '--no-lockfile'}"
        case "bun":
            yield f"{_package('bun', version)} && bun install {'--frozen-lockfile' if lock else '--no-save'}"
        case _ if lock:
            yield "npm ci"
        case _ if any(repository.package.get(key) for key in ("dependencies", "devDependencies", "workspaces")):
            yield "npm install --no-package-lock"


NODE = ProjectLayout("node", "package.json pnpm-lock.yaml yarn.lock bun.lock bun.lockb", node_checks, node_setup)
