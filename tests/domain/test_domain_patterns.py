"""Patterns mean the same on every Python that we support."""

import importlib
import pkgutil
import re

import stepflow

#: `(…)*+` before Python 3.11.5: where the group can match in two ways, it matches what `(…)*` does not
#: (python/cpython#106052). `(?>(…)*)` says the same and is right everywhere.
_POSSESSIVE_GROUP = re.compile(r"(?<!\\)\)(?:[*+?]|\{[\d,]+\})\+")


def test_no_pattern_repeats_a_group_possessively() -> None:
    patterns: dict[str, str] = {}
    for module in pkgutil.walk_packages(stepflow.__path__, "stepflow."):
        if not module.name.endswith("__main__"):
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, str | re.Pattern):
                    patterns[f"{module.name}.{name}"] = str(value if isinstance(value, str) else value.pattern)
    assert "stepflow.domain.secrets.GAP" in patterns
    assert [name for name, text in patterns.items() if _POSSESSIVE_GROUP.search(text)] == []
