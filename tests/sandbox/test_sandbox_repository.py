"""What git says about the checkout, and the way of commits out of it (boundary.md "Commits", step 1)."""

from __future__ import annotations

import time

import pytest
from toolbox_world import git

from stepflow.domain.checkout import BundleInfo
from stepflow.errors import BoundaryError
from stepflow.sandbox.box import Toolbox


def bundle(box, base: str, max_bytes: int = 10**7) -> tuple[BundleInfo | None, bytes]:
    pieces = bytearray()
    return box.toolbox.stream_bundle(base, pieces.extend, max_bytes=max_bytes), bytes(pieces)


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

    def test_changed_deleted_staged_and_new_files_are_named_and_ignored_ones_are_not(self, box):
        box.sh(
            "printf '*.log\\n' > .gitignore; touch gone 'with space'; git add -A; git commit -qm two\n"
            "echo x >> hello.txt; rm gone; echo s > staged; git add staged; mkdir d; echo n > 'd/n ü'; echo l > a.log"
        )
        assert sorted(box.toolbox.tree().uncommitted) == ["d/", "gone", "hello.txt", "staged"]

    def test_flags_in_the_index_hide_nothing_that_the_run_does(self, box):
        box.toolbox.tree()
        box.sh("git update-index --assume-unchanged hello.txt; echo x >> hello.txt")
        assert box.sh("git status --porcelain").stdout == ""
        assert box.toolbox.tree().uncommitted == ("hello.txt",)

    def test_configuration_that_hides_new_files_hides_nothing_that_the_run_does(self, box):
        box.toolbox.tree()
        box.sh("git config status.showUntrackedFiles no; echo x > new")
        assert box.toolbox.tree().uncommitted == ("new",)

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

    @pytest.mark.parametrize("path", [".git/config", ".git/HEAD", ".git/refs/heads/main", ".git/packed-refs"])
    def test_a_pipe_where_git_expects_a_file_holds_nobody_up(self, box, path):
        box.toolbox.tree()
        box.sh(f"rm -f {path}; mkfifo {path}")
        begun = time.monotonic()
        box.toolbox.tree()
        assert time.monotonic() - begun < 20

    def test_the_users_index_stays_as_it_is(self, box):
        box.sh("echo s > staged; git add staged")
        before = (box.checkout / ".git/index").read_bytes()
        box.toolbox.tree()
        assert (box.checkout / ".git/index").read_bytes() == before
        assert box.bash("ls -A $TMPDIR").text == ""

    def test_a_folder_without_a_repository_says_so(self, open_folder):
        plain = open_folder / "plain"
        plain.mkdir()
        with Toolbox.start(plain) as toolbox:
            state = toolbox.tree()
        assert (state.commit, state.tree) == ("", "")
        assert "not a git repository" in state.problem

    def test_a_repository_without_a_commit_says_so(self, open_folder):
        plain = open_folder / "plain"
        plain.mkdir()
        git(plain, "init", "--quiet")
        with Toolbox.start(plain) as toolbox:
            state = toolbox.tree()
        assert (state.commit, state.tree) == ("", "")
        assert "no commit yet" in state.problem


class TestBundle:
    def test_a_run_without_commits_gives_none(self, box):
        assert bundle(box, box.toolbox.tree().commit) == (None, b"")

    def test_holds_the_runs_commits_and_can_be_taken_over_elsewhere(self, box, open_folder):
        base = box.toolbox.tree().commit
        box.sh("for i in 1 2; do echo $i > f$i; git add -A; git commit -qm c$i; done")
        info, data = bundle(box, base)
        state = box.toolbox.tree()
        assert info == BundleInfo(commits=2, commit=state.commit, tree=state.tree, size=len(data))
        box.toolbox.close()
        clone = open_folder / "clone"
        git(open_folder, "clone", "--quiet", "--bare", str(box.checkout), str(clone))
        (open_folder / "b").write_bytes(data)
        git(clone, "fetch", "--quiet", str(open_folder / "b"), "HEAD:refs/heads/taken")
        assert git(clone, "rev-parse", "taken") == state.commit

    def test_pieces_of_a_large_bundle_arrive_whole(self, box):
        base = box.toolbox.tree().commit
        box.sh("head -c 3000000 /dev/urandom > big; git add -A; git commit -qm big")
        info, data = bundle(box, base)
        assert info
        assert info.size == len(data) > 3_000_000

    def test_a_bundle_over_the_limit_is_refused_and_the_toolbox_goes_on(self, box):
        base = box.toolbox.tree().commit
        box.sh("head -c 3000000 /dev/urandom > big; git add -A; git commit -qm big")
        with pytest.raises(BoundaryError, match="more than 1000000 bytes"):
            bundle(box, base, max_bytes=10**6)
        assert box.bash("echo fine").text == "fine\n"

    @pytest.mark.parametrize("base", ["", "main", "--all", "HEAD^", "x" * 40])
    def test_a_base_that_is_no_commit_id_is_refused(self, box, base):
        with pytest.raises(BoundaryError, match="no commit id"):
            bundle(box, base)

    def test_a_base_that_is_not_there_is_told(self, box):
        with pytest.raises(BoundaryError, match="git could not tell"):
            bundle(box, "0" * 40)

    def test_an_alias_or_a_hook_of_the_checkout_changes_nothing(self, box):
        base = box.toolbox.tree().commit
        box.sh("git commit -q --allow-empty -m two; git config alias.bundle '!echo planted'")
        assert b"planted" not in bundle(box, base)[1]
