"""The inputs that are maps, at the door: what is read, what is refused with its place, and what no log shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.checkout import DEMO, Runner, labeled, make_checkout

TOKEN = "t-of-a-test-0123456789"


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A runner on the demo's repository with a scripted model."""
    folder = tmp_path / "runner"
    folder.mkdir()
    inputs = {"scenario": str(DEMO / "scenario.yaml"), "boundary": "dry-run", "isolation": "best-effort"}
    return Runner(checkout=make_checkout(tmp_path / "checkout"), folder=folder, inputs=inputs)


WRONG = {
    "limits: an unknown key": ("limits", "budget-usd: 2", 'limits: there is no key `budget-usd` (did you mean "usd"?)'),
    "limits: a wrong type": ("limits", "{usd: 2, usd-per-day: lots}", "limits.usd-per-day: must be a number"),
    "limits: too low": ("limits", "rounds: 0", "limits.rounds: must be at least 1"),
    "limits: no map": ("limits", "5", "limits: write a YAML map"),
    "start: an unknown key": (
        "start",
        "trigger-labels: bug",
        'start: there is no key `trigger-labels` (did you mean "labels"?); it knows labels, events, mention',
    ),
    "start: labels in one line": ("start", "labels: agent:*, bug", "start.labels: write one label per line"),
    "start: a wrong type": ("start", "labels: {a: b}", "start.labels: must be a list"),
    "start: a wrong word": ("start", "events: issues.open", "start.events.0: must be one of 'issues.opened', "),
    "start: everybody": ("start", "min-permission: none", "start.min-permission: write read, triage, write"),
    "start: no map": ("start", "agent:*", "start: write a YAML map"),
    "model: an unknown key": (
        "model",
        "anthropic-base-url: x",
        'no key `anthropic-base-url` (did you mean "base-url"?)',
    ),
    "model: a wrong word": ("model", "provider: bedrok", "model.provider: must be one of 'anthropic', 'bedrock'"),
    "model: a map in it": (
        "model",
        "workload-identity: {federation-rule-id: a}",
        "model.workload-identity.organization-id: must be given",
    ),
    "telemetry: an unknown key": ("telemetry", "otel-content: true", '`otel-content` (did you mean "content"?)'),
    "telemetry: a wrong type": ("telemetry", f"headers: [{TOKEN}]", "telemetry.headers: must be a map"),
    "telemetry: a wrong flag": ("telemetry", "content: some", "telemetry.content: write true or false"),
    "network: a word": ("network", "nonne", "network: write `full`, `none`, or a list of hosts: 'nonne' is neither"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_map_is_refused_with_the_place_and_the_closest_key(runner: Runner, case: str) -> None:
    name, text, words = WRONG[case]
    done = runner.run(labeled(), **{name: text})
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured"), done.log
    assert f"input {name}" in done.outputs["reason"]
    assert words in done.outputs["reason"]
    assert TOKEN not in done.log.replace(f"::add-mask::{TOKEN}", "") + json.dumps(done.outputs) + done.summary


@pytest.mark.parametrize("text", ["", " \n", "{}", "usd:\niterations: ''"])
def test_an_empty_map_or_key_is_as_if_it_was_not_given(runner: Runner, text: str) -> None:
    given = dict.fromkeys(("start", "model", "telemetry"), text if "usd" not in text else "")
    done = runner.run(labeled(), limits=text, **given)
    assert (done.exit_code, done.outputs["outcome"]) == (0, "completed"), done.log
    options = started(done.outputs["run-folder"])["options"]
    assert (options["limits"]["usd"], options["limits"]["iterations"], options["start"]["labels"]) == (
        5,
        None,
        ["agent:*"],
    )
    assert options["model"]["name"] is None


def test_each_key_counts_and_the_journal_has_what_is_no_secret(runner: Runner) -> None:
    done = runner.run(
        labeled("bot/fixer"),
        limits="iterations: 40\nusd: 2",
        start="labels: |\n  bot/*\n  agent:*\nbots: [renovate, dependabot]",
        model="name: haiku\nbase-url: https://models.example",
        network="pypi, *.example.org",
        mode="preflight",
    )
    assert done.exit_code == 0, done.log
    assert "closed, but for TCP through the parent to" in done.log or "cannot" in done.log
    done = runner.run(labeled("bot/fixer"), limits="iterations: 40", start="labels: bot/*", model="haiku")
    assert done.outputs["outcome"] == "completed", done.log
    options = started(done.outputs["run-folder"])["options"]
    assert (options["limits"]["iterations"], options["start"]["labels"]) == (40, ["bot/*"])
    assert (options["model"]["name"], options["model"]["provider"]) == ("haiku", "scripted")


@pytest.mark.parametrize(
    "text",
    [
        f"endpoint: collector\nheaders:\n  Authorization: Bearer {TOKEN}",
        f"endpoint: collector\nheaders: 'Authorization: Bearer {TOKEN}'",
        f"endpoint: collector\nheader: {{ Authorization: Bearer {TOKEN} }}",
        f"endpoint: [collector\nheaders: {TOKEN}",
        f"Authorization: Bearer {TOKEN}",
    ],
    ids=["a map", "a text", "a wrong key", "no YAML", "a map without keys"],
)
def test_a_secret_in_a_map_is_masked_first_and_then_nowhere(runner: Runner, text: str) -> None:
    runner.environ = {"COPY": f"echo {TOKEN}"}
    done = runner.run(labeled(), telemetry=text)
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured"), done.log
    masked, rest = [], []
    for line in done.log.splitlines():
        (masked if line.startswith("::add-mask::") else rest).append(line)
    assert any(TOKEN in line for line in masked)
    assert TOKEN not in "\n".join(rest) + json.dumps(done.outputs) + done.summary
    # Of a text that cannot be read, only the lines are known.
    assert ("COPY" in done.environ) is text.startswith("endpoint: [")


def started(folder: str) -> dict:
    """The first event of a run."""
    lines = Path(folder, "journal.jsonl").read_text(encoding="utf-8").splitlines()
    return next(event for event in map(json.loads, lines) if event["event"] == "run_started")
