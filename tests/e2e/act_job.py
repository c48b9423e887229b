"""Jobs of a workflow, run by act in a real Docker engine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.script import RUNTIME_TOKEN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RUNNER_IMAGE = "python:3.13-slim-trixie"
#: How the step of the action is called.
ACTION = "org/stepflow-action@"
ACT = Path(sys.executable).with_name("act")

#: Stand-ins for actions of GitHub's that need its services.
STAND_INS = Path(__file__).parent / "stand_ins"

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
    step: str = ACTION,
    options: Sequence[str] = (),
) -> Job:
    """Run the checkout's only workflow, or what `options` choose. Secrets are not masked: one which leaks is seen. What
    uploads an artifact finds its file only where `options` let the action and the steps beside it share /tmp.

    `environment` is what the workflow's own `env` would add; `step` begins what the action's step is called.
    """
    around = (word for name, value in (environment or {}).items() for word in ("--env", f"{name}={value}"))
    workflows = "".join(path.read_text() for path in (checkout / ".github" / "workflows").glob("*.yml"))
    options = (*around, *stand_ins(workflows, "upload-artifact"), *options)
    lines, stderr = _run_act(checkout, options, event_name, event, release, secrets, scratch)
    return _read_job(lines, stderr, step)


def run_jobs(
    checkout: Path,
    *,
    event_name: str,
    event: dict[str, Any],
    release: Path,
    secrets: dict[str, str],
    scratch: Path,
    urls: dict[str, str],
) -> dict[str, Job]:
    """Run the checkout's only workflow, of which several jobs use the action, and give these by their names.

    act has no artifacts without a network, nor a folder that the container of an action and the steps beside it share
    as a runner's temporary folder is shared. So the jobs get one folder of this machine as /tmp, and the two actions
    of GitHub's are replaced by stand-ins (tests/e2e/stand_ins) that copy into it and out of it: what the real ones do
    with the service behind them is not tested here, nor are `max-parallel` and concurrency groups, which act does not
    keep. `urls` are GitHub's addresses, as a GHES runner would set them.
    """
    temporary = scratch.with_name(f"{scratch.name}-temp")
    temporary.mkdir(mode=0o777)
    reusable = (release / ".github" / "workflows" / "many-issues.yml").read_text()
    options = (
        f"--container-options=--volume={temporary}:/tmp",
        *stand_ins(reusable, "upload-artifact", "download-artifact"),
        *(f"--env={name}={url}" for name, url in urls.items()),
    )
    lines, stderr = _run_act(checkout, options, event_name, event, release, secrets, scratch)
    by_name: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        by_name.setdefault(line.get("job", "").rpartition("/")[2].strip(), []).append(line)
    return {name: _read_job(own, stderr, ACTION) for name, own in by_name.items() if _steps_of(own, ACTION)}


def stand_ins(workflow: str, *names: str) -> list[str]:
    """Options that let a stand-in be used for each of these actions of GitHub's, as the workflow pins them."""
    pins = re.findall(rf"uses: (actions/(?:{'|'.join(names)}))(?:/\w+)?(@\w+)", workflow)
    return [f"--local-repository={name}{pin}={STAND_INS / name}" for name, pin in dict.fromkeys(pins)]


def _run_act(
    checkout: Path,
    options: tuple[str, ...],
    event_name: str,
    event: dict[str, Any],
    release: Path,
    secrets: dict[str, str],
    scratch: Path,
) -> tuple[list[dict[str, Any]], str]:
    scratch.mkdir()
    (scratch / "event.json").write_text(json.dumps(event))
    engine = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    command = [
        *(str(ACT), event_name, "--json", "--rm", "--no-cache-server", "--insecure-secrets", "--pull=false"),
        *("--eventpath", str(scratch / "event.json"), "--actor", event["sender"]["login"]),
        *("--workflows", str(_rename_workflows(checkout, scratch / "workflows"))),
        *("--platform", f"ubuntu-latest={RUNNER_IMAGE}", "--action-cache-path", str(scratch / "cache")),
        *("--local-repository", f"org/stepflow-action@v1={release}"),
        # As on a hosted runner, the engine's socket is mounted into the action; the tools must not reach it.
        *("--container-daemon-socket", engine),
        *("--env", f"ACTIONS_RUNTIME_TOKEN={RUNTIME_TOKEN}"),
        *(f"--secret={name}" for name in secrets),
        *options,
    ]
    # A home of its own: neither a person's .actrc nor what an earlier run left there counts.
    around = {**os.environ, **secrets, "HOME": str(scratch)}
    done = subprocess.run(
        command, cwd=checkout, env=around, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], done.stderr


def _rename_workflows(checkout: Path, folder: Path) -> Path:
    """Copies of the workflows with names of their own: act names containers and volumes after a workflow's name, and
    several may run at once."""
    folder.mkdir()
    for path in (checkout / ".github" / "workflows").glob("*.yml"):
        unnamed = re.sub(r"(?m)^name:.*\n", "", path.read_text())
        (folder / path.name).write_text(f"name: {path.stem} {uuid.uuid4().hex[:12]}\n{unnamed}")
    return folder


def _steps_of(lines: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [line for line in lines if line.get("step", "").startswith(name)]


def _read_job(lines: list[dict[str, Any]], stderr: str, name: str) -> Job:
    step = _steps_of(lines, name)
    everything = "\n".join([*(line["msg"].rstrip() for line in lines), stderr])
    assert any("stepResult" in line for line in step), f"the action did not run:\n{everything}"
    commands = [line for line in step if "command" in line]
    return Job(
        exit_code=_exit_code(step),
        outputs={line["name"]: line["arg"] for line in commands if line["command"] == "set-output"},
        summary="".join(line["content"] for line in commands if line["command"] == "summary"),
        log="".join(line["msg"] for line in step if line.get("raw_output")),
        annotations=tuple(
            (line["command"], line["arg"]) for line in commands if line["command"] in {"notice", "warning", "error"}
        ),
        everything=everything,
    )


def _exit_code(step: list[dict[str, Any]]) -> int:
    messages = [line["msg"] for line in step if line["msg"].startswith(_EXIT_MESSAGE)]
    return int(messages[-1].removeprefix(_EXIT_MESSAGE)) if messages else 0
