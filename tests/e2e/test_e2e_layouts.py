"""What `stepflow init` writes for repositories of the usual layouts, in the image: the written `setup` installs the
project, and the written checks pass."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import yaml

from stepflow.cli import main
from stepflow.cli.layouts.find import find_checks
from tests.e2e.hosted_runner import RUNNER, HostedRunner
from tests.e2e.layouts import LAYOUTS, SampleProject
from tests.e2e.repository import git, labeled
from tests.e2e.script import EVENT_CANARY

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.hosted_runner import Ended

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
EVENT = labeled("agent:fixer", secret=EVENT_CANARY)
#: Where the machine's own authority stands before the registries, its names come along, as docs/how-to tell a user.
AUTHORITY = {
    name: os.environ[name]
    for name in ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    if name in os.environ
}
#: Containers at a time: a run waits for its registry more than it computes.
AT_A_TIME = 3


def init(layout: SampleProject, root: Path) -> dict[str, str]:
    """Write an agent and its workflow with all the checks that are found, as somebody with every program would, and
    return the inputs that the workflow gives the action."""
    found = [each.command for each in find_checks(root, ())]
    assert found == [*layout.checks], layout.name
    checks = [word for command in (*found, *layout.given) for word in ("--check", command)]
    assert main(["init", "fixer", "--repo", str(root), *checks]) == 0
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "Add an agent")
    workflow = yaml.safe_load((root / ".github/workflows/stepflow.yml").read_text("utf-8"))
    (inputs,) = [step["with"] for step in workflow["jobs"]["stepflow"]["steps"] if step.get("id") == "stepflow"]
    return {name: inputs[name] for name in ("apt-packages", "setup") if name in inputs}


def preflight(layout: SampleProject, root: Path, written: dict[str, str], image: str) -> Ended:
    """Let the action try the checks on the repository as it is."""
    packages = f"{written.get('apt-packages', '')} {layout.registry}".strip()
    inputs = {
        **written,
        **({"apt-packages": packages} if packages else {}),
        **({"pass-env": ",".join(AUTHORITY)} if AUTHORITY else {}),
        **{"mode": "preflight", "agent": "fixer", "boundary": "dry-run"},
        **{"scenario": ".agent/fixer/scenarios/straight.yaml", "base-checks": "require"},
    }
    runner = HostedRunner.prepare(root.parent / "runner", image=image, checkout=root, event=EVENT, owner=RUNNER)
    try:
        with runner.started(inputs, event_name="workflow_dispatch", environment=AUTHORITY) as process:
            return runner.finish(process, timeout=600)
    finally:
        runner.give_to((os.getuid(), os.getgid()))


@pytest.fixture(scope="module")
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, image: str) -> dict[str, Ended]:
    """Each selected repository in a container of its own, some at a time, and what came of it."""
    selected = [item.callspec.params["layout"] for item in request.session.items if item.module is request.module]
    written = []
    for layout in selected:
        root = tmp_path_factory.mktemp(layout.name) / "repository"
        root.mkdir()
        layout.write(root)
        written.append((layout, root, init(layout, root)))
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        results = pool.map(lambda made: preflight(*made, image), written)
        return dict(zip((layout.name for layout in selected), results, strict=True))


@pytest.mark.sample(2)  # of Python and Node; a compiler takes minutes to install
@pytest.mark.parametrize("layout", [each for each in LAYOUTS if not each.unknown], ids=lambda each: each.name)
def test_the_written_setup_installs_the_project_and_its_checks_pass(
    layout: SampleProject, ended: dict[str, Ended]
) -> None:
    log = ended[layout.name].log
    assert ended[layout.name].exit_code == 0, log
    checks = [line for line in log.splitlines() if " check before the run: " in line]
    assert len(checks) == 1 + len(layout.checks) + len(layout.given), log
    assert all(line.startswith("✓ ok ") and line.endswith(" passes") for line in checks), log
