"""A checkout that the model has worked on, through the real toolbox to the real push."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepflow.boundary.bundle_push import BundlePush, Pushed
from stepflow.boundary.git import Remote
from stepflow.boundary.github_types import Account
from stepflow.domain.checkout import CommandRequest
from stepflow.errors import BoundaryError, Refused
from stepflow.sandbox.box import Toolbox
from tests.boundary.checkout import Checkout, served
from tests.boundary.conftest import TOKEN
from tests.servers.git_http import GitServer

pytestmark = pytest.mark.whole

BOT = Account(id=41898282, login="github-actions[bot]")
BRANCH = "stepflow/fixer/issue-7"
WORK = "echo work > work.txt; git add -A; git commit -qm work"


class Run:
    """A run from the toolbox's start to the push; `work` is what the model's commands do."""

    def __init__(self, folder: Path, server: GitServer, checkout: Checkout) -> None:
        self.folder, self.server, self.checkout = folder, server, checkout
        #: What planted programs write who ran them to.
        self.marks = folder / "marks"
        self.marks.touch()
        self.marks.chmod(0o666)

    def __call__(self, work: str) -> Pushed:
        bundle = self.folder / "work.bundle"
        with Toolbox.start(self.checkout.folder) as toolbox, bundle.open("wb") as file:
            toolbox.tree()
            done = toolbox.run_command(CommandRequest(argv=("sh", "-c", work), timeout=60))
            assert done.exit_code == 0, done.stderr
            self.head = toolbox.tree().tree
            info = toolbox.stream_bundle(self.checkout.base, file.write, max_bytes=10**7)
        assert info
        push = BundlePush(
            remote=Remote(url=f"{self.server.url}/o/r.git", token=TOKEN),
            bundle=bundle,
            folder=self.folder,
            base_commit=self.checkout.base,
            run_id="run-1",
            agent="fixer",
            tree=info.tree,
        )
        return push.push(BRANCH, author=BOT)

    def branches(self) -> set[str]:
        lines = served(self.checkout.origin, "for-each-ref", "--format=%(refname:short)", "refs/heads")
        return set(lines.split())


@pytest.fixture
def run(git_server: GitServer) -> Iterator[Run]:
    """In a folder that the tools' user can reach, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="stepflow-test-")).resolve()
    folder.chmod(0o755)
    yield Run(folder, git_server, Checkout(folder / "checkout", git_server.create("o/r")))
    subprocess.run(["rm", "-rf", "--", str(folder)], check=True)


#: Each writes who runs it and then lets go on what called it.
PLANT = """
mkdir -p ~/evil; for name in evil git sh ssh gpg less vi; do
printf '#!/bin/sh\\nid -u >> {marks}\\ncase "$1" in clean|smudge) cat;; esac\\nexit 0\\n' > ~/evil/$name; done
chmod +x ~/evil/*; E=$HOME/evil/evil; mkdir -p .git/hooks .git/info
for hook in pre-push post-checkout reference-transaction post-index-change pre-receive update fsmonitor-watchman \\
  pre-auto-gc post-rewrite push-to-checkout proc-receive; do cp $E .git/hooks/$hook; done
echo '* filter=x diff=x merge=x' > .git/info/attributes
git config core.fsmonitor $E; git config core.hooksPath .git/hooks; git config core.sshCommand $E
git config core.gitProxy $E; git config core.askPass $E; git config core.pager $E; git config core.editor $E
git config core.alternateRefsCommand $E; git config credential.helper "!$E"; git config gpg.program $E
git config commit.gpgSign true; git config push.gpgSign true; git config log.showSignature true
git config filter.x.clean "$E clean"; git config filter.x.smudge "$E smudge"
git config diff.external $E; git config diff.x.textconv $E; git config merge.x.driver $E
git config sequence.editor $E; git config uploadpack.packObjectsHook $E; git config pager.log $E
for name in push fetch log ls-remote init index-pack commit-tree cat-file rev-parse bundle rev-list status read-tree
do git config alias.$name "!$E"; done
git config url.http://127.0.0.1:1/.insteadOf http://; git config url.http://127.0.0.1:1/.pushInsteadOf http://
git config http.proxy http://127.0.0.1:1; git config http.sslVerify false; git config http.curloptResolve 127.0.0.1:1
git config protocol.allow always; git config protocol.ext.allow always
git config remote.origin.url "ext::$E"
git config remote.origin.uploadpack $E; git config remote.origin.receivepack $E; git config remote.origin.vcs evil
git config include.path $HOME/evil/more; git config --file ~/evil/more core.fsmonitor $E
git config includeIf.gitdir:/.path $HOME/evil/more; cp .git/config ~/.gitconfig
"""


def test_nothing_that_is_planted_is_run_by_the_parent_and_the_push_goes_to_our_server(run: Run) -> None:
    attributes = "echo '* filter=x diff=x merge=x' > .gitattributes"
    pushed = run(f"{attributes}; {WORK}; {PLANT.format(marks=run.marks)}")
    assert run.branches() == {"main", BRANCH}
    assert served(run.checkout.origin, "show", f"{pushed.commit}:work.txt") == "work"
    ran = set(run.marks.read_text().split())
    assert (str(os.getuid()) not in ran) if os.getuid() == 0 else True


def test_what_is_planted_would_run_for_whoever_used_git_in_the_checkout(run: Run) -> None:
    """So that the test above means something."""
    run(f"{WORK}; {PLANT.format(marks=run.marks)}")
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    command = ["git", "-c", f"safe.directory={run.checkout.folder}", "-C", str(run.checkout.folder), "status"]
    shutil.copytree(run.checkout.folder, run.folder / "copy", symlinks=True)
    script = run.folder / "evil"
    script.write_text(f"#!/bin/sh\necho theirs >> {run.marks}\n")
    script.chmod(0o755)
    subprocess.run([*command[:3], *command[3:5], "config", "core.fsmonitor", str(script)], env=environment, check=True)
    subprocess.run(command, env=environment, check=False, capture_output=True)
    assert "theirs" in run.marks.read_text()


STANDS_ON = {
    "another folder": ("cp -a .git .new; mv .git ~/old; mv .new .git", "`.git` is not the one that was there"),
    "no folder": ("mv .git ~/old", "`.git` is not the one that was there"),
    "a common folder elsewhere": (
        "cp -a .git ~/copy; echo $HOME/copy > .git/commondir",
        "`.git/commondir` is not what was there",
    ),
}


@pytest.mark.parametrize(("harm", "reason"), STANDS_ON.values(), ids=STANDS_ON)
def test_a_repository_that_stands_on_something_else_is_refused_with_the_reason(
    run: Run, harm: str, reason: str
) -> None:
    with pytest.raises(BoundaryError, match=reason):
        run(f"{WORK}; {harm}; true")
    assert run.branches() == {"main"}


REFUSED = {
    "a nested repository": (
        f"git init -q inner; git -C inner commit -q --allow-empty -m i; {WORK}",
        "submodule or nested repository: inner",
    ),
    "a base that was rewritten": (
        "echo x > x; git add -A; git commit -q --amend -m Start",
        "do not descend from",
    ),
    "a protected path with a name that is no text": (
        "mkdir .github/w; touch \"$(printf '.github/w/\\377')\"; git add -A; git commit -qm w",
        "protected path: .github/w/",
    ),
}


@pytest.mark.parametrize(("work", "reason"), REFUSED.values(), ids=REFUSED)
def test_commits_that_may_not_leave_are_refused_with_the_reason(run: Run, work: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        run(work)
    assert run.branches() == {"main"}


def test_a_commit_that_is_called_shallow_leaves_with_all_that_it_builds_on(run: Run) -> None:
    pushed = run(f"{WORK}; echo y > y; git add -A; git commit -qm y; git rev-parse HEAD > .git/shallow")
    assert served(run.checkout.origin, "rev-list", "--count", f"{run.checkout.base}..{pushed.commit}") == "2"


def test_replaced_objects_do_not_show_another_history(run: Run) -> None:
    pushed = run(
        f"{WORK}; real=$(git rev-parse HEAD); mkdir -p .github/workflows; echo evil > .github/workflows/ci.yml;"
        "git add -A; git commit -qm evil; evil=$(git rev-parse HEAD); git reset -q --hard $real;"
        "git replace $real $evil"
    )
    assert served(run.checkout.origin, "show", f"{pushed.commit}:.github/workflows/ci.yml") == "on: push"


def test_a_process_that_outlives_its_command_commits_nothing_more(run: Run) -> None:
    late = "(while :; do echo $RANDOM >> late.txt; git add -A; git commit -qm late; done) >/dev/null 2>&1 &"
    pushed = run(f"{WORK}; setsid sh -c '{late}'; sleep 0.2")
    tree = served(run.checkout.origin, "rev-parse", f"{pushed.commit}^{{tree}}")
    assert tree == run.head == run.checkout.git("-c", "safe.directory=*", "rev-parse", "HEAD^{tree}")
