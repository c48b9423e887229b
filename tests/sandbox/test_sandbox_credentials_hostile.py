"""What tools did to git's files while the credentials were away: all undone, or no credential comes back."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from credentials_world import HEADER, PAYLOAD, TOKEN, append, files_holding, persist_as_v5, persist_as_v6, snapshot
from toolbox_world import Box, git, root_only, stays_root

from stepflow.errors import IsolationError
from stepflow.run.clock import Cancellation
from stepflow.run.inputs import read_inputs
from stepflow.run.request import RunRequest
from stepflow.run.sandbox import open_sandbox
from stepflow.run.trigger import Trigger
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.options import ToolboxOptions
from stepflow.sandbox.restore import credentials_stripped

pytestmark = pytest.mark.whole


@pytest.fixture
def armed(checkout, temp):
    """A checkout with credentials in both forms."""
    persist_as_v5(checkout)
    persist_as_v6(checkout, temp)
    (checkout / ".git/hooks/pre-push").write_text("#!/bin/sh\nexit 0\n")
    (checkout / ".git/hooks/pre-push").chmod(0o755)
    return checkout


@pytest.fixture
def nested(checkout):
    """A repository below the checkout."""
    git(checkout, "init", "--quiet", str(checkout / "vendor/other"))
    return checkout / "vendor/other/.git"


def after(checkout: Path, temp: Path, *script: str) -> tuple[str, ...]:
    """Run the script with the credentials away; the notes at the end. Paths begin at `.git`."""
    with credentials_stripped(checkout, temp) as stripped, Toolbox.start(checkout, restore=stripped) as toolbox:
        done = Box(toolbox, checkout).sh("cd .git\n" + "\n".join(script))
        assert done.exit_code == 0, done.stderr
    return stripped.notes


UNDONE = {
    "configuration edited": ("git config core.fsmonitor ./evil", "git config credential.helper '!evil'"),
    "configuration removed": ("rm config",),
    "configuration in the way": ("rm config; mkdir -p config/deep; echo x > config/deep/file",),
    "configuration as a link": ("rm config; ln -s ../hello.txt config",),
    "configuration as a pipe": ("rm config; mkfifo config",),
    "configuration shared by a hard link": ("ln config ../seen",),
    "configuration closed": ("chmod 000 config",),
    "second configuration": ("git config extensions.worktreeConfig true; echo '[core]' > config.worktree",),
    "lock left behind": ("touch config.lock",),
    "hook added": ("echo evil > hooks/post-checkout; chmod +x hooks/post-checkout",),
    "hook changed": ("echo evil >> hooks/pre-push",),
    "hook no longer executable": ("chmod 644 hooks/pre-push",),
    "hooks as a link": ("rm -r hooks; mkdir ../mine; echo evil > ../mine/pre-push; ln -s ../mine hooks",),
    "hooks as a file": ("rm -r hooks; echo x > hooks",),
    "hooks closed": ("chmod 000 hooks",),
    "hooks gone": ("rm -r hooks",),
    "hooks very deep": ('mkdir -p hooks/$(printf "d/%.0s" $(seq 700))',),
    "exclude and attributes": (
        "echo '*' > info/exclude; echo '* filter=evil' > info/attributes; echo x > info/grafts",
    ),
    "info as a link": ("mv info ../info; ln -s ../info info",),
    "alternates": ("mkdir -p objects/info; echo /elsewhere > objects/info/alternates",),
    "another common folder": ("mkdir ../common; cp -r HEAD refs objects config ../common; echo ../common > commondir",),
}


@pytest.mark.parametrize("script", UNDONE.values(), ids=UNDONE.keys())
def test_it_is_undone_and_the_credentials_are_back(armed, temp, script):
    watched = (temp, *(armed / ".git" / name for name in ("config", "hooks", "info", "objects/info")))
    before, names = snapshot(*watched), set((armed / ".git").iterdir())
    assert after(armed, temp, *script) == ()
    assert snapshot(*watched) == before
    assert set((armed / ".git").iterdir()) == names
    assert {Path(name).parent.name for name in files_holding(PAYLOAD, armed, temp)} == {".git", "temp"}
    assert (armed / "hello.txt").read_text() == "hello\nworld\n"


REPLACED = {
    "another folder": "cp -r .git new && mv .git old && mv new .git",
    "a link to itself moved": "mv .git moved && ln -s moved .git",
    "a file": "mv .git moved && echo 'gitdir: moved' > .git",
    "nothing": "rm -rf .git",
}


@pytest.mark.parametrize("script", REPLACED.values(), ids=REPLACED.keys())
def test_where_git_itself_was_replaced_no_credential_comes_back_and_it_is_said(armed, temp, script):
    note, *_ = after(armed, temp, "cd ..", script)
    assert str(armed / ".git") in note
    assert "not given back" in note
    assert "Check the repository out again" in note
    for secret in (PAYLOAD, TOKEN):
        assert files_holding(secret, armed, temp) == []


def test_objects_as_a_link_keep_the_credentials_away(armed, temp):
    (note,) = after(
        armed, temp, "mv objects ../objects; ln -s ../objects objects; echo /else > objects/info/alternates"
    )
    assert "objects" in note
    assert files_holding(PAYLOAD, armed, temp) == []
    assert "fsmonitor" not in (armed / ".git/config").read_text()


def test_a_replaced_submodule_loses_its_own_credentials_only(armed, temp):
    module = armed / ".git/modules/a/b"
    git(armed, "init", "--quiet", "--bare", str(module))
    git(armed, "config", "--file", str(module / "config"), "remote.o.url", "https://u:other-password@h/r")
    (note,) = after(armed, temp, "mv modules/a modules/x; ln -s x modules/a")
    assert "modules/a/b was replaced" in note
    assert files_holding("other-password", armed) == []
    assert PAYLOAD in (armed / ".git/config").read_text()


def test_a_nested_repository_without_credentials_may_go(armed, temp):
    git(armed, "init", "--quiet", str(armed / "vendor/other"))
    assert after(armed, temp, "rm -rf ../vendor") == ()
    assert PAYLOAD in (armed / ".git/config").read_text()


def test_a_git_file_that_leads_elsewhere_afterwards(armed, open_folder, temp):
    tree = open_folder / "tree"
    git(armed, "worktree", "add", "--quiet", str(tree))
    with credentials_stripped(tree, temp) as stripped:
        shutil.copytree(armed / ".git/worktrees/tree", open_folder / "other")
        (tree / ".git").write_text(f"gitdir: {open_folder}/other\n")
    assert "was replaced" in stripped.notes[0]
    assert files_holding(PAYLOAD, armed, temp) == []


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


REPLACING = pytest.mark.parametrize("replace", [copied, moved, filed], ids=lambda each: each.__name__)


def test_a_file_outside_is_given_back_to_the_nested_repository_that_leads_to_it(checkout, nested, temp):
    file = persist_outside(nested, temp)
    before = file.read_bytes()
    with credentials_stripped(checkout, temp) as stripped:
        assert files_holding(PAYLOAD, checkout, temp) == []
    assert (stripped.notes, file.read_bytes()) == ((), before)


@REPLACING
def test_no_file_outside_is_given_back_where_the_nested_repository_that_leads_to_it_was_replaced(
    checkout, nested, temp, replace: Callable[[Path], None]
):
    persist_as_v5(checkout)
    file = persist_outside(nested, temp)
    with credentials_stripped(checkout, temp):
        replace(nested)
    assert files_holding(PAYLOAD, checkout, temp) == [str(checkout / ".git/config")]
    assert file.exists()


@REPLACING
def test_no_file_outside_is_given_back_where_the_checkouts_own_repository_was_replaced(
    checkout, nested, temp, replace: Callable[[Path], None]
):
    """Also where it is not the own one that leads there: whatever stands in its place may lead to the nested one."""
    persist_outside(nested, temp)
    with credentials_stripped(checkout, temp) as stripped:
        replace(checkout / ".git")
    assert "are not given back" in stripped.notes[0]
    assert files_holding(PAYLOAD, checkout, temp) == []


def test_a_git_file_that_cannot_be_read_at_the_end_is_not_the_one_of_the_start(checkout, open_folder, temp):
    persist_as_v5(checkout)
    git(checkout, "worktree", "add", "--quiet", str(open_folder / "tree"))
    with credentials_stripped(open_folder / "tree", temp) as stripped, (open_folder / "tree/.git").open("ab") as file:
        file.truncate(2**27)
    assert "was replaced" in stripped.notes[0]
    assert files_holding(PAYLOAD, checkout, temp) == []


def test_a_file_outside_comes_back_whatever_was_put_in_its_place(armed, temp):
    file = next(temp.glob("git-credentials-*"))
    file.chmod(0o640)
    before = snapshot(temp)
    with credentials_stripped(armed, temp):
        file.unlink()
        file.mkdir()
        (file / "x").write_text("x")
    assert snapshot(temp) == before


def test_no_credential_comes_back_through_a_link_on_the_way_to_its_file(checkout, temp, open_folder):
    (checkout / "deep/er").mkdir(parents=True)
    (checkout / "deep/er/login").write_text(TOKEN)
    (open_folder / "victim/er").mkdir(parents=True)
    (open_folder / "victim/er/login").touch()
    with credentials_stripped(checkout, temp, (Path("deep/er/login"),)):
        shutil.rmtree(checkout / "deep")
        (checkout / "deep").symlink_to(open_folder / "victim")
    assert files_holding(TOKEN, open_folder) == []


def test_no_file_that_would_fill_the_memory_is_read(armed, temp):
    (armed / "login").write_text(TOKEN)
    files = (armed / "login", armed / ".git/packed-refs")
    with credentials_stripped(armed, temp, (Path("login"),)) as stripped:
        for path in files:
            with path.open("wb") as file:
                file.truncate(2**36)
    assert [path.stat().st_size for path in files] == [2**36, 2**36]
    assert "packed-refs is too large" in stripped.notes[0]


def test_nothing_outside_is_written_through_a_link(armed, temp, open_folder):
    victim = open_folder / "victim"
    victim.mkdir()
    (victim / "pre-push").write_text("mine")
    with credentials_stripped(armed, temp) as stripped:
        shutil.rmtree(armed / ".git/hooks")
        (armed / ".git/hooks").symlink_to(victim)
        (armed / ".git/config").unlink()
        (armed / ".git/config").symlink_to(victim / "config")
    assert stripped.notes == ()
    assert [(path.name, path.read_text()) for path in victim.iterdir()] == [("pre-push", "mine")]


def test_the_runs_own_work_stays(armed, temp):
    assert (
        after(armed, temp, "cd ..; git checkout -qb work; echo x > x; git add x; git commit -qm two; git gc -q") == ()
    )
    assert git(armed, "log", "--format=%s", "work").splitlines() == ["two", "one"]
    assert git(armed, "symbolic-ref", "HEAD") == "refs/heads/work"
    assert git(armed, "fsck", "--strict") == ""


def test_hooks_that_were_a_link_are_one_again(checkout, temp):
    shutil.rmtree(checkout / ".git/hooks")
    (checkout / "githooks").mkdir()
    (checkout / ".git/hooks").symlink_to("../githooks")
    assert after(checkout, temp, "rm hooks; mkdir hooks; echo evil > hooks/pre-push") == ()
    assert (checkout / ".git/hooks").readlink() == Path("../githooks")


def test_without_a_credential_the_configuration_is_restored_all_the_same(checkout, temp):
    append(checkout, "; a comment\n")
    before = snapshot(checkout / ".git/config", checkout / ".git/hooks", checkout / ".git/info")
    assert after(checkout, temp, "git config a.b c; echo x > hooks/x; echo x > info/exclude") == ()
    assert snapshot(checkout / ".git/config", checkout / ".git/hooks", checkout / ".git/info") == before
    (note,) = after(checkout, temp, "cd ..; rm -r .git")
    assert "not certain to be what it did before" in note


@root_only
def test_a_hook_that_the_tools_made_is_never_left_with_the_tools_rights(armed, temp):
    after(armed, temp, "cp /bin/true hooks/evil; chmod 6755 hooks/evil; chmod 777 hooks .")
    info = (armed / ".git").stat()
    assert (info.st_uid, stat.S_IMODE(info.st_mode) & 0o002) == (0, 0)
    assert not (armed / ".git/hooks/evil").exists()


def test_no_credential_comes_back_to_a_daemon_whose_supervisor_the_tools_have_killed(armed, temp, open_folder):
    """As root without capabilities, or as the parent's own user, tools can end their supervisor."""
    trigger = Trigger(agent="fixer", actor="bob", actor_is_bot=False)
    request = RunRequest(
        run_id="r-1",
        inputs=read_inputs({"provider": "scripted"}),
        trigger=trigger,
        root=armed,
        folder=open_folder / "run",
        runner_temp=temp,
    )
    options = ToolboxOptions(**stays_root(armed))
    notes: list[str] = []
    with (
        pytest.raises(IsolationError, match="ended during"),
        open_sandbox(
            request.root, request.without_credentials(), options, Cancellation(), warn=notes.append
        ) as sandbox,
    ):
        Box(sandbox.toolbox, armed).bash("setsid sleep 20 > /dev/null 2>&1 & kill -9 $PPID; sleep 20")
    assert any("not certain that every process of the tools is dead" in note for note in notes)
    assert files_holding(TOKEN, armed, temp) == []
