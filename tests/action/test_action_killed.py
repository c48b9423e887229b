"""A run that is killed after any line of its journal goes on, and all is as if nothing had happened.

It is killed after one line of each kind, and after every line with `STEPFLOW_FULL=1`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stepflow.run.recorded import INTERRUPTED
from tests.action.killed import KILLED, Nursery
from tests.checkout import git, read_outputs
from tests.covering import FULL
from tests.servers.messages_api import Reply
from tests.world import CLOSING, World, answer, bash, label_event, open_world

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


@pytest.mark.sample
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
