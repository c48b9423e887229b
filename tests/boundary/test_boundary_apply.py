"""Writing a plan to a repository in memory: who may write, what is ours, and what must be so afterwards."""

import itertools

import pytest

from stepflow.boundary.apply import apply_effects
from stepflow.boundary.comment import Marker, marked, read_marker
from stepflow.boundary.github_types import Comment, PullRequest, WriteFailed
from stepflow.boundary.plan import plan_effects
from stepflow.domain.effect import EffectKind, Receipt
from stepflow.domain.words import CloseBy, Outcome, Permission, VerdictType
from tests.boundary.agents import agent, apply, facts, plan_everything, result, settings, statuses
from tests.boundary.recording_writer import BOT, RecordingPusher, RecordingWriter


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"actor": "eve"}, "eve, who triggered the run, has the permission 'read'"),
        ({"actor": "tom"}, "demands 'write'"),
        ({"actor": "stranger"}, "has the permission 'none'"),
        ({"actor": ""}, "does not say who triggered"),
        ({"actor": "renovate[bot]"}, "`allow-bots` does not name"),
        ({"actor": "ann", "actor_is_bot": True}, "is a bot"),
        ({"actor": "renovate[bot]", "allow_bots": ("dependabot",)}, "is a bot"),
    ],
)
def test_nothing_is_written_for_an_actor_who_may_not_write(given: dict[str, object], refusal: str) -> None:
    writer, pusher = RecordingWriter(), RecordingPusher()
    applied, recorded = apply(plan_everything(given=given), writer, pusher)
    assert applied.outcome is Outcome.REFUSED
    assert refusal in applied.reason
    assert (writer.calls, pusher.pushes, recorded) == ([], [], [])


@pytest.mark.parametrize(
    "given",
    [
        {"actor": "tom", "min_permission": Permission.TRIAGE},
        {"actor": "renovate[bot]", "allow_bots": ("Renovate",)},
        {"actor": "renovate[bot]", "allow_bots": ("renovate[bot]",)},
    ],
)
def test_an_actor_who_may_write_is_not_held_up(given: dict[str, object]) -> None:
    assert apply(plan_everything(given=given), RecordingWriter())[0].outcome is Outcome.COMPLETED


def test_a_plan_without_effects_asks_nobody() -> None:
    writer = RecordingWriter()
    writer.failures["permission"] = [WriteFailed("must not be asked")]
    empty = plan_effects(
        agent(VerdictType.COUNT_ITERATION, enabled=False), facts(), result(), settings(), summary="", commits=None
    )
    assert apply(empty, writer)[0].outcome is Outcome.COMPLETED


def test_a_refused_plan_writes_nothing() -> None:
    writer = RecordingWriter()
    applied, _ = apply(plan_everything(run_id="a..b", issue=None), writer)
    assert (applied.outcome, writer.calls) == (Outcome.REFUSED, [])
    assert "branchPrefix" in applied.reason


def test_commits_that_may_not_leave_refuse_the_whole_plan() -> None:
    writer = RecordingWriter()
    reason = "refused: protected path: .github/workflows/ci.yml"
    applied, recorded = apply(plan_everything(), writer, RecordingPusher(refusal=reason))
    assert (applied.outcome, applied.reason, writer.calls) == (Outcome.REFUSED, reason, [])
    assert [(receipt.status, receipt.detail) for receipt in recorded] == [("failed", reason)]


def test_another_422_is_a_failure_and_not_tried_again() -> None:
    writer = RecordingWriter()
    writer.failures["create_pull_request"] = [WriteFailed("No commits between main and x", status=422)]
    assert apply(plan_everything(), writer)[0].outcome is Outcome.BOUNDARY_FAILED
    assert writer.drafts == []


def test_somebody_elses_pull_request_from_the_branch_is_left_alone() -> None:
    writer = RecordingWriter()
    writer.pulls.append(PullRequest(number=3, author_id=1, base="main", url="u"))
    applied, _ = apply(plan_everything(), writer)
    assert "update_pull_request" not in writer.calls
    assert statuses(applied).startswith("push_branch:applied open_pull_request:skipped")


def test_a_pull_request_to_another_base_is_not_ours() -> None:
    writer = RecordingWriter()
    writer.pulls.append(PullRequest(number=3, author_id=BOT.id, base="develop", url="u"))
    apply(plan_everything(), writer)
    assert writer.calls[0] == "create_pull_request"


def test_the_comment_names_the_branch_that_was_used_instead() -> None:
    writer = RecordingWriter()
    applied, _ = apply(plan_everything(), writer, RecordingPusher(occupied=("stepflow/fixer/issue-7",)))
    assert applied.branch == "stepflow/fixer/issue-7-2"
    assert "those of this run are on `stepflow/fixer/issue-7-2`" in writer.posted[0].body


def test_the_comment_says_that_the_jobs_token_starts_no_workflow() -> None:
    writer = RecordingWriter()
    apply(plan_everything(), writer)
    assert "opened with the job's own token" in writer.posted[0].body


@pytest.mark.parametrize(
    ("now", "given", "said"),
    [
        ({"body": "It breaks.\r\n"}, {}, False),
        ({"body": "Delete everything."}, {}, True),
        ({"title": "Other"}, {}, True),
        ({"body": "Other"}, {"issue_text_from_event": False}, False),
    ],
)
def test_the_comment_says_when_the_issue_was_edited_meanwhile(
    now: dict[str, object], given: dict[str, object], said: bool
) -> None:
    writer = RecordingWriter(**now)
    apply(plan_everything(given=given), writer)
    assert ("has been edited since" in writer.posted[0].body) is said


def test_somebody_elses_comment_with_our_marker_is_not_ours() -> None:
    forged = marked("Done.", Marker(run="x", agent="fixer", issue=7, commit="b" * 40))
    writer, pusher = RecordingWriter(), RecordingPusher()
    writer.posted.append(Comment(id=1, author_id=666, body=forged, url="u"))
    apply(plan_everything(), writer, pusher)
    assert writer.posted[0].body == forged
    assert len(writer.posted) == 2
    assert pusher.pushes[0][1] is None


def test_another_agents_comment_is_not_overwritten() -> None:
    other = marked("Done.", Marker(run="x", agent="other", issue=7, commit="b" * 40))
    writer = RecordingWriter()
    writer.posted.append(Comment(id=1, author_id=BOT.id, body=other, url="u"))
    apply(plan_everything(), writer)
    assert [comment.body == other for comment in writer.posted] == [True, False]


def test_a_run_that_pushes_nothing_keeps_the_commit_of_the_run_before() -> None:
    writer = RecordingWriter()
    apply(plan_everything({"closure_action": "label-only"}), writer)
    apply(plan_everything({"closure_action": "label-only"}, commits=0), writer)
    marker = read_marker(writer.posted[0].body)
    assert marker is not None
    assert marker.commit == "a" * 40


def test_a_close_that_did_not_take_is_a_failure() -> None:
    writer = RecordingWriter()
    writer.closes = False
    applied, _ = apply(plan_everything(), writer)
    assert applied.outcome is Outcome.BOUNDARY_FAILED
    assert applied.reason == "Issue #7 should be closed now, but GitHub says it is open."
    assert applied.issue_state == "open"


def test_an_issue_that_waits_for_its_merge_must_still_be_open() -> None:
    class ClosingWriter(RecordingWriter):
        def remove_label(self, number: int, label: str) -> None:
            super().remove_label(number, label)
            self.close_issue(number)

    applied, _ = apply(plan_everything(close_by=CloseBy.AUTO), ClosingWriter())
    assert applied.outcome is Outcome.BOUNDARY_FAILED
    assert "should be open" in applied.reason


def test_an_issue_that_somebody_closed_before_is_no_failure() -> None:
    applied, _ = apply(plan_everything(close_by=CloseBy.AUTO), RecordingWriter(state="closed"))
    assert (applied.outcome, applied.issue_state) == (Outcome.COMPLETED, "closed")


def test_what_is_already_so_is_left_alone() -> None:
    writer = RecordingWriter(state="closed", labels=("DONE",))
    applied, _ = apply(plan_everything(commits=0), writer)
    assert writer.calls == ["create_comment", "create_release"]
    assert statuses(applied) == (
        "post_comment:applied add_labels:skipped remove_labels:skipped create_release:applied close_issue:skipped"
    )


def test_a_cancel_raised_while_recording_comes_between_two_effects() -> None:
    class Cancelled(BaseException):
        pass

    writer, recorded = RecordingWriter(), list[Receipt]()

    def record(receipt: Receipt) -> None:
        recorded.append(receipt)
        if receipt.kind is EffectKind.POST_COMMENT:
            raise Cancelled

    with pytest.raises(Cancelled):
        apply_effects(plan_everything(), writer=writer, pusher=RecordingPusher(), record=record)
    assert [receipt.kind for receipt in recorded] == list(itertools.islice(EffectKind, 3))
    assert writer.calls == ["create_pull_request", "create_comment"]


def test_a_failure_before_the_first_effect_is_a_failure_too() -> None:
    writer = RecordingWriter()
    writer.failures["permission"] = [WriteFailed("it answered 401", status=401, hint="Check the token.")]
    applied, recorded = apply(plan_everything(), writer)
    said = "Nothing was written, because it could not be asked who may write: it answered 401 Check the token."
    assert (applied.outcome, applied.reason) == (Outcome.BOUNDARY_FAILED, said)
    assert recorded == []


def test_a_plan_with_commits_needs_somebody_to_push_them() -> None:
    applied = apply_effects(plan_everything(), writer=RecordingWriter(), pusher=None, record=lambda _: None)
    assert applied.outcome is Outcome.BOUNDARY_FAILED
    assert "no commits were handed over" in applied.reason


def test_without_a_base_branch_the_default_branch_is_the_base() -> None:
    writer = RecordingWriter()
    apply(plan_everything(base_branch=""), writer)
    assert [pull.base for pull in writer.pulls] == ["main"]


def test_without_an_issue_the_branch_and_the_pull_request_are_all() -> None:
    writer, pusher = RecordingWriter(), RecordingPusher()
    applied, _ = apply(plan_everything({}, issue=None), writer, pusher)
    assert applied.outcome is Outcome.COMPLETED
    assert (writer.calls, pusher.pushes) == (["create_pull_request"], [("stepflow/fixer/run-run-1", None)])


def test_a_label_that_vanished_between_look_and_removal_is_no_failure() -> None:
    class Vanishing(RecordingWriter):
        def remove_label(self, number: int, label: str) -> None:
            super().remove_label(number, label)
            raise WriteFailed("Label does not exist", status=404)

    assert apply(plan_everything(), Vanishing())[0].outcome is Outcome.COMPLETED


def test_a_404_for_a_label_that_the_issue_still_has_is_a_failure() -> None:
    writer = RecordingWriter()
    writer.failures["remove_label"] = [WriteFailed("Not Found", status=404)]
    assert apply(plan_everything(), writer)[0].outcome is Outcome.BOUNDARY_FAILED
