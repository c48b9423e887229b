"""What answers at once must not load what takes a second."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1] / "action" / "checkout"
HEAVY = ("anthropic", "github", "rich", "httpx2", "requests", "jinja2")
PROGRAM = """
import json, sys
from stepflow.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print(json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


@pytest.mark.whole
@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--help"], (*HEAVY, "pydantic", "yaml", "jsonschema", "genai_prices")),
        (["validate"], HEAVY),
        (["graph", "fixer"], HEAVY),
    ],
    ids=lambda each: " ".join(each),
)
def test_these_commands_load_neither_the_models_nor_githubs_library(words: list[str], heavy: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, *words], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stdout + done.stderr
    assert "stepflow" in modules
    assert [name for name in heavy if name in modules] == []


def test_the_action_loads_the_models_and_githubs_library_only_when_it_needs_them() -> None:
    program = "import stepflow.action.main, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert "stepflow" in done.stdout.split()
    assert [name for name in ("anthropic", "github", "requests", "opentelemetry") if name in done.stdout.split()] == []


def test_help_takes_little_more_than_python_itself() -> None:
    measured = (min(_used(*words) for _ in range(3)) for words in (("-m", "stepflow", "--help"), ("-c", "import re")))
    help_, python = measured
    assert help_ < 5 * python


def _used(*words: str) -> float:
    """Seconds of processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], cwd=CHECKOUT, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
