"""A newcomer on a machine that has nothing but what the README asks for: the tutorial in a clone, and the README's
commands without one, by pipx.

It prints every command with its seconds.
"""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.docs.page import README, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.weekly, pytest.mark.timeout(900)]
TAG = "stepflow-newcomer:e2e"
#: The words of the README and the tutorial, followed as they stand; then an agent's author changes a prompt.
VISIT = r"""
set -e
git config --global user.name Ada && git config --global user.email ada@example.com
git clone --quiet /stepflow.bundle stepflow-action
cd stepflow-action
echo "== the tutorial, up to GitHub"
python3 -m tests.docs.page docs/tutorial.md "" "8. Let a label start it"
echo "== the README, without the clone, in a repository of one's own"
git config --global url./stepflow.bundle.insteadOf https://github.com/org/stepflow-action
python3 -m venv ~/pipx
~/pipx/bin/python -m pip install --quiet --disable-pip-version-check pipx
export PATH="$HOME/pipx/bin:$HOME/.local/bin:$PATH"
git init --quiet --initial-branch=main ~/your-repository
printf 'test:\n\ttrue\n' > ~/your-repository/Makefile
git -C ~/your-repository add Makefile
git -C ~/your-repository commit --quiet --message Begin
clone=$PWD
cd ~/your-repository
python3 "$clone/tests/docs/page.py" "$clone/README.md" "See it" "Or paste a workflow"
echo "Answer in Welsh." >> .agent/fixer/prompts/steps/closure/default/f_default.md
stepflow validate
stepflow rehearse
"""


@pytest.fixture
def machine(engine: None, tmp_path: Path) -> Iterator[str]:
    """An image of the base that the Dockerfile names, with what the README tells Debian's users to install."""
    (base,) = re.findall(r"^ARG BASE_IMAGE=(\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.M)
    (install,) = re.findall(r"`(apt-get install [^`]+)`", README.read_text(encoding="utf-8"))
    lines = (
        f"FROM {base}",
        f"RUN apt-get update -qq && {install} -y -qq --no-install-recommends >/dev/null",
        "RUN useradd --create-home ada",
        "USER ada",
        "WORKDIR /home/ada",
    )
    (tmp_path / "Dockerfile").write_text("\n".join(lines))
    build = ["docker", "build", "--network=host", "-t", TAG, tmp_path]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    assert built.returncode == 0, f"{built.stdout[-4000:]}\n{built.stderr[-4000:]}"
    yield TAG
    subprocess.run(["docker", "image", "rm", TAG], capture_output=True, check=True)


@pytest.fixture
def bundle(release: Path, tmp_path: Path) -> Path:
    """What a clone brings."""

    def git(*words: str | Path) -> None:
        name = ("-c", "user.name=stepflow", "-c", "user.email=stepflow@example.com")
        subprocess.run(["git", *name, *words], cwd=tree, check=True, capture_output=True)

    tree = tmp_path / "tree"
    tree.mkdir()
    git("init", "--quiet", "--initial-branch=main")
    git(f"--work-tree={release}", "add", "--all")
    git("commit", "--quiet", "--message", "The tree")
    git("bundle", "create", tmp_path / "stepflow.bundle", "HEAD", "main")
    return tmp_path / "stepflow.bundle"


def test_a_newcomer_has_an_agent_of_their_own_within_ten_minutes(machine: str, bundle: Path) -> None:
    options = ("--rm", "--network=host", f"--volume={bundle}:/stepflow.bundle:ro")
    command = ["docker", "run", *options, machine, "bash", "-c", VISIT]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False)
    print(done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.endswith("1 scenario, as expected\n")
