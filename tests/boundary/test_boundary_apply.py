"""Writing a plan: in order, a receipt each, stopping at the first failure, and never twice."""

import itertools

import pytest

from stepflow.boundary.apply import ApplyResult, apply_effects
from stepflow.boundary.comment import Marker, marked, read_marker
from stepflow.boundary.github_types import Comment, PullRequest, WriteFailed
from stepflow.boundary.plan import CommitsInfo, Plan, plan_effects
from stepflow.domain.effect import EffectKind, Receipt
from stepflow.domain.json import JsonObject
from stepflow.domain.words import CloseBy, Outcome, Permission, VerdictType
from tests.boundary.agents import agent, facts, result, settings
from tests.boundary.recording_writer import BOT, RecordingPusher, RecordingWriter

EVERYTHING: JsonObject = {
    "closure_action": "label-and-close",
    "issue": {"labels": {"add": ["done"], "remove": ["bug"]}},
    "release": {"tag": "v1"},
}
ALLOWED = ("comment", "labels", "close", "pull_request", "release")


def plan(
    answer: JsonObject = EVERYTHING,
    *,
    commits: int = 1,
    close_by: CloseBy = CloseBy.NOW,
    given: dict[str, object] | None = None,
    **changes: object,
) -> Plan:
    return plan_effects(
        agent(VerdictType.POLL_STATE, allowed_effects=ALLOWED, close_by=close_by),
        facts(**changes),  # type: ignore[arg-type]
        result(answer),
        settings(**(given or {})),
        summary="All done.",
        commits=CommitsInfo(count=commits),
    )


def apply(
    plan: Plan, writer: RecordingWriter, pusher: RecordingPusher | None = None, done: tuple[Receipt, ...] = ()
) -> tuple[ApplyResult, list[Receipt]]:
    recorded: list[Receipt] = []
    applied = apply_effects(plan, writer=writer, pusher=pusher or RecordingPusher(), record=recorded.append, done=done)
    return applied, recorded


def statuses(applied: ApplyResult) -> str:
    return " ".join(f"{receipt.kind}:{receipt.status}" for receipt in applied.receipts)


def test_everything_is_written_once_in_order_with_a_receipt_each() -> None:
    writer = RecordingWriter()
    applied, recorded = apply(plan(), writer)
    assert applied.outcome is Outcome.COMPLETED
    assert [receipt.kind for receipt in recorded] == list(EffectKind)
    assert writer.calls == [
        "create_pull_request",
        "create_comment",
        "add_labels",
        "remove_label",
        "remove_label",
        "create_release",
        "close_issue",
    ]
    assert (writer.now.state, writer.now.labels) == ("closed", ("done",))
    assert applied.issue_state == "closed"
    assert tuple(recorded) == applied.receipts


def test_the_receipts_lead_to_what_was_made() -> None:
    applied, _ = apply(plan(), RecordingWriter())
    opened, commented = applied.receipt(EffectKind.OPEN_PULL_REQUEST), applied.receipt(EffectKind.POST_COMMENT)
    assert opened is not None
    assert commented is not None
    assert (applied.branch, opened.number) == ("stepflow/fixer/issue-7", 12)
    assert opened.url == "https://github.com/o/r/pull/12"
    assert commented.url == "https://github.com/o/r/issues/7#0"


def test_the_same_event_twice_leaves_one_comment_one_pull_request_one_branch() -> None:
    writer, pusher = RecordingWriter(), RecordingPusher()
    apply(plan(), writer, pusher)
    again, _ = apply(plan(run_id="run-2"), writer, pusher)
    assert again.outcome is Outcome.COMPLETED
    assert (len(writer.posted), len(writer.pulls), len(writer.released)) == (1, 1, 1)
    assert pusher.pushes == [("stepflow/fixer/issue-7", None), ("stepflow/fixer/issue-7", "a" * 40)]
    marker = read_marker(writer.posted[0].body)
    assert marker is not None
    assert (marker.run, marker.agent, marker.issue, marker.commit) == ("run-2", "fixer", 7, "a" * 40)


@pytest.mark.parametrize("through", range(8))
def test_a_resumed_apply_repeats_nothing_that_has_a_receipt(through: int) -> None:
    writer, pusher = RecordingWriter(), RecordingPusher()
    _, recorded = apply(plan(), writer, pusher)
    calls = len(writer.calls)
    applied, again = apply(plan(), writer, pusher, done=tuple(recorded[:through]))
    assert applied.outcome is Outcome.COMPLETED
    assert [receipt.kind for receipt in again] == list(EffectKind)[through:]
    assert set(writer.calls[calls:]) <= {"update_pull_request", "update_comment"}
    assert (len(writer.posted), len(writer.pulls), len(writer.released)) == (1, 1, 1)


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("create_pull_request", EffectKind.OPEN_PULL_REQUEST),
        ("create_comment", EffectKind.POST_COMMENT),
        ("add_labels", EffectKind.ADD_LABELS),
        ("remove_label", EffectKind.REMOVE_LABELS),
        ("create_release", EffectKind.CREATE_RELEASE),
        ("close_issue", EffectKind.CLOSE_ISSUE),
    ],
)
def test_the_first_failure_stops_and_the_next_try_goes_on_there(method: str, kind: EffectKind) -> None:
    writer, pusher = RecordingWriter(), RecordingPusher()
    writer.failures[method] = [WriteFailed("it answered 500", status=500)]
    failed, recorded = apply(plan(), writer, pusher)
    assert failed.outcome is Outcome.BOUNDARY_FAILED
    assert failed.reason == f"`{kind}` failed: it answered 500"
    order = list(EffectKind)
    expected = ["applied"] * order.index(kind) + ["failed"]
    assert [str(receipt.status) for receipt in failed.receipts] == expected + ["planned"] * (7 - len(expected))
    resumed, again = apply(plan(), writer, pusher, done=tuple(recorded))
    assert resumed.outcome is Outcome.COMPLETED
    assert [receipt.kind for receipt in again] == order[order.index(kind) :]
    assert (len(writer.posted), len(writer.pulls), writer.now.state) == (1, 1, "closed")


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
    applied, recorded = apply(plan(given=given), writer, pusher)
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
    assert apply(plan(given=given), RecordingWriter())[0].outcome is Outcome.COMPLETED


def test_a_plan_without_effects_asks_nobody() -> None:
    writer = RecordingWriter()
    writer.failures["permission"] = [WriteFailed("must not be asked")]
    empty = plan_effects(
        agent(VerdictType.COUNT_ITERATION, enabled=False), facts(), result(), settings(), summary="", commits=None
    )
    assert apply(empty, writer)[0].outcome is Outcome.COMPLETED


def test_a_refused_plan_writes_nothing() -> None:
    writer = RecordingWriter()
    applied, _ = apply(plan(given={"branch_prefix": "../"}), writer)
    assert (applied.outcome, writer.calls) == (Outcome.REFUSED, [])
    assert "branch-prefix" in applied.reason


def test_commits_that_may_not_leave_refuse_the_whole_plan() -> None:
    writer = RecordingWriter()
    reason = "refused: protected path: .github/workflows/ci.yml"
    applied, recorded = apply(plan(), writer, RecordingPusher(refusal=reason))
    assert (applied.outcome, applied.reason, writer.calls) == (Outcome.REFUSED, reason, [])
    assert [(receipt.status, receipt.detail) for receipt in recorded] == [("failed", reason)]


NOT_PERMITTED = WriteFailed("GitHub Actions is not permitted to create or approve pull requests.", status=403)


def test_a_forbidden_pull_request_still_gets_its_comment_and_labels_but_closes_nothing() -> None:
    writer = RecordingWriter()
    writer.failures["create_pull_request"] = [NOT_PERMITTED]
    applied, _ = apply(plan(), writer)
    assert applied.outcome is Outcome.BOUNDARY_FAILED
    assert statuses(applied) == (
        "push_branch:applied open_pull_request:forbidden post_comment:applied add_labels:applied "
        "remove_labels:applied create_release:planned close_issue:planned"
    )
    body = writer.posted[0].body
    assert "Allow GitHub Actions to create and approve pull requests" in body
    assert "https://github.com/o/r/compare/main...stepflow/fixer/issue-7?expand=1" in body
    assert "Allow GitHub Actions" in applied.reason
    assert writer.now.state == "open"


def test_after_the_setting_is_changed_the_pull_request_follows_and_the_comment_is_put_right() -> None:
    writer = RecordingWriter()
    writer.failures["create_pull_request"] = [NOT_PERMITTED]
    _, recorded = apply(plan(), writer)
    applied, _ = apply(plan(), writer, done=tuple(recorded))
    assert applied.outcome is Outcome.COMPLETED
    assert len(writer.posted) == 1
    assert "Pull request: #12" in writer.posted[0].body
    assert "did not allow" not in writer.posted[0].body
    assert writer.now.state == "closed"


def test_where_drafts_do_not_exist_the_pull_request_is_opened_without() -> None:
    writer = RecordingWriter()
    message = "Draft pull requests are not supported in this repository."
    writer.failures["create_pull_request"] = [WriteFailed(message, status=422)]
    assert apply(plan(), writer)[0].outcome is Outcome.COMPLETED
    assert writer.drafts == [False]


def test_another_422_is_a_failure_and_not_tried_again() -> None:
    writer = RecordingWriter()
    writer.failures["create_pull_request"] = [WriteFailed("No commits between main and x", status=422)]
    assert apply(plan(), writer)[0].outcome is Outcome.BOUNDARY_FAILED
    assert writer.drafts == []


def test_somebody_elses_pull_request_from_the_branch_is_left_alone() -> None:
    writer = RecordingWriter()
    writer.pulls.append(PullRequest(number=3, author_id=1, base="main", url="u"))
    applied, _ = apply(plan(), writer)
    assert "update_pull_request" not in writer.calls
    assert statuses(applied).startswith("push_branch:applied open_pull_request:skipped")


def test_a_pull_request_to_another_base_is_not_ours() -> None:
    writer = RecordingWriter()
    writer.pulls.append(PullRequest(number=3, author_id=BOT.id, base="develop", url="u"))
    apply(plan(), writer)
    assert writer.calls[0] == "create_pull_request"


def test_the_comment_names_the_branch_that_was_used_instead() -> None:
    writer = RecordingWriter()
    applied, _ = apply(plan(), writer, RecordingPusher(occupied=("stepflow/fixer/issue-7",)))
    assert applied.branch == "stepflow/fixer/issue-7-2"
    assert "those of this run are on `stepflow/fixer/issue-7-2`" in writer.posted[0].body


def test_the_comment_says_that_the_jobs_token_starts_no_workflow() -> None:
    writer = RecordingWriter()
    apply(plan(), writer)
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
    apply(plan(given=given), writer)
    assert ("has been edited since" in writer.posted[0].body) is said


def test_somebody_elses_comment_with_our_marker_is_not_ours() -> None:
    forged = marked("Done.", Marker(run="x", agent="fixer", issue=7, commit="b" * 40))
    writer, pusher = RecordingWriter(), RecordingPusher()
    writer.posted.append(Comment(id=1, author_id=666, body=forged, url="u"))
    apply(plan(), writer, pusher)
    assert writer.posted[0].body == forged
    assert len(writer.posted) == 2
    assert pusher.pushes[0][1] is None


def test_another_agents_comment_is_not_overwritten() -> None:
    other = marked("Done.", Marker(run="x", agent="other", issue=7, commit="b" * 40))
    writer = RecordingWriter()
    writer.posted.append(Comment(id=1, author_id=BOT.id, body=other, url="u"))
    apply(plan(), writer)
    assert [comment.body == other for comment in writer.posted] == [True, False]


def test_a_run_that_pushes_nothing_keeps_the_commit_of_the_run_before() -> None:
    writer = RecordingWriter()
    apply(plan({"closure_action": "label-only"}), writer)
    apply(plan({"closure_action": "label-only"}, commits=0), writer)
    marker = read_marker(writer.posted[0].body)
    assert marker is not None
    assert marker.commit == "a" * 40


def test_a_close_that_did_not_take_is_a_failure() -> None:
    writer = RecordingWriter()
    writer.closes = False
    applied, _ = apply(plan(), writer)
    assert applied.outcome is Outcome.BOUNDARY_FAILED
    assert applied.reason == "Issue #7 should be closed now, but GitHub says it is open."
    assert applied.issue_state == "open"


def test_an_issue_that_waits_for_its_merge_must_still_be_open() -> None:
    class ClosingWriter(RecordingWriter):
        def remove_label(self, number: int, label: str) -> None:
            super().remove_label(number, label)
            self.close_issue(number)

    applied, _ = apply(plan(close_by=CloseBy.AUTO), ClosingWriter())
    assert applied.outcome is Outcome.BOUNDARY_FAILED
    assert "should be open" in applied.reason


def test_an_issue_that_somebody_closed_before_is_no_failure() -> None:
    applied, _ = apply(plan(close_by=CloseBy.AUTO), RecordingWriter(state="closed"))
    assert (applied.outcome, applied.issue_state) == (Outcome.COMPLETED, "closed")


def test_what_is_already_so_is_left_alone() -> None:
    writer = RecordingWriter(state="closed", labels=("DONE",))
    applied, _ = apply(plan(commits=0), writer)
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
        apply_effects(plan(), writer=writer, pusher=RecordingPusher(), record=record)
    assert [receipt.kind for receipt in recorded] == list(itertools.islice(EffectKind, 3))
    assert writer.calls == ["create_pull_request", "create_comment"]


def test_a_failure_before_the_first_effect_is_a_failure_too() -> None:
    writer = RecordingWriter()
    writer.failures["permission"] = [WriteFailed("it answered 401", status=401, hint="Check the token.")]
    applied, recorded = apply(plan(), writer)
    said = "Nothing was written, because it could not be asked who may write: it answered 401 Check the token."
    assert (applied.outcome, applied.reason) == (Outcome.BOUNDARY_FAILED, said)
    assert recorded == []


def test_a_plan_with_commits_needs_somebody_to_push_them() -> None:
    applied = apply_effects(plan(), writer=RecordingWriter(), pusher=None, record=lambda _: None)
    assert applied.outcome is Outcome.BOUNDARY_FAILED
    assert "no commits were handed over" in applied.reason


def test_without_a_base_branch_the_repositorys_default_is_meant() -> None:
    writer = RecordingWriter()
    apply(plan(base_branch=""), writer)
    assert [pull.base for pull in writer.pulls] == ["main"]


def test_without_an_issue_the_branch_and_the_pull_request_are_all() -> None:
    writer, pusher = RecordingWriter(), RecordingPusher()
    applied, _ = apply(plan({}, issue=None), writer, pusher)
    assert applied.outcome is Outcome.COMPLETED
    assert (writer.calls, pusher.pushes) == (["create_pull_request"], [("stepflow/fixer/run-run-1", None)])


def test_a_label_that_vanished_between_look_and_removal_is_no_failure() -> None:
    class Vanishing(RecordingWriter):
        def remove_label(self, number: int, label: str) -> None:
            super().remove_label(number, label)
            raise WriteFailed("Label does not exist", status=404)

    assert apply(plan(), Vanishing())[0].outcome is Outcome.COMPLETED


def test_a_label_that_cannot_be_found_to_be_removed_but_is_there_is_a_failure() -> None:
    writer = RecordingWriter()
    writer.failures["remove_label"] = [WriteFailed("Not Found", status=404)]
    assert apply(plan(), writer)[0].outcome is Outcome.BOUNDARY_FAILED
