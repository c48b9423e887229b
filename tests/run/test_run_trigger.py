"""An event asks for one agent on one issue, or for nothing."""

from __future__ import annotations

import re
import time

import pytest
import yaml

from stepflow.domain.run import Issue
from stepflow.domain.words import FollowUpKind
from stepflow.errors import InputError
from stepflow.run.start.event import read_event
from stepflow.run.start.inputs import read_inputs
from stepflow.run.start.trigger import ApprovalReply, PullRequestEvent, Skip, Trigger, find_trigger, is_mentioned
from tests.docs.page import USE_PAGE

ISSUE = {
    "number": 7,
    "title": "修正 🐛",
    "body": "أصلحه",
    "user": {"login": "ann", "type": "User"},
    "html_url": "https://github.com/o/r/issues/7",
    "labels": [{"name": "bug"}, {"name": "agent:fixer"}],
    "author_association": "NONE",
}
ANN = {"login": "ann", "type": "User"}
BOB = {"login": "bob", "type": "User"}
BOT = {"login": "helper[bot]", "type": "Bot"}
RUN = "/stepflow run fixer"
NUMBERS = [
    *("7", "#7", "GH-7", "gh-7", " 7 ", "7.0", "\u200b7", "\u00a0#7\u2060", "７", "＃７", "٧", "o/r#7", "O/R#7"),
    *(
        "https://github.com/o/r/issues/7",
        "https://GitHub.com/o/r/issues/7?x=1#issuecomment-5",
        "http://github.com/o/r/pull/7",
    ),
]


def labeled(label: str = "agent:fixer", *, sender: dict = BOB, **issue: object) -> dict:
    return {
        "action": "labeled",
        "label": {"name": label},
        "issue": {**ISSUE, **issue},
        "sender": sender,
        "repository": {"full_name": "o/r", "default_branch": "main"},
    }


def opened(action: str = "opened", **issue: object) -> dict:
    return {"action": action, "issue": {**ISSUE, **issue}, "sender": BOB}


def commented(body: str, *, association: str = "MEMBER", **issue: object) -> dict:
    return {
        "action": "created",
        "issue": {**ISSUE, **issue},
        "comment": {"body": body, "user": BOB, "author_association": association},
        "sender": BOB,
    }


def pulled(action: str = "opened", *, sender: dict = BOB, label: str = "agent:fixer", **facts: object) -> dict:
    pull = {"number": 8, "user": ANN, "author_association": "NONE", "head": {"sha": "abc"}, **facts}
    return {"action": action, "pull_request": pull, "label": {"name": label}, "sender": sender}


PULL = {"pull_request": {"url": "x"}}


def line_comment(body: str) -> dict:
    comment = {"body": body, "user": BOB, "author_association": "MEMBER"}
    return {"action": "created", "pull_request": {"number": 8}, "comment": comment, "sender": BOB}


def reviewed(*, sender: dict = BOB, **review: object) -> dict:
    said = {"state": "changes_requested", "body": "Two things.", "author_association": "MEMBER", **review}
    return {"action": "submitted", "pull_request": {"number": 8}, "review": said, "sender": sender}


def checked(conclusion: str | None, **run: object) -> dict:
    facts = {"id": 500, "conclusion": conclusion, "head_branch": "stepflow/fixer/issue-7", "head_sha": "a" * 40, **run}
    return {"action": "completed", "workflow_run": facts, "sender": BOB}


def dispatched(**fields: object) -> dict:
    return {"sender": BOB, **fields}


def find(name: str, payload: dict, actor: str = "", agents: tuple[str, ...] = (), **inputs: str) -> Trigger | Skip:
    given = {key.replace("_", "-"): value for key, value in inputs.items()}
    return find_trigger(name, read_event(payload), read_inputs(given), actor=actor, agents=agents)


def started(name: str, payload: dict, **options: object) -> Trigger:
    trigger = find(name, payload, **options)
    assert isinstance(trigger, Trigger), trigger
    return trigger


def test_a_label_with_the_prefix_names_the_agent_and_the_event_carries_the_issue() -> None:
    assert started("issues", labeled()) == Trigger(
        agent="fixer",
        actor="bob",
        actor_is_bot=False,
        issue=Issue(
            number=7,
            title="修正 🐛",
            body="أصلحه",
            author="ann",
            url="https://github.com/o/r/issues/7",
            labels=("bug", "agent:fixer"),
        ),
        issue_number=7,
        start_kind="issues.labeled",
        label="agent:fixer",
        default_branch="main",
        locked=False,
    )


@pytest.mark.parametrize(
    ("label", "inputs"),
    [
        ("🤖 fixer", {"start": {"labels": "🤖 *"}}),
        ("fixer", {"start": {"labels": "*"}, "agents": ("fixer", "writer")}),
        ("go", {"start": {"labels": "agent:*\ngo"}, "agent": "fixer"}),
        ("run the fixer now", {"start": {"labels": "run the * now"}}),
        ("Agent:Fixer", {}),
    ],
)
def test_a_label_in_any_script_starts_an_agent_by_its_pattern_by_name_or_for_the_input(
    label: str, inputs: dict
) -> None:
    trigger = started("issues", labeled(label), **inputs)
    assert (trigger.agent, trigger.label) == ("fixer", label)


@pytest.mark.parametrize("action", ["opened", "reopened", "assigned"])
@pytest.mark.parametrize(
    ("author", "association", "by_writer", "unproven"),
    [
        (BOB, "OWNER", True, ""),
        (BOB, "COLLABORATOR", False, ""),
        (BOB, "NONE", False, "bob (NONE) may not start an agent by their own issue; that takes"),
        (ANN, "OWNER", False, ""),
    ],
)
def test_an_issue_starts_the_agent_of_the_input_where_start_on_lists_it(
    action: str, author: dict, association: str, by_writer: bool, unproven: str
) -> None:
    event = opened(action, user=author, author_association=association)
    trigger = started("issues", event, agent="fixer", start={"events": f"issues.{action}"}, read_token="x")
    assert (trigger.agent, trigger.issue_number, trigger.label) == ("fixer", 7, None)
    assert trigger.by_writer is by_writer
    assert trigger.unproven.startswith(unproven)
    assert bool(trigger.unproven) is bool(unproven)


@pytest.mark.parametrize("name", ["pull_request", "pull_request_target"])
@pytest.mark.parametrize(
    ("action", "head", "label"),
    [
        ("labeled", "", "agent:fixer"),
        ("opened", "abc", None),
        ("synchronize", "abc", None),
        ("ready_for_review", "abc", None),
    ],
)
def test_a_pull_request_is_reviewed_where_a_label_or_start_on_asks_for_it(
    name: str, action: str, head: str, label: str | None
) -> None:
    events = "pull_request.opened, pull_request.synchronize, pull_request.ready_for_review"
    trigger = started(name, pulled(action), agent="fixer", start={"events": events})
    assert (trigger.agent, trigger.issue_number, trigger.label) == ("fixer", 8, label)
    assert trigger.pull_request == PullRequestEvent(number=8, head=head)
    assert (trigger.by_writer, trigger.unproven) == (False, "")
    own = started(name, pulled(action, sender=ANN), agent="fixer", start={"events": events}, read_token="x")
    assert own.unproven.startswith("ann (NONE) may not start a review of their own pull request")


@pytest.mark.parametrize(
    ("name", "payload", "agent", "asked"),
    [
        ("issue_comment", commented("/stepflow run", **PULL), "", {"number": 7, "is_command": True}),
        (
            "issue_comment",
            commented(f"{RUN}\n\nLouder, please.\nAnd soon.", **PULL),
            "fixer",
            {"number": 7, "remark": "Louder, please.\nAnd soon.", "is_command": True},
        ),
        ("pull_request_review_comment", line_comment("/stepflow run"), "", {"number": 8, "is_command": True}),
        ("pull_request_review", reviewed(), "", {"number": 8, "remark": "Two things."}),
        ("pull_request_review", reviewed(state="commented", body=None), "", {"number": 8}),
    ],
)
def test_what_is_said_on_a_pull_request_asks_for_a_follow_up(
    name: str, payload: dict, agent: str, asked: dict[str, object]
) -> None:
    """Whose work it is says GitHub; the input `agent` is for what names none."""
    trigger = started(name, payload, agent="writer")
    assert trigger.pull_request == PullRequestEvent(kind=FollowUpKind.REVIEW, **asked)  # type: ignore[arg-type]
    assert (trigger.agent, trigger.issue, trigger.issue_number, trigger.by_writer) == (agent, None, None, False)


@pytest.mark.parametrize("conclusion", ["failure", "timed_out", "startup_failure"])
def test_a_workflow_that_failed_on_a_branch_asks_for_a_follow_up(conclusion: str) -> None:
    trigger = started("workflow_run", checked(conclusion), agent="writer")
    assert trigger.agent == ""
    assert trigger.pull_request == PullRequestEvent(
        kind=FollowUpKind.CHECKS, failed_run=500, branch="stepflow/fixer/issue-7", head="a" * 40
    )


@pytest.mark.parametrize(("name", "key"), [("pull_request_review", "review"), ("workflow_run", "workflow_run")])
def test_an_event_without_its_subject_is_an_error(name: str, key: str) -> None:
    payload = {"pull_request_review": reviewed(), "workflow_run": checked("failure")}[name]
    del payload[key]
    with pytest.raises(InputError, match="event carries no"):
        find(name, payload)


@pytest.mark.parametrize("name", ["schedule", "workflow_dispatch", "repository_dispatch", "workflow_call", "push"])
def test_any_other_event_starts_the_agent_of_the_input_on_the_issue_of_the_input(name: str) -> None:
    """A called workflow sees its caller's event."""
    by_writer = name != "workflow_call"
    expected = Trigger(agent="fixer", actor="bob", actor_is_bot=False, issue_number=9, by_writer=by_writer)
    assert started(name, dispatched(), agent="fixer", issue="9") == expected


@pytest.mark.parametrize(
    ("form", "inputs", "number"),
    [
        ({"issue": "12"}, {}, 12),
        ({"issue": "12"}, {"issue": "9"}, 9),
        ({"issue": ""}, {}, None),
        ({}, {}, None),
        *(({"issue": text}, {}, 7) for text in NUMBERS),
    ],
)
def test_a_dispatch_form_may_name_the_issue_itself(form: dict, inputs: dict, number: int | None) -> None:
    payload = dispatched(inputs=form, repository={"full_name": "o/r"})
    assert started("workflow_dispatch", payload, agent="fixer", **inputs).issue_number == number


@pytest.mark.parametrize("text", NUMBERS)
def test_the_input_takes_a_number_as_people_write_it(text: str) -> None:
    payload = dispatched(repository={"full_name": "o/r"})
    assert started("schedule", payload, agent=" fixer\n", issue=text).issue_number == 7


@pytest.mark.parametrize(
    "text", ["7; id", "${{ github.token }}", "7\n8", "-7", "0", "7.5", "seven", "#", "7 8", "https://github.com/o/r"]
)
def test_what_names_no_issue_is_refused_and_never_evaluated(text: str) -> None:
    payload = dispatched(inputs={"issue": text, "agent": text})
    with pytest.raises(InputError, match="is not the number of an issue; write it as 7"):
        find("workflow_dispatch", payload, agent="fixer")
    with pytest.raises(InputError, match="is not the number of an issue; write it as 7"):
        read_inputs({"issue": text})


@pytest.mark.parametrize(
    "text", ["https://github.com/o/other/issues/7", "https://github.example/o/r/issues/7", "x/r#7"]
)
def test_an_issue_of_another_repository_is_refused(text: str) -> None:
    payload = dispatched(inputs={"issue": text}, repository={"full_name": "o/r"})
    with pytest.raises(InputError, match=r"The issue 7 is in .*, and the run is in o/r\."):
        find("workflow_dispatch", payload, agent="fixer")


@pytest.mark.parametrize(
    "labels",
    ["agent:* ", "\n  agent:*\n\n", "\u00a0agent:*", "go\r\nagent:*\r\n"],
    ids=["behind", "lines", "fixed", "CR"],
)
def test_blanks_around_a_label_of_the_list_do_not_count(labels: str) -> None:
    assert started("issues", labeled(), start={"labels": labels}).agent == "fixer"


def test_a_comment_answers_a_run_that_waits() -> None:
    assert started("issue_comment", commented("/stepflow approve 12ab\nthanks")).reply == ApprovalReply(digest="12ab")
    for body in ("/stepflow approve `12AB`.", "/stepflow approve 12ab, thank you"):
        assert started("issue_comment", commented(body)).reply == ApprovalReply(digest="12ab")
    assert started("issue_comment", commented("/stepflow approve")).reply == ApprovalReply(digest="")
    rejected = started("issue_comment", commented("/stepflow reject too large"))
    assert (rejected.agent, rejected.reply) == ("", ApprovalReply(digest=None, reason="too large"))


def test_a_bot_approves_nothing_even_where_it_may_start_runs() -> None:
    skipped = find("issue_comment", {**commented("/stepflow approve 12ab"), "sender": BOT}, start={"bots": "helper"})
    assert isinstance(skipped, Skip)
    assert "only people approve" in skipped.reason


def test_a_bot_is_skipped_unless_it_is_named() -> None:
    assert isinstance(find("issues", labeled(sender=BOT)), Skip)
    assert started("issues", labeled(sender=BOT), start={"bots": "other, helper"}).actor_is_bot


def test_a_read_token_shows_what_a_person_may_and_never_what_a_bot_may() -> None:
    """A bot may repeat what strangers told it."""
    by_person, bots = commented(RUN, association="NONE"), {"start": {"bots": "helper"}}
    by_bot = {**by_person, "sender": BOT}
    assert started("issue_comment", by_person, read_token="ghs_of_a_test", **bots).unproven
    for payload, token, login in ((by_person, "", "bob"), (by_bot, "ghs_of_a_test", "helper[bot]")):
        skipped = find("issue_comment", payload, read_token=token, **bots)
        assert isinstance(skipped, Skip)
        assert skipped.reason.startswith(f"{login} (NONE) may not start an agent by a comment")


NO_COMMAND = 'does not begin with "/stepflow run <agent>"'
NO_AGENT = "names no agent and the input agent is empty"


@pytest.mark.parametrize(
    ("name", "payload", "inputs", "words"),
    [
        ("issues", labeled("bug"), {}, 'the label "bug" starts no agent; start.labels: agent:*'),
        ("issues", labeled("bug"), {"start": {"labels": "*"}, "agents": ("fixer", "writer")}, "is not an agent's name"),
        ("issues", labeled("go"), {"start": {"labels": "agent:*\ngo"}}, NO_AGENT),
        ("issues", labeled(sender=ANN), {}, "ann (NONE) may not label their own issue"),
        ("issues", opened(), {"agent": "fixer"}, "issues.opened starts no agent; start.events: nothing"),
        (
            "issues",
            opened(),
            {"start": {"events": "issues.reopened"}},
            "starts no agent; start.events: issues.reopened",
        ),
        (
            "issues",
            opened(user=BOB),
            {"start": {"events": "issues.opened"}, "agent": "fixer"},
            "bob (NONE) may not start",
        ),
        ("issues", opened("edited"), {"agent": "fixer"}, "the event issues.edited starts no agent"),
        ("pull_request", pulled(), {"agent": "fixer"}, "pull_request.opened starts no agent; start.events: nothing"),
        ("pull_request", pulled(), {"start": {"events": "pull_request.opened"}}, NO_AGENT),
        ("pull_request_target", pulled("closed"), {"agent": "fixer"}, "the event pull_request.closed starts no agent"),
        ("issue_comment", commented(f"please {RUN}"), {}, NO_COMMAND),
        ("issue_comment", commented("/stepflow run"), {}, NO_COMMAND),
        ("issue_comment", commented(RUN, association="NONE"), {}, "bob (NONE) may not start an agent by a comment"),
        ("issue_comment", commented("/stepflow approve abc", **PULL), {}, "approved or rejected on the issue"),
        ("pull_request_review_comment", line_comment("I would not."), {}, NO_COMMAND),
        ("pull_request_review_comment", {**line_comment(RUN), "action": "edited"}, {}, "starts no agent"),
        ("pull_request_review", reviewed(state="approved"), {}, "the review approves"),
        ("pull_request_review", reviewed(sender=BOT), {}, "helper[bot] is a bot"),
        ("pull_request_review", {**reviewed(), "action": "dismissed"}, {}, "starts no agent"),
        ("workflow_run", {**checked("failure"), "action": "requested"}, {"agent": "fixer"}, "starts no agent"),
        ("workflow_dispatch", dispatched(), {}, NO_AGENT),
    ],
)
def test_what_starts_no_run_is_skipped_with_the_reason_in_one_line(
    name: str, payload: dict, inputs: dict, words: str
) -> None:
    skipped = find(name, payload, **inputs)
    assert isinstance(skipped, Skip)
    assert words in skipped.reason
    assert len(skipped.reason.splitlines()) == 1
    assert 20 < len(skipped.reason) < 160


@pytest.mark.parametrize(
    ("association", "trusted"),
    [
        *(("OWNER", True), ("MEMBER", True), ("COLLABORATOR", True)),
        *(("CONTRIBUTOR", False), ("NONE", False), ("A_WORD_OF_TOMORROW", False)),
    ],
)
def test_the_association_decides_who_may_label_an_own_issue_or_comment(association: str, trusted: bool) -> None:
    own = find("issues", labeled(sender=ANN, author_association=association))
    comment = find("issue_comment", commented(RUN, association=association))
    for trigger in (own, comment):
        assert isinstance(trigger, Trigger if trusted else Skip)
        if isinstance(trigger, Skip):
            assert association in trigger.reason


@pytest.mark.parametrize(
    ("name", "payload", "message"),
    [
        ("issues", {"action": 5}, "payload is not what GitHub sends"),
        ("issues", {"action": "labeled", "sender": BOB}, "carries no issue"),
        ("issue_comment", {"action": "created", "sender": BOB}, "carries no comment"),
    ],
)
def test_a_payload_that_github_does_not_send_is_one_clear_error(name: str, payload: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find(name, payload)


@pytest.mark.parametrize(
    ("before", "after", "is_heard"),
    [("`", "`", False), ("`` ` ", " ``", False), ("``", "`", True), ("`", "", True), ("`a` ", " `b`", True)],
)
def test_a_mention_within_code_is_not_heard(before: str, after: str, is_heard: bool) -> None:
    assert is_mentioned("helper-bot", f"Hello {before}you, @helper-bot{after}") is is_heard


@pytest.mark.parametrize(
    "text",
    [
        "Look: <!-- @helper-bot, please -->",
        "<!--\n@helper-bot\n\n/stepflow run fixer\n-->",
        "    @helper-bot",
        "> she said: @helper-bot",
        "On Friday, Ann wrote:\n> @helper-bot",
        "Thanks.\n\n-----Original Message-----\nFrom: Ann\n\n@helper-bot",
        "[look](https://github.com/@helper-bot)",
        "<https://github.com/@helper-bot>",
        "https://github.com/@helper-bot",
        "<a title='@helper-bot'>look</a>",
        "![@helper-bot](x.png)",
        '[x]: https://github.com "@helper-bot"',
        "<details><summary>Log</summary>\n\n@helper-bot\n\n</details>",
        "<template>@helper-bot</template>",
        "@helper\u200b-bot",
        "mail@helper-bot",
        "@helper-bot/team",
        "<kbd>@helper-bot</kbd>",
    ],
)
def test_what_the_page_does_not_show_as_said_to_somebody_is_no_mention(text: str) -> None:
    skipped = find("issue_comment", commented(text), agent="fixer", start={"mention": "helper-bot"})
    assert isinstance(skipped, Skip)
    assert "does not mention @helper-bot" in skipped.reason


@pytest.mark.parametrize(
    "text",
    [
        "**@helper-bot**: look",
        "<!-- form -->\n@Helper-Bot",
        "- [ ] @helper-bot",
        "&#64;helper-bot",
        "a\r\n(@helper-bot)",
    ],
)
def test_what_the_page_shows_as_a_mention_is_one(text: str) -> None:
    assert started("issue_comment", commented(text), agent="fixer", start={"mention": "helper-bot"}).agent == "fixer"


@pytest.mark.parametrize(
    "text",
    [
        f"{RUN} and be quick",
        f"{RUN}, please.",
        f"<!-- Thank you for your comment! -->\n\n{RUN}\n",
        "/Stepflow Run Fixer",
        "\u00a0/stepflow\u00a0run\u00a0fixer",
        "\ufeff/stepflow run \u200bfixer\u200b",
        f"\r\n{RUN}\r\nsoon",
        "/stepflow run `fixer`",
        "&#47;stepflow run fixer",
        "**/stepflow run fixer**",
    ],
)
def test_a_command_is_read_as_the_page_shows_it(text: str) -> None:
    assert started("issue_comment", commented(text)).agent == "fixer"


@pytest.mark.parametrize(
    "text",
    [
        f"<!-- {RUN} -->",
        f"<!--\n{RUN}\n-->\nThanks.",
        f"> {RUN}",
        f"`{RUN}`",
        f"    {RUN}",
        f"```\n{RUN}\n```",
        f"Please:\n{RUN}",
        f"<details>\n\n{RUN}\n\n</details>",
        f"[{RUN}](https://example.org)",
        "/stepflow-run fixer",
        "/stepflow walk fixer",
        "/stepflow run",
    ],
)
def test_what_the_page_does_not_show_as_a_command_starts_nothing(text: str) -> None:
    skipped = find("issue_comment", commented(text))
    assert isinstance(skipped, Skip)
    assert skipped.reason.startswith('the comment does not begin with "/stepflow run <agent>"')


@pytest.mark.parametrize("text", [f"{RUN} Louder, please.\nAnd soon.", f"{RUN} Louder, please.\r\nAnd soon."])
def test_words_behind_a_command_are_a_part_of_the_message(text: str) -> None:
    trigger = started("issue_comment", commented(text, **PULL))
    assert trigger.pull_request is not None
    assert (trigger.agent, trigger.pull_request.remark) == ("fixer", "Louder, please.\nAnd soon.")


@pytest.mark.parametrize("text", ["a" + "`" * 65_000, " ".join("`" * length for length in range(350))])
def test_no_comment_makes_the_search_for_a_mention_slow(text: str) -> None:
    started = time.process_time()
    assert is_mentioned("helper-bot", f"{text} @helper-bot")
    assert time.process_time() - started < 5


def label_rows() -> list[tuple[str, ...]]:
    """The page's table of labels and agents: what is on the issue, the inputs, the agent's folder."""
    table = (
        USE_PAGE.read_text(encoding="utf-8").partition("| on the issue | inputs | agent |\n")[2].partition("\n\n")[0]
    )
    return [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in table.splitlines()[1:]]


@pytest.mark.parametrize("row", label_rows(), ids=lambda row: row[0])
def test_the_pages_table_of_labels_and_agents_holds(row: tuple[str, ...]) -> None:
    on_issue, given, folder = row
    kind, text = on_issue.replace("`", "").split(" ", 1)
    inputs = read_inputs(yaml.safe_load("\n".join(re.findall(r"`([^`]+)`", given))) or {})
    agent = folder.strip("`").removeprefix(".agent/")
    name, payload = ("issues", labeled(text)) if kind == "label" else ("issue_comment", commented(text))
    trigger = find_trigger(name, read_event(payload), inputs, agents=(agent,))
    assert isinstance(trigger, Trigger)
    assert (trigger.agent, trigger.label) == (agent, text if kind == "label" else None)
