"""One repository, its GitHub and its model: everything around the action, on loopback."""

from __future__ import annotations

import json
import os
import shutil
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.e2e.act_job import Job, run_job, run_jobs
from tests.e2e.hosted_runner import ACTION, RUNNER, HostedRunner
from tests.e2e.repository import ISSUE, NAME, git, lead_to, make_checkout, replace_workflow
from tests.e2e.script import MODEL_KEY, WORKFLOW_TOKEN, refuse
from tests.servers.git_http import GitServer
from tests.servers.github_api import GitHubServer, State
from tests.servers.messages_api import MessagesApi, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import ExitStack


def open_world(root: Path, *, release: Path, image: str, stack: ExitStack) -> World:
    """Make the repository on both sides and start the servers; `stack` ends them."""
    server, checkout = root / "served" / f"{NAME}.git", root / "checkout"
    world = World(root=root, release=release, image=image, checkout=checkout, server=server)
    stack.callback(world.take_back)
    world.model = stack.enter_context(MessagesApi(world.next_reply, api_key=MODEL_KEY))
    world.git_server = stack.enter_context(GitServer(root / "served", WORKFLOW_TOKEN))
    state = State(NAME, git_dir=world.git_server.create(NAME))
    state.add_issue(**ISSUE, labels=["bug"])
    state.permissions["bob"] = "write"
    github = GitHubServer(state, WORKFLOW_TOKEN, web_url=world.git_server.url)
    world.github = stack.enter_context(github)
    make_checkout(checkout, urls=world.urls())
    git(checkout, "push", "--quiet", str(server), "main")
    return world


@dataclass(kw_only=True)
class World:
    """The checkout on the runner, `server` as the repository behind it, and three servers."""

    root: Path
    release: Path
    image: str
    checkout: Path
    server: Path
    model: MessagesApi = field(init=False)
    github: GitHubServer = field(init=False)
    git_server: GitServer = field(init=False)
    requests_before_each_turn: list[int] = field(default_factory=list)
    written_before_a_turn: list[str] = field(default_factory=list)
    _replies: Iterator[Reply] = field(default_factory=lambda: iter(()))
    _reply_to: Callable[[dict[str, Any]], Reply] | None = None
    _runs: int = 0
    _runners: list[HostedRunner] = field(default_factory=list)

    def run(
        self,
        replies: Iterable[Reply],
        event: dict[str, Any],
        *,
        event_name: str = "issues",
        environment: Mapping[str, str] | None = None,
        **act: Any,
    ) -> Job:
        """A job of the checkout's workflow, at first that of docs/use.md, under act."""
        self._begin(replies, event)
        return run_job(
            self.checkout,
            event_name=event_name,
            event=event,
            release=self.release,
            secrets={"ANTHROPIC_API_KEY": MODEL_KEY, "GITHUB_TOKEN": WORKFLOW_TOKEN},
            scratch=self.root / f"act-{self._runs}",
            environment={**self.addresses(), **(environment or {})},
            **act,
        )

    def use_workflow(self, text: str) -> None:
        """Let the repository have this workflow in the place of its own, and whatever else is new in the checkout."""
        replace_workflow(self.checkout, text)
        git(self.checkout, "add", "--all")
        git(self.checkout, "commit", "--quiet", "--message", "Change the workflow")
        git(self.checkout, "push", "--quiet", str(self.server), "main")

    def check_out(self, branch: str = "main") -> None:
        """Let the next job begin with what actions/checkout leaves, one commit of a branch in a new folder; what was
        asked and said until now no longer counts."""
        self.checkout = self.root / f"checkout-{self._runs}"
        clone = ("clone", "--quiet", "--depth=1", f"--branch={branch}", f"file://{self.server}", str(self.checkout))
        git(self.root, *clone)
        git(self.checkout, "remote", "set-url", "origin", f"https://github.com/{NAME}.git")
        for noted in (
            *(self.github.requests, self.git_server.requests, self.model.requests),
            *(self.requests_before_each_turn, self.written_before_a_turn),
        ):
            noted.clear()

    def use_project(self, project: Path) -> None:
        """Let the repository hold this project in the place of the widgets; of its workflows, `stepflow` leads here."""
        for left in git(self.checkout, "ls-files").splitlines():
            (self.checkout / left).unlink()
        shutil.copytree(project, self.checkout, dirs_exist_ok=True)
        workflows = self.checkout / ".github" / "workflows"
        for other in set(workflows.iterdir()) - {workflows / "stepflow.yml"}:
            other.unlink()
        self.use_workflow(lead_to((workflows / "stepflow.yml").read_text(), self.urls()))

    def run_many(self, scripts: Mapping[int, Iterable[Reply]], workflow: str, event: dict[str, Any]) -> dict[str, Job]:
        """The jobs of a workflow that calls the reusable one, under act. Each issue has a script of its own, because
        jobs come in any order; a conversation is known by the words "issue N" in the issue's text."""
        self._runs += 1
        waiting = {number: iter(replies) for number, replies in scripts.items()}

        def reply(body: dict[str, Any]) -> Reply:
            first_message = json.dumps(body["messages"][0])
            (number,) = (number for number in waiting if f"issue {number}" in first_message)
            return next(waiting[number], refuse("the script has no more turns"))

        self._reply_to = reply
        self.use_workflow(workflow)
        return run_jobs(
            self.checkout,
            event_name="workflow_dispatch",
            event=event,
            release=self.release,
            secrets={"ANTHROPIC_API_KEY": MODEL_KEY, "GITHUB_TOKEN": WORKFLOW_TOKEN},
            scratch=self.root / f"act-{self._runs}",
            urls=self.addresses(),
        )

    def hosted_runner(
        self,
        replies: Iterable[Reply],
        event: dict[str, Any],
        *,
        owner: tuple[int, int] = RUNNER,
        planted: Mapping[str, str] | None = None,
    ) -> HostedRunner:
        """A hosted runner with a checkout of its own, not started yet."""
        self._begin(replies, event)
        root = self.root / f"runner-{self._runs}"
        runner = HostedRunner.prepare(
            root, image=self.image, checkout=self.checkout, event=event, owner=owner, planted=planted
        )
        self._runners.append(runner)
        return runner

    def take_back(self) -> None:
        """Make the folders of hosted runners the tests' own again, who remove them later."""
        for runner in self._runners:
            runner.give_to((os.getuid(), os.getgid()))

    def inputs(self) -> dict[str, str]:
        """The inputs of the workflow of docs/use.md, and GitHub's addresses."""
        addresses = {"github-api-url": self.github.plain_url, "github-server-url": self.git_server.url}
        tokens = dict.fromkeys(("github-token", "read-token"), WORKFLOW_TOKEN)
        return {"anthropic-api-key": MODEL_KEY, **tokens, "on-failure": "comment", **self.urls(), **addresses}

    def urls(self) -> dict[str, str]:
        """The input that the tests add to the workflow."""
        return {"model": f"base-url: {self.model.url}"}

    def addresses(self) -> dict[str, str]:
        """GitHub's, as a runner on a GitHub Enterprise Server would set them."""
        return {"GITHUB_API_URL": self.github.plain_url, "GITHUB_SERVER_URL": self.git_server.url}

    def only_read_before_the_first_turn(self, *, turns: int) -> bool:
        """True when GitHub was read before the first turn of the model and then not asked until after the last."""
        asked = self.requests_before_each_turn
        return asked[0] > 0 and asked == [asked[0]] * turns and self.written_before_a_turn == []

    def next_reply(self, body: dict[str, Any]) -> Reply:
        """What the model says next; what GitHub was asked until then is counted."""
        self.requests_before_each_turn.append(len(self.github.requests))
        pushes = [
            f"{each.method} {each.path}" for each in self.git_server.requests if each.path.endswith("/git-receive-pack")
        ]
        self.written_before_a_turn += self.github.writes() + self.github.mutations() + pushes
        if self._reply_to:
            return self._reply_to(body)
        return next(self._replies, refuse("the script has no more turns"))

    def requests_made(self) -> int:
        """Requests to GitHub's API and to its git server."""
        return len(self.github.requests) + len(self.git_server.requests)

    def model_bodies(self) -> list[dict[str, Any]]:
        """All that the model was sent."""
        return self.model.bodies

    def prompts(self) -> list[str]:
        """The opening message of each conversation."""
        opened = [body["messages"][0]["content"] for body in self.model.bodies if len(body["messages"]) == 1]
        return [said if isinstance(said, str) else "\n".join(block["text"] for block in said) for said in opened]

    def tool_results(self) -> list[str]:
        """What the tools answered, in order."""
        last = [body["messages"][-1]["content"] for body in self.model.bodies]
        blocks = [block for said in last if not isinstance(said, str) for block in said]
        return [block["content"] for block in blocks if block["type"] == "tool_result"]

    def branches(self) -> list[str]:
        """The branches on the server."""
        return git(self.server, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()

    def issue(self) -> dict[str, Any]:
        """The issue as it is now."""
        return self._ask("issues/7")

    def labels(self) -> set[str]:
        """The names of the issue's labels."""
        return {label["name"] for label in self.issue()["labels"]}

    def comments(self) -> list[dict[str, Any]]:
        """The issue's comments."""
        return self._ask("issues/7/comments")

    def pulls(self) -> list[dict[str, Any]]:
        """All pull requests."""
        return self._ask("pulls?state=all")

    def declared_outputs(self) -> set[str]:
        """The names of the outputs in action.yml."""
        return set(yaml.safe_load(ACTION.read_text())["outputs"])

    def _begin(self, replies: Iterable[Reply], event: dict[str, Any]) -> None:
        self._replies, self._runs = iter(replies), self._runs + 1
        present = self.github.state.issues[ISSUE["number"]]["labels"]
        if "label" in event and event["label"]["name"] not in present:
            present.append(event["label"]["name"])

    def _ask(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {WORKFLOW_TOKEN}", "Accept": "application/vnd.github+json"}
        request = urllib.request.Request(f"{self.github.plain_url}/repos/{NAME}/{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)
