"""What a completed run writes, as a table: definition and answer in, effects out."""

from typing import TypeVar

import pytest

from stepflow.boundary.plan import plan_effects
from stepflow.boundary.settings import CommitsInfo, Plan, branch_name, unfinished_branch
from stepflow.domain.agent.agent_settings import CompletionLabels, Labels, PullRequestSettings
from stepflow.domain.effect import (
    AddLabels,
    CreateRelease,
    EffectKind,
    OpenPullRequest,
    PostComment,
    PushBranch,
    RemoveLabels,
)
from stepflow.domain.json import JsonObject
from stepflow.domain.run import FollowUp, Issue
from stepflow.domain.secrets import Redactor
from stepflow.domain.words import CloseBy, ClosureAction, Outcome, VerdictType
from tests.boundary.agents import ISSUE, agent, facts, result, settings

T = TypeVar("T")
COMMITS = CommitsInfo(count=2)
POLL, COUNT = VerdictType.POLL_STATE, VerdictType.COUNT_ITERATION


def plan(
    answer: JsonObject | None = None,
    verdict: VerdictType = POLL,
    commits: CommitsInfo | None = None,
    issue: Issue | None = ISSUE,
    given: dict[str, object] | None = None,
    verified: str = "",
    **github: object,
) -> Plan:
    return plan_effects(
        agent(verdict, **github),
        facts(issue),
        result(answer),
        settings(**(given or {})),
        summary="All done.",
        verified=verified,
        commits=commits,
        redactor=Redactor(("ghs_secretsecret",)),
    )


def kinds(plan: Plan) -> str:
    return " ".join(effect.kind for effect in plan.effects)


def effect(plan: Plan, kind: type[T]) -> T:
    return next(effect for effect in plan.effects if isinstance(effect, kind))


ALL = "push_branch open_pull_request post_comment add_labels remove_labels create_release close_issue"
LABELS = {"issue": {"labels": {"add": ["done"], "remove": ["todo"]}}}
KINDS: dict[str, tuple[Plan, str]] = {
    "poll:state closes by default": (plan(), "post_comment remove_labels close_issue"),
    "other verdicts close nothing by default": (plan(verdict=COUNT), "post_comment remove_labels"),
    "the answer may close": (
        plan({"closure_action": "close"}, verdict=COUNT),
        "post_comment remove_labels close_issue",
    ),
    "the answer beats agent.json": (
        plan({"closure_action": "label-only"}, default_closure_action=ClosureAction.CLOSE),
        "post_comment remove_labels",
    ),
    "labels change only with a closure action for labels": (plan(LABELS), "post_comment remove_labels close_issue"),
    "label-and-close does both": (
        plan({"closure_action": "label-and-close", **LABELS}),
        "post_comment add_labels remove_labels close_issue",
    ),
    "commits become a pull request, and the merge closes": (
        plan(commits=COMMITS),
        "push_branch open_pull_request post_comment remove_labels",
    ),
    "closeBy merge without a pull request leaves the issue open": (
        plan(close_by=CloseBy.MERGE),
        "post_comment remove_labels",
    ),
    "pull requests can be switched off": (
        plan(commits=COMMITS, pull_request=PullRequestSettings(enabled=False)),
        "post_comment remove_labels close_issue",
    ),
    "everything at once, least visible first": (
        plan(
            {"closure_action": "label-and-close", **LABELS, "release": {"tag": "v1"}},
            commits=COMMITS,
            close_by=CloseBy.NOW,
            allowed_effects=("comment", "labels", "close", "pull_request", "release"),
        ),
        ALL,
    ),
    "only what allowedEffects lists": (
        plan({"closure_action": "label-and-close", **LABELS}, commits=COMMITS, allowed_effects=("labels",)),
        "add_labels remove_labels",
    ),
    "a disabled integration writes nothing": (plan(LABELS, commits=COMMITS, enabled=False), ""),
    "a workflow is started after all else, where something is pushed": (
        plan(commits=COMMITS, close_by=CloseBy.NOW, given={"ci_workflow": "ci.yml"}),
        "push_branch open_pull_request post_comment remove_labels close_issue dispatch_workflow",
    ),
    "without an issue only code and releases": (
        plan(LABELS, commits=COMMITS, issue=None),
        "push_branch open_pull_request",
    ),
    "no label started the run": (plan(given={"started_by_label": None}), "post_comment close_issue"),
}


@pytest.mark.parametrize(("planned", "expected"), KINDS.values(), ids=KINDS)
def test_the_kinds_of_effects(planned: Plan, expected: str) -> None:
    assert kinds(planned) == expected
    assert planned.refusal is None


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.COMPLETED])
def test_a_run_that_did_not_complete_plans_nothing(outcome: Outcome) -> None:
    failed = result({"comment": "x"}, outcome=outcome)
    assert plan_effects(agent(), facts(), failed, settings(), summary="s", commits=COMMITS).effects == ()


def test_a_step_that_is_no_closure_writes_nothing_whatever_it_answers() -> None:
    worked = result({"closure_action": "close", "comment": "x"}, step_id="initial.issue")
    assert plan_effects(agent(), facts(), worked, settings(), summary="s", commits=COMMITS).effects == ()


@pytest.mark.parametrize(
    ("planned", "state"),
    [
        (plan(), "closed"),
        (plan(commits=COMMITS), "open"),
        (plan(commits=COMMITS, close_by=CloseBy.NOW), "closed"),
        (plan(close_by=CloseBy.MERGE), "open"),
        (plan({"closure_action": "label-only"}), None),
    ],
)
def test_the_state_that_the_read_back_expects(planned: Plan, state: str | None) -> None:
    assert (planned.expects, planned.reads_back) == (state, True)


def test_targets_never_come_from_the_answer() -> None:
    answer: JsonObject = {
        "repository": "evil/r",
        "issue": {"number": 99},
        "base": "gh-pages",
        "pull_request": {"title": "T", "base": "gh-pages", "head": "main", "branch": "main"},
    }
    planned = plan(answer, commits=COMMITS)
    assert planned.issue == ISSUE
    assert planned.settings.repository == "o/r"
    assert effect(planned, OpenPullRequest).base == "main"
    assert effect(planned, PushBranch).branch == "stepflow/fixer/issue-7"


def test_a_draft_is_what_the_answer_says_then_agent_json_then_yes() -> None:
    ready = PullRequestSettings(draft=False)
    answer: JsonObject = {"pull_request": {"draft": True}}
    assert effect(plan(answer, commits=COMMITS, pull_request=ready), OpenPullRequest).draft is True
    assert effect(plan(commits=COMMITS, pull_request=ready), OpenPullRequest).draft is False
    assert effect(plan(commits=COMMITS), OpenPullRequest).draft is True


def test_the_pull_request_says_what_it_closes_only_when_its_merge_is_to_close() -> None:
    assert "Closes #7." in effect(plan(commits=COMMITS), OpenPullRequest).body
    assert "For #7." in effect(plan(commits=COMMITS, close_by=CloseBy.NOW), OpenPullRequest).body
    assert "#7" not in effect(plan(commits=COMMITS, issue=None), OpenPullRequest).body


def test_what_the_model_wrote_is_filtered_everywhere() -> None:
    dirty = "@bob fixes #1 ghs_secretsecret"
    answer: JsonObject = {
        "comment": dirty,
        "pull_request": {"title": dirty, "body": dirty},
        "release": {"tag": "v1", "name": dirty, "body": dirty},
    }
    planned = plan(answer, commits=COMMITS, allowed_effects=("comment", "pull_request", "release"))
    clean, title = "@\u200bbob f\u200bixes #1 ***", "@bob fixes issue #1 ***"
    opened, released = effect(planned, OpenPullRequest), effect(planned, CreateRelease)
    assert effect(planned, PostComment).body == clean
    assert (opened.title, opened.body.splitlines()[0]) == (title, clean)
    assert (released.name, released.body) == (title, clean)


@pytest.mark.parametrize("before", range(60, 85, 4))
def test_no_part_of_a_secret_is_left_where_a_warning_is_cut(before: int) -> None:
    long = f"{'x' * before}ghs_secretsecret/"
    answer: JsonObject = {
        "release": {"tag": f"{long} ", "name": "n"},
        "issue": {"labels": {"add": [long[before - 40 :]], "remove": 7}},
        "threads": [f"{long}"],
        "pull_request": {"title": ["x" * (before - 4), "ghs_secretsecret"]},
    }
    planned = plan(answer, commits=COMMITS, allowed_effects=("comment", "labels", "pull_request", "release"))
    assert planned.warnings
    assert [text for text in (*planned.warnings, *planned.objections) if "ghs_" in text] == []


def test_the_answers_comment_replaces_the_summary() -> None:
    assert effect(plan({"comment": "Hello."}), PostComment).body == "Hello."
    assert effect(plan(), PostComment).body == "All done."


def test_what_was_checked_stands_below_the_texts_of_the_model() -> None:
    answer: JsonObject = {"comment": "Hello.", "pull_request": {"title": "Greet", "body": "I greet."}}
    planned = plan(answer, commits=CommitsInfo(count=1), verified="- ✅ `make test` ghs_secretsecret")
    checked = "---\n\n- ✅ `make test` ***"
    assert effect(planned, PostComment).body == f"Hello.\n\n{checked}"
    assert effect(planned, OpenPullRequest).body.startswith(f"I greet.\n\n{checked}\n\nCloses #7.")
    # The engine's own comment has it already.
    assert effect(plan(verified="- ✅ `make test`"), PostComment).body == "All done."


def test_a_pull_request_without_a_text_in_the_answer_has_that_of_the_comment() -> None:
    given = {"commits": CommitsInfo(count=1), "verified": "- ✅ `make test`"}
    answered = effect(plan({"comment": "Hello."}, **given), OpenPullRequest).body
    assert answered.startswith("Hello.\n\n---\n\n- ✅ `make test`\n\nCloses #7.")
    # The engine's own comment has the checks already.
    assert effect(plan(**given), OpenPullRequest).body.startswith("All done.\n\n---\n\nCloses #7.")


def test_a_branch_without_an_issue_is_named_after_the_run() -> None:
    assert branch_name(agent(), facts(None)) == "stepflow/fixer/run-run-1"
    named = agent(pull_request=PullRequestSettings(branch_prefix="bot/"))
    assert branch_name(named, facts()) == "bot/fixer/issue-7"


def test_unfinished_work_goes_to_no_branch_that_a_pull_request_is_opened_from() -> None:
    review = FollowUp(
        kind="review", pull_request=8, url="x", branch="stepflow/fixer/run-run-0", base="main", head="a" * 40
    )
    runs = (facts(), facts(None), facts(follow_up=review), facts(None, follow_up=review))
    assert [unfinished_branch(agent(), each) for each in runs] == [
        "stepflow/fixer/run-run-1",
        "stepflow/fixer/run-run-1-unfinished",
        "stepflow/fixer/run-run-1",
        "stepflow/fixer/run-run-1",
    ]


@pytest.mark.parametrize("prefix", ["../", "-x", "a..b/", "a b/", "/", "a.lock/"])
def test_a_branch_that_git_does_not_allow_is_refused_before_anything_is_written(prefix: str) -> None:
    planned = plan(commits=COMMITS, pull_request=PullRequestSettings(branch_prefix=prefix))
    assert planned.effects == ()
    assert planned.refusal is not None
    assert "branchPrefix" in planned.refusal


def test_the_base_branch_is_never_pushed_to() -> None:
    planned = plan(commits=COMMITS, pull_request=PullRequestSettings(base="stepflow/fixer/issue-7"))
    assert planned.effects == ()
    assert planned.refusal is not None


def label_plan(add: list[str], remove: list[str] = [], **github: object) -> Plan:  # noqa: B006
    answer: JsonObject = {"closure_action": "label-only", "issue": {"labels": {"add": [*add], "remove": [*remove]}}}
    return plan(answer, given={"trigger_labels": ("agent:*", "go")}, **github)


def test_labels_are_united_with_those_of_agent_json() -> None:
    planned = label_plan(
        ["done", "Done"],
        ["todo"],
        labels=Labels(completion=CompletionLabels(add=("reviewed", "done"), remove=("wip",))),
    )
    assert effect(planned, AddLabels).labels == ("reviewed", "done")
    assert effect(planned, RemoveLabels).labels == ("agent:fixer", "wip", "todo")


@pytest.mark.parametrize("label", ["agent:fixer", "Agent:Other", "go", "GO", "x" * 51])
def test_a_label_that_could_start_an_agent_is_never_added(label: str) -> None:
    planned = label_plan(
        [label], allowed_labels=("*",), labels=Labels(completion=CompletionLabels(add=("fine", label)))
    )
    assert effect(planned, AddLabels).labels == ("fine",)
    assert any(label[:50] in warning for warning in planned.warnings)


def test_a_label_outside_the_allow_list_is_dropped_with_a_warning() -> None:
    planned = label_plan(["area/ui", "AREA/db", "urgent"], allowed_labels=("area/*",))
    assert effect(planned, AddLabels).labels == ("area/ui", "AREA/db")
    assert planned.warnings == ("Label `urgent` cannot be changed: `allowedLabels` in agent.json does not list it.",)


def test_ten_label_changes_are_the_most() -> None:
    planned = label_plan([f"l{n}" for n in range(8)], [f"r{n}" for n in range(8)])
    added, removed = effect(planned, AddLabels).labels, effect(planned, RemoveLabels).labels
    assert len(added) + len(removed) == 10
    assert removed == ("agent:fixer", "r0")
    assert sum("at most 10 labels" in warning for warning in planned.warnings) == 7


WRONG: dict[str, JsonObject] = {
    "closure_action": {"closure_action": "reopen"},
    "issue.labels.add": {"closure_action": "label-only", "issue": {"labels": {"add": "done"}}},
    "issue.labels.remove": {"issue": {"labels": {"remove": [1, {}]}}},
    "comment": {"comment": ["a"]},
    "pull_request.draft": {"pull_request": {"draft": "yes"}},
    "pull_request.title": {"pull_request": {"title": 3}},
    "release": {"release": {"name": "no tag"}},
}


@pytest.mark.parametrize(("path", "answer"), WRONG.items())
def test_a_field_of_the_wrong_type_has_no_effect_and_is_warned_about(path: str, answer: JsonObject) -> None:
    planned = plan(answer, commits=COMMITS)
    assert any(f"`{path}`" in warning for warning in planned.warnings)
    assert EffectKind.ADD_LABELS not in kinds(planned).split()


def test_a_release_needs_leave_and_a_proper_tag() -> None:
    answer: JsonObject = {"release": {"tag": "v1.2", "name": "One"}}
    refused = plan(answer)
    assert "create_release" not in kinds(refused)
    assert any("allowedEffects" in warning for warning in refused.warnings)
    released = effect(plan(answer, allowed_effects=("release",)), CreateRelease)
    assert released == CreateRelease(tag="v1.2", name="One", body="", draft=False)
    odd = plan({"release": {"tag": "../v1"}}, allowed_effects=("release",))
    assert odd.effects == ()
    assert any("name of a tag" in warning for warning in odd.warnings)
