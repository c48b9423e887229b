"""Every suggestion that is posted applies and keeps the checks green, in the image, for Python, TypeScript and Go."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.repository import git
from tests.e2e.suggestions import REPOSITORIES
from tests.e2e.test_e2e_prove import container, succeed
from tests.servers.reviews import diff_hunks

if TYPE_CHECKING:
    from tests.e2e.suggestions import Offer, Repository

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
__all__ = ["container"]
DRIVER = Path(__file__).parent / "suggestions" / "in_image.py"
PYTHON = "/opt/stepflow/bin/python"
BLOCK = re.compile(r"(?s)\n(?P<fence>`{3,})suggestion\n(?P<text>.*?)(?P=fence)$")


@pytest.fixture(scope="module")
def machine(container: tuple[str, Path]) -> tuple[str, Path]:
    """The container, with Go."""
    succeed(container[0], "apt-get update -qq && apt-get install -y -qq --no-install-recommends golang-go")
    return container


def make_pull_request(folder: Path, repository: Repository) -> None:
    """A checkout at a pull request that changes the file."""
    folder.mkdir()
    git(folder, "init", "--quiet")
    for name, text in repository.files.items():
        (folder / name).write_text(text)
    for text in (repository.base, repository.head):
        (folder / repository.path).write_bytes(text.encode())
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


def review(machine: tuple[str, Path], folder: Path, repository: Repository) -> dict[str, Any]:
    """What would be posted of a review with all suggestions."""
    name, _ = machine
    hunks = diff_hunks(git(folder, "diff", "HEAD^", "HEAD", "--", repository.path))
    given = {
        "root": f"/repositories/{folder.name}",
        "scratch": f"/tmp/{folder.name}",
        "path": repository.path,
        "lines": [(hunk["RIGHT"].start, hunk["RIGHT"].stop - 1) for hunk in hunks],
        "checks": dict(repository.checks),
        "review": {
            "summary": "Read.",
            "verdict": "comment",
            "comments": [as_comment(repository, offer, number) for number, offer in enumerate(repository.offers)],
        },
    }
    succeed(name, f"rm -rf {given['scratch']} && mkdir -p {given['scratch']}")
    command = ["docker", "exec", "--interactive", name, PYTHON, "-I", "-c", DRIVER.read_text()]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    posted: dict[str, Any] = json.loads(done.stdout)
    return posted


def commit_suggestion(file: Path, comment: dict[str, Any], text: str) -> None:
    """Do what a person does by GitHub's button, with the line endings of the file."""
    ending = "\r\n" if b"\r\n" in file.read_bytes() else "\n"
    lines = file.read_bytes().decode().split(ending)
    new = text.removesuffix("\n").split("\n") if text else []
    lines[(comment["start_line"] or comment["line"]) - 1 : comment["line"]] = new
    file.write_bytes(ending.join(lines).encode())


def check(machine: tuple[str, Path], folder: Path, repository: Repository) -> None:
    for name, command in repository.checks.items():
        if name not in repository.red_before:
            succeed(machine[0], f"cd /repositories/{folder.name} && {command}")


def test_forty_suggestions_on_ten_repositories_are_half_wrong() -> None:
    offers = [offer for repository in REPOSITORIES.values() for offer in repository.offers]
    assert (len(REPOSITORIES), len(offers), sum(bool(offer.problem) for offer in offers)) == (10, 40, 20)


@pytest.mark.parametrize("name", [*REPOSITORIES])
def test_what_is_posted_as_a_suggestion_applies_and_keeps_the_checks_green(
    machine: tuple[str, Path], name: str
) -> None:
    repository, folder = REPOSITORIES[name], machine[1] / name.replace(" ", "-")
    make_pull_request(folder, repository)
    if repository.setup:
        succeed(machine[0], f"cd /repositories/{folder.name} && {repository.setup}")
    posted = review(machine, folder, repository)
    assert posted["tried"]["red_before"] == [*repository.red_before]
    shown = {comment["body"].partition("\n")[0]: comment for comment in posted["comments"]}
    file, good = folder / repository.path, []
    for number, (offer, tried) in enumerate(zip(repository.offers, posted["tried"]["suggestions"], strict=True)):
        assert tried["problem"].startswith(offer.problem), (offer, tried)
        assert bool(tried["problem"]) == bool(offer.problem), (offer, tried)
        comment = shown.get(f"Nr. {number}.")
        block = comment and BLOCK.search(comment["text"])
        assert bool(block) == (not offer.problem), comment
        if comment and block:
            good.append((comment, block["text"]))
            commit_suggestion(file, comment, block["text"])
            assert git(folder, "diff", "--name-only").split() == [repository.path]
            check(machine, folder, repository)
            git(folder, "checkout", "--quiet", "--", repository.path)
        else:
            words = comment["text"] if comment else posted["body"]
            assert tried["problem"] in words
    # All of them, from the last line on.
    for comment, text in sorted(good, key=lambda each: -each[0]["line"]):
        commit_suggestion(file, comment, text)
    check(machine, folder, repository)
