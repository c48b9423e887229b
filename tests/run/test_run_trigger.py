"""An event asks for one agent on one issue, or for nothing."""

from __future__ import annotations

import re

import pytest
import yaml

from stepflow.errors import InputError
from stepflow.run.inputs import read_inputs
from stepflow.run.request import Skip, Trigger, find_trigger, read_event
from tests.docs.readme import README

ISSUE = {
    "number": 7,
    "title": "Fix it",
    "body": "It is broken.",
    "user": {"login": "ann", "type": "User"},
    "html_url": "https://github.com/o/r/issues/7",
    "labels": [{"name": "bug"}, {"name": "agent:fixer"}],
    "author_association": "NONE",
}
BOB = {"login": "bob", "type": "User"}


def labeled(label: str = "agent:fixer", *, sender: dict = BOB, **issue: object) -> dict:
    return {
        "action": "labeled",
        "label": {"name": label},
        "issue": {**ISSUE, **issue},
        "sender": sender,
        "repository": {"full_name": "o/r", "default_branch": "main"},
    }


def commented(body: str, *, association: str = "MEMBER", **issue: object) -> dict:
    return {
        "action": "created",
        "issue": {**ISSUE, **issue},
        "comment": {"body": body, "user": BOB, "author_association": association},
        "sender": BOB,
    }


def find(name: str, payload: dict, actor: str = "", **inputs: str) -> Trigger | Skip:
    given = {key.replace("_", "-"): value for key, value in inputs.items()}
    return find_trigger(name, read_event(payload), read_inputs(given), actor=actor)


@pytest.mark.parametrize(
    ("label", "inputs", "agent"),
    [
        ("🤖 fixer", {"label_prefix": "🤖 "}, "fixer"),
        ("エージェント:fixer", {"label_prefix": "エージェント:"}, "fixer"),
        ("وكيل/fixer", {"label_prefix": "وكيل/"}, "fixer"),
        ("🐛 直して", {"trigger_label": "🐛 直して", "agent": "fixer"}, "fixer"),
    ],
)
def test_labels_may_be_in_any_script(label: str, inputs: dict[str, str], agent: str) -> None:
    trigger = find("issues", labeled(label, title="修正 🐛", body="أصلحه"), **inputs)
    assert isinstance(trigger, Trigger)
    assert (trigger.agent, trigger.label) == (agent, label)
    assert trigger.issue is not None
    assert (trigger.issue.title, trigger.issue.body) == ("修正 🐛", "أصلحه")


def test_a_label_with_the_prefix_names_the_agent_and_the_event_carries_the_issue() -> None:
    trigger = find("issues", labeled())
    assert isinstance(trigger, Trigger)
    assert (trigger.agent, trigger.actor, trigger.label, trigger.default_branch) == (
        "fixer",
        "bob",
        "agent:fixer",
        "main",
    )
    assert trigger.issue is not None
    assert (trigger.issue.number, trigger.issue.title, trigger.issue.body, trigger.issue.author) == (
        7,
        "Fix it",
        "It is broken.",
        "ann",
    )
    assert trigger.issue.labels == ("bug", "agent:fixer")


def test_the_prefix_can_be_changed_and_the_trigger_label_starts_the_agent_of_the_input() -> None:
    assert find("issues", labeled("bot/fixer"), label_prefix="bot/").agent == "fixer"
    assert find("issues", labeled("go"), trigger_label="go", agent="fixer").agent == "fixer"


@pytest.mark.parametrize(
    ("label", "inputs", "words"),
    [
        ("bug", {}, 'does not begin with "agent:"'),
        ("agent:", {}, "names no agent"),
        ("go", {"trigger_label": "go"}, "input agent is empty"),
    ],
)
def test_a_label_that_is_not_ours_is_skipped_with_the_reason(label, inputs, words) -> None:
    trigger = find("issues", labeled(label), **inputs)
    assert isinstance(trigger, Skip)
    assert words in trigger.reason


def test_an_issues_author_without_a_role_cannot_start_a_run_by_labelling_it() -> None:
    own = {"login": "ann", "type": "User"}
    assert isinstance(find("issues", labeled(sender=own)), Skip)
    assert isinstance(find("issues", labeled(sender=own, author_association="COLLABORATOR")), Trigger)


#: Every word that GitHub knows (its GraphQL enum CommentAuthorAssociation), and whether it may start a run where the
#: word is all that is known of whoever asks.
ASSOCIATIONS = {
    "COLLABORATOR": True,
    "CONTRIBUTOR": False,
    "FIRST_TIMER": False,
    "FIRST_TIME_CONTRIBUTOR": False,
    "MANNEQUIN": False,
    "MEMBER": True,
    "NONE": False,
    "OWNER": True,
}
ANN = {"login": "ann", "type": "User"}


@pytest.mark.parametrize("association", [*ASSOCIATIONS, "A_WORD_OF_TOMORROW"])
def test_the_association_decides_who_may_label_an_own_issue_or_comment(association: str) -> None:
    trusted = ASSOCIATIONS.get(association, False)
    own = find("issues", labeled(sender=ANN, author_association=association))
    comment = find("issue_comment", commented("/stepflow run fixer", association=association))
    for trigger in (own, comment):
        assert isinstance(trigger, Trigger if trusted else Skip)
        if isinstance(trigger, Skip):
            assert association in trigger.reason


@pytest.mark.parametrize("association", ASSOCIATIONS)
def test_whoever_labels_the_issue_of_somebody_else_or_dispatches_is_trusted_by_github_whatever_the_author_is(
    association: str,
) -> None:
    """GitHub lets nobody below the role `triage` put a label on, and nobody without write access dispatch."""
    assert isinstance(find("issues", labeled(author_association=association)), Trigger)
    event = {"sender": BOB, "issue": {**ISSUE, "author_association": association}}
    assert isinstance(find("workflow_dispatch", event, agent="fixer"), Trigger)


@pytest.mark.parametrize("missing", ["issue", "comment"])
def test_an_event_without_an_association_is_that_of_a_stranger(missing: str) -> None:
    event = labeled(sender=ANN) if missing == "issue" else commented("/stepflow run fixer")
    del event[missing]["author_association"]
    assert isinstance(find("issues" if missing == "issue" else "issue_comment", event), Skip)


def test_a_bot_is_skipped_unless_it_is_named() -> None:
    bot = {"login": "helper[bot]", "type": "Bot"}
    skipped = find("issues", labeled(sender=bot))
    assert isinstance(skipped, Skip)
    assert "helper[bot] is a bot" in skipped.reason
    named = find("issues", labeled(sender=bot), allow_bots="other, helper")
    assert isinstance(named, Trigger)
    assert named.actor_is_bot


@pytest.mark.parametrize("body", ["/stepflow run fixer", "/stepflow run fixer\nplease", "  /stepflow   run fixer"])
def test_a_comment_command_names_the_agent(body) -> None:
    trigger = find("issue_comment", commented(body))
    assert isinstance(trigger, Trigger)
    assert trigger.agent == "fixer"
    assert trigger.issue_number == 7


@pytest.mark.parametrize("body", ["", "please /stepflow run fixer", "/stepflow", "/stepflow run", "/stepflow run a b"])
def test_any_other_comment_is_skipped(body) -> None:
    assert isinstance(find("issue_comment", commented(body)), Skip)


def test_a_commenter_without_a_role_and_a_pull_request_are_skipped() -> None:
    assert isinstance(find("issue_comment", commented("/stepflow run fixer", association="CONTRIBUTOR")), Skip)
    assert isinstance(find("issue_comment", commented("/stepflow run fixer", pull_request={"url": "x"})), Skip)


def test_a_dispatch_takes_agent_and_issue_from_the_inputs() -> None:
    trigger = find("workflow_dispatch", {"sender": BOB}, agent="fixer", issue="9")
    assert isinstance(trigger, Trigger)
    assert (trigger.agent, trigger.issue_number, trigger.issue) == ("fixer", 9, None)


def test_a_dispatch_form_may_name_the_issue_itself() -> None:
    assert find("workflow_dispatch", {"sender": BOB, "inputs": {"issue": "12"}}, agent="fixer").issue_number == 12
    assert find("workflow_dispatch", {"sender": BOB, "inputs": {"issue": "x"}}, agent="fixer").issue_number is None
    assert find("workflow_dispatch", {"sender": BOB, "inputs": {"issue": "12"}}, agent="f", issue="9").issue_number == 9


def test_an_event_without_an_agent_or_of_another_action_is_skipped() -> None:
    assert isinstance(find("schedule", {}), Skip)
    assert isinstance(find("issues", {"action": "opened", "sender": BOB}), Skip)


def test_a_schedule_runs_for_the_actor_that_the_runner_names() -> None:
    trigger = find("schedule", {}, actor="carol", agent="fixer")
    assert isinstance(trigger, Trigger)
    assert trigger.actor == "carol"


@pytest.mark.parametrize("payload", [{"action": 5}, {"issue": {"title": "x"}}, {"label": "agent:fixer"}])
def test_a_payload_that_is_not_githubs_is_one_clear_error(payload) -> None:
    with pytest.raises(InputError, match="payload is not what GitHub sends"):
        find("issues", payload)


@pytest.mark.parametrize(("name", "action"), [("issues", "labeled"), ("issue_comment", "created")])
def test_an_event_that_lacks_its_issue_is_one_clear_error(name, action) -> None:
    with pytest.raises(InputError, match="carries no"):
        find(name, {"action": action, "sender": BOB})


@pytest.mark.parametrize("name", ["schedule", "workflow_dispatch", "repository_dispatch", "workflow_call", "push"])
def test_any_other_event_starts_the_agent_of_the_input_on_the_issue_of_the_input(name: str) -> None:
    """A called workflow sees its caller's event."""
    trigger = find(name, {"sender": BOB}, agent="fixer", issue="9")
    assert isinstance(trigger, Trigger)
    assert (trigger.agent, trigger.issue_number, trigger.label, trigger.actor) == ("fixer", 9, None, "bob")
    skipped = find(name, {"sender": BOB})
    assert skipped == Skip(reason=f"the event {name} names no agent and the input agent is empty")


@pytest.mark.parametrize(
    ("name", "event", "inputs"),
    [
        ("issues", labeled("bug"), {}),
        ("issues", labeled("agent:"), {}),
        ("issues", labeled("go"), {"trigger_label": "go"}),
        ("issues", labeled(sender={"login": "ann", "type": "User"}), {}),
        ("issues", labeled(sender={"login": "helper[bot]", "type": "Bot"}), {}),
        ("issues", {"action": "opened", "sender": BOB}, {}),
        ("issue_comment", commented("thanks\n\n/stepflow run fixer"), {}),
        ("issue_comment", commented("/stepflow run fixer", association="NONE"), {}),
        ("issue_comment", commented("/stepflow run fixer", pull_request={"url": "x"}), {}),
        ("issue_comment", {"action": "deleted", "sender": BOB}, {}),
        ("schedule", {}, {}),
    ],
)
def test_whatever_is_skipped_says_why_in_one_line(name: str, event: dict, inputs: dict[str, str]) -> None:
    trigger = find(name, event, **inputs)
    assert isinstance(trigger, Skip)
    assert len(trigger.reason.splitlines()) == 1
    assert 20 < len(trigger.reason) < 160


def readme_rows() -> list[tuple[str, ...]]:
    """The README's table of labels and agents: what is on the issue, the inputs, the agent's folder."""
    table = README.read_text(encoding="utf-8").partition("| on the issue | inputs | agent |\n")[2].partition("\n\n")[0]
    return [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in table.splitlines()[1:]]


@pytest.mark.parametrize("row", readme_rows(), ids=lambda row: row[0])
def test_the_readmes_table_of_labels_and_agents_holds(row: tuple[str, ...]) -> None:
    on_issue, given, folder = row
    kind, text = on_issue.replace("`", "").split(" ", 1)
    inputs = read_inputs(yaml.safe_load("\n".join(re.findall(r"`([^`]+)`", given))) or {})
    agent = folder.strip("`").removeprefix(".agent/")
    name, payload = ("issues", labeled(text)) if kind == "label" else ("issue_comment", commented(text))
    trigger = find_trigger(name, read_event(payload), inputs, agents=(agent,))
    assert isinstance(trigger, Trigger)
    assert (trigger.agent, trigger.label) == (agent, text if kind == "label" else None)


def test_with_an_empty_prefix_only_the_names_of_agents_are_labels_of_ours() -> None:
    inputs = read_inputs({"label-prefix": ""})
    trigger = find_trigger("issues", read_event(labeled("fixer")), inputs, agents=("fixer", "writer"))
    assert isinstance(trigger, Trigger)
    assert (trigger.agent, trigger.label) == ("fixer", "fixer")
    skipped = find_trigger("issues", read_event(labeled("bug")), inputs, agents=("fixer", "writer"))
    assert isinstance(skipped, Skip)
    assert "is no agent's name" in skipped.reason


@pytest.mark.parametrize("private", [True, False, None])
def test_a_trigger_knows_whether_the_repository_is_private_if_the_event_says_so(private) -> None:
    trigger = find("workflow_dispatch", {"sender": BOB, "repository": {"private": private}}, agent="fixer")
    assert isinstance(trigger, Trigger)
    assert trigger.private is private


@pytest.mark.parametrize("text", ["7; id", "$(id)", "`id`", "${{ github.token }}", "7\n8", "-7", "٧", "7 "])
def test_a_dispatch_input_with_shell_characters_is_only_text(text: str) -> None:
    """Nothing evaluates it: what is no number is no issue, and an agent's name is only compared (security.md 32)."""
    payload = {"sender": BOB, "inputs": {"issue": text, "agent": text}}
    trigger = find("workflow_dispatch", payload, agent="fixer")
    assert isinstance(trigger, Trigger)
    assert (trigger.agent, trigger.issue_number) == ("fixer", None)
    with pytest.raises(InputError):
        read_inputs({"issue": text if text != "7 " else "7 x"})
