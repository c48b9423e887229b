"""A developer's own environment in the repository, called by its path and not activated, works in every command that
copies the checkout."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stepflow.cli import main
from tests.checkout import git

#: Passes where the project is imported from the copy of the checkout, and its program starts.
CASE = """\
import subprocess
import sys
import unittest

import greeting


class Greeting(unittest.TestCase):
    def test_word(self):
        self.assertEqual(greeting.WORD, {word!r})
        self.assertEqual(greeting.__file__, __file__.replace("tests/test_greeting", "src/greeting"))

    def test_program(self):
        said = subprocess.run(["{environment}/bin/greets"], capture_output=True, check=True, text=True).stdout
        self.assertEqual(said, "{checkout}-of-others\\n{word}\\n")
"""
CHECK = "{}/bin/python -m unittest discover --start-directory tests"


def install(folder: Path, checkout: Path, *how: str) -> None:
    """An environment with the project, editable, and one beside it with a name that begins alike."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", *(how or ("--symlinks",)), str(folder)], check=True)
    (site_packages,) = folder.glob("lib/*/site-packages")
    (site_packages / "greeting.pth").write_text(f"{checkout}/src\n")
    (site_packages / "__editable___other_finder.py").write_text(f"PLACE = {str(checkout) + '-of-others'!r}\n")
    (site_packages / "greeting.pth").chmod(0o444)
    program = folder / "bin/greets"
    program.write_text(
        f"#!{folder}/bin/python\n"
        "import greeting, __editable___other_finder as other\nprint(other.PLACE, greeting.WORD, sep='\\n')\n"
    )
    program.chmod(0o755)


def virtual(checkout: Path) -> str:
    install(checkout / ".venv", checkout)
    return ".venv"


def of_copies(checkout: Path) -> str:
    install(checkout / "venv", checkout, "--copies")
    return "venv"


def of_tox(checkout: Path) -> str:
    install(checkout / ".tox/py3", checkout)
    return ".tox/py3"


def deep(checkout: Path) -> str:
    install(checkout / "tools/python/mine", checkout)
    return "tools/python/mine"


def linked_outside(checkout: Path) -> str:
    install(checkout.parent / "environments/greeting", checkout)
    (checkout / ".venv").symlink_to(checkout.parent / "environments/greeting")
    return ".venv"


def linked_inside(checkout: Path) -> str:
    install(checkout / "environments/greeting", checkout)
    (checkout / ".venv").symlink_to(checkout / "environments/greeting")
    return ".venv"


def not_ignored(checkout: Path) -> str:
    install(checkout / "unknown", checkout)
    (checkout / "unknown/.gitignore").unlink(missing_ok=True)
    return "unknown"


def by_another_path(checkout: Path) -> str:
    """The person goes to the repository by a link, which the environment writes down."""
    (checkout.parent / "mine").symlink_to(checkout)
    install(checkout.parent / "mine/.venv", checkout.parent / "mine")
    (finder,) = (checkout / ".venv").glob("lib/*/site-packages/__editable___other_finder.py")
    finder.write_text(f"PLACE = {str(checkout) + '-of-others'!r}\n")
    return ".venv"


def conda(checkout: Path) -> str:
    """A prefix, which only `conda-meta` marks. Its interpreter, here a script, knows its place by nothing else."""
    folder = checkout / "env"
    install(folder, checkout)
    (folder / "pyvenv.cfg").unlink()
    (folder / "bin/python").unlink()
    (site_packages,) = folder.glob("lib/*/site-packages")
    path = f"{site_packages}:$(cat {site_packages}/greeting.pth)"
    (folder / "bin/python").write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} "$@"\n')
    (folder / "bin/python").chmod(0o755)
    (folder / "conda-meta").mkdir()
    return "env"


KINDS = (virtual, of_copies, of_tox, deep, linked_outside, linked_inside, not_ignored, by_another_path, conda)
EVERY_KIND = [pytest.param(kind, marks=() if kind is virtual else pytest.mark.whole) for kind in KINDS]


def with_project(checkout: Path, kind=virtual) -> str:
    """The environment's path, in a checkout whose last commit changes a word of the project and its test."""
    for folder in ("src", "tests"):
        (checkout / folder).mkdir()
    (checkout / ".gitignore").write_text(".venv\n/venv/\n/env/\nenvironments/\n.tox/\n/tools/\n")
    environment = kind(checkout)
    for word in ("hello", "good day"):
        (checkout / "src/greeting.py").write_text(f"WORD = {word!r}\n")
        (checkout / "tests/test_greeting.py").write_text(
            CASE.format(word=word, environment=environment, checkout=checkout)
        )
        git("add", ".gitignore", "src", "tests", cwd=checkout)
        git("commit", "--quiet", "--message", f"Say {word}", cwd=checkout)
    return environment


def scripted(checkout: Path, command: str, then: str = ";") -> tuple[str, ...]:
    """Flags for a run whose agent runs this command before it commits."""
    scenario = checkout.parent / "scenario.yaml"
    text = scenario.read_text()
    old = "\"echo 'hello, world' >"
    assert old in text
    scenario.write_text(text.replace(old, json.dumps(f"({command}) 2>&1 {then} echo 'hello, world' >")[:-1]))
    return ("--scenario", str(scenario))


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_run_starts_it_by_its_path(kind, checkout: Path, capsys) -> None:
    environment = with_project(checkout, kind)
    before = {path: path.read_bytes() for path in (checkout / environment).rglob("*") if path.is_file()}
    folder = checkout.parent / "run"
    flags = scripted(checkout, f"{CHECK.format(environment)} && git status --porcelain")
    main(["run", "fixer", "--issue", "7", *flags, "--run-folder", str(folder)])
    events = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    (output,) = (event["output"] for event in events if event["event"] == "tool_call")
    assert output.rstrip().endswith("OK"), output
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.whole
@pytest.mark.parametrize("kind", KINDS)
def test_prove_starts_it_by_its_path(kind, checkout: Path, capsys) -> None:
    environment = with_project(checkout, kind)
    code = main(["prove", "HEAD^..HEAD", "--command", CHECK.format(environment), "--json"])
    proof = json.loads(capsys.readouterr().out)["proof"]
    assert (code, proof["verdict"]) == (0, "proven"), proof


@pytest.mark.whole
@pytest.mark.parametrize("kind", KINDS)
def test_preflight_starts_it_by_its_path(kind, checkout: Path, capsys) -> None:
    environment = with_project(checkout, kind)
    flags = scripted(checkout, "true")
    main(["preflight", "builtin/fix", "--all", "--checks", CHECK.format(environment), *flags])
    rows = [line for line in capsys.readouterr().out.splitlines() if "check before the run" in line]
    assert rows
    assert all(" ok " in row for row in rows), rows


@pytest.mark.whole
@pytest.mark.parametrize("kind", [virtual, linked_outside, not_ignored])
def test_a_rehearsal_starts_it_by_its_path(kind, checkout: Path, capsys) -> None:
    environment = with_project(checkout, kind)
    scripted(checkout, CHECK.format(environment), then="&&")
    scenarios = checkout / ".agent/fixer/scenarios"
    scenarios.mkdir()
    text = (checkout.parent / "scenario.yaml").read_text()
    # Without the commit, the run would not complete.
    (scenarios / "starts.yaml").write_text(f"params: {{ issue: 7 }}\n{text}")
    assert main(["rehearse", "fixer"]) == 0, capsys.readouterr().out
