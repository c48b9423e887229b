"""Snapshots of hostile trees, and snapshots that somebody wrote by hand (security.md case 30)."""

from __future__ import annotations

import hashlib
import json

import pytest
from snapshot_world import git_bytes, worked
from toolbox_world import root_only

from stepflow.errors import StepflowError

pytestmark = pytest.mark.whole

BLOB = b"planted\n"
DIGEST = hashlib.sha256(BLOB).hexdigest()


@pytest.fixture
def one(checkout, open_folder):
    with worked(checkout, open_folder / "run") as opened:
        yield opened


def forged(one, *, blobs: tuple[bytes, ...] = (BLOB,), **fields: object) -> None:
    """Put back what no store has seen."""
    base = git_bytes(one.folder, "rev-parse", "HEAD").decode().strip()
    manifest = {"base": base, "modes": [0o644, 0o755, 0o755], "set": {}, "git": None, "packs": [], **fields}
    stream = [(len(blob), iter([blob])) for blob in blobs]
    one.box.toolbox.snapshots.restore(json.dumps(manifest).encode(), stream, exclude=())


def tree_of(folder) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


class TestForgedManifests:
    @pytest.mark.parametrize(
        "path",
        [
            *("../out", "/etc/out", "a/../../out", "a//b", "", ".", "a/.", ".git/hooks/post-checkout", ".git/config"),
            *(".git", "a\0b"),
        ],
    )
    def test_a_path_that_leads_elsewhere_is_refused_before_anything_is_changed(self, one, path):
        before = tree_of(one.folder.parent)
        with pytest.raises(StepflowError, match="which no snapshot holds"):
            forged(one, set={"hello.txt": ["gone"], path: ["file", 0o755, DIGEST, len(BLOB)]})
        assert tree_of(one.folder.parent) == before

    def test_a_path_through_a_link_of_the_same_snapshot_is_refused(self, one, open_folder):
        with pytest.raises(StepflowError, match="which is no folder"):
            forged(one, set={"l": ["link", str(open_folder)], "l/out": ["file", 0o644, DIGEST, len(BLOB)]})
        assert not (open_folder / "out").exists()

    def test_a_link_that_stands_in_the_way_is_replaced_not_followed(self, one, open_folder):
        (open_folder / "outside").mkdir()
        (open_folder / "outside").chmod(0o777)
        one.sh(f"ln -s {open_folder}/outside l")
        forged(one, set={"l/out": ["file", 0o644, DIGEST, len(BLOB)]})
        assert list((open_folder / "outside").iterdir()) == []
        assert (one.folder / "l/out").read_bytes() == BLOB

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"set": {"a": ["file", 0o644, "0" * 64, 3]}}, "lacks the blob 000000000000"),
            ({"set": {"a": ["file", 0o644, "../../x", 3]}}, "lacks the blob"),
            ({"set": {"a": ["device", 1]}}, "nothing sound"),
            ({"set": {"a": ["base", 0o644]}}, "not in the base"),
            ({"base": "0" * 40}, "does not have the commit"),
            ({"base": "--all"}, "no commit id"),
            ({"set": 3}, "cannot be read"),
            ({"modes": []}, "cannot be read"),
            ({"git": {"head": "refs/heads/../../hooks/x", "commit": "", "index": None}}, "check-ref-format"),
            ({"git": {"head": "HEAD", "commit": "", "index": None}}, "stands on no branch"),
            ({"git": {"head": "", "commit": "--help", "index": None}}, "no commit id"),
            ({"git": {"head": "", "commit": "", "index": None}}, "stands nowhere"),
            ({"git": {"head": "refs/heads/x", "commit": "1" * 40, "index": None}}, "rev-list failed"),
            ({"git": {"head": "refs/heads/x", "commit": "", "index": ["ab"]}}, "lacks the blob"),
            ({"git": {"head": "", "commit": "1" * 40, "index": None}, "packs": [DIGEST]}, "index-pack failed"),
        ],
    )
    def test_nonsense_is_refused_before_a_file_is_touched(self, one, fields, said):
        before = {name: data for name, data in tree_of(one.folder).items() if not name.startswith(".git/objects")}
        with pytest.raises(StepflowError, match=said):
            forged(one, **fields)
        after = {name: data for name, data in tree_of(one.folder).items() if not name.startswith(".git/objects")}
        assert after == before
        assert one.box.bash("echo fine").text == "fine\n"

    def test_a_hook_of_the_checkout_is_not_started_and_stays(self, one):
        hook = "printf '#!/bin/sh\\ntouch ran\\n' > .git/hooks/$h; chmod +x .git/hooks/$h"
        one.sh(f"for h in reference-transaction post-checkout post-index-change; do {hook}; done")
        name = one.snapshots.take().name
        one.sh("rm .git/hooks/post-checkout; git config core.fsmonitor 'touch ran; false'; rm -f ran")
        one.snapshots.restore(name)
        one.snapshots.take()
        assert not (one.folder / "ran").exists()
        assert not (one.folder / ".git/hooks/post-checkout").exists()


class TestWhatIsLeftAlone:
    def test_taking_one_changes_nothing_in_the_repository(self, one):
        one.sh("echo s > s; git add s; git stash -q; echo t > t; git add t; echo u > u")
        before = tree_of(one.folder)
        one.snapshots.take()
        assert tree_of(one.folder) == before

    def test_ignored_files_stay_and_others_go(self, one):
        one.sh("echo '*.log' > .gitignore; echo a > a.log")
        name = one.snapshots.take().name
        one.sh("mkdir d; echo b > b.log; echo c > c.txt; echo d > d/d.log; echo e > d/e.txt; echo '' > d/.gitignore")
        one.snapshots.restore(name)
        left = {path for path in tree_of(one.folder) if not path.startswith(".git/")}
        assert left == {".gitignore", "hello.txt", "a.log", "b.log", "d/d.log"}

    def test_a_run_folder_inside_the_checkout_is_no_part_of_it(self, checkout):
        with worked(checkout, checkout / ".run") as one:
            first = one.snapshots.take()
            assert one.snapshots.take().name == first.name
            one.snapshots.restore(first.name)
            assert (checkout / ".run/snapshots" / f"{first.name}.json").exists()


class TestHostileTrees:
    def test_pipes_and_sockets_are_counted_and_links_are_not_followed(self, one):
        one.sh("mkfifo pipe; ln -s /etc/passwd l; ln -s . loop")
        info = one.snapshots.take()
        assert (info.special, info.left_out, info.problem) == (1, (), "")
        stored = b"".join(path.read_bytes() for path in (one.run_folder / "snapshots").iterdir())
        assert b"root:" not in stored

    @root_only
    def test_a_file_that_cannot_be_read_is_told_and_left_alone(self, one):
        one.sh("echo s > secret; echo n > new")
        (one.folder / "secret").chmod(0)
        info = one.snapshots.take()
        assert info.left_out == ("secret: permission denied",)
        one.sh("rm new")
        one.snapshots.restore(info.name)
        assert (one.folder / "secret").read_bytes() == b"s\n"
        assert (one.folder / "new").read_bytes() == b"n\n"

    def test_a_file_over_the_limit_is_told_and_the_rest_is_kept(self, one):
        one.sh("truncate -s 101M huge; echo n > 'sm\nall'")
        info = one.snapshots.take()
        assert info.left_out == (f"huge: has more than {100 * 1024 * 1024} bytes",)
        assert info.bytes < 5000

    def test_a_folder_that_goes_down_without_end_is_cut_and_told(self, one):
        one.sh("i=0; while [ $i -lt 260 ]; do mkdir d; cd d; i=$((i+1)); done; echo x > x")
        info = one.snapshots.take()
        assert len(info.left_out) == 1
        assert "200 folders deep" in info.left_out[0]

    def test_a_repository_that_was_put_somewhere_else_is_a_problem_not_an_end(self, one):
        one.sh("mv .git ../moved 2>/dev/null || mv .git d; ln -s d .git")
        info = one.snapshots.take()
        assert "no folder" in info.problem
        assert one.box.bash("echo fine").text == "fine\n"

    def test_files_that_change_while_they_are_read_do_no_harm(self, one):
        one.box.bash(
            "(while :; do date +%N > moving; ln -sfn /etc swap; rm -rf swap; mkdir -p swap/in; done) & echo ok"
        )
        for _ in range(5):
            assert one.snapshots.take().problem == ""
        one.box.toolbox.end_step()
        name = one.snapshots.take().name
        before = (one.folder / "moving").read_bytes()
        one.sh("echo else > moving")
        one.snapshots.restore(name)
        assert (one.folder / "moving").read_bytes() == before


class TestDamagedStores:
    @pytest.fixture
    def stored(self, one):
        one.sh("echo first > f")
        one.snapshots.take()
        one.sh("echo second > f")
        return one, one.snapshots.take().name, one.run_folder / "snapshots"

    @pytest.mark.parametrize("kind", ["blobs", "json"])
    @pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
    def test_is_told_before_anything_is_put_back(self, stored, kind, damage):
        one, name, folder = stored
        for path in folder.glob(f"*.{kind}"):
            data = path.read_bytes()
            if damage == "gone":
                path.unlink()
            else:
                path.write_bytes(data[:-1] if damage == "cut" else data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])
        one.sh("echo third > f")
        with pytest.raises(StepflowError, match=r"damaged|cannot be read"):
            one.snapshots.restore(name)
        assert (one.folder / "f").read_text() == "third\n"

    @pytest.mark.parametrize("name", ["", "../journal", "x", "0" * 64])
    def test_a_name_that_is_none_is_told(self, stored, name):
        with pytest.raises(StepflowError, match=r"no snapshot|cannot be read"):
            stored[0].snapshots.restore(name)
