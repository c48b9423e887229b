"""Releases of a real repository with a real remote: the first, the second, one that stopped half-way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.e2e.repository import git

pytestmark = pytest.mark.whole

PROJECT = Path(__file__).parents[2]
IMAGE = "ghcr.io/org/stepflow-action"
FIRST, SECOND = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"


@dataclass(frozen=True)
class Project:
    """A repository on GitHub's side, and a checkout of its main."""

    server: Path
    checkout: Path
    ref: str = ""
    """What a workflow would have been started on."""

    def set_version(self, version: str) -> None:
        """What a person does before a release: a version, a heading in the changelog, a push to main."""
        (self.checkout / "pyproject.toml").write_text(f'[project]\nname = "stepflow"\nversion = "{version}"\n')
        (self.checkout / "CHANGELOG.md").write_text(f"# Changelog\n\n## [{version}] - 2030-01-01\n")
        git(self.checkout, "add", "--all")
        git(self.checkout, "commit", "--quiet", "--message", f"Prepare {version}")
        git(self.checkout, "push", "--quiet", "origin", "main")

    def publish(self, version: str, digest: str = FIRST, *, check: bool = False) -> subprocess.CompletedProcess[str]:
        """The command of the workflow's last job, or of its first."""
        output = self.checkout.parent / "output"
        what = ["--check"] if check else ["--image", IMAGE, "--digest", digest]
        environment = {**os.environ, "PYTHONPATH": str(PROJECT), "GITHUB_OUTPUT": str(output)}
        environment.pop("GITHUB_REF", None)
        environment |= {"GITHUB_REF": self.ref} if self.ref else {}
        # No name is configured: the commit is the bot's.
        environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        command = [sys.executable, "-m", "release.publish", "--version", version, *what]
        return subprocess.run(command, cwd=self.checkout, env=environment, capture_output=True, text=True, check=False)

    def tags(self) -> dict[str, str]:
        """The tags of the server and their commits."""
        lines = git(self.server, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/tags").splitlines()
        return dict(line.split() for line in lines)

    def names(self) -> list[str]:
        """What the last release told the workflow about the image's names."""
        (line,) = (self.checkout.parent / "output").read_text().splitlines()[-1:]
        return line.removeprefix("image-names=").split()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    server, checkout = tmp_path / "server.git", tmp_path / "checkout"
    git(tmp_path, "init", "--quiet", "--bare", str(server))
    checkout.mkdir()
    shutil.copy2(PROJECT / "action.yml", checkout)
    git(checkout, "init", "--quiet")
    git(checkout, "remote", "add", "origin", str(server))
    made = Project(server, checkout)
    made.set_version("1.2.0")
    return made


def released(project: Project, version: str, digest: str = FIRST) -> str:
    done = project.publish(version, digest)
    assert done.returncode == 0, done.stdout + done.stderr
    return project.tags()[f"v{version}"]


def test_the_first_release_is_one_commit_upon_main_that_names_the_image_by_digest(project: Project) -> None:
    commit = released(project, "1.2.0")
    assert project.tags() == {"v1.2.0": commit, "v1": commit}
    assert git(project.server, "rev-parse", f"{commit}^") == git(project.server, "rev-parse", "main")
    assert git(project.server, "diff", "--name-only", f"{commit}^", commit) == "action.yml"
    changed = git(project.server, "diff", "--unified=0", f"{commit}^", commit).splitlines()[-2:]
    assert changed == ["-  image: Dockerfile", f"+  image: docker://{IMAGE}@{FIRST}"]
    assert git(project.server, "log", "-1", "--format=%an|%cn|%s", commit) == (
        "github-actions[bot]|github-actions[bot]|Release 1.2.0"
    )
    assert project.names() == [f"{IMAGE}:1.2.0", f"{IMAGE}:1"]


def test_main_and_the_checkout_stay_as_they_were(project: Project) -> None:
    (project.checkout / "action.yml").write_text("what lies in the working tree is not released")
    before = git(project.checkout, "rev-parse", "main"), git(project.checkout, "status", "--porcelain")
    commit = released(project, "1.2.0")
    assert before == (git(project.checkout, "rev-parse", "main"), git(project.checkout, "status", "--porcelain"))
    assert git(project.server, "rev-parse", "main") == before[0]
    assert "using: docker" in git(project.server, "show", f"{commit}:action.yml")


def test_a_second_release_moves_the_major_tag_and_no_other(project: Project) -> None:
    first = released(project, "1.2.0")
    project.set_version("1.3.0")
    second = released(project, "1.3.0", SECOND)
    assert project.tags() == {"v1.2.0": first, "v1.3.0": second, "v1": second}
    assert SECOND in git(project.server, "show", "v1:action.yml")


def test_a_mended_older_release_does_not_take_the_major_tag_back(project: Project) -> None:
    project.set_version("1.3.0")
    newer = released(project, "1.3.0")
    project.set_version("1.2.1")
    older = released(project, "1.2.1", SECOND)
    assert project.tags() == {"v1.3.0": newer, "v1": newer, "v1.2.1": older}
    assert project.names() == [f"{IMAGE}:1.2.1"]


def test_the_next_major_version_has_a_tag_of_its_own(project: Project) -> None:
    first = released(project, "1.2.0")
    project.set_version("2.0.0")
    second = released(project, "2.0.0", SECOND)
    assert project.tags() == {"v1.2.0": first, "v1": first, "v2.0.0": second, "v2": second}


def test_a_release_that_is_repeated_changes_nothing_also_from_a_fresh_checkout(
    project: Project, tmp_path: Path
) -> None:
    commit = released(project, "1.2.0")
    git(tmp_path, "clone", "--quiet", str(project.server), "again")
    again = Project(project.server, tmp_path / "again")
    done = again.publish("1.2.0")
    assert (done.returncode, again.tags()) == (0, {"v1.2.0": commit, "v1": commit}), done.stdout
    assert done.stdout.count("as before") == 2
    assert project.names() == [f"{IMAGE}:1.2.0", f"{IMAGE}:1"]


def test_a_release_that_stopped_between_its_tags_is_finished_by_repeating_it(project: Project) -> None:
    first = released(project, "1.2.0")
    project.set_version("1.3.0")
    second = released(project, "1.3.0", SECOND)
    git(project.server, "update-ref", "refs/tags/v1", first)
    done = project.publish("1.3.0", SECOND)
    assert (done.returncode, project.tags()) == (0, {"v1.2.0": first, "v1.3.0": second, "v1": second}), done.stdout
    assert "v1.3.0 is" in done.stdout
    assert done.stdout.count("as before") == 1


def test_a_tag_that_the_server_refuses_leaves_the_other_one_out_too_and_the_repetition_sets_both(
    project: Project,
) -> None:
    hook = project.server / "hooks" / "update"
    hook.write_text('#!/bin/sh\n[ "$1" != refs/tags/v1 ] || { echo "v1 is protected" >&2; exit 1; }\n')
    hook.chmod(0o755)
    refused = project.publish("1.2.0")
    assert (refused.returncode, project.tags()) == (1, {})
    assert "::error title=release::" in refused.stdout
    assert "v1 is protected" in refused.stdout
    hook.unlink()
    commit = released(project, "1.2.0")
    assert project.tags() == {"v1.2.0": commit, "v1": commit}


def test_a_major_tag_that_somebody_moves_meanwhile_is_left_alone(project: Project, tmp_path: Path) -> None:
    first = released(project, "1.2.0")
    project.set_version("1.3.0")
    # The server hears of another v1 after it was listed and before ours arrives.
    wrapper = tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    other = git(project.checkout, "rev-parse", "main")
    real = shutil.which("git")
    wrapper.write_text(
        f'#!/bin/sh\n[ "$1" != push ] || {real} -C {project.server} update-ref refs/tags/v1 {other}\nexec {real} "$@"\n'
    )
    wrapper.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
        done = project.publish("1.3.0", SECOND)
    assert (done.returncode, project.tags()) == (1, {"v1.2.0": first, "v1": other}), done.stdout
    assert "stale info" in done.stdout


@pytest.mark.parametrize("digest", [SECOND, "sha256:12"])
def test_a_released_version_gets_no_other_image(project: Project, digest: str) -> None:
    commit = released(project, "1.2.0")
    done = project.publish("1.2.0", digest)
    assert (done.returncode, project.tags()) == (1, {"v1.2.0": commit, "v1": commit})
    assert ("never moves" if digest == SECOND else "is no digest") in done.stdout


def test_a_released_version_is_not_released_from_a_later_commit(project: Project) -> None:
    released(project, "1.2.0")
    before = project.tags()
    git(project.checkout, "commit", "--quiet", "--allow-empty", "--message", "Go on")
    done = project.publish("1.2.0")
    assert (done.returncode, project.tags()) == (1, before)
    assert "raise the version" in done.stdout


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("1.2.1", "pyproject.toml says version 1.2.0, not 1.2.1"),
        ("v1.2.0", "'v1.2.0' is no version"),
        ("1.2.0; rm -rf /", "is no version"),
    ],
)
@pytest.mark.parametrize("check", [True, False], ids=["check", "publish"])
def test_a_version_that_is_not_the_packages_own_is_refused_and_nothing_is_pushed(
    project: Project, version: str, said: str, check: bool
) -> None:
    done = project.publish(version, check=check)
    assert (done.returncode, project.tags()) == (1, {})
    assert said in done.stdout
    assert done.stderr == ""


def test_a_version_without_a_heading_in_the_changelog_is_refused(project: Project) -> None:
    (project.checkout / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
    git(project.checkout, "commit", "--quiet", "--all", "--message", "Forget the heading")
    done = project.publish("1.2.0", check=True)
    assert done.returncode == 1
    assert "CHANGELOG.md has no heading `## [1.2.0]`" in done.stdout


def test_the_check_before_the_build_is_green_only_for_a_version_that_is_new(project: Project) -> None:
    assert project.publish("1.2.0", check=True).returncode == 0
    assert project.tags() == {}
    released(project, "1.2.0")
    done = project.publish("1.2.0", check=True)
    assert done.returncode == 1
    assert "v1.2.0 exists already" in done.stdout


def test_the_check_wants_a_workflow_that_was_started_on_main(project: Project) -> None:
    assert replace(project, ref="refs/heads/main").publish("1.2.0", check=True).returncode == 0
    done = replace(project, ref="refs/heads/other").publish("1.2.0", check=True)
    assert done.returncode == 1
    assert "from refs/heads/main, not from refs/heads/other" in done.stdout
