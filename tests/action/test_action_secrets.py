"""Secrets are masked first, taken out of the environment, and in nothing that the action leaves behind."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import yaml

from stepflow.action.main import act
from tests.checkout import Invocation
from tests.docs.page import ROOT
from tests.world import MODEL_KEY, TOKEN, World, answer, bash, by_owner, label_event, understood

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
    done = world.runner.run(label_event(), budget_usd="x")
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
