"""GitHub cancels the job that waits in a concurrency group when another one enters it, so a workflow lets in only what
starts an agent, and all that concerns one pull request enters one group."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.docs.page import DOCS, README, ROOT, page_blocks

RUNNER_ID = 4711
FILES = (ROOT / "stepflow/cli/templates/stepflow.yml", *sorted((ROOT / "tests/e2e").glob("*.yml")))
OWN = tuple(sorted((ROOT / ".github/workflows").glob("*.yml")))
WORKFLOWS = {
    **{str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in (*FILES, *OWN)},
    **{
        f"{page.name}: {block.name}": block.text
        for page in (README, *sorted(DOCS.rglob("*.md")))
        for block in page_blocks(page)
        if block.language == "yaml" and block.text.startswith("name: ") and "\njobs:\n" in block.text
    },
}
#: What happens on issue 7 and on pull request 8, whose branch is the work on that issue.
LABELED = ("issues", {"label": {"name": "Agent:fix"}, "issue": {"number": 7}})
COMMAND = ("issue_comment", {"comment": {"body": "/stepflow run fix"}, "issue": {"number": 7}})
THANKS = ("issue_comment", {"comment": {"body": "thanks for /stepflow"}, "issue": {"number": 7}})
MENTION = ("issue_comment", {"comment": {"body": "Hello @our-bot"}, "issue": {"number": 7}})
ON_PULL_REQUEST = {"number": 8, "pull_request": {"url": "x"}}
THANKS_THERE = ("issue_comment", {"comment": {"body": "thanks"}, "issue": ON_PULL_REQUEST})
MENTION_THERE = ("issue_comment", {**MENTION[1], "issue": ON_PULL_REQUEST})
COMMAND_THERE = ("issue_comment", {"comment": {"body": "/stepflow run"}, "issue": ON_PULL_REQUEST})
REVIEW = (
    "pull_request_review",
    {"review": {"state": "changes_requested"}, "pull_request": {"number": 8, "head": {"ref": "stepflow/fix/issue-7"}}},
)
FAILED = (
    "workflow_run",
    {
        "workflow_run": {
            "conclusion": "failure",
            "head_branch": "stepflow/fix/issue-7",
            "pull_requests": [{"number": 8}],
        }
    },
)


def triggers(workflow: dict[Any, Any]) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true.
    return workflow.get("on", workflow.get(True)) or {}


def evaluate(expression: str, event_name: str, event: dict[str, Any]) -> Any:
    """An expression of GitHub's, as far as the workflows use it: text is compared without case, and what is not there
    is empty."""
    context = {"github": {"event_name": event_name, "event": event, "run_id": RUNNER_ID}, "inputs": {}}

    def value(match: re.Match[str]) -> str:
        found: Any = context
        for key in re.findall(r"\w+", match[0]):
            if isinstance(found, list):
                found = found[int(key)] if int(key) < len(found) else None
            else:
                found = (found or {}).get(key)
        return repr(found.casefold() if isinstance(found, str) else found)

    parts = re.split(r"('[^']*')", expression)
    words = ((r"\|\|", " or "), (r"&&", " and "), (r"!(?!=)", " not "))
    for before, after in words:
        parts[::2] = [re.sub(before, after, part) for part in parts[::2]]
    parts[::2] = [re.sub(r"\b(?:github|inputs)\b(?:\.\w+|\[\d+\])+", value, part) for part in parts[::2]]
    parts[1::2] = [part.casefold() for part in parts[1::2]]
    functions = {
        "startsWith": lambda text, begin: (text or "").startswith(begin),
        "contains": lambda text, part: part in (text or ""),
    }
    return eval(" ".join(parts), functions)


def enters(job: dict[str, Any], happened: tuple[str, dict[str, Any]]) -> str | None:
    """The group that a job enters at an event; None where it is skipped."""
    if not evaluate(str(job.get("if", "True")), *happened):
        return None
    if called := re.match(r"org/stepflow-action/(.+)@", job.get("uses", "")):
        jobs = yaml.safe_load((ROOT / called[1]).read_text(encoding="utf-8"))["jobs"].values()
        # What follows the agent's job signs what it did.
        (job,) = (job for job in jobs if "needs" not in job)
    group = job["concurrency"]["group"]
    return re.sub(r"\$\{\{(.*?)\}\}", lambda match: str(evaluate(match[1].strip(), *happened)), group)


def jobs_that_listen(event_name: str) -> list[Any]:
    return [
        pytest.param(job, id=name)
        for name, text in WORKFLOWS.items()
        if event_name in triggers(yaml.safe_load(text))
        for job in yaml.safe_load(text)["jobs"].values()
    ]


@pytest.mark.parametrize("job", jobs_that_listen("issue_comment"))
def test_a_comment_that_is_no_command_enters_no_group_and_starts_no_runner(job: dict[str, Any]) -> None:
    assert enters(job, THANKS) is None
    assert enters(job, THANKS_THERE) is None
    assert enters(job, COMMAND_THERE) or enters(job, MENTION)
    assert enters(job, MENTION_THERE) is None


@pytest.mark.parametrize("name", [name for name, text in WORKFLOWS.items() if "issue_comment" in text])
def test_a_workflow_that_comments_start_has_no_group_as_a_whole(name: str) -> None:
    assert "concurrency" not in yaml.safe_load(WORKFLOWS[name])


@pytest.mark.parametrize("job", jobs_that_listen("pull_request_review"))
def test_all_that_happens_on_one_pull_request_waits_in_one_group(job: dict[str, Any]) -> None:
    groups = {enters(job, happened) for happened in (REVIEW, FAILED, COMMAND_THERE)}
    assert groups == {"stepflow-8"}
    assert enters(job, LABELED) == "stepflow-7"


def test_a_label_and_a_command_on_one_issue_wait_in_one_group() -> None:
    job = yaml.safe_load(FILES[0].read_text(encoding="utf-8"))["jobs"]["stepflow"]
    assert enters(job, LABELED) == enters(job, COMMAND) == "stepflow-7"
    assert enters(job, ("workflow_dispatch", {})) == f"stepflow-{RUNNER_ID}"
    assert enters(job, ("issues", {"label": {"name": "bug"}, "issue": {"number": 7}})) is None
