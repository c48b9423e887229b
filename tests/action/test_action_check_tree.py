"""Checks of a whole run see what is pushed, beside what `setup` left."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepflow.programs import run_program
from tests.action.test_action_boundary_rules import CLAIM, GREET, HANDED_OVER, did
from tests.servers.messages_api import Reply
from tests.world import World, bash, understood

#: A dependency that git ignores, as `setup` installs it.
INSTALL = "mkdir -p vendor; cp -f needs.txt vendor/installed 2> /dev/null || echo nothing > vendor/installed"


@pytest.fixture
def checked(world: World) -> World:
    """A world whose check looks at the dependency."""

    def change(registry: dict) -> None:
        registry["validators"]["greeting"]["command"] = "grep -q better vendor/installed"

    world.edit("steps_registry.json", change)
    world.edit("agent.json", lambda agent: agent.update(setupReads=["needs.txt"]))
    return world


IGNORE = "echo vendor/ >> .gitignore; git add .gitignore; "


def test_a_dependency_that_the_model_edits_turns_no_check_green(checked: World) -> None:
    edit = f"{IGNORE}{GREET}; echo better > vendor/installed"
    done = checked.run([*did(edit), *[HANDED_OVER, CLAIM] * 2], setup=INSTALL)
    assert done.outputs["outcome"] == "validation_failed", done.log
    assert checked.wrote_nothing(but_comments=1)


@pytest.mark.whole
def test_setup_runs_again_for_checks_where_what_it_reads_was_changed(checked: World) -> None:
    mend = [bash(f"echo better > needs.txt; {GREET.replace('hello', 'hello,')}"), HANDED_OVER, CLAIM]
    done = checked.run([*did(f"{IGNORE}{GREET}"), *mend], setup=INSTALL)
    assert done.outputs["outcome"] == "completed", done.log
    assert done.log.count("[Setup] ran again for the checks, since needs.txt changed") == 1


@pytest.mark.whole
def test_a_setup_that_fails_with_the_change_is_told_to_the_model(checked: World) -> None:
    fails = f"! test -e needs.txt || {{ echo no such package; exit 3; }}; {INSTALL}"
    change = f"{IGNORE}echo worse > needs.txt; {GREET}"
    done = checked.run([*did(change), *[HANDED_OVER, CLAIM] * 2], setup=fails)
    assert done.outputs["outcome"] == "validation_failed", done.log
    assert "it could not run; `setup`, which runs again because needs.txt changed" in done.outputs["reason"]
    retry = next(each for each in checked.events(done) if each["event"] == "completion_judged")["retry_prompt"]
    assert "Validator `git-clean` failed: it could not run" in retry
    assert "`setup`, which runs again because needs.txt changed, fails with exit code 3: no such package" in retry


@pytest.mark.whole
def test_a_large_ignored_folder_that_checks_do_not_see_is_named_before_the_model_is_asked(checked: World) -> None:
    (checked.checkout / ".git/info/exclude").write_text("data\n")
    done = checked.run([], setup=f"{INSTALL}; mkdir data; fallocate -l 1100M data/all")
    assert "[Checks] Not copied, since git ignores it and it has over 1,024 MiB: data." in done.log
    assert done.log.index("[Checks]") < done.log.index("Iteration 1")


@pytest.mark.parametrize("is_kept", [False, pytest.param(True, marks=pytest.mark.whole)])
def test_a_large_ignored_folder_is_left_out_and_named_unless_the_agent_keeps_it(
    checked: World, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepflow.sandbox.copying.LARGEST_IGNORED", 1 << 20)
    (checked.checkout / ".git/info/exclude").write_text("data\nsmall\n")
    for name, size in (("data", 2 << 20), ("small", 1000)):
        (checked.checkout / name).mkdir()
        (checked.checkout / name / "all").write_bytes(os.urandom(size))
    if is_kept:
        checked.edit("agent.json", lambda agent: agent.update(keepForChecks=["data/"]))
    found = "; ".join(f"test -d {name} && echo there is {name}" for name in ("data", "small"))
    done = checked.run([*did(f"{found}; true")], setup=INSTALL)
    outputs = str([each.get("result") or each.get("output") for each in checked.events(done)])
    assert ("there is data\\n" in outputs, "there is small\\n" in outputs) == (is_kept, True), checked.events(done)
    assert ("Not copied, since git ignores it and it has over 1 MiB: data." in done.log) is not is_kept


@pytest.mark.whole
def test_the_check_tree_is_made_ready_while_the_model_answers(checked: World) -> None:
    spoil = "echo spoiled > vendor/installed; grep -q hello greeting.txt"
    (checked.checkout / ".git/info/exclude").write_text("vendor\n")
    checked.edit("steps_registry.json", lambda registry: registry["validators"]["greeting"].update(command=spoil))
    found: list[bytes] = []

    def replies() -> Iterator[Reply]:
        yield from (understood(), bash("echo $(pwd)/end"))
        workspace = Path(re.findall(r"(/[^\s\"]+)/end", json.dumps(checked.model.bodies[-1]))[-1])
        dependency, ends = workspace.with_name(f"{workspace.name}-checks") / "vendor/installed", time.monotonic() + 60
        # It is gone for a moment while it is copied.
        while (text := run_program("cat", str(dependency)).stdout) != b"nothing\n" and time.monotonic() < ends:
            time.sleep(0.02)
        found.append(text)

    checked.run(replies(), setup=INSTALL, base_checks="tell")
    assert found == [b"nothing\n"]
