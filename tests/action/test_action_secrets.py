"""No secret is in anything that the action leaves, shows or pushes, nor in reach of its tools while it works."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepflow.action.main import act
from stepflow.action.runner import read_runner, secret_variables, secrets_in
from tests.action.entry_process import EntryProcess
from tests.checkout import Invocation, git
from tests.docs.page import ROOT
from tests.servers.dialects import FederatedDialect
from tests.servers.messages_api import MessagesApi, Reply
from tests.servers.providers import IDS, open_access
from tests.world import (
    COMMIT,
    MODEL_KEY,
    READ_TOKEN,
    TOKEN,
    World,
    answer,
    bash,
    by_owner,
    label_event,
    solve,
    understood,
)

pytestmark = pytest.mark.whole

KEY_LINES = ("-----BEGIN KEY-----", "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "qZ7kPv0x3mYtLw9sB2dFhJnRcTgUeXoA")


def visible(done: Invocation) -> str:
    """The log as a person sees it: the runner shows no masking commands."""
    return done.visible_log


def left_behind(done: Invocation, world: World) -> dict[str, str]:
    """Everything that is there after a run, by name."""
    folder = done.folder
    files = {path.name: path.read_text("utf-8", "replace") for path in folder.rglob("*") if path.is_file()}
    written = json.dumps([world.github.state.comments, world.github.state.pulls])
    return {**files, "log": visible(done), "summary": done.summary, "outputs": str(done.outputs), "written": written}


def test_a_multi_line_key_is_masked_line_by_line_and_redacted(world: World) -> None:
    key = "\n".join(KEY_LINES)
    said = answer("initial.issue", "abort", understanding=f"{KEY_LINES[1]} and {KEY_LINES[2]}", why=key)
    world.runner.environ = {**world.runner.environ, "RUNNER_DEBUG": "1"}
    done = world.run([bash(f"echo {KEY_LINES[2]}"), said], by_owner(), github_token=key, boundary="dry-run")
    assert done.outputs["outcome"] == "aborted", done.log
    masked = [line.removeprefix("::add-mask::") for line in done.log.splitlines() if line.startswith("::add-mask::")]
    assert [line for line in masked if line in KEY_LINES] == list(KEY_LINES)
    for name, content in left_behind(done, world).items():
        assert [line for line in KEY_LINES[1:] if line in content] == [], name


def test_a_percent_sign_in_a_secret_is_masked_as_it_is(world: World) -> None:
    done = world.runner.run(label_event(), anthropic_api_key="sk%0Aabcdef%25")
    assert "::add-mask::sk%250Aabcdef%2525" in done.log.splitlines()


def test_secrets_are_masked_even_when_another_input_is_wrong(world: World) -> None:
    done = world.runner.run(label_event(), limits={"usd": "x"})
    assert done.exit_code == 2
    assert done.log.splitlines()[0] == f"::add-mask::{MODEL_KEY}"


def test_no_secret_stays_in_the_environment_by_name_or_by_value(world: World) -> None:
    world.runner.environ = {
        "GITHUB_TOKEN": TOKEN,
        "ACTIONS_RUNTIME_TOKEN": "runtime-token-of-a-test",
        "anthropic-api-key": MODEL_KEY,
        "COPY": TOKEN,
        "HARMLESS": "yes",
    }
    environ = world.run([answer("initial.issue", "abort")]).environ
    assert environ["HARMLESS"] == "yes"
    assert not [name for name in environ if name.startswith("INPUT_")]
    assert not {"GITHUB_TOKEN", "ACTIONS_RUNTIME_TOKEN", "anthropic-api-key", "COPY"} & environ.keys()
    assert all(secret not in str(environ) for secret in (MODEL_KEY, TOKEN, "runtime-token-of-a-test"))


class BrokenOutput(io.StringIO):
    """A stdout whose writing fails once, at a line that holds these words."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words

    def write(self, text: str) -> int:
        if self._words and self._words in text and not text.startswith("::add-mask::"):
            words, self._words = self._words, ""
            raise RuntimeError(f"cannot print {words} {TOKEN}")
        return super().write(text)


def call(world: World, words: str, replies: Any) -> Invocation:
    """Call the action with a stdout that breaks."""
    world.play(replies)
    environ = world.runner.prepare(label_event(), name="issues")
    stdout = BrokenOutput(words)
    code = act(environ, stdout, clock=world.clock)
    return world.runner.collect(environ, code, stdout.getvalue())


@pytest.mark.parametrize(
    ("words", "stage"), [("intent next", "Flow loop"), ("Agent fixer", "Before the run")], ids=["in a step", "at start"]
)
def test_a_bug_in_a_run_exits_3_with_a_folded_traceback_and_every_output(world: World, words: str, stage: str) -> None:
    done = call(world, words, [understood()])
    assert (done.exit_code, done.outputs["outcome"], done.outputs["success"]) == (3, "internal_error", "false")
    assert done.outputs["reason"].startswith(f"{stage}: an error of stepflow itself: RuntimeError")
    assert (done.outputs["agent"], done.outputs["issue"]) == ("fixer", "7")
    lines = done.log.splitlines()
    at = lines.index("::group::internal error")
    assert any("RuntimeError: cannot print" in line for line in lines[at : lines.index("::endgroup::", at)])
    assert "fault of stepflow" in done.summary
    assert TOKEN not in visible(done) + done.summary + str(done.outputs)


def test_a_bug_before_a_run_exits_3_with_a_folded_traceback_and_every_output(world: World) -> None:
    world.runner.inputs["no-such-input"] = "x"
    done = call(world, "no-such-input", [])
    assert (done.exit_code, done.outputs["outcome"]) == (3, "internal_error")
    assert done.outputs.keys() == yaml.safe_load((ROOT / "action.yml").read_text())["outputs"].keys()
    lines = done.log.splitlines()
    at = lines.index("::group::internal error")
    assert any("RuntimeError: cannot print" in line for line in lines[at : lines.index("::endgroup::", at)])
    assert TOKEN not in visible(done) + done.summary + str(done.outputs)


#: As the runner, aws-actions/configure-aws-credentials, google-github-actions/auth and a step's `env:` set them.
LOGIN = {
    "ACTIONS_ID_TOKEN_REQUEST_URL": "https://identity.example/token?api-version=2.0",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "request-token-of-the-job",
    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLEOFATEST01",
    "AWS_SECRET_ACCESS_KEY": "aws/secret+key/of+a+test",
    "AWS_SESSION_TOKEN": "aws-session-token-of-a-test",
    "AWS_BEARER_TOKEN_BEDROCK": "bedrock-key-of-a-test",
    "CLOUDSDK_AUTH_ACCESS_TOKEN": "ya29.google-token-of-a-test",
    "ANTHROPIC_FOUNDRY_API_KEY": "foundry-key-of-a-test",
    "ANTHROPIC_FOUNDRY_AUTH_TOKEN": "entra-token-of-a-test",
    "AZURE_CLIENT_SECRET": "azure-secret-of-a-test",
}
PATHS = {
    "GOOGLE_APPLICATION_CREDENTIALS": "/github/workspace/gha-creds-1.json",
    "GOOGLE_GHA_CREDS_PATH": "/github/workspace/gha-creds-1.json",
    "AWS_PROFILE": "ci",
}


def environ_of(tmp_path: Path) -> dict[str, str]:
    """A job's environment with every login at once, and one copy of a key under another name."""
    event = tmp_path / "event.json"
    event.write_text(json.dumps(label_event()))
    copy = {"MY_COPY": f"key={LOGIN['AWS_SECRET_ACCESS_KEY']}"}
    return {"GITHUB_EVENT_PATH": str(event), "AWS_REGION": "eu-west-1", **LOGIN, **PATHS, **copy}


def test_logins_are_secrets_and_leave_the_environment(tmp_path: Path) -> None:
    environ = environ_of(tmp_path)
    assert set(LOGIN.values()) <= set(secrets_in(environ))
    assert {*LOGIN, *PATHS, "MY_COPY"} <= secret_variables(environ, secrets_in(environ))
    runner = read_runner(environ)
    assert not ({*LOGIN, *PATHS, "MY_COPY"} & environ.keys())
    assert environ["AWS_REGION"] == runner.environment["AWS_REGION"] == "eu-west-1"
    assert runner.login == {**LOGIN, **PATHS, "AWS_REGION": "eu-west-1"}
    assert not any(secret in repr(runner) for secret in LOGIN.values())


def test_a_stand_in_for_a_credential_masks_no_ordinary_word(tmp_path: Path) -> None:
    environ = {**environ_of(tmp_path), "AWS_ACCESS_KEY_ID": "test", "NODE_ENV": "test"}
    assert "test" not in secrets_in(environ)
    runner = read_runner(environ)
    assert runner.environment["NODE_ENV"] == "test"
    assert "AWS_ACCESS_KEY_ID" in runner.withheld


def test_no_tool_sees_what_logs_the_job_in_and_nothing_that_is_left_holds_it(world: World) -> None:
    world.runner.environ = {**LOGIN, **PATHS, "AWS_REGION": "eu-west-1"}
    look = "env; cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'"
    done = world.run([bash(look), answer("initial.issue", "abort")], pass_env="AWS_REGION")
    assert done.outputs["outcome"] == "aborted", done.log
    shown = json.dumps(world.model.bodies[1])
    assert "AWS_REGION=eu-west-1" in shown
    assert re.findall(r"(?:AWS|GOOGLE|CLOUDSDK|ANTHROPIC|AZURE|ACTIONS)_\w+", shown) == ["AWS_REGION"] * shown.count(
        "AWS_REGION"
    )
    folder = done.folder
    files = [path.read_text("utf-8", "replace") for path in folder.rglob("*") if path.is_file()]
    log = done.visible_log
    for text in (*files, log, done.summary, shown):
        assert [name for name, value in LOGIN.items() if value in text] == []
    assert set(LOGIN.values()) <= {line.removeprefix("::add-mask::") for line in done.log.splitlines()}


@pytest.mark.parametrize("account", [IDS["service_account_id"], ""], ids=["named", "none"])
def test_the_service_account_of_the_workload_identity_is_the_one_that_the_workflow_names(
    account: str, world: World, tmp_path: Path
) -> None:
    """The server takes an exchange with exactly these ids."""
    ids = {name: value for name, value in IDS.items() if name != "service_account_id" or account}
    with open_access("identity", tmp_path) as access:
        dialect = FederatedDialect(ids=ids, knows=lambda token: token in access.logins.identities)
        with MessagesApi(lambda body: world.next_reply(body), dialect=dialect) as api:
            world.runner.environ = dict(access.login)
            del world.runner.inputs["anthropic-api-key"]
            named = "\n".join(f"{name.replace('_', '-')}: {value}" for name, value in {**IDS, **ids}.items())
            if not account:
                named = "\n".join(line for line in named.splitlines() if not line.startswith("service-account-id"))
            world.runner.inputs |= {"model": {"workload-identity": named, "base-url": api.url}}
            done = world.run([answer("initial.issue", "abort")], on_failure="nothing")
    assert done.outputs["outcome"] == "aborted", done.log
    assert [exchange.get("service_account_id", "") for exchange in dialect.exchanges] == [account]


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


WORK_ON = answer("continuation.issue", "repeat", summary="still at it")
AS_MODEL = "git -c user.name=Model -c user.email=model@example.invalid"
#: Every place in a commit where a secret can stand. The tree of the last commit holds none of them.
COMMITTED = {
    "a file": f"echo '{MODEL_KEY}' > .npmrc && git add .npmrc && {AS_MODEL} commit -qm Key && git rm -q .npmrc",
    "a large file that was changed": (
        f"seq 99999 > big && git add big && {AS_MODEL} commit -qm Big && git gc -q && sed -i '50000s/.*/{TOKEN}/' big"
        f" && git add big && {AS_MODEL} commit -qm Change && git gc -q && git rm -qf big"
    ),
    "a commit's message": f"{AS_MODEL} commit -q --allow-empty -m 'Use {TOKEN}'",
    "an author's name": f"git -c user.name='{TOKEN}' -c user.email=m@x commit -q --allow-empty -m Name",
    "a path": f"touch 'x{TOKEN}' && git add . && {AS_MODEL} commit -qm Path && git rm -q 'x{TOKEN}'",
    "a side branch that is merged": (
        f"git checkout -qb side && echo {TOKEN} > t && git add t && {AS_MODEL} commit -qm T && git rm -q t &&"
        f" {AS_MODEL} commit -qm 'No T' && git checkout -q - && {AS_MODEL} merge -q --no-ff -m Merge side"
    ),
}


def greet(command: str) -> list[Reply]:
    """A run that would end with a pull request, and insists on it."""
    _, _, *rest = solve()
    return [understood(), bash(f"{command} && echo 'hello, world' > greeting.txt && {COMMIT}"), *rest * 3]


def unpacked(folder: Path) -> bytes:
    """Everything in a folder: the names, the bytes as they are, and whatever in them is compressed."""
    parts: list[bytes] = []
    for path in folder.rglob("*"):
        parts.append(bytes(path))
        data = path.read_bytes() if path.is_file() else b""
        parts.append(data)
        for start in re.finditer(rb"\x78[\x01\x5e\x9c\xda]", data):
            try:
                parts.append(zlib.decompressobj().decompress(data[start.start() :]))
            except zlib.error:
                continue
    return b"\n".join(parts)


@pytest.mark.parametrize("command", COMMITTED.values(), ids=COMMITTED)
def test_a_secret_in_any_commit_is_neither_pushed_nor_kept(world: World, command: str) -> None:
    done = world.run(greet(command))
    assert done.outputs["outcome"] == "refused", done.log
    assert "a secret of this run" in done.outputs["reason"]
    assert world.wrote_nothing(but_comments=1)
    (comment,) = world.comments()
    assert "A commit contains a secret of this run" in comment
    assert (TOKEN in comment, MODEL_KEY in comment) == (False, False)
    content = unpacked(done.folder)
    assert (TOKEN.encode() in content, MODEL_KEY.encode() in content) == (False, False)
    assert "no snapshot of it is kept" in done.log


def test_a_failed_run_pushes_no_secret_with_its_unfinished_work(world: World) -> None:
    leaked = f"echo {TOKEN} > t && git add t && {AS_MODEL} commit -qm T && git rm -q t && {AS_MODEL} commit -qm 'No T'"
    done = world.run([understood(), bash(leaked), WORK_ON], limits={"iterations": 2})
    assert done.outputs["outcome"] == "limit_reached"
    assert world.branches().keys() == {"main"}
    assert "a secret of this run" in done.log
    assert TOKEN.encode() not in unpacked(done.folder)


def test_a_secret_that_is_staged_only_is_not_kept(world: World) -> None:
    staged = f"echo {TOKEN} > t && git add t && rm t"
    done = world.run([understood(), bash(staged), WORK_ON], limits={"iterations": 2}, on_failure="nothing")
    assert TOKEN.encode() not in unpacked(done.folder)
    assert "no snapshot of it is kept" in done.log


def test_commits_without_a_secret_are_pushed_as_before(world: World) -> None:
    packed = f"seq 9999 > n && git add n && {AS_MODEL} commit -qm N && git gc -q && sed -i 5d n"
    done = world.run(greet(packed))
    assert done.outputs["outcome"] == "completed", done.log
    assert "[Snapshot] not kept" not in done.log
