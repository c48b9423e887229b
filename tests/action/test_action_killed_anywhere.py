"""A run is killed before any change that it makes: the checkout is as it was, and the next run ends as if nothing had
happened."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.action.killed import KILLED, Came, Nursery
from tests.checkout import Runner, facts_of, git, read_outputs
from tests.covering import FULL
from tests.sandbox.credentials_world import append, persist_as_v5, persist_as_v6
from tests.sandbox.toolbox_world import AS_ROOT, reachable_folder
from tests.world import CLOSING, SOURCE, label_event

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
DATE = "2001-01-01T00:00:00Z"
COMMIT = (
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
        {"tools": [{"bash": {"command": COMMIT}}]},
        says("continuation.issue", "handoff", summary="the world is greeted"),
        says("closure.issue", "closing", **CLOSING),
    ]
}


@dataclass(kw_only=True)
class Scene:
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
            "provider": "scripted",
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
def open_scene(nursery: Nursery, owner: tuple[int, int], *, resumes: bool) -> Iterator[Scene]:
    """Nothing has run yet."""
    with reachable_folder() as root:
        scene = Scene(root=root, nursery=nursery, owner=owner, resumes=resumes)
        scene.lay_out()
        yield scene


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


def differences(before: dict[str, object], after: dict[str, object]) -> dict[str, object]:
    """What is no longer what it was."""
    return {
        path: (before.get(path), after.get(path))
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path)
    }


def try_moments(scene: Scene, moments: int) -> str:
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
    return moments_since("", start), moments_since("flow_ended", end)


def moments_since(line: str, count: int) -> list[Moment]:
    return [{"since": line, "die_before": number} for number in range(1, count + 1)]


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
    with open_scene(nursery, owner, resumes=resumes) as scene:
        shown = try_moments(scene, MOMENTS)
    show(f"{'a run that resumes another' if resumes else 'a run in a fresh clone'}, owner {owner}: {shown}")
