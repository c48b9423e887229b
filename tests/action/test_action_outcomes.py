"""Every way in which a run can end, as a job sees it: exit code, outputs, annotation, summary, journal, GitHub."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from stepflow.domain.words import Outcome
from stepflow.report.wording import OUTCOMES
from stepflow.sandbox.box import Toolbox
from tests.checkout import Invocation, git
from tests.readable import stumbles
from tests.servers.messages_api import Failure, Reply
from tests.world import (
    BRANCH,
    COMMIT,
    World,
    answer,
    bash,
    by_owner,
    drop_checks,
    label_event,
    losing_access,
    solve,
    understood,
)

pytestmark = pytest.mark.whole

WORK_ON = answer("continuation.issue", "repeat", summary="still at it")
HANDED_OVER = answer("continuation.issue", "handoff", summary="done")
CLAIM = answer("closure.issue", "closing", comment="done")


def assert_ended(world: World, done: Invocation, outcome: str, exit_code: int = 1) -> None:
    """The same everywhere: exit code, outputs, one annotation, summary, and a journal that is whole."""
    assert (done.outputs["outcome"], done.exit_code) == (outcome, exit_code), done.log
    assert done.outputs["success"] == "false"
    assert done.outputs["reason"].startswith(("Before the run: ", "Flow loop: ", "Completion loop: "))
    (annotation,) = done.annotations
    words = OUTCOMES[Outcome(outcome)]
    report = done.report
    assert annotation.startswith(f"::error title=fixer%3A {words}::{report['explanation'][:20]}")
    sign = "⏹️" if outcome == "cancelled" else "❌"
    assert f"## {sign} fixer on issue #7: {words}\n\n**Reason** (`{outcome}`): " in done.summary
    assert "**What to do next:**" in done.summary
    assert stumbles(done.outputs["reason"]) == []
    assert [fault for line in done.log.splitlines() for fault in stumbles(line) if "│" not in line] == []
    last = world.events(done)[-1]
    assert (last["event"], last["outcome"], last["reason"]) == ("run_finished", outcome, report["explanation"])
    assert (report["outcome"], report["reason"]) == (outcome, done.outputs["reason"])


def test_attempts_that_are_used_up_are_told_with_the_validators_output(world: World) -> None:
    claim = [HANDED_OVER, CLAIM]
    done = world.run([understood(), bash("echo draft > notes.txt"), *claim, *claim, *claim])
    assert_ended(world, done, "validation_failed")
    assert 'validator "git-clean" failed' in done.outputs["reason"]
    assert "attempt 3 of 3" in done.outputs["reason"]
    assert world.wrote_nothing(but_comments=1)
    (comment,) = world.comments()
    assert "?? notes.txt" in comment
    assert "❌ `git status --porcelain` (git-clean): attempt 3" in comment
    assert "its output is not empty" in comment
    assert "exit code 0" not in comment + done.log
    assert [tag for tag in ("<code", "<\u200b", "flowchart") if tag in comment] == []
    assert "put the label on again" in comment
    assert (done.outputs["validated"], done.outputs["comment-url"]) == (
        "false",
        f"{world.git_server.url}/o/r/issues/7#issuecomment-9000",
    )


def test_a_validator_that_cannot_run_ends_it_at_once(world: World) -> None:
    world.edit(
        "steps_registry.json", lambda registry: registry["validators"]["greeting"].update(command="greeter --check")
    )
    done = world.run(solve())
    assert_ended(world, done, "validation_failed")
    assert "trying again cannot help" in done.outputs["reason"]
    assert "install it with the input setup or apt-packages" in done.outputs["reason"]
    assert "greeter" in world.comments()[0]
    assert world.wrote_nothing(but_comments=1)


def test_a_validator_whose_failure_aborts_ends_it_at_once(world: World) -> None:
    def abort(registry: Any) -> None:
        registry["validationSteps"]["closure.issue"]["onFailure"] = {"action": "abort"}

    world.edit("steps_registry.json", abort)
    done = world.run([understood(), HANDED_OVER, CLAIM])
    assert_ended(world, done, "validation_failed")
    assert "greeting.txt says: hello" in world.comments()[0]


def test_a_model_that_gives_up_is_quoted(world: World) -> None:
    done = world.run([answer("initial.issue", "abort", reason="The issue does not say which world.")])
    assert_ended(world, done, "aborted")
    assert "initial.issue is through" in done.outputs["reason"]
    assert "Add what it is missing to the issue" in world.comments()[0]
    assert world.wrote_nothing(but_comments=1)


def test_the_iteration_limit_is_named_with_the_input_that_raises_it(world: World) -> None:
    done = world.run([understood(), *[WORK_ON] * 9], limits={"iterations": 3})
    assert_ended(world, done, "limit_reached")
    assert (done.outputs["iterations"], len(world.model.bodies)) == ("3", 3)
    assert "limits.iterations" in world.comments()[0]
    assert world.wrote_nothing(but_comments=1)


def test_visits_of_one_step_are_limited(world: World) -> None:
    world.edit("agent.json", lambda agent: agent["runner"]["verdict"]["config"].update(maxVisitsPerStep=2))
    done = world.run([understood(), *[WORK_ON] * 9])
    assert_ended(world, done, "limit_reached")
    assert "maxVisitsPerStep" in done.outputs["reason"]
    assert len(world.model.bodies) == 3


@pytest.mark.parametrize("budget", [{"tokens": 1500}, {"usd": 0.007}])
def test_a_budget_stops_the_run_before_the_next_turn(world: World, budget: dict[str, str]) -> None:
    done = world.run([understood(), *[WORK_ON] * 9], limits=budget)
    assert_ended(world, done, "budget_exhausted")
    assert next(iter(budget)).replace("_", "-") in done.outputs["reason"]
    assert len(world.model.bodies) == 2
    assert world.wrote_nothing(but_comments=1)


def test_a_comment_that_github_takes_only_later_tells_of_the_broken_boundary(world: World) -> None:
    world.github.fail("POST", r"/issues/7/comments$", 500, times=5)
    done = world.run(solve())
    assert_ended(world, done, "boundary_failed")
    (comment,) = world.comments()
    assert "boundary_failed" in comment
    assert "post\\_comment" in comment
    assert done.outputs["comment-url"]


def test_a_forbidden_pull_request_is_told_with_the_setting_to_change(world: World) -> None:
    said = "GitHub Actions is not permitted to create or approve pull requests."
    world.github.fail("POST", r"/pulls$", 403, said)
    done = world.run(solve())
    assert_ended(world, done, "boundary_failed")
    assert effects(done) == {
        "push_branch": "applied",
        "open_pull_request": "forbidden",
        "post_comment": "applied",
        "add_labels": "applied",
        "remove_labels": "applied",
    }
    (comment,) = world.comments()
    for text in (comment, done.outputs["reason"]):
        assert "Allow GitHub Actions to create and approve pull requests" in text
        assert "Settings → Actions → General" in text
    assert f"/compare/main...{BRANCH.replace('/', '/')}?expand=1" in comment
    assert (done.outputs["branch"], done.outputs["pull-request"]) == (BRANCH, "")
    assert world.github.state.issues[7]["state"] == "open"


def test_somebody_who_loses_write_access_meanwhile_is_refused_and_nothing_is_written(world: World) -> None:
    done = world.run(losing_access(world, solve()))
    assert_ended(world, done, "refused")
    assert "start.min-permission" in done.outputs["reason"]
    assert world.wrote_nothing()
    assert world.github.writes() == []
    assert set(effects(done).values()) == {"planned"}


def test_what_was_refused_after_the_work_is_kept_where_on_failure_says(world: World) -> None:
    """Only the commits that may not leave are refused: the push of the kept work is refused as well, and said."""
    make = "python3 -c \"print('hello, world gh' + 'p_' + 'aZ09' * 9)\" > greeting.txt"
    remove = f"echo 'hello, world' > greeting.txt && {COMMIT}"
    done = world.run(
        [understood(), bash(f"{make} && {COMMIT}"), WORK_ON, bash(remove), *solve()[2:] * 3], on_failure="push-branch"
    )
    assert_ended(world, done, "refused")
    assert "what looks like a credential: GitHub Token in greeting.txt, line 1, commit" in done.outputs["reason"]
    (comment,) = world.comments()
    assert "GitHub Token in greeting.txt, line 1" in comment
    assert "could not be kept on a branch" in comment
    assert world.wrote_nothing(but_comments=1)
    folder = done.folder
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix in (".jsonl", ".json", ".html")]
    assert {"journal.jsonl", "report.html"} <= {path.name for path in files}
    for text in (comment, done.log, done.summary, *(path.read_text() for path in files)):
        assert "aZ09aZ09" not in text
    assert "***" in (folder / "report.html").read_text()


def test_a_closing_without_a_commit_of_an_agent_that_closes_by_merging_is_no_changes(world: World) -> None:
    github = {"defaultClosureAction": "close", "closeBy": "merge"}
    world.edit("agent.json", lambda agent: agent["runner"]["integrations"].update(github=github))
    world.edit("steps_registry.json", drop_checks)
    done = world.run([understood(), *solve()[2:] * 2])
    assert (done.outputs["outcome"], done.outputs["success"], done.exit_code) == ("no_changes", "false", 0), done.log
    assert "the run made no commit" in done.outputs["reason"]
    (comment,) = world.comments()
    assert "> No changes: the run made no commit, so there is no pull request, and the issue stays open." in comment
    assert world.github.state.issues[7]["state"] == "open"
    assert (world.pulls(), list(world.branches())) == ([], ["main"])
    assert [line.split(" ")[0] for line in done.annotations] == ["::notice"]
    assert "no changes" in done.summary.splitlines()[0]


def test_a_repository_that_the_model_destroyed_ends_without_a_traceback(world: World) -> None:
    done = world.run([understood(), bash("rm -rf .git"), *solve()[2:], *[HANDED_OVER, CLAIM] * 3])
    assert_ended(world, done, "validation_failed")
    assert "exit code 128" in done.outputs["reason"]
    assert world.wrote_nothing(but_comments=1)


def test_commits_that_cannot_be_taken_out_of_the_checkout_are_refused(world: World) -> None:
    world.edit("steps_registry.json", drop_checks)
    done = world.run([understood(), bash("rm -rf .git"), *solve()[2:]])
    assert_ended(world, done, "refused")
    assert "The commits cannot be read from the workspace" in done.outputs["reason"]
    assert world.wrote_nothing(but_comments=1)


def test_a_sandbox_that_cannot_be_closed_ends_the_run_with_the_place_of_its_commits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Toolbox, "ended_all", False)
    done = world.run(solve())
    assert_ended(world, done, "refused")
    assert "A process of the tools may have survived the run." in done.outputs["reason"]
    for text in (done.outputs["reason"], world.comments()[0], done.summary):
        assert "The commits are kept in work.bundle in the run folder." in text
    assert (done.folder / "work.bundle").exists()
    assert world.wrote_nothing(but_comments=1)


def test_unfinished_work_can_be_kept_on_a_branch(world: World) -> None:
    script = [understood(), bash(f"echo hullo > greeting.txt && {COMMIT}"), *[WORK_ON] * 9]
    done = world.run(script, limits={"iterations": 2}, on_failure="push-branch")
    assert_ended(world, done, "limit_reached")
    branch = done.outputs["branch"]
    assert branch.startswith("stepflow/fixer/run-1001-1")
    assert git("show", f"{branch}:greeting.txt", cwd=world.served) == "hullo\n"
    assert f"kept on the branch `{branch}`" in world.comments()[0]
    assert (world.pulls(), world.labels()) == ([], {"agent:fixer", "bug"})
    assert f"the unfinished work is kept on the branch {branch}" in done.log
    assert done.outputs["commit"] == world.branches()[branch]


@pytest.mark.parametrize("commits", ["git", "verified"])
def test_unfinished_work_moves_no_branch_that_a_pull_request_shows(world: World, commits: str) -> None:
    given = {"on_failure": "push-branch", "commits": commits}
    assert world.run(solve(), **given).outputs["outcome"] == "completed"
    validated = world.branches()[BRANCH]
    world.check_out_again()
    script = [understood(), bash(f"echo hullo > greeting.txt && {COMMIT}"), answer("continuation.issue", "abort")]
    done = world.run(script, **given)
    assert_ended(world, done, "aborted")
    assert world.branches() == {
        "main": world.branches()["main"],
        BRANCH: validated,
        done.outputs["branch"]: done.outputs["commit"],
    }
    assert f"The unfinished work is kept on the branch `{done.outputs['branch']}`." in world.comments()[0]


def test_validated_work_that_was_pushed_is_not_kept_once_more(world: World) -> None:
    world.github.fail("POST", "/repos/o/r/pulls$", 403, "GitHub Actions is not permitted to create pull requests")
    done = world.run(solve(), on_failure="push-branch")
    assert_ended(world, done, "boundary_failed")
    assert world.branches().keys() == {"main", BRANCH}
    assert done.outputs["branch"] == BRANCH


def test_failures_are_not_reported_when_nobody_wants_it(world: World) -> None:
    done = world.run([answer("initial.issue", "abort")], on_failure="nothing")
    assert_ended(world, done, "aborted")
    assert world.wrote_nothing()
    assert len(world.github.requests) == world.requests_before_turn[0], "nothing after the model's last word"


def test_a_failed_run_after_a_completed_one_updates_the_same_comment(world: World) -> None:
    world.run(solve())
    world.check_out_again()
    done = world.run([answer("initial.issue", "abort")])
    assert_ended(world, done, "aborted")
    (comment,) = world.comments()
    assert "aborted" in comment
    assert f"commit={world.branches()[BRANCH]}" in comment


@pytest.mark.sample
def test_an_issue_edited_meanwhile_is_told_and_the_events_text_is_used(world: World) -> None:
    done = world.run(solve(), label_event(body="Say hello to the world."))
    assert done.exit_code == 0, done.log
    assert "Say hello to the world." in json.dumps(world.model.bodies[0])
    assert "says only" not in json.dumps(world.model.bodies), "what GitHub has by now is not read"
    assert "The issue has been edited since" in world.comments()[0]


@pytest.mark.parametrize("replies", [[Failure(status=401)], solve()])
def test_a_dry_run_without_a_token_asks_github_nothing(world: World, replies: list[Reply]) -> None:
    done = world.run(replies, by_owner(), boundary="dry-run", github_token="", read_token="")
    assert done.outputs["outcome"] in ("model_failed", "completed")
    assert world.requests_made() == 0


def test_a_dry_run_shows_word_by_word_what_a_real_one_writes(world: World) -> None:
    answered = {"comment": "Done, @ann.", "pull_request": {"title": "Greet", "body": "Fixes #3."}}
    closing = answer("closure.issue", "closing", **answered)
    dry = world.run([*solve()[:-1], closing], by_owner(), boundary="dry-run", github_token="")
    git(
        "reset",
        "--quiet",
        "--hard",
        dry.report["base_commit"],
        cwd=world.checkout,
    )
    real = world.run([*solve()[:-1], closing])
    assert (dry.outputs["outcome"], real.outputs["outcome"]) == ("completed", "completed"), dry.log + real.log
    texts = dry.report["texts"]
    (pull,), (comment,) = world.pulls(), world.comments()
    shown = re.sub(r"\n?<!-- /?stepflow\b.*?-->\n?", "", str(pull["body"]))
    assert _masked(texts["open_pull_request"]) == _masked(f"{pull['title']}\n\n{shown}")
    assert _masked(texts["post_comment"]).rstrip() in _masked(comment)
    assert "@ann" not in texts["post_comment"], "it is filtered as a real one is"
    assert all(f"│ {line}" in dry.log for line in texts["post_comment"].splitlines() if line and line.isascii())
    assert "<summary>What post_comment would write</summary>" in dry.summary
    assert real.report["texts"] == {}


def _masked(text: str) -> str:
    """Without ids of runs and what takes time."""
    return re.sub(r"\b1001-1-\w+|[\d,]+ tokens · \$[\d.]+ · [\d.]+ s\b", "<varies>", text)


def effects(done: Invocation) -> dict[str, str]:
    """Kind → status, as effects.json has them."""
    effects = json.loads((done.folder / "effects.json").read_text())["effects"]
    return {effect["kind"]: effect["status"] for effect in effects}


def test_a_pull_request_that_somebody_else_has_opened_is_named_by_the_outputs(world: World) -> None:
    """Its effect is skipped, since others' pull requests are left as they are; the work is there all the same."""
    pull = {"title": "Mine", "body": "", "head": BRANCH, "base": "main", "number": 50, "state": "open", "login": "eve"}
    world.pulls().append(pull)
    done = world.run(solve())
    assert done.outputs["outcome"] == "completed", done.log
    effects = done.report["effects"]
    assert [each["status"] for each in effects if each["kind"] == "open_pull_request"] == ["skipped"]
    assert done.outputs["pull-request"] == "50"
    assert done.outputs["pull-request-url"].endswith("/pull/50")
    assert world.pulls() == [pull]


def test_commits_that_are_too_large_to_be_pushed_are_not_collected_either(world: World) -> None:
    big = "head -c 36000000 /dev/urandom > big.bin && git add big.bin && "
    done = world.run([understood(), bash(f"{big}echo 'hello, world' > greeting.txt && {COMMIT}"), *solve()[2:] * 3])
    assert (done.exit_code, done.outputs["outcome"]) == (1, "refused"), done.log
    assert "Let the agent commit less" in done.outputs["reason"]
    assert "Let the agent commit less" in world.comments()[0]
    assert world.wrote_nothing(but_comments=1)
    folder = done.folder
    assert sum(path.stat().st_size for path in folder.glob("work.bundle*")) <= 32 * 1024 * 1024
