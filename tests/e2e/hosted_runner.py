"""The container as a hosted runner starts it: its mounts, its owner of the checkout, its files for outputs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml

from tests.checkout import as_environment
from tests.e2e.script import CHECKOUT_CREDENTIAL, RUNTIME_TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: The user of GitHub's own runners; the group of its files is one that may use the engine.
RUNNER_UID, DOCKER_GID = RUNNER = (1001, 118)
ACTION = Path(__file__).parents[2] / "action.yml"
_TEXT: dict[str, Any] = {"capture_output": True, "text": True, "check": False}


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a finished container leaves. `log` is its stdout and stderr."""

    exit_code: int
    log: str
    outputs: dict[str, str]
    summary: str


@dataclass(frozen=True, kw_only=True)
class HostedRunner:
    """A runner's folders under `root`, as `_work/_temp` and `_work/<repository>` are on a hosted machine."""

    root: Path
    image: str
    checkout_at_start: Mapping[str, object]
    name: str = field(default_factory=lambda: f"stepflow-e2e-{uuid.uuid4().hex[:12]}")

    @classmethod
    def prepare(
        cls,
        root: Path,
        *,
        image: str,
        checkout: Path,
        event: dict[str, Any],
        owner: tuple[int, int],
        planted: Mapping[str, str] | None = None,
    ) -> Self:
        """Lay the folders out and give them to their owner, a user and a group. Texts may be planted below them."""
        for folder in ("temp/_github_home", "temp/_github_workflow", "temp/_runner_file_commands"):
            (root / folder).mkdir(parents=True)
        (root / "temp/_github_workflow/event.json").write_text(json.dumps(event))
        for name in ("output", "summary", "env", "path", "state"):
            (root / f"temp/_runner_file_commands/{name}").touch()
        # As actions/checkout does: the last commit alone.
        clone = ["git", "clone", "--quiet", "--depth=1", f"file://{checkout}", str(root / "workspace")]
        subprocess.run(clone, check=True, capture_output=True)
        shutil.copy2(checkout / ".git/config", root / "workspace/.git/config")
        _persist_credential(root)
        for name, text in (planted or {}).items():
            (root / name).write_text(text)
        _give(root, owner, image=image)
        return cls(root=root, image=image, checkout_at_start=_look_at(root / "workspace"))

    def give_to(self, owner: tuple[int, int]) -> None:
        """Change who the folders belong to."""
        _give(self.root, owner, image=self.image)

    @contextmanager
    def started(
        self,
        inputs: dict[str, str],
        *,
        event_name: str,
        environment: Mapping[str, str] | None = None,
        volumes: Mapping[Path, str] | None = None,
        options: Sequence[str] = (),
    ) -> Iterator[subprocess.Popen[str]]:
        """The container in the foreground; it does not outlive the block. What the test adds comes last."""
        given = {**self._environment(inputs, event_name), "ACTIONS_RUNTIME_TOKEN": RUNTIME_TOKEN, **(environment or {})}
        command = ["docker", "run", "--rm", "--name", self.name, "--network", "host", "--workdir", "/github/workspace"]
        command += options
        command += [f"--volume={source}:{target}" for source, target in {**self.mounts(), **(volumes or {})}.items()]
        command += [option for name in given for option in ("--env", name)]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen([*command, self.image], env={**os.environ, **given}, text=True, **pipes) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    subprocess.run(["docker", "kill", self.name], check=False, capture_output=True)

    def changes(self) -> list[str]:
        """What of the checkout is not as it was, to the last byte: nothing of a run may be there."""
        before, after = self.checkout_at_start, _look_at(self.root / "workspace")
        return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))

    def read_in_workspace(self, name: str) -> str | None:
        """A file that tools have written in the workspace of the run that goes on; None as long as it is not there."""
        command = f"cat /tmp/stepflow-workspace-*/checkout/{name}"
        done = subprocess.run(
            ["docker", "exec", "--user=0", self.name, "sh", "-c", command], capture_output=True, text=True, check=False
        )
        return None if done.returncode else done.stdout

    def wait_in_workspace(self, name: str, process: subprocess.Popen[str], *, seconds: float = 200) -> None:
        """Wait for a file that tools write in the workspace; without it, the log says what was done instead."""
        until = time.monotonic() + seconds
        while self.read_in_workspace(name) is None:
            if process.poll() is not None or time.monotonic() > until:
                ended = self.look_inside()
                subprocess.run(["docker", "kill", self.name], check=False, capture_output=True)
                raise AssertionError(f"no {name} in the workspace:\n{process.communicate()[0]}\n{ended}")
            time.sleep(0.05)

    def look_inside(self) -> str:
        """What runs in the container, and where each process waits."""
        done = subprocess.run(["docker", "top", self.name, "-eo", "pid,ppid,user,stat,wchan:20,etime,args"], **_TEXT)
        return done.stdout + done.stderr

    def signal(self, name: str) -> None:
        """Send a signal to the container's first process, as a cancelled job does; it may have just ended."""
        command = ["docker", "kill", f"--signal={name}", self.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or re.search("is not running|No such container", done.stderr), done.stderr

    def finish(self, process: subprocess.Popen[str], *, timeout: float) -> Ended:
        """Wait for the end and read what later steps of the job would read."""
        try:
            log, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            subprocess.run(["docker", "kill", self.name], check=True, capture_output=True)
            raise AssertionError(f"it did not end within {timeout:g} s:\n{process.communicate()[0]}") from None
        # Shown with a test that fails.
        print(log)
        files = self.root / "temp/_runner_file_commands"
        outputs = _read_outputs((files / "output").read_text())
        return Ended(exit_code=process.returncode, log=log, outputs=outputs, summary=(files / "summary").read_text())

    def mounts(self) -> dict[Path, str]:
        """What the runner mounts into a container, by where it is on the host."""
        engine = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
        return {
            Path(engine): "/var/run/docker.sock",
            self.root / "temp": "/github/runner_temp",
            self.root / "temp/_github_home": "/github/home",
            self.root / "temp/_github_workflow": "/github/workflow",
            self.root / "temp/_runner_file_commands": "/github/file_commands",
            self.root / "workspace": "/github/workspace",
        }

    def _environment(self, inputs: dict[str, str], event_name: str) -> dict[str, str]:
        event = json.loads((self.root / "temp/_github_workflow/event.json").read_text())
        head = ["git", "-c", "safe.directory=*", "rev-parse", "HEAD"]
        sha = subprocess.run(head, cwd=self.root / "workspace", capture_output=True, text=True, check=True).stdout
        files = {name: f"/github/file_commands/{name.lower()}" for name in ("OUTPUT", "ENV", "PATH", "STATE")}
        return {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTOR": event["sender"]["login"],
            "GITHUB_EVENT_NAME": event_name,
            "GITHUB_EVENT_PATH": "/github/workflow/event.json",
            "GITHUB_REF": "refs/heads/main",
            "GITHUB_REPOSITORY": event["repository"]["full_name"],
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_RUN_ID": "4711",
            "GITHUB_SHA": sha.strip(),
            "GITHUB_STEP_SUMMARY": "/github/file_commands/summary",
            "GITHUB_WORKSPACE": "/github/workspace",
            "HOME": "/github/home",
            "RUNNER_OS": "Linux",
            "RUNNER_TEMP": "/github/runner_temp",
            **{f"GITHUB_{name}": path for name, path in files.items()},
            **as_environment(self._inputs(inputs)),
        }

    def _inputs(self, inputs: dict[str, str]) -> dict[str, str]:
        declared = yaml.safe_load(ACTION.read_text())["inputs"]
        defaults = {name: entry["default"] for name, entry in declared.items()}
        return {**defaults, "host": f"host={self.root / 'temp'}", **inputs}


def run_as_root(folder: Path, *command: str, image: str) -> str:
    """What a command says about a folder, which becomes its last word. Who tests and is not root asks the engine."""
    start = [*command, str(folder)]
    if os.geteuid() != 0:
        program, *words = command
        container = ["docker", "run", "--rm", "--network=none", f"--volume={folder}:/folder", f"--entrypoint={program}"]
        start = [*container, image, *words, "/folder"]
    return subprocess.run(start, check=True, capture_output=True, text=True).stdout


def _give(root: Path, owner: tuple[int, int], *, image: str) -> None:
    run_as_root(root, "chown", "--recursive", "--no-dereference", "{}:{}".format(*owner), image=image)


def _look_at(folder: Path) -> dict[str, object]:
    """Owner, mode, time of change and content of everything."""
    return {str(path.relative_to(folder)): _facts(path) for path in (folder, *folder.rglob("*"))}


def _facts(path: Path) -> tuple[object, ...]:
    info, held = path.lstat(), ""
    if path.is_symlink():
        held = str(path.readlink())
    elif path.is_file():
        held = hashlib.sha256(path.read_bytes()).hexdigest()
    return info.st_uid, info.st_gid, info.st_mode, info.st_mtime_ns, held


def _persist_credential(root: Path) -> None:
    """As actions/checkout does from v6 on: a file beside the checkout, which the checkout's configuration includes."""
    name = f"git-credentials-{uuid.uuid4()}.config"
    header = f"AUTHORIZATION: basic {CHECKOUT_CREDENTIAL}"
    (root / "temp" / name).write_text(f'[http "https://github.com/"]\n\textraheader = {header}\n')
    with (root / "workspace/.git/config").open("a") as config:
        config.write(f'[includeIf "gitdir:{root}/workspace/.git"]\n\tpath = {root}/temp/{name}\n')
        config.write(f'[includeIf "gitdir:/github/workspace/.git"]\n\tpath = /github/runner_temp/{name}\n')


def _read_outputs(text: str) -> dict[str, str]:
    """Both forms that the runner knows: `name=value`, and `name<<delimiter`, lines, `delimiter`."""
    outputs: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        name, several, delimiter = line.partition("<<")
        if several and "=" not in name:
            outputs[name] = "\n".join(takewhile(delimiter.__ne__, lines))
        else:
            name, _, value = line.partition("=")
            outputs[name] = value
    return outputs
