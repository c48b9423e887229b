"""Snapshots of hostile trees, and snapshots that somebody wrote by hand (docs/threat-model.md, case 30)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from snapshot_world import Worked, git_bytes, worked
from toolbox_world import root_only

from stepflow.domain.event import SnapshotFailed, SnapshotTaken
from stepflow.errors import StepflowError

pytestmark = pytest.mark.whole

BLOB = b"planted\n"


@pytest.fixture
def one(checkout, open_folder):
    with worked(checkout, open_folder / "run") as opened:
        yield opened


@dataclass(frozen=True, kw_only=True)
class Forger:
    """Makes objects that no git of the checkout has, and puts them back as if a store had kept them."""

    one: Worked
    git_dir: Path

    def write(self, kind: str, data: bytes) -> str:
        return self._git("hash-object", "-t", kind, "-w", "--literally", "--stdin", given=data)

    def tree(self, *entries: tuple[str, str, str]) -> str:
        """A tree of entries by mode, name and object, however odd they are."""
        return self.write(
            "tree", b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(oid) for mode, name, oid in entries)
        )

    def put_back(self, *, tree: str = "", message: str = "", **fields: object) -> None:
        """A snapshot of a tree, or of nothing that can be a tree."""
        head = git_bytes(self.one.folder, "rev-parse", "HEAD").decode().strip()
        state = {"branch": "refs/heads/main", "commit": head, "staged": "", "left_out": {}, **fields}
        empty = self.tree()
        text = f"tree {tree or empty}\nauthor a <a> 0 +0000\ncommitter a <a> 0 +0000\n\n{message or json.dumps(state)}"
        name = self.write("commit", text.encode())
        names = self._git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
        pack = self._run("pack-objects", "--stdout", "-q", "--window=0", given=names.encode() + b"\n")
        store = self.one.run_folder / "snapshots"
        store.mkdir(parents=True, exist_ok=True)
        (store / f"{name}.pack").write_bytes(pack)
        self.one.snapshots.restore(name)

    def _git(self, *words: str, given: bytes = b"") -> str:
        return self._run(*words, given=given).decode().strip()

    def _run(self, *words: str, given: bytes) -> bytes:
        env = {"PATH": os.environ["PATH"], "GIT_DIR": str(self.git_dir), "HOME": "/nonexistent"}
        return subprocess.run(["git", *words], env=env, input=given, capture_output=True, check=True).stdout


@pytest.fixture
def forger(one, tmp_path):
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "forged.git")], check=True)
    return Forger(one=one, git_dir=tmp_path / "forged.git")


def files_of(folder) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def kept_of(folder) -> dict[str, bytes]:
    """The same without git's objects, which nothing refers to, and the run folder."""
    files = files_of(folder).items()
    return {name: data for name, data in files if ".git/objects/" not in name and not name.startswith("run/")}


class TestForgedSnapshots:
    @pytest.mark.parametrize("name", ["..", "a/../../out", ".git", ".GIT/../x"])
    def test_a_path_that_leads_elsewhere_is_refused_before_anything_is_changed(self, forger, one, name):
        blob = forger.write("blob", BLOB)
        inner = forger.tree(("100644", "out", blob))
        before = kept_of(one.folder.parent)
        with pytest.raises(StepflowError, match="could not be restored"):
            forger.put_back(tree=forger.tree(("40000", name, inner)))
        with pytest.raises(StepflowError, match="could not be restored"):
            forger.put_back(tree=forger.tree(("100644", name, blob)))
        assert kept_of(one.folder.parent) == before

    def test_a_path_through_a_link_of_the_same_snapshot_writes_nothing_elsewhere(self, forger, open_folder):
        """The first of two entries of one name is a link, the second a folder."""
        link = forger.write("blob", str(open_folder).encode())
        inner = forger.tree(("100644", "out", forger.write("blob", BLOB)))
        with contextlib.suppress(StepflowError):
            forger.put_back(tree=forger.tree(("120000", "l", link), ("40000", "l", inner)))
        assert not (open_folder / "out").exists()

    def test_a_large_file_in_a_small_pack_is_not_unpacked_in_memory(self, checkout, open_folder, tmp_path):
        (open_folder / "bin").mkdir()
        small_git = open_folder / "bin/git"
        small_git.write_text(f'#!/bin/sh\nulimit -d 65536\nexec {shutil.which("git")} "$@"\n')
        small_git.chmod(0o755)
        subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "forged.git")], check=True)
        with worked(checkout, open_folder / "run", programs=(small_git.parent,)) as one:
            forger = Forger(one=one, git_dir=tmp_path / "forged.git")
            forger.put_back(tree=forger.tree(("100644", "large", forger.write("blob", bytes(100_000_000)))))
            assert (one.folder / "large").stat().st_size == 100_000_000

    def test_a_link_that_stands_in_the_way_is_replaced_not_followed(self, forger, one, open_folder):
        (open_folder / "outside").mkdir()
        (open_folder / "outside").chmod(0o777)
        one.sh(f"ln -s {open_folder}/outside l")
        inner = forger.tree(("100644", "out", forger.write("blob", BLOB)))
        forger.put_back(tree=forger.tree(("40000", "l", inner)))
        assert list((open_folder / "outside").iterdir()) == []
        assert (one.folder / "l/out").read_bytes() == BLOB

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"message": "no JSON"}, "is no snapshot"),
            ({"message": "[" * 100_000}, "is no snapshot"),
            ({"left_out": {str(number): 1 for number in range(100_000)}}, "is no snapshot"),
            ({"staged": "--all"}, "what is no object"),
            ({"branch": "refs/heads/../../hooks/x"}, "check-ref-format"),
            ({"branch": "HEAD"}, "stands on no branch"),
            ({"branch": "", "commit": "--help"}, "what is no object"),
            ({"branch": "", "commit": ""}, "stands nowhere"),
            ({"commit": "1" * 40}, "rev-list failed"),
        ],
    )
    def test_nonsense_is_refused_before_a_file_is_touched(self, forger, one, fields, said):
        one.sh("echo mine > mine")
        before = kept_of(one.folder)
        with pytest.raises(StepflowError, match=said):
            forger.put_back(**fields)
        assert kept_of(one.folder) == before
        assert one.box.bash("echo fine").output == "fine\n"

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
        before = files_of(one.folder)
        one.snapshots.take()
        assert files_of(one.folder) == before

    def test_ignored_files_stay_and_others_go(self, one):
        one.sh("echo '*.log' > .gitignore; echo a > a.log")
        name = one.snapshots.take().name
        one.sh("mkdir d; echo b > b.log; echo c > c.txt; echo d > d/d.log; echo e > d/e.txt; echo '' > d/.gitignore")
        one.snapshots.restore(name)
        left = {path for path in files_of(one.folder) if not path.startswith(".git/")}
        assert left == {".gitignore", "hello.txt", "a.log", "b.log", "d/d.log"}


class TestHostileTrees:
    def test_pipes_and_links_are_not_followed(self, one):
        one.sh("mkfifo pipe; ln -s /etc/passwd l; ln -s . loop")
        info = one.snapshots.take()
        assert (one.snapshots.left_out, type(info)) == ((), SnapshotTaken)
        one.sh("rm l")
        one.snapshots.restore(info.name)
        assert (one.folder / "l").readlink() == Path("/etc/passwd")

    @root_only
    def test_a_file_that_cannot_be_read_is_told_and_left_alone(self, one):
        one.sh("echo s > secret; echo n > new")
        (one.folder / "secret").chmod(0)
        info = one.snapshots.take()
        assert one.snapshots.left_out == ("secret: permission denied",)
        one.sh("rm new")
        one.snapshots.restore(info.name)
        assert (one.folder / "secret").read_bytes() == b"s\n"
        assert (one.folder / "new").read_bytes() == b"n\n"

    def test_a_file_over_the_limit_is_told_and_the_rest_is_kept(self, one):
        one.sh("truncate -s 101M huge; echo n > 'sm\nall'")
        info = one.snapshots.take()
        assert one.snapshots.left_out == (f"huge: has more than {100 * 1024 * 1024} bytes",)
        assert info.bytes < 5000

    def test_filters_of_the_checkout_are_not_started(self, one):
        one.sh("git config filter.f.clean 'touch ran; cat'; git config filter.f.smudge 'touch ran; cat'")
        one.sh("git config filter.f.process 'touch ran'; echo '* filter=f ident text eol=crlf' > .gitattributes")
        one.sh("printf '$Id$\\r\\n' > new")
        name = one.snapshots.take().name
        one.sh("rm new")
        one.snapshots.restore(name)
        assert (one.folder / "new").read_bytes() == b"$Id$\r\n"
        assert not (one.folder / "ran").exists()

    @pytest.mark.parametrize("damage", ["echo x > .git/index", "rm .git/index", "chmod 000 .git/index"])
    def test_a_damaged_index_costs_no_more_than_what_was_staged(self, one, damage):
        one.sh("echo n > n; git add n")
        one.sh(damage)
        info = one.snapshots.take()
        assert isinstance(info, SnapshotTaken), info
        one.sh("rm n")
        one.snapshots.restore(info.name)
        assert (one.folder / "n").read_bytes() == b"n\n"

    def test_an_index_with_a_path_that_leads_into_git_costs_no_more_than_what_was_staged(self, one):
        one.sh("mkdir .gis; echo n > n; echo h > .gis/h; git add n .gis/h; rm -r .gis")
        index = one.folder / ".git" / "index"
        crafted = index.read_bytes()[:-20].replace(b".gis/h", b".git/h")
        index.write_bytes(crafted + hashlib.sha1(crafted).digest())
        info = one.snapshots.take()
        assert isinstance(info, SnapshotTaken), info
        one.sh("rm n")
        one.snapshots.restore(info.name)
        assert (one.folder / "n").read_bytes() == b"n\n"
        assert not (one.folder / ".git" / "h").exists()

    def test_a_change_is_kept_whatever_git_is_told_about_files_and_what_it_ignores_is_not(self, one):
        one.sh("echo solid > f; touch -d '1 hour ago' f")
        one.snapshots.take()
        one.sh("git config core.trustctime false; git config core.checkStat minimal; git config core.ignoreStat true")
        # Git compares times of change by the second.
        one.sh("touch -r f ~/when; sleep 1.1; echo shaky > f; touch -r ~/when f")
        one.sh("echo left > left; echo out > out; echo new > new")
        one.sh("git config core.excludesFile ~/rules; echo left > ~/rules; echo out > .git/info/exclude")
        info = one.snapshots.take()
        assert (type(info), info.files) == (SnapshotTaken, 2)
        one.sh("rm f new")
        one.snapshots.restore(info.name)
        assert ((one.folder / "f").read_text(), (one.folder / "new").read_text()) == ("shaky\n", "new\n")

    def test_a_rule_file_that_is_a_pipe_ends_one_snapshot_in_time(self, one, monkeypatch):
        one.snapshots.take()
        one.sh("mkfifo .gitignore; echo n > n")
        monkeypatch.setattr("stepflow.run.snapshots._TAKE_SECONDS", 1.0)
        info = one.snapshots.take()
        assert info == SnapshotFailed(reason="It took longer than 1 s.")
        monkeypatch.undo()
        one.sh("rm .gitignore")
        assert isinstance(one.snapshots.take(), SnapshotTaken)

    @pytest.mark.parametrize("file", ["shallow", "config", "info/exclude", "refs/heads/x"])
    def test_a_pipe_in_the_place_of_a_file_of_gits_is_named_at_once(self, one, file):
        one.sh(f"rm -f .git/{file}; mkfifo .git/{file}; echo n > n")
        begun = time.monotonic()
        info = one.snapshots.take()
        assert f".git/{file}" in info.reason
        assert time.monotonic() - begun < 60

    def test_a_private_repository_that_the_tools_damage_is_made_anew(self, one):
        first = one.snapshots.take()
        place = '$(dirname "$TMPDIR")/snapshots'
        for damage in (f'rm -rf "{place}"/*', f'echo x > "{place}/index"', f'echo x > "{place}/config"'):
            one.sh(f"{damage}; date +%N >> n")
            infos = [one.snapshots.take() for _ in range(2)]
            assert isinstance(infos[-1], SnapshotTaken), infos
            assert infos[-1].name != first.name

    def test_files_that_change_while_they_are_read_do_no_harm(self, one):
        one.box.bash(
            "(while :; do date +%N > moving; ln -sfn /etc swap; rm -rf swap; mkdir -p swap/in; done) & echo ok"
        )
        for _ in range(5):
            assert isinstance(one.snapshots.take(), SnapshotTaken)
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

    @pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
    def test_is_told_before_anything_is_put_back(self, stored, damage):
        one, name, folder = stored
        for path in folder.glob("*.pack"):
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


def test_a_full_store_takes_nothing_more(one, monkeypatch):
    first = one.snapshots.take()
    monkeypatch.setattr("stepflow.run.snapshots.SnapshotStore.free_bytes", 0)
    one.sh("mkdir d; cd d; for n in $(seq 2000); do : > $n; done")
    failed = one.snapshots.take(step=first.name, run=first.name)
    assert failed == SnapshotFailed(reason="git pack-objects prints more than 0 bytes")
