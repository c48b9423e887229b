"""Projects of no language's layout, whose tests start from a file of a task runner."""

from __future__ import annotations

import json

from tests.e2e.layouts.sample import SampleProject

SIZES = {
    "sizes.py": "def parse(text: str) -> int:\n    return int(text)\n",
    "checks.py": "from sizes import parse\n\nassert parse('12') == 12\n",
}
FAULT = ("sizes.py", "int(text)", "-int(text)")
RUN = "python3 checks.py"
MAKE = ("make test",)
RUNNERS = (
    SampleProject(name="gnu-makefile", files={**SIZES, "GNUmakefile": f"test:\n\t{RUN}\n"}, fault=FAULT, checks=MAKE),
    SampleProject(name="small-makefile", files={**SIZES, "makefile": f"test:\n\t{RUN}\n"}, fault=FAULT, checks=MAKE),
    SampleProject(
        name="make-two-targets",
        files={**SIZES, "Makefile": f"lint test:\n\t{RUN}\n"},
        fault=FAULT,
        checks=("make test", "make lint"),
    ),
    SampleProject(
        name="make-include",
        files={**SIZES, "Makefile": "include build/*.mk\n", "build/tests.mk": f"test: ; {RUN}\n", ".gitignore": ""},
        fault=FAULT,
        checks=MAKE,
    ),
    SampleProject(
        name="make-of-windows",
        files={**SIZES, "Makefile": f".PHONY: test\r\ntest:\r\n\t{RUN}\r\n".encode("utf-8-sig")},
        fault=FAULT,
        checks=MAKE,
    ),
    SampleProject(
        name="just",
        files={**SIZES, "Justfile": f"test *words:\n  {RUN} {{{{words}}}}\n"},
        fault=FAULT,
        checks=("just test",),
    ),
    SampleProject(
        name="task",
        files={**SIZES, "Taskfile.yml": f"version: '3'\ntasks:\n  test:\n    cmds:\n      - {RUN}\n"},
        fault=FAULT,
        checks=("task test",),
    ),
    SampleProject(
        name="script",
        files={**SIZES, "script/test": f"#!/bin/sh\nset -e\n{RUN}\n"},
        fault=FAULT,
        checks=("bash script/test",),
    ),
    SampleProject(
        name="make-npm",
        files={
            **SIZES,
            "Makefile": "test:\n\tnpm run checks\n",
            "package.json": json.dumps({"private": True, "scripts": {"checks": RUN, "test": "echo ok"}}),
        },
        fault=FAULT,
        checks=MAKE,
    ),
)
