"""What the toolbox tests share: calls with few words, git, folders, and a look at processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

import pytest

from stepflow.domain.checkout import CommandRequest
from stepflow.domain.conversation import ToolCall, ToolUse
from stepflow.domain.words import Isolation
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.child.enter_sandbox import SandboxFacts
from stepflow.sandbox.isolation import closed_folder

AS_ROOT = os.getuid() == 0
root_only = pytest.mark.skipif(not AS_ROOT, reason="only a root process can give the tools a user of their own")


class Box:
    """A toolbox with short calls for tests."""

    def __init__(self, toolbox: Toolbox, checkout: Path) -> None:
        self.toolbox = toolbox
        self.checkout = checkout

    def tool(self, name: str, **inputs: object) -> ToolCall:
        return self.toolbox.run_tool(ToolUse(tool_use_id="toolu_1", name=name, input=inputs))

    def bash(self, command: str, **inputs: object) -> ToolCall:
        return self.tool("bash", command=command, **inputs)

    def sh(self, command: str, timeout: float = 20.0):
        return self.toolbox.run_command(CommandRequest(argv=("sh", "-c", command), timeout=timeout))

    @property
    def launcher(self) -> int:
        """The launcher's process id, as its own shell tells it."""
        return int(self.bash("echo $PPID").output)


def stays_root(checkout: Path, **options: object) -> dict[str, object]:
    """Options with which the tools of a root parent stay root, since only root may enter the folder above."""
    checkout.parent.chmod(0o700)
    return {"isolation": Isolation.BEST_EFFORT, **options}


def granted(**differing: object) -> SandboxFacts:
    """What a program reports to which the kernel granted every layer, but for what differs."""
    yes = ("ended_before_parent", "undumpable", "subreaper", "dies_with_parent", "capabilities_dropped", "no_new_privs")
    problems = ("landlock_problem", "seccomp_problem", "network_problem")
    facts = {"platform": "darwin", "uid": 501, "gid": 20, "landlock_abi": 7}
    return SandboxFacts(**{**facts, **dict.fromkeys(yes, True), **dict.fromkeys(problems, ""), **differing})


@contextlib.contextmanager
def reachable_folder():
    """A folder that every user can reach: pytest's own are closed to all but their owner."""
    folder = Path(tempfile.mkdtemp(prefix="stepflow-test-")).resolve()
    folder.chmod(0o755)
    yield folder
    # An owner who is not root cannot empty a folder that a test closed.
    subprocess.run(["chmod", "-R", "u+rwX", "--", str(folder)], check=True)
    subprocess.run(["rm", "-rf", "--", str(folder)], check=True)


def git(folder: Path, *arguments: str) -> str:
    """Run git as the test's own user, apart from this machine's configuration."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", f"safe.directory={folder}")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, env=env, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def gone_within(seconds: float, *pids: int) -> bool:
    """True when none of the processes is alive any more before the time is over."""
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def readable_interpreter() -> str | None:
    """A Python that every user can run and that takes the packages of this one: pydantic's are built for a version."""
    for path in (sys.executable, "/usr/bin/python3"):
        if Path(path).exists() and not closed_folder(Path(path), -1) and not closed_folder(Path(path).parent, -1):
            version = subprocess.run([path, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True)
            if version.stdout.split() == [str(part).encode() for part in sys.version_info[:2]]:
                return path
    return None


def copy_packages(folder: Path) -> Path:
    """What a toolbox needs of Python's packages, in a folder that is open where this checkout may not be."""
    for name in ("stepflow", "pydantic", "pydantic_core", "annotated_types", "typing_inspection", "yaml"):
        source = Path(import_module(name).__file__ or "").parent
        shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(import_module("typing_extensions").__file__ or "", folder)
    return folder


def run_as_other_user(code: str, *places: Path, packages: Path) -> subprocess.CompletedProcess[str]:
    """Run a program of Python as a user who is neither root nor us, and to whom the places are given."""
    python = readable_interpreter()
    if not python:
        pytest.skip("no Python that other users can run")
    for root in places:
        for path in (root, *root.rglob("*")):
            os.chown(path, 12345, 12345, follow_symlinks=False)
    return subprocess.run(
        [python, "-c", code, *map(str, places)],
        user=12345,
        group=12345,
        extra_groups=[],
        env={"PYTHONPATH": str(packages), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
