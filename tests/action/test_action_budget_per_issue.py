"""`limits.usd-per-issue`: what all runs on an issue may cost, kept in the run's comment; and the ledger of them."""

from __future__ import annotations

import json

import pytest

from stepflow.boundary.own_texts import Marker, mark_comment, read_marker
from stepflow.cli import main
from stepflow.domain.text import Spent
from tests.checkout import Invocation
from tests.servers.messages_api import Reply
from tests.world import READ_TOKEN, World, answer, by_owner, solve, understood

pytestmark = pytest.mark.whole

GIVES_UP: list[Reply] = [understood(), answer("continuation.issue", "abort", reason="no")]


@pytest.fixture
def reading(world: World) -> World:
    """A world whose runner may read before the flow."""
    world.github.read_token = READ_TOKEN
    world.runner.inputs["read-token"] = READ_TOKEN
    return world


def marker(world: World) -> Marker:
    """That of the issue's last comment."""
    marker = read_marker(world.comments()[-1])
    assert marker is not None
    return marker


def spent_earlier(world: World, usd: float, *, by: str = "github-actions[bot]", at_least: bool = False) -> None:
    cost = Spent(usd=usd, at_least=at_least)
    world.github.state.add_comment(
        7, mark_comment("Earlier.", Marker(run="r-0", agent="fixer", issue=7, cost=cost)), by
    )


def again(world: World) -> None:
    world.check_out_again()


def issue_cost(done: Invocation) -> str:
    return str(done.report["issue_cost"])


def test_without_a_read_token_the_sum_is_told_and_not_asked_for_before_the_closing(world: World) -> None:
    spent_earlier(world, 19.99)
    done = world.run(solve(), by_owner(), limits={"usd-per-issue": 20}, read_token="")
    assert (done.outputs["outcome"], set(world.requests_before_turn)) == ("completed", {0}), done.log
    cost = float(done.outputs["cost-usd"])
    assert marker(world).cost.usd == pytest.approx(19.99 + cost, abs=1e-5)
    cost_line = f"all runs on this issue: ${19.99 + cost:.2f} of $20.00"
    assert f"[Budget] {cost_line}. No other run may begin on it" in done.log
    assert cost_line in done.summary
    assert issue_cost(done) == cost_line


def test_without_the_input_the_sum_is_kept_and_not_told(world: World) -> None:
    done = world.run(solve())
    assert marker(world).cost.usd == pytest.approx(float(done.outputs["cost-usd"]), abs=1e-5)
    assert "all runs on this issue" not in done.log + done.summary


def test_a_run_gets_what_the_earlier_ones_left(reading: World) -> None:
    spent_earlier(reading, 19.992)
    done = reading.run(solve(), limits={"usd-per-issue": 20})
    assert (done.outputs["outcome"], done.exit_code) == ("budget_exhausted", 1), done.log
    assert 1 <= len(reading.model.bodies) < 5
    cost = float(done.outputs["cost-usd"])
    reason = f"${19.992 + cost:.2f} of $20.00 are spent by all runs on this issue, ${cost:.4f} of it by this one"
    assert reason in done.outputs["reason"]
    assert "(limits.usd-per-issue)" in done.outputs["reason"]
    (comment,) = reading.comments()
    assert "limits.usd-per-issue" in comment
    assert marker(reading).cost.usd == pytest.approx(19.992 + cost, abs=1e-5)


def test_when_nothing_is_left_nothing_is_spent(reading: World) -> None:
    spent = 20.0
    spent_earlier(reading, spent)
    done = reading.run(solve(), limits={"usd-per-issue": 20})
    assert (done.outputs["outcome"], done.exit_code) == ("budget_exhausted", 1), done.log
    assert (reading.model.bodies, done.outputs["cost-usd"]) == ([], "0.000000")
    assert f"${spent:.2f} of $20.00 are spent by all runs on this issue" in done.outputs["reason"]
    assert marker(reading).cost == Spent(usd=spent)


def test_a_smaller_budget_of_the_run_itself_stays(reading: World) -> None:
    done = reading.run(solve(), limits={"usd-per-issue": 20, "usd": 0.001})
    assert "(limits.usd)" in done.outputs["reason"]


def test_a_marker_by_another_account_never_counts(reading: World) -> None:
    for author in ("eve", "bob", "other[bot]"):
        spent_earlier(reading, 500, by=author)
    done = reading.run(solve(), limits={"usd-per-issue": 20})
    assert done.outputs["outcome"] == "completed", done.log
    assert marker(reading).cost.usd < 1


def test_a_run_that_fails_adds_its_cost(reading: World) -> None:
    first = reading.run(GIVES_UP, limits={"usd-per-issue": 20})
    assert first.outputs["outcome"] != "completed"
    again(reading)
    second = reading.run(solve(), limits={"usd-per-issue": 20})
    costs = [float(done.outputs["cost-usd"]) for done in (first, second)]
    assert min(costs) > 0
    assert marker(reading).cost.usd == pytest.approx(sum(costs), abs=1e-5)
    assert marker(reading).before.usd == pytest.approx(costs[0], abs=1e-5)
    assert len(reading.comments()) == 1


def test_a_broken_boundary_counts_its_run_once(reading: World) -> None:
    reading.github.fail("POST", r"/issues/7/labels$", 403, times=9)
    done = reading.run(solve(), limits={"usd-per-issue": 20})
    assert done.outputs["outcome"] == "boundary_failed"
    assert marker(reading).cost.usd == pytest.approx(float(done.outputs["cost-usd"]), abs=1e-5)


def test_turns_without_a_known_price_make_the_sum_a_least(reading: World) -> None:
    spent_earlier(reading, 1.5, at_least=True)
    done = reading.run(solve(), limits={"usd-per-issue": 20})
    assert issue_cost(done).startswith("all runs on this issue: at least $1.5")
    assert marker(reading).cost.at_least


def test_a_read_token_of_another_account_is_told_when_it_hid_earlier_costs(reading: World) -> None:
    reading.github.state.reader = ("carol", 77)
    spent_earlier(reading, 500)
    done = reading.run(solve(), limits={"usd-per-issue": 20})
    assert done.outputs["outcome"] == "completed", done.log
    assert "all runs on this issue: $500." in done.log
    assert "read-token belongs to another account than github-token" in done.log


def test_a_run_that_goes_on_counts_its_own_part_once_and_what_others_spent_meanwhile(reading: World) -> None:
    folder = str(reading.runner.folder / "mine")
    first = reading.run([understood()], run_folder=folder, limits={"iterations": 1})
    assert first.outputs["outcome"] == "limit_reached", first.log
    own = marker(reading)
    again = reading.run(solve()[1:], run_folder=folder, limits={"usd-per-issue": 20})
    assert again.outputs["outcome"] == "completed", again.log
    assert marker(reading).run == own.run
    assert marker(reading).cost.usd == pytest.approx(float(again.outputs["cost-usd"]), abs=1e-5)


def test_a_run_that_goes_on_is_held_to_what_others_left_meanwhile(reading: World) -> None:
    folder = str(reading.runner.folder / "mine")
    first = reading.run([understood()], run_folder=folder, limits={"iterations": 1})
    assert first.outputs["outcome"] == "limit_reached", first.log
    spent_earlier(reading, 25)
    requests = len(reading.model.bodies)
    again = reading.run(solve()[1:], run_folder=folder, limits={"usd-per-issue": 20})
    assert again.outputs["outcome"] == "budget_exhausted", again.log
    assert len(reading.model.bodies) == requests


@pytest.mark.parametrize(
    ("agent", "given", "setting"),
    [(0.001, "5", "maxUsd in agent.json"), (5, "0.001", "(limits.usd)"), (0.001, "0.001", "(limits.usd)")],
)
def test_the_lower_of_the_agents_budget_and_the_input_ends_a_run(
    world: World, agent: float, given: str, setting: str
) -> None:
    world.edit("agent.json", lambda document: document["runner"].update(boundaries={"maxUsd": agent}))
    done = world.run(solve(), limits={"usd": given})
    assert (done.outputs["outcome"], len(world.model.bodies)) == ("budget_exhausted", 1), done.log
    assert f"of $0.0010 are spent ({setting})" in done.outputs["reason"]


def test_the_ledger_knows_a_failed_run_and_the_one_that_opened_the_pull_request(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = world.run([answer("initial.issue", "abort", reason="no idea")], on_failure="comment")
    done = world.run(solve())
    (pull,) = world.pulls()
    pull["merged_at"] = "2026-11-28T10:00:00Z"
    server = world.github
    capsys.readouterr()
    monkeypatch.setenv("GITHUB_TOKEN", server.token)
    addresses = ("--github-api-url", server.api_url, "--github-server-url", server.web_url)
    assert main(["ledger", "--repository", server.state.repository, "--json", *addresses]) == 0
    ledger = json.loads(capsys.readouterr().out)
    (figures,) = ledger["figures"]
    digest = done.report["definition_digest"]
    assert (figures["agent"], figures["digest"]) == ("fixer", digest[:12])
    assert (figures["runs"], figures["completed"], figures["accepted"]) == (2, 1, 1)
    spent = sum(float(each.outputs["cost-usd"]) for each in (failed, done))
    assert figures["cost_usd"] == figures["cost_per_accepted_usd"] == pytest.approx(spent, abs=1e-5)
    assert ledger["unlisted_usd"] == 0
