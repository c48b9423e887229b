"""Snapshots of the working tree: taken without a trace, put back exactly (issue 5, acceptance 6)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from snapshot_world import Worked, copy_of, listing, worked
from toolbox_world import git

from stepflow.domain.event import SnapshotTaken
from stepflow.domain.secrets import Redactor
from stepflow.run.snapshots import Snapshots, SnapshotStore
from stepflow.sandbox.box import Toolbox

EVERYTHING = """
mkdir -p empty/inner deep/a/b build
printf 'changed\\r\\n' > hello.txt
printf 'secret' > private; chmod 600 private
printf '#!/bin/sh\\n' > tool; chmod 755 tool
printf 'x' > 'ü\n"name"'
ln -s /etc/passwd link; ln -s nowhere deep/dangling
printf staged > staged; git add staged; printf more >> staged
printf n > deep/a/b/new; printf ignored > a.log; printf o > build/out
git rm -q --cached gone; rm gone
git init -q nested; printf n > nested/file; printf l > nested/kept.log
git -C nested add file; git -C nested commit -qm inner
chmod 700 deep
"""


@pytest.fixture
def base(checkout):
    """The checkout with a second commit that knows ignore files and attributes."""
    (checkout / ".gitignore").write_text("*.log\nbuild/\n")
    (checkout / ".gitattributes").write_text("* text=auto\n")
    (checkout / "gone").write_text("g\n")
    (checkout / "crlf").write_bytes(b"one\r\ntwo\r\n")
    git(checkout, "add", "-A")
    git(checkout, "commit", "--quiet", "--message", "two")
    return checkout


@pytest.mark.whole
class TestRoundTrip:
    @pytest.mark.parametrize("target", ["same", "clone"])
    def test_everything_comes_back(self, base, open_folder, target):
        clone = copy_of(base, open_folder / "clone")
        with worked(base, open_folder / "run") as one:
            one.snapshots.take()
            one.sh(EVERYTHING)
            name = one.snapshots.take().name
            before = listing(base)
            if target == "same":
                one.sh("git checkout -qf -b other; rm -rf * .gitignore; echo b > new; mkdir -p hello.txt/x; git add -A")
                one.sh("git commit -qm mess; echo p > private; mkdir link; echo z > link/z; chmod 777 new")
                one.snapshots.restore(name)
                assert listing(base) == before
        if target == "clone":
            with worked(clone, open_folder / "run") as two:
                two.snapshots.restore(name)
                assert listing(clone) == before


def make_plain(_: Path, checkout: Path) -> None:
    checkout.mkdir()
    (checkout / "a").write_text("a\n")


def make_unborn(folder: Path, checkout: Path) -> None:
    make_plain(folder, checkout)
    git(checkout, "init", "--quiet")


def make_sha256(folder: Path, checkout: Path) -> None:
    make_plain(folder, checkout)
    git(checkout, "init", "--quiet", "--object-format=sha256")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message", "one")


def make_split_index(folder: Path, checkout: Path) -> None:
    make_unborn(folder, checkout)
    git(checkout, "config", "core.splitIndex", "true")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message", "one")


def make_shallow(folder: Path, checkout: Path) -> None:
    served = folder / "served"
    make_split_index(folder, served)
    git(served, "commit", "--quiet", "--allow-empty", "--message", "two")
    git(folder, "clone", "--quiet", "--depth", "1", f"file://{served}", str(checkout))


def make_sparse(folder: Path, checkout: Path) -> None:
    served = folder / "served"
    make_plain(folder, served)
    (served / "large").mkdir()
    (served / "large/b").write_text("b\n")
    git(served, "init", "--quiet")
    git(served, "config", "uploadpack.allowFilter", "true")
    git(served, "add", ".")
    git(served, "commit", "--quiet", "--message", "one")
    git(folder, "clone", "--quiet", "--filter=blob:none", "--sparse", f"file://{served}", str(checkout))


@pytest.mark.whole
@pytest.mark.parametrize(
    "make",
    [make_plain, make_unborn, make_sha256, make_split_index, make_shallow, make_sparse],
    ids=lambda make: make.__name__,
)
def test_every_kind_of_repository_comes_back(open_folder, make):
    checkout = open_folder / "a check out"
    make(open_folder, checkout)
    is_repository = (checkout / ".git").exists()

    def look() -> object:
        if is_repository:
            return listing(checkout)
        return {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}

    with worked(checkout, open_folder / "run") as one:
        names = [one.snapshots.take().name]
        one.sh("mkdir d; echo x > d/x; ln -s a link; echo more >> a")
        names.append(one.snapshots.take().name)
        if is_repository:
            one.sh("git add -A; git commit -qm work; git checkout -qb other; echo z > z; git add z; echo y >> z")
        names.append(one.snapshots.take().name)
        before = look()
        one.sh("rm -rf d link z; echo bad > bad; git reset -q --hard 2> /dev/null || true")
        for name in names:
            one.snapshots.restore(name)
        assert look() == before


CHANGES = r"""
printf 'changed\n' > hello.txt
printf 'new\n' > new; chmod 755 new
rm gone; ln -s hello.txt link
printf 'three\n' > crlf
chmod 755 .gitattributes
printf '\0' >> binary; printf x >> huge
"""


def shown(one: Worked, name: str) -> dict[str, str]:
    """What the text of a snapshot says of each file that its step changed."""
    return {file.path: file.text for file in SnapshotStore(one.run_folder / "snapshots").diffs(name).step.files}


@pytest.mark.whole
def test_a_snapshot_is_taken_and_put_back_by_one_process(base, open_folder, monkeypatch):
    """As bench/README.md says."""
    started: list[str] = []
    ask = Toolbox.ask_snapshots

    def counted(toolbox, what, request, **options):
        started.append(what)
        return ask(toolbox, what, request, **options)

    monkeypatch.setattr(Toolbox, "ask_snapshots", counted)
    with worked(base, open_folder / "run") as one:
        start = one.snapshots.take().name
        counts = []
        for script in ("true", "echo n > n"):
            one.sh(script)
            started.clear()
            taken = one.snapshots.take(step=start, run=start)
            assert isinstance(taken, SnapshotTaken), taken
            counts.append(len(started))
        started.clear()
        one.snapshots.restore(taken.name)
        counts.append(len(started))
    assert counts == [1, 1, 1]


@pytest.mark.whole
class TestWhatChanged:
    @pytest.fixture
    def known(self, base):
        """The base with a binary file and one that is too large to be shown."""
        (base / "binary").write_bytes(b"a\0b")
        (base / "huge").write_bytes(b"x" * 300_000)
        git(base, "add", "-A")
        git(base, "commit", "--quiet", "--message", "three")
        return base

    @pytest.mark.parametrize("committed", [False, True])
    def test_a_snapshot_tells_what_became_of_every_file(self, known, open_folder, committed):
        with worked(known, open_folder / "run") as one:
            first = one.snapshots.take().name
            one.sh(CHANGES + ("git add -A; git commit -qm work" if committed else ""))
            second = one.snapshots.take(step=first, run=first).name
            there = shown(one, second)
        assert set(there) == {"hello.txt", "new", "gone", "link", "crlf", ".gitattributes", "binary", "huge"}
        assert there["hello.txt"].endswith("@@ -1,2 +1 @@\n-hello\n-world\n+changed")
        assert "new file mode 100755" in there["new"]
        assert there["gone"].endswith("+++ /dev/null\n@@ -1 +0,0 @@\n-g")
        assert "new file mode 120000" in there["link"]
        assert there["crlf"].endswith("-one<U+000D>\n-two<U+000D>\n+three")
        assert there[".gitattributes"].endswith("old mode 100644\nnew mode 100755")
        assert there["binary"].endswith("not shown: binary, or larger than 256 KiB")
        assert there["huge"].endswith("not shown: binary, or larger than 256 KiB")

    def test_a_step_that_is_too_large_to_show_leaves_the_run_to_be_shown(self, known, open_folder, monkeypatch):
        monkeypatch.setattr("stepflow.run.snapshots._DIFF_LIMIT", 200_000)
        with worked(known, open_folder / "run") as one:
            first = one.snapshots.take().name
            one.sh("for n in 1 2 3 4; do seq 20000 > a$n; done")
            second = one.snapshots.take(step=first, run=first).name
            one.sh("rm a?; echo one > b")
            third = one.snapshots.take(step=second, run=first).name
            diffs = SnapshotStore(open_folder / "run/snapshots").diffs(third)
        assert diffs.step.notes
        assert {file.path for file in diffs.run.files} == {"b"}

    def test_a_secret_that_was_there_is_masked_and_a_new_one_is_not_kept(self, known, open_folder):
        secret = "ghs_0123456789"
        (known / "token").write_text(f"token = {secret}\n")
        git(known, "add", "-A")
        git(known, "commit", "--quiet", "--message", "four")
        with worked(known, open_folder / "run") as one:
            snapshots = Snapshots(one.box.toolbox, open_folder / "run", secrets=[secret], redact=Redactor([secret]))
            first = snapshots.take()
            one.sh("echo none > token")
            second = snapshots.take(step=first.name, run=first.name)
            text = shown(one, second.name)["token"]
            problems = []
            for put in (
                f"echo {secret} > new",
                f"rm new; echo x > {secret}",
                f"rm {secret}; git checkout -qb {secret}",
            ):
                one.sh(put)
                problems.append(snapshots.take().reason)
            one.sh("git checkout -qb clean")
            last = snapshots.take(step=first.name, run=first.name)
            assert set(shown(one, last.name)) == {"token"}
        assert [type(each) for each in (first, second, last)] == [SnapshotTaken] * 3
        assert text.endswith("-token = ***\n+none")
        assert [problem.partition(" contains a secret")[0] for problem in problems] == [
            "A file of the working tree",
            "A name in the working tree",
            "A commit",
        ]
        assert not any(secret.encode() in path.read_bytes() for path in (open_folder / "run/snapshots").iterdir())

    def test_attributes_hide_nothing_and_start_nothing(self, known, open_folder):
        with worked(known, open_folder / "run") as one:
            first = one.snapshots.take().name
            one.sh("git config diff.d.command 'touch ran'; git config diff.d.textconv 'touch ran'")
            one.sh("echo '* -diff' > .gitattributes; echo '*.txt diff=d' >> .gitattributes; echo x > hello.txt")
            assert shown(one, one.snapshots.take(step=first, run=first).name)["hello.txt"].endswith("\n+x")
        assert not (known / "ran").exists()

    def test_what_is_left_out_is_no_file_that_is_gone(self, known, open_folder):
        with worked(known, open_folder / "run") as one:
            first = one.snapshots.take().name
            one.sh("truncate -s 101M huge; echo n > n")
            second = one.snapshots.take(step=first, run=first).name
            there = shown(one, second)
            assert set(there) == {"huge", "n"}
            assert there["huge"].endswith(f"not shown: has more than {100 * 1024 * 1024} bytes")
            one.sh("echo m > m")
            assert set(shown(one, one.snapshots.take(step=second, run=first).name)) == {"m"}


@pytest.mark.whole
@pytest.mark.timeout(300)
def test_one_changed_file_among_twenty_thousand_takes_under_a_second_and_under_100_kb(open_folder):
    """Acceptance 6. What is held is the processors' time, all of the toolbox's processes together: other work on this
    machine is not the snapshot's. The time on the clock is printed.
    """
    checkout = open_folder / "large"
    checkout.mkdir()
    git(checkout, "init", "--quiet")
    # After a commit of so many files git packs them in the background, while the toolbox takes the checkout back.
    git(checkout, "config", "gc.auto", "0")
    for number in range(400):
        folder = checkout / f"src/part{number % 20}/module{number}"
        folder.mkdir(parents=True)
        for file in range(50):
            (folder / f"file_{file}.py").write_text(f"# {number} {file}\n" * 20)
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message", "one")
    with worked(checkout, open_folder / "run") as one:
        one.sh("git status --short")
        one.snapshots.take()
        launcher = one.box.launcher
        changed, staged, spent = [], [], []
        for turn in range(5):
            one.sh(f"echo {turn} >> src/part1/module1/file_{turn}.py")
            begun = cpu_seconds(launcher)
            changed.append(one.snapshots.take())
            one.sh("true")  # Ends the worker, whose time is counted then.
            spent.append(cpu_seconds(launcher) - begun)
            one.sh("git add -A")
            staged.append(one.snapshots.take())
    print(f"changed: {min(info.seconds for info in changed):.2f} s, {max(info.bytes for info in changed)} bytes;")
    print(f"staged: {min(info.seconds for info in staged):.2f} s, {max(info.bytes for info in staged)} bytes;")
    print(f"processors: {min(spent):.2f} s")
    assert {info.files for info in changed} == {1}
    assert 0.05 < min(spent) < 1
    assert max(info.bytes for info in changed) < 100_000
    # The first `git add` after `git status` may write every entry anew.
    assert sorted(info.bytes for info in staged)[-2] < 100_000


def cpu_seconds(pid: int) -> float:
    """What a process and its children that have ended took."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
