"""The review of a pull request: what is planned, and what stands on GitHub afterwards."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cmarkgfm.cmark import Options, github_flavored_markdown_to_html

from stepflow.boundary.apply import ApplyResult
from stepflow.boundary.failure import confirm_receipts
from stepflow.boundary.github_failures import RetryPolicy
from stepflow.boundary.github_writer import GitHubWriter
from stepflow.boundary.output_filter import OutputFilter
from stepflow.boundary.plan import plan_effects
from stepflow.boundary.review import find_suggestions
from stepflow.boundary.settings import Plan, RequestedComment, RequestedReview
from stepflow.domain.effect import EffectKind, Receipt, SubmitReview, SuggestionResults, TriedSuggestion
from stepflow.domain.json import JsonObject
from stepflow.domain.run import DiffLines, Issue, ReviewedFile, ReviewedPull
from stepflow.domain.text import Spent
from stepflow.domain.words import Outcome
from tests.boundary.agents import BOT, agent, apply, facts, result, settings
from tests.boundary.rendered import faults
from tests.fakes import StillClock
from tests.servers.github_api import GitHubServer, State
from tests.servers.reviews import diff_hunks

ALLOWED = ("review", "labels")
BEFORE = "".join(f"line {number}\n" for number in range(1, 41))
REVIEWS = "/api/v3/repos/o/r/pulls/8/reviews"


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=ann", "-c", "user.email=ann@x.test")
    return subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def commit(folder: Path, files: dict[str, str | None], branch: str = "topic") -> str:
    """Commit files on a branch; None removes one."""
    git(folder, "checkout", "--quiet", "-B", branch)
    for path, text in files.items():
        if text is None:
            (folder / path).unlink()
        else:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(text.encode())
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Change it")
    return git(folder, "rev-parse", "HEAD").strip()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the branches main and topic, in which line 20 is another one."""
    folder = tmp_path_factory.mktemp("reviewed") / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet", "--template=", "--initial-branch=main")
    commit(folder, {"a.py": BEFORE, "old.py": BEFORE}, "main")
    commit(folder, {"a.py": BEFORE.replace("line 20\n", "line twenty\n")})
    return folder


@pytest.fixture
def repository(tmp_path: Path, template: Path, state: State) -> Path:
    """A copy of the template, and its pull request."""
    folder = shutil.copytree(template, tmp_path / "repository")
    state.git_dir = folder / ".git"
    state.add_pull("topic", login="tom", title="Count in words")
    state.issues[8] = {"title": "Count in words", "body": "", "state": "open", "labels": [], "pull_request": True}
    return folder


def pull(folder: Path, *, branch: str = "topic", **changes: Any) -> ReviewedPull:
    """What a run knows of the pull request, with the lines that GitHub's diff shows."""
    head = git(folder, "rev-parse", branch).strip()
    names = git(folder, "diff", "--name-only", f"main...{branch}").split()
    files = []
    for name in names:
        hunks = diff_hunks(git(folder, "diff", "-M", f"main...{branch}", "--", name))
        sides = {
            side: tuple(DiffLines(first=hunk[side].start, last=hunk[side].stop - 1) for hunk in hunks if hunk[side])
            for side in ("RIGHT", "LEFT")
        }
        files.append(ReviewedFile(path=name, right=sides["RIGHT"], left=sides["LEFT"]))
    whole = ReviewedPull(
        number=8,
        url="https://github.com/o/r/pull/8",
        author="tom",
        base="main",
        base_commit=git(folder, "rev-parse", "main").strip(),
        head=head,
        merge=head,
        files=tuple(files),
    )
    return replace(whole, **changes)


def review(*comments: JsonObject, verdict: str = "comment", summary: str = "I looked at it.") -> JsonObject:
    return {"review": {"summary": summary, "verdict": verdict, "comments": [*comments]}}


def on(line: int, body: str = "This counts twice.", **more: Any) -> JsonObject:
    return {"path": "a.py", "line": line, "body": body, **more}


def plan(
    reviewed: ReviewedPull,
    answer: JsonObject,
    *,
    run_id: str = "run-1",
    tried: SuggestionResults | None = None,
    cost: Spent | None = None,
    verified: str = "Checks: none.",
    **github: Any,
) -> Plan:
    return plan_effects(
        agent(**{"allowed_effects": ALLOWED, **github}),
        facts(Issue(number=8, title="Count in words", author="tom"), reviewed=reviewed, run_id=run_id),
        result(answer),
        settings(started_by_label=None),
        summary="The run is over.",
        verified=verified,
        commits=None,
        tried=tried,
        cost=cost,
    )


def submitted(planned: Plan) -> SubmitReview:
    (effect,) = planned.effects
    assert isinstance(effect, SubmitReview)
    return effect


def offered(*numbers: int, **problems: str) -> SuggestionResults:
    good = [TriedSuggestion(comment=number, place="`a.py:20`") for number in numbers]
    bad = [TriedSuggestion(comment=int(n[1:]), place="`a.py:20`", problem=why) for n, why in problems.items()]
    return SuggestionResults(suggestions=(*good, *bad), checks=("test",))


def submit(
    reviewed: ReviewedPull, answer: JsonObject, writer: GitHubWriter, done: tuple[Receipt, ...] = (), **given: Any
) -> tuple[ApplyResult, list[Receipt]]:
    applied, receipts = apply(plan(reviewed, answer, **given), writer, done=done)
    return applied, receipts


def lines_of(github: GitHubServer) -> list[tuple[str, int]]:
    """Where the comments on lines are."""
    return [(thread["path"], thread["line"]) for thread in github.state.threads]


def test_one_review_has_a_summary_and_comments_on_lines(
    github: GitHubServer, writer: GitHubWriter, repository: Path
) -> None:
    applied, (receipt,) = submit(pull(repository), review(on(20), on(18, "And this.")), writer)
    assert applied.outcome is Outcome.COMPLETED
    (made,) = github.state.reviews
    assert (made["state"], lines_of(github)) == ("COMMENTED", [("a.py", 20), ("a.py", 18)])
    assert made["body"].startswith("<!-- stepflow -->\nI looked at it.\n\n---\n\nChecks: none.")
    assert made["commit"] == git(repository, "rev-parse", "topic").strip()
    assert (receipt.detail, receipt.number) == ("submitted (comment) with 2 comments on lines", made["id"])
    assert github.writes() == [f"POST {REVIEWS}"]


def test_a_comment_on_other_lines_is_in_the_summary_and_says_where(
    github: GitHubServer, writer: GitHubWriter, repository: Path
) -> None:
    answer = review(on(3, "Far away."), {"path": "README.md", "body": "No file."}, on(20, start_line=2), on(20))
    submit(pull(repository), answer, writer)
    body = github.state.reviews[0]["body"]
    moved = body.partition("**On lines that the diff does not show:**")[2]
    assert "**`a.py:3`**\n\nFar away." in moved
    assert "**`README.md`**\n\nNo file." in moved
    assert "**`a.py:2-20`**" in moved
    assert lines_of(github) == [("a.py", 20)]


def test_lines_are_counted_as_in_the_version_of_the_pull_request(
    github: GitHubServer, writer: GitHubWriter, repository: Path
) -> None:
    """The workspace is the merge with a base that has two more lines above."""
    files = (ReviewedFile(path="a.py", right=(DiffLines(first=19, last=25, shift=-2),)),)
    submit(pull(repository, files=files), review(on(22, start_line=21)), writer)
    (thread,) = github.state.threads
    assert (thread["start_line"], thread["line"]) == (19, 20)


def test_a_removed_line_can_have_a_comment(github: GitHubServer, writer: GitHubWriter, repository: Path) -> None:
    submit(pull(repository), review(on(20, side="LEFT", suggestion="x")), writer)
    assert (github.state.threads[0]["side"], lines_of(github)) == ("LEFT", [("a.py", 20)])
    assert "```suggestion" not in github.state.threads[0]["comments"][0]["body"]


@pytest.mark.parametrize("path", ["./a.py", ".//a.py", "/a.py", " a.py ", ".\\a.py", "src/../a.py", "A.py", "a.py/"])
def test_a_path_is_understood_however_it_is_written(
    github: GitHubServer, writer: GitHubWriter, repository: Path, path: str
) -> None:
    submit(pull(repository), review(on(20, path=path, suggestion="x")), writer, tried=offered(0))
    assert lines_of(github) == [("a.py", 20)]
    assert "```suggestion" in github.state.threads[0]["comments"][0]["body"]
    submit(pull(repository), review(on(20, suggestion="x")), writer, tried=offered(0), run_id="run-2")
    assert lines_of(github) == [("a.py", 20)]


@pytest.mark.parametrize(
    ("names", "path", "expected"),
    [
        (["src/a.py"], "src\\a.py", "src/a.py"),
        (["odd\\name.py"], "odd\\name.py", "odd\\name.py"),
        (["a.py", "A.py"], "A.py", "A.py"),
        (["cafe\u0301.py"], "caf\u00e9.py", "cafe\u0301.py"),
        (["a.py", "./b.py"], "../a.py", None),
        (["docs/a.py"], "a.py", None),
        (["A.py", "a.PY"], "a.py", None),
    ],
)
def test_a_comment_is_on_the_only_file_of_that_name(
    github: GitHubServer, writer: GitHubWriter, repository: Path, names: list[str], path: str, expected: str | None
) -> None:
    files = tuple(ReviewedFile(path=name, right=(DiffLines(first=1, last=30),)) for name in names)
    planned = submitted(plan(pull(repository, files=files), review(on(20, path=path))))
    assert [each.path for each in planned.comments] == ([expected] if expected else [])


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("verdict", "given", "expected"),
    [
        ("approve", {}, "COMMENTED"),
        ("approve", {"review": {"mayApprove": True}}, "APPROVED"),
        ("request_changes", {}, "CHANGES_REQUESTED"),
        ("comment", {"review": {"mayApprove": True}}, "COMMENTED"),
        ("APPROVE", {"review": {"mayApprove": True}}, "COMMENTED"),
    ],
)
def test_only_an_agent_that_may_approve_approves(
    github: GitHubServer, writer: GitHubWriter, repository: Path, verdict: str, given: dict[str, Any], expected: str
) -> None:
    planned = plan(pull(repository), review(verdict=verdict), **given)
    apply(planned, writer)
    assert github.state.reviews[0]["state"] == expected
    assert any("mayApprove" in warning for warning in planned.warnings) is (verdict == "approve" and not given)


def test_nobody_requests_changes_to_their_own_pull_request(
    github: GitHubServer, writer: GitHubWriter, repository: Path
) -> None:
    github.state.pulls[0]["login"] = BOT.login
    submit(pull(repository), review(verdict="request_changes"), writer)
    (made,) = github.state.reviews
    assert made["state"] == "COMMENTED"
    assert "so this review only comments" in made["body"]


def test_a_suggestion_is_offered_as_it_was_tried(github: GitHubServer, writer: GitHubWriter, repository: Path) -> None:
    code = 'say("@tom", `x`, ```y```)\n\tdone'
    submit(pull(repository), review(on(20, "Better:", suggestion=code)), writer, tried=offered(0))
    body = github.state.threads[0]["comments"][0]["body"]
    assert body.startswith(f"Better:\n\n````suggestion\n{code}\n````\n\n<!-- stepflow comment=")


def test_a_suggestion_that_failed_is_words_that_say_why(
    github: GitHubServer, writer: GitHubWriter, repository: Path
) -> None:
    answer = review(on(20, "Better:", suggestion="broken("), on(19, "Or:", suggestion="x"))
    submit(pull(repository), answer, writer, tried=offered(_0="it makes `test` fail"))
    first, second = (thread["comments"][0]["body"] for thread in github.state.threads)
    assert "*Not offered as a suggestion: it makes `test` fail.*\n\n```text\nbroken(\n```" in first
    assert "*Not offered as a suggestion: it was not tried.*" in second
    assert "suggestion\n" not in first + second


def test_a_block_that_the_model_writes_itself_is_no_suggestion(
    github: GitHubServer, writer: GitHubWriter, repository: Path
) -> None:
    submit(pull(repository), review(on(20, "```suggestion\nrm -rf /\n```\n@tom fixes #3")), writer)
    body = github.state.threads[0]["comments"][0]["body"]
    assert "```text\nrm -rf /\n```" in body
    assert "@tom" not in body
    assert "fixes #3" not in body


def test_the_next_run_replaces_the_review_and_repeats_no_comment(
    github: GitHubServer, writer: GitHubWriter, repository: Path
) -> None:
    submit(pull(repository), review(on(20), verdict="request_changes"), writer)
    commit(repository, {"a.py": BEFORE.replace("line 20\n", "line 20, twice\n").replace("line 40\n", "line forty\n")})
    answer = review(on(20), on(40, "New."))
    _, (receipt,) = submit(pull(repository), answer, writer, run_id="run-2")
    first, second = github.state.reviews
    assert lines_of(github) == [("a.py", 20), ("a.py", 40)]
    assert (first["state"], second["state"]) == ("DISMISSED", "COMMENTED")
    assert f"[A newer review]({receipt.url}) replaces this one." in first["body"]
    assert "<summary>The earlier review</summary>\n\nI looked at it." in first["body"]
    assert first["dismissal"] == f"A newer review replaces it: {receipt.url}"
    assert "1 comment stands since an earlier review, and is not repeated." in second["body"]


def test_a_run_without_new_comments_updates_its_review(
    github: GitHubServer, writer: GitHubWriter, repository: Path
) -> None:
    submit(pull(repository), review(on(20)), writer)
    _, (receipt,) = submit(pull(repository), review(on(20), summary="Still so."), writer, run_id="run-2")
    (made,) = github.state.reviews
    assert receipt.detail == "updated"
    assert "Still so." in made["body"]
    assert len(github.state.threads) == 1


def test_people_and_other_agents_are_left_alone(github: GitHubServer, writer: GitHubWriter, repository: Path) -> None:
    submit(pull(repository), review(on(20), verdict="request_changes"), writer)
    (made,) = github.state.reviews
    made["login"] = "ann"
    github.state.threads[0]["comments"][0]["login"] = "ann"
    submit(pull(repository), review(on(20)), writer, run_id="run-2")
    assert made["state"] == "CHANGES_REQUESTED"
    assert len(github.state.threads) == 2


def test_a_review_that_may_not_be_dismissed_is_named(
    github: GitHubServer, writer: GitHubWriter, repository: Path
) -> None:
    submit(pull(repository), review(verdict="request_changes"), writer)
    github.fail("PUT", "/dismissals$", 403)
    applied, (receipt,) = submit(pull(repository), review(), writer, run_id="run-2")
    assert applied.outcome is Outcome.COMPLETED
    assert "still counts, since this token may not dismiss it" in receipt.detail


@pytest.mark.parametrize("forbidden", [1, 2])
def test_a_review_that_may_not_be_dismissed_keeps_no_other_from_that(
    github: GitHubServer, writer: GitHubWriter, repository: Path, forbidden: int
) -> None:
    for run in ("run-1", "run-2"):
        github.fail("PUT", "/dismissals$", 403, times=9)
        submit(pull(repository), review(on(20), verdict="request_changes", summary=run), writer, run_id=run)
        github.state.faults.clear()
    assert [each["state"] for each in github.state.reviews] == ["CHANGES_REQUESTED"] * 2
    kept = github.state.reviews[forbidden - 1]
    github.fail("PUT", f"/reviews/{kept['id']}/dismissals$", 403, times=9)
    _, (receipt,) = submit(pull(repository), review(), writer, run_id="run-3")
    states = [each["state"] for each in github.state.reviews]
    assert [state for state in states[:2] if state != "DISMISSED"] == ["CHANGES_REQUESTED"]
    assert kept["state"] == "CHANGES_REQUESTED"
    assert [each["body"].count("A newer review") for each in github.state.reviews] == [1, 1, 0]
    assert "still counts, since this token may not dismiss it" in receipt.detail


@pytest.mark.parametrize(("merged", "says"), [(None, "was closed"), ("2026-01-02T03:04:05Z", "was merged")])
def test_a_pull_request_that_is_over_gets_no_review(
    github: GitHubServer, writer: GitHubWriter, repository: Path, merged: str | None, says: str
) -> None:
    github.state.pulls[0] |= {"state": "closed", "merged_at": merged}
    applied, _ = submit(pull(repository), review(on(20)), writer)
    assert (applied.outcome, github.writes()) == (Outcome.REFUSED, [])
    assert says in applied.reason


def test_what_was_pushed_meanwhile_is_not_approved(
    github: GitHubServer, writer: GitHubWriter, repository: Path
) -> None:
    """On GitHub, an approval counts for all commits of a pull request, unless the repository dismisses it."""
    reviewed = pull(repository)
    commit(repository, {"b.py": "x\n"})
    submit(reviewed, review(verdict="approve"), writer, review={"mayApprove": True})
    (made,) = github.state.reviews
    assert (made["state"], made["commit"]) == ("COMMENTED", reviewed.head)
    assert "so this review does not approve" in made["body"]


def test_a_commit_that_was_forced_away_gets_no_review(
    github: GitHubServer, writer: GitHubWriter, repository: Path
) -> None:
    reviewed = pull(repository)
    git(repository, "checkout", "--quiet", "main")
    commit(repository, {"b.py": "x\n"})
    applied, _ = submit(reviewed, review(on(20)), writer)
    assert (applied.outcome, github.writes()) == (Outcome.REFUSED, [])
    assert f"no longer has the commit {reviewed.head[:12]}" in applied.reason


#: Whatever the run has seen as the diff, these lines of it.
WIDE = (ReviewedFile(path="a.py", right=(DiffLines(first=1, last=40),)),)


@pytest.mark.parametrize("comments", [(), (on(20),), (on(20), on(1, "Far."))], ids=["none", "one", "one elsewhere"])
def test_where_actions_may_not_approve_the_review_comments_and_says_why(
    github: GitHubServer, writer: GitHubWriter, repository: Path, comments: tuple[JsonObject, ...]
) -> None:
    github.state.may_approve = False
    planned = review(*comments, verdict="approve")
    applied, (receipt,) = submit(pull(repository, files=WIDE), planned, writer, review={"mayApprove": True})
    (made,) = github.state.reviews
    assert (applied.outcome, made["state"]) == (Outcome.COMPLETED, "COMMENTED")
    assert "GitHub Actions is not permitted to approve pull requests.`" in made["body"]
    assert "did not let it approve" in receipt.detail
    assert lines_of(github) == [("a.py", 20)] * bool(comments)
    assert ("Far." in made["body"]) is (len(comments) > 1)


def test_only_what_github_does_not_show_leaves_its_line(
    github: GitHubServer, writer: GitHubWriter, repository: Path
) -> None:
    answer = review(on(20), on(1, "Far."), on(5, "Gone.", path="gone.py"))
    files = (*WIDE, ReviewedFile(path="gone.py", right=(DiffLines(first=1, last=40),)))
    submit(pull(repository, files=files), answer, writer)
    (made,) = github.state.reviews
    assert lines_of(github) == [("a.py", 20)]
    assert "> GitHub rejected the comments on these lines:\n\n**`a.py:1`**\n\nFar." in made["body"]
    assert "**`gone.py:5`**\n\nGone." in made["body"]


@pytest.mark.parametrize("verdict", ["comment", "request_changes", "approve"])
@pytest.mark.parametrize(
    ("status", "said"),
    [
        (422, "User can only have one pending review per pull request"),
        (422, "Can not request changes on your own pull request"),
        (403, "Resource not accessible by integration"),
        (404, "Not Found"),
    ],
)
def test_findings_are_in_a_comment_where_github_takes_no_review(
    github: GitHubServer, writer: GitHubWriter, repository: Path, verdict: str, status: int, said: str
) -> None:
    github.fail("POST", "/reviews$", status, said, times=9)
    answer = review(on(20), on(19, "And this.", suggestion="x"), verdict=verdict)
    given: dict[str, Any] = {"tried": offered(1), "review": {"mayApprove": True}}
    applied, (receipt,) = submit(pull(repository), answer, writer, **given)
    # A permission that is missing must be given, so the run is not complete.
    assert applied.outcome is (Outcome.COMPLETED if status == 422 else Outcome.BOUNDARY_FAILED)
    (comment,) = github.state.comments
    assert github.state.reviews == []
    for words in ("I looked at it.", "**`a.py:20`**\n\nThis counts twice.", "**`a.py:19`**\n\nAnd this.", said):
        assert words in comment["body"]
    assert "```suggestion" not in comment["body"]
    told = " ".join(applied.warnings) if status == 422 else applied.reason
    assert said in told
    assert f"#issuecomment-{comment['id']}" in told
    assert "in a comment" in receipt.detail
    # The next run says it in the same comment.
    submit(pull(repository), answer, writer, run_id="run-2", **given)
    assert len(github.state.comments) == 1


def test_a_review_that_cannot_be_written_anywhere_fails_with_what_github_said_of_it(
    github: GitHubServer, writer: GitHubWriter, repository: Path
) -> None:
    github.state.locked.add(8)
    applied, (receipt,) = submit(pull(repository), review(on(20)), writer)
    assert applied.outcome is Outcome.BOUNDARY_FAILED
    assert "lock prevents review" in applied.reason
    assert "unlock it" in applied.reason
    assert "`a.py:20`\n\nThis counts twice." in receipt.unwritten


@pytest.mark.parametrize("refused", [False, True])
def test_comments_for_which_there_is_no_room_are_kept_for_the_summary_of_the_job(
    github: GitHubServer, writer: GitHubWriter, repository: Path, refused: bool
) -> None:
    github.fail("GET", "/pulls/8/files$", 403)
    if refused:
        github.fail("POST", "/reviews$", 422, "User can only have one pending review per pull request", times=9)
    comments = [on(number, f"Finding {number}: {'x' * 7_000}") for number in range(1, 21)]
    far = [on(20, f"Far {number}: {'x' * 7_000}", path="gone.py") for number in range(1, 11)]
    applied, (receipt,) = submit(pull(repository, files=WIDE), review(*comments, *far), writer)
    assert applied.outcome is Outcome.COMPLETED
    (made,) = github.state.comments if refused else github.state.reviews
    for words in (*(f"Finding {number}:" for number in range(1, 21)), *(f"Far {number}:" for number in range(1, 11))):
        assert (words in made["body"]) is not (words in receipt.unwritten), words
    assert "the job's summary has them" in made["body"]
    # A comment has room left for what ends the run.
    assert len(made["body"]) < (30_000 if refused else 65_536)


def test_a_comment_in_the_place_of_a_review_replaces_the_earlier_reviews(
    github: GitHubServer, writer: GitHubWriter, repository: Path
) -> None:
    submit(pull(repository), review(on(20), verdict="request_changes"), writer)
    github.fail("POST", "/reviews$", 422, "User can only have one pending review per pull request", times=9)
    submit(pull(repository), review(on(19)), writer, run_id="run-2")
    (comment,), (earlier,) = github.state.comments, github.state.reviews
    assert earlier["state"] == "DISMISSED"
    assert f"#issuecomment-{comment['id']}" in earlier["body"]


def test_where_github_takes_no_place_the_summary_has_every_comment(
    github: GitHubServer, writer: GitHubWriter, repository: Path
) -> None:
    github.fail("GET", "/pulls/8/files$", 403)
    answer = review(on(20), on(1, "Far.", suggestion="x = 1"))
    submit(pull(repository, files=WIDE), answer, writer, tried=offered(1))
    (made,) = github.state.reviews
    assert "GitHub rejected the comments on lines" in made["body"]
    assert "**`a.py:1`**\n\nFar.\n\n```text\nx = 1\n```" in made["body"]
    assert github.state.threads == []


RENAMED = BEFORE.replace("line 5\n", "five\n")
MANY: dict[str, str | None] = {f"many/{number}.py": "x\n" for number in range(300)}
STORIES: dict[str, tuple[dict[str, str | None], JsonObject, tuple[str, int] | None]] = {
    "renamed": ({"old.py": None, "new.py": RENAMED}, {"path": "new.py", "line": 5}, ("new.py", 5)),
    "by its old name": ({"old.py": None, "new.py": BEFORE}, {"path": "old.py", "line": 5}, None),
    "deleted": ({"old.py": None}, {"path": "old.py", "line": 5}, None),
    "deleted, its old lines": ({"old.py": None}, {"path": "old.py", "line": 5, "side": "LEFT"}, ("old.py", 5)),
    "binary": ({"picture.png": "\0PNG"}, {"path": "picture.png", "line": 1}, None),
    "among 300 files": (MANY, {"path": "many/299.py", "line": 1}, ("many/299.py", 1)),
}  # fmt: skip


@pytest.mark.whole
@pytest.mark.parametrize("story", [*STORIES])
def test_a_comment_finds_its_place(github: GitHubServer, writer: GitHubWriter, repository: Path, story: str) -> None:
    files, comment, place = STORIES[story]
    commit(repository, files)
    applied, _ = submit(pull(repository), review({**comment, "body": "Look here."}), writer)
    assert applied.outcome is Outcome.COMPLETED
    assert lines_of(github) == ([place] if place else [])
    assert ("Look here." in github.state.reviews[0]["body"]) is (place is None)


@pytest.mark.parametrize("after_write", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/reviews$"), ("PUT", r"/reviews/\d+$"), ("PUT", "/dismissals$")]
)
def test_nothing_is_written_twice(
    github: GitHubServer, writer: GitHubWriter, repository: Path, method: str, path: str, after_write: bool
) -> None:
    """The run ends at one request, as if it was killed there, and is resumed with the receipts that GitHub confirms."""
    submit(pull(repository), review(on(20), verdict="request_changes"), writer)
    github.fail(method, path, 0, after_write=after_write)
    answer = review(on(20), on(19, "New."))
    applied, receipts = submit(pull(repository), answer, writer, run_id="run-2")
    assert applied.outcome is Outcome.BOUNDARY_FAILED
    done = confirm_receipts(writer, receipts, run="run-2", agent="fixer", issue=8, follow_up=None)
    applied, _ = submit(pull(repository), answer, writer, done, run_id="run-2")
    assert applied.outcome is Outcome.COMPLETED
    assert [(each["state"], each["body"].count("A newer review")) for each in github.state.reviews] == [
        ("DISMISSED", 1),
        ("COMMENTED", 0),
    ]
    assert lines_of(github) == [("a.py", 20), ("a.py", 19)]


def test_a_review_whose_answer_was_lost_is_found_before_it_is_sent_again(
    github: GitHubServer, writer: GitHubWriter, repository: Path
) -> None:
    writer.retry_policy = RetryPolicy(clock=StillClock(), until=float("inf"))
    github.fail("POST", "/reviews$", 0, after_write=True)
    applied, (receipt,) = submit(pull(repository), review(on(20), verdict="request_changes"), writer)
    assert applied.outcome is Outcome.COMPLETED
    assert [(each["state"], each["id"]) for each in github.state.reviews] == [("CHANGES_REQUESTED", receipt.number)]
    assert github.writes() == [f"POST {REVIEWS}"]


def test_a_resumed_run_leaves_the_review_that_it_submitted_without_a_receipt(
    github: GitHubServer, writer: GitHubWriter, repository: Path
) -> None:
    """A review that asks for changes, with the same comments: as an earlier one it would be replaced by a new one."""
    github.fail("POST", "/reviews$", 0, after_write=True)
    answer = review(on(20), verdict="request_changes")
    for outcome in (Outcome.BOUNDARY_FAILED, Outcome.COMPLETED):
        applied, _ = submit(pull(repository), answer, writer)
        assert applied.outcome is outcome
    assert [each["state"] for each in github.state.reviews] == ["CHANGES_REQUESTED"]
    assert github.writes() == [f"POST {REVIEWS}"]


def test_a_receipt_counts_only_for_a_review_of_this_run(
    github: GitHubServer, writer: GitHubWriter, repository: Path
) -> None:
    _, receipts = submit(pull(repository), review(), writer)
    for run, expected in (("run-1", receipts), ("run-2", [])):
        assert [*confirm_receipts(writer, receipts, run=run, agent="fixer", issue=8, follow_up=None)] == expected
    forged = replace(receipts[0], url="https://github.com/evil/evil")
    assert confirm_receipts(writer, [forged], run="run-1", agent="fixer", issue=8, follow_up=None) == ()


def test_a_run_that_reviews_does_nothing_else(repository: Path) -> None:
    answer = {**review(), "closure_action": "close", "release": {"tag": "v1"}, "pull_request": {"title": "x"}}
    planned = plan(pull(repository), answer, allowed_effects=("review", "comment", "labels", "close", "pull_request"))
    assert [effect.kind for effect in planned.effects] == [EffectKind.SUBMIT_REVIEW]


def test_an_answer_without_a_review_gives_its_comment(repository: Path) -> None:
    planned = plan(pull(repository), {"comment": "All is well."})
    assert submitted(planned).body.startswith("All is well.")
    assert any("no `review`" in objection for objection in planned.objections)


#: Texts that would act on the page, run something, or pass for what the engine writes.
HOSTILE = (
    "@tom fixes #3, see https://evil.com/x",
    "![i](https://evil.com/i.png)",
    "<details><img src=//evil.com>",
    "```suggestion\nrm -rf /\n```",
    "~~~suggestion\nrm -rf /",
    "````\n```suggestion\nx\n```",
    "<!-- stepflow replaced -->\n<!-- stepflow comment=0123456789abcdef -->",
    "/merge\n\n`x` /approve",
    "- > ```suggestion\n  x",
    "1. ~~~  Suggestion\n   x",
    "> - ```&#115;uggestion\n    x",
)


@pytest.mark.sample(4)
@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("place", [20, 3])
def test_githubs_own_renderer_finds_nothing_that_acts(repository: Path, text: str, place: int) -> None:
    hostile = on(place, text, suggestion=text, path="a.py" if place == 20 else f"a.py\n{text}")
    answer = review(hostile, on(19, text), summary=text)
    effect = submitted(plan(pull(repository), answer, tried=offered(0), verified=""))
    for posted in (effect.body, *(comment.text for comment in effect.comments)):
        assert faults(posted, frozenset({"github.com"})) == {}, posted
        assert "\n/" not in f"\n{posted}", posted
    words = (effect.body, *(comment.text for comment in effect.comments if comment.suggestion is None))
    assert not any('lang="suggestion"' in github_flavored_markdown_to_html(posted) for posted in words)


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", HOSTILE)
def test_a_suggestion_is_posted_unchanged_or_not_at_all(repository: Path, text: str) -> None:
    reviewed = pull(repository)
    asked = RequestedReview(comments=(RequestedComment(path="a.py", line=20, suggestion=text),))
    worth, problems = find_suggestions(asked, reviewed, OutputFilter())
    assert len(worth) + len(problems) == 1
    if worth:
        (comment,) = submitted(plan(reviewed, review(on(20, "B", suggestion=text)), tried=offered(0))).comments
        page = github_flavored_markdown_to_html(comment.text, Options.CMARK_OPT_UNSAFE)
        shown = re.fullmatch(r'<p>B</p>\n<pre lang="suggestion"><code>(.*)</code></pre>\n', page, re.DOTALL)
        assert shown, page
        assert html.unescape(shown[1]) == worth[0].text
