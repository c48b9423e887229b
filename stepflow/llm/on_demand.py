"""Loads the packages of a library name by name: of the SDK's three thousand modules a run needs a thousand.

Takes: the name of a package that is not loaded yet. Gives: nothing; what is imported from it later is loaded then.
May touch: how this process finds that package and what is below it, and nothing else.

The `__init__` of nearly all packages of the SDK only lists names of their modules, and Python loads a module with all
that its package lists. Here the list is read instead, and a name is loaded when somebody asks for it. A package is run
as it is written once somebody asks for what it does not list; one below the given package that does more than to name
things is run at once.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from dataclasses import dataclass
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    #: Names of a package, with the module below it that holds each, and what it is called there.
    Names = Mapping[str, tuple[str, str]]


def load_on_demand(package: str) -> None:
    """From now on. A package that is loaded already stays as it is."""
    if package not in sys.modules:
        sys.meta_path.insert(0, _Finder(package))


@dataclass(frozen=True)
class _Finder(MetaPathFinder):
    """Finds packages that list names. All other modules are left to Python."""

    package: str

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.package and not fullname.startswith(f"{self.package}."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.submodule_search_locations is None or not isinstance(spec.loader, InspectLoader):
            return None
        source = spec.loader.get_source(fullname)
        statements = ast.parse(source).body if source else []
        names = {name: where for one in statements for name, where in _listed(one)}
        if not names or not (fullname == self.package or all(_only_names(one) for one in statements)):
            return None
        spec.loader = _Lister(names, spec.loader)
        return spec


@dataclass(frozen=True)
class _Lister(Loader):
    names: Names
    whole: InspectLoader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Package(spec.name, self.names, self.whole)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: that is the point of it."""


class _Package(ModuleType):
    """A package whose names are there when they are asked for."""

    def __init__(self, name: str, names: Names, whole: InspectLoader) -> None:
        super().__init__(name)
        self._names = names
        self._whole: InspectLoader | None = whole

    def __getattr__(self, name: str) -> object:
        if name in self._names:
            value = self._find(*self._names[name])
        elif name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        else:
            return self._unlisted(name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *self._names})

    def _find(self, module: str, name: str) -> object:
        if not module:
            return importlib.import_module(f"{self.__name__}.{name}")
        return getattr(importlib.import_module(f"{self.__name__}.{module}"), name)

    def _unlisted(self, name: str) -> object:
        """A module below, or what only the whole package has."""
        if importlib.util.find_spec(f"{self.__name__}.{name}"):
            return importlib.import_module(f"{self.__name__}.{name}")
        if self._whole is not None:
            loader, self._whole = self._whole, None
            loader.exec_module(self)
            if name in vars(self):
                return vars(self)[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


def _listed(statement: ast.stmt) -> list[tuple[str, tuple[str, str]]]:
    if not isinstance(statement, ast.ImportFrom) or statement.level != 1:
        return []
    module = statement.module or ""
    return [(each.asname or each.name, (module, each.name)) for each in statement.names if each.name != "*"]


def _only_names(statement: ast.stmt) -> bool:
    """Nothing is lost when it runs late or never: an import, an alias, a docstring."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign)
