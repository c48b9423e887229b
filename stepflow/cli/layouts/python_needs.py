"""What the tests of a Python project need, wherever the project says so: extras, groups, requirement files, and what
other tools install."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from stepflow.cli.layouts.files import RepositoryFiles, table_of, texts_of
from stepflow.cli.layouts.tox import tests_elsewhere

#: Extras, groups, environments and requirement files with these names hold what the checks need.
FOR_CHECKS = frozenset(
    (
        *("test", "tests", "testing", "unittest", "pytest", "dev", "devel", "develop", "development"),
        *("lint", "linting", "typing", "types", "check", "checks", "ci", "qa", "hatch-test"),
    )
)
_BASE = frozenset(("base", "main", "default", "requirements", "txt"))
_SPEC = re.compile(r"[A-Za-z0-9][\w.-]*\s*(?:\[[\w.,\s-]*\])?\s*(?:(?:[<>=!~]=?|===|;|@).*)?")
#: Folders that setuptools does not take for packages, and folders of no project.
_NO_PACKAGE = re.compile(
    r"(?:tests?|docs?|examples?|scripts?|tools?|benchmarks?|build|dist|notebooks?|requirements|utils?|tasks|ci|bin"
    r"|python|htmlcov|cover|changelog|news|\..*|_.*|.*\.egg-info|node_modules|vendor|venv|env)"
)


def requirement_files(repository: RepositoryFiles) -> Iterator[str]:
    """Yield `requirements.txt` and the files beside it for tests and development, such as `requirements/test.txt`."""
    patterns = ("*requirements*.txt", "requirements/*.txt", "requirements/*/*.txt", "test*/*requirements*.txt")
    for name in dict.fromkeys(name for pattern in patterns for name in repository.names(pattern)):
        if {*re.split(r"[-_/.]", name.lower())} <= FOR_CHECKS | _BASE:
            yield name


def extras(repository: RepositoryFiles) -> Iterator[str]:
    """Yield the extras of the project for checks: by their names, or because tox or nox names them."""
    declared = dict.fromkeys(table_of(repository.pyproject, "project", "optional-dependencies"))
    declared |= dict.fromkeys(table_of(repository.pyproject, "tool", "poetry", "extras"))
    if repository.setup_cfg.has_section("options.extras_require"):
        declared |= dict.fromkeys(repository.setup_cfg.options("options.extras_require"))
    declared |= dict.fromkeys(re.findall(r"""["']([\w.-]+)["']\s*:\s*\[""", repository.text("setup.py")))
    named = {extra for environment in tests_elsewhere(repository).values() for extra in environment.extras}
    return (name for name in declared if name.lower() in FOR_CHECKS or name in named)


def groups(repository: RepositoryFiles) -> Iterator[str]:
    """Yield the dependency groups (PEP 735) for checks."""
    named = {group for environment in tests_elsewhere(repository).values() for group in environment.groups}
    declared = table_of(repository.pyproject, "dependency-groups")
    return (name for name in declared if name.lower() in FOR_CHECKS or name in named)


def project_words(repository: RepositoryFiles) -> Iterator[str]:
    """Yield the words with which pip installs the project, as editable, so that checks see what the agent changes; or
    its dependencies, if it is no package."""
    project = table_of(repository.pyproject, "project")
    if _is_package(repository):
        wanted = ",".join(extras(repository))
        yield f"--editable '.[{wanted}]'" if wanted else "--editable ."
    else:
        more = table_of(project, "optional-dependencies")
        needed = [
            *texts_of(project, "dependencies"),
            *(text for name in extras(repository) for text in texts_of(more, name)),
        ]
        yield from map(shlex.quote, needed)
    yield from (f"--group {name}" for name in groups(repository))


def _is_package(repository: RepositoryFiles) -> bool:
    """Return whether pip can install the project. Without a build system setuptools looks for its packages, and refuses
    a project with several of them beside each other."""
    if "build-system" in repository.pyproject or repository.find("setup.py"):
        return True
    if repository.setup_cfg.has_section("metadata") or repository.setup_cfg.has_section("options"):
        return True
    if "project" not in repository.pyproject:
        return False
    if repository.find("src/*/__init__.py", "src/*.py") or "setuptools" in table_of(repository.pyproject, "tool"):
        return True
    folders = {name.split("/")[0] for name in repository.names("*/*.py")}
    modules = [name for name in repository.names("*.py") if not re.match(r"test_|conftest|noxfile|setup|manage", name)]
    packages = [name for name in folders if not _NO_PACKAGE.fullmatch(name)]
    return len(packages) == 1 or (not packages and len(modules) <= 1)


def other_packages(repository: RepositoryFiles) -> Iterator[str]:
    """Yield what the tests need beside extras, groups and requirement files, as words for pip."""
    known = {f"--requirement {name}" for name in requirement_files(repository)}
    for spec in dict.fromkeys(map(str.strip, _specs(repository))):
        if spec.startswith("--requirement "):
            name = spec.removeprefix("--requirement ")
            if spec not in known and (repository.root / name).is_file():
                yield f"--requirement {shlex.quote(name)}"
        elif _SPEC.fullmatch(spec):
            yield shlex.quote(spec)


def _specs(repository: RepositoryFiles) -> Iterator[str]:
    for environment in tests_elsewhere(repository).values():
        yield from environment.installs
    tools = table_of(repository.pyproject, "tool")
    yield from texts_of(table_of(tools, "uv"), "dev-dependencies")
    for name, environment in table_of(tools, "hatch", "envs").items():
        if name.lower() in FOR_CHECKS | _BASE and isinstance(environment, dict):
            yield from texts_of(environment, "dependencies")
            yield from texts_of(environment, "extra-dependencies")
    pdm = table_of(tools, "pdm", "dev-dependencies")
    yield from (text for name in pdm if name.lower() in FOR_CHECKS for text in texts_of(pdm, name))
    poetry = table_of(tools, "poetry")
    yield from _names(table_of(poetry, "dev-dependencies"))
    for name in table_of(poetry, "group"):
        if name.lower() in FOR_CHECKS:
            yield from _names(table_of(poetry, "group", name, "dependencies"))
    pipfile = repository.toml("Pipfile")
    yield from (*_versions(table_of(pipfile, "packages")), *_versions(table_of(pipfile, "dev-packages")))
    yield from _pixi(repository)
    yield from _tests_require(repository)


def _names(dependencies: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names alone, where versions are written in a way that pip does not know."""
    return (name for name in dependencies if name != "python")


def _versions(dependencies: Mapping[str, Any]) -> Iterator[str]:
    for name, version in dependencies.items():
        yield f"{name}{version}" if isinstance(version, str) and version[:1] in "<>=!~" else name


#: What pixi takes from conda and PyPI does not have, or the image has.
_CONDA_ONLY = re.compile(r"python|pip|pixi.*|nodejs|compilers|.*-compiler|_.*|make|cmake|git|lib.*")


def _pixi(repository: RepositoryFiles) -> Iterator[str]:
    """Yield the packages of pixi's tests under their names, which nearly all Python packages have on PyPI, too."""
    for pixi in (repository.toml("pixi.toml"), table_of(repository.pyproject, "tool", "pixi")):
        features = table_of(pixi, "feature")
        tested = (table_of(features, name) for name in features if name.lower() in FOR_CHECKS)
        for feature in (pixi, *tested):
            for key in ("dependencies", "pypi-dependencies"):
                packages = table_of(feature, key)
                yield from (
                    name
                    for name, version in packages.items()
                    if not _CONDA_ONLY.fullmatch(name) and not (isinstance(version, dict) and "path" in version)
                )


def _tests_require(repository: RepositoryFiles) -> Iterator[str]:
    """Yield what `tests_require` in setup.py lists, if it is written out."""
    try:
        tree = ast.parse(repository.text("setup.py"))
    except (SyntaxError, ValueError, RecursionError) as exc:
        repository.faults["setup.py"] = f"is not valid Python: {exc}"
        return
    named = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for keyword in (each for node in ast.walk(tree) if isinstance(node, ast.Call) for each in node.keywords):
        if keyword.arg == "tests_require":
            value = named.get(keyword.value.id, keyword.value) if isinstance(keyword.value, ast.Name) else keyword.value
            yield from (
                each.value
                for each in (value.elts if isinstance(value, ast.List | ast.Tuple) else ())
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )
