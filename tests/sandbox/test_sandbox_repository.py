"""What git says about the checkout, and the way of commits out of it."""

from __future__ import annotations

import time

import pytest
from toolbox_world import AS_ROOT, git

from stepflow.domain.checkout import BundleInfo, DiffStat, LineCounts
from stepflow.errors import BoundaryError
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.workspace import give_to


def bundle(box, base: str, max_bytes: int = 10**7) -> tuple[BundleInfo | None, bytes]:
    pieces = bytearray()
    return box.toolbox.stream_bundle(base, pieces.extend, max_bytes=max_bytes), bytes(pieces)


#: A commit of ten million files, of which git has eight trees and one blob.
TREE_BOMB = r"""
tree=$(printf '100644 blob %s\tf\n' $(echo x | git hash-object -w --stdin) | git mktree)
for level in 1 2 3 4 5 6 7; do
  tree=$(for name in 0 1 2 3 4 5 6 7 8 9; do printf '040000 tree %s\t%s\n' $tree $name; done | git mktree)
done
git update-ref HEAD $(git commit-tree -p HEAD -m bomb $tree)
"""


class TestTree:
    def test_a_clean_checkout_has_nothing_uncommitted(self, box):
        state = box.toolbox.tree()
        assert state.uncommitted == ()
        assert state.problem == ""
        box.toolbox.close()
        assert (state.commit, state.tree) == (
            git(box.checkout, "rev-parse", "HEAD"),
            git(box.checkout, "rev-parse", "HEAD^{tree}"),
        )

    @pytest.mark.whole
    def test_no_program_of_the_checkout_is_run(self, box):
        box.toolbox.tree()
        plant = "printf '#!/bin/sh\\ntouch ~/ran\\n' > ~/plant; chmod +x ~/plant; echo '* filter=x' > .gitattributes"
        box.sh(f"{plant}; git add -A; git commit -qm two; echo x >> hello.txt")
        box.sh(
            "git config core.fsmonitor ~/plant; git config filter.x.clean ~/plant; git config filter.x.process ~/plant"
        )
        box.sh("git config core.hooksPath ~/hooks; mkdir ~/hooks; cp ~/plant ~/hooks/post-index-change")
        box.toolbox.tree()
        bundle(box, box.toolbox.tree().commit)
        assert box.sh("ls ~/ran").exit_code != 0
        assert box.sh("git status; ls ~/ran").exit_code == 0

    @pytest.mark.parametrize(
        "script",
        [
            "rm .git/config; mkfifo .git/config",
            "rm .git/refs/heads/main; mkfifo .git/refs/heads/main",
            pytest.param(
                "mkdir -p .git/refs/heads/a/b; mkfifo .git/refs/heads/a/b/c; echo 'ref: refs/heads/a/b/c' > .git/HEAD",
                marks=pytest.mark.whole,
            ),
            pytest.param("mkfifo pipe; git config include.path $PWD/pipe", marks=pytest.mark.whole),
        ],
    )
    def test_a_pipe_where_git_expects_a_file_holds_nobody_up(self, box, script):
        box.toolbox.tree()
        assert box.sh(script).exit_code == 0
        begun = time.monotonic()
        box.toolbox.tree()
        assert time.monotonic() - begun < 20

    def test_a_personal_configuration_that_is_a_pipe_does_not_count(self, box):
        before = box.toolbox.tree()
        assert box.sh("mkfifo ~/.gitconfig").exit_code == 0
        assert box.toolbox.tree() == before

    def test_a_pipe_among_files_of_gits_is_named(self, box):
        box.toolbox.tree()
        assert box.sh("mkfifo .git/pipe").exit_code == 0
        assert ".git/pipe' is not a regular file" in box.toolbox.tree().problem

    def test_the_users_index_stays_as_it_is(self, box):
        box.sh("echo s > staged; git add staged")
        before = (box.checkout / ".git/index").read_bytes()
        box.toolbox.tree()
        assert (box.checkout / ".git/index").read_bytes() == before
        assert box.bash("ls -A $TMPDIR").output == ""

    def test_trees_that_hold_one_another_are_not_gone_through(self, box):
        base = box.toolbox.tree().commit
        assert box.sh(TREE_BOMB).exit_code == 0
        assert "the commit has more than 200001 files" in box.toolbox.tree().problem
        info, data = bundle(box, base)
        assert info
        assert (info.commits, info.changes) == (1, None)
        assert len(data) < 10_000

    def test_a_folder_without_a_repository_says_so(self, open_folder):
        plain = open_folder / "plain"
        plain.mkdir()
        with Toolbox.start(plain) as toolbox:
            state = toolbox.tree()
        assert (state.commit, state.tree) == ("", "")
        assert "not a git repository" in state.problem


class TestBundle:
    def test_holds_the_runs_commits_and_can_be_taken_over_elsewhere(self, box, open_folder):
        base = box.toolbox.tree().commit
        box.sh("for i in 1 2; do echo $i > f$i; git add -A; git commit -qm c$i; done")
        info, data = bundle(box, base)
        state = box.toolbox.tree()
        added = tuple(LineCounts(path=path, added=1, removed=0) for path in ("f1", "f2"))
        changes = DiffStat(files=added, count=2, added=2, removed=0)
        assert info == BundleInfo(commits=2, commit=state.commit, tree=state.tree, size=len(data), changes=changes)
        box.toolbox.close()
        if AS_ROOT:
            give_to(box.checkout, 0, 0)
        clone = open_folder / "clone"
        git(open_folder, "clone", "--quiet", "--bare", str(box.checkout), str(clone))
        (open_folder / "b").write_bytes(data)
        git(clone, "fetch", "--quiet", str(open_folder / "b"), "HEAD:refs/heads/taken")
        assert git(clone, "rev-parse", "taken") == state.commit

    def test_tells_which_lines_all_its_commits_together_changed(self, box):
        box.sh("mkdir d; seq 9 > d/nine; echo old > 'with space'; echo gone > gone; git add -A; git commit -qm base")
        base = box.toolbox.tree().commit
        box.sh(
            "sed -i 3,5d d/nine; printf 'a\\nb\\n' > 'with space'; git rm -q gone; git commit -qam one\n"
            "printf '\\0' > picture; printf 'x' > \"$(printf 'a\\tb\\nc')\"; echo passing > tmp\n"
            "git add -A; git commit -qm two; git rm -q tmp; git commit -qm three"
        )
        info, _ = bundle(box, base)
        assert info
        assert info.changes
        assert {file.path: (file.added, file.removed) for file in info.changes.files} == {
            "a\tb\nc": (1, 0),
            "d/nine": (0, 3),
            "gone": (0, 1),
            "picture": (None, None),
            "with space": (2, 1),
        }
        assert (info.changes.count, info.changes.added, info.changes.removed) == (5, 3, 5)

    def test_a_setting_or_an_attribute_of_the_checkout_runs_no_program_to_compare(self, box):
        base = box.toolbox.tree().commit
        box.sh(
            "git config diff.own.command 'touch ~/ran; false'; git config diff.own.textconv 'touch ~/ran; cat'\n"
            "echo '*.txt diff=own' > .gitattributes; echo more >> hello.txt; git add -A; git commit -qm two"
        )
        info, _ = bundle(box, base)
        assert info
        assert info.changes
        assert info.changes.count == 2
        assert box.sh("ls ~/ran").exit_code != 0

    def test_a_bundle_over_the_limit_is_refused_and_the_toolbox_goes_on(self, box):
        base = box.toolbox.tree().commit
        box.sh("head -c 3000000 /dev/urandom > big; git add -A; git commit -qm big")
        with pytest.raises(BoundaryError, match="more than 1000000 bytes"):
            bundle(box, base, max_bytes=10**6)
        assert box.bash("echo fine").output == "fine\n"

    @pytest.mark.whole
    @pytest.mark.parametrize("base", ["", "--all"])
    def test_a_base_that_is_no_commit_id_is_refused(self, box, base):
        with pytest.raises(BoundaryError, match="no commit id"):
            bundle(box, base)

    def test_a_base_that_is_not_there_is_told(self, box):
        with pytest.raises(BoundaryError, match="git could not tell"):
            bundle(box, "0" * 40)
