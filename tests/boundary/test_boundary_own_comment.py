"""Which comment, branch and pull request are a run's own, when others share its account, its issue or its name."""

from __future__ import annotations

import pytest

from stepflow.boundary.apply import ApplyResult, Pusher, apply_effects
from stepflow.boundary.github_types import Account, Comment, PullRequest, WriteFailed
from stepflow.boundary.plan import CommitsInfo, plan_effects
from stepflow.boundary.retry_policy import RetryPolicy
from stepflow.domain.effect import EffectKind, EffectStatus
from stepflow.domain.figures import Spent
from stepflow.domain.words import Outcome
from tests.boundary.agents import agent, facts, result, settings
from tests.boundary.recording_writer import BOT, RecordingPusher, RecordingWriter
from tests.boundary.test_boundary_retry_policy import StillClock

MARKER = f"<!-- stepflow run=run-0 agent=fixer issue=7 commit={'b' * 40} cost=999999.000000 before=0.000000 -->"


def run(
    writer: RecordingWriter,
    pusher: Pusher,
    *,
    name: str = "fixer",
    run_id: str = "run-1",
    comment: str = "All done.",
    cost: float = 2,
    retry_policy: RetryPolicy | None = None,
) -> ApplyResult:
    plan = plan_effects(
        agent(name=name),
        facts(run_id=run_id),
        result({"comment": comment}),
        settings(),
        summary="",
        commits=CommitsInfo(count=1),
        cost=Spent(usd=cost),
    )
    return apply_effects(plan, writer=writer, pusher=pusher, record=lambda _: None, retry_policy=retry_policy)


def own_comment() -> str:
    """What a run with another account's knowledge of us would copy."""
    writer = RecordingWriter()
    run(writer, RecordingPusher("b" * 40), run_id="run-0", cost=999_999)
    return writer.posted[0].body


QUOTES = {
    "in a quote": lambda ours: "@eve wrote:\n\n" + "\n".join(f"> {line}" for line in ours.split("\n")),
    "in a fence": lambda ours: f"Eve's text:\n```\n{ours}\n```",
    "below words of its own": lambda ours: f"Eve wrote:\n\n{ours}",
    "above words of its own": lambda ours: f"{ours}\n\nThank you, Eve!",
    "above and below words of its own": lambda ours: f"Eve wrote:\n\n{ours}\n\nThank you!",
    "the last line alone": lambda ours: f"Eve wrote:\n\n{ours.splitlines()[-1]}",
    "the last line in a sentence": lambda ours: f"Eve wrote: {ours.splitlines()[-1]}",
    "an invented marker": lambda _ours: f"Eve wrote:\n\n{MARKER}",
    "nothing but an invented marker": lambda _ours: MARKER,
}


@pytest.mark.parametrize("quote", QUOTES.values(), ids=QUOTES)
def test_a_comment_of_our_account_that_quotes_a_marker_is_not_ours(quote: object) -> None:
    """Other workflows write as `github-actions[bot]` too, and quote what outsiders sent."""
    body = quote(own_comment())  # type: ignore[operator]
    writer, pusher = RecordingWriter(), RecordingPusher()
    writer.posted.append(Comment(id=55, author_id=BOT.id, body=body, url="u"))
    applied = run(writer, pusher)
    assert (writer.posted[0].body, len(writer.posted)) == (body, 2)
    assert applied.spent == Spent(usd=2)
    assert pusher.pushes == [("stepflow/fixer/issue-7", None)]


def test_a_marker_in_our_own_text_counts_nothing() -> None:
    writer, pusher = RecordingWriter(), RecordingPusher()
    run(writer, pusher, comment=f"```\n<!-- stepflow -->\nDone.\n\n{MARKER}\n```")
    again = run(writer, pusher, run_id="run-2")
    assert (len(writer.posted), again.spent) == (1, Spent(usd=4))
    assert pusher.pushes[1] == ("stepflow/fixer/issue-7", "a" * 40)


@pytest.mark.parametrize(
    "edit", [lambda body: body.replace("\n", "\r\n"), lambda body: body.replace("All", "Nearly all")]
)
def test_our_comment_stays_ours_when_somebody_edits_its_text_on_the_page(edit: object) -> None:
    writer = RecordingWriter()
    run(writer, RecordingPusher())
    posted = writer.posted[0]
    writer.posted[0] = Comment(id=posted.id, author_id=BOT.id, body=edit(posted.body), url="u")  # type: ignore[operator]
    again = run(writer, RecordingPusher(), run_id="run-2")
    assert (len(writer.posted), again.spent) == (1, Spent(usd=4))


NAMES = ("fixer", "fixer-docs", "fixer--docs", "fix", "docs-fixer")


def test_agents_of_similar_names_on_one_issue_keep_their_own_comment_branch_and_pull_request() -> None:
    writer = RecordingWriter()
    pushers = {name: RecordingPusher(f"{number}" * 40) for number, name in enumerate(NAMES, start=1)}
    for name in (*NAMES, *reversed(NAMES)):
        run(writer, pushers[name], name=name, run_id=f"run-of-{name}", comment=f"Done by {name}.")
    assert [comment.body.splitlines()[1] for comment in writer.posted] == [f"Done by {name}." for name in NAMES]
    assert [pusher.pushes for pusher in pushers.values()] == [
        [(f"stepflow/{name}/issue-7", None), (f"stepflow/{name}/issue-7", pushers[name].commit)] for name in NAMES
    ]
    assert list(writer.heads.values()) == [f"stepflow/{name}/issue-7" for name in NAMES]


class LosesTheAnswer(RecordingWriter):
    """Somebody opens a pull request from our branch just when our own request is lost."""

    def __init__(self, author: Account) -> None:
        super().__init__()
        self._author = author

    def create_pull_request(self, *, branch: str, base: str, title: str, body: str, draft: bool) -> PullRequest:
        if self.pulls:
            raise WriteFailed("A pull request already exists", status=422)
        self.pulls.append(
            PullRequest(number=31, author_id=self._author.id, base=base, url="https://github.com/o/r/pull/31")
        )
        self.heads[31] = branch
        raise WriteFailed("no answer came", status=None)


@pytest.mark.parametrize(
    ("author", "status", "detail"),
    [
        (Account(id=666, login="eve"), EffectStatus.SKIPPED, "#31 is open already, by others"),
        (BOT, EffectStatus.APPLIED, "opened #31"),
    ],
    ids=["somebody else's", "ours"],
)
def test_after_a_lost_answer_a_pull_request_is_ours_only_when_we_opened_it(
    author: Account, status: EffectStatus, detail: str
) -> None:
    writer, clock = LosesTheAnswer(author), StillClock()
    applied = run(writer, RecordingPusher(), retry_policy=RetryPolicy.of(clock, None, lambda _: None))
    assert applied.outcome is Outcome.COMPLETED
    receipt = next(each for each in applied.receipts if each.kind is EffectKind.OPEN_PULL_REQUEST)
    assert (receipt.status, receipt.detail, receipt.number) == (status, detail, 31)
    assert "update_pull_request" not in writer.calls
