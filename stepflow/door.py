"""The door of a room that holds more than one run needs: each name's module is loaded when the name is asked for.

Takes: a room's modules with their names. Gives: the room's `__getattr__`, which Python asks for what is not there yet.
May touch: nothing; it loads modules of the room.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def open_when_asked(room: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of the package `room`. `names`: module in the room → what it gives to others, between spaces.

    No name may be that of a module in the room: once loaded, the module would stand in its place.
    """
    module_of = {name: module for module, given in names.items() for name in given.split()}

    def find(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{room}.{module_of[name]}"), name)
        setattr(sys.modules[room], name, value)
        return value

    return find
