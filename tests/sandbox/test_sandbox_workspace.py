"""A run's own workspace: complete, able to work, with no login in it, and made without a trace in the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from toolbox_world import Box, git, root_only

from stepflow.errors import InputError
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.host_git import head_commit, pushed_branch
from stepflow.sandbox.workspace import (
    commit_everything,
    make_workspace,
    object_folders,
    temporary_folder,
)
from tests.sandbox.credentials_world import HEADER, PAYLOAD, TOKEN, append, files_holding, persist_as_v6, snapshot


def made_from(checkout: Path, **options: object) -> Path:
    """A workspace beside the checkout, which is seen to stay as it is."""
    workspace = checkout.parent / "workspace"
    before = snapshot(checkout)
    make_workspace(checkout, workspace, **options)
    assert snapshot(checkout) == before
    return workspace


def work_in(workspace: Path, script: str) -> str:
    """What a command of the tools prints there."""
    with Toolbox.start(workspace) as toolbox:
        ended = Box(toolbox, workspace).sh(script)
    assert ended.exit_code == 0, ended.stderr
    return ended.stdout


STATUS = "git status --porcelain; git rev-parse HEAD"
COMMIT = "echo new > new.txt && git add new.txt && git commit -qm two && git status --porcelain && git log --format=%s"


def add_submodule(checkout: Path) -> Path:
    """A submodule, as `git submodule add` makes it, with a login of its own."""
    source = shutil.copytree(checkout, checkout.parent / "library", symlinks=True)
    git(checkout, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(source), "libs/library")
    git(checkout, "commit", "--quiet", "--message", "library")
    with (checkout / ".git/modules/libs/library/config").open("a") as config:
        config.write(f'[http "https://github.com/"]\n\textraheader = AUTHORIZATION: {HEADER}\n')
    return checkout / "libs/library"


# Files


def test_everything_comes_along_and_no_link_leads_back(checkout: Path) -> None:
    (checkout / "run.sh").write_text("exit 0\n")
    (checkout / "run.sh").chmod(0o750)
    (checkout / ".gitignore").write_text("/cache/\n")
    (checkout / "cache").mkdir()
    (checkout / "cache/kept").write_text("ignored, but needed\n")
    (checkout / "新しい.txt").write_text("新\n")
    (checkout / "sub").mkdir()
    (checkout / "sub/near").symlink_to("../run.sh")
    (checkout / "sub/back").symlink_to(checkout / "hello.txt")
    (checkout / "sub/away").symlink_to("/etc/hostname")
    workspace = made_from(checkout)
    assert (workspace / "run.sh").stat().st_mode & 0o777 == 0o750
    assert (workspace / "cache/kept").read_text() == "ignored, but needed\n"
    assert (workspace / "新しい.txt").read_text() == "新\n"
    links = {name: str((workspace / "sub" / name).readlink()) for name in ("near", "back", "away")}
    assert links == {"near": "../run.sh", "back": "../hello.txt", "away": "/etc/hostname"}


@root_only
def test_files_of_anybody_are_the_tools(checkout: Path) -> None:
    (checkout / "other").write_text("x\n")
    (checkout / "other").chmod(0o600)
    os.chown(checkout / "other", 4321, 4321)
    workspace = made_from(checkout)
    assert (workspace / "other").stat().st_uid == 0
    assert work_in(workspace, "cat other") == "x\n"


def test_files_to_log_in_by_are_left_out(checkout: Path) -> None:
    (checkout / "gha-creds-1.json").write_text(TOKEN)
    workspace = made_from(checkout, without=[Path("gha-creds-1.json"), Path("not-there")])
    assert files_holding(TOKEN, workspace) == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may read every file")
def test_a_file_that_cannot_be_read_is_named(checkout: Path) -> None:
    (checkout / "secret").touch()
    (checkout / "secret").chmod(0)
    with pytest.raises(InputError, match="secret"):
        make_workspace(checkout, checkout.parent / "workspace")


@root_only
def test_a_disk_that_is_full_is_told(checkout: Path, open_folder: Path) -> None:
    (checkout / "large").write_bytes(b"x" * (2 << 20))
    disk = open_folder / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        with pytest.raises(InputError, match=r"large': No space left on device") as caught:
            make_workspace(checkout, disk / "workspace")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert "TMPDIR says where they are" in caught.value.hint


@pytest.mark.whole
def test_the_folder_is_gone_whatever_was_left_in_it(checkout: Path) -> None:
    with temporary_folder(checkout) as folder:
        subprocess.run(["mkdir", "-p", "a/" + "/".join(["d"] * 1200)], cwd=folder, check=True)
        (folder / "a/b").touch()
        (folder / "a").chmod(0o500)
        assert folder.stat().st_mode & 0o777 == (0o711 if os.getuid() == 0 else 0o700)
    assert not folder.exists()


# What git knows


def test_git_works_in_it_as_in_the_checkout(checkout: Path) -> None:
    git(checkout, "tag", "v1")
    git(checkout, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(checkout, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    (checkout / "hello.txt").write_text("changed\n")
    (checkout / "staged").write_text("staged\n")
    git(checkout, "add", "staged")
    (checkout / "untracked").touch()
    asked = "git status --porcelain --branch; git for-each-ref; git rev-parse HEAD; git log --format=%s"
    expected = subprocess.run(["sh", "-c", asked], cwd=checkout, capture_output=True, text=True, check=True).stdout
    assert work_in(made_from(checkout), asked) == expected


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("format_", "head"),
    [
        *(("sha1", head) for head in ("branch", "detached", "unborn")),
        *(("sha256", "branch"), ("reftable", "detached"), ("reftable", "unborn")),
    ],
)
def test_every_form_of_repository_becomes_one_that_can_be_worked_in(open_folder: Path, format_, head) -> None:
    checkout = open_folder / "made"
    checkout.mkdir()
    words = ("--ref-format=reftable",) if format_ == "reftable" else (f"--object-format={format_}",)
    try:
        git(checkout, "init", "--quiet", "--initial-branch", "main", *words)
    except subprocess.CalledProcessError:
        pytest.skip("this git makes no such repositories")
    if head != "unborn":
        git(checkout, "commit", "--quiet", "--allow-empty", "--message", "one")
    if head == "detached":
        git(checkout, "checkout", "--quiet", "--detach")
    assert head_commit(checkout) == ("" if head == "unborn" else git(checkout, "rev-parse", "HEAD"))
    workspace = made_from(checkout)
    assert work_in(workspace, COMMIT).splitlines() == (["two"] if head == "unborn" else ["two", "one"])
    assert git(workspace, "-c", "safe.directory=*", "symbolic-ref", "HEAD") if head == "branch" else "refs/heads/main"


def test_a_linked_worktree_gets_a_repository_of_its_own(checkout: Path) -> None:
    tree = checkout.parent / "tree"
    git(checkout, "worktree", "add", "--quiet", "-b", "side", str(tree))
    before = snapshot(checkout)
    workspace = made_from(tree)
    assert work_in(workspace, f"{COMMIT}; git branch --show-current").splitlines() == ["two", "one", "side"]
    assert snapshot(checkout) == before


def test_a_shallow_clone_stays_one(checkout: Path, open_folder: Path) -> None:
    for number in range(3):
        git(checkout, "commit", "--quiet", "--allow-empty", "--message", str(number))
    git(open_folder, "clone", "--quiet", "--depth=1", f"file://{checkout}", "shallow")
    assert work_in(made_from(open_folder / "shallow"), f"git fsck && {COMMIT}").splitlines()[-2:] == ["two", "2"]


def test_sparse_rules_stay(checkout: Path) -> None:
    (checkout / "big").mkdir()
    (checkout / "big/file").touch()
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message", "big")
    git(checkout, "sparse-checkout", "set", "small")
    assert work_in(made_from(checkout), f"{STATUS}; ls").splitlines()[1:] == ["hello.txt"]


def test_a_required_filter_without_its_program_keeps_the_status_clean(checkout: Path) -> None:
    git(checkout, "config", "filter.lfs.clean", "sed s/world/pointer/")
    git(checkout, "config", "filter.lfs.required", "true")
    (checkout / ".gitattributes").write_text("*.bin filter=lfs\n")
    (checkout / "large.bin").write_text("world\n")
    # Git looks into a file that may have changed in the second in which it was added.
    os.utime(checkout / "large.bin", (1, 1))
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message", "large")
    git(checkout, "config", "filter.lfs.clean", "no-such-program")
    assert work_in(made_from(checkout), "git status --porcelain") == ""


@pytest.mark.whole
def test_submodules_and_repositories_in_the_repository_are_ones_of_their_own(checkout: Path) -> None:
    library = add_submodule(checkout)
    nested = shutil.copytree(library.parent.parent.parent / "library", checkout / "vendor", symlinks=True)
    append(nested, f'[remote "origin"]\n\turl = https://x-access-token:{TOKEN}@github.com/o/r.git\n')
    (checkout / "fixture/.git").mkdir(parents=True)
    workspace = made_from(checkout)
    assert files_holding(TOKEN, workspace) == files_holding(PAYLOAD, workspace) == []
    said = work_in(
        workspace,
        "git submodule foreach --quiet 'git log --format=%s'; cd libs/library; git commit -q --allow-empty -m two; "
        "cd ../..; git status --porcelain; cd vendor; git config remote.origin.url",
    )
    assert said.splitlines() == ["one", " M libs/library", "?? vendor/", "https://github.com/o/r.git"]
    assert not (workspace / "fixture/.git").exists()


def test_objects_of_other_repositories_are_found_through_every_hand(checkout: Path, open_folder: Path) -> None:
    git(open_folder, "clone", "--quiet", "--shared", str(checkout), "second")
    git(open_folder, "clone", "--quiet", "--shared", str(open_folder / "second"), "third")
    workspace = made_from(open_folder / "third")
    names = ("workspace", "third", "second", "checkout")
    assert {*object_folders(workspace / ".git/objects")} == {open_folder / name / ".git/objects" for name in names}
    assert work_in(workspace, COMMIT).splitlines() == ["two", "one"]


@pytest.mark.whole
@root_only
@pytest.mark.parametrize("closed", [".", ".git", ".git/objects", ".git/objects/*"])
def test_a_history_that_others_cannot_read_is_copied_to_where_tools_cannot_write(checkout: Path, closed: str) -> None:
    for folder in checkout.glob(closed) if "*" in closed else [checkout / closed]:
        folder.chmod(0o700)
    workspace = made_from(checkout)
    assert object_folders(workspace / ".git/objects")[1:] == (workspace.with_name("workspace-objects") / ".git",)
    workspace.chmod(0o755)
    assert work_in(workspace, f"touch ../workspace-objects/new; {COMMIT}").splitlines() == ["two", "one"]
    assert not (workspace.with_name("workspace-objects") / "new").exists()


def test_a_folder_without_git_is_copied_and_can_become_a_repository(open_folder: Path) -> None:
    (open_folder / "plain").mkdir()
    (open_folder / "plain/file").touch()
    workspace = made_from(open_folder / "plain")
    with Toolbox.start(workspace) as toolbox:
        commit_everything(toolbox)
        assert Box(toolbox, workspace).sh("git ls-files").stdout == "file\n"
    assert not (open_folder / "plain/.git").exists()


@pytest.mark.parametrize("name", ["feature/x", "main"])
def test_the_branch_counts_that_the_remote_had_too(checkout: Path, name: str) -> None:
    git(checkout, "checkout", "--quiet", "-B", name)
    assert pushed_branch(checkout) == ""
    git(checkout, "update-ref", f"refs/remotes/origin/{name}", "HEAD")
    assert pushed_branch(checkout) == name


# Logins and programs


#: How programs leave a login in a repository's configuration, and what of the settings tools are shown.
LOGINS = {
    f"[http]\n\textraheader = AUTHORIZATION: {HEADER}\n": "",
    f'[remote "origin"]\n\turl = https://x-access-token:{TOKEN}@github.com/o/r\n': "remote.origin.url=https://github.com/o/r",
    f'[remote "o"]\n\tpushurl = https://{TOKEN}@h/r?token={TOKEN}\n': "remote.o.pushurl=https://h/r?token=hidden",
    '[remote "s"]\n\turl = ssh://git:word@host/r\n': "remote.s.url=ssh://git@host/r",
    f'[url "https://{TOKEN}@github.com/"]\n\tinsteadOf = gh:\n': "url.https://github.com/.insteadof=gh:",
    f"[github]\n\ttoken = {TOKEN}\n": "",
    f"[sendemail]\n\tsmtpPass = {TOKEN}\n": "",
    f'[credential]\n\thelper = "!echo password={TOKEN}"\n': "",
    f"[core]\n\tsshCommand = ssh -i {TOKEN}\n": "",
    "[user]\n\tname = Ada\n": "user.name=Ada",
    '[filter "x"]\n\tclean = tidy\n': "filter.x.clean=tidy",
}


def test_settings_come_along_without_what_logs_in(checkout: Path) -> None:
    before = set(git(made_from(checkout), "config", "--local", "--list").splitlines())
    shutil.rmtree(checkout.parent / "workspace")
    append(checkout, "".join(LOGINS))
    workspace = made_from(checkout)
    assert files_holding(TOKEN, workspace) == files_holding(PAYLOAD, workspace) == []
    after = set(git(workspace, "config", "--local", "--list").splitlines())
    assert after - before == set(filter(None, LOGINS.values()))


def test_what_a_configuration_includes_counts_as_its_own(checkout: Path, temp: Path) -> None:
    (checkout / ".gitconfig").write_text("[alias]\n\tlast = log -1\n[diff]\n\tmnemonicPrefix = true\n")
    append(checkout, "[include]\n\tpath = ../.gitconfig\n")
    persist_as_v6(checkout, temp)
    workspace = made_from(checkout)
    assert git(workspace, "config", "--local", "diff.mnemonicPrefix") == "true"
    assert "include" not in (workspace / ".git/config").read_text()
    assert files_holding(PAYLOAD, workspace) == []


def test_no_program_of_the_checkout_runs_and_hooks_run_where_tools_commit(checkout: Path) -> None:
    marks = checkout.parent / "marks"
    planted = f"#!/bin/sh\ntouch {marks}\n"
    for name in ("post-checkout", "post-merge", "post-rewrite"):
        (checkout / ".git/hooks" / name).write_text(planted)
        (checkout / ".git/hooks" / name).chmod(0o755)
    monitor = checkout / "monitor"
    monitor.write_text(planted)
    monitor.chmod(0o755)
    git(checkout, "config", "core.fsmonitor", str(monitor))
    (checkout / ".git/hooks/pre-commit").write_text("#!/bin/sh\necho checked >&2\n")
    (checkout / ".git/hooks/pre-commit").chmod(0o755)
    workspace = made_from(checkout)
    assert not marks.exists()
    with Toolbox.start(workspace) as toolbox:
        assert Box(toolbox, workspace).sh("git commit -q --allow-empty -m two").stderr == "checked\n"
    assert git(workspace, "-c", "safe.directory=*", "config", "--default", "", "core.fsmonitor") == ""


def test_state_of_another_git_that_is_at_work_stays_behind(checkout: Path) -> None:
    for name in ("index.lock", "MERGE_HEAD", "COMMIT_EDITMSG", "FETCH_HEAD"):
        (checkout / ".git" / name).write_text(git(checkout, "rev-parse", "HEAD"))
    (checkout / "Cargo.lock").touch()
    workspace = made_from(checkout)
    assert work_in(workspace, COMMIT).splitlines()[0] == "?? Cargo.lock"
    assert not (workspace / ".git/MERGE_HEAD").exists()
