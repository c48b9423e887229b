"""Which comment, branch and pull request are a run's own, when others share its account, its issue or its name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepflow.boundary.apply import ApplyResult
from stepflow.boundary.github_failures import RetryPolicy
from stepflow.boundary.github_writer import GitHubWriter
from stepflow.boundary.own_texts import Marker, mark_comment
from stepflow.boundary.plan import plan_effects
from stepflow.boundary.settings import CommitsInfo
from stepflow.domain.effect import EffectKind, EffectStatus, Receipt
from stepflow.domain.text import Spent
from stepflow.domain.words import Outcome
from tests.boundary.agents import BOT, RecordingPusher, agent, apply, facts, result, settings
from tests.boundary.test_boundary_retry_policy import StillClock
from tests.servers.github_api import GitHubServer

MARKER = f"<!-- stepflow run=run-0 agent=fixer issue=7 commit={'b' * 40} cost=999999.000000 before=0.000000 -->"


def run(
    writer: GitHubWriter,
    pusher: RecordingPusher,
    *,
    name: str = "fixer",
    run_id: str = "run-1",
    comment: str = "All done.",
    cost: float = 2,
) -> tuple[ApplyResult, list[Receipt]]:
    plan = plan_effects(
        agent(name=name),
        facts(run_id=run_id),
        result({"comment": comment}),
        settings(),
        summary="",
        commits=CommitsInfo(count=1),
        cost=Spent(usd=cost),
    )
    return apply(plan, writer, pusher)


def own_comment() -> str:
    """What a run with another account's knowledge of us would copy."""
    cost = Spent(usd=999_999)
    return mark_comment("All done.", Marker(run="run-0", agent="fixer", issue=7, commit="b" * 40, cost=cost))


QUOTES = {
    "in a quote": lambda ours: "@eve wrote:\n\n" + "\n".join(f"> {line}" for line in ours.split("\n")),
    "in a fence": lambda ours: f"Eve's text:\n```\n{ours}\n```",
    "above words of its own": lambda ours: f"{ours}\n\nThank you, Eve!",
    "the last line alone": lambda ours: f"Eve wrote:\n\n{ours.splitlines()[-1]}",
    "an invented marker": lambda _ours: f"Eve wrote:\n\n{MARKER}",
    "nothing but an invented marker": lambda _ours: MARKER,
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("quote", QUOTES.values(), ids=QUOTES)
def test_a_comment_of_our_account_that_quotes_a_marker_is_not_ours(
    github: GitHubServer, writer: GitHubWriter, quote: Callable[[str], str]
) -> None:
    """Other workflows write as `github-actions[bot]` too, and quote what outsiders sent."""
    body, pusher = quote(own_comment()), RecordingPusher()
    github.state.add_comment(7, body, BOT.login)
    applied, _ = run(writer, pusher)
    assert (github.state.comments[0]["body"], len(github.state.comments)) == (body, 2)
    assert applied.spent == Spent(usd=2)
    assert pusher.pushes == ["stepflow/fixer/issue-7"]


def test_a_marker_in_our_own_text_counts_nothing(github: GitHubServer, writer: GitHubWriter) -> None:
    pusher = RecordingPusher()
    run(writer, pusher, comment=f"```\n<!-- stepflow -->\nDone.\n\n{MARKER}\n```")
    again, _ = run(writer, pusher, run_id="run-2")
    assert (len(github.state.comments), again.spent) == (1, Spent(usd=4))


@pytest.mark.parametrize(
    "edit", [lambda body: body.replace("\n", "\r\n"), lambda body: body.replace("All", "Nearly all")]
)
def test_our_comment_stays_ours_when_somebody_edits_its_text_on_the_page(
    github: GitHubServer, writer: GitHubWriter, edit: Callable[[str], str]
) -> None:
    run(writer, RecordingPusher())
    posted = github.state.comments[0]
    posted["body"] = edit(posted["body"])
    again, _ = run(writer, RecordingPusher(), run_id="run-2")
    assert (len(github.state.comments), again.spent) == (1, Spent(usd=4))


NAMES = ("fixer", "fixer-docs", "fixer--docs", "fix", "docs-fixer")


def test_agents_of_similar_names_on_one_issue_keep_their_own_comment_branch_and_pull_request(
    github: GitHubServer, writer: GitHubWriter
) -> None:
    pushers = {name: RecordingPusher(f"{number}" * 40) for number, name in enumerate(NAMES, start=1)}
    for name in (*NAMES, *reversed(NAMES)):
        run(writer, pushers[name], name=name, run_id=f"run-of-{name}", comment=f"Done by {name}.")
    assert [comment["body"].splitlines()[1] for comment in github.state.comments] == [
        f"Done by {name}." for name in NAMES
    ]
    assert [pusher.pushes for pusher in pushers.values()] == [[f"stepflow/{name}/issue-7"] * 2 for name in NAMES]
    assert [pull["head"] for pull in github.state.pulls] == [f"stepflow/{name}/issue-7" for name in NAMES]


@pytest.mark.parametrize(
    ("author", "status", "detail"),
    [
        ("eve", EffectStatus.SKIPPED, "#8 is open already, by others"),
        (BOT.login, EffectStatus.APPLIED, "opened #8"),
    ],
    ids=["somebody else's", "ours"],
)
def test_after_a_lost_answer_a_pull_request_is_ours_only_when_we_opened_it(
    github: GitHubServer, writer: GitHubWriter, author: str, status: EffectStatus, detail: str
) -> None:
    """Somebody may open one from our branch just when our own request is lost."""

    class Clock(StillClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            github.state.pulls[0]["login"] = author

    github.fail("POST", "/pulls$", 0, after_write=True)
    writer.retry_policy = RetryPolicy.of(Clock(), None, lambda _: None)
    applied, recorded = run(writer, RecordingPusher())
    assert applied.outcome is Outcome.COMPLETED
    receipt = next(each for each in recorded if each.kind is EffectKind.OPEN_PULL_REQUEST)
    assert (receipt.status, receipt.detail, receipt.number) == (status, detail, 8)
    assert not any(write.startswith("PATCH") and "/pulls/" in write for write in github.writes())
