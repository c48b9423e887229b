"""What `stepflow init` writes for repositories of the usual layouts, in the image: the written `setup` installs the
project, the written checks refuse a change that breaks a test, and take it when the test is mended."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from stepflow.cli import main
from stepflow.sandbox.environment import SYSTEM_PATH
from tests.e2e.hosted_runner import RUNNER, HostedRunner
from tests.e2e.layouts.table import LAYOUTS
from tests.e2e.repository import git, labeled
from tests.e2e.script import EVENT_CANARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from tests.e2e.hosted_runner import Ended
    from tests.e2e.layouts.sample import SampleProject

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]
EVENT = labeled("agent:fixer", secret=EVENT_CANARY)
#: Where the machine's own authority stands before the registries, its names come along, as docs/how-to tell a user.
AUTHORITY = {
    name: os.environ[name]
    for name in ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    if name in os.environ
}
#: Containers at a time: a run waits for its registry more than it computes.
AT_A_TIME = 2
SCENARIO = ".agent/fixer/scenarios/red-and-green.yaml"
REASON = {"action": "next", "reason": "The fault is known."}


def init(layout: SampleProject, root: Path) -> dict[str, str]:
    """Write an agent and its workflow on a machine that has no program but the system's, and return the inputs that the
    workflow gives the action."""
    folder = root / layout.folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", ":".join(SYSTEM_PATH))
        assert main(["init", "fixer", "--repo", str(folder)]) == 0
    (folder / SCENARIO).write_text(yaml.safe_dump(break_and_mend(layout)), "utf-8")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "Add an agent")
    (path,) = (root / ".github/workflows").iterdir()
    workflow = yaml.safe_load(path.read_text("utf-8"))
    (inputs,) = [step["with"] for step in workflow["jobs"]["stepflow"]["steps"] if step.get("id") == "stepflow"]
    return {name: inputs[name] for name in ("apt-packages", "setup", "working-directory") if name in inputs}


def break_and_mend(layout: SampleProject) -> dict[str, Any]:
    """A model that breaks the tests with its first commit, and mends them when its closing is refused."""
    name, right, wrong = layout.fault
    file = f"{layout.folder}/{name}".lstrip("/")  # Whatever folder commands start in.
    closing = {
        "stepId": "closure.default",
        "next_action": {"action": "closing", "reason": "It is done."},
        **{"missing": "nothing", "comment": "Done.", "pull_request": {"title": "Change a size", "body": "As asked."}},
    }

    def change(old: str, new: str) -> list[dict[str, Any]]:
        edit = {"file_path": file, "old_string": old, "new_string": new}
        commit = {"command": "git commit --quiet --no-verify --all --message 'Change a size'"}
        handoff = {"action": "handoff", "reason": "It is committed."}
        done = {"stepId": "continuation.default", "next_action": handoff, "changes": file}
        return [
            {"tools": [{"read": {"file_path": file}}]},
            {"tools": [{"edit": edit}, {"bash": commit}]},
            {"output": done},
        ]

    known = {"stepId": "initial.default", "next_action": REASON, "cause": "A size.", "plan": "Change it."}
    turns = [{"output": known}, *change(right, wrong), {"output": closing}, *change(wrong, right), {"output": closing}]
    return {"turns": turns}


def run(layout: SampleProject, root: Path, written: dict[str, str], image: str) -> tuple[Ended, dict[str, list[bool]]]:
    """Let the action run the agent; return how it ended and what each check said, in order."""
    packages = f"{written.get('apt-packages', '')} {layout.registry}".strip()
    inputs = {
        **written,
        **({"apt-packages": packages} if packages else {}),
        **({"pass-env": ",".join(AUTHORITY)} if AUTHORITY else {}),
        **{"agent": "fixer", "boundary": "dry-run", "scenario": SCENARIO, "base-checks": "require"},
    }
    runner = HostedRunner.prepare(root.parent / "runner", image=image, checkout=root, event=EVENT, owner=RUNNER)
    try:
        with runner.started(inputs, event_name="issues", environment=AUTHORITY) as process:
            ended = runner.finish(process, timeout=1800)
    finally:
        runner.give_to((os.getuid(), os.getgid()))
    results: dict[str, list[bool]] = {}
    for journal in (runner.root / "temp").rglob("journal.jsonl"):
        for line in journal.read_text("utf-8").splitlines():
            event = json.loads(line)
            if event.get("event") == "validator_ran":
                results.setdefault(event["command"], []).append(event["passed"])
    return ended, results


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, image: str
) -> Iterator[dict[str, Future[tuple[Ended, dict[str, list[bool]]]]]]:
    """The run of each selected repository, in a container of its own, some at a time."""
    selected = [item.callspec.params["layout"] for item in request.session.items if item.module is request.module]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        started = {}
        for layout in selected:
            root = tmp_path_factory.mktemp(layout.name) / "repository"
            root.mkdir()
            layout.write(root)
            started[layout.name] = pool.submit(run, layout, root, init(layout, root), image)
        yield started


@pytest.mark.sample(2)  # of Python and Node; a compiler takes minutes to install
@pytest.mark.parametrize("layout", [each for each in LAYOUTS if not each.unknown], ids=lambda each: each.name)
def test_the_agent_that_init_writes_is_red_while_a_test_is_broken_and_green_when_it_is_mended(
    layout: SampleProject,
    runs: dict[str, Future[tuple[Ended, dict[str, list[bool]]]]],
    show: Callable[[str], None],
) -> None:
    job, results = runs[layout.name].result()
    refused = next((command for command in layout.checks if False in results.get(command, ())), "")
    red, green = ("yes" if word else "no" for word in (refused, refused and results[refused][-1]))
    show(f"{layout.name:24} red: {red:3}  green: {green:3}  {refused or layout.checks[0]}")
    assert (job.exit_code, job.outputs.get("outcome")) == (0, "completed"), job.log
    assert results.keys() - {"git status --porcelain"} == {*layout.checks}, job.log
    assert results.get(refused) == [False, True], job.log
