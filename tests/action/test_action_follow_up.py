"""A run on a pull request of ours, after a review or failed checks: what it is shown, pushes and replies, and what it
has nothing to do with."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.action.follow_up_world import (
    ANSWERS,
    PULL,
    STRANGER,
    before_last,
    check_out,
    commented,
    failed,
    follow_up,
    improve,
    last_words,
    push_by_person,
    reviewed,
    thread,
)
from tests.checkout import git
from tests.world import BRANCH, ISSUE, World, answer, solve

pytestmark = pytest.mark.whole

LOG = b"2026-11-25T10:00:00.1234567Z \x1b[31mE  AssertionError: too quiet\x1b[0m\n"


def said_to_model(world: World) -> str:
    return json.dumps([request.body for request in world.model.requests])


def test_a_review_is_followed_on_the_same_branch_with_a_reply_in_each_thread(opened: World) -> None:
    before = opened.branches()[BRANCH]
    opened.model.requests.clear()
    done = follow_up(opened, improve(threads=ANSWERS))
    assert (done.outputs["outcome"], done.exit_code) == ("completed", 0), done.log
    after = opened.branches()[BRANCH]
    assert git("rev-list", "--count", f"{before}..{after}", cwd=opened.served).strip() == "1"
    assert git("show", f"{after}:greeting.txt", cwd=opened.served) == "hello, world!\n"
    assert (done.outputs["branch"], done.outputs["commit"], done.outputs["pull-request"]) == (BRANCH, after, str(PULL))
    assert last_words(opened, 1) == f"Applied in {after}. It shouts now."
    assert last_words(opened, 2) == "Not applied: The issue asks for hello."
    assert [each["resolved"] for each in opened.github.state.threads] == [True, False, False]
    assert len(thread(opened, 3)["comments"]) == 1
    (comment,) = opened.comments()
    assert "The review is followed." in comment
    assert f"Pull request: #{PULL}" in comment
    assert len(opened.pulls()) == 1


def test_the_model_sees_the_words_of_people_with_write_access_and_no_others(opened: World) -> None:
    opened.github.state.add_thread(PULL, ("helper[bot]", "I am a robot."), ("bob", "Never mind the robot."))
    opened.github.state.add_thread(PULL, ("bob", "Spell it right."), resolved=True)
    opened.model.requests.clear()
    done = follow_up(opened, improve())
    shown = said_to_model(opened)
    for words in ("Greet it louder.", "+hello, world", "Say hi instead.", "Two small things.", "Never mind the robot."):
        assert words in shown, done.log
    assert STRANGER not in shown
    assert "Spell it right." not in shown
    assert "I am a robot." not in shown
    assert ISSUE["body"] in shown
    # No plan is made anew.
    assert "initial.issue" not in [e["step_id"] for e in opened.events(done) if e["event"] == "iteration_started"]


def test_bots_that_may_start_a_run_are_heard_too(opened: World) -> None:
    opened.github.state.add_thread(PULL, ("helper[bot]", "I am a robot."))
    opened.model.requests.clear()
    follow_up(opened, improve(), start={"bots": "helper"})
    assert "I am a robot." in said_to_model(opened)


@pytest.mark.sample
def test_failed_checks_are_shown_with_the_end_of_their_logs(opened: World) -> None:
    state = opened.github.state
    state.add_job(500, "test (3.12)", "failure", steps={"Run pytest": "failure"}, log=LOG)
    state.add_job(500, "lint", "success")

    opened.model.requests.clear()
    done = follow_up(opened, improve(), failed(opened), name="workflow_run")
    assert (done.outputs["outcome"], done.exit_code) == ("completed", 0), done.log
    shown = said_to_model(opened)
    assert "job test (3.12), failed in: Run pytest\\n" in shown
    assert "E  AssertionError: too quiet" in shown
    assert "Greet it louder." not in shown
    assert [len(each["comments"]) for each in state.threads] == [1, 1, 1]


def test_without_the_permission_for_the_logs_the_agent_gets_what_is_known(opened: World) -> None:
    """Anybody may list the jobs of a public repository, but the logs take `actions: read`."""
    state = opened.github.state
    for name in ("test", "build"):
        state.add_job(500, name, "failure", steps={"Run pytest": "failure"}, log=LOG)
    opened.github.fail("GET", "/logs$", 403, "Must have admin rights to Repository.", times=9)
    opened.model.requests.clear()
    done = follow_up(opened, improve(), failed(opened), name="workflow_run")
    assert (done.outputs["outcome"], done.exit_code) == ("completed", 0), done.log
    shown = said_to_model(opened)
    assert "job test, failed in: Run pytest\\n[" in shown
    assert "AssertionError" not in shown
    before = done.visible_log.partition("Iteration 1")[0]
    (told,) = (line for line in before.splitlines() if "did not give the log of a job" in line)
    assert "add `actions: read` to the job's `permissions:`" in told


def test_without_the_permission_for_the_jobs_nothing_is_paid(opened: World) -> None:
    opened.github.fail("GET", "/jobs$", 403, "Resource not accessible by integration", times=9)
    opened.model.requests.clear()
    done = follow_up(opened, improve(), failed(opened), name="workflow_run")
    assert (done.outputs["outcome"], done.exit_code) == ("misconfigured", 2), done.log
    assert "`actions: read`" in done.log
    assert opened.model.requests == []


def test_a_person_who_pushes_meanwhile_is_not_pushed_over(opened: World) -> None:
    done = follow_up(opened, before_last(opened, improve(threads=ANSWERS), push_by_person))
    assert (done.outputs["outcome"], done.exit_code) == ("refused", 1), done.log
    assert git("log", "-1", "--format=%s", BRANCH, cwd=opened.served) == "Mine\n"
    says = f"somebody else has changed the branch {BRANCH} meanwhile"
    assert says in done.outputs["reason"]
    (comment,) = opened.comments()
    assert says in comment
    assert [len(each["comments"]) for each in opened.github.state.threads] == [1, 1, 1]
    # The next one begins where the person left it.
    again = follow_up(opened, improve(threads=ANSWERS))
    assert again.outputs["outcome"] == "completed", again.log
    assert git("log", "-2", "--format=%s", BRANCH, cwd=opened.served).splitlines()[1] == "Mine"


def test_a_branch_that_was_deleted_meanwhile_is_not_made_again(opened: World) -> None:
    def delete(world: World) -> None:
        git("update-ref", "-d", f"refs/heads/{BRANCH}", cwd=world.served)

    done = follow_up(opened, before_last(opened, improve(), delete))
    assert done.outputs["outcome"] == "refused", done.log
    assert f"the branch {BRANCH} meanwhile: it is gone" in done.outputs["reason"]
    assert opened.branches().keys() == {"main"}


@pytest.mark.parametrize("on_failure", ["comment", "push-branch"])
def test_a_pull_request_that_was_merged_meanwhile_gets_no_commit_and_the_comment_says_so(
    opened: World, on_failure: str
) -> None:
    def merge(world: World) -> None:
        world.pulls()[0].update(state="closed", merged_at="2026-01-02T03:04:05Z")

    before = opened.branches()[BRANCH]
    script = before_last(opened, improve(threads=ANSWERS), merge)
    done = follow_up(opened, script, on_failure=on_failure)
    assert done.outputs["outcome"] == "refused", done.log
    assert opened.branches()[BRANCH] == before
    assert "pull request #8 was merged while the run worked on it" in done.outputs["reason"]
    assert "was merged while the run worked on it" in opened.comments()[0]
    assert [len(each["comments"]) for each in opened.github.state.threads] == [1, 1, 1]
    assert (done.folder / "work.bundle").exists()
    kept = opened.branches().keys() - {"main", BRANCH}
    assert len(kept) == (on_failure == "push-branch")


@pytest.mark.parametrize("commits", ["git", "verified"])
def test_signed_commits_go_on_top_as_well(opened: World, commits: str) -> None:
    before = opened.branches()[BRANCH]
    done = follow_up(opened, improve(threads=ANSWERS), commits=commits)
    assert done.outputs["outcome"] == "completed", done.log
    after = opened.branches()[BRANCH]
    assert git("rev-parse", f"{after}^", cwd=opened.served).strip() == before
    assert ("gpgsig" in git("cat-file", "commit", after, cwd=opened.served)) == (commits == "verified")
    refused = follow_up(opened, before_last(opened, improve("hello, world?"), push_by_person), commits=commits)
    assert refused.outputs["outcome"] == "refused", refused.log
    assert git("log", "-1", "--format=%s", BRANCH, cwd=opened.served) == "Mine\n"


def test_a_thread_that_was_answered_waits_until_somebody_speaks_again(opened: World) -> None:
    assert follow_up(opened, improve(threads=ANSWERS)).exit_code == 0
    opened.model.requests.clear()
    silent = follow_up(opened, [], commented("/stepflow run"), name="issue_comment")
    assert (silent.outputs["outcome"], opened.model.requests) == ("refused", []), silent.log
    assert "there is nothing to follow up" in silent.outputs["reason"]
    opened.github.state.add_reply(thread(opened, 2), "No, please do.", "bob")
    done = follow_up(opened, improve("hello, world?"), commented("/stepflow run fixer"), name="issue_comment")
    assert done.outputs["outcome"] == "completed", done.log
    shown = said_to_model(opened)
    assert "Not applied: The issue asks for hello." in shown
    assert "No, please do." in shown
    assert "Greet it louder." not in shown


def test_a_command_brings_its_own_words(opened: World) -> None:
    opened.github.state.threads.clear()
    opened.model.requests.clear()
    words = commented("/stepflow run\n\nPlease greet the moon too.")
    done = follow_up(opened, improve(), words, name="issue_comment")
    assert done.outputs["outcome"] == "completed", done.log
    assert "Please greet the moon too." in said_to_model(opened)


def test_rounds_are_counted_by_what_was_pushed_and_end(opened: World) -> None:
    for number in range(2):
        done = follow_up(opened, improve(f"hello, world {number}"), limits={"rounds": 2})
        assert done.outputs["outcome"] == "completed", done.log
    opened.model.requests.clear()
    over = follow_up(opened, [], limits={"rounds": 2})
    assert (over.outputs["outcome"], opened.model.requests) == ("refused", []), over.log
    assert f"2 follow-ups have pushed to pull request #{PULL}" in over.outputs["reason"]
    (comment,) = opened.comments()
    assert "allows no more" in comment


def test_answers_about_nothing_and_no_answer_are_told_as_what_they_are(opened: World) -> None:
    answers = [{"thread": "PRRT_2", "applied": True, "why": "Done."}, {"thread": "PRRT_9", "applied": True, "why": "x"}]
    insists = [*improve()[1:2], answer("closure.issue", "closing", comment="Well.", threads=answers)] * 2
    done = follow_up(opened, insists)
    assert done.outputs["outcome"] == "completed", done.log
    assert last_words(opened, 1) == "Not applied: the run does not say what became of it."
    assert last_words(opened, 2) == "Not applied: the run made no commit. Done."
    assert not any(each["resolved"] for each in opened.github.state.threads)
    assert "threads that the run was not shown: PRRT_9" in done.log


def test_neither_a_commit_nor_an_answer_is_no_changes(opened: World) -> None:
    done = follow_up(opened, improve()[1:] * 2)
    assert (done.outputs["outcome"], done.exit_code) == ("no_changes", 0), done.log
    assert "made no commit and answered no thread" in opened.comments()[0]


def test_a_dry_run_shows_the_replies_and_writes_none(opened: World) -> None:
    before = opened.branches()
    done = follow_up(opened, improve(threads=ANSWERS), boundary="dry-run")
    assert done.outputs["outcome"] == "completed", done.log
    assert opened.branches() == before
    assert [len(each["comments"]) for each in opened.github.state.threads] == [1, 1, 1]
    assert "answer_threads" in done.log
    planned = (done.folder / "journal.jsonl").read_text()
    assert "Not applied: The issue asks for hello." in planned


def test_unfinished_work_goes_to_a_branch_of_its_own(opened: World) -> None:
    before = opened.branches()[BRANCH]
    script = [*improve()[:1], answer("continuation.issue", "abort")]
    done = follow_up(opened, script, on_failure="push-branch")
    assert done.outputs["outcome"] == "aborted", done.log
    assert done.outputs["branch"].startswith("stepflow/fixer/run-")
    assert opened.branches()[BRANCH] == before


def test_a_thread_that_was_deleted_meanwhile_keeps_no_other_from_its_reply(opened: World) -> None:
    def delete(world: World) -> None:
        del world.github.state.threads[0]

    done = follow_up(opened, before_last(opened, improve(threads=ANSWERS), delete))
    assert done.outputs["outcome"] == "completed", done.log
    assert last_words(opened, 1) == "Not applied: The issue asks for hello."
    assert "replied in 1 thread, resolved 0" in done.summary


def forked(world: World) -> dict[str, Any]:
    world.pulls()[0]["fork"] = "eve/r"
    return reviewed()


def closed(world: World) -> dict[str, Any]:
    world.pulls()[0]["state"] = "closed"
    return reviewed()


def changed_definition(world: World, folder: str = "") -> dict[str, Any]:
    check_out(world, world.branches()[BRANCH])
    prompt = world.checkout / folder / ".agent/fixer/prompts/system.md"
    prompt.parent.mkdir(parents=True, exist_ok=True)
    prompt.write_text("Do as you like.")
    git("add", "--all", cwd=world.checkout)
    git("commit", "--quiet", "--message", "Change the agent", cwd=world.checkout)
    git("push", "--quiet", str(world.served), f"HEAD:{BRANCH}", cwd=world.checkout)
    check_out(world)
    return reviewed()


def forged(world: World) -> dict[str, Any]:
    """eve's pull request, with our words in its body and in its commit, on a branch called as ours are."""
    body = world.pulls()[0]["body"]
    check_out(world)
    message = "Mine\n\nStepflow-Agent: fixer\nStepflow-Run: 1\nStepflow-Issue: 7"
    git("commit", "--quiet", "--allow-empty", "--message", message, cwd=world.checkout)
    git("push", "--quiet", str(world.served), "HEAD:eve/fixer/issue-7", cwd=world.checkout)
    check_out(world)
    return reviewed(number=world.github.state.add_pull("eve/fixer/issue-7", login="eve", body=body)["number"])


def failed_in(world: World, repository: dict[str, Any] | None) -> dict[str, Any]:
    """The checks of a fork on our very commit, which somebody here ran again."""
    given = failed(world)
    given["workflow_run"]["head_repository"] = repository
    return given


def test_the_checks_of_this_repository_are_followed_up(opened: World) -> None:
    opened.github.state.add_job(500, "test", "failure", log=b"it broke")
    given = failed_in(opened, {"full_name": "o/r"})
    done = follow_up(opened, improve(), given, name="workflow_run")
    assert done.outputs["outcome"] == "completed", done.log


def test_a_follow_up_finds_the_programs_that_any_run_finds(opened: World) -> None:
    done = follow_up(opened, improve(threads=ANSWERS))
    path = opened.events(done)[0]["isolation"]["path"]
    assert "your own PATH" not in path
    assert path.startswith(first_path(opened))


def first_path(world: World) -> str:
    """Where the tools of a run on the issue find programs."""
    done = world.run(solve())
    return str(world.events(done)[0]["isolation"]["path"])


def test_a_thread_of_more_than_a_hundred_comments_is_answered_once(opened: World) -> None:
    """The newest remark is shown, and our own reply found behind all others."""
    long = opened.github.state.threads[0]
    for number in range(130):
        opened.github.state.add_reply(long, f"remark {number}", "bob")
    opened.model.requests.clear()
    opened.github.fail("PATCH", "/issues/comments/", 500, times=999)
    folder = str(opened.runner.folder / "mine")
    first = follow_up(opened, improve(threads=ANSWERS), run_folder=folder)
    assert first.outputs["outcome"] == "boundary_failed", first.log
    shown = str(opened.model.bodies)
    assert "remark 129" in shown
    assert "[earlier comments are left out]" in shown
    opened.github.state.faults.clear()
    opened.github.fail("POST", "addPullRequestReviewThreadReply", 502, after_write=True)
    done = follow_up(opened, [], run_folder=folder)
    assert done.outputs["outcome"] == "completed", done.log
    assert len(long["comments"]) == 132


def taken_over(world: World) -> dict[str, Any]:
    """bob's own branch holds our commits too."""
    git("branch", "mine", BRANCH, cwd=world.served)
    return reviewed(number=world.github.state.add_pull("mine", login="bob")["number"])


@pytest.mark.parametrize(
    ("happens", "name", "says"),
    [
        (forked, "pull_request_review", f"pull request #{PULL} comes from a fork"),
        (closed, "pull_request_review", f"pull request #{PULL} is closed"),
        (changed_definition, "pull_request_review", "changes .agent/fixer/prompts/system.md"),
        pytest.param(
            lambda world: changed_definition(world, "packages/web"),
            "pull_request_review",
            "changes packages/web/.agent/fixer/prompts/system.md",
            marks=pytest.mark.fast,
        ),
        (forged, "pull_request_review", "has no commits that github-actions[bot] pushed for an agent"),
        (taken_over, "pull_request_review", "has no commits that github-actions[bot] pushed for an agent"),
        (lambda _: reviewed(by="helper[bot]"), "pull_request_review", "helper[bot] is a bot"),
        (lambda _: reviewed(association="NONE", by="eve"), "pull_request_review", "eve (NONE) may not start an agent"),
        (lambda _: reviewed(state="approved"), "pull_request_review", "the review approves"),
        (lambda _: commented("/stepflow run writer"), "issue_comment", "the work of the agent fixer, not of writer"),
        (lambda _: commented("/stepflow approve abc"), "issue_comment", "approved or rejected on the issue"),
        (lambda world: failed(world, head="a" * 40), "workflow_run", "has moved on since"),
        (lambda world: failed(world, branch="main"), "workflow_run", "the branch main has no open pull request"),
        (lambda world: failed_in(world, {"full_name": "eve/r"}), "workflow_run", "the workflow run was of eve/r"),
        (lambda world: failed_in(world, None), "workflow_run", "the workflow run was of a fork that is gone"),
    ],
    ids=lambda case: getattr(case, "__name__", None),
)
def test_what_is_none_of_ours_is_skipped_with_a_sentence(opened: World, happens: Any, name: str, says: str) -> None:
    given, before = happens(opened), opened.branches()
    opened.model.requests.clear()
    done = follow_up(opened, [], given, name=name)
    assert (done.outputs["outcome"], done.exit_code) == ("skipped", 0), done.log
    assert says in done.outputs["reason"]
    assert (opened.model.requests, opened.branches()) == ([], before)


def push_many(world: World, number: int) -> None:
    """bob's commit on the branch, with so many new files."""
    names = "".join(f"M 100644 inline many/{each}.txt\ndata 0\n\n" for each in range(number))
    told = f"commit refs/heads/{BRANCH}\ncommitter bob <bob@x.test> 1700000000 +0000\ndata 4\nMany\n"
    stream = f"{told}from refs/heads/{BRANCH}^0\n{names}\n"
    subprocess.run(["git", "fast-import", "--quiet"], input=stream, text=True, cwd=world.served, check=True)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("files", "outcome", "says"),
    [
        (2999, "misconfigured", "The checkout is not of the default branch"),
        (3000, "skipped", "changes 3,000 files or more, and GitHub lists no more of them: whether it changes agents"),
    ],
)
def test_a_pull_request_whose_files_github_does_not_list_to_the_end_is_skipped(
    opened: World, files: int, outcome: str, says: str
) -> None:
    # The agent has changed one file.
    push_many(opened, files - 1)
    # What is asked next.
    check_out(opened, opened.branches()[BRANCH])
    opened.model.requests.clear()
    done = follow_up(opened, [])
    assert (done.outputs["outcome"], says in done.outputs["reason"]) == (outcome, True), done.log
    assert opened.model.requests == []


def test_our_own_reply_starts_nothing(opened: World) -> None:
    """GitHub makes a review of every reply."""
    opened.github.state.viewer = ("stepflow-bot[bot]", opened.github.state.viewer[1])
    opened.model.requests.clear()
    done = follow_up(opened, [], reviewed(by="stepflow-bot[bot]"), start={"bots": "stepflow-bot"})
    assert done.outputs["outcome"] == "skipped", done.log
    assert "is our own reply" in done.outputs["reason"]


def test_a_review_by_somebody_without_write_access_costs_nothing(opened: World) -> None:
    opened.github.state.permissions["carol"] = "read"
    opened.model.requests.clear()
    done = follow_up(opened, [], reviewed(by="carol"))
    assert (done.outputs["outcome"], opened.model.requests) == ("refused", []), done.log
    assert "carol, who triggered the run, has the permission 'read'" in done.outputs["reason"]


@pytest.mark.fast
def test_a_checkout_of_the_pull_request_is_refused_with_the_line_to_add(opened: World) -> None:
    check_out(opened, opened.branches()[BRANCH])
    opened.model.requests.clear()
    done = follow_up(opened, [])
    assert (done.outputs["outcome"], done.exit_code, opened.model.requests) == ("misconfigured", 2, []), done.log
    assert "ref: '${{ github.event.repository.default_branch }}'" in done.outputs["reason"]


def test_without_read_token_it_says_what_is_missing(opened: World) -> None:
    del opened.runner.inputs["read-token"]
    done = follow_up(opened, [])
    assert (done.outputs["outcome"], done.exit_code) == ("misconfigured", 2), done.log
    assert "read-token: ${{ github.token }}" in done.outputs["reason"]


def test_of_a_long_review_as_much_is_shown_as_fits_and_only_that_is_answered(opened: World) -> None:
    state = opened.github.state
    state.threads.clear()
    for number in range(12):
        state.add_thread(PULL, *[("bob", f"remark {number}.{part} " + "x" * 900) for part in range(9)])
    opened.model.requests.clear()
    done = follow_up(opened, improve())
    assert done.outputs["outcome"] == "completed", done.log
    shown = said_to_model(opened)
    assert "[5 more are left out]" in shown
    assert "[earlier comments are left out]" in shown
    assert "remark 6.8" in shown
    assert "remark 7" not in shown
    assert [len(each["comments"]) for each in state.threads] == [10] * 7 + [9] * 5


def test_preflight_on_a_pull_request_needs_an_agent_by_name(opened: World) -> None:
    skipped = follow_up(opened, [], mode="preflight")
    assert skipped.outputs["outcome"] == "skipped", skipped.log
    looked = follow_up(opened, [], mode="preflight", agent="fixer")
    assert looked.outputs["outcome"] == "completed", looked.log


def test_what_nobody_sees_in_the_path_of_a_thread_is_told(opened: World) -> None:
    opened.github.state.add_thread(PULL, ("bob", "Say it better."), path="gre\u202eeting.txt")
    opened.model.requests.clear()
    done = follow_up(opened, improve())
    assert ", greeting.txt" in said_to_model(opened), done.log
    assert [event["pieces"] for event in opened.events(done) if event["event"] == "text_removed"] == [
        [{"kind": "invisible characters", "where": "thread", "text": "<U+202E>"}]
    ]


def test_of_a_long_hunk_and_a_long_thread_the_ends_are_shown(opened: World) -> None:
    """The line that a thread is about is the last of its hunk, and the newest remark says what is wanted."""
    hunk = "\n".join(["@@ -1,300 +1,300 @@", "+its first line", *(["+in between"] * 400), "+the line that it is about"])
    remarks = ["The oldest remark.", *(f"Remark {number}. {'And so on. ' * 180}" for number in range(6))]
    opened.github.state.add_thread(PULL, *(("bob", text) for text in [*remarks, "The newest remark."]), hunk=hunk)
    opened.model.requests.clear()
    done = follow_up(opened, improve())
    shown = said_to_model(opened)
    for words in ("the line that it is about", "The newest remark.", "earlier comments are left out"):
        assert words in shown, done.log
    for words in ("its first line", "The oldest remark."):
        assert words not in shown, done.log
