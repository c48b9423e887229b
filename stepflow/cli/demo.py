"""`stepflow demo`: the whole flow on a small repository, with a scripted model."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.cli.run import request_of, run_request
from stepflow.cli.terminal import make_console, show_texts
from stepflow.domain.checkout import CommandRequest
from stepflow.domain.words import Isolation, exit_code
from stepflow.errors import InputError
from stepflow.run.scenarios import load_scenario
from stepflow.run.start.inputs import read_inputs
from stepflow.run.start.trigger import Trigger
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.isolation import ToolboxOptions
from stepflow.sandbox.workspace import given_back

if TYPE_CHECKING:
    from rich.console import Console

#: Suffix of the demo's stored Python files, so that no tool mistakes the buggy program for part of stepflow.
STORED_SUFFIX = ".txt"

#: A second copy of the repository, for a run with a real model.
UNTOUCHED = "again"

#: The words of the log that a newcomer cannot know.
INTENTS = (
    "Each step's answer has an intent: next and handoff lead to another step; closing claims that the work is done and "
    "starts the checks."
)
FIRST_COMMIT = "git init -q -b main && git add -A && git commit -q -m 'Add the duration parser'"


def add_demo_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `demo`."""
    parser.add_argument("--keep", metavar="DIR", help="make the repository and the run folder here, and keep them")


def execute_demo(arguments: argparse.Namespace) -> int:
    """Make the repository, run its agent, and print how to run it on a real model."""
    folder = Path(arguments.keep).resolve() if arguments.keep else Path(tempfile.mkdtemp(prefix="stepflow-demo-"))
    # `mkdtemp` gives access only to the current user, but the tools' user must be able to enter this folder.
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    root = folder / "repository"
    with as_file(files("stepflow.cli") / "demo") as source:
        make_repository(source / "repository", root)
        make_repository(source / "repository", folder / UNTOUCHED)
        shutil.copy(source / "scenario.yaml", folder)
    # The scenario's issue, as the payload that `stepflow run --event` reads.
    if issue := load_scenario(folder / "scenario.yaml").issue:
        payload = {"issue": {"number": issue.number, "title": issue.title, "body": issue.body}}
        (folder / "issue.json").write_text(json.dumps(payload, indent=2) + "\n", encoding="utf-8")
    inputs = read_inputs(
        {
            "agent": "fixer",
            "scenario": str(folder / "scenario.yaml"),
            "boundary": "dry-run",
            "isolation": "best-effort",
            "run-folder": str(folder / "run"),
        }
    )
    console = make_console(sys.stdout)
    show_texts(console, (f"A repository with a bug, an agent and an issue: {root}", INTENTS, ""))
    request = request_of(inputs, root, trigger=Trigger(agent="fixer"))
    report = run_request(replace(request, in_place=True), console)
    show_next_command(console, folder)
    return exit_code(report.outcome)


def make_repository(source: Path, root: Path) -> None:
    """Copy the stored files under their real names and commit them with git in the toolbox."""
    if root.exists():
        raise InputError(f"{root} exists already.", hint="Name another folder with --keep.")
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        target = root / str(file.relative_to(source)).removesuffix(STORED_SUFFIX)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    with given_back(root), Toolbox.start(root, options=ToolboxOptions(isolation=Isolation.BEST_EFFORT)) as toolbox:
        result = toolbox.run_command(CommandRequest(argv=("sh", "-c", FIRST_COMMIT), timeout=60))
    if result.exit_code != 0:
        raise InputError(
            f"git could not make the demo's repository: {result.stderr or result.error}", hint="Is git installed?"
        )


def show_next_command(console: Console, folder: Path) -> None:
    """Print the command that runs the agent on a real model."""
    program = "stepflow" if shutil.which("stepflow") else str(Path(sys.prefix, "bin", "stepflow"))
    words = (program, "run", "fixer", "--repo", str(folder / UNTOUCHED), "--event", str(folder / "issue.json"))
    message = "The same agent and issue on the real API (set ANTHROPIC_API_KEY; nothing is written to GitHub):"
    show_texts(console, ("", message, "", f"  {shlex.join(words)} --boundary dry-run"))
