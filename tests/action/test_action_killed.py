"""A run that is killed at any moment goes on, all is as if nothing had happened, and the checkout is as it was."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepflow.engine.conversation import INTERRUPTED
from tests.action.killed import KILLED, Came, Nursery
from tests.checkout import Runner, facts_of, git, read_outputs
from tests.covering import FULL
from tests.sandbox.credentials_world import append, persist_as_v5, persist_as_v6
from tests.sandbox.toolbox_world import AS_ROOT, reachable_folder
from tests.servers.messages_api import Reply
from tests.world import CLOSING, SOURCE, World, answer, bash, label_event, open_world

pytestmark = pytest.mark.whole

#: Small enough for a slow machine, where each point takes some seconds.
CHUNKS = 12
#: Every so many kill points one more variant is tried: the folder comes to another machine, with a fresh clone.
ELSEWHERE = 5
#: One for each time that the validators look at the tree.
SNAPSHOTS_BY_THE_CLOCK = 2
WRITE = "echo 'hello, world' > greeting.txt"
DATE = "2001-01-01T00:00:00Z"
COMMIT = (
    f"GIT_AUTHOR_DATE={DATE} GIT_COMMITTER_DATE={DATE} "
    "git -c user.name=Model -c user.email=model@example.invalid commit --quiet --all --message 'Greet the world'"
)


def reply(body: dict[str, Any]) -> Reply:
    """What the model says, from the conversation alone; a call that was interrupted is sent again."""
    messages = body["messages"]
    turns = [message for message in messages if message["role"] == "assistant"]
    opening, last = json.dumps(messages[0]), json.dumps(messages[-1])
    if json.dumps(INTERRUPTED)[1:-1] in last:
        call = next(block for block in turns[-1]["content"] if block["type"] == "tool_use")
        return bash(call["input"]["command"])
    if "Find out what issue" in opening:
        return bash("cat greeting.txt") if not turns else answer("initial.issue", "next", understanding="no world")
    if "Do what issue" in opening or "are changed and not committed" in opening:
        retried = "are changed and not committed" in opening
        if not [turn for turn in turns if "tool_use" in json.dumps(turn)]:
            return bash(COMMIT if retried else WRITE)
        return answer("continuation.issue", "handoff", summary="committed" if retried else "written")
    more = {"closure_action": "label-and-close", "release": {"tag": "v9", "name": "Nine", "body": "It greets."}}
    return answer("closure.issue", "closing", **CLOSING, **more)


def everything(agent: dict[str, Any]) -> None:
    """Let the agent ask for every effect there is."""
    agent["runner"]["integrations"]["github"].update(
        allowedEffects=["comment", "labels", "close", "pull_request", "release"], closeBy="now"
    )


@dataclass(kw_only=True)
class Scene:
    """A world, and the run in it."""

    world: World
    nursery: Nursery
    folder: Path

    def run(self, *, die_after: int = 0) -> int:
        """One process of the run."""
        environ = self.world.runner.prepare(label_event(), run_folder=str(self.folder))
        self.outputs = Path(environ["GITHUB_OUTPUT"])
        return self.nursery.run(environ, self.folder.parent / "log", die_after=die_after).code

    def move(self) -> None:
        """To another machine: a fresh clone of the base commit, and the run folder from a cache."""
        checkout = self.world.checkout
        base = self.events()[0]["base_commit"]
        shutil.rmtree(checkout)
        git("clone", "--quiet", str(self.world.served), str(checkout), cwd=checkout.parent)
        git("checkout", "--quiet", "-B", "main", base, cwd=checkout)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "journal.jsonl").read_text().splitlines()]

    def state(self) -> dict[str, Any]:
        """All that people see on GitHub, and the pushed tree; ids of runs and commits differ."""
        world, state = self.world, self.world.github.state
        run_id = self.events()[0]["run_id"]

        def masked(value: object) -> Any:
            text = json.dumps(value, default=str, sort_keys=True, ensure_ascii=False).replace(run_id, "<run>")
            # A turn in which an interrupted call is sent again costs what it costs, and a body's mark is of its text.
            cost = r"(?:cost|today|spent)=[0-9.]+|(?:day|month)=[0-9-]+|[\d,]+ tokens · \$[\d.]+ · [\d.,]+ s\b"
            cost += r"|(?<=:)[0-9.]+:[0-9.]+:\d{4}-\d\d-\d\d"
            varies = rf"[0-9a-f]{{40}}|(?<=text=)[0-9a-f]{{16}}|127\.0\.0\.1:\d+|\d\d\d\d-\d\d-\d\dT[0-9:]+Z|{cost}"
            return json.loads(re.sub(varies, "<varies>", text))

        trees = {name: git("rev-parse", f"{name}^{{tree}}", cwd=world.served) for name in world.branches()}
        counts = {name: git("rev-list", "--count", name, cwd=world.served) for name in world.branches()}
        return {
            "trees": trees,
            "commits": counts,
            "comments": masked(world.comments()),
            "pulls": masked([{key: pull[key] for key in ("title", "body", "head", "base")} for pull in world.pulls()]),
            "labels": sorted(world.labels()),
            "issue": state.issues[7]["state"],
            "dispatched": masked(state.dispatched),
            "releases": masked([release["tag_name"] for release in state.releases]),
            "writes": self.writes(),
        }

    def log(self) -> str:
        """The job log of all processes."""
        return (self.folder.parent / "log").read_text()

    def writes(self) -> list[str]:
        """Every request that changed something on GitHub, in order."""
        changing = (request for request in self.world.github.requests if request.method != "GET")
        return [f"{one.method} {re.sub(r'[0-9]+', 'N', one.path)}" for one in changing if "graphql" not in one.path]


@contextmanager
def open_scene(folder: Path, nursery: Nursery) -> Iterator[Scene]:
    """A new world, in which nothing has happened."""
    folder.mkdir()
    with open_world(folder) as world:
        world.edit("agent.json", everything)
        world.use_ci()
        world.play(reply)
        yield Scene(world=world, nursery=nursery, folder=folder / "mine")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@dataclass(kw_only=True)
class Whole:
    """The run that nothing disturbed."""

    kinds: list[str]
    state: dict[str, Any]
    requests: int

    @property
    def points(self) -> list[int]:
        """The lines after which a process is killed: one of each kind, in turn its first and its last; or all."""
        numbers = range(1, len(self.kinds))
        of_kind = {kind: [n for n in numbers if self.kinds[n - 1] == kind] for kind in self.kinds[:-1]}
        chosen = {of_a_kind[-(place % 2)] for place, of_a_kind in enumerate(of_kind.values())}
        return [number for number in numbers if FULL or number in chosen]


@pytest.fixture(scope="module")
def whole(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    with open_scene(tmp_path_factory.mktemp("whole") / "w", nursery) as scene:
        assert scene.run() == 0
        return Whole(
            kinds=[event["event"] for event in scene.events()],
            state=scene.state(),
            requests=len(scene.world.model.bodies),
        )


def test_the_undisturbed_run_has_tools_validators_a_retry_and_every_effect(
    whole: Whole, show: Callable[[str], None]
) -> None:
    show(f"killed and resumed at {len(whole.points)} of {len(whole.kinds) - 1} kill points")
    assert len(whole.kinds) > 60
    assert whole.kinds.count("tool_call") == 3
    assert whole.kinds.count("validator_ran") == 3
    assert whole.kinds.count("effect_applied") == 8
    assert (whole.state["issue"], whole.state["labels"]) == ("closed", ["ready-for-review"])
    assert (len(whole.state["comments"]), len(whole.state["pulls"]), whole.state["releases"]) == (1, 1, ["v9"])


@pytest.mark.sample(3)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_killed_after_any_line_a_run_goes_on_as_if_nothing_had_happened(
    whole: Whole, nursery: Nursery, tmp_path: Path, chunk: int
) -> None:
    for point in whole.points[chunk::CHUNKS]:
        for elsewhere in (False, True) if point % ELSEWHERE == 0 else (False,):
            with open_scene(tmp_path / f"{point}-{elsewhere}", nursery) as scene:
                killed_and_resumed(scene, whole, point, elsewhere=elsewhere)


def killed_and_resumed(scene: Scene, whole: Whole, point: int, *, elsewhere: bool) -> None:
    case = f"killed after line {point}, {whole.kinds[point - 1]}{', and moved' if elsewhere else ''}"
    ended = scene.run(die_after=point)
    before = scene.events()
    if before[-1]["event"] == "run_finished":
        # `git status` writes its index anew when the clock leaves it in doubt, so this run may have a snapshot less.
        assert point >= len(whole.kinds) - 1 - SNAPSHOTS_BY_THE_CLOCK, case
        return
    assert (ended, len(before)) == (KILLED, point), case
    if elsewhere:
        scene.move()
    assert scene.run() == 0, f"{case}\n{scene.log()}"
    events = scene.events()
    assert events[:point] == before
    assert events[point]["event"] == "run_resumed", case
    assert events[-1]["outcome"] == "completed"
    assert scene.state() == whole.state, case
    # A call that was at work is answered that it was, and a model that sends it again is asked once more for that.
    interrupted = sum(event.get("output") == INTERRUPTED for event in events)
    assert interrupted == (whole.kinds[point - 1] in ("tool_started", "snapshot_taken") and is_at_work(before)), case
    assert len(scene.world.model.bodies) == whole.requests + interrupted, case
    assert read_outputs(scene.outputs)["outcome"] == "completed"


def is_at_work(events: list[dict[str, Any]]) -> bool:
    calls = [event["event"] for event in events if event["event"] in ("tool_started", "tool_call")]
    return calls[-1:] == ["tool_started"]


#: Moments of one run; all of them with STEPFLOW_KILLS=0.
MOMENTS = int(os.environ.get("STEPFLOW_KILLS", "3" if FULL else "1"))
OWNERS = ((0, 0), (1001, 118)) if AS_ROOT else ((os.getuid(), os.getgid()),)
#: The folders of a runner.
FOLDERS = ("home", "tmpdir", "runner/temp")
#: The lines of the journal after which the flow may make changes.
FLOW = frozenset({"iteration_started", "model_turn", "tool_started", "routed"})
EVIL = """
git config core.fsmonitor 'touch /tmp/evil; false'; mkdir .git/hooks
printf '#!/bin/sh\\ntouch /tmp/evil\\n' > .git/hooks/post-checkout
chmod 777 . own.txt .git/hooks/post-checkout; echo x > .git/info/attributes; ln -s /x .git/modules
mkdir -p .git/refs/replace; git rev-parse HEAD > .git/refs/replace/$(printf %040d 1)
"""
COMMIT_ALL = (
    f"git add --all && GIT_AUTHOR_DATE={DATE} GIT_COMMITTER_DATE={DATE} "
    "git -c user.name=Model -c user.email=model@example.invalid commit --quiet --message 'Greet the world'"
)


#: When `Nursery` shall kill.
Moment = dict[str, Any]


def says(step: str, intent: str, **more: object) -> dict[str, object]:
    """A step's structured answer."""
    return {"output": {"stepId": step, "next_action": {"action": intent, "reason": f"{step} is through"}, **more}}


SCENARIO = {
    "turns": [
        says("initial.issue", "next", understanding="the greeting leaves the world out"),
        {"tools": [{"bash": {"command": f"echo 'hello, world' > greeting.txt; {EVIL}"}}]},
        {"tools": [{"bash": {"command": COMMIT_ALL}}]},
        says("continuation.issue", "handoff", summary="the world is greeted"),
        says("closure.issue", "closing", **CLOSING),
    ]
}


@dataclass(kw_only=True)
class RunnerScene:
    """A runner's folders and a checkout at `at`, and a copy of how they were before any run."""

    root: Path
    nursery: Nursery
    owner: tuple[int, int]
    resumes: bool

    @property
    def at(self) -> Path:
        return self.root / "at"

    @property
    def checkout(self) -> Path:
        return self.at / "checkout"

    @property
    def folder(self) -> Path:
        return self.at / "runner/run"

    def lay_out(self) -> None:
        """A checkout with credentials in both forms, files that git ignores, and owners and modes of its own."""
        for name in FOLDERS:
            (self.at / name).mkdir(parents=True)
        (self.at / "scenario.yaml").write_text(yaml.safe_dump(SCENARIO))
        shutil.copytree(SOURCE, self.checkout)
        git("init", "--quiet", "--template=", cwd=self.checkout)
        git("add", "--all", cwd=self.checkout)
        git("commit", "--quiet", "--message", "Begin", cwd=self.checkout)
        git("repack", "-a", "-d", "--quiet", cwd=self.checkout)
        persist_as_v5(self.checkout)
        persist_as_v6(self.checkout, self.at / "runner/temp")
        append(self.checkout, "; the end\n")
        (self.checkout / ".git/info").mkdir(exist_ok=True)
        (self.checkout / ".git/info/exclude").write_text("own.txt\ngone\n")
        (self.checkout / "gone").symlink_to("nowhere")
        own = self.checkout / "own.txt"
        own.write_text("mine\n")
        if AS_ROOT:
            for path in (self.checkout, *self.checkout.rglob("*")):
                os.chown(path, *self.owner, follow_symlinks=False)
            os.chown(own, self.owner[0], 4711)
        own.chmod(0o640)
        subprocess.run(["cp", "-a", self.at, self.root / "kept"], check=True)

    def begin(self) -> None:
        """As it was; where the run is to resume another one, that one has been killed after its first tool call."""
        subprocess.run(["rm", "-rf", self.at], check=True)
        subprocess.run(["cp", "-a", self.root / "kept", self.at], check=True)
        if self.resumes:
            assert self.run(die_after_first="tool_call").code == KILLED

    def run(self, **die: Any) -> Came:
        """One process of the run; one that has ended is named, as nothing goes on without that."""
        kinds = self.kinds()
        named = "run_finished" in kinds or (self.resumes and kinds)
        inputs = {
            "scenario": str(self.at / "scenario.yaml"),
            "boundary": "dry-run",
            "isolation": "required",
            "resume" if named else "run-folder": str(self.folder),
        }
        own = {name: str(self.at / name.lower()) for name in ("HOME", "TMPDIR")}
        environ = {"PATH": os.environ["PATH"], **own}
        runner = Runner(checkout=self.checkout, folder=self.at / "runner", inputs=inputs, environ=environ)
        prepared = runner.prepare(label_event())
        self.outputs = Path(prepared["GITHUB_OUTPUT"])
        return self.nursery.run(prepared, self.at / "log", **die)

    def kinds(self) -> list[str]:
        """The journal's lines."""
        path = self.folder / "journal.jsonl"
        return [json.loads(line)["event"] for line in path.read_text().splitlines()] if path.exists() else []

    def log(self) -> str:
        """The job log of all processes."""
        return (self.at / "log").read_text()

    def shown(self) -> object:
        """The outputs, but for the time that the run took, and the files for people."""
        outputs = {name: value for name, value in read_outputs(self.outputs).items() if name != "duration-seconds"}
        return outputs, sorted(path.name for path in self.folder.iterdir())


@contextmanager
def open_runner(nursery: Nursery, owner: tuple[int, int], *, resumes: bool) -> Iterator[RunnerScene]:
    """Nothing has run yet."""
    with reachable_folder() as root:
        scene = RunnerScene(root=root, nursery=nursery, owner=owner, resumes=resumes)
        scene.lay_out()
        yield scene


def differences(before: dict[str, object], after: dict[str, object]) -> dict[str, object]:
    """What is no longer what it was."""
    return {
        path: (before.get(path), after.get(path))
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path)
    }


def try_moments(scene: RunnerScene, moments: int) -> str:
    """Kill before so many changes, spread over start and end of the run; how many there were."""
    scene.begin()
    before = facts_of(scene.checkout)
    whole = scene.run()
    assert whole.code == 0, scene.log()
    assert differences(before, facts_of(scene.checkout)) == {}
    shown = scene.shown()
    start, end = start_and_end(whole.changes)
    # The first and the last one of each are always among them, whatever the numbers in between.
    edges = (*start[:1], *start[-1:], *end[:1], *end[-1:])
    chosen = [*edges, *(moment for moment in spread([*start, *end], moments) if moment not in edges)]
    wrong: dict[str, object] = {}
    for moment in chosen:
        scene.begin()
        before = facts_of(scene.checkout)
        killed, left = scene.run(**moment).code, differences(before, facts_of(scene.checkout))
        again = scene.run().code
        changed = left | differences(before, facts_of(scene.checkout))
        if (killed, again, scene.shown(), changed) != (KILLED, 0, shown, {}):
            wrong[str(moment)] = (killed, again, scene.shown(), changed, scene.log())
    assert wrong == {}
    return f"killed before {len(chosen)} of {len(start)} changes of its start and {len(end)} of its end"


def start_and_end(changes: tuple[str, ...]) -> tuple[list[Moment], list[Moment]]:
    """The changes before the flow and after it. A call that is killed at work is one that a model sends again, which a
    scenario does not; and how often the flow takes a snapshot depends on the clock."""
    start = next(number for number, line in enumerate(changes) if line in FLOW)
    end = len(changes) - changes.index("flow_ended")
    return moments_since("", start, until=sorted(FLOW)), moments_since("flow_ended", end)


def moments_since(line: str, count: int, **more: object) -> list[Moment]:
    return [{"since": line, "die_before": number, **more} for number in range(1, count + 1)]


def spread(moments: list[Moment], many: int) -> list[Moment]:
    """So many of them, or all for none."""
    step = max(len(moments) // many, 1) if many else 1
    return moments[step // 2 :: step]


@pytest.mark.whole
@pytest.mark.timeout(3600)
# Whose the files are and what the run begins with have nothing to do with each other.
@pytest.mark.parametrize(
    ("owner", "resumes"), [(OWNERS[0], False), (OWNERS[-1], True)], ids=["fresh clone", "resumed run"]
)
def test_killed_at_many_moments(
    nursery: Nursery, owner: tuple[int, int], resumes: bool, show: Callable[[str], None]
) -> None:
    with open_runner(nursery, owner, resumes=resumes) as scene:
        shown = try_moments(scene, MOMENTS)
    show(f"{'a run that resumes another' if resumes else 'a run in a fresh clone'}, owner {owner}: {shown}")
