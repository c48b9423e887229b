"""Everything around the action: a runner with a checkout, and loopback servers for the model, GitHub and git."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.checkout import Invocation, Runner, git, labeled
from tests.servers.git_http import GitServer
from tests.servers.github_api import GitHubServer, State
from tests.servers.messages_api import Answer, Failure, MessagesApi, Reply, answers, calls

SOURCE = Path(__file__).parent / "action" / "checkout"
BRANCH = "stepflow/fixer/issue-7"
MODEL_KEY = "sk-ant-key-of-a-test-0123456789"
TOKEN = "ghs_tokenofatest0123456789"
READ_TOKEN = "github_pat_readonly0123456789"
ISSUE = {"number": 7, "title": "Greet the world", "body": "`greeting.txt` says only `hello`."}


@dataclass
class FastClock:
    """The machine's time, in which nobody really waits: what was slept is added to it."""

    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        return time.time() + sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@dataclass(kw_only=True)
class World:
    """A repository on both sides. `requests_before_turn` counts GitHub's requests until each turn of the model."""

    runner: Runner
    served: Path
    model: MessagesApi
    github: GitHubServer
    git_server: GitServer
    clock: FastClock
    requests_before_turn: list[int] = field(default_factory=list)
    script: Iterator[Reply] | Callable[[dict[str, Any]], Reply] = field(default_factory=lambda: iter(()))

    @property
    def checkout(self) -> Path:
        return self.runner.checkout

    def run(
        self,
        replies: Iterable[Reply] | Callable[[dict[str, Any]], Reply],
        event: dict[str, Any] | None = None,
        **inputs: Any,
    ) -> Invocation:
        """Call the action on the labeled event, or on another one; the model answers by script."""
        self.play(replies)
        return self.runner.run(event or label_event(), **inputs)

    def record(self) -> None:
        """From now on the job has debug logging, so each run leaves its answers as `recorded.yaml` in its folder."""
        self.runner.environ = {**self.runner.environ, "RUNNER_DEBUG": "1"}

    def play(self, replies: Iterable[Reply] | Callable[[dict[str, Any]], Reply]) -> None:
        """What the model says from now on."""
        self.script = replies if callable(replies) else iter(replies)

    def next_reply(self, body: dict[str, Any]) -> Reply:
        self.requests_before_turn.append(len(self.github.requests))
        if callable(self.script):
            return self.script(body)
        return next(self.script, Failure(status=400, message="the script has no more turns"))

    def rename(self, name: str = "o/new", *, taken: bool = False) -> None:
        """The repository gets another name or owner. Git finds it there, and the old name leads there; or it is `taken`
        by somebody else's new repository."""
        self.github.state.renamed_to, self.github.state.name_is_taken = name, taken
        now = self.git_server.root / f"{name}.git"
        now.parent.mkdir(exist_ok=True)
        now.symlink_to(self.served)
        if taken:
            self.git_server.fail(r"^/o/r\.git/", 404, times=99)
        else:
            address = f"{self.git_server.url}/{name}.git/info/refs"
            self.git_server.fail(r"^/o/r\.git/", 301, times=99, headers=(("Location", address),))

    def check_out_again(self) -> None:
        """Let the checkout be as a new job finds it: at the commit of the default branch, which the server has."""
        git("reset", "--quiet", "--hard", self.branches()["main"], cwd=self.checkout)

    def requests_made(self) -> int:
        """Requests to GitHub's API and to its git server."""
        return len(self.github.requests) + len(self.git_server.requests)

    def comments(self) -> list[str]:
        """The bodies of the issue's comments."""
        return [str(comment["body"]) for comment in self.github.state.comments]

    def pulls(self) -> list[dict[str, Any]]:
        """All pull requests."""
        return self.github.state.pulls

    def labels(self) -> set[str]:
        """The labels of the issue."""
        return set(self.github.state.issues[7]["labels"])

    def branches(self) -> dict[str, str]:
        """Branch → commit on the git server."""
        text = git("for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads", cwd=self.served)
        return dict(line.split(" ") for line in text.split("\n") if line)

    def edit(self, file: str, change: Callable[[Any], object]) -> None:
        """Change a JSON file of the agent, committed on both sides."""
        path = self.checkout / ".agent" / "fixer" / file
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document, indent=2))
        git("commit", "--quiet", "--all", "--message", "Change the agent", cwd=self.checkout)
        git("push", "--quiet", str(self.served), "main", cwd=self.checkout)

    def use_ci(self, workflow: str = "on: [pull_request, workflow_dispatch]\njobs: {}\n") -> None:
        """Let the repository have a workflow that each run starts on its branch, committed on both sides."""
        file = self.checkout / ".github" / "workflows" / "ci.yml"
        file.parent.mkdir(parents=True)
        file.write_text(workflow)
        git("add", "--force", str(file), cwd=self.checkout)
        git("commit", "--quiet", "--message", "Add a workflow", cwd=self.checkout)
        git("push", "--quiet", str(self.served), "main", cwd=self.checkout)
        self.runner.inputs["ci-workflow"] = "ci.yml"

    def wrote_nothing(self, *, but_comments: int = 0) -> bool:
        """True when GitHub is as it was, but for so many comments."""
        return (
            len(self.comments()) == but_comments
            and self.pulls() == []
            and self.labels() == {"agent:fixer", "bug"}
            and self.branches().keys() == {"main"}
            and self.github.state.issues[7]["state"] == "open"
        )

    def events(self, done: Invocation) -> list[dict[str, Any]]:
        """The journal of a call."""
        lines = (done.folder / "journal.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@contextmanager
def open_world(root: Path, *, git_port: int = 0) -> Iterator[World]:
    """The servers are up until the block ends; then every exchange must have been one that GitHub describes. The inputs
    about GitHub are the quick start's."""
    with ExitStack() as stack:
        clock, folder = FastClock(), root / "runner"
        folder.mkdir()
        worlds: list[World] = []
        model = stack.enter_context(MessagesApi(lambda body: worlds[0].next_reply(body), api_key=MODEL_KEY))
        git_server = stack.enter_context(GitServer(root / "served", TOKEN, port=git_port))
        served = git_server.create("o/r")
        state = State("o/r", git_dir=served)
        state.add_issue(**ISSUE, labels=["agent:fixer", "bug"])
        state.permissions["bob"] = "write"
        github = stack.enter_context(GitHubServer(state, TOKEN, web_url=git_server.url))
        inputs = {
            "anthropic-api-key": MODEL_KEY,
            "model": {"base-url": model.url},
            "github-token": TOKEN,
            "read-token": TOKEN,
            "on-failure": "comment",
            "github-api-url": github.plain_url,
            "github-server-url": git_server.url,
            "isolation": "best-effort",
        }
        runner = Runner(checkout=_checkout(root / "checkout", served), folder=folder, inputs=inputs, clock=clock)
        world = World(runner=runner, served=served, model=model, github=github, git_server=git_server, clock=clock)
        worlds.append(world)
        yield world


@contextmanager
def sockets_held() -> Iterator[None]:
    """Every run on this machine sees which sockets under /run are open to all: until the block ends, no test beside
    this one opens one, or demands that there is none."""
    with (Path(tempfile.gettempdir()) / "stepflow-test-sockets").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def crowd() -> float:
    """How many times longer a process may take because others use the cores too: it has only its part of them."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def label_event(**issue: Any) -> dict[str, Any]:
    """bob puts the label on ann's issue."""
    return labeled("agent:fixer", **{**ISSUE, "user": {"login": "ann", "type": "User"}, **issue})


def by_owner() -> dict[str, Any]:
    """bob, who owns the repository, labels an issue of his own: the event shows that he may write."""
    return label_event(user={"login": "bob", "type": "User"}, author_association="OWNER")


def losing_access(world: World, replies: Iterable[Reply]) -> Iterator[Reply]:
    """These replies; with the first, bob loses his write access."""
    for reply in replies:
        world.github.state.permissions["bob"] = "read"
        yield reply


def answer(step: str, intent: str, **more: object) -> Answer:
    """A step's structured answer."""
    return answers({"stepId": step, "next_action": {"action": intent, "reason": f"{step} is through"}, **more})


def understood() -> Answer:
    """The first step, done."""
    return answer("initial.issue", "next", understanding="the greeting leaves the world out")


def bash(command: str) -> Answer:
    """A turn that runs one command."""
    return calls(("bash", {"command": command}))


COMMIT = "git -c user.name=Model -c user.email=model@example.invalid commit --quiet --all --message 'Greet the world'"
CLOSING = {
    "comment": "The world is greeted now.",
    "pull_request": {"title": "Greet the world", "body": "The greeting left the world out."},
}


def solve() -> list[Reply]:
    """The shortest way to a pull request."""
    return [
        understood(),
        bash(f"echo 'hello, world' > greeting.txt && {COMMIT}"),
        answer("continuation.issue", "handoff", summary="the world is greeted"),
        answer("closure.issue", "closing", **CLOSING),
    ]


def _checkout(folder: Path, served: Path) -> Path:
    """A copy of one repository, pushed: what a push would write is copied too."""
    shutil.copytree(_repository(), folder)
    shutil.copytree(folder / ".git" / "objects", served / "objects", dirs_exist_ok=True)
    shutil.copy2(folder / ".git" / "refs" / "heads" / "main", served / "refs" / "heads" / "main")
    return folder


@cache
def _repository() -> Path:
    parent = Path(tempfile.mkdtemp(prefix="stepflow-test-repository-"))
    atexit.register(shutil.rmtree, parent)
    folder = shutil.copytree(SOURCE, parent / "checkout")
    git("init", "--quiet", cwd=folder)
    git("add", "--all", cwd=folder)
    git("commit", "--quiet", "--message", "Begin", cwd=folder)
    return folder


def drop_checks(registry: dict[str, Any]) -> None:
    """Leave the agent without a validator, and without what only validators need."""
    for part in ("validationSteps", "validators", "failurePatterns"):
        registry.get(part, {}).clear()
