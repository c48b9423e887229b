"""What judges the work: rules of the boundary at the closing, and guards that the model cannot change."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.action.follow_up_world import follow_up
from tests.checkout import Invocation, git
from tests.servers.messages_api import Reply
from tests.world import BRANCH, COMMIT, MODEL_KEY, World, answer, bash, drop_checks, solve, understood

pytestmark = pytest.mark.whole

AS_MODEL = "git -c user.name=Model -c user.email=model@example.invalid"
AS_COMMIT = f"{AS_MODEL} commit -q -m Greet"
GREET = f"echo 'hello, world' > greeting.txt && git add --all && {COMMIT}"
HANDED_OVER = answer("continuation.issue", "handoff", summary="done")
CLAIM = solve()[-1]
#: A credential by its format alone.
CREDENTIAL = "ghp_" + "a1B2c3D4e5F6" * 3
#: tests/boundary/test_boundary_bundle_push.py has the other rules, where the boundary looks again.
BREAKS = {
    "a protected path": (
        "mkdir -p .github/workflows; echo 'on: push' > .github/workflows/ci.yml",
        "protected path: .github/workflows/ci.yml",
    ),
    "a file that is large only when it is unpacked": (
        "truncate -s 400M sparse.bin",
        "have more than 256 MiB: 400 MiB in all; the largest is sparse.bin with 400 MiB",
    ),
    "a bundle that is too large": ("head -c 34000000 /dev/urandom > huge.bin", "a bundle of more than"),
    "a credential": (f"echo 'token = {CREDENTIAL}' > settings.py", "GitHub Token in settings.py, line 1"),
    "a secret of the run": (f"echo {MODEL_KEY} > .npmrc", "It is in .npmrc"),
    "a secret of the run in a message": (
        f"{AS_MODEL} commit -q --allow-empty -m 'Use {MODEL_KEY}'",
        "It is in the message or the author of commit",
    ),
    "an amended base": ("git commit -q --amend -m Mine", "the commits do not descend from"),
    "too many commits": (
        f"for n in $(seq 301); do {AS_MODEL} commit -q --allow-empty -m $n; done",
        "302 commits, and at most 300 may be pushed",
    ),
}
UNDO = "rm -rf .github many *.bin settings.py .npmrc"


def did(*commands: str) -> list[Reply]:
    """The model does this and then claims to be done, once for each command."""
    again = [reply for command in commands for reply in (bash(command), HANDED_OVER, CLAIM)]
    return [understood(), *again]


def anew(world: World, undo: str = UNDO) -> str:
    """What the retry prompt asks for: the same work, committed anew on top of the base."""
    return f"git reset -q --soft {world.branches()['main']}; git reset -q; {undo}; {GREET}"


def checks(world: World, done: Invocation, name: str = "boundary-rules") -> list[tuple[bool, str | None]]:
    """Whether each run of a check passed, and what followed."""
    ran = (event for event in world.events(done) if event["event"] == "validator_ran")
    return [(event["passed"], event["action"]) for event in ran if event["name"] == name]


def retry_prompt(world: World) -> str:
    """The words in which the agent was sent back, as its service got them."""
    texts = (block["text"] for body in world.model.bodies for block in body["messages"][0]["content"])
    return next(text for text in texts if "`boundary-rules` failed" in text)


def no_validators(world: World) -> None:
    world.edit("steps_registry.json", drop_checks)


def github(world: World, **settings: Any) -> None:
    """Change `runner.integrations.github` of the agent."""
    world.edit("agent.json", lambda agent: agent["runner"]["integrations"]["github"].update(settings))


@pytest.mark.parametrize(("breaks", "says"), BREAKS.values(), ids=BREAKS)
def test_a_broken_rule_is_named_to_the_agent_which_corrects_it(world: World, breaks: str, says: str) -> None:
    done = world.run(did(f"{breaks}; {GREET}", anew(world)))
    assert (done.outputs["outcome"], done.outputs["branch"]) == ("completed", BRANCH), done.log
    assert checks(world, done) == [(False, "retry"), (True, None)]
    # The validators do not run for commits that are to be made anew.
    assert checks(world, done, "greeting") == [(True, None)]
    retry = retry_prompt(world)
    assert says in retry
    assert f"git reset --soft {world.branches()['main'][:12]}" in retry
    assert "This was attempt 1 of 3; 2 left." in retry
    assert (CREDENTIAL in retry, MODEL_KEY in retry) == (False, False)
    assert "boundary-rules failed, attempt 1 of 3" in done.log
    assert all("boundary-rules" in text for text in (done.summary, str(world.pulls()[0]["body"]), world.comments()[0]))
    report = done.report
    assert [(run["name"], run["passed"]) for run in report["validators"]][:2] == [
        ("boundary-rules", False),
        ("boundary-rules", True),
    ]


ELSEWHERE = "git update-index --add --cacheinfo 160000,{},lib"


@pytest.fixture
def submodule(world: World) -> World:
    """The repository has the submodule `lib`, which the job does not check out."""
    (world.checkout / "lib").mkdir()
    (world.checkout / ".gitmodules").write_text('[submodule "lib"]\n\tpath = lib\n\turl = ../lib\n')
    git("add", ".gitmodules", cwd=world.checkout)
    git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},lib", cwd=world.checkout)
    git("commit", "--quiet", "--message", "Add a submodule", cwd=world.checkout)
    git("push", "--quiet", str(world.served), "main", cwd=world.checkout)
    return world


@pytest.mark.parametrize("corrects", [True, False])
def test_a_submodule_that_is_moved_is_named_at_the_first_closing_with_the_way_out(
    submodule: World, *, corrects: bool
) -> None:
    moving = f"echo 'hello, world' > greeting.txt; git add greeting.txt; {ELSEWHERE.format('2' * 40)}; {AS_COMMIT}"
    back = f"git reset -q --soft {submodule.branches()['main']}; {ELSEWHERE.format('1' * 40)}; {AS_COMMIT}"
    done = submodule.run(did(moving, back) if corrects else did(moving, "true", "true"))
    says = "another commit of a submodule: lib"
    assert says in retry_prompt(submodule)
    if corrects:
        assert (done.outputs["outcome"], done.outputs["branch"]) == ("completed", BRANCH), done.log
    else:
        assert done.outputs["outcome"] == "refused", done.log
        assert says in done.outputs["reason"].lower()
        assert "Move the submodule yourself" in done.outputs["reason"]


@pytest.mark.parametrize("broken", ["a protected path", "an amended base"])
def test_a_rule_that_stays_broken_ends_the_run_as_refused(world: World, broken: str) -> None:
    breaks, says = BREAKS[broken]
    done = world.run(did(f"{breaks}; {GREET}", "true", "true"))
    assert (done.outputs["outcome"], done.outputs["validated"], done.exit_code) == ("refused", "false", 1), done.log
    assert checks(world, done) == [(False, "retry"), (False, "retry"), (False, "abort")]
    assert done.outputs["reason"].startswith("Completion loop: ")
    assert says in done.outputs["reason"]
    assert "The agent was asked 2 times to correct it." in done.outputs["reason"]
    assert world.wrote_nothing(but_comments=1)
    assert "boundary-rules" in world.comments()[0]


@pytest.mark.parametrize(
    ("breaks", "says", "undo"),
    [
        ("printf '#!/bin/sh\\n' > run.sh; chmod +x run.sh", "an executable file: run.sh", "rm run.sh"),
        (
            f"git checkout -q -b side; {AS_MODEL} commit -q --allow-empty -m Side; git checkout -q -;"
            f"{AS_MODEL} merge -q --no-ff -m Merge side",
            "a merge commit",
            "true",
        ),
    ],
    ids=["an executable file", "a merge"],
)
def test_what_the_api_cannot_write_is_judged_where_it_writes(world: World, breaks: str, says: str, undo: str) -> None:
    script = did(f"{breaks}; {GREET}", anew(world, undo))
    done = world.run(script, commits="verified")
    assert done.outputs["outcome"] == "completed", done.log
    assert checks(world, done) == [(False, "retry"), (True, None)]
    assert f"GitHub's API cannot write {says}" in retry_prompt(world)


#: What Git LFS has git commit in the place of a file.
POINTER = f"version https://git-lfs.github.com/spec/v1\\noid sha256:{'5' * 64}\\nsize 5\\n"


def test_a_file_that_only_git_lfs_could_push_is_named_to_the_agent(world: World) -> None:
    done = world.run(did(f"printf '{POINTER}' > logo.bin; {GREET}", anew(world, "rm logo.bin")))
    assert done.outputs["outcome"] == "completed", done.log
    assert checks(world, done) == [(False, "retry"), (True, None)]
    assert "files stored in Git LFS, whose contents are not pushed: logo.bin" in retry_prompt(world)


def test_a_file_of_git_lfs_that_is_only_moved_is_pushed(world: World) -> None:
    (world.checkout / "logo.bin").write_text(POINTER.replace("\\n", "\n"))
    git("add", "logo.bin", cwd=world.checkout)
    world.edit("agent.json", lambda _: None)
    done = world.run(did(f"git mv logo.bin sign.bin; {GREET}"))
    assert (done.outputs["outcome"], checks(world, done)) == ("completed", []), done.log


def test_git_carries_what_the_api_cannot_write(world: World) -> None:
    done = world.run(did(f"ln -s greeting.txt link; {GREET}"))
    assert (done.outputs["outcome"], checks(world, done)) == ("completed", []), done.log


@pytest.mark.parametrize(
    ("leaves", "says", "mend"),
    [
        ("echo more >> README.md", "files that differ from the commit that would be pushed: README.md", GREET),
        ("echo draft > notes.txt", "with files that are not committed", "rm notes.txt"),
    ],
    ids=["a tracked file", "a new file"],
)
def test_what_was_not_committed_sends_the_agent_back_after_green_checks(
    world: World, leaves: str, says: str, mend: str
) -> None:
    """Where the agent has no check of its own for that."""

    def without_git_clean(registry: Any) -> None:
        (step,) = registry["validationSteps"].values()
        step["validationConditions"] = [{"validator": "greeting"}]

    (world.checkout / "README.md").write_text("Read me.\n")
    git("add", "README.md", cwd=world.checkout)
    world.edit("steps_registry.json", without_git_clean)
    done = world.run(did(f"{GREET}; {leaves}", f"{mend}; git add -A; {COMMIT}"))
    assert (done.outputs["outcome"], done.outputs["validated"]) == ("completed", "true"), done.log
    assert checks(world, done) == [(False, "retry"), (True, None)]
    assert says in retry_prompt(world)


def test_an_agent_without_validators_is_asked_too(world: World) -> None:
    no_validators(world)
    breaks, says = BREAKS["a protected path"]
    done = world.run(did(f"{breaks}; {GREET}", anew(world)))
    assert (done.outputs["outcome"], done.outputs["validated"]) == ("completed", "false"), done.log
    assert says in retry_prompt(world)


@pytest.mark.parametrize("settings", [{"pullRequest": {"enabled": False}}, {"allowedEffects": ["comment", "labels"]}])
def test_a_run_that_pushes_nothing_is_not_judged_by_what_may_be_pushed(world: World, settings: dict[str, Any]) -> None:
    github(world, **settings)
    done = world.run(did(f"{BREAKS['a protected path'][0]}; {GREET}"))
    assert (done.outputs["outcome"], checks(world, done)) == ("completed", []), done.log


def test_the_attempts_are_those_of_the_validation_and_do_not_use_them_up(world: World) -> None:
    def once(registry: Any) -> None:
        (step,) = registry["validationSteps"].values()
        step["onFailure"] = {"action": "retry", "maxAttempts": 2}

    world.edit("steps_registry.json", once)
    red = f"{anew(world)}; echo hi > greeting.txt; {COMMIT}"
    done = world.run(did(f"{BREAKS['a credential'][0]}; {GREET}", red, anew(world)))
    assert done.outputs["outcome"] == "completed", done.log
    assert checks(world, done) == [(False, "retry"), (True, None), (True, None)]
    assert checks(world, done, "greeting") == [(False, "retry"), (True, None)]


def test_limits_of_the_definition_hold_at_the_closing_and_in_the_boundary(world: World) -> None:
    github(world, pullRequest={"maxFiles": 302, "maxBytes": 1_000_000})
    many = "mkdir many; for n in $(seq 301); do echo $n > many/$n; done"
    done = world.run(did(f"{many}; head -c 1000000 /dev/zero > zero.bin; {GREET}", f"{anew(world, 'rm zero.bin')}"))
    assert done.outputs["outcome"] == "completed", done.log
    retry = retry_prompt(world)
    assert "303 changed files, and at most 302 may be pushed" in retry
    assert "and at most 1,000,000 may be pushed; the largest is zero.bin" in retry


def test_a_follow_up_is_judged_by_what_it_adds(opened: World) -> None:
    begun_at = opened.branches()[BRANCH]
    breaks, says = BREAKS["a protected path"]
    louder = f"git add -A; echo 'hello, world!' > greeting.txt; {COMMIT}"
    undo = f"git reset -q --soft {begun_at}; git reset -q; rm -rf .github"
    _, *script = did(f"{breaks}; {louder}", f"{undo}; {louder}")
    opened.model.bodies.clear()
    done = follow_up(opened, script)
    assert done.outputs["outcome"] == "completed", done.log
    assert checks(opened, done) == [(False, "retry"), (True, None)]
    assert says in retry_prompt(opened)


def test_a_run_that_was_stopped_after_the_retry_prompt_goes_on_with_it(world: World) -> None:
    folder = str(world.runner.folder / "mine")
    breaks, says = BREAKS["a protected path"]
    script = did(f"{breaks}; {GREET}", "true", "true")
    first = world.run(script[:4], run_folder=folder, on_failure="nothing")
    assert first.outputs["outcome"] == "model_failed", first.log
    done = world.run(script[4:], run_folder=folder)
    assert (done.outputs["outcome"], says in done.outputs["reason"]) == ("refused", True), done.log
    assert [action for _, action in checks(world, done)] == ["retry", "retry", "abort"]


def test_work_that_broke_a_rule_is_not_pushed_as_unfinished_either(world: World) -> None:
    done = world.run(did(f"{BREAKS['a protected path'][0]}; {GREET}", "true", "true"), on_failure="push-branch")
    assert done.outputs["outcome"] == "refused", done.log
    assert world.branches().keys() == {"main"}


def test_a_dry_run_is_judged_as_well(world: World) -> None:
    breaks, says = BREAKS["a protected path"]
    done = world.run(did(f"{breaks}; {GREET}", anew(world)), boundary="dry-run")
    assert (done.outputs["outcome"], says in retry_prompt(world)) == ("completed", True), done.log


def test_a_change_that_is_demanded_and_not_there_is_asked_for(world: World) -> None:
    no_validators(world)
    github(world, closeBy="merge")
    done = world.run(did("true", GREET))
    assert done.outputs["outcome"] == "completed", done.log
    assert "No changes: the run made no commit" in retry_prompt(world)
    assert "Make the change and commit it" in retry_prompt(world)


def test_work_that_was_not_committed_is_left_to_the_check_for_it(world: World) -> None:
    github(world, closeBy="merge")
    done = world.run(did("echo new > NEW.md", GREET))
    assert done.outputs["outcome"] == "completed", done.log
    assert (checks(world, done, "git-clean"), checks(world, done)) == ([(False, "retry"), (True, None)], [])


def test_work_that_was_not_committed_is_named_where_no_check_is_for_it(world: World) -> None:
    no_validators(world)
    github(world, closeBy="merge")
    done = world.run(did("echo new > NEW.md; echo more >> README.md", GREET))
    assert done.outputs["outcome"] == "completed", done.log
    assert "Not committed: NEW.md, README.md." in retry_prompt(world)


def test_an_agent_that_insists_that_nothing_is_to_be_changed_ends_as_before(world: World) -> None:
    no_validators(world)
    github(world, closeBy="merge")
    done = world.run(did("true", "true"))
    assert (done.outputs["outcome"], done.exit_code) == ("no_changes", 0), done.log
    assert checks(world, done) == [(False, "retry"), (False, "skip")]
    assert done.outputs["reason"].startswith("Completion loop: No changes: the run made no commit")
    assert "> No changes: the run made no commit" in world.comments()[0]


WRONG_ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "a label that is not allowed": ({"issue": {"labels": {"add": ["urgent"]}}}, "`allowedLabels` in agent.json"),
    "a label that starts agents": ({"issue": {"labels": {"add": ["agent:reviewer"]}}}, "it starts agents"),
    "a tag that is not one": ({"release": {"tag": "v 1"}}, "'v 1' cannot be the name of a tag"),
    "a title that is no text": ({"pull_request": {"title": 7}}, "`pull_request.title` is 7, not a string"),
}


@pytest.fixture
def free(world: World) -> World:
    """A world whose agent may answer anything, and release and label some."""
    effects = ["comment", "labels", "close", "pull_request", "release"]
    github(world, allowedEffects=effects, allowedLabels=["ready-*", "bug", "agent:*"])
    world.edit(
        "schemas/steps.json", lambda schemas: schemas["definitions"]["closure"]["properties"].pop("pull_request")
    )
    return world


@pytest.mark.parametrize(("wrong", "says"), WRONG_ANSWERS.values(), ids=WRONG_ANSWERS)
def test_an_answer_that_the_boundary_would_not_follow_is_asked_for_again(
    free: World, wrong: dict[str, Any], says: str
) -> None:
    again = [HANDED_OVER, CLAIM]
    done = free.run([understood(), bash(GREET), HANDED_OVER, answer("closure.issue", "closing", **wrong), *again])
    assert done.outputs["outcome"] == "completed", done.log
    assert checks(free, done) == [(False, "retry"), (True, None)]
    assert says in retry_prompt(free)


def test_an_answer_that_stays_as_it_is_only_has_no_effect(free: World) -> None:
    wrong, says = WRONG_ANSWERS["a label that is not allowed"]
    closing = answer("closure.issue", "closing", **wrong)
    done = free.run([understood(), bash(GREET), *[HANDED_OVER, closing] * 2])
    assert (done.outputs["outcome"], done.outputs["validated"]) == ("completed", "true"), done.log
    assert checks(free, done) == [(False, "retry"), (False, "skip")]
    assert says in done.log


def test_the_label_that_started_the_run_may_be_asked_off(world: World) -> None:
    off = {"issue": {"labels": {"remove": ["agent:fixer"]}}}
    done = world.run([*solve()[:-1], answer("closure.issue", "closing", **off)])
    assert (done.outputs["outcome"], checks(world, done)) == ("completed", []), done.log


def validators(world: World, done: Invocation) -> list[tuple[str, bool, list[str]]]:
    """Name, color and warnings of each run of a validator."""
    ran = (event for event in world.events(done) if event["event"] == "validator_ran")
    return [(event["name"], event["passed"], event["warnings"]) for event in ran]


def guard(world: World, how: str) -> None:
    """Let the second validator depend on a file that it does not name itself."""

    def change(registry: Any) -> None:
        registry["validators"]["greeting"].update(guards=["README.md"], guard=how)

    world.edit("steps_registry.json", change)


def test_a_file_that_was_hidden_from_git_sends_the_model_back_with_its_name(world: World) -> None:
    """A check's git is not the one in which it was hidden."""
    hide = "echo draft > notes.txt; echo notes.txt >> .git/info/exclude"
    mend = [bash("rm notes.txt"), HANDED_OVER, CLAIM]
    done = world.run([*did(f"{GREET}; {hide}"), *mend])
    assert done.outputs["outcome"] == "completed", done.log
    assert validators(world, done) == [
        ("git-clean", False, []),
        ("git-clean", True, []),
        ("greeting", True, []),
    ]
    retry = next(event for event in world.events(done) if event["event"] == "completion_judged")["retry_prompt"]
    assert "notes.txt" in retry
    assert "notes.txt" not in world.comments()[0]


def test_a_committed_gitignore_hides_nothing_from_anybody(world: World) -> None:
    build = "mkdir dist; touch dist/app.js"
    done = world.run(did(f"echo dist/ >> .gitignore; git add .gitignore; {GREET}; {build}"))
    assert done.outputs["outcome"] == "completed", done.log
    assert validators(world, done) == [("git-clean", True, []), ("greeting", True, [])]


def test_hiding_to_the_end_ends_the_run_and_pushes_nothing(world: World) -> None:
    hide = "git update-index --assume-unchanged greeting.txt; echo 'hello, world!' > greeting.txt"
    done = world.run([*did(f"{GREET}; {hide}"), *[HANDED_OVER, CLAIM] * 2])
    assert (done.outputs["outcome"], done.outputs["validated"]) == ("validation_failed", "false")
    assert "git-clean" in done.outputs["reason"]
    assert "M greeting.txt" in world.comments()[0]
    assert world.wrote_nothing(but_comments=1)


def test_a_changed_guard_is_told_in_summary_comment_and_log(world: World) -> None:
    guard(world, "report")
    done = world.run(did(f"echo more >> README.md; git add -A; {GREET}"))
    assert done.outputs["outcome"] == "completed", done.log
    assert world.comments()[0].startswith("<!-- stepflow -->\nThe world is greeted now.\n")
    warning = "files this validator depends on were changed: README.md (added)"
    assert validators(world, done)[-1] == ("greeting", True, [warning])
    for text in (done.summary, world.comments()[0], str(world.pulls()[0]["body"]), done.log):
        assert warning in text.replace("\\", ""), text
    report = json.loads(next(path.read_text() for path in world.runner.folder.rglob("report.json")))
    assert report["validators"][-1]["warnings"] == [warning]


def test_a_changed_guard_blocks_until_it_is_put_back(world: World) -> None:
    guard(world, "block")
    mend = [bash(f"git rm -q README.md; {COMMIT}"), HANDED_OVER, CLAIM]
    done = world.run([*did(f"echo more >> README.md; git add -A; {GREET}"), *mend])
    assert done.outputs["outcome"] == "completed", done.log
    assert [passed for name, passed, _ in validators(world, done) if name == "greeting"] == [False, True]
    retry = next(event for event in world.events(done) if event["event"] == "completion_judged")["retry_prompt"]
    assert "put them back as they were when the run began" in retry
    assert "README.md (added)" in retry


def test_a_definition_that_is_changed_midway_is_not_used(world: World) -> None:
    """Also where the agent may push such a change."""
    unprotected = {"protectedPaths": ["CODEOWNERS"]}
    world.edit("agent.json", lambda agent: agent["runner"]["integrations"]["github"].update(unprotected))
    script = 's/grep .*/true",/; s/git status --porcelain/true/'
    prompt = "find .agent -name '*.md' -exec sh -c 'echo EVIL > \"$1\"' sh {} ';'"
    change = f"sed -i '{script}' .agent/fixer/steps_registry.json; {prompt}; git add -A; {COMMIT}"
    done = world.run([*did(change), bash(GREET), HANDED_OVER, CLAIM])
    assert done.outputs["outcome"] == "completed", done.log
    ran = validators(world, done)
    assert [passed for name, passed, _ in ran if name == "greeting"] == [False, True]
    opened = [event for event in world.events(done) if event["event"] == "prompt_rendered"]
    assert len(opened) > 3
    assert "EVIL" not in "".join(str(event["blocks"]) + event["system"] for event in opened)


@pytest.mark.parametrize(
    "harm",
    [
        'cp -a .git ~/copy; rm -rf .git; echo "gitdir: $HOME/copy" > .git',
        "git clone -q --bare . ~/x; echo ~/x/objects > .git/objects/info/alternates",
        "mkdir -p .git/info; git rev-parse HEAD > .git/info/grafts",
    ],
    ids=["a file", "alternates", "grafts"],
)
def test_a_repository_that_stands_on_something_else_pushes_what_was_committed(world: World, harm: str) -> None:
    world.edit("steps_registry.json", drop_checks)
    done = world.run(did(f"{GREET}; {harm}"))
    assert done.outputs["outcome"] == "completed", done.log
    assert git("show", f"{BRANCH}:greeting.txt", cwd=world.served) == "hello, world\n"
    assert git("log", "--format=%p", "-1", BRANCH, cwd=world.served) != "\n"


def test_a_repository_that_cannot_be_read_any_more_is_refused_with_the_reason(world: World) -> None:
    world.edit("steps_registry.json", drop_checks)
    done = world.run(did(f"{GREET}; cp -a .git ~/copy; rm -rf .git; ln -s ~/copy .git"))
    assert done.outputs["outcome"] == "refused", done.log
    assert "The commits cannot be read from the workspace" in done.outputs["reason"]
    assert world.wrote_nothing(but_comments=1)


def test_what_a_validator_commits_is_neither_checked_nor_pushed(world: World) -> None:
    """Code of the repository, which the model may edit, runs in validators too."""

    def commits(registry: Any) -> None:
        registry["validators"]["greeting"]["command"] = "sh check.sh"

    world.edit("steps_registry.json", commits)
    check = f'echo "echo evil > greeting.txt; git add -A; {COMMIT}" > check.sh; git add -A'
    done = world.run(did(f"{check.replace(COMMIT, 'git commit -qm late')}; {GREET}"))
    assert done.outputs["outcome"] == "completed", done.log
    assert git("show", f"{BRANCH}:greeting.txt", cwd=world.served) == "hello, world\n"
