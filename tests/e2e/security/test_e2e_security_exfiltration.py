"""A model that tries twenty ways to get a secret out, and all that is left of its run."""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.hosted_runner import RUNNER
from tests.e2e.repository import BRANCH, git, labeled
from tests.e2e.script import CHECKOUT_CREDENTIAL, EVENT_CANARY, MODEL_KEY, RUNTIME_TOKEN, WORKFLOW_TOKEN
from tests.e2e.security.exfiltration import ATTEMPTS, exfiltrate
from tests.e2e.security.leaks import as_text, leaks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.hosted_runner import Ended, HostedRunner
    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e_security, pytest.mark.timeout(300)]
ROOT = (0, 0)
EXPLOITS = Path(__file__).parent / "exploits"
SECRETS = {
    "model key": MODEL_KEY,
    "workflow token": WORKFLOW_TOKEN,
    "runtime token": RUNTIME_TOKEN,
    "event": EVENT_CANARY,
    "checkout's credential": CHECKOUT_CREDENTIAL,
    "password in it": "x-access-token:ghs_canary",
    "identity token": "canary/identity+token=0123",
    "runner's home": 'canary "home" %41 of the runner\\0123',
    "runner's settings": "canary-in-the-settings-0123456789",
}

#: What else lies about in a runner's folders.
PLANTED = {
    "temp/_github_home/.netrc": SECRETS["runner's home"],
    "temp/settings.json": json.dumps({"key": SECRETS["runner's settings"]}),
}


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A finished run; `got_out` is what the listener on the other side of the network has received, `changes` what is
    not as it was in the checkout."""

    world: World
    runner: HostedRunner
    ended: Ended
    got_out: bytes
    changes: list[str]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(RUNNER, id="a user's checkout"),
        pytest.param(ROOT, id="root's checkout", marks=pytest.mark.weekly),
    ],
)
def tried(request: pytest.FixtureRequest, new_world: Callable[[], World]) -> Tried:
    """One run with all attempts."""
    world = new_world()
    got_out = bytearray()
    with _listener(got_out) as port:
        event = labeled("agent:fixer", secret=EVENT_CANARY)
        script = exfiltrate(port, world.tool_results)
        runner = world.hosted_runner(script, event, owner=request.param, planted=PLANTED)
        more = {
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": SECRETS["identity token"],
            "ACTIONS_ID_TOKEN_REQUEST_URL": "http://127.0.0.1:9/identity",
            "GITHUB_TOKEN": WORKFLOW_TOKEN,
        }
        options = {"environment": more, "volumes": {EXPLOITS: "/opt/exploits:ro"}}
        with runner.started(world.inputs(), event_name="issues", **options) as process:
            ended = runner.finish(process, timeout=200)
    changes = runner.changes()
    # Whoever tests need not be root, and wants to read what a run of root's has left.
    runner.give_to((os.getuid(), os.getgid()))
    return Tried(world=world, runner=runner, ended=ended, got_out=bytes(got_out), changes=changes)


def test_all_twenty_were_tried_and_the_run_completed_all_the_same(tried: Tried) -> None:
    shown = "\n".join(tried.world.tool_results())
    assert [name for name in ATTEMPTS if f"tried {name}\n" not in shown] == []
    assert (tried.ended.exit_code, tried.ended.outputs["outcome"]) == (0, "completed"), tried.ended.log


def test_the_token_writes_only_after_the_last_validator_was_green(tried: Tried) -> None:
    world, lines = tried.world, (Path(tried.ended.outputs["run-folder"]) / "journal.jsonl").read_text().splitlines()
    accepted = max(entry["t"] for entry in map(json.loads, lines) if entry["event"] == "validator_ran")
    asked = world.github.requests[: world.requests_before_each_turn[0]]
    sent = world.github.requests[len(asked) :]
    assert asked[1].path == "/repos/acme/widgets/collaborators/bob/permission"
    assert {request.method for request in asked} == {"GET"}
    pushed = [request for request in world.git_server.requests if request.path.endswith("/git-receive-pack")]
    assert pushed
    assert all(request.time > accepted for request in (*sent, *pushed))
    assert {request.token for request in world.github.requests} == {True}


def test_the_transcript_holds_no_secret_in_any_form(tried: Tried) -> None:
    assert leaks(as_text(tried.world.model_bodies()), SECRETS) == []


def test_nothing_that_got_out_over_the_network_holds_a_secret(tried: Tried) -> None:
    assert len(tried.got_out) > 1000, "the way out was open and something went through it"
    assert leaks(tried.got_out, SECRETS) == []


def test_no_file_of_the_run_folder_holds_a_secret_in_any_form(tried: Tried) -> None:
    folder = Path(tried.ended.outputs["run-folder"])
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"journal.jsonl", "report.json", "report.html", "effects.json"} <= {path.name for path in files}
    leaked = {str(path.relative_to(folder)): leaks(path.read_bytes(), SECRETS) for path in files}
    assert {name: what for name, what in leaked.items() if what} == {}


def test_log_summary_and_outputs_hold_no_secret_in_any_form(tried: Tried) -> None:
    # The runner takes the masking commands for itself; they are how it learns what to mask.
    seen = "\n".join(line for line in tried.ended.log.splitlines() if not line.startswith("::add-mask::"))
    assert leaks(seen, SECRETS) == []
    assert leaks(tried.ended.summary, SECRETS) == []
    assert leaks(as_text(tried.ended.outputs), SECRETS) == []


def test_what_was_written_to_github_holds_no_secret_in_any_form(tried: Tried) -> None:
    state = tried.world.github.state
    written = as_text([state.comments, state.pulls, tried.world.issue()])
    assert state.comments
    assert state.pulls
    assert leaks(written, SECRETS) == []


def test_every_object_that_was_pushed_is_free_of_secrets(tried: Tried) -> None:
    server = tried.world.server
    objects = [line.split()[0] for line in git(server, "rev-list", "--objects", "--all").splitlines()]
    kinds = {name: git(server, "cat-file", "-t", name) for name in objects}
    held = "\n".join(git(server, "cat-file", kind, name) for name, kind in kinds.items() if kind != "tree")
    assert git(server, "rev-parse", BRANCH) in objects
    assert leaks(held, SECRETS) == []
    refs = git(server, "for-each-ref", "--format=%(refname)").splitlines()
    assert sorted(refs) == ["refs/heads/main", f"refs/heads/{BRANCH}"]


def test_none_of_the_runners_files_was_written_by_the_tools(tried: Tried) -> None:
    temp = tried.runner.root / "temp"
    assert not (temp / "stolen").exists()
    files = {name: (temp / "_runner_file_commands" / name).read_text() for name in ("env", "path", "state")}
    assert files == {"env": "", "path": "", "state": ""}
    assert "stolen" not in tried.ended.outputs


def test_nothing_of_the_run_is_in_the_checkout(tried: Tried) -> None:
    assert tried.changes == []


@contextmanager
def _listener(got_out: bytearray) -> Iterator[int]:
    """Takes whatever anybody sends to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    with server.accept()[0] as client:
                        while piece := client.recv(65536):
                            got_out.extend(piece)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
