"""A checked-out repository with an agent, and a runner's environment around it, for tests of whole runs."""

from __future__ import annotations

import atexit
import io
import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepflow.action.main import act
from stepflow.ports import Clock

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What a runner says of GitHub's server, by what the settings of a run are called.
ADDRESSES = {"github-api-url": "GITHUB_API_URL", "github-server-url": "GITHUB_SERVER_URL"}

DEMO = Path(__file__).parents[1] / "stepflow" / "cli" / "demo"

ISSUE = {
    "number": 7,
    "title": "1h30m is not understood",
    "body": "`python3 timesheet.py 25m 1h30m` ends in a traceback.",
    "user": {"login": "ann", "type": "User"},
    "html_url": "https://github.example/o/r/issues/7",
    "labels": [{"name": "agent:fixer"}],
    "author_association": "NONE",
}


def git(*words: str, cwd: Path) -> str:
    """Run git as somebody; its output."""
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, *words], cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout


def facts_of(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything below a folder, git's own too: mode, owner, when it was changed in any way, and what it holds."""
    return {str(path.relative_to(root)): _facts(path) for path in (root, *root.rglob("*"))}


def _facts(path: Path) -> tuple[object, ...]:
    info = path.lstat()
    held = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return (info.st_mode, info.st_uid, info.st_gid, info.st_mtime_ns, info.st_ctime_ns, held)


def make_checkout(root: Path) -> Path:
    """The demo's repository under its real names, committed."""
    return shutil.copytree(_demo(), root, dirs_exist_ok=True)


@cache
def _demo() -> Path:
    parent = Path(tempfile.mkdtemp(prefix="stepflow-test-demo-"))
    atexit.register(shutil.rmtree, parent)
    root, source = parent / "checkout", DEMO / "repository"
    for file in (path for path in source.rglob("*") if path.is_file()):
        target = root / str(file.relative_to(source)).removesuffix(".txt")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    git("init", "-q", cwd=root)
    git("add", "-A", cwd=root)
    git("commit", "-qm", "Begin", cwd=root)
    return root


def labeled(label: str = "agent:fixer", **issue: Any) -> dict[str, Any]:
    """The event of a label that a maintainer put on the issue."""
    return {
        "action": "labeled",
        "label": {"name": label},
        "issue": {**ISSUE, **issue},
        "sender": {"login": "bob", "type": "User"},
        "repository": {"full_name": "o/r", "default_branch": "main"},
    }


@dataclass(kw_only=True)
class Invocation:
    """One call of the action, with everything a job sees of it."""

    exit_code: int
    log: str
    outputs: dict[str, str]
    summary: str
    environ: dict[str, str]

    @property
    def annotations(self) -> list[str]:
        """The workflow commands that annotate."""
        return [line for line in self.log.splitlines() if re.match(r"::(error|warning|notice)", line)]

    @property
    def visible_log(self) -> str:
        """The log as a person sees it: the runner takes the masking commands for itself."""
        return "\n".join(line for line in self.log.splitlines() if not line.startswith("::add-mask::"))

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.outputs["run-folder"])

    @property
    def report(self) -> dict[str, Any]:
        """The run's report."""
        return json.loads((self.folder / "report.json").read_text())

    @property
    def files(self) -> dict[str, bytes]:
        """Everything in the run folder, by path."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()
        }


@dataclass(kw_only=True)
class Runner:
    """A runner's files and variables around a checkout."""

    checkout: Path
    folder: Path
    #: The value of an input that is a map may be one.
    inputs: dict[str, Any] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)
    clock: Clock | None = None

    def run(self, event: dict[str, Any], *, name: str = "issues", **inputs: Any) -> Invocation:
        """Call the action on an event; an input `a_b` is the input `a-b`, and a map adds to the one that is given."""
        environ = self.prepare(event, name=name, **inputs)
        stdout = io.StringIO()
        code = act(environ, stdout, clock=self.clock)
        return self.collect(environ, code, stdout.getvalue())

    def prepare(self, event: dict[str, Any], *, name: str = "issues", **inputs: Any) -> dict[str, str]:
        """The environment of a call, with its event file."""
        number = len(list(self.folder.glob("event-*.json")))
        path = self.folder / f"event-{number}.json"
        path.write_text(json.dumps(event))
        output, summary = self.folder / f"output-{number}", self.folder / f"summary-{number}"
        given = dict(self.inputs)
        for key, value in inputs.items():
            before = given.get(key.replace("_", "-"))
            given[key.replace("_", "-")] = {**before, **value} if isinstance(before, dict) and value else value
        return {
            "GITHUB_EVENT_NAME": name,
            "GITHUB_EVENT_PATH": str(path),
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_WORKSPACE": str(self.checkout),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(summary),
            "GITHUB_RUN_ID": "1001",
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_ACTOR": "bob",
            "RUNNER_TEMP": str(self.folder / "temp"),
            **self.environ,
            **as_environment(given),
        }

    def collect(self, environ: dict[str, str], exit_code: int, log: str) -> Invocation:
        """What a job sees of a call that ended."""
        summary = Path(environ["GITHUB_STEP_SUMMARY"])
        return Invocation(
            exit_code=exit_code,
            log=log,
            outputs=read_outputs(Path(environ["GITHUB_OUTPUT"])),
            summary=summary.read_text() if summary.exists() else "",
            environ=environ,
        )


def as_environment(inputs: Mapping[str, Any]) -> dict[str, str]:
    """The variables by which a runner gives the inputs, and says where GitHub is."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in inputs.items()}
    return {ADDRESSES.get(name, f"INPUT_{name.upper()}"): text for name, text in texts.items()}


def read_outputs(path: Path) -> dict[str, str]:
    """The outputs of a GITHUB_OUTPUT file, as the runner reads them."""
    outputs: dict[str, str] = {}
    lines = iter(path.read_text().splitlines() if path.exists() else [])
    for line in lines:
        name, _, delimiter = line.partition("<<")
        value: list[str] = []
        for inner in lines:
            if inner == delimiter:
                break
            value.append(inner)
        outputs[name] = "\n".join(value)
    return outputs
