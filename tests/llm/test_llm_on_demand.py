"""Packages that are loaded name by name.

Takes: a small package of each kind, the SDK. Gives: nothing. May touch: temporary folders, Python processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = {
    "__init__.py": "from ._tools import hammer, saw\nfrom . import box\nfrom .extra import *\nSIZE = 3\nprint('run')\n",
    "_tools.py": "import shelf.trace\nhammer, saw = 'a hammer', 'a saw'\n",
    "trace.py": "",
    "extra.py": "__all__ = ['drill']\ndrill = 'a drill'\n",
    "left.py": "word = 'left'\n",
    "box/__init__.py": "'''A box.'''\nfrom .nails import Nail as Nail, screw\n__all__ = ['Nail']\n",
    "box/nails.py": "class Nail: pass\nscrew = 'a screw'\n",
    "box/lid/__init__.py": "from typing import Any\nfrom .hinge import hinge\nHINGE: Any = hinge\n",
    "box/lid/hinge.py": "hinge = 'a hinge'\n",
    "busy/__init__.py": "from .work import done\nprint('busy')\n",
    "busy/work.py": "done = True\n",
}
#: Everything that can be reached by name, and what it is.
REACHABLE = """
import importlib, json, sys
for name in sys.argv[2:]:
    importlib.import_module(name)
if sys.argv[1] == "on demand":
    assert sum(name.startswith("anthropic") for name in sys.modules) < 1_000
def told(value):
    return value.__qualname__ if isinstance(value, type) else type(value).__name__
packages = [sys.modules[name] for name in sys.argv[2:]]
names = {package.__name__: package.__all__ if hasattr(package, "__all__") else dir(package) for package in packages}
print(json.dumps({
    package: {name: told(getattr(sys.modules[package], name)) for name in sorted(names[package]) if name[0] != "_"}
    for package in names
}))
"""


def run(folder: Path, program: str, *words: str) -> str:
    """What a fresh Python says."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    for name, text in PACKAGE.items():
        place = tmp_path / "shelf" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return tmp_path


def loaded(folder: Path, *statements: str) -> str:
    """The modules of the shelf that are loaded after these statements, and what the statements print before."""
    program = "\n".join(
        [
            "import sys",
            "from stepflow.llm.on_demand import load_on_demand",
            "load_on_demand('shelf')",
            *statements,
            "print(*sorted(name.removeprefix('shelf') for name in sys.modules if name.startswith('shelf')))",
        ]
    )
    return run(folder, program)


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (["import shelf"], ""),
        (["from shelf import saw", "print(saw)"], "a saw\n ._tools .trace"),
        (["from shelf.box import Nail", "print(Nail.__module__)"], "shelf.box.nails\n .box .box.nails"),
        (["import shelf", "print(shelf.box.screw)"], "a screw\n .box .box.nails"),
        (["from shelf import left", "print(left.word)"], "left\n .left"),
        (["from shelf.box import lid"], ".box .box.lid"),
        (["from shelf.box.lid import HINGE", "print(HINGE)"], "a hinge\n .box .box.lid .box.lid.hinge"),
        (["from shelf.box import *", "print(Nail.__name__, 'screw' in dir())"], "Nail False\n .box .box.nails"),
    ],
    ids=[
        "nothing",
        "a name",
        "a name of a package below",
        "a package below",
        "a module below",
        "a package of aliases",
        "an alias",
        "all",
    ],
)
def test_only_what_is_asked_for_is_loaded(shelf: Path, statements: list[str], expected: str) -> None:
    assert loaded(shelf, *statements) == expected.strip()


def test_what_the_package_does_not_list_makes_it_run_as_it_is_written(shelf: Path) -> None:
    said = loaded(shelf, "import shelf", "print(shelf.SIZE, shelf.drill, shelf.hammer)")
    assert said == "run\n3 a drill a hammer\n ._tools .box .extra .trace"


def test_a_package_below_that_does_more_than_list_is_run_at_once(shelf: Path) -> None:
    assert loaded(shelf, "import shelf.busy").splitlines()[0] == "busy"


def test_a_name_that_is_not_there_is_told_as_python_tells_it(shelf: Path) -> None:
    refusal = "try: import shelf; shelf.box.rope\nexcept AttributeError as error: print(error)"
    assert loaded(shelf, refusal).splitlines()[0] == "module 'shelf.box' has no attribute 'rope'"
    refusal = "try: from shelf import rope\nexcept ImportError as error: print(error.name, error.msg)"
    assert "\nshelf cannot import name 'rope' from 'shelf'" in loaded(shelf, refusal)


def test_a_package_that_is_loaded_already_stays_as_it_is(shelf: Path) -> None:
    program = "import shelf, sys\nfrom stepflow.llm.on_demand import load_on_demand\nload_on_demand('shelf')\n"
    assert run(shelf, program + "print(type(shelf).__name__, len(sys.meta_path), shelf.SIZE)").endswith(" 3")


@pytest.mark.whole
def test_the_sdk_has_the_same_names_either_way(tmp_path: Path) -> None:
    packages = [
        "anthropic",
        "anthropic.types",
        "anthropic.types.beta",
        "anthropic.resources",
        "anthropic.lib.streaming",
    ]
    ahead = "from stepflow.llm.on_demand import load_on_demand\nload_on_demand('anthropic')\n"
    usual = json.loads(run(tmp_path, REACHABLE, "as ever", *packages))
    on_demand = json.loads(run(tmp_path, ahead + REACHABLE, "on demand", *packages))
    for package in packages:
        assert len(usual[package]) > 10
        differs = {name: told for name, told in usual[package].items() if on_demand[package].get(name) != told}
        # Modules below are there once somebody has loaded them.
        assert {name for name, told in differs.items() if told != "module"} == set(), package


def test_a_request_needs_less_than_half_of_the_sdk(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom stepflow.run.ahead import load_ahead\nload_ahead().join()\n"
        "from anthropic import Anthropic\nAnthropic(api_key='k').messages\n"
        "print(sum(name.startswith('anthropic') for name in sys.modules), 'stepflow.llm.wire' in sys.modules)"
    )
    count, is_there = run(tmp_path, program).split()
    assert int(count) < 1_100
    assert is_there == "True"
