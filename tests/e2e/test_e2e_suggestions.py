"""Every suggestion that a review posts applies and keeps the checks green: whole runs in the image, under act, on
repositories in Python, TypeScript and Go."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.repository import git, lead_to
from tests.e2e.reviewing import OPTIONS, WORKFLOW, hire, label_event, open_pull_request, says
from tests.e2e.suggestions import CACHE, REPOSITORIES
from tests.e2e.test_e2e_languages import AUTHORITY
from tests.e2e.test_e2e_prove import container, succeed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.suggestions import Offer, Repository
    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
__all__ = ["container"]
BLOCK = re.compile(r"(?s)\n(?P<fence>`{3,})suggestion\n(?P<text>.*?)(?P=fence)$")


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())


def check_out(folder: Path, repository: Repository) -> None:
    """The pull request, as somebody has it who commits suggestions."""
    for name, text in {**repository.files, repository.path: repository.head}.items():
        write(folder / name, text)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Change it")


def lines_of(repository: Repository, offer: Offer) -> tuple[int, int]:
    """The lines that a suggestion is for; far away where the file is another one."""
    lines = repository.head.replace("\r\n", "\n").split("\n")
    found = [number for number, line in enumerate(lines, 1) if line.startswith(offer.first)]
    if offer.path:
        return 1, 1
    assert len(found) == 1, offer.first
    last = [number for number, line in enumerate(lines, 1) if line.startswith(offer.last or offer.first)]
    return found[0], last[0]


def as_comment(repository: Repository, offer: Offer, number: int) -> dict[str, Any]:
    first, last = lines_of(repository, offer)
    path = offer.path or repository.path
    return {"path": path, "start_line": first, "line": last, "body": f"Nr. {number}.", "suggestion": offer.text}


def review(world: World, folder: Path, repository: Repository) -> World:
    """A whole run reviews a pull request that changes the file, and posts all suggestions."""
    project = folder.with_name(f"{folder.name}-base")
    for name, text in {**repository.files, repository.path: repository.base}.items():
        write(project / name, text)
    hire(project / ".agent" / "review", repository.checks)
    inputs = {"setup": repository.setup, "pass-env": ",".join(AUTHORITY)}
    inputs["apt-packages"] = "golang-go" if repository.path.endswith(".go") else ""
    given = {name: value for name, value in inputs.items() if value}
    write(project / ".github" / "workflows" / "stepflow.yml", lead_to(WORKFLOW, given))
    world.use_project(project)
    number = open_pull_request(world, {repository.path: repository.head}, body="Please read it.")
    # As a workflow restores a cache before the step.
    if (folder / CACHE).exists():
        shutil.copytree(folder / CACHE, world.checkout / CACHE)
    comments = [as_comment(repository, offer, number) for number, offer in enumerate(repository.offers)]
    job = world.run(
        says({"summary": "Read.", "verdict": "comment", "comments": comments}),
        label_event(world, number),
        event_name="pull_request_target",
        environment=AUTHORITY,
        options=OPTIONS,
    )
    assert (job.exit_code, job.outputs["outcome"]) == (0, "completed"), job.everything
    assert world.github.violations == []
    return world


def commit_suggestion(file: Path, thread: dict[str, Any], text: str) -> None:
    """Do what a person does by GitHub's button, with the line endings of the file."""
    ending = "\r\n" if b"\r\n" in file.read_bytes() else "\n"
    lines = file.read_bytes().decode().split(ending)
    new = text.removesuffix("\n").split("\n") if text else []
    lines[(thread["start_line"] or thread["line"]) - 1 : thread["line"]] = new
    file.write_bytes(ending.join(lines).encode())


def check_all(container: tuple[str, Path], folder: Path, repository: Repository) -> None:
    for command in repository.checks.values():
        succeed(container[0], f"cd /repositories/{folder.name} && {command}")


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", [*REPOSITORIES])
def test_what_is_posted_as_a_suggestion_applies_and_keeps_the_checks_green(
    new_world: Callable[[], World], container: tuple[str, Path], name: str
) -> None:
    repository, folder = REPOSITORIES[name], container[1] / name.replace(" ", "-")
    if repository.path.endswith(".go"):
        succeed(container[0], "apt-get update -qq && apt-get install -y -qq --no-install-recommends golang-go")
    check_out(folder, repository)
    if repository.setup:
        succeed(container[0], f"cd /repositories/{folder.name} && {repository.setup}")
    check_all(container, folder, repository)
    state = review(new_world(), folder, repository).github.state
    (summary,) = [each["body"] for each in state.reviews]
    threads = {thread["comments"][0]["body"].partition("\n")[0]: thread for thread in state.threads}
    file, good = folder / repository.path, []
    for number, offer in enumerate(repository.offers):
        thread = threads.get(f"Nr. {number}.")
        text = thread["comments"][0]["body"].rpartition("\n\n<!--")[0] if thread else summary
        block = thread and BLOCK.search(text)
        assert bool(block) == (not offer.problem), text
        if thread and block:
            good.append((thread, block["text"]))
            commit_suggestion(file, thread, block["text"])
            assert git(folder, "diff", "--name-only").split() == [repository.path]
            check_all(container, folder, repository)
            git(folder, "checkout", "--quiet", "--", repository.path)
        else:
            assert f"Nr. {number}.\n\n*Not offered as a suggestion: {offer.problem}" in text
    # All of them, from the last line on.
    for thread, text in sorted(good, key=lambda each: -each[0]["line"]):
        commit_suggestion(file, thread, text)
    check_all(container, folder, repository)
