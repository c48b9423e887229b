"""The repository that the end-to-end tests work on, and what happens in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.docs.page import around_action

HERE = Path(__file__).parent
NAME = "acme/widgets"
BRANCH = "stepflow/fixer/issue-7"
ISSUE = {
    "number": 7,
    "title": "parse_size ignores the unit",
    "body": "`parse_size('12k')` raises nothing and gives text.",
}


def git(folder: Path, *arguments: str) -> str:
    """What git prints, without the configuration of the machine."""
    alone = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=Alice", "-c", "user.email=alice@example.invalid", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *who, *arguments], cwd=folder, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"git {' '.join(arguments)}: {done.stderr}"
    return done.stdout.strip()


def make_checkout(folder: Path, *, urls: dict[str, str]) -> Path:
    """The widgets project with two agents, and the workflow of docs/use.md with inputs that lead to the servers."""
    shutil.copytree(HERE / "checkout", folder)
    workflow = folder / ".github" / "workflows" / "stepflow.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text(lead_to((HERE / "stepflow.yml").read_text(), urls))
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Begin")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "Go on")
    # act reads the repository's name from here; nothing is ever fetched from that address.
    git(folder, "remote", "add", "origin", f"https://github.com/{NAME}.git")
    return folder


def lead_to(workflow: str, inputs: dict[str, str]) -> str:
    """The workflow, in which inputs are the last lines of the action's step, with these inputs more."""
    before, step, after = around_action(workflow)
    return before + step + "".join(f"          {name}: {json.dumps(value)}\n" for name, value in inputs.items()) + after


def labeled(label: str, *, secret: str) -> dict[str, Any]:
    """The event of bob putting a label on alice's issue."""
    return {"action": "labeled", "label": {"name": label}, **_common(secret, labels=["bug", label])}


def commented(text: str, *, secret: str) -> dict[str, Any]:
    """The event of bob commenting on alice's issue."""
    comment = {"id": 900, "body": text, "user": _BOB, "author_association": "MEMBER"}
    return {"action": "created", "comment": comment, **_common(secret, labels=["bug"])}


def dispatched(inputs: dict[str, Any], *, secret: str) -> dict[str, Any]:
    """The event of bob starting the workflow by hand."""
    whole = _common(secret, labels=["bug"])
    return {"inputs": inputs, "ref": "refs/heads/main", **{key: whole[key] for key in whole if key != "issue"}}


def pull_request(*, secret: str) -> dict[str, Any]:
    """The event of bob opening a pull request."""
    whole = _common(secret, labels=[])
    pull = {"number": 3, "head": {"ref": "change", "sha": "0" * 40}, "base": {"ref": "main", "sha": "0" * 40}}
    return {"action": "opened", "pull_request": pull, **{key: whole[key] for key in whole if key != "issue"}}


def reviewed(number: int, branch: str, text: str, *, secret: str) -> dict[str, Any]:
    """The event of bob asking for changes of a pull request."""
    review = {"id": 800, "state": "changes_requested", "body": text, "user": _BOB, "author_association": "MEMBER"}
    whole = {**pull_request(secret=secret), "action": "submitted", "review": review}
    pull = whole["pull_request"]
    return {**whole, "pull_request": {**pull, "number": number, "head": {**pull["head"], "ref": branch}}}


def checks_failed(run: int, branch: str, commit: str, *, secret: str) -> dict[str, Any]:
    """The event of a workflow run of bob's having failed on a branch."""
    whole = _common(secret, labels=[])
    facts = {"id": run, "name": "ci", "conclusion": "failure", "head_branch": branch, "head_sha": commit}
    return {"action": "completed", "workflow_run": facts, **{key: whole[key] for key in whole if key != "issue"}}


def replace_workflow(checkout: Path, text: str) -> None:
    """Let the checkout have this workflow in the place of its own."""
    (checkout / ".github" / "workflows" / "stepflow.yml").write_text(text)


_ALICE = {"login": "alice", "id": 1001, "type": "User"}
_BOB = {"login": "bob", "id": 1002, "type": "User"}


def _common(secret: str, *, labels: list[str]) -> dict[str, Any]:
    return {
        "issue": {
            **ISSUE,
            "state": "open",
            "user": _ALICE,
            "author_association": "NONE",
            "labels": [{"name": name} for name in labels],
        },
        "sender": _BOB,
        "repository": {
            "id": 1,
            "name": "widgets",
            "full_name": NAME,
            "owner": {"login": "acme", "id": 1000, "type": "Organization"},
            "default_branch": "main",
            "private": False,
        },
        "planted": secret,
    }
