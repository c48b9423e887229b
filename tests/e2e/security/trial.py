"""Runs the driver inside the image, between the folders that a runner mounts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.e2e.hosted_runner import DOCKER_GID, HostedRunner
from tests.e2e.script import CHECKOUT_CREDENTIAL, EVENT_CANARY
from tests.e2e.security.attacks import CLOSED_PARENT

HERE = Path(__file__).parent
_CANARIES = {
    "CANARY_ENVIRONMENT": "canary-environment-of-the-parent",
    "CANARY_EVENT": EVENT_CANARY,
    "CANARY_CREDENTIAL": CHECKOUT_CREDENTIAL,
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one attack came to; `said` is the end of what it printed."""

    succeeded: bool
    said: str


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One configuration: the layers' states as the toolbox tells them, and each attack's outcome."""

    layers: Mapping[str, str]
    warnings: tuple[str, ...]
    attacks: Mapping[str, Outcome]

    @property
    def came_through(self) -> set[str]:
        """The attacks that succeeded."""
        return {name for name, outcome in self.attacks.items() if outcome.succeeded}


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Which layers are off, the input `network`, and whether the parent closes itself as the action's does."""

    disabled: tuple[str, ...] = ()
    network: str = "none"
    closed_parent: bool = False

    @property
    def off(self) -> tuple[str, ...]:
        """All that is off, the parent's own closing with it."""
        return self.disabled if self.closed_parent else (*self.disabled, CLOSED_PARENT)


def run_driver(
    runner: HostedRunner, configurations: Mapping[str, Configuration], *, options: Sequence[str] = ()
) -> dict[str, Tried]:
    """Run every attack in every configuration; `options` are the engine's."""
    mounts = {str(source): target for source, target in runner.mounts().items()}
    mounts |= {str(HERE / "exploits"): "/opt/exploits:ro", str(HERE): "/driver:ro"}
    # The container's root is in the group of the engine's socket, so that it takes the layer `gid` to keep tools out.
    command = ["docker", "run", "--rm", "--name", runner.name, "--network=host", f"--group-add={DOCKER_GID}", *options]
    command += [f"--volume={source}:{target}" for source, target in mounts.items()]
    command += [f"--env={name}={value}" for name, value in _CANARIES.items()]
    command += ["--entrypoint=/opt/stepflow/bin/python", runner.image, "-I", "/driver/driver.py"]
    order = json.dumps({name: asdict(configuration) for name, configuration in configurations.items()})
    done = subprocess.run(
        [*command, order], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=800
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return {name: _tried(results) for name, results in json.loads(done.stdout.splitlines()[-1])["matrix"].items()}


def _tried(result: dict[str, Any]) -> Tried:
    outcomes = {
        name: Outcome(succeeded=outcome["succeeded"], said=outcome["said"])
        for name, outcome in result["attacks"].items()
    }
    return Tried(layers=result["layers"], warnings=tuple(result["warnings"]), attacks=outcomes)
