"""`stepflow ledger` reads a repository's history from GitHub's API, and prints figures that are exact."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from stepflow.boundary.github_failures import RetryPolicy
from stepflow.boundary.repository_reader import LedgerReader
from stepflow.cli import main
from stepflow.cli.ledger import read_history
from stepflow.domain.words import Outcome
from stepflow.errors import BoundaryError
from stepflow.report.ledger import ledger_schema
from stepflow.run.clock import SystemClock
from tests.ledger_world import BEGIN, BOT, BOT_ADDRESS, LedgerWorld, Version, many_pulls
from tests.servers.github_api import GitHubServer
from tests.world import FastClock

TOKEN = "ghs_token"
FIRST, SECOND = ("fixer", "0123456789ab"), ("fixer", "ba9876543210")
DONE = (Outcome.COMPLETED, 500_000, 4.0)
Read = Callable[..., Any]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Read]:
    """Runs the command on a world, and returns its JSON, or with `text` what it printed."""
    servers = []

    def ledger(
        world: LedgerWorld, *words: str, text: bool = False, code: int = 0, rewrite: Callable[[Any], Any] | None = None
    ) -> Any:
        server = GitHubServer(world.state, TOKEN)
        server.rewrite = rewrite
        servers.append(server.__enter__())
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
        addresses = ("--github-api-url", server.api_url, "--github-server-url", server.web_url)
        given = ("ledger", "--repository", "o/r", *addresses, *words, *(() if text else ("--json",)))
        assert main(given) == code
        printed = capsys.readouterr()
        assert TOKEN not in printed.out + printed.err
        if code:
            return printed.err
        ledger.requests = len(server.requests)  # type: ignore[attr-defined]
        return printed.out if text else json.loads(printed.out)

    yield ledger
    for server in servers:
        server.__exit__(None)


def figures(document: Any) -> dict[Version, dict[str, Any]]:
    return {(each["agent"], each["digest"]): each for each in document["figures"]}


def compare(world: LedgerWorld, document: Any) -> None:
    """Every figure is the known one."""
    found = figures(document)
    assert set(found) == set(world.truth)
    for version, truth in world.truth.items():
        known = truth.figures()
        assert {name: found[version][name] for name in known} == known


def test_small_history_is_read_exactly_and_fits_its_published_schema(read: Read) -> None:
    world = many_pulls(40)
    document = read(world)
    jsonschema.validate(document, ledger_schema())
    compare(world, document)
    last = {(each["agent"], each["digest"]): each["accepted"] for each in document["accepted"]}
    assert last == {version: each["accepted"] for version, each in figures(document).items() if each["accepted"]}


@pytest.mark.whole
def test_what_strangers_write_counts_nothing_and_is_named(read: Read) -> None:
    world = LedgerWorld()
    world.add_runs(1, FIRST, [DONE], BEGIN)
    copied = world.state.comments[0]["body"]
    world.state.add_comment(1, copied.replace("0123456789ab", "666666666666"), "eve")
    world.state.add_comment(1, copied.replace("issue=1", "issue=9").replace("0123456789ab", "777777777777"), BOT)
    world.add_foreign_pull(9, world.state.comments[0]["body"], login="eve")
    document = read(world)
    compare(world, document)
    assert document["other_accounts"] == ["eve"]
    assert "Use --author to count one." in read(world, text=True)
    assert set(figures(read(world, "--author", "eve"))) == {("fixer", "666666666666")}


@pytest.mark.parametrize("number", ["9" * 5_000, "\u0661"], ids=["too long", "of another script"])
def test_a_strangers_comment_with_an_odd_number_changes_nothing(read: Read, number: str) -> None:
    world = LedgerWorld()
    world.add_runs(1, FIRST, [DONE], BEGIN)
    world.add_pull(2, 1, FIRST, BEGIN, "merged")
    world.state.add_comment(1, world.state.comments[0]["body"].replace("issue=1 ", f"issue={number} "), "eve")
    world.add_foreign_pull(3, f"Reverts #{number}", BEGIN + timedelta(days=1), login="eve")
    document = read(world)
    compare(world, document)
    assert document["other_accounts"] == []


def lists_of(data: Any) -> Iterator[dict[str, Any]]:
    """The lists in an answer, at any depth."""
    for value in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        if isinstance(value, dict) and "nodes" in value:
            yield value
        yield from lists_of(value)


def test_what_was_deleted_or_is_hidden_does_not_stop_it(read: Read) -> None:
    world = LedgerWorld()
    world.add_runs(1, FIRST, [DONE], BEGIN)
    world.add_pull(2, 1, FIRST, BEGIN, "merged")
    world.state.add_comment(1, world.state.comments[0]["body"], "eve")

    def rewrite(data: Any) -> Any:
        for each in lists_of(data):
            for node in each["nodes"]:
                if (node.get("author") or {}).get("login") == "eve":
                    node["author"] = None
            each["nodes"].append(None)
        return data

    document = read(world, rewrite=rewrite)
    compare(world, document)
    assert document["other_accounts"] == ["ghost"]


@pytest.mark.parametrize("fault", ["the same page again", "no cursor", "no number", "no repository"])
def test_an_answer_that_is_not_githubs_is_told_and_ends(fault: str) -> None:
    world = LedgerWorld()
    world.add_runs(1, FIRST, [DONE], BEGIN)

    def rewrite(data: Any) -> Any:
        if "listed" not in (data["data"].get("repository") or {}):
            return data
        if fault == "no repository":
            data["data"]["repository"] = None
            return data
        listed = data["data"]["repository"]["listed"]
        if fault == "no number":
            listed["nodes"].append({"title": "x"})
        else:
            listed["pageInfo"] = {"hasNextPage": True, "endCursor": "1" if fault == "the same page again" else None}
        return data

    with GitHubServer(world.state, TOKEN) as server:
        server.rewrite = rewrite
        policy = RetryPolicy(clock=FastClock(), until=float("inf"))
        reader = LedgerReader(api_url=server.api_url, repository="o/r", token=TOKEN, retry_policy=policy)
        with closing(reader), pytest.raises(BoundaryError, match="no usable answer came"):
            read_history(reader, "o/r", read_on=BEGIN.date())


def test_a_token_of_another_account_reads_what_the_named_one_wrote(read: Read) -> None:
    world = many_pulls(5)
    world.state.viewer = ("ann", 5)
    assert read(world)["figures"] == []
    compare(world, read(world, "--author", "GitHub-Actions[bot]"))


@pytest.mark.whole
def test_long_discussions_are_read_to_their_end(read: Read) -> None:
    world = LedgerWorld()
    for number in range(170):
        world.state.add_issue(1, "Long", "It breaks.") if not number else None
        world.state.add_comment(1, f"Remark {number}", "ann")
    world.add_runs(1, FIRST, [DONE], BEGIN)
    world.add_pull(2, 1, FIRST, BEGIN, "merged")
    compare(world, read(world))


def test_a_review_counts_with_the_runs_of_its_pull_request(read: Read) -> None:
    world = LedgerWorld()
    world.add_runs(1, FIRST, [DONE], BEGIN)
    review = world.state.comments.pop()
    del world.state.issues[1]
    world.add_foreign_pull(1, "Please look.")
    world.state.reviews.append({"pull": 1, "body": review["body"], "login": BOT})
    compare(world, read(world))


def test_costs_that_are_lower_bounds_stay_marked(read: Read) -> None:
    world = LedgerWorld()
    world.add_runs(1, FIRST, [DONE], BEGIN)
    world.add_runs(2, SECOND, [DONE], BEGIN)
    (first, _) = world.state.comments
    first["body"] = first["body"].replace(":0.500000:", ":0.500000+:")
    document = read(world)
    assert [each["is_lower_bound"] for each in document["figures"]] == [True, False]
    lines = read(world, text=True).splitlines()
    assert "$0.5000+" in lines[1]
    assert "$0.5000+" not in lines[2]
    assert "A cost with a plus is a lower bound" in "\n".join(lines)


def test_runs_beyond_the_newest_twenty_keep_their_cost(read: Read) -> None:
    world = LedgerWorld()
    world.add_runs(1, FIRST, [DONE] * 20, BEGIN)
    body = world.state.comments[0]["body"]
    world.state.comments[0]["body"] = body.replace(
        "cost=10.000000 before=9.500000", "cost=12.000000+ before=11.500000+"
    )
    document = read(world)
    compare(world, document)
    assert (document["unlisted_usd"], document["is_unlisted_lower_bound"]) == (2.0, True)


def test_since_leaves_out_what_is_older(read: Read) -> None:
    world, later = LedgerWorld(), LedgerWorld()
    world.add_runs(1, FIRST, [DONE], BEGIN)
    world.add_pull(11, 1, FIRST, BEGIN, "merged")
    for each in (world, later):
        each.add_runs(2, SECOND, [DONE], BEGIN + timedelta(days=2))
        each.add_pull(12, 2, SECOND, BEGIN + timedelta(days=2), "merged")
    day = f"{BEGIN + timedelta(days=1):%Y-%m-%d}"
    document = read(world, "--since", day)
    compare(later, document)
    assert (document["since"], document["unlisted_usd"]) == (day, 0.0)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("message", "reverted"),
    [
        ("This reverts commit {oid}.", 1),
        ("This reverts commit {short} (Fix, 2026-03-02)", 1),
        ("This reverts commit {inner}.", 1),
        ("This reverts commit 1234567890.", 0),
        ("Fix what commit {oid} broke.", 0),
    ],
)
def test_a_revert_is_known_by_the_commit_that_it_names(read: Read, message: str, reverted: int) -> None:
    world = LedgerWorld()
    world.add_runs(1, FIRST, [DONE], BEGIN)
    world.add_pull(2, 1, FIRST, BEGIN, "merged")
    (pull,) = world.state.pulls
    names = {"oid": pull["merge_commit"], "short": pull["merge_commit"][:9], "inner": pull["commits"][0][0]}
    world.state.commits.insert(0, ("2026-03-04T00:00:00Z", f"Revert it\n\n{message.format(**names)}"))
    assert read(world)["figures"][0]["reverted"] == reverted


#: Commits of the stories below, by their letters; M is the agent's change #2 and I a commit in it.
NAMED = {letter: f"{place:x}" * 40 for place, letter in enumerate("RSTU", 10)}
#: What happens after the agent's pull request #2 was merged: by whom, on which day after, and what is said; and whether
#: the change is reverted in the end. A pull request has a number, a title and a body, and perhaps a merge commit.
STORIES: dict[str, tuple[list[tuple[Any, ...]], bool]] = {
    "a commit by git": ([("R", 1, 'Revert "Fix 1"\n\nThis reverts commit {M}.')], True),
    "a commit by git, of a merge": (
        [("R", 1, "Undo it\n\nThis reverts commit {M}, reversing\nchanges made to {T}.")],
        True,
    ),
    "a commit that names two": ([("R", 1, "Undo\n\nThis reverts commits {T} and {M}.")], True),
    "a commit by its subject": ([("R", 1, 'Revert "Fix 1 (#2)"')], True),
    "a squashed pull request": ([("R", 1, 'Revert "Fix 1 (#2)" (#3)'), (3, 1, "Take it back", "", "R")], True),
    "a squashed pull request in other words": ([("R", 1, "revert: fix 1 (#2) (#3)"), (3, 1, "Back", "", "R")], True),
    "another fix that ends in a revert's number": (
        [("R", 1, "Revert the parser (#3)"), (3, 1, "Back", "", "R")],
        False,
    ),
    "by GitHub's button": ([(3, 1, 'Revert "Fix 1"', "Reverts o/r#2")], True),
    "by GitHub's button, with words around it": (
        [(3, 1, "Back", "It broke.\r\n\r\nReverts o/r#2\r\n\r\nSorry.")],
        True,
    ),
    "this PR reverts": ([(3, 1, "Back", "This PR reverts #2.")], True),
    "this pull request reverts, at the end": (
        [(3, 1, "Back", "It broke the build. This pull request reverts o/r#2")],
        True,
    ),
    "a URL": ([(3, 1, "Back", "Reverts https://github.example/o/r/pull/2")], True),
    "a URL of a commit": ([(3, 1, "Back", "Reverts https://github.example/o/r/commit/{M}")], True),
    "the second of two": ([(3, 1, "Back", "Reverts #9 and #2")], True),
    "in a list": ([(3, 1, "Back", "- Reverts #9\n- Reverts #2\n")], True),
    "a pull request whose title says it": ([(3, 1, 'Revert "Fix 1 (#2)"', "It broke.")], True),
    "a pull request with git's message": ([(3, 1, "Back", "This reverts commit {I}.")], True),
    "reverted, and that reverted": (
        [("R", 1, "Back\n\nThis reverts commit {M}."), ("S", 2, "Again\n\nThis reverts commit {R}.")],
        False,
    ),
    "reverted, and that reverted by pull requests": (
        [(3, 1, "Back", "Reverts #2"), (4, 2, "Again", "Reverts #3")],
        False,
    ),
    "reverted by a pull request, and its commit reverted": (
        [(3, 1, "Back", "Reverts #2", "R"), ("S", 2, "Again\n\nThis reverts commit {R}.")],
        False,
    ),
    "reverted, and that reverted long after": ([(3, 1, "Back", "Reverts #2"), (4, 90, "Again", "Reverts #3")], False),
    "reverted, and applied again by git": (
        [("R", 1, 'Revert "Fix 1 (#2)"\n\nThis reverts commit {M}.'), ("S", 2, 'Reapply "Fix 1 (#2)"')],
        False,
    ),
    "a squashed revert of a squashed revert": (
        [
            *(("R", 1, 'Revert "Fix 1 (#2)" (#3)'), (3, 1, "Back", "", "R")),
            *(("S", 2, 'Revert "Revert "Fix 1 (#2)" (#3)" (#4)'), (4, 2, "Again", "", "S")),
        ],
        False,
    ),
    "reverted three times": (
        [(3, 1, "Back", "Reverts #2"), (4, 2, "Again", "Reverts #3"), (5, 3, "Back", "Reverts #4")],
        True,
    ),
    "reverted twice, one of them reverted": (
        [(3, 1, "Back", "Reverts #2"), (4, 2, "Again", "Reverts #3"), (5, 3, "Back", "Reverts #2")],
        True,
    ),
    "a commit that quotes git": (
        [("R", 1, 'Document reverts\n\nA commit says "This reverts commit {M}." in its message.')],
        False,
    ),
    "a commit that quotes git in a line": (
        [("R", 1, "Document reverts\n\n> This reverts commit {M}.\n\n    This reverts commit {M}.\n")],
        False,
    ),
    "a commit that speaks of the sentence": ([("R", 1, "Docs\n\nThis reverts commit {M} is what git writes.")], False),
    "a pull request that quotes GitHub": (
        [(3, 1, "Docs", "Write `Reverts #2`:\n\n```text\nReverts #2\n```\n<!-- Reverts #2 -->")],
        False,
    ),
    "a pull request that may do it": ([(3, 1, "Ideas", "Revert #2 if it breaks again.")], False),
    "another repository": (
        [(3, 1, "Back", "Reverts other/r#2\n\nReverts https://github.example/other/r/pull/2")],
        False,
    ),
    "another number": ([(3, 1, "Back", "Reverts #23")], False),
    "the last moment": ([(3, 14, "Back", "Reverts #2")], True),
    "too late": ([(3, 14.01, "Back", "Reverts #2")], False),
}


@pytest.mark.parametrize("story", STORIES)
def test_a_change_is_reverted_if_what_reverts_it_stays(read: Read, story: str) -> None:
    happens, reverted = STORIES[story]
    world = LedgerWorld()
    world.add_runs(1, FIRST, [DONE], BEGIN)
    world.add_pull(2, 1, FIRST, BEGIN, "merged")
    (pull,) = world.state.pulls
    merged = datetime.fromisoformat(pull["merged_at"])
    names = {**NAMED, "M": pull["merge_commit"], "I": pull["commits"][0][0]}
    for who, days, *said in happens:
        at = merged + timedelta(days=days)
        title, *body = (text.format(**names) for text in said)
        if isinstance(who, str):
            world.state.commits.insert(0, (f"{at:%Y-%m-%dT%H:%M:%SZ}", title, names[who]))
            continue
        world.add_foreign_pull(who, body[0], at)
        world.state.pulls[-1] |= {"title": title, "merge_commit": names[body[1]] if body[1:] else "f" * 39 + str(who)}
    (found,) = read(world)["figures"]
    assert (found["reverted"], found["accepted"]) == ((1, 0) if reverted else (0, 1))


@pytest.mark.parametrize(
    ("said", "reverted"),
    [
        ("Reverts o/r#2", 1),
        ("Reverts o/new#2", 1),
        ("Reverts https://github.example/o/r/pull/2", 1),
        ("Reverts other/r#2", 0),
        ("Reverts ../..#2", 0),
    ],
)
@pytest.mark.parametrize("asked", ["o/r", "o/new"])
def test_a_revert_from_before_the_repository_was_renamed_counts(
    read: Read, asked: str, said: str, reverted: int
) -> None:
    world = LedgerWorld()
    world.add_runs(1, FIRST, [DONE], BEGIN)
    world.add_pull(2, 1, FIRST, BEGIN, "merged")
    world.add_foreign_pull(3, said, BEGIN + timedelta(days=1))
    world.state.renamed_to = "o/new"
    assert read(world, "--repository", asked)["figures"][0]["reverted"] == reverted


def test_a_revert_on_another_branch_leaves_the_change_where_it_is(read: Read) -> None:
    world = LedgerWorld()
    world.add_runs(1, FIRST, [DONE], BEGIN)
    world.add_pull(2, 1, FIRST, BEGIN, "merged")
    world.add_foreign_pull(3, "Reverts #2", BEGIN + timedelta(days=2))
    world.state.pulls[-1]["base"] = "v1"
    assert read(world)["figures"][0]["reverted"] == 0


@pytest.mark.parametrize(
    ("committer", "untouched"),
    [(BOT_ADDRESS, 1), ("noreply@github.com", 1), ("ann@example.org", 0), ("1+ann@users.noreply.github.com", 0)],
)
def test_a_commit_that_a_person_has_amended_is_touched(read: Read, committer: str, untouched: int) -> None:
    world = LedgerWorld()
    world.add_runs(1, FIRST, [DONE], BEGIN)
    world.add_pull(2, 1, FIRST, BEGIN, "merged")
    oid, author = world.state.pulls[0]["commits"][0]
    world.state.pulls[0]["commits"] = [(oid, author), (oid[::-1], author, committer)]
    assert read(world)["figures"][0]["merged_untouched"] == untouched


def test_what_two_definitions_did_to_one_pull_request_has_a_line_with_the_sum(read: Read) -> None:
    world = LedgerWorld()
    world.add_runs(9, ("other", "aaaaaaaaaaaa"), [DONE], BEGIN)
    world.add_runs(2, SECOND, [(Outcome.COMPLETED, 500_000, 2.0)], BEGIN + timedelta(days=1))
    world.add_runs(1, FIRST, [(Outcome.COMPLETED, 2_000_000, 4.0)], BEGIN)
    # Of the same name, since each is the first of its list.
    world.state.comments[-1]["body"] = world.state.comments[-1]["body"].replace("1-0", "1-a")
    world.add_runs(1, SECOND, [(Outcome.COMPLETED, 500_000, 4.0)], BEGIN)
    world.add_pull(11, 1, SECOND, BEGIN, "merged")
    document = read(world)
    shares = {version: each["cost_per_accepted_usd"] for version, each in figures(document).items()}
    assert (shares[FIRST], shares[SECOND]) == (None, 1.0)
    (total,) = document["totals"]
    assert (total["agent"], total["runs"], total["accepted"], total["cost_usd"]) == ("fixer", 3, 1, 3.0)
    assert (total["cost_per_accepted_usd"], total["cost_per_run_usd"]) == (3.0, 1.0)
    (line,) = (line for line in read(world, text=True).splitlines() if line.startswith("fixer  all "))
    assert line.split()[-2:] == ["$3.00", "4.0"]


def test_a_revert_that_is_not_merged_reverts_nothing(read: Read) -> None:
    world = LedgerWorld()
    world.add_runs(1, FIRST, [DONE], BEGIN)
    world.add_pull(2, 1, FIRST, BEGIN, "merged")
    world.add_foreign_pull(3, "Reverts o/r#2")
    world.add_foreign_pull(4, "Reverts other/repository#2", BEGIN + timedelta(days=1))
    compare(world, read(world))


def test_it_stops_before_the_limit_of_the_hour_is_used_up_and_says_when_to_go_on(read: Read) -> None:
    world = many_pulls(250)
    world.state.points = 55
    said = read(world, code=1)
    assert "GitHub lets this token use 51 more points of its GraphQL API until 13:00 UTC" in said
    assert "--since" in said
    assert world.state.points > 45


def test_an_empty_repository_is_no_error(read: Read, tmp_path: Path) -> None:
    page = tmp_path / "ledger.html"
    assert "No run by github-actions[bot] in o/r." in read(LedgerWorld(), "--html", str(page), text=True)
    assert "<svg" not in page.read_text(encoding="utf-8")


@pytest.mark.whole
def test_the_table_has_a_line_for_each_version_and_the_page_is_written(read: Read, tmp_path: Path) -> None:
    world, page = many_pulls(30), tmp_path / "ledger.html"
    lines = read(world, "--html", str(page), text=True).splitlines()
    assert [tuple(line.split()[:2]) for line in lines[1 : len(world.truth) + 1]] == sorted(
        world.truth, key=lambda version: [*figures(read(world))].index(version)
    )
    assert page.read_text(encoding="utf-8").count("<svg") > 2


@pytest.mark.parametrize(
    ("words", "why"),
    [(("--repository", "nothing"), "is no repository"), (("--github-api-url", "http://example.org"), "cannot be used")],
)
def test_wrong_words_are_told_before_anything_is_sent(
    words: tuple[str, ...], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    assert main(["ledger", "--repository", "o/r", *words]) == 2
    assert why in capsys.readouterr().err


def test_without_a_token_it_says_which_variable_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("GITHUB_TOKEN", "STEPFLOW_READ_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert main(["ledger", "--repository", "o/r"]) == 2
    assert "GITHUB_TOKEN" in capsys.readouterr().err


def test_the_job_says_where_github_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    world = many_pulls(3)
    with GitHubServer(world.state, TOKEN) as server:
        environ = {"GITHUB_API_URL": server.api_url, "GITHUB_SERVER_URL": server.web_url, "GITHUB_TOKEN": TOKEN}
        for name, value in {**environ, "GITHUB_REPOSITORY": "o/r"}.items():
            monkeypatch.setenv(name, value)
        assert main(["ledger", "--json"]) == 0
        compare(world, json.loads(capsys.readouterr().out))
        requests = len(server.requests)
        # Flags win, and take no token to two servers.
        words = ("--github-api-url", "https://ghes.example/api/v3", "--github-server-url", "https://other.example")
        assert main(["ledger", *words]) == 2
        assert "two servers" in capsys.readouterr().err
        assert len(server.requests) == requests


def test_a_server_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setattr(SystemClock, "sleep", lambda _clock, _seconds: None)
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    assert main(["ledger", "--repository", "o/r", "--github-api-url", f"http://localhost:{port}"]) == 1
    assert capsys.readouterr().err.count(") from localhost") == 5
