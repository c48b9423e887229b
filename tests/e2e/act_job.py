"""One job of a workflow, run by act in a real Docker engine.

Takes: a checkout with a workflow, an event, secrets. Gives: what the job's people and later steps would see.
May touch: the Docker engine, the folder it is given.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.script import RUNTIME_TOKEN

if TYPE_CHECKING:
    from collections.abc import Mapping

RUNNER_IMAGE = "python:3.13-slim-trixie"
ACT = Path(sys.executable).with_name("act")

# act says it in this form and in no other; the job's own exit code is 1 for every failure.
_EXIT_MESSAGE = "exit with `FAILURE`: "


@dataclass(frozen=True, kw_only=True)
class Job:
    """A finished job. `exit_code` is the action's own, `log` what it printed, commands and masked lines left out."""

    exit_code: int
    outputs: dict[str, str]
    summary: str
    log: str
    annotations: tuple[tuple[str, str], ...]
    everything: str
    """All that act wrote, for the message of a failed assertion."""


def run_job(
    checkout: Path,
    *,
    event_name: str,
    event: dict[str, Any],
    release: Path,
    secrets: dict[str, str],
    scratch: Path,
    environment: Mapping[str, str] | None = None,
    step: str = "org/stepflow-action@",
) -> Job:
    """Run the checkout's only workflow. Secrets are not masked, so that one which leaks is seen.

    `environment` is what the workflow's own `env` would add; `step` begins what the action's step is called.
    """
    scratch.mkdir()
    (scratch / "event.json").write_text(json.dumps(event))
    engine = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    command = [
        *(str(ACT), event_name, "--json", "--rm", "--no-cache-server", "--insecure-secrets", "--pull=false"),
        *("--eventpath", str(scratch / "event.json"), "--actor", event["sender"]["login"]),
        *("--platform", f"ubuntu-latest={RUNNER_IMAGE}", "--action-cache-path", str(scratch / "cache")),
        *("--local-repository", f"org/stepflow-action@v1={release}"),
        # As on a hosted runner, the engine's socket is mounted into the action; the tools must not reach it.
        *("--container-daemon-socket", engine),
        *("--env", f"ACTIONS_RUNTIME_TOKEN={RUNTIME_TOKEN}"),
        *(word for name, value in (environment or {}).items() for word in ("--env", f"{name}={value}")),
        *(f"--secret={name}" for name in secrets),
    ]
    # A home of its own: neither a person's .actrc nor what an earlier run left there counts.
    around = {**os.environ, **secrets, "HOME": str(scratch)}
    done = subprocess.run(
        command, cwd=checkout, env=around, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return _read_job(done.stdout, done.stderr, step)


def _read_job(stdout: str, stderr: str, name: str) -> Job:
    lines = [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
    step = [line for line in lines if line.get("step", "").startswith(name)]
    assert any("stepResult" in line for line in step), f"the action did not run:\n{stdout}\n{stderr}"
    commands = [line for line in step if "command" in line]
    return Job(
        exit_code=_exit_code(step),
        outputs={line["name"]: line["arg"] for line in commands if line["command"] == "set-output"},
        summary="".join(line["content"] for line in commands if line["command"] == "summary"),
        log="".join(line["msg"] for line in step if line.get("raw_output")),
        annotations=tuple(
            (line["command"], line["arg"]) for line in commands if line["command"] in {"notice", "warning", "error"}
        ),
        everything="\n".join([*(line["msg"].rstrip() for line in lines), stderr]),
    )


def _exit_code(step: list[dict[str, Any]]) -> int:
    messages = [line["msg"] for line in step if line["msg"].startswith(_EXIT_MESSAGE)]
    return int(messages[-1].removeprefix(_EXIT_MESSAGE)) if messages else 0
