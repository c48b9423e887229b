"""Whatever tools do in a workspace: where nothing is uncommitted, a check ends as in a fresh clone with `setup`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toolbox_world import git, reachable_folder

from stepflow.domain.checkout import CommandRequest
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.check_tree import CheckTrees
from stepflow.sandbox.isolation import ToolboxOptions
from stepflow.sandbox.workspace import make_workspace

pytestmark = [pytest.mark.whole, pytest.mark.properties]

SETUP = (
    "mkdir -p vendor/a .cache; echo 1 > vendor/a/dep; ln -sf a/dep vendor/link; echo home > ~/.tool; echo t > $TMPDIR/t"
)
#: What a check may stand on, each line by its place. Names of users, times and the place itself are not among it.
CHECK = (
    "git status --porcelain; git ls-files --stage; git log --format=%T; "
    "find . -path ./.git -prune -o -type f -perm -100 -print -o -type l -print | sort; "
    "find . -path ./.git -prune -o -type f -print | sort | xargs -d '\\n' sha1sum; "
    "cat ~/.tool $TMPDIR/t; ls -A ~; ls -A $TMPDIR"
)
#: What a model may do, on purpose or not.
ACTS = (
    "echo {n} >> a.txt",
    "echo {n} > new{n}.py",
    "rm -f a.txt",
    "git add -A && git commit -qm {n}",
    "git commit -qam {n} || true",
    "git checkout -q -- . || true",
    "git stash -q || true",
    "git reset -q --hard HEAD~1 || true",
    "git checkout -qB side{n}",
    "echo {n} > vendor/a/dep",
    "rm -rf vendor",
    "mkdir -p build && echo {n} > build/out",
    "echo {n} > ~/.tool; echo x > $TMPDIR/t; touch ~/x{n}",
    "echo '*' > .git/info/exclude",
    "git update-index --assume-unchanged a.txt 2> /dev/null || true",
    "git config core.fileMode false; chmod +x a.txt 2> /dev/null || true",
    "printf 'x\\r\\n' > crlf{n}.txt",
    "mkdir -p d{n} && echo '*.txt eol=crlf' > .gitattributes",
    "ln -sfn a.txt link{n}",
    "mv lib lib{n} 2> /dev/null || mv lib* lib 2> /dev/null || true",
    "git clean -qfd",
    "echo {n} > /dev/shm/x{n} 2> /dev/null || true",
)
acts = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 3)), max_size=8)


def sh(script: str) -> CommandRequest:
    return CommandRequest(argv=("sh", "-c", script), timeout=60)


@pytest.mark.timeout(900)
@settings(max_examples=100 if os.environ.get("STEPFLOW_EXPLORE") else 30)
@given(rounds=st.lists(st.tuples(acts, st.integers(0, 8)), min_size=1, max_size=3))
def test_a_check_ends_as_in_a_clone_where_everything_is_committed(
    rounds: list[tuple[list[tuple[str, int]], int]],
) -> None:
    with reachable_folder() as folder:
        checkout, workspace = folder / "checkout", folder / "workspace"
        (checkout / "lib").mkdir(parents=True)
        (checkout / "a.txt").write_text("a\n")
        (checkout / "lib/code.py").write_text("code = 1\n")
        (checkout / ".gitignore").write_text("vendor/\nbuild/\n.cache/\n")
        git(checkout, "init", "--quiet", "--initial-branch", "main")
        git(checkout, "add", ".")
        git(checkout, "commit", "--quiet", "--message", "one")
        make_workspace(checkout, workspace)
        with Toolbox.start(workspace, options=ToolboxOptions(private_root=folder)) as tools:
            assert tools.run_command(sh(SETUP)).exit_code == 0
            with CheckTrees(tools, checkout, base=tools.tree().commit) as trees:
                for number, (each, ready_at) in enumerate(rounds):
                    for at, (act, n) in enumerate(each):
                        if at == ready_at:
                            # While tools work on, as when the model answers.
                            trees.prepare()
                        tools.run_command(sh(act.format(n=n)))
                    with trees.opened() as tree:
                        first, second = (tree.run_command(sh(f": {n}; {CHECK}")).stdout for n in range(2))
                        assert first == second
                        if tree.closing.commit and not tree.closing.uncommitted:
                            assert first == said_in_clone(trees, tree.closing.commit, folder / f"clone-{number}")
                            tree.run_command(sh("echo x >> a.txt; echo y > vendor/a/dep; touch ~/z; rm -rf .git lib"))


def said_in_clone(trees: CheckTrees, commit: str, place: Path) -> str:
    """What the check prints in a clone by plain git, as a sandbox sees it after `setup`."""
    subprocess.run(["git", "clone", "-q", "--no-checkout", str(trees.repository.folder), str(place)], check=True)
    git(place, "checkout", "--quiet", "--detach", commit)
    with Toolbox.start(place, options=ToolboxOptions(private_root=place.parent)) as fresh:
        assert fresh.run_command(sh(SETUP)).exit_code == 0
        return fresh.run_command(sh(CHECK)).stdout
