"""`stepflow preflight`: the rows, for good and for bad, and the exit code that follows from them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from stepflow.cli import main
from stepflow.cli.init import JUDGES_NOTHING
from tests.checkout import git
from tests.servers.messages_api import Failure, MessagesApi
from tests.world import MODEL_KEY

pytestmark = pytest.mark.whole


def rows(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, str]]:
    """Name → state and detail."""
    *lines, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\S+: [\w, ]+(: nothing but the model would stop a run)?", last)
    matches = (re.match(r"\S (ok|warning|failed|unknown) +(.+?)(?:  +(.*))?$", line) for line in lines)
    return {match[2]: (match[1], match[3] or "") for match in matches if match}


def preflight(*words: str) -> int:
    return main(["preflight", "fixer", "--all", *words])


def scripted(checkout: Path, *words: str) -> int:
    return preflight("--scenario", str(checkout.parent / "scenario.yaml"), *words)


def test_what_is_fine_is_one_line_below_what_people_must_know(checkout: Path, capsys) -> None:
    scenario = str(checkout.parent / "scenario.yaml")
    assert main(["preflight", "fixer", "--scenario", scenario, "--pass-env", "NOT_SET"]) == 0
    *first, fine, counted = capsys.readouterr().out.splitlines()
    assert all(line.startswith("! warning") for line in first), first
    assert any("NOT_SET is not set" in line for line in first)
    # The network is listed where a proxy or an authority of the machine is used.
    assert fine.removeprefix("✓ ok: ").removeprefix("network, ").startswith("definition, ")
    assert "self-test (" in fine
    assert re.fullmatch(r"fixer: \d+ ok, \d+ warnings?", counted)


def test_who_has_no_key_yet_sees_in_the_last_line_whether_anything_else_is_wrong(
    checkout: Path, capsys, monkeypatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    assert main(["preflight", "fixer", "--issue", "7"]) == 2
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("✗ failed   model")
    assert re.fullmatch(r"fixer: \d+ ok(, \d+ warnings?)?, 1 failed: nothing but the model would stop a run", last)
    assert main(["preflight", "fixer", "--issue", "7", "--pass-env", "GITHUB_TOKEN"]) == 2
    assert capsys.readouterr().out.splitlines()[-1].endswith(", 2 failed")


def everything_below(folder: Path) -> dict[str, tuple[object, ...]]:
    contents = {}
    for path in (folder, *folder.rglob("*")):
        info = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        contents[str(path)] = (info.st_uid, info.st_mode, info.st_mtime_ns, data)
    return contents


def test_a_scripted_agent_needs_no_key_and_nothing_is_left_behind(
    checkout: Path, capsys, monkeypatch, tmp_path_factory
) -> None:
    # What a run that is killed would leave to the next one is written elsewhere, as on a person's own machine.
    monkeypatch.delenv("RUNNER_TEMP", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    before = everything_below(checkout.parent)
    assert scripted(checkout, "--issue", "7") == 0
    assert everything_below(checkout.parent) == before
    table = rows(capsys)
    assert table["inputs"][0] == table["definition"][0] == table["run arguments"][0] == "ok"
    assert table["model"] == ("ok", f"scripted, no key needed: {checkout.parent / 'scenario.yaml'}")
    assert table["price"] == ("ok", "scripted turns cost nothing")
    assert table["boundary"] == ("ok", "a dry run, which writes nothing to GitHub")
    assert table["sandbox: environment"] == ("ok", "starts empty")
    assert table["self-test: a tool's environment"] == ("ok", "kept")
    assert table["self-test: the parent in /proc"] == ("ok", "kept")
    assert table["self-test: /github/home"] == ("ok", "not here")
    assert "actor" not in table


def test_the_model_is_looked_up_without_a_token_spent(checkout: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", MODEL_KEY)
    with MessagesApi(api_key=MODEL_KEY) as api:
        assert preflight("--issue", "7", "--model", f"base-url={api.url}", "--model", "haiku") == 0
    table = rows(capsys)
    assert table["model"] == ("ok", f"claude-haiku-5-5 answers at {api.url}")
    assert table["price"] == ("ok", "known; limits.usd is $5.00")
    assert [(request.method, request.path) for request in api.requests] == [("GET", "/v1/models/claude-haiku-5-5")]


@pytest.mark.parametrize(
    ("server", "key", "words"),
    [
        ({"models": frozenset({"another"})}, MODEL_KEY, "not_found_error"),
        ({}, "sk-ant-another-key-0123456789", "401"),
    ],
)
def test_a_model_that_cannot_be_asked_fails(checkout: Path, capsys, monkeypatch, server, key, words) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    with MessagesApi(api_key=MODEL_KEY, **server) as api:
        assert preflight("--issue", "7", "--model", f"base-url={api.url}") == 1
    state, detail = rows(capsys)["model"]
    assert (state, words in detail) == ("failed", True), detail
    assert key not in detail


def test_a_server_without_a_list_of_models_is_no_failure(checkout: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", MODEL_KEY)
    with MessagesApi(api_key=MODEL_KEY) as api:
        api.list_of_models = Failure(status=404, page="<h1>Not Found</h1>")
        assert preflight("--issue", "7", "--model", f"base-url={api.url}") == 0
    assert rows(capsys)["model"] == ("unknown", f"the first turn will tell: {api.url} has no list of models")


def test_without_a_key_the_row_says_so_and_the_others_are_still_there(checkout: Path, capsys) -> None:
    assert preflight("--issue", "7") == 2
    table = rows(capsys)
    assert table["model"][0] == "failed"
    assert "anthropic-api-key" in table["model"][1]
    assert table["sandbox: environment"][0] == "ok"


def test_a_price_that_is_not_known_needs_a_budget_in_tokens(checkout: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", MODEL_KEY)
    with MessagesApi(api_key=MODEL_KEY) as api:
        words = ("--issue", "7", "--model", f"base-url={api.url}", "--model", "my-own")
        assert preflight(*words) == 2
        assert rows(capsys)["price"][0] == "failed"
        assert preflight(*words, "--limits", "tokens=50000") == 0
    assert rows(capsys)["price"] == (
        "warning",
        "of my-own unknown; limits.tokens (50,000) applies instead of limits.usd",
    )


def test_where_a_layer_is_missing_required_fails_and_best_effort_warns(
    checkout: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A root parent cannot give the tools a user where a folder for temporary files lets only its owner in."""
    if os.getuid() != 0:
        pytest.skip("an ordinary user's tools keep its user, which is no missing layer")
    closed = checkout.parent / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr("tempfile.tempdir", str(closed))
    assert scripted(checkout, "--issue", "7", "--isolation", "required") == 1
    table = rows(capsys)
    assert table["sandbox"][0] == "failed"
    assert "The tools cannot run as a separate user" in table["sandbox"][1]
    assert table["sandbox: uid"][0] == "failed"
    assert table["sandbox: environment"][0] == "ok"
    assert scripted(checkout, "--issue", "7", "--isolation", "best-effort") == 0
    assert rows(capsys)["sandbox: uid"][0] == "warning"


def test_a_place_that_is_reached_in_spite_of_everything_fails(checkout: Path, capsys) -> None:
    """A key in a setting that tools see; a credential of the checkout stays there."""
    config = checkout / ".git" / "config"
    before = f"{config.read_text()}[http]\n\textraheader = AUTHORIZATION: bearer ghs_ofthecheckout0123456789\n"
    config.write_text(before)
    assert scripted(checkout, "--issue", "7") == 0
    table = rows(capsys)
    assert table["self-test: git's configuration"] == ("ok", "kept")
    assert config.read_text() == before
    config.write_text(f"{before}[user]\n\tname = a-key-of-no-known-form\n")
    assert scripted(checkout, "--issue", "7", "--anthropic-api-key", "a-key-of-no-known-form") == 1
    state, detail = rows(capsys)["self-test: git's configuration"]
    assert state == "failed"
    assert detail == "reached by shell: git config --list (git-config), .git/config (bytes)"


def test_for_github_what_no_token_may_ask_is_unknown_with_the_place_to_look(
    checkout: Path, capsys, monkeypatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_tokenofatest0123456789")
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    assert scripted(checkout, "--issue", "7", "--boundary", "github") == 2
    assert "GITHUB_ACTOR" in rows(capsys)["boundary"][1]
    monkeypatch.setenv("GITHUB_ACTOR", "bob")
    assert scripted(checkout, "--issue", "7", "--boundary", "github") == 0
    table = rows(capsys)
    assert table["boundary"] == ("ok", "writes to o/r")
    assert "https://github.com/o/r/settings/actions" in table["Actions may create pull requests"][1]
    assert "permissions:" in table["scopes of github-token"][1]
    assert {table[name][0] for name in ("actor", "labels", "scopes of github-token")} == {"unknown"}


def test_an_agent_that_judges_nothing_is_told_before_it_costs_anything(checkout: Path, capsys, tmp_path: Path) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    assert main(["init", "fixer", "--repo", str(root)]) == JUDGES_NOTHING
    git("init", "--quiet", cwd=root)
    git("add", "--all", cwd=root)
    git("commit", "--quiet", "--message", "Begin", cwd=root)
    capsys.readouterr()
    scenario = str(root / ".agent/fixer/scenarios/straight.yaml")
    words = ("--repo", str(root), "--scenario", scenario, "--issue", "7")
    assert main(["preflight", "fixer", "--all", *words]) == 0
    state, detail = rows(capsys)["checks"]
    assert state == "warning"
    assert detail.startswith("SF612: its commits are pushed, but none of its checks runs code")


def test_an_agent_whose_checks_run_code_is_judged(checkout: Path, capsys, tmp_path: Path) -> None:
    assert scripted(checkout) == 0
    assert "checks" not in rows(capsys)


@pytest.mark.parametrize("is_kept", [False, True])
def test_checks_see_a_large_ignored_folder_only_if_the_agent_keeps_it(
    checkout: Path, capsys, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    monkeypatch.setattr("stepflow.sandbox.copying.LARGEST_IGNORED", 1 << 20)
    (checkout / "data").mkdir()
    (checkout / "data/.gitignore").write_text("*\n")
    (checkout / "data/all").write_bytes(os.urandom(2 << 20))
    registry, agent = (checkout / ".agent/fixer" / name for name in ("steps_registry.json", "agent.json"))
    changed = json.loads(registry.read_text())
    name, validator = next(item for item in changed["validators"].items() if "git status" not in item[1]["command"])
    validator["command"] = "test -e data/all"
    registry.write_text(json.dumps(changed))
    if is_kept:
        agent.write_text(json.dumps(json.loads(agent.read_text()) | {"keepForChecks": ["data/"]}))
    scripted(checkout)
    found = rows(capsys)
    assert found[f"check before the run: {name}"][0] == ("ok" if is_kept else "warning")
    assert found.get("ignored files", ("", "nothing"))[0] == ("ok" if is_kept else "warning")
