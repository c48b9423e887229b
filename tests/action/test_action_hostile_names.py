"""Whatever strangers call files, tests, issues, labels, branches, agents, steps and checks: in every mode of the
action, its log, outputs and summary, GitHub and the run folder hold it as text, and nothing more."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import Phase, example, given, settings

from tests.action.test_action_prove import Jobs
from tests.checkout import Invocation, git
from tests.cli.prove_cases import FAKES
from tests.docs.page import ROOT
from tests.hostile_world import break_agent, commit, saying, touching, write_report, write_scenario
from tests.servers.collector import CollectorServer, attributes_of
from tests.sinks import (
    EVERY_SIGN,
    KNOWN,
    MARK,
    NAMES,
    as_branch,
    as_file,
    as_text,
    heading_faults,
    json_faults,
    log_faults,
    markdown_faults,
    output_faults,
    page_faults,
    unseen_faults,
)
from tests.tried import MANY, MARKS
from tests.world import BRANCH, READ_TOKEN, World, answer, bash, label_event, open_world, understood

OUTPUTS = yaml.safe_load((ROOT / "action.yml").read_text())["outputs"]
PULL = {"action": "opened", "pull_request": {"number": 3}, "repository": {"full_name": "o/r"}}
NO_KEY = {"anthropic_api_key": "", "github_token": ""}


def faults_of(done: Invocation, folder: Path) -> Iterator[str]:
    """What is wrong with what a call of the action wrote, wherever a job shows it."""
    yield from (f"log: {fault}" for fault in log_faults(done.log))
    raw = Path(done.environ["GITHUB_OUTPUT"]).read_bytes()
    yield from (f"outputs: {fault}" for fault in output_faults(raw, OUTPUTS))
    own = ("127.0.0.1", "github.com", "localhost")
    yield from (f"summary: {fault}" for fault in markdown_faults(done.summary, own, notifies=False))
    yield from (f"summary: {fault}" for fault in (*unseen_faults(done.summary), *heading_faults(done.summary)))
    for path in folder.rglob("*") if folder.is_dir() else ():
        if path.suffix == ".html":
            yield from (f"{path.name}: {fault}" for fault in page_faults(path.read_text()))
        elif path.suffix == ".json" and path.parent == folder:
            yield from (f"{path.name}: {fault}" for fault in json_faults(path.read_text()))


def posted_faults(world: World) -> Iterator[str]:
    """The same of what a run wrote to GitHub."""
    own = ("127.0.0.1", "github.com", "localhost")
    bodies = [*world.comments(), *(str(pull["body"]) for pull in world.pulls())]
    for body in bodies:
        yield from (f"body: {fault}" for fault in markdown_faults(body.replace("Closes #7.", ""), own))
    for title in (str(pull["title"]) for pull in world.pulls()):
        yield from (f"title: {fault}" for fault in unseen_faults(title))
    for branch in world.branches():
        message = git("log", "-3", "--format=%B", branch, cwd=world.served)
        yield from (f"commit: {fault}" for fault in unseen_faults(message))


def run(names: list[str], root: Path) -> Iterator[str]:
    texts = [*map(as_text, names)]
    with open_world(root) as world, CollectorServer() as collector:
        world.runner.inputs["base-checks"] = "skip"
        for name in names:
            git("branch", "--force", f"x/{as_branch(name)}", "HEAD", cwd=world.checkout)
            git("push", "--quiet", str(world.served), f"HEAD:refs/heads/{BRANCH}{as_branch(name)}", cwd=world.checkout)
        check = f"{saying(*names)}; test -f greeted"
        world.edit("steps_registry.json", lambda registry: registry["validators"]["greeting"].update(command=check))
        world.github.state.issues[7] |= {"title": texts[0], "body": texts[1]}
        event = label_event(title=texts[0], body=texts[1], labels=[{"name": texts[2]}])
        committer = "git -c user.name=M -c user.email=m@x.test commit --quiet --allow-empty-message"
        work = f'git add --all && {committer} --message "$({saying(names[3])})"'
        pull = {"title": texts[4], "body": "\n".join(reversed(texts))}
        labels = {"add": [texts[2][:50]]}
        closing = answer("closure.issue", "closing", comment="\n\n".join(texts), labels=labels, pull_request=pull)
        handoff = answer("continuation.issue", "handoff", summary=texts[5])
        replies = [
            answer("initial.issue", "next", understanding=texts[1]),
            # Red twice: uncommitted files of such names, then a check that says them.
            *(bash(f"{saying(*names)}; {touching(names[2])}; {touching(names[5])}"), handoff, closing),
            *(bash(work), handoff, closing),
            *(bash(f"touch greeted; {work}"), handoff, closing),
        ]
        done = world.run(replies, event, telemetry={"endpoint": collector.url, "content": "true"})
        assert done.outputs["outcome"] == "completed", done.log
        yield from faults_of(done, done.folder)
        yield from posted_faults(world)
        # To a collector they are data.
        spans = [*map(attributes_of, collector.spans())]
        assert any(MARK in str(span) for span in spans) == (MARK in "".join(names))


def failed_run(names: list[str], root: Path) -> Iterator[str]:
    texts = [*map(as_text, names)]
    with open_world(root) as world:
        world.runner.inputs["base-checks"] = "skip"
        world.github.state.issues[7] |= {"title": texts[0], "body": texts[1]}
        wrong = answer(texts[2], texts[3], summary=texts[4])
        done = world.run([understood(), bash(saying(*names)), *[wrong] * 9])
        assert done.exit_code, done.log
        yield from faults_of(done, done.folder)
        yield from posted_faults(world)
        assert len(world.comments()) == 1


def validate(names: list[str], root: Path) -> Iterator[str]:
    with open_world(root) as world:
        break_agent(world.checkout, names)
        done = world.runner.run(PULL, name="pull_request", mode="validate", **NO_KEY)
        assert done.outputs["outcome"] == "invalid_definition", done.log
        yield from faults_of(done, root / "nothing")


def rehearse(names: list[str], root: Path) -> Iterator[str]:
    with open_world(root) as world:
        write_scenario(world.checkout, names)
        done = world.runner.run(PULL, name="pull_request", mode="rehearse", **NO_KEY)
        assert done.exit_code, done.log
        yield from faults_of(done, done.folder)


def preflight(names: list[str], root: Path) -> Iterator[str]:
    with open_world(root) as world:
        break_agent(world.checkout, names)
        world.edit(
            "steps_registry.json",
            lambda registry: registry["validators"]["greeting"].update(command=f"{saying(*names)}; false"),
        )
        for agent in (as_text(names[0]), "fixer"):
            done = world.runner.run(
                {},
                name="workflow_dispatch",
                mode="preflight",
                agent=agent,
                model={"base-url": as_text(names[1])} if agent == "fixer" else {},
            )
            yield from faults_of(done, root / "nothing")


def prove(names: list[str], root: Path) -> Iterator[str]:
    jobs = Jobs(root)
    case = FAKES["more than the tests hold"]
    event = jobs.merge(case)
    git("switch", "--quiet", "--create", "names", event["pull_request"]["head"]["sha"], cwd=jobs.checkout)
    for name in names:
        (jobs.checkout / as_file(name)).write_text("x = 1\n")
        test = jobs.checkout / "tests" / f"test_{as_file(name)}"
        test.write_text("x = 1\n")
    event["pull_request"]["head"]["sha"] = commit(jobs.checkout, names[0])
    event["pull_request"] |= {"title": as_text(names[1]), "body": as_text(names[2])}
    event["pull_request"]["head"]["ref"] = as_text(names[3])
    done = jobs.run(event, prove=f"{saying(*names)}; python3 -m unittest -v tests/test_durations.py")
    assert done.outputs["proven"], done.log
    yield from faults_of(done, done.folder)


def plan(names: list[str], root: Path) -> Iterator[str]:
    with open_world(root) as world:
        world.github.read_token = READ_TOKEN
        for number, name in enumerate(names, 8):
            world.github.state.add_issue(number, as_text(name), as_text(names[0]), labels=["bug"])
        done = world.runner.run({}, name="schedule", mode="plan", many_issues="label: bug", read_token=READ_TOKEN)
        assert done.outputs["outcome"] == "completed", done.log
        yield from faults_of(done, root / "nothing")
        many = yaml.safe_dump({"label": as_text(names[0]).strip() or "x"})
        done = world.runner.run({}, name="schedule", mode="plan", many_issues=many, read_token=READ_TOKEN)
        yield from faults_of(done, root / "nothing")


def gather(names: list[str], root: Path) -> Iterator[str]:
    with open_world(root) as world:
        for number in (7, 8):
            write_report(world.checkout / "reports", number, names)
        many = yaml.safe_dump({"folder": "reports", "issues": [7, 8, 9]})
        done = world.runner.run({}, name="schedule", mode="gather", many_issues=many)
        assert done.outputs["outcome"] == "completed", done.log
        yield from faults_of(done, root / "nothing")


CHEAP = {each.__name__: each for each in (validate, plan, gather)}
WHOLE = {each.__name__: each for each in (run, failed_run, rehearse, preflight, prove)}
Play = Callable[[list[str], Path], Iterator[str]]


def property_of(most: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Try the known names, and of others `most`, where the machine has the time."""
    chosen = settings(max_examples=most, phases=[Phase.explicit, Phase.generate] if MANY else [Phase.explicit])
    return lambda test: MARKS[1](MARKS[0](chosen(given(NAMES)(example(EVERY_SIGN)(example(KNOWN)(test))))))


@pytest.mark.parametrize("mode", CHEAP)
@property_of(25)
def test_no_name_is_more_than_a_name_where_nothing_is_run(mode: str, names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert [*CHEAP[mode](names, Path(folder))] == []


@pytest.mark.whole
@pytest.mark.parametrize("mode", WHOLE)
@property_of(4)
def test_no_name_is_more_than_a_name_in_a_run(mode: str, names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert [*WHOLE[mode](names, Path(folder))] == []
