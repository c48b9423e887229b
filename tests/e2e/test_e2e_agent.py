"""The reusable workflow for one agent, called as docs/how-to/policy.md calls it, job after job on one issue.

act plays GitHub's part and gives the variable STEPFLOW_POLICY. It has no cache, artifacts or attestations here, and no
`gh` for the reaction: what stands in for the first three is in tests/e2e/stand_ins. It does not know the key
`cache-mode`, so that line is left out.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.e2e.act_job import stand_ins
from tests.e2e.repository import BRANCH, HERE, labeled
from tests.e2e.script import ALL_SECRETS, EVENT_CANARY, fix_shortly, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.e2e.act_job import Job
    from tests.e2e.world import World
    from tests.servers.messages_api import Reply

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_a_job_is_bound_by_the_policy_and_the_next_one_resumes_its_run(
    new_world: Callable[[], World], tmp_path: Path
) -> None:
    world = new_world()
    # The address of the model's server is the only thing that is not as the page shows it.
    caller = (HERE / "agent.yml").read_text()
    world.use_workflow(caller.replace("    with:\n", f'    with:\n      model: "base-url: {world.model.url}"\n'))
    temporary = tmp_path / "temp"
    temporary.mkdir(mode=0o777)
    temporary.chmod(0o777)
    world.release = shutil.copytree(world.release, tmp_path / "release")
    workflow = world.release / ".github/workflows/agent.yml"
    reusable = re.sub(r"(?m)^    cache-mode: .*\n", "", workflow.read_text())
    workflow.write_text(reusable)

    def run(replies: Iterable[Reply], policy: str) -> Job:
        options = (
            "--bind",
            f"--container-options=--volume={temporary}:/tmp",
            *stand_ins(reusable, "checkout", "cache", "upload-artifact", "download-artifact", "attest"),
            f"--var=STEPFLOW_POLICY={policy}",
        )
        return world.run(replies, labeled("agent:fixer", secret=EVENT_CANARY), options=options)

    first, *rest = fix_shortly()
    stopped = run([first, refuse("no credit")], "network: none")
    assert (stopped.exit_code, stopped.outputs["outcome"]) == (1, "model_failed"), stopped.everything
    assert "[Policy] network: none" in stopped.log
    asked = len(world.model_bodies())

    done = run(rest, "{network: none, limits: {usd: 2}}")
    assert (done.exit_code, done.outputs["outcome"], done.outputs["branch"]) == (0, "completed", BRANCH), (
        done.everything
    )
    assert "[Policy] network: none; limits.usd: $2.00" in done.log
    assert len(world.model_bodies()) == asked + len(rest)
    assert [pull["head"]["ref"] for pull in world.pulls()] == [BRANCH]
    assert (temporary / "artifacts" / "report.html" / "report.html").is_file()
    # The job beside it signs what the run says of the commit that it pushed.
    kept, attested = temporary / "artifacts" / f"stepflow-{done.outputs['commit']}", temporary / "attested"
    statement = json.loads((kept / "statement.json").read_text())
    assert statement["predicate"]["commit"]["gitCommit"] == done.outputs["commit"]
    assert statement["predicate"] == json.loads((attested / "predicate.json").read_text())
    journal = (attested / "journal.jsonl").read_bytes()
    assert statement["subject"][0]["digest"]["sha256"] == hashlib.sha256(journal).hexdigest()
    assert statement["predicateType"] == (attested / "type").read_text().strip()
    assert [secret for secret in ALL_SECRETS if secret.encode() in journal] == []
    assert world.github.violations == []
    assert [secret for secret in ALL_SECRETS if secret in done.log + done.summary] == []
