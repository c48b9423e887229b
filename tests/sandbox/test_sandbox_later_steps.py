"""What git runs for a later step of the job, in a checkout in which tools have planted what they could."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from credentials_world import files_holding, persist_as_v5, persist_as_v6
from toolbox_world import Box, git

from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.restore import credentials_stripped

pytestmark = pytest.mark.whole

EVIL = "git -C {0} config core.fsmonitor 'sh -c \"echo $0 >> /tmp/MARK\"'"
COMMIT = "git -c user.name=m -c user.email=m@e"
SUB = f"git init -q sub; {COMMIT} -C sub commit -q --allow-empty -m x"
LINK = 'git update-index --add --cacheinfo "160000,$(git -C sub rev-parse HEAD),sub"'
#: Git takes no path into `.git`, but follows one that stands in its index.
FORGED = """python3 -c '
import hashlib
with open(".git/index", "r+b") as file:
    data = file.read()[:-20].replace(b"-git/", b".git/")
    file.seek(0)
    file.write(data + hashlib.sha1(data).digest())
'"""

PLANTED = {
    "a repository named by a gitlink": (SUB, EVIL.format("sub"), LINK),
    "one inside of git's own folder": (
        *(SUB, EVIL.format("sub"), LINK.replace(",sub", ",-git/evil"), "mv sub .git/evil", FORGED),
        "git ls-files --stage | grep -q 160000.*.git/evil",
    ),
    "one inside of a new repository's own folder": (
        *(SUB, "cd sub", SUB, EVIL.format("sub"), LINK.replace(",sub", ",-git/objects/sub")),
        *("mv sub .git/objects/sub", FORGED, "git ls-files --stage | grep -q 160000.*.git/objects/sub"),
    ),
    "one very deep": (
        f"mkdir -p a/b; cd a/b; {SUB}; cd ../..; git -C a/b/sub config core.fsmonitor 'touch /tmp/MARK; false'",
        'git update-index --add --cacheinfo "160000,$(git -C a/b/sub rev-parse HEAD),a/b/sub"',
    ),
    "one whose folder lies elsewhere": (
        "git init -q --separate-git-dir .hidden sub",
        f"{COMMIT} -C sub commit -q --allow-empty -m x",
        EVIL.format("sub"),
        LINK,
    ),
    "one behind a link": (SUB, EVIL.format("sub"), "mv sub/.git .hidden; ln -s ../.hidden sub/.git", LINK),
    "a submodule": (
        SUB,
        EVIL.format("sub"),
        "mkdir -p .git/modules; mv sub/.git .git/modules/sub; echo 'gitdir: ../.git/modules/sub' > sub/.git",
        "git config -f .gitmodules submodule.sub.path sub; git config -f .gitmodules submodule.sub.url ./sub",
        f"git -C sub config core.worktree ../../../sub; {LINK}; {COMMIT} commit -qm sub",
    ),
    "its own configuration of a work tree": (
        SUB,
        "git -C sub config extensions.worktreeConfig true",
        "git -C sub config --worktree core.fsmonitor 'touch /tmp/MARK; false'",
        LINK,
    ),
    "hooks and configuration": (
        "git config core.fsmonitor 'touch /tmp/MARK; false'",
        "printf '#!/bin/sh\\ntouch /tmp/MARK\\n' | tee .git/hooks/post-index-change > .git/hooks/post-checkout",
        "chmod +x .git/hooks/*",
    ),
    "hooks of many files": ("rm -r .git/hooks; mkdir .git/hooks; cd .git/hooks; seq 3000 | xargs touch",),
    "another work tree": (
        f"{COMMIT} worktree add -q sub; git config extensions.worktreeConfig true",
        "git -C sub config --worktree core.fsmonitor 'touch /tmp/MARK; false'",
    ),
    "a pipe": ("mkdir sub; mkfifo sub/.git",),
    "other objects": (f"git replace HEAD $({COMMIT} commit-tree HEAD^{{tree}} -m other); git pack-refs --all",),
    "other objects, loose": (f"git replace HEAD $({COMMIT} commit-tree HEAD^{{tree}} -m other)",),
    "other parents": ("echo $(git rev-parse HEAD) > .git/info/grafts",),
}
LATER = (("status",), ("diff",), ("submodule", "foreach", "--recursive", "git status"), ("-C", "sub", "status"))


def later_steps(checkout: Path) -> str:
    """What a later step of the job hears of git."""
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    own = ("git", "-c", "safe.directory=*")
    done = [
        subprocess.run([*own, *words], cwd=checkout, env=env, capture_output=True, text=True, check=False, timeout=20)
        for words in LATER
        if words[0] != "-C" or (checkout / words[1]).is_dir()
    ]
    return "\n".join(each.stdout + each.stderr for each in done)


def files(checkout: Path, *names: str) -> dict[str, bytes]:
    """Git's own files of these names."""
    places = (path for name in names for path in ((checkout / ".git" / name), *(checkout / ".git" / name).rglob("*")))
    return {str(path): path.read_bytes() for path in places if path.is_file()}


@pytest.mark.parametrize("script", PLANTED.values(), ids=PLANTED.keys())
def test_nothing_of_the_tools_runs_and_the_credentials_are_back(checkout, temp, tmp_path, script):
    persist_as_v5(checkout)
    persist_as_v6(checkout, temp)
    mark = tmp_path / "mark"
    tmp_path.chmod(0o777)
    names = ("config", "hooks", "info", "modules", "worktrees", "refs/replace")
    before = files(checkout, *names)
    with credentials_stripped(checkout, temp) as stripped, Toolbox.start(checkout, restore=stripped) as toolbox:
        done = Box(toolbox, checkout).sh("\n".join(script).replace("/tmp/MARK", str(mark)), timeout=60)
        assert done.exit_code == 0, done.stderr
    assert len(files_holding("AUTHORIZATION: basic", checkout, temp)) == 2
    said = later_steps(checkout)
    assert not mark.exists(), said
    assert files(checkout, *names) == before
    assert git(checkout, "fsck", "--no-dangling") == ""
    assert "160000" not in git(checkout, "ls-files", "--stage")
    assert not (checkout / ".git/packed-refs").exists() or "replace" not in (checkout / ".git/packed-refs").read_text()


def test_a_new_repository_keeps_its_commits(checkout):
    with credentials_stripped(checkout) as stripped, Toolbox.start(checkout, restore=stripped) as toolbox:
        Box(toolbox, checkout).sh(f"{SUB}; echo evil > sub/.git/hooks/pre-commit")
    assert git(checkout / "sub", "log", "--format=%s") == "x"
    assert not (checkout / "sub/.git/hooks").exists()
    assert stripped.notes == ()


def test_a_git_file_or_link_that_is_new_is_removed_and_named(checkout):
    with credentials_stripped(checkout) as stripped, Toolbox.start(checkout, restore=stripped) as toolbox:
        Box(toolbox, checkout).sh("mkdir a b; echo 'gitdir: /x' > a/.git; ln -s ../.git b/.git")
    (note,) = stripped.notes
    assert "a/.git, b/.git" in note
    assert not os.path.lexists(checkout / "a/.git")
    assert not os.path.lexists(checkout / "b/.git")


def test_the_gitlinks_of_the_start_stay(checkout):
    head = git(checkout, "rev-parse", "HEAD")
    git(checkout, "update-index", "--add", "--cacheinfo", f"160000,{head},old")
    with credentials_stripped(checkout) as stripped, Toolbox.start(checkout, restore=stripped) as toolbox:
        Box(toolbox, checkout).sh(f"{SUB}; {LINK}; echo more > more; git add more")
    assert git(checkout, "ls-files") == "hello.txt\nmore\nold"


def test_an_index_that_cannot_be_read_keeps_the_credentials_away(checkout, temp):
    persist_as_v5(checkout)
    with credentials_stripped(checkout, temp) as stripped, Toolbox.start(checkout, restore=stripped) as toolbox:
        Box(toolbox, checkout).sh("git update-index --split-index")
    (note,) = stripped.notes
    assert "its index cannot be read" in note
    assert files_holding("AUTHORIZATION", checkout, temp) == []


def test_git_files_of_the_start_come_back(checkout):
    git(checkout, "init", "-q", "--separate-git-dir", str(checkout / ".own"), str(checkout / "sub"))
    was = (checkout / "sub/.git").read_text()
    with credentials_stripped(checkout) as stripped, Toolbox.start(checkout, restore=stripped) as toolbox:
        Box(toolbox, checkout).sh("git init -q evil; rm sub/.git; mv evil/.git sub/.git; git -C sub config a.b c")
    assert (checkout / "sub/.git").read_text() == was
