"""What a check's git says is true of the commits that are pushed, whatever tools left in their `.git`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from toolbox_world import Box, git, root_only

from stepflow.domain.checkout import Closing, CommandRequest, CommandResult
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.workspace import make_workspace
from tests.build import make_validator

VALIDATOR = make_validator("any", "true")


class Work:
    """Tools at work in a workspace, and checks at the closings between."""

    def __init__(self, toolbox: Toolbox, workspace: Path, set_up: str) -> None:
        self.box = Box(toolbox, workspace)
        self.tools(set_up)
        self.guards = toolbox.guards((VALIDATOR,))

    def tools(self, script: str) -> str:
        """What a command of the tools prints."""
        ended = self.box.sh(script)
        assert ended.exit_code == 0, ended.stderr
        return ended.stdout

    def close(self) -> Closing:
        """A closing begins."""
        return self.guards.closing()

    def check(self, script: str) -> CommandResult:
        """Run a check."""
        return self.box.toolbox.run_command(CommandRequest(argv=("sh", "-c", script), timeout=30, checks=True))

    def says(self, script: str) -> list[str]:
        """The lines that a check prints."""
        ended = self.check(script)
        assert ended.started, ended.error
        return ended.stdout.splitlines()


@pytest.fixture
def work(checkout: Path) -> Iterator[Callable[..., Work]]:
    """Begins it, after a `set_up`."""
    (checkout / "lib").mkdir()
    (checkout / "lib/code.py").write_text("broken\n")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message", "lib")
    workspace = checkout.parent / "workspace"
    opened: list[Toolbox] = []

    def begin(set_up: str = "true") -> Work:
        make_workspace(checkout, workspace)
        opened.append(Toolbox.start(workspace))
        return Work(opened[0], workspace, set_up)

    yield begin
    for toolbox in opened:
        toolbox.close()


COMMIT = "echo new > new.py; git add -A; git commit -qm work; "
#: What tools do to their `.git`, and what a check's git must say all the same, each by itself.
LED_ASTRAY = {
    "an emptied index": (
        "rm .git/index; git read-tree --empty",
        "git ls-files",
        ["hello.txt", "lib/code.py", "new.py"],
    ),
    "a file of the same size and time": (
        "touch -r lib/code.py ~/when; printf 'wobbly\\n' > lib/code.py; touch -r ~/when lib/code.py",
        "git status --porcelain",
        [" M lib/code.py"],
    ),
    "another work tree": ("mkdir ~/other; git config core.worktree ~/other", "git ls-files -m", []),
    "a hook": (
        "printf '#!/bin/sh\\necho planted >&2\\ngit read-tree --empty\\n' > .git/hooks/post-index-change; "
        "chmod +x .git/hooks/post-index-change",
        "git update-index --refresh; git ls-files new.py",
        ["new.py"],
    ),
    "a branch that stands for another commit": (
        "echo forged > hello.txt; git add hello.txt; ref=refs/replace/$(git rev-parse HEAD~1); "
        "mkdir -p .git/refs/replace; "
        'git commit-tree -m work $(git write-tree) > .git/$ref; echo "ref: $ref" > .git/HEAD',
        "git show HEAD:hello.txt; git for-each-ref refs/replace",
        ["forged"],
    ),
}
#: The same, all of it at once.
LED_ASTRAY_TOGETHER = {
    "git update-index --assume-unchanged lib/code.py; echo fixed > lib/code.py": (
        "git status --porcelain lib",
        [" M lib/code.py"],
    ),
    "echo '*.log' > .git/info/exclude; touch a.log": ("git status --porcelain a.log", ["?? a.log"]),
    "echo '* -diff' > .git/info/attributes": ("git grep -n new", ["new.py:1:new"]),
    "git config diff.external /bin/true": ("git diff --stat HEAD~1 HEAD -- new.py | head -n 1", [" new.py | 1 +"]),
    "git config alias.st 'status --short'": ("git config alias.st", []),
    "git replace HEAD HEAD~1": ("git log -1 --format=%s", ["work"]),
}


@pytest.mark.parametrize("case", LED_ASTRAY)
def test_a_check_meets_the_commit_and_the_files(work, case: str) -> None:
    planted, check, expected = LED_ASTRAY[case]
    begun = work()
    begun.tools(COMMIT + planted)
    begun.close()
    assert begun.says(check) == expected


@pytest.mark.whole
def test_a_check_meets_the_commit_and_the_files_whatever_else_was_planted(work) -> None:
    begun = work()
    begun.tools(COMMIT + "; ".join(LED_ASTRAY_TOGETHER))
    begun.close()
    assert {check: begun.says(check) for check, _ in LED_ASTRAY_TOGETHER.values()} == dict(LED_ASTRAY_TOGETHER.values())


@pytest.mark.whole
@root_only
def test_a_check_meets_the_commit_of_a_history_that_others_cannot_read(work, checkout: Path) -> None:
    (checkout / ".git").chmod(0o700)
    begun = work()
    begun.tools(COMMIT + "git read-tree --empty")
    begun.close()
    assert begun.says("git ls-files new.py") == ["new.py"]


@pytest.mark.whole
@pytest.mark.parametrize("is_looked_at_before", [False, True])
def test_a_tree_of_the_start_that_stands_for_other_files_is_seen_through(work, is_looked_at_before: bool) -> None:
    """Git hashes no tree that it reads, and looks at the repository's own objects before it looks at borrowed ones."""
    begun = work()
    begun.tools(
        "fixed=$(echo fixed | git hash-object -w --stdin); name=$(git rev-parse HEAD:lib)\n"
        "mkdir -p .git/objects/${name%${name#??}}\n"
        'python3 -c \'import sys, zlib; body = b"100644 code.py\\0" + bytes.fromhex(sys.argv[1]); '
        'open(sys.argv[2], "wb").write(zlib.compress(b"tree %d\\0" % len(body) + body))\' '
        "$fixed .git/objects/${name%${name#??}}/${name#??}\n"
        "echo fixed > lib/code.py\n" + COMMIT.replace("-A", "new.py")
    )
    assert begun.tools("git show HEAD:lib/code.py") == "fixed\n", "else this shows nothing"
    if is_looked_at_before:
        assert begun.box.toolbox.tree().uncommitted == (), "else this shows nothing"
    closing = begun.close()
    assert closing.changed == ("lib/code.py",)
    assert begun.says("git show HEAD:lib/code.py; git status --porcelain") == ["broken", " M lib/code.py"]


ATTRIBUTES = (
    "printf '*.bat eol=crlf\\n*.txt text\\n*.u working-tree-encoding=UTF-16\\n*.id ident\\n' > .gitattributes; "
)
#: What tools write into a file that they commit, and what a clone has there: other ends of lines, another encoding, the
#: name of an object, and a program.
AS_A_CLONE_HAS = {
    "a.bat": (r"a\n", b"a\r\n"),
    "a.txt": (r"a\r\n", b"a\n"),
    "a.u": (r"\376\377\0a", "a".encode("utf-16")),
    "a.id": ("$Id$", b"$Id: b3f5ebfb5843bc43ceecff6d4f26bb37c615beb1 $"),
    "run.txt": (r"#!/bin/sh\r\n", b"#!/bin/sh\n"),
}


@pytest.mark.whole
@pytest.mark.parametrize("rules", ["in the commit", "at the start"])
def test_a_check_meets_files_as_a_clone_of_the_commit_has_them(work, rules: str) -> None:
    begun = work(f"{ATTRIBUTES}git add .; git commit -qm rules" if rules == "at the start" else "true")
    writes = "; ".join(f"printf '{text}' > {name}" for name, (text, _) in AS_A_CLONE_HAS.items())
    begun.tools(f"{ATTRIBUTES}{writes}; chmod 700 run.txt; {COMMIT}")
    assert begun.close() == replace(begun.close(), changed=(), untracked=(), problem="")
    files = {name: begun.box.checkout / name for name in AS_A_CLONE_HAS}
    expected = {name: held for name, (_, held) in AS_A_CLONE_HAS.items()}
    assert {name: file.read_bytes() for name, file in files.items()} == expected
    assert [name for name, file in files.items() if file.stat().st_mode & 0o111 == 0o111] == ["run.txt"]
    compared = "; ".join(f"cmp $TMPDIR/clone/{name} {name}" for name in files)
    sizes = f"cat {' '.join(files)} | wc -c"
    said = begun.says(f"git diff-index HEAD; git status --porcelain; git clone -q . $TMPDIR/clone; {compared}; {sizes}")
    assert said == [str(sum(map(len, expected.values())))]
    assert begun.guards.look_again(VALIDATOR, passed=True).moved == ()


@pytest.mark.whole
def test_files_that_cannot_be_written_hold_no_closing_up(work) -> None:
    begun = work("echo '*.txt eol=crlf' > .gitattributes; git add .; git commit -qm rules")
    begun.tools(
        "mkdir closed; echo a > closed/a.txt; printf a > \"$(printf 'n\\377.py')\"; " + COMMIT + "chmod 555 closed"
    )
    closing = begun.close()
    assert (closing.changed, closing.untracked, closing.problem) == ((), (), "")
    assert begun.says("git status --porcelain; git ls-files | wc -l") == ["6"]


@pytest.mark.whole
def test_nothing_that_is_not_committed_is_written_over(work) -> None:
    begun = work("echo '*.txt text' > .gitattributes; git add .; git commit -qm rules")
    begun.tools(
        "printf 'a\r\n' | tee a.txt b.txt c.txt > d.txt; git add .; git commit -qm work; "
        "echo more >> a.txt; rm b.txt; git rm -q --cached c.txt; git commit -qm c; ln -sf a.txt d.txt; touch e.txt"
    )
    closing = begun.close()
    assert (closing.changed, closing.untracked) == (("a.txt", "b.txt", "d.txt"), ("c.txt", "e.txt"))
    seen = begun.says("cat a.txt c.txt e.txt | tr '\\r' R; readlink d.txt; ls b.txt")
    assert seen == ["aR", "more", "aR", "a.txt"]


def test_a_commit_whose_objects_are_not_what_their_names_say_cannot_be_checked(work) -> None:
    begun = work()
    begun.tools(
        COMMIT + "name=$(git rev-parse HEAD:new.py); file=.git/objects/${name%${name#??}}/${name#??}; rm -f $file\n"
        'python3 -c \'import sys, zlib; open(sys.argv[1], "wb").write(zlib.compress(b"blob 6\\0fixed\\n"))\' $file'
    )
    assert begun.close().problem


@pytest.mark.whole
def test_the_commits_and_the_branch_of_the_work_are_there(work) -> None:
    begun = work()
    begun.tools("git checkout -qb side/way; " + COMMIT)
    begun.close()
    assert begun.says("git branch --show-current; git log --format=%s; git status --porcelain; git fsck") == [
        *("side/way", "work", "lib", "one"),
    ]


@pytest.mark.whole
def test_what_set_up_told_git_counts(work) -> None:
    begun = work("git config merge.ff only; printf '#!/bin/sh\\n' > .git/hooks/pre-push; touch kept; git add kept")
    begun.tools("git config merge.ff false; rm .git/hooks/pre-push")
    begun.close()
    said = begun.says("git config merge.ff; ls .git/hooks; git status --porcelain")
    assert said == ["only", "pre-push", "?? kept"]


@pytest.mark.whole
@pytest.mark.parametrize("setting", ["core.hooksPath .husky/_", "core.fsmonitor .husky/_/post-index-change"])
def test_a_program_of_git_s_that_set_up_put_among_ignored_files_is_not_run(work, setting: str) -> None:
    """Husky has its hooks there, and what is ignored is as the tools left it."""
    begun = work(f"mkdir -p .husky/_; echo '*' > .husky/_/.gitignore; git config {setting}")
    begun.tools(
        COMMIT + "printf '#!/bin/sh\\ntouch ran; git -c core.hooksPath= -c core.fsmonitor= read-tree --empty\\n' "
        "> .husky/_/post-index-change; chmod +x .husky/_/post-index-change"
    )
    begun.close()
    assert begun.says("touch new.py; git status --porcelain; git ls-files new.py; ls ran") == ["new.py"]


@pytest.mark.whole
def test_settings_that_set_up_put_among_ignored_files_do_not_count(work) -> None:
    included = "git config include.path ../.local; git config includeIf.gitdir:**.path ../.local"
    begun = work(f"{included}; echo .local > .git/info/exclude")
    begun.tools(COMMIT + "printf '[status]\n\tshowUntrackedFiles = no\n' > .local; touch left.py")
    assert begun.tools("git status --porcelain") == "", "else this shows nothing"
    begun.close()
    assert begun.says("git status --porcelain") == ["?? left.py"]


def test_tools_find_their_own_repository_again(work) -> None:
    begun = work()
    begun.tools("git config my.setting 1; git branch mine; echo x >> hello.txt; git stash -q; " + COMMIT)
    begun.close()
    assert begun.says("git branch --list mine; git stash list; git config my.setting") == []
    assert begun.tools("git config my.setting; git branch --list mine; git stash list").splitlines() == [
        *("1", "  mine", "stash@{0}: WIP on main: " + begun.tools("git log -1 --format='%h %s' HEAD~1").strip()),
    ]


@pytest.mark.whole
def test_no_check_leads_the_next_one_astray(work) -> None:
    begun = work()
    begun.tools(COMMIT + "touch left.log")
    begun.close()
    begun.check(
        "echo '*.log' > .git/info/exclude; git update-index --assume-unchanged hello.txt; git commit -qmx --allow-empty"
    )
    assert begun.says("git status --porcelain; git log -1 --format=%s") == ["?? left.log", "work"]
    begun.check("rm -rf .git; touch .git")
    assert begun.guards.look_again(VALIDATOR, passed=True).moved == ()
    assert begun.says("git status --porcelain") == ["?? left.log"]
    assert begun.tools("git log -1 --format=%s") == "work\n"


@pytest.mark.whole
@root_only
def test_shared_memory_is_as_it_was(work) -> None:
    begun = work("echo kept > /dev/shm/kept-$PPID; ls /dev/shm > /dev/null")
    kept = begun.tools("ls /dev/shm")
    begun.tools("mkdir /dev/shm/planted; touch /dev/shm/planted/file")
    begun.close()
    assert begun.says("ls /dev/shm") == kept.splitlines()
    begun.tools("rm -f /dev/shm/kept-* || true")
    assert not os.path.lexists("/dev/shm/planted")


FORGED = (
    "cd lib/sub; name=$(git rev-parse HEAD:a.txt); file=$(git rev-parse --git-path objects)/${name%${name#??}}\n"
    "mkdir -p $file\n"
    'python3 -c \'import sys, zlib; open(sys.argv[1], "wb").write(zlib.compress(b"blob 6\\0fixed\\n"))\' '
    "$file/${name#??}; cd ../.."
)
#: The same of a submodule.
LED_ASTRAY_IN_A_SUBMODULE = {
    "git -C lib/sub update-index --assume-unchanged a.txt; echo x > lib/sub/a.txt": (
        "git -C lib/sub status --porcelain; git status --porcelain",
        [" M a.txt", " M lib/sub"],
    ),
    "git -C lib/sub config alias.st 'status --short'; touch lib/sub/a.log": (
        "git -C lib/sub config alias.st; git -C lib/sub status --porcelain",
        ["?? a.log"],
    ),
    "git -C lib/sub config core.fsmonitor 'touch ~/ran #'": ("git -C lib/sub status > ~/status; ls ~/ran", []),
    FORGED: ("git -C lib/sub show HEAD:a.txt", ["one"]),
    "mv lib/sub/.git ~/sub": ("git -C lib/sub log --format=%s", ["one"]),
    "rm -rf lib/sub; ln -s .. lib/sub": ("git log -1 --format=%s; git diff --name-status", ["work", "T\tlib/sub"]),
}


SET_UP = ("checked out with the repository", "by setup")


@pytest.fixture
def with_submodule(request, checkout: Path, open_folder: Path) -> str:
    """A checkout with the submodule `lib/sub`; gives what sets it up."""
    source = open_folder / "sub"
    source.mkdir()
    git(source, "init", "--quiet")
    (source / "a.txt").write_text("one\n")
    git(source, "add", "--all")
    git(source, "commit", "--quiet", "--message", "one")
    git(checkout, "-c", "protocol.file.allow=always", "submodule", "add", "--quiet", str(source), "lib/sub")
    git(checkout, "commit", "--quiet", "--message", "sub")
    if request.param == "by setup":
        git(checkout, "submodule", "deinit", "--quiet", "--force", "--all")
        shutil.rmtree(checkout / ".git/modules")
        (checkout / ".git/info/exclude").write_text("/source\n")
        source.rename(checkout / "source")
        return (
            "git config submodule.lib/sub.url $PWD/source; "
            "git -c protocol.file.allow=always submodule --quiet update --init"
        )
    return "true"


@pytest.mark.parametrize(
    ("with_submodule", "planted"),
    [
        # The fast tests try one.
        pytest.param(set_up, planted, marks=[pytest.mark.whole] * (at + turn > 0))
        for at, set_up in enumerate(SET_UP)
        for turn, planted in enumerate(LED_ASTRAY_IN_A_SUBMODULE)
    ],
    indirect=["with_submodule"],
)
def test_a_check_meets_a_submodule_as_it_was_after_set_up(work, with_submodule: str, planted: str) -> None:
    check, expected = LED_ASTRAY_IN_A_SUBMODULE[planted]
    begun = work(with_submodule)
    begun.tools(COMMIT.replace("-A", "new.py") + planted)
    begun.close()
    assert begun.says(check) == expected


@pytest.mark.whole
@pytest.mark.parametrize("with_submodule", [SET_UP[0], pytest.param(SET_UP[1], marks=pytest.mark.whole)], indirect=True)
def test_tools_find_the_repository_of_their_submodule_again(work, with_submodule: str) -> None:
    begun = work(with_submodule)
    begun.tools(COMMIT + "git -C lib/sub branch mine")
    begun.close()
    assert begun.says("git -C lib/sub branch --list mine; rm -rf lib/sub/.git") == []
    assert begun.says("git -C lib/sub log --format=%s; git status --porcelain") == ["one"]
    assert begun.tools("git -C lib/sub branch --list mine; git status --porcelain").splitlines() == ["  mine"]
