"""The real process, looked at from outside while it works: nothing shows a secret, and nobody else can look into it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.action.entry_process import EntryProcess
from tests.checkout import Invocation, git
from tests.servers.messages_api import Reply
from tests.world import MODEL_KEY, READ_TOKEN, TOKEN, World, answer, bash, label_event, solve

pytestmark = pytest.mark.whole

RUNTIME = "runtime-token-of-a-test"
OIDC = "https://oidc.example/token?sig=of-a-test-0123456789"
CHECKOUT = "ghs_tokenOfTheCheckout0123456789"
SECRETS = (MODEL_KEY, TOKEN, READ_TOKEN, RUNTIME, OIDC)
ENVIRON = {
    "ACTIONS_RUNTIME_TOKEN": RUNTIME,
    "ACTIONS_ID_TOKEN_REQUEST_URL": OIDC,
    "ACTIONS_CACHE_URL": "https://cache.example/x",
    "GITHUB_TOKEN": TOKEN,
    "anthropic-api-key": MODEL_KEY,
    "ADDRESS": f"https://x:{TOKEN}@h/",
}


@pytest.fixture
def armed(world: World) -> World:
    """A world whose runner hands out every secret there is, and whose checkout kept one in two places."""
    world.github.read_token = READ_TOKEN
    world.runner.environ = dict(ENVIRON)
    temp = world.runner.folder / "temp"
    temp.mkdir()
    (temp / "git-credentials-1.config").write_text(
        f'[http "https://h/"]\n\textraheader = AUTHORIZATION: bearer {CHECKOUT}\n'
    )
    git(
        "config", f"includeIf.gitdir:{world.checkout}/.git.path", f"{temp}/git-credentials-1.config", cwd=world.checkout
    )
    git("remote", "add", "origin", f"https://x-access-token:{CHECKOUT}@h/r", cwd=world.checkout)
    return world


def looked_at(world: World, replies: list[Reply], look: Callable[[int], None]) -> Invocation:
    """What came of the entry point as a process; `look` is called with its id at every turn of the model."""
    turns = iter(replies)

    def reply(_body: dict[str, Any]) -> Reply:
        look(process.running.pid)
        return next(turns)

    world.play(reply)
    process = EntryProcess(world, world.runner.prepare(label_event(), read_token=READ_TOKEN))
    return process.end()


def shown(text: str | bytes) -> list[str]:
    """The secrets in a text."""
    data = text if isinstance(text, bytes) else text.encode()
    return [secret for secret in (*SECRETS, CHECKOUT) if secret.encode() in data]


def descendants(pid: int) -> set[int]:
    """The process and all its descendants."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(status.parent.name)] = int(words[1])
    members = {pid}
    while more := {child for child, parent in parents.items() if parent in members} - members:
        members |= more
    return members


def as_somebody_else(*argv: str) -> str:
    """Root without its rights: the same user for the kernel, but for nothing that is closed."""
    setpriv = shutil.which("setpriv")
    if os.getuid() != 0 or not setpriv:
        return ""
    done = subprocess.run([setpriv, "--bounding-set=-all", "--inh-caps=-all", *argv], capture_output=True, text=True)
    return done.stdout + done.stderr


def test_no_secret_is_in_a_command_line_an_environment_or_a_file_while_it_runs(armed: World) -> None:
    looked: list[int] = []

    def look(pid: int) -> None:
        looked.append(len(descendants(pid)))
        for member in descendants(pid):
            # A process that just ended has neither any more.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                assert shown(Path(f"/proc/{member}/cmdline").read_bytes()) == []
                if os.getuid() == 0:
                    assert shown(Path(f"/proc/{member}/environ").read_bytes()) == []
        for file in ("environ", "maps", "fd/0"):
            said = as_somebody_else("cat", f"/proc/{pid}/{file}")
            assert not said or "Permission denied" in said

    kept = f"{armed.checkout}/.git/config {armed.runner.folder}/temp/*"
    seen = f"git config --list; cat .git/config {kept}; env; cat /proc/$PPID/environ | tr '\\0' '\\n'"
    script = [bash(seen), *solve()]
    done = looked_at(armed, script, look)
    assert done.outputs["outcome"] == "completed", done.log
    assert max(looked) >= 2
    assert "remote.origin.url=https://h/r" in str(armed.model.bodies[1])
    for body in armed.model.bodies:
        assert shown(str(body)) == []


def test_no_secret_is_in_anything_that_is_left_and_all_are_masked_first(armed: World) -> None:
    text = f"keys: {' '.join(SECRETS)}"
    script = [
        bash(f"echo {TOKEN} | base64 -w0"),
        answer("initial.issue", "next", understanding=text),
        *solve()[1:-1],
        answer("closure.issue", "closing", comment=text, pull_request={"title": f"T {TOKEN}", "body": text}),
    ]
    armed.record()
    done = armed.run(script, read_token=READ_TOKEN)
    assert done.outputs["outcome"] == "completed", done.log
    lines = done.log.splitlines()
    masks = [number for number, line in enumerate(lines) if line.startswith("::add-mask::")]
    assert masks == list(range(len(masks)))
    assert {f"::add-mask::{secret}" for secret in SECRETS} <= {lines[number] for number in masks}
    visible = "\n".join(lines[len(masks) :])
    written = str((armed.github.state.comments, armed.github.state.pulls))
    assert shown(visible + done.summary + str(done.outputs) + written) == []
    for path in done.folder.rglob("*"):
        assert not path.is_file() or path.name == "work.bundle" or shown(path.read_bytes()) == [], path


def test_a_configuration_that_git_cannot_read_ends_the_run_before_a_token_is_spent(armed: World) -> None:
    (armed.checkout / ".git/config").write_text("[core\n")
    done = armed.run(solve())
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured"), done.log
    assert "bad config line 1 in file .git/config" in done.outputs["reason"]
    assert armed.model.bodies == []
