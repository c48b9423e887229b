"""What keeps a credential away at the end: a git folder that is not the one of the start, and a process that lives."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from credentials_world import HEADER, PAYLOAD, TOKEN, append, files_holding, persist_as_v5, persist_as_v6
from toolbox_world import Box, git

from stepflow.domain.words import Isolation
from stepflow.errors import IsolationError
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.options import ToolboxOptions, UserPolicy
from stepflow.sandbox.restore import credentials_stripped

FATE = "the credentials that the checkout had are not given back"


@pytest.fixture
def temp(open_folder):
    (open_folder / "temp").mkdir()
    return open_folder / "temp"


@pytest.fixture
def nested(checkout):
    """A repository below the checkout."""
    git(checkout, "init", "--quiet", str(checkout / "vendor/other"))
    return checkout / "vendor/other/.git"


def persist_outside(git_folder: Path, temp: Path) -> Path:
    """A file beside the checkout that only this git folder leads to."""
    file = temp / "other.config"
    file.write_text(f'[http "https://other.example/"]\n\textraheader = AUTHORIZATION: {HEADER}\n')
    with (git_folder / "config").open("a") as config:
        config.write(f"[include]\n\tpath = {file}\n")
    return file


def copied(folder: Path) -> None:
    """The same in every byte, but another folder."""
    git(folder.parent, "clone", "--quiet", "--bare", str(folder), str(folder.with_name("copy")))
    moved(folder)
    folder.with_name("copy").rename(folder)


def moved(folder: Path) -> None:
    """Gone from its place, and still there."""
    folder.rename(folder.with_name("moved"))


def filed(folder: Path) -> None:
    moved(folder)
    folder.write_text("gitdir: moved\n")


REPLACED = pytest.mark.parametrize("replace", [copied, moved, filed], ids=lambda each: each.__name__)


def test_a_file_outside_is_given_back_to_the_nested_repository_that_leads_to_it(checkout, nested, temp):
    file = persist_outside(nested, temp)
    before = file.read_bytes()
    with credentials_stripped(checkout, temp) as stripped:
        assert files_holding(PAYLOAD, checkout, temp) == []
    assert (stripped.notes, file.read_bytes()) == ((), before)


@REPLACED
def test_no_file_outside_is_given_back_where_the_nested_repository_that_leads_to_it_was_replaced(
    checkout, nested, temp, replace: Callable[[Path], None]
):
    persist_as_v5(checkout)
    file = persist_outside(nested, temp)
    with credentials_stripped(checkout, temp):
        replace(nested)
    assert files_holding(PAYLOAD, checkout, temp) == [str(checkout / ".git/config")]
    assert file.exists()


@REPLACED
def test_no_file_outside_is_given_back_where_the_checkouts_own_repository_was_replaced(
    checkout, nested, temp, replace: Callable[[Path], None]
):
    """Also where it is not the own one that leads there: whatever stands in its place may lead to the nested one."""
    persist_outside(nested, temp)
    with credentials_stripped(checkout, temp) as stripped:
        replace(checkout / ".git")
    assert FATE in stripped.notes[0]
    assert files_holding(PAYLOAD, checkout, temp) == []


@REPLACED
def test_a_repository_that_was_replaced_gets_no_credential_wherever_it_is_now(
    checkout, temp, replace: Callable[[Path], None]
):
    persist_as_v5(checkout)
    persist_as_v6(checkout, temp)
    with credentials_stripped(checkout, temp) as stripped:
        replace(checkout / ".git")
    assert str(checkout / ".git") in stripped.notes[0]
    assert FATE in stripped.notes[0]
    assert files_holding(PAYLOAD, checkout, temp) == []


def test_a_git_file_that_cannot_be_read_at_the_end_is_not_the_one_of_the_start(checkout, open_folder, temp):
    persist_as_v5(checkout)
    git(checkout, "worktree", "add", "--quiet", str(open_folder / "tree"))
    with credentials_stripped(open_folder / "tree", temp) as stripped, (open_folder / "tree/.git").open("ab") as file:
        file.truncate(2**27)
    assert "was replaced" in stripped.notes[0]
    assert files_holding(PAYLOAD, checkout, temp) == []


def test_nothing_is_given_back_while_a_process_of_the_tools_is_alive(checkout, temp):
    """As root without capabilities, or as the parent's own user, tools can end their supervisor before it ends them."""
    persist_as_v5(checkout)
    append(checkout, f'[remote "o"]\n\turl = https://u:{TOKEN}@h/r\n')
    options = ToolboxOptions(isolation=Isolation.BEST_EFFORT, user=UserPolicy.STAY)
    with credentials_stripped(checkout, temp) as stripped:
        with (
            pytest.raises(IsolationError, match="ended during"),
            Toolbox.start(checkout, options=options, restore=stripped) as toolbox,
        ):
            Box(toolbox, checkout).bash("setsid sleep 30 & echo $! > alive; kill -9 $PPID; sleep 30")
        with suppress(ProcessLookupError):
            os.kill(int((checkout / "alive").read_text()), signal.SIGKILL)
    assert any("not certain that every process of the tools is dead" in note for note in stripped.notes)
    for secret in (PAYLOAD, TOKEN):
        assert files_holding(secret, checkout, temp) == []
