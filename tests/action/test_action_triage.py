"""`builtin/triage` on issues that strangers open: what it is shown and writes, who may start it, and the caps."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepflow.boundary.own_texts import Marker, Period, PeriodCost, mark_comment, today, without_marker
from stepflow.domain.conversation import Usage
from stepflow.domain.text import Spent
from stepflow.model.models import price_of
from tests.action.entry_process import EntryProcess
from tests.checkout import Invocation, git
from tests.servers.messages_api import Reply
from tests.world import World, answer

pytestmark = pytest.mark.whole
FORM = """
name: Bug report
description: Something does not work
body:
  - type: markdown
    attributes: { value: Thank you! }
  - type: input
    id: version
    attributes: { label: Version }
    validations: { required: true }
  - type: textarea
    id: steps
    attributes: { label: Steps to reproduce }
    validations: { required: true }
  - type: input
    attributes: { label: Operating system }
"""
CAPS = {"limits": {"usd-per-day": 2, "runs-per-person-per-day": 3}}


@pytest.fixture
def triage(world: World) -> World:
    """A repository with an issue form and no agents, whose workflow lets the shipped agent triage each new issue."""
    shutil.rmtree(world.checkout / ".agent")
    form = world.checkout / ".github/ISSUE_TEMPLATE/bug.yml"
    form.parent.mkdir(parents=True)
    form.write_text(FORM)
    git("add", "--all", cwd=world.checkout)
    git("commit", "--quiet", "--message", "Add a form", cwd=world.checkout)
    git("push", "--quiet", str(world.served), "main", cwd=world.checkout)
    world.runner.inputs |= {"agent": "builtin/triage", "start": {"events": "issues.opened,issues.reopened"}, **CAPS}
    state = world.github.state
    state.labels |= {"bug", "documentation", "release"}
    state.descriptions |= {"bug": "Something is broken", "release": "For maintainers"}
    del state.issues[7]
    return world


def closing(*labels: str, comment: str = "") -> Reply:
    """The one answer of the agent."""
    return answer("closure.default", "closing", comment=comment, issue={"labels": {"add": [*labels]}})


def issue_json(world: World, number: int) -> dict[str, Any]:
    facts = world.github.state.issues[number]
    return {
        "number": number,
        "title": facts["title"],
        "body": facts["body"],
        "user": {"login": facts["login"], "type": "User"},
        "html_url": f"https://github.example/o/r/issues/{number}",
        "labels": [{"name": name} for name in facts["labels"]],
        "author_association": {"write": "COLLABORATOR"}.get(
            world.github.state.permissions.get(facts["login"], ""), "NONE"
        ),
    }


def event_of(world: World, number: int, action: str, by: str, **more: Any) -> dict[str, Any]:
    return {
        "action": action,
        "issue": issue_json(world, number),
        "sender": {"login": by, "type": "User"},
        "repository": {"full_name": "o/r", "default_branch": "main", "private": False},
        **more,
    }


def open_issue(world: World, number: int, by: str = "eve", title: str = "It crashes", body: str = "Why?") -> dict:
    """The event of a new issue, which GitHub has by then."""
    world.github.state.add_issue(number, title, body, login=by)
    return event_of(world, number, "opened", by)


def comment_on(world: World, number: int, body: str, by: str = "eve") -> dict:
    comment = world.github.state.add_comment(number, body, by)
    user = {"login": by, "type": "User"}
    return event_of(
        world,
        number,
        "created",
        by,
        comment={"id": comment["id"], "body": body, "user": user, "author_association": "NONE"},
    )


def prompt(world: World) -> str:
    """What the model was asked first."""
    return str(world.model.bodies[0]["messages"])


def outcomes(*runs: Invocation) -> list[str]:
    return [done.outputs["outcome"] for done in runs]


def test_a_stranger_opens_an_issue_and_it_gets_a_label_and_a_comment(triage: World) -> None:
    done = triage.run(
        [closing("bug", comment="Which version do you use? It may be the same as #3.")], open_issue(triage, 7)
    )
    assert outcomes(done) == ["completed"], done.log
    assert triage.github.state.issues[7]["labels"] == ["bug"]
    (comment,) = triage.comments()
    assert without_marker(comment) == "Which version do you use? It may be the same as #3."
    assert triage.branches().keys() == {"main"}
    assert triage.github.state.issues[7]["state"] == "open"


def test_where_there_is_nothing_to_say_nothing_is_said(triage: World) -> None:
    done = triage.run([closing("documentation")], open_issue(triage, 7))
    assert outcomes(done) == ["completed"], done.log
    assert (triage.comments(), triage.github.state.issues[7]["labels"]) == ([], ["documentation"])
    done = triage.run([closing()], open_issue(triage, 8))
    assert outcomes(done) == ["completed"], done.log
    assert (triage.comments(), triage.github.state.issues[8]["labels"]) == ([], [])


def test_it_is_shown_the_labels_that_it_may_add_similar_issues_and_the_form(triage: World) -> None:
    for number in range(1, 31):
        triage.github.state.add_issue(
            number, f"It crashes again {number}", "Since <!-- secret plan --> version 2.", login="ann"
        )
    title = "It crashes repo:other/secret is:pr NOT found"
    done = triage.run([closing()], open_issue(triage, 40, title=title))
    assert outcomes(done) == ["completed"], done.log
    seen = prompt(triage)
    assert "bug: Something is broken" in seen
    assert "documentation" in seen
    assert "For maintainers" not in seen
    assert seen.count("It crashes again") == 20
    assert "#40 (open)" not in seen
    assert "secret plan" not in seen + done.summary
    assert "Bug report asks for:" in seen
    assert "- Version (required)" in seen
    assert "- Operating system\\n" in seen or "- Operating system" in seen
    (search,) = [each.path for each in triage.github.requests if each.path.startswith("/search")]
    assert "repo%3Aother" not in search
    assert "it+crashes+repo+other+secret+is+pr+not+found" in search


def test_a_search_that_fails_is_a_warning(triage: World) -> None:
    triage.github.fail("GET", "/search/issues", 422, times=9)
    done = triage.run([closing("bug")], open_issue(triage, 7))
    assert outcomes(done) == ["completed"], done.log
    assert "The agent is not shown all of labels, similar_issues" in done.log


def test_the_model_has_no_tool_and_is_the_cheap_one(triage: World) -> None:
    triage.run([closing()], open_issue(triage, 7), model={"name": "opus"})
    (body,) = triage.model.bodies
    assert not body.get("tools")
    assert "haiku" in body["model"]


def test_a_label_that_is_not_in_the_list_is_sent_back(triage: World) -> None:
    done = triage.run([closing("release"), closing("bug")], open_issue(triage, 7))
    assert outcomes(done) == ["completed"], done.log
    assert triage.github.state.issues[7]["labels"] == ["bug"]


def test_a_label_that_the_repository_does_not_have_is_not_created(triage: World) -> None:
    done = triage.run([closing("enhancement", "bug")], open_issue(triage, 7))
    assert outcomes(done) == ["completed"], done.log
    assert triage.github.state.issues[7]["labels"] == ["bug"]
    for said in (done.log, done.summary):
        assert "enhancement" in said
    assert "`enhancement` not added: the repository has no such label" in done.log
    alone = triage.run([closing("enhancement")], open_issue(triage, 8))
    assert outcomes(alone) == ["completed"], alone.log
    assert triage.github.state.issues[8]["labels"] == []


def test_a_label_that_is_renamed_while_a_run_works_is_not_created_anew(triage: World) -> None:
    event = open_issue(triage, 7)

    def rename(_body: dict[str, Any]) -> Reply:
        triage.github.state.labels ^= {"bug", "type: bug"}
        return closing("bug")

    done = triage.run(rename, event)
    assert outcomes(done) == ["completed"], done.log
    assert triage.github.state.issues[7]["labels"] == []


def test_a_preflight_names_the_labels_that_the_agent_can_never_add(triage: World) -> None:
    triage.github.state.add_issue(7, "It crashes", "Why?", login="ann")
    done = triage.runner.run(event_of(triage, 7, "opened", "bob"), mode="preflight")
    (row,) = [line for line in done.log.splitlines() if "never adds" in line]
    for name in ("duplicate", "enhancement", "good first issue", "invalid", "question"):
        assert name in row
    assert "bug" not in row


def test_the_person_beyond_the_cap_is_skipped_in_silence(triage: World) -> None:
    runs = [triage.run([closing("bug")], open_issue(triage, number)) for number in range(7, 12)]
    assert outcomes(*runs) == ["completed"] * 3 + ["skipped"] * 2
    assert (
        "eve has started 3 runs today, and limits.runs-per-person-per-day allows no more. Start the run again tomorrow"
        in runs[-1].outputs["reason"]
    )
    assert runs[-1].exit_code == 0
    assert triage.comments() == []
    assert len(triage.model.bodies) == 3
    other = triage.run([closing()], open_issue(triage, 20, by="mallory"))
    assert outcomes(other) == ["completed"], other.log


def test_to_close_and_reopen_an_issue_starts_no_more_runs_than_the_cap(triage: World) -> None:
    runs = [triage.run([closing()], open_issue(triage, 7))]
    for _ in range(4):
        triage.github.state.add_event(7, "reopened", "eve")
        runs.append(triage.run([closing()], event_of(triage, 7, "reopened", "eve")))
    assert outcomes(*runs) == ["completed"] * 3 + ["skipped"] * 2


def test_what_was_started_yesterday_does_not_count(triage: World) -> None:
    for number in range(1, 6):
        triage.github.state.add_issue(number, "Old", "", login="eve")
        triage.github.state.issues[number]["created_at"] = "2026-01-02T03:04:05Z"
    done = triage.run([closing()], open_issue(triage, 7))
    assert outcomes(done) == ["completed"], done.log


def spent_before(world: World, usd: float, *, runs: int = 1, issue: int = 99, period: Period = Period.DAY) -> None:
    """Another run of the day or the month has said what it cost."""
    cost = Spent(usd=usd)
    said = PeriodCost(period=period.of(today(None)), runs=runs, cost=cost)
    marker = Marker(run="r-0", agent="fixer", issue=issue, cost=cost, periods=(said,))
    world.github.state.add_issue(issue, "Another", "")
    world.github.state.issues[issue]["created_at"] = "2026-01-02T03:04:05Z"
    world.github.state.add_comment(issue, mark_comment("Done.", marker), "github-actions[bot]")


@pytest.mark.parametrize(("usd", "outcome"), [(1.97, "completed"), (1.99, "skipped")])
def test_what_the_day_has_cost_keeps_a_run_from_beginning(triage: World, usd: float, outcome: str) -> None:
    spent_before(triage, usd)
    done = triage.run([closing()], open_issue(triage, 7))
    assert outcomes(done) == [outcome], done.log
    assert len(triage.model.bodies) == (outcome == "completed")
    if outcome == "skipped":
        assert "$1.99 are spent today" in done.outputs["reason"]
        assert triage.comments()[1:] == []


def test_what_the_month_has_cost_keeps_a_run_from_beginning(triage: World) -> None:
    spent_before(triage, 29.99, period=Period.MONTH)
    done = triage.run([closing()], open_issue(triage, 7))
    assert outcomes(done) == ["completed"], done.log
    done = triage.run([], open_issue(triage, 8), limits={"usd-per-month": 30})
    assert (outcomes(done), done.exit_code) == (["skipped"], 0), done.log
    assert "$29.99 are spent this month and $0.0200 are kept for 1 run" in done.outputs["reason"]
    assert "Start the run again next month (UTC), or raise the limit." in done.outputs["reason"]
    first = f"since={today(None)[:7]}-01T00%3A00%3A00Z"
    assert [first in each.path for each in triage.github.requests if "/issues/comments" in each.path][-1]
    done = triage.run([closing()], open_issue(triage, 9), limits={"usd-per-month": 31})
    assert outcomes(done) == ["completed"], done.log


def test_somebody_with_write_access_is_told(triage: World) -> None:
    spent_before(triage, 1.99)
    done = triage.run([closing()], open_issue(triage, 7, by="bob"))
    assert (outcomes(done), done.exit_code) == (["refused"], 1)
    assert "Of $2.00 (limits.usd-per-day) that leaves less than this run's budget of $0.02" in done.outputs["reason"]


def test_a_run_that_has_not_said_what_it_cost_counts_its_whole_budget(triage: World) -> None:
    # A hundred runs of $0.02 fit into $2, whoever starts them.
    for number in range(101, 201):
        triage.github.state.add_issue(number, "Quiet", "", login=f"user-{number}")
    done = triage.run([closing()], open_issue(triage, 300))
    assert outcomes(done) == ["skipped"], done.log
    assert "$2.00 are kept for 100 runs whose cost is not known" in done.outputs["reason"]
    del triage.github.state.issues[101]
    del triage.github.state.issues[300]
    assert outcomes(triage.run([closing()], open_issue(triage, 300))) == ["completed"]


@pytest.mark.fast
@pytest.mark.parametrize("cap", CAPS["limits"])
def test_one_cap_alone_lets_no_stranger_in(triage: World, cap: str) -> None:
    triage.runner.inputs["limits"] = {cap: CAPS["limits"][cap]}
    done = triage.run([], open_issue(triage, 7))
    assert (outcomes(done), triage.model.bodies) == (["misconfigured"], []), done.log


def test_without_caps_a_stranger_is_refused_and_a_writer_is_not(triage: World) -> None:
    for name in CAPS:
        del triage.runner.inputs[name]
    done = triage.run([closing()], open_issue(triage, 7))
    assert (outcomes(done), triage.model.bodies) == (["misconfigured"], []), done.log
    assert "`usd-per-day` and `runs-per-person-per-day`" in done.outputs["reason"]
    assert outcomes(triage.run([closing()], open_issue(triage, 8, by="bob"))) == ["completed"]


def test_caps_without_a_read_token_are_refused(triage: World) -> None:
    event = open_issue(triage, 7, by="octocat")
    event["issue"]["author_association"] = "OWNER"
    done = triage.run([closing()], event, read_token="")
    assert outcomes(done) == ["misconfigured"], done.log


def test_another_agent_is_not_started_by_a_stranger(triage: World) -> None:
    done = triage.run([], open_issue(triage, 7), agent="builtin/review")
    assert outcomes(done) == ["skipped"], done.log
    assert "eve (NONE) may not start an agent by their own issue" in done.outputs["reason"]
    assert triage.model.bodies == []


@pytest.mark.parametrize("command", ["/stepflow run nobody", "/stepflow run ../x", "/stepflow approve 12ab"])
def test_a_strangers_command_never_makes_a_job_fail(triage: World, command: str) -> None:
    triage.github.state.add_issue(7, "It crashes", "Why?", login="ann")
    done = triage.runner.run(comment_on(triage, 7, command), name="issue_comment")
    assert (outcomes(done), done.exit_code) == (["skipped"], 0), done.log


def test_a_strangers_command_starts_it_too(triage: World) -> None:
    triage.github.state.add_issue(7, "It crashes", "Why?", login="ann")
    triage.play([closing("bug")])
    done = triage.runner.run(comment_on(triage, 7, "/stepflow run triage"), name="issue_comment")
    assert outcomes(done) == ["completed"], done.log


def test_a_policy_with_a_least_permission_lets_no_stranger_start_one(triage: World) -> None:
    done = triage.run([], open_issue(triage, 7), policy="start: {min-permission: write}")
    assert outcomes(done) == ["skipped"], done.log


def test_the_caps_may_be_those_of_a_policy(triage: World) -> None:
    for name in CAPS:
        del triage.runner.inputs[name]
    policy = "limits: {usd-per-day: 2, runs-per-person-per-day: 1}"
    assert outcomes(triage.run([closing()], open_issue(triage, 7), policy=policy)) == ["completed"]
    done = triage.run([closing()], open_issue(triage, 8), policy=policy, limits={"runs-per-person-per-day": 9})
    assert (outcomes(done), len(triage.model.bodies)) == (["skipped"], 1), done.log


MENTION = {"start": {"mention": "helper-bot", "events": ""}}


def test_a_mention_starts_it_and_shows_it_the_comment(triage: World) -> None:
    triage.github.state.add_issue(7, "It crashes", "Why?", login="ann")
    triage.github.state.add_comment(7, "I am not asked.", "mallory")
    event = comment_on(triage, 7, "@helper-bot is this known?")
    done = triage.runner.run(event, name="issue_comment", **MENTION) if triage.play([closing("bug")]) is None else None
    assert done is not None
    assert outcomes(done) == ["completed"], done.log
    assert "is this known?" in prompt(triage)
    assert "I am not asked." not in prompt(triage)


@pytest.mark.parametrize(
    "body",
    ["helper-bot, hello", "@helper-bots", "mail@helper-bot", "> @helper-bot", "`@helper-bot`", "```\n@helper-bot\n```"],
)
def test_what_is_no_mention_starts_nothing(triage: World, body: str) -> None:
    triage.github.state.add_issue(7, "It crashes", "Why?", login="ann")
    done = triage.runner.run(comment_on(triage, 7, body), name="issue_comment", **MENTION)
    assert outcomes(done) == ["skipped"], done.log
    assert "does not mention @helper-bot" in done.outputs["reason"]


def test_mentions_count_for_the_cap_too(triage: World) -> None:
    triage.github.state.add_issue(7, "It crashes", "Why?", login="ann")
    triage.play([closing() for _ in range(9)])
    runs = [
        triage.runner.run(comment_on(triage, 7, f"@helper-bot {number}"), name="issue_comment", **MENTION)
        for number in range(5)
    ]
    assert outcomes(*runs) == ["completed"] * 3 + ["skipped"] * 2


def test_an_assignment_starts_it_for_the_account_that_is_mentioned(triage: World) -> None:
    triage.github.state.add_issue(7, "It crashes", "Why?", login="ann")
    inputs = {"start": {"mention": "helper-bot", "events": "issues.assigned"}}
    for login, outcome in (("ann", "skipped"), ("Helper-Bot", "completed")):
        triage.github.state.add_event(7, "assigned", "bob", assignee=login)
        event = event_of(triage, 7, "assigned", "bob", assignee={"login": login, "type": "User"})
        done = triage.run([closing()], event, **inputs)
        assert outcomes(done) == [outcome], done.log


@pytest.mark.timeout(600)
def test_fifty_issues_in_a_minute_by_three_people_start_no_more_runs_than_the_caps(
    triage: World, tmp_path: Path
) -> None:
    """Four jobs run at once, each with a checkout of its own; the issues of a second are opened together."""
    people = [("eve", "mallory", "trudy")[number % 3] for number in range(50)]
    events = [open_issue(triage, 100 + number, by=by) for number, by in enumerate(people)]
    triage.play(lambda body: closing("bug", comment="Which version?"))

    def run(number: int) -> str:
        folder = tmp_path / f"job-{number}"
        (folder / "runner").mkdir(parents=True)
        shutil.copytree(triage.checkout, folder / "checkout")
        job = replace(triage, runner=replace(triage.runner, checkout=folder / "checkout", folder=folder / "runner"))
        return EntryProcess(job, job.runner.prepare(events[number])).end(timeout=300).outputs["outcome"]

    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(run, reversed(range(50))))[::-1]
    started = Counter(by for by, outcome in zip(people, ended, strict=True) if outcome == "completed")
    assert set(ended) == {"completed", "skipped"}
    assert started == {"eve": 3, "mallory": 3, "trudy": 3}
    assert [number for number, outcome in enumerate(ended) if outcome == "completed"] == list(range(9))
    assert len(triage.model.bodies) == len(triage.comments()) == 9


WORDS = "The program stops with a traceback when it opens the second file of a folder, and nothing is written. "


def test_the_largest_usual_triage_costs_at_most_a_cent(triage: World) -> None:
    """10 KB of issue, twenty similar ones of 1 KB, a hundred labels, and an issue form, on `haiku`; the answer is the
    longest comment that the prompt asks for. Even if each character were a token, it would cost less."""
    for number in range(1, 31):
        triage.github.state.add_issue(number, f"The program stops at the second file {number}", WORDS * 10, login="ann")
    triage.github.state.labels |= {f"area: {number}" for number in range(100)}
    body = (WORDS * 100)[:10_000]
    done = triage.run([closing("bug", comment=WORDS * 5)], open_issue(triage, 40, title="The program stops", body=body))
    assert outcomes(done) == ["completed"], done.log
    (asked,) = triage.model.bodies
    sent = len(json.dumps([asked["system"], asked["messages"], asked.get("output_config", {})]))
    assert sent > 10_000 + 20 * 300
    usage = Usage(input_tokens=sent, output_tokens=len(WORDS * 5) + 300)
    cost = price_of("haiku", usage)
    assert cost is not None
    assert cost <= 0.01, (sent, usage, cost)


def test_the_preflight_says_who_may_start_it(triage: World) -> None:
    done = triage.run([], open_issue(triage, 7), mode="preflight")
    assert "anyone, within $2.00 a day and 3 runs a day of one person" in done.log
    done = triage.run([], open_issue(triage, 8), mode="preflight", limits={"usd-per-day": ""})
    assert "a run of somebody without write access ends as misconfigured" in done.log
