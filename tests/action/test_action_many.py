"""`mode: plan` takes a page of the issues with a label for a matrix of jobs; `mode: gather` makes one table."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from stepflow.cli import main
from tests.checkout import Invocation
from tests.world import READ_TOKEN, World, label_event, open_world, solve

pytestmark = pytest.mark.whole

#: What GitHub documents: jobs of a matrix, and bytes of a job's outputs, by UTF-16.
MATRIX, OUTPUTS = 256, 1_000_000


@pytest.fixture
def world(world: World) -> World:
    """The world, with a token that can only read."""
    world.github.read_token = READ_TOKEN
    return world


def plan(world: World, *, name: str = "schedule", read_token: str = READ_TOKEN, **asked: str) -> Invocation:
    """The plan job: it is given nothing that can write, and no model."""
    world.runner.inputs = {
        key: value for key, value in world.runner.inputs.items() if key not in ("github-token", "anthropic-api-key")
    }
    lines = "\n".join(f"{key}: {value}" for key, value in {"label": "bug", **asked}.items())
    return world.runner.run({}, name=name, mode="plan", many_issues=lines, read_token=read_token)


def numbers(done: Invocation) -> list[int]:
    planned = [entry["issue"] for entry in json.loads(done.outputs["plan"])]
    assert json.loads(done.outputs["plan-issues"]) == planned
    return planned


def add_issues(world: World, numbers: range, *, label: str = "bug", body: str = "It breaks.") -> None:
    for number in numbers:
        world.github.state.add_issue(number, f"Issue {number}", body, labels=[label])


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le"))


def test_a_plan_lists_the_open_issues_with_the_label_with_their_texts(world: World) -> None:
    add_issues(world, range(8, 11))
    add_issues(world, range(11, 13), label="other")
    world.github.state.issues[9]["state"] = "closed"
    done = plan(world)
    assert (done.exit_code, done.outputs["outcome"], done.outputs["success"]) == (0, "completed", "true"), done.log
    assert numbers(done) == [7, 8, 10]
    assert json.loads(done.outputs["plan"])[1]["text"] == "Issue 8\n\nIt breaks."
    assert done.outputs["plan-next"] == ""
    assert 'planned 3 of 3 open issues labeled "bug", #7 to #10' in done.log
    assert done.summary.startswith("## Planned 3 of 3 open issues")


def test_a_plan_only_reads_and_only_with_the_read_token(world: World) -> None:
    plan(world)
    assert [(request.method, request.credential) for request in world.github.requests] == [("GET", "read")]
    assert (world.git_server.requests, world.model.requests) == ([], [])


def test_a_page_ends_at_the_limit_and_the_next_one_begins_after_it(world: World) -> None:
    add_issues(world, range(8, 13))
    first = plan(world, limit="4")
    assert (numbers(first), first.outputs["plan-next"]) == ([7, 8, 9, 10], "10")
    assert "the next page begins after #10" in first.log
    second = plan(world, limit="4", after=first.outputs["plan-next"])
    assert (numbers(second), second.outputs["plan-next"]) == ([11, 12], "")


def test_what_is_closed_or_opened_between_two_pages_moves_no_issue(world: World) -> None:
    add_issues(world, range(8, 13))
    first = plan(world, limit="3")
    world.github.state.issues[7]["state"] = "closed"
    world.github.state.issues[8]["labels"] = []
    add_issues(world, range(13, 14))
    second = plan(world, limit="3", after=first.outputs["plan-next"])
    third = plan(world, limit="3", after=second.outputs["plan-next"])
    assert numbers(first) + numbers(second) + numbers(third) == [7, 8, 9, 10, 11, 12, 13]


def test_a_list_that_grows_while_it_is_read_shows_no_issue_twice(world: World) -> None:
    """An older issue gets the label between two requests, so that the last of one page is the first of the next."""
    add_issues(world, range(8, 160))
    world.github.state.issues[20]["labels"] = []
    serve = world.github.requests.append

    class Watched(list):
        def append(self, request: object) -> None:
            serve(request)
            super().append(request)
            if len(self) == 2:
                world.github.state.issues[20]["labels"] = ["bug"]

    world.github.requests = Watched()
    planned = numbers(plan(world))
    assert len(world.github.requests) == 2
    assert planned == [number for number in range(7, 160) if number != 20]


@pytest.mark.parametrize("letter", ["x", "字", "🐛"])
def test_a_page_of_long_texts_holds_fewer_issues_so_that_it_fits_a_jobs_outputs(world: World, letter: str) -> None:
    add_issues(world, range(8, 40), body=letter * 40_000)
    done = plan(world)
    entries = json.loads(done.outputs["plan"])
    assert 5 < len(entries) < 20
    assert utf16("".join(done.outputs[name] for name in ("plan", "plan-issues", "plan-next"))) < OUTPUTS
    assert done.outputs["plan-next"] == str(entries[-1]["issue"])
    assert entries[1]["text"].endswith("[the rest of this issue's text is left out]")
    assert max(len(f"INPUT_ISSUE-TEXT={entry['text']}".encode()) for entry in entries) < 128 * 1024


def test_without_an_issue_the_plan_is_an_empty_matrix(world: World) -> None:
    done = plan(world, label="nobody-has-it")
    assert (done.outputs["plan"], done.outputs["plan-issues"], done.outputs["plan-next"]) == ("[]", "[]", "")
    assert 'no open issue labeled "nobody-has-it" is left to take' in done.log


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"label": ""}, "input many-issues: the mode plan needs `label: …`"),
        ({"label": '""'}, "input many-issues: the mode plan needs `label: …` in it"),
        ({"from": "."}, "input many-issues: `from` is for the mode gather"),
        ({"limit": "257"}, "input many-issues.limit: must be at most 256"),
        ({"after": "x"}, "input many-issues.after: "),
        ({"read_token": ""}, "permission `issues: read`"),
        ({"read_token": "wrong"}, "check `read-token`"),
    ],
)
def test_a_plan_that_cannot_be_made_says_what_to_write(world: World, asked: dict[str, str], words: str) -> None:
    done = plan(world, **asked)
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert words in done.outputs["reason"]
    assert done.outputs["plan"] == ""


def test_a_public_repository_is_planned_without_any_token(world: World) -> None:
    world.github.state.public = True
    assert numbers(plan(world, read_token="")) == [7]


def test_text_of_an_issue_stays_text(world: World) -> None:
    hostile = '"}]\n::set-output name=plan::[]\n${{ github.token }}\0'
    world.github.state.issues[7]["body"] = hostile
    done = plan(world)
    assert json.loads(done.outputs["plan"])[0]["text"] == f"Greet the world\n\n{hostile[:-1]}"
    assert "::set-output" not in done.log


def test_an_issue_takes_as_many_requests_as_the_page_about_thousands_of_issues_says(world: World) -> None:
    event = {"sender": {"login": "bob", "type": "User"}, "repository": {"full_name": "o/r", "default_branch": "main"}}
    world.play(solve())
    done = world.runner.run(
        event, name="workflow_dispatch", agent="fixer", issue="7", issue_text="Greet the world", read_token=""
    )
    assert done.outputs["outcome"] == "completed", done.log
    page = (Path(__file__).parents[2] / "docs/how-to/recipes.md").read_text(encoding="utf-8")
    writes = [line for line in world.github.writes() if "graphql" not in line]
    assert f"| {len(world.github.requests)}, of which {len(writes)} write |" in page


@pytest.mark.sample(2)
@pytest.mark.fast
@pytest.mark.parametrize(
    ("policy", "agent", "outcome", "says"),
    [
        ("enabled: false", "fixer", "skipped", "turns off all runs"),
        ("start: {by: [someone]}", "fixer", "skipped", "does not let bob start a run"),
        ("agents: { other: any }", "fixer", "refused", "allows only these agents: other"),
        ("agents: { fixer: any }", "fixer", "completed", "planned 1 of 1"),
        ("start: {by: [bob]}", "", "completed", "planned 1 of 1"),
    ],
)
def test_a_policy_ends_a_plan_before_anything_is_asked(
    world: World, policy: str, agent: str, outcome: str, says: str
) -> None:
    world.runner.inputs |= {"policy": policy, "agent": agent}
    world.runner.environ = {**world.runner.environ, "GITHUB_ACTOR": "bob"}
    done = plan(world)
    assert done.outputs["outcome"] == outcome, done.log
    assert says in done.outputs["reason"]
    if outcome == "completed":
        assert numbers(done) == [7]
    else:
        # A refused plan fails its job; after a skipped one, an empty matrix starts none.
        assert (done.exit_code, done.outputs["plan"]) == ((0, "[]") if outcome == "skipped" else (1, ""))
        assert world.requests_made() == 0


@pytest.mark.sample(2)
@pytest.mark.fast
@pytest.mark.parametrize(
    ("given", "policy", "planned", "left"),
    [
        ("0.3", "", [7, 8, 9], "0.0"),
        ("0.35", "", [7, 8, 9], "0.05"),
        ("20", "", [7, 8, 9, 10, 11, 12], "19.4"),
        ("0.09", "", [], "0.09"),
        ("0", "", [], "0.0"),
        ("0.3", "limits: {usd: 0.15}", [7, 8, 9], "0.0"),
        ("0.3", "limits: {usd: 0.05}", [7, 8, 9, 10, 11, 12], "0.00"),
    ],
)
def test_a_page_has_as_many_issues_as_the_budget_for_all_covers(
    world: World, given: str, policy: str, planned: list[int], left: str
) -> None:
    add_issues(world, range(8, 13))
    world.runner.inputs |= {"limits": {"usd": 0.1}, "policy": policy}
    done = plan(world, **{"usd-total": given})
    assert (numbers(done), done.outputs["budget-left"]) == (planned, left)
    assert done.outputs["plan-next"] == (str(planned[-1]) if planned and planned[-1] < 12 else "")
    if not planned:
        assert 'planned none of 6 open issues labeled "bug": $0' in done.outputs["reason"]


@pytest.mark.timeout(600)
def test_five_thousand_issues_never_cost_more_than_their_budget_and_none_is_taken_twice(
    world: World, ran: Invocation, tmp_path: Path, show: Callable[[str], None]
) -> None:
    """A sweep whose jobs cost something known, something unknown, or leave nothing; of the third page, nothing is known
    at all. It ends when its budget does, and goes on with another one."""
    world.github.contract = None
    add_issues(world, range(8, 5007))
    chance, text = random.Random(41), ran.report
    each, budgets = Decimal("0.5"), [Decimal("900"), Decimal("2000")]
    taken: list[int] = []
    after, page = "", 0
    for total in budgets:
        left, cost, before = total, Decimal(), len(taken)
        while True:
            page += 1
            given = {"after": after, "usd-total": f"{left:f}"}
            world.runner.inputs["limits"] = f"usd: {each}"
            planned = plan(world, **given)
            entries = numbers(planned)
            assert len(entries) <= min(MATRIX, left // each)
            assert Decimal(planned.outputs["budget-left"]) == left - each * len(entries)
            if not entries:
                break
            taken += entries
            costs = {number: Decimal(chance.randrange(500_001)) / 1_000_000 for number in entries}
            cost += sum(costs.values())
            # Of one in twenty there is no report, and of as many no price.
            states = {number: chance.choice(["none", "unpriced", *["known"] * 18]) for number in entries}
            folder = tmp_path / f"page-{page}"
            for number, state in states.items():
                if state != "none" and page != 3:
                    artifact = folder / f"stepflow-{number}"
                    artifact.mkdir(parents=True)
                    known = float(costs[number]) if state == "known" else None
                    (artifact / "report.json").write_text(json.dumps(text | {"issue": number, "cost_usd": known}))
            counted = sum((costs[number] if state == "known" else each for number, state in states.items()), Decimal())
            if page == 3:
                left = Decimal(planned.outputs["budget-left"])
            else:
                asked = f"from: {folder}\nissues: {json.dumps(entries)}\nusd-total: {left:f}"
                done = world.runner.run({}, name="schedule", mode="gather", many_issues=asked)
                left -= counted
                assert Decimal(done.outputs["budget-left"]) == left, done.log
                totals = json.loads(done.outputs["gathered"])["totals"]
                assert totals["outcomes"].get("no report", 0) == [*states.values()].count("none")
            after = planned.outputs["plan-next"] or after
            if not planned.outputs["plan-next"]:
                break
        assert cost <= total
        assert left >= 0
        assert left < each or len(taken) == 5000
        show(f"sweep of 5,000 issues with ${total:,}: {len(taken) - before:,} for ${cost:,.2f}, ${left:,.2f} left")
    assert taken == [*range(7, 5007)]


# gather


def report(folder: Path, done: Invocation, **changed: Any) -> None:
    """A run's report.json in the artifact of its issue, as the closing job downloads it."""
    text = done.report | changed
    artifact = folder / f"stepflow-{text['issue']}"
    artifact.mkdir(parents=True)
    (artifact / "report.json").write_text(json.dumps(text))


def gather(world: World, folder: Path, planned: list[int] | None = None) -> Invocation:
    issues = f"\nissues: {json.dumps(planned)}" if planned is not None else ""
    return world.runner.run({}, name="schedule", mode="gather", many_issues=f"from: {folder}{issues}")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Invocation:
    """A real run on issue 7, whose report the tests vary."""
    with open_world(tmp_path_factory.mktemp("ran")) as world:
        return world.run(solve(), label_event())


def test_gather_makes_one_table_of_all_reports_with_totals(world: World, ran: Invocation, tmp_path: Path) -> None:
    report(tmp_path / "in", ran)
    report(
        tmp_path / "in", ran, issue=9, outcome="limit_reached", success=False, effects=[], reason="Flow loop: 10 | x"
    )
    requests = world.requests_made()
    done = gather(world, tmp_path / "in", [7, 9, 12])
    assert (done.exit_code, done.outputs["outcome"]) == (0, "completed"), done.log
    rows = [line for line in done.summary.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows] == ["| Issue", "| ---:", "| #7", "| #9", "| #12"]
    assert re.search(r"\| #7 \| <code>fixer</code> \| ✅ completed \| 3 \| [\d.]+ \| .* \| \[\\#8\]\(http", rows[2])
    assert "❌ limit\\_reached" in rows[3]
    assert "10 \\| x" in rows[3]
    assert "❌ no report" in rows[4]
    assert done.summary.startswith("## ❌ 1 of 3 issues completed\n\n3 issues: 1 completed, 1 limit")
    assert "`stepflow ledger` says later what became of these pull requests" in done.summary
    gathered = json.loads(done.outputs["gathered"])
    assert [row["issue"] for row in gathered["issues"]] == [7, 9, 12]
    assert gathered["issues"][0]["pull_request_url"] == ran.outputs["pull-request-url"]
    totals = gathered["totals"]
    assert totals["outcomes"] == {"completed": 1, "limit_reached": 1, "no report": 1}
    assert (totals["issues"], totals["completed"], totals["pull_requests"]) == (3, 1, 1)
    assert totals["iterations"] == 2 * int(ran.outputs["iterations"])
    assert totals["cost_usd"] == pytest.approx(2 * float(ran.outputs["cost-usd"]), abs=1e-5)
    assert world.requests_made() == requests


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("text", "1 issue: 1 completed · 1 pull request"),
        ("markdown", "## ✅ 1 of 1 issue completed"),
        ("json", '"totals":'),
    ],
)
def test_the_same_table_at_a_terminal(
    ran: Invocation, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, shown: str
) -> None:
    report(tmp_path / "in", ran)
    assert main(["gather", str(tmp_path / "in"), "--format", form]) == 0
    assert shown in capsys.readouterr().out
    assert main(["gather", str(tmp_path / "not-there")]) == 2
    assert "There is no folder" in capsys.readouterr().err


def test_a_price_that_is_unknown_is_said_and_not_counted_as_nothing(
    world: World, ran: Invocation, tmp_path: Path
) -> None:
    report(tmp_path / "in", ran, cost_usd=None)
    done = gather(world, tmp_path / "in")
    assert "1 run of unknown price" in done.log
    assert json.loads(done.outputs["gathered"])["totals"]["cost_unknown"] == 1


def test_a_file_that_is_no_report_is_a_row_and_a_link_out_of_the_folder_is_not_followed(
    world: World, ran: Invocation, tmp_path: Path
) -> None:
    report(tmp_path / "in", ran)
    for name, text in {"stepflow-8": "{", "stepflow-9": '{"schema": 1}', "other": "[" * 100_000}.items():
        (tmp_path / "in" / name).mkdir()
        (tmp_path / "in" / name / "report.json").write_text(text)
    (tmp_path / "in" / "link").mkdir()
    (tmp_path / "in" / "link" / "report.json").symlink_to(tmp_path / "in" / "stepflow-7" / "report.json")
    done = gather(world, tmp_path / "in", [7, 8, 9])
    rows = json.loads(done.outputs["gathered"])["issues"]
    assert sorted((row["issue"] or 0, row["outcome"]) for row in rows) == [
        (0, None),
        (7, "completed"),
        (8, None),
        (9, None),
    ]
    assert "stepflow-8/report.json cannot be read" in done.log


def test_what_a_model_wrote_cannot_forge_a_row_or_a_command(world: World, ran: Invocation, tmp_path: Path) -> None:
    forged = "Flow loop: x |\n| #99 | ok |\n::error::no ##[group] <img src=x> [a](https://evil.example)"
    report(tmp_path / "in", ran, reason=forged, outcome="aborted", effects=[])
    done = gather(world, tmp_path / "in")
    assert len([line for line in done.summary.splitlines() if line.startswith("| ")]) == 3
    assert "<img" not in done.summary
    assert "](https://evil" not in done.summary
    assert [line for line in done.log.splitlines() if line.lstrip().startswith("::")] == [
        line for line in done.log.splitlines() if line.startswith("::add-mask::")
    ]
    assert "##[" not in done.log


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,x", "https://a.example/](x)", "//evil"])
def test_an_address_that_is_none_of_the_web_is_not_shown(
    world: World, ran: Invocation, tmp_path: Path, address: str
) -> None:
    forged = {"kind": "open_pull_request", "status": "applied", "detail": "opened #1", "url": address, "number": 1}
    report(tmp_path / "in", ran, effects=[{"commit": "", **forged}])
    done = gather(world, tmp_path / "in")
    assert json.loads(done.outputs["gathered"])["issues"][0]["pull_request_url"] == ""
    assert address not in done.summary + done.log


def test_a_matrix_of_which_no_job_left_a_report_is_a_table_too(world: World, tmp_path: Path) -> None:
    done = gather(world, tmp_path / "nothing", [7, 8])
    assert done.exit_code == 0, done.log
    assert json.loads(done.outputs["gathered"])["totals"]["outcomes"] == {"no report": 2}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "input many-issues: the mode gather needs `from: …` in it"),
        ("from: .\nlimit: 5", "input many-issues: `limit` is for the mode plan"),
        ("from: not-there", "There is no folder"),
        ("from: .\nissues: 7", "input many-issues.issues: "),
        ("from: .\nissues: [true]", "input many-issues.issues: "),
    ],
)
def test_a_gather_that_finds_nothing_says_what_to_write(world: World, given: str, words: str) -> None:
    done = world.runner.run({}, name="schedule", mode="gather", many_issues=given)
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert words in done.outputs["reason"]
