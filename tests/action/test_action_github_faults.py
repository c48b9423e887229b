"""Each trouble that GitHub can make at each effect, through the whole action: a table of what comes of it.

Every cell runs the action, holds its outcome, receipts and what GitHub has then; after a failure the same event runs
again without the trouble, and GitHub must be as if nothing had happened. `pytest -m whole -s` prints the table.
Each trouble is met at one place at least and each place by some troubles: what a trouble is, the client decides for
all places alike (tests/boundary/test_boundary_retry_policy.py). A change must pass four of these cells, far apart.
STEPFLOW_FULL=1 tries the whole table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stepflow.domain.effect import EffectKind
from tests.action.follow_up_world import before_last
from tests.action.github_troubles import FOR_GOOD, TROUBLES, Trouble, effects, plain
from tests.checkout import Invocation, git
from tests.covering import covering
from tests.servers.messages_api import Reply
from tests.world import BRANCH, World, answer, open_world, solve

pytestmark = pytest.mark.whole

#: Only a run on a pull request answers threads or submits a review.
ON_PULL_REQUESTS = (EffectKind.ANSWER_THREADS, EffectKind.SUBMIT_REVIEW)
KINDS = tuple(str(kind) for kind in EffectKind if kind not in ON_PULL_REQUESTS)
#: Where each effect, and the two questions around them, meets GitHub.
PLACES: dict[str, dict[str, str]] = {
    # The second time: the first is before the model is asked.
    "actor check": {"method": "GET", "path": "/permission$", "since": "GET .*/permission$"},
    "push_branch": {},
    "open_pull_request": {"method": "POST", "path": "/pulls$"},
    "post_comment": {"method": "POST", "path": "/issues/7/comments$"},
    "add_labels": {"method": "POST", "path": "/issues/7/labels$"},
    "remove_labels": {"method": "DELETE", "path": "/issues/7/labels/bug$"},
    "create_release": {"method": "POST", "path": "/releases$"},
    "close_issue": {"method": "PATCH", "path": "/issues/7$"},
    "dispatch_workflow": {"method": "POST", "path": "/dispatches$"},
    "read-back": {"method": "GET", "path": "/issues/7$", "since": "PATCH .*/issues/7$"},
}
CELLS = [
    pytest.param(trouble, moment, id=f"{trouble} at {moment}")
    for trouble, moment in covering(tuple(TROUBLES), tuple(PLACES))
    if not (moment == "push_branch" and TROUBLES[trouble].not_for_git)
]


@dataclass
class Left:
    """What GitHub has, with what differs from run to run taken out."""

    issue: dict[str, Any]
    comments: list[str]
    pulls: list[dict[str, Any]]
    releases: list[dict[str, Any]]
    branches: set[str]
    dispatched: set[tuple[str, str]]
    work: list[str] = field(default_factory=list)


@pytest.fixture
def door(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose agent uses every effect, and whose requests do not wait long for an answer."""
    return with_every_effect(world, monkeypatch)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """What a run leaves that meets no trouble."""
    return left_undisturbed(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """The same where GitHub writes the commits."""
    return left_undisturbed(tmp_path_factory.mktemp("verified"), commits="verified")


def left_undisturbed(folder: Path, **inputs: str) -> Left:
    with open_world(folder) as world:
        done = with_every_effect(world).run(every_effect(), **inputs)
        assert (done.outputs["outcome"], set(effects(done).values())) == ("completed", {"applied"}), done.log
        return left(world)


@pytest.mark.sample(4)
@pytest.mark.parametrize(("trouble", "moment"), CELLS)
def test_trouble_at_an_effect(
    door: World, undisturbed: Left, show: Callable[[str], None], trouble: str, moment: str
) -> None:
    made = TROUBLES[trouble]
    make(door, made, moment)
    done = door.run(every_effect())
    row = f"{trouble:22} {moment:18} {done.outputs['outcome']:15} exit {done.exit_code}"
    assert_honest(door, done)
    if made.passes:
        assert (done.outputs["outcome"], done.exit_code) == ("completed", 0), done.log
        assert set(effects(done).values()) == {"applied"}
        assert door.clock.slept != [] or moment == "push_branch"
        show(f"GitHub fault | {row}  waited {sum(door.clock.slept):.0f} s")
    else:
        assert_ended(done, trouble, moment, made)
        show(f"GitHub fault | {row}  then {next_try(door)}")
    assert left(door) == undisturbed


#: One that passes and one that lasts at either write; tests/boundary/test_boundary_verified_push.py has the others.
VERIFIED = (
    ("lost after the write", "updateRefs"),
    ("500 after the write", "createCommitOnBranch"),
    ("429 retry-after 30", "createCommitOnBranch"),
    ("dead network", "updateRefs"),
    ("403", "createCommitOnBranch"),
)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("trouble", "mutation"), VERIFIED)
def test_trouble_at_the_writes_of_verified_commits(
    door: World, verified: Left, show: Callable[[str], None], trouble: str, mutation: str
) -> None:
    made = TROUBLES[trouble]
    door.github.fail("POST", f"/graphql {mutation}$", **made.given())
    done = door.run(every_effect(), commits="verified")
    row = f"{trouble:22} {mutation:18} {done.outputs['outcome']:15} exit {done.exit_code}"
    assert_honest(door, done)
    if made.passes:
        assert (done.outputs["outcome"], done.exit_code) == ("completed", 0), done.log
        assert door.clock.slept != []
        show(f"GitHub fault | {row}  waited {sum(door.clock.slept):.0f} s")
    else:
        assert_ended(done, trouble, "push_branch", made)
        show(f"GitHub fault | {row}  then {next_try(door, commits='verified')}")
    assert left(door) == verified
    assert not any(request.path.endswith("/git-receive-pack") for request in door.git_server.requests)


def assert_ended(done: Invocation, trouble: str, moment: str, made: Trouble) -> None:
    """The outcome, the receipts before and after the place, and a reason that says what to do."""
    stranger = (trouble, moment) == ("404", "actor check")
    assert (done.outputs["outcome"], done.exit_code) == ("refused" if stranger else "boundary_failed", 1), done.log
    assert effects(done) == expected_effects(trouble, moment)
    reason = done.outputs["reason"]
    forbidden = (trouble, moment) == ("403", "open_pull_request")
    says = "Allow GitHub Actions" if forbidden else "has the permission 'none'" if stranger else made.says
    if moment == "dispatch_workflow" and trouble in ("403", "404"):
        says = "the permission `actions: write`"
    assert says in reason
    named = {"actor check": "Nothing was written", "read-back": "could not be read back"}.get(
        moment, f"`{moment}` failed"
    )
    assert forbidden or named in reason


def expected_effects(trouble: str, moment: str) -> dict[str, str]:
    if moment == "actor check":
        return dict.fromkeys(KINDS, "planned")
    if moment == "read-back":
        return dict.fromkeys(KINDS, "applied")
    if (trouble, moment) == ("403", "open_pull_request"):
        states = ("applied", "forbidden", "applied", "applied", "applied", "planned", "planned", "applied")
        return dict(zip(KINDS, states, strict=True))
    at = KINDS.index(moment)
    return {
        kind: "applied" if number < at else "failed" if number == at else "planned" for number, kind in enumerate(KINDS)
    }


def said(*lines: str) -> Callable[[World], None]:
    return lambda world: world.git_server.refuse_pushes("o/r", "\n".join(lines)) and None


REFUSED_PUSHES: dict[str, tuple[Callable[[World], None], str]] = {
    "a pre-receive hook": (said("no commits on Sundays"), "A server hook refused the commits"),
    "a protected branch": (
        said("error: GH006: Protected branch update failed for x."),
        "A branch protection rule",
    ),
    "signed commits": (
        said("error: GH013: Repository rule violations found.", "- Commits must have verified signatures."),
        "requires signed commits: set `commits: verified`",
    ),
    "a file of LFS": (
        said("error: GH008: Your push referenced at least 1 unknown Git LFS object:"),
        "let people add such files",
    ),
    "no way in": (lambda world: world.git_server.fail("/git-receive-pack$", 403, times=99), "contents: write"),
    "a lost base": (
        lambda world: world.git_server.fail("service=git-upload-pack", 404, times=99, skip=1),
        "does not exist (any more)",
    ),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("why", REFUSED_PUSHES)
def test_a_push_that_is_refused(door: World, undisturbed: Left, show: Callable[[str], None], why: str) -> None:
    arrange, says = REFUSED_PUSHES[why]
    arrange(door)
    done = door.run(every_effect())
    assert_honest(door, done)
    assert (done.outputs["outcome"], done.exit_code) == ("boundary_failed", 1), done.log
    assert effects(done) == {kind: "failed" if kind == "push_branch" else "planned" for kind in KINDS}
    assert says in done.outputs["reason"]
    assert "The commits are kept in work.bundle" in done.outputs["reason"]
    assert (done.folder / "work.bundle").exists()
    assert door.branches().keys() == {"main"}
    (door.served / "hooks" / "pre-receive").unlink(missing_ok=True)
    show(f"GitHub fault | push refused by {why:20} boundary_failed exit 1  then {next_try(door)}")
    assert left(door) == undisturbed


@pytest.mark.parametrize(
    ("state", "effect", "says"),
    [
        ("deleted", "post_comment", "The issue was deleted"),
        ("moved", "post_comment", "The repository or issue does not exist (any more)"),
        ("locked", "post_comment", "The issue is locked: unlock it"),
    ],
)
def test_an_issue_that_is_gone_or_closed_to_comments(
    door: World, undisturbed: Left, show: Callable[[str], None], state: str, effect: str, says: str
) -> None:
    done = door.run(before_last(door, [*every_effect()], lambda world: getattr(world.github.state, state).add(7)))
    assert_honest(door, done)
    assert (done.outputs["outcome"], done.exit_code) == ("boundary_failed", 1), done.log
    assert effects(done)[effect] == "failed"
    assert (effects(done)["push_branch"], done.outputs["branch"]) == ("applied", BRANCH)
    assert says in done.outputs["reason"]
    assert not any("/repositories/" in request.path for request in door.github.requests)
    getattr(door.github.state, state).clear()
    show(f"GitHub fault | issue {state:8} {effect:18} boundary_failed exit 1  then {next_try(door)}")
    assert left(door) == undisturbed


def test_a_network_that_dies_after_the_push_costs_no_second_branch(door: World, undisturbed: Left) -> None:
    """Neither comment nor pull request tell the next run whose branch it is; its last commit does."""
    for method in ("POST", "PATCH", "DELETE"):
        door.github.fail(method, "/repos/", 0, times=FOR_GOOD)
    done = door.run(every_effect())
    assert_honest(door, done)
    assert (effects(done)["push_branch"], effects(done)["open_pull_request"]) == ("applied", "failed")
    assert "The failure could not be reported on the issue" in done.summary
    assert next_try(door) == "completed"
    assert left(door) == undisturbed


def test_a_signal_ends_a_wait_for_github(door: World) -> None:
    def interrupted(_seconds: float) -> None:
        import os
        import signal

        os.kill(os.getpid(), signal.SIGTERM)

    door.clock.sleep = interrupted  # type: ignore[method-assign]
    door.github.fail("POST", "/pulls$", 503, times=FOR_GOOD)
    done = door.run(every_effect())
    assert (done.outputs["outcome"], done.exit_code) == ("cancelled", 130), done.log
    assert effects(done)["push_branch"] == "applied"


def with_every_effect(world: World, monkeypatch: pytest.MonkeyPatch | None = None) -> World:
    def change(document: dict[str, Any]) -> None:
        document["runner"]["verdict"]["type"] = "poll:state"
        github = document["runner"]["integrations"]["github"]
        github["allowedEffects"] = ["comment", "labels", "close", "pull_request", "release"]
        github["closeBy"] = "now"

    world.edit("agent.json", change)
    world.use_ci()
    world.runner.inputs["base-checks"] = "skip"
    if monkeypatch:
        monkeypatch.setattr("stepflow.boundary.github_client.TIMEOUT_SECONDS", 1.5)
    return world


def every_effect() -> Iterator[Reply]:
    """The model's turns of a run that asks for every effect."""
    requested = {"comment": "The world is greeted now.", "release": {"tag": "v1"}}
    more = {"closure_action": "label-and-close", "pull_request": {"title": "Greet", "body": "It did not."}}
    return iter([*solve()[:-1], answer("closure.issue", "closing", **requested, **more)])


def make(world: World, made: Trouble, moment: str) -> None:
    fault = made.given()
    if moment == "push_branch":
        fault["headers"] = tuple(fault.get("headers", {}).items())
        world.git_server.fail("/git-receive-pack$", fault.pop("status"), **fault)
    else:
        world.github.fail(**PLACES[moment], **fault)


def next_try(world: World, **inputs: str) -> str:
    """The same event once more, with GitHub well again."""
    world.github.state.faults.clear()
    world.git_server.faults.clear()
    world.check_out_again()
    done = world.run(every_effect(), **inputs)
    assert_honest(world, done)
    assert (done.outputs["outcome"], done.exit_code) == ("completed", 0), done.log
    return done.outputs["outcome"]


def assert_honest(world: World, done: Invocation) -> None:
    """No traceback, nothing doubled, and the report tells of every effect what GitHub has."""
    assert "Traceback" not in done.log
    state = world.github.state
    assert max(len(state.pulls), len(state.releases), len(world.comments())) <= 1
    assert world.branches().keys() <= {"main", BRANCH}
    statuses = effects(done)
    report = done.report["effects"]
    assert {receipt["kind"]: receipt["status"] for receipt in report} == statuses
    written = {
        "push_branch": BRANCH in world.branches(),
        "open_pull_request": bool(state.pulls),
        "add_labels": "ready-for-review" in world.labels(),
        "create_release": bool(state.releases),
        "close_issue": state.issues[7]["state"] == "closed",
        "dispatch_workflow": bool(state.dispatched),
    }
    assert len(state.dispatched) == len(set(state.dispatched)), "a workflow was started twice for one commit"
    assert [kind for kind in written if statuses[kind] in ("applied", "skipped") and not written[kind]] == []


def left(world: World) -> Left:
    state = world.github.state
    log = git("log", "--format=%an %ce%n%B%n%T", f"main..{BRANCH}", cwd=world.served)
    return Left(
        issue={**state.issues[7], "labels": sorted(state.issues[7]["labels"]), "created_at": ""},
        comments=[plain(body) for body in world.comments()],
        pulls=[{key: plain(str(value)) for key, value in pull.items()} for pull in state.pulls],
        releases=[{key: plain(str(value)) for key, value in release.items()} for release in state.releases],
        branches=set(world.branches()),
        dispatched={(workflow, branch) for workflow, branch, _ in state.dispatched},
        work=[plain(line) for line in log.splitlines()],
    )
