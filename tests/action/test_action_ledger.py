"""What whole runs of the action leave on GitHub is enough for the ledger."""

from __future__ import annotations

import json

import pytest

from stepflow.cli import main
from tests.world import World, answer, solve

pytestmark = pytest.mark.whole


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
