"""The copy of a checkout for a rehearsal: complete, committed, and with no way back to the original."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from toolbox_world import git

from stepflow.errors import InputError
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.copies import commit_everything, copy_checkout, copy_folder


def committed(source: Path) -> tuple[Path, str]:
    """A copy beside the original, and git's log of it."""
    copy = source.parent / "copy"
    copy_checkout(source, copy)
    with Toolbox.start(copy) as toolbox:
        commit_everything(toolbox)
    return copy, git(copy, "log", "--format=%s")


def test_uncommitted_work_is_committed_in_the_copy_and_stays_uncommitted_in_the_checkout(checkout: Path) -> None:
    (checkout / "hello.txt").write_text("changed\n")
    (checkout / "新しい.txt").write_text("新\n")
    (checkout / ".gitignore").write_text("/cache/\n")
    (checkout / "cache").mkdir()
    (checkout / "cache/kept").write_text("ignored, but needed\n")
    before = git(checkout, "status", "--porcelain"), git(checkout, "rev-parse", "HEAD")
    copy, log = committed(checkout)
    assert git(copy, "status", "--porcelain") == ""
    assert (copy / "新しい.txt").read_text() == "新\n"
    assert (copy / "cache/kept").exists()
    assert log.splitlines() == ["Take in what was not committed before the rehearsal", "one"]
    assert (git(checkout, "status", "--porcelain"), git(checkout, "rev-parse", "HEAD")) == before


def test_a_clean_checkout_keeps_its_commit(checkout: Path) -> None:
    copy, log = committed(checkout)
    assert log.splitlines() == ["one"]
    assert git(copy, "rev-parse", "HEAD") == git(checkout, "rev-parse", "HEAD")


def test_a_linked_worktree_gets_a_history_of_its_own(checkout: Path) -> None:
    tree = checkout.parent / "tree"
    git(checkout, "worktree", "add", "--quiet", str(tree))
    copy, log = committed(tree)
    assert (copy / ".git").is_dir()
    assert log.splitlines() == ["Take in what was not committed before the rehearsal"]
    assert git(checkout, "log", "--all", "--format=%s").splitlines() == ["one"]


def test_a_folder_without_git_becomes_a_repository(open_folder: Path) -> None:
    (open_folder / "plain").mkdir()
    _, log = committed(open_folder / "plain")
    assert len(log.splitlines()) == 1
    assert not (open_folder / "plain/.git").exists()


def test_modes_and_links_are_kept_and_no_link_leads_back(checkout: Path) -> None:
    (checkout / "run.sh").write_text("exit 0\n")
    (checkout / "run.sh").chmod(0o750)
    (checkout / "sub").mkdir()
    (checkout / "sub/near").symlink_to("../run.sh")
    (checkout / "sub/back").symlink_to(checkout / "hello.txt")
    (checkout / "sub/away").symlink_to("/etc/hostname")
    os.mkfifo(checkout / "pipe")
    copy = checkout.parent / "copy"
    copy_checkout(checkout, copy)
    assert (copy / "run.sh").stat().st_mode & 0o777 == 0o750
    links = {name: str((copy / "sub" / name).readlink()) for name in ("near", "back", "away")}
    assert links == {"near": "../run.sh", "back": "../hello.txt", "away": "/etc/hostname"}
    assert not (copy / "pipe").exists()


def test_locks_of_another_git_stay_behind(checkout: Path) -> None:
    (checkout / ".git/index.lock").touch()
    (checkout / "Cargo.lock").touch()
    copy, log = committed(checkout)
    assert "Cargo.lock" in git(copy, "ls-files")
    assert len(log.splitlines()) == 2


def test_a_configuration_that_leads_back_is_refused(checkout: Path) -> None:
    git(checkout, "config", "core.worktree", str(checkout))
    with pytest.raises(InputError, match="another folder than this copy"):
        committed(checkout)
    assert git(checkout, "log", "--format=%s").splitlines() == ["one"]


def test_hooks_of_the_checkout_do_not_stand_in_the_way(checkout: Path) -> None:
    hook = checkout / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    (checkout / "hello.txt").write_text("changed\n")
    assert len(committed(checkout)[1].splitlines()) == 2


def test_the_folder_is_gone_whatever_was_left_in_it() -> None:
    with copy_folder() as folder:
        (folder / "a").mkdir()
        (folder / "a/b").touch()
        (folder / "a").chmod(0o500)
        assert folder.stat().st_mode & 0o777 == (0o755 if os.getuid() == 0 else 0o700)
    assert not folder.exists()


def test_a_copy_inside_the_checkout_does_not_copy_itself(checkout: Path) -> None:
    temporary = checkout / "tmp/stepflow-rehearsal-x"
    temporary.mkdir(parents=True)
    copy_checkout(checkout, temporary / "checkout")
    assert (temporary / "checkout/hello.txt").exists()
    assert list((temporary / "checkout/tmp").iterdir()) == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may read every file")
def test_a_file_that_cannot_be_read_is_named(checkout: Path) -> None:
    (checkout / "secret").touch()
    (checkout / "secret").chmod(0)
    with pytest.raises(InputError, match="secret"):
        copy_checkout(checkout, checkout.parent / "copy")
