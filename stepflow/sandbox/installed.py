"""What `setup` or a person has installed in a checkout, beside what git tracks: how it is found, and how an environment
works from another place."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from stepflow.sandbox.host_git import ask_git

_NODE_MODULES = "node_modules"
#: Folders into which package managers and compilers of one project install and build. They count where git ignores
#: them: somebody may be about to commit a new `vendor`.
_FOLDERS = frozenset(
    {
        *("vendor", "target", "bower_components", "jspm_packages", "elm-stuff", "Pods", "Carthage"),
        *(".tox", ".nox", ".eggs", ".pixi", ".hatch", "__pypackages__", ".yarn", ".pnpm-store", ".gradle", ".m2"),
        *(".cache", ".bundle", ".stack-work", "dist-newstyle", "deps", "_build"),
    }
)
#: What an editable install writes beside the sources.
_FILES = re.compile(r".*\.(?:so|pyd|egg-info)|_version\.py|\.pnp\.[cm]?js")
#: Files that usually hold logins, which some programs also read from the folders above.
LOGIN_NAMES = (
    *(".env", ".env.*", ".netrc", ".git-credentials", ".npmrc", ".yarnrc.yml"),
    *(".pypirc", "pip.conf", ".condarc"),
)
LOGIN_PATHS = ("*/.m2/settings*.xml", "*/.gradle/gradle.properties", "*/composer/auth.json")
BUNDLER_SETTINGS = "*/.bundle/config"
#: Bundler finds its gems by its settings, of which those named after a host or a mirror hold logins.
_OF_BUNDLER = re.compile(
    rb"BUNDLE_(?:PATH|PATH__SYSTEM|BIN|DEPLOYMENT|FROZEN|WITHOUT|WITH|ONLY|GEMFILE|CACHE_PATH|CACHE_ALL"
    rb"|DISABLE_SHARED_GEMS|FORCE_RUBY_PLATFORM|SPECIFIC_PLATFORM): "
)
#: So many folders deep environments are looked for in what git does not track.
_DEPTH = 4
_SUBMODULE = "160000 "
#: Where an environment writes down its own place, that of its interpreter, and those of editable installs.
_EDITABLE = ("*.pth", "*.egg-link", "*editable*.py")
_PLACES = ("pyvenv.cfg", "bin/*", *(f"lib/*/site-packages/{name}" for name in _EDITABLE))
_LARGEST = 1024 * 1024
_ACTIVATED = re.compile(r"^(?:export )?VIRTUAL_ENV=(?P<quote>[\"']?)(?P<place>/.*)$", re.MULTILINE)
_HOME = re.compile(r"^home[ \t]*=(?P<home>.*)$", re.MULTILINE)


def is_environment(folder: Path) -> bool:
    """Return whether a Python or conda environment is there, by what marks one and not by its name."""
    return (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir()


@dataclass(frozen=True, kw_only=True)
class Installed:
    """What is in a checkout that git does not track, by paths relative to it. `dependencies` were installed, `others`
    are the rest; of a folder without any tracked file only the folder."""

    checkout: Path
    dependencies: tuple[Path, ...] = ()
    others: tuple[Path, ...] = ()
    #: Those of the dependencies that git would add to a commit.
    not_ignored: tuple[Path, ...] = ()

    @cached_property
    def environments(self) -> tuple[Path, ...]:
        """The environments among the dependencies, or inside of one."""
        found = (_installed_in(self.checkout / each, _DEPTH) for each in self.dependencies)
        folders = (folder for each in found for folder in each if is_environment(folder))
        return tuple(folder.relative_to(self.checkout) for folder in folders)

    @cached_property
    def linked(self) -> dict[Path, Path]:
        """The links among the dependencies that the copy cannot have, and the folders to which these lead: out of the
        checkout, as `npm link` makes them, or where git would add the link to a commit."""
        packages = (package for each in self.dependencies for package in _packages(self.checkout / each))
        paths = (*self.dependencies, *(package.relative_to(self.checkout) for package in packages))
        ends = {each: (self.checkout / each).resolve() for each in paths if (self.checkout / each).is_symlink()}
        return {each: end for each, end in ends.items() if each in self.not_ignored or self._is_beside(end)}

    def _is_beside(self, end: Path) -> bool:
        """Return whether something is there, neither in the checkout nor around it."""
        return end.exists() and not end.is_relative_to(self.checkout) and not self.checkout.is_relative_to(end)

    @property
    def interpreters(self) -> tuple[Path, ...]:
        """The folders outside of the checkout with the interpreters of its environments."""
        folders = (folder for each in self.environments for folder in interpreters_of(self.checkout / each))
        return tuple(dict.fromkeys(folder for folder in folders if not folder.is_relative_to(self.checkout)))


def find_installed(checkout: Path) -> Installed:
    """Look at what git does not track in the checkout and its submodules. Where git tracks a file in it, nothing was
    installed: whoever wrote the commit would decide what tools may read."""
    checkout = checkout.resolve()
    dependencies: list[Path] = []
    others: list[Path] = []
    not_ignored: list[Path] = []
    for repository in (checkout, *_submodules(checkout)):
        untracked = _untracked(repository)
        unignored = {*_untracked(repository, "--exclude-standard")} & {*untracked}
        for path in untracked:
            if _is_dependency(path, repository, is_ignored=path not in unignored):
                found = [path]
                not_ignored += [path.relative_to(checkout)] if path in unignored else []
            else:
                found = [*_installed_in(path, _DEPTH)]
                others.append(path.relative_to(checkout))
            dependencies += [each.relative_to(checkout) for each in found]
    return Installed(
        checkout=checkout, dependencies=tuple(dependencies), others=tuple(others), not_ignored=tuple(not_ignored)
    )


def _untracked(repository: Path, *words: str) -> tuple[Path, ...]:
    listed = ask_git(repository, "ls-files", "--others", "--directory", "-z", *words, may_fail=True)
    return tuple(repository / name for name in listed.split("\0") if name)


def _submodules(checkout: Path) -> Iterator[Path]:
    for line in ask_git(checkout, "ls-files", "--stage", "-z", may_fail=True).split("\0"):
        facts, _, name = line.partition("\t")
        if facts.startswith(_SUBMODULE) and os.path.lexists(checkout / name / ".git"):
            yield checkout / name
            yield from _submodules(checkout / name)


def _is_dependency(path: Path, repository: Path, *, is_ignored: bool) -> bool:
    if path.is_dir() and (path.name == _NODE_MODULES or is_environment(path)):
        return True
    names = path.relative_to(repository).parts
    is_installed = path.is_dir() and not _FOLDERS.isdisjoint(names)
    return is_ignored and (is_installed or bool(_FILES.fullmatch(path.name)))


def _installed_in(folder: Path, depth: int) -> Iterator[Path]:
    """Return the environments and the `node_modules` in a folder, or the folder itself, not looked for in each other
    nor behind links."""
    if folder.name == _NODE_MODULES or is_environment(folder):
        yield folder
    elif depth and folder.is_dir() and not folder.is_symlink():
        try:
            names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
        except OSError:
            return
        for name in names:
            yield from _installed_in(folder / name, depth - 1)


def _packages(folder: Path) -> Iterator[Path]:
    """Return the packages in a `node_modules`, also those of a scope."""
    if folder.name == _NODE_MODULES and folder.is_dir() and not folder.is_symlink():
        for entry in folder.iterdir():
            yield from entry.iterdir() if entry.name.startswith("@") and not entry.is_symlink() else (entry,)


def interpreters_of(environment: Path) -> Iterator[Path]:
    """Return the folders with the interpreter of an environment: where its link leads, and where a copied one came
    from."""
    yield (environment / "bin/python").resolve().parent
    if home := _HOME.search(_read(environment / "pyvenv.cfg")):
        yield Path(home["home"].strip()).resolve()


def mentions(environment: Path, checkout: Path) -> bool:
    """Return whether something of the checkout is installed editable in the environment."""
    pattern = _pattern_of(checkout)
    files = (file for name in _EDITABLE for file in environment.glob(f"lib/*/site-packages/{name}"))
    return any(pattern.search(_read_small(file)) for file in files)


def move_environment(environment: Path, copy: Path, *, checkout: Path, to: Path) -> None:
    """Let the copy of an environment of a checkout stand where it now is, and lead to the copy `to` of the checkout."""
    places = {checkout: to, environment: copy, environment.resolve(): copy}
    activated = _ACTIVATED.search(_read(copy / "bin/activate"))
    if (
        activated
        and (named := Path(activated["place"].rstrip().removesuffix(activated["quote"]))).resolve()
        == environment.resolve()
    ):
        # As the person wrote it, perhaps with links in it.
        places[named] = copy
        inside = environment.relative_to(checkout).parts if environment.is_relative_to(checkout) else ()
        if inside and named.parts[-len(inside) :] == inside:
            places.setdefault(Path(*named.parts[: -len(inside)]), to)
    _rewrite((file for pattern in _PLACES for file in copy.glob(pattern)), places)


def _rewrite(files: Iterable[Path], places: Mapping[Path, Path]) -> None:
    """Put the new places where the old ones stand."""
    pattern = _pattern_of(*places)
    new = {os.fsencode(old): os.fsencode(place) for old, place in places.items()}
    for file in files:
        text = _read_small(file)
        words, line_break, rest = text, b"", b""
        if b"\0" in text:
            # What follows the first line of a script may be an archive. Other programs are never changed.
            words, line_break, rest = text.partition(b"\n") if text.startswith(b"#!") else (b"", b"", text)
        if (moved := pattern.sub(lambda match: new[match[0]], words) + line_break + rest) != text:
            _replace(file, moved)


def _pattern_of(*places: Path) -> re.Pattern[bytes]:
    """Matches a place and what is below it, but not what begins or ends with the same letters."""
    longest_first = sorted(map(os.fsencode, places), key=len, reverse=True)
    return re.compile(rb"(?<![\w.-])(?:" + b"|".join(map(re.escape, longest_first)) + rb")(?![^/\s'\":;,)\]])")


def keep_harmless_settings(file: Path) -> None:
    """Leave of Bundler's settings the lines that cannot hold a login."""
    lines = _read_small(file).splitlines(keepends=True)
    _replace(file, b"".join(line for line in lines if line.rstrip() == b"---" or _OF_BUNDLER.match(line)))


def _read(file: Path) -> str:
    return os.fsdecode(_read_small(file))


def _read_small(file: Path) -> bytes:
    """Return the content of a regular file of a sane size, else nothing."""
    try:
        is_small = not file.is_symlink() and file.is_file() and file.stat().st_size <= _LARGEST
        return file.read_bytes() if is_small else b""
    except OSError:
        return b""


def _replace(file: Path, content: bytes) -> None:
    """Write a new file in its place, since the old one may be closed to writing."""
    descriptor, name = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(descriptor, "wb") as new:
        new.write(content)
    Path(name).chmod(file.stat().st_mode & 0o7777)
    Path(name).replace(file)
