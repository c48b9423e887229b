"""A room that loads its names when they are asked for gives all of them; none of its modules stands in one's place."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOMS = ("stepflow.boundary", "stepflow.llm", "stepflow.report")


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_that_a_room_offers_is_there(room: str) -> None:
    offered = importlib.import_module(room)
    modules = {path.stem for path in Path(offered.__path__[0]).glob("*.py")}
    for name in offered.__all__:
        assert getattr(offered, name).__class__.__name__ != "module", name
        assert name == "advice" or name not in modules, f"once loaded, the module {name} stands in the name's place"


@pytest.mark.parametrize("room", ROOMS)
def test_a_name_that_a_room_does_not_have_is_told_as_python_tells_it(room: str) -> None:
    with pytest.raises(ImportError, match=r"cannot import name 'nothing' from"):
        exec(f"from {room} import nothing", {})


def test_a_name_loads_its_own_module_and_no_other() -> None:
    program = (
        "import sys; from stepflow.boundary import Refused; print(*sorted(n for n in sys.modules if 'boundary' in n))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["stepflow.boundary", "stepflow.boundary.writer"]
