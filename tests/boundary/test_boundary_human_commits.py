"""No order of runs, follow-ups, resumed runs and people's own pushes loses a person's commit.

The orders are random, and the same ones every time."""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from stepflow.boundary.bundle_push import BundlePush
from stepflow.boundary.git import Remote
from stepflow.boundary.github_failures import GitHubFailed
from stepflow.boundary.github_types import Account
from stepflow.boundary.github_writer import GitHubWriter
from stepflow.errors import Refused
from tests.boundary.checkout import Checkout, served
from tests.boundary.conftest import TOKEN
from tests.covering import FULL
from tests.servers.bare_repository import BareRepository
from tests.servers.git_http import GitServer
from tests.servers.github_api import GitHubServer, State

BOT = Account(id=41898282, login="github-actions[bot]")
BRANCH = "stepflow/fixer/issue-7"


class Story:
    """Runs for one issue, and people who change its branches before, between and within them."""

    def __init__(self, folder: Path, git_server: GitServer, github: GitHubServer, seed: int) -> None:
        self.git_server, self.github, self.random = git_server, github, random.Random(seed)
        self.origin = git_server.create("o/r")
        github.state.git_dir = self.origin
        self.checkout = Checkout(folder / "checkout", self.origin)
        self.folder, self.number = folder, count(1)
        self.people, self.told = {self.checkout.base}, list[str]()

    def tell(self, events: int) -> None:
        runs = (self.label, self.label, self.follow_up, self.killed_and_resumed)
        people = (self.push, self.force_push, self.suggestion, self.update_branch, self.cherry_pick, self.amend)
        for _ in range(events):
            happens = self.random.choice(self.random.choice((runs, people)))
            self.told.append(happens.__name__)
            happens()

    @contextmanager
    def nothing_lost(self) -> Iterator[None]:
        before = self.kept()
        yield
        assert before <= self.kept(), self.told

    def kept(self) -> set[str]:
        """The commits of people that some branch has."""
        return self.people & set(served(self.origin, "rev-list", "--branches").split())

    def branches(self) -> list[str]:
        return served(self.origin, "for-each-ref", "--format=%(refname:short)", f"refs/heads/{BRANCH}*").split()

    def text(self) -> str:
        return f"number {next(self.number)}"

    # Runs

    def label(self) -> None:
        with self.nothing_lost():
            self.new_run("main", self.random.randint(1, 2)).push()

    def follow_up(self) -> None:
        """A run on top of a branch, whatever is on it."""
        if branches := self.branches():
            branch = self.random.choice(branches)
            run = self.new_run(branch, 1)
            if self.random.random() < 0.3:
                self.random.choice((self.push, self.force_push, self.suggestion))()
            with self.nothing_lost():
                run.push(branch, fast_forward=True)

    def killed_and_resumed(self) -> None:
        """A run that was cut off before or behind a write; what people do then; and the same run again."""
        run = self.new_run("main", self.random.randint(1, 2))
        with self.nothing_lost():
            after = self.random.random() < 0.5
            self.git_server.fail("/git-receive-pack$", 0, times=9, after_write=after)
            writes = "/graphql (updateRefs|createCommitOnBranch)$"
            self.github.fail("POST", writes, 0, times=9, after_write=after, skip=self.random.randrange(4))
            run.push(may_fail=True)
            self.git_server.faults.clear()
            self.github.state.faults.clear()
        if self.random.random() < 0.7:
            self.random.choice((self.push, self.force_push, self.suggestion, self.label))()
        with self.nothing_lost():
            run.push()

    def new_run(self, begins: str, commits: int) -> Run:
        self.check_out(begins)
        base = self.checkout.git("rev-parse", "HEAD")
        for _ in range(commits):
            self.checkout.write("greeting.txt", f"{self.text()}\n")
            self.checkout.commit()
        bundle = self.checkout.bundle(base).rename(self.folder / f"{next(self.number)}.bundle")
        return Run(self, bundle, base, f"run-{next(self.number)}", verified=self.random.random() < 0.4)

    # People

    def push(self) -> None:
        self.change(lambda: self.checkout.commit(self.text()))

    def force_push(self) -> None:
        """What is on top is dropped, for something else."""

        def drop() -> None:
            self.checkout.git("reset", "--quiet", "--hard", "HEAD^", check=False)
            self.checkout.commit(self.text())

        self.change(drop)

    def amend(self) -> None:
        self.change(lambda: self.checkout.git("commit", "--quiet", "--amend", "--no-edit", "--allow-empty"))

    def cherry_pick(self) -> None:
        """A commit of one branch is put on another."""
        (oid,) = served(self.origin, "rev-list", "--no-merges", "--max-count=1", self.a_branch()).split()
        strategy = ("--allow-empty", "--keep-redundant-commits", "-X", "theirs")
        self.change(lambda: self.checkout.git("cherry-pick", *strategy, oid))

    def update_branch(self) -> None:
        """Main goes on, and the button under the pull request merges it into the branch."""
        self.check_out("main")
        self.people.add(self.checkout.commit(self.text()))
        self.checkout.git("push", "--quiet", str(self.origin), "HEAD:main")
        self.change(lambda: self.checkout.git("merge", "--quiet", "--no-ff", "--no-edit", "origin/main"))

    def suggestion(self) -> None:
        """GitHub commits for the person who applies it."""
        branch = self.a_branch()
        tip = served(self.origin, "rev-parse", branch)
        contents = {"greeting.txt": b64encode(self.text().encode()).decode()}
        author = "bob <11+bob@users.noreply.github.com>"
        repository = BareRepository(self.origin)
        if branch != "main":
            self.people.add(repository.append(branch, tip, "Apply it", contents, [], author=author, signs=True))

    def change(self, how: Callable[[], object]) -> None:
        if (branch := self.a_branch()) != "main":
            self.check_out(branch)
            how()
            self.people.add(self.checkout.git("rev-parse", "HEAD"))
            self.checkout.git("push", "--quiet", "--force", str(self.origin), f"HEAD:{branch}")

    def a_branch(self) -> str:
        return self.random.choice(self.branches() or ["main"])

    def check_out(self, branch: str) -> None:
        self.checkout.git("fetch", "--quiet", "--prune", str(self.origin), "+refs/heads/*:refs/remotes/origin/*")
        self.checkout.git("checkout", "--quiet", "--force", "--detach", f"origin/{branch}")


class Run:
    """The commits of one run, to be pushed once or again."""

    def __init__(self, story: Story, bundle: Path, base: str, run_id: str, *, verified: bool) -> None:
        self.story, self.bundle, self.base, self.run_id, self.verified = story, bundle, base, run_id, verified

    def push(self, branch: str = BRANCH, *, fast_forward: bool = False, may_fail: bool = False) -> None:
        github = self.story.github
        writer = GitHubWriter(api_url=github.api_url, repository="o/r", token=TOKEN)
        push = BundlePush(
            remote=Remote(url=f"{self.story.git_server.url}/o/r.git", token=TOKEN),
            bundle=self.bundle,
            folder=self.story.folder,
            base_commit=self.base,
            run_id=self.run_id,
            agent="fixer",
            issue=7,
            signer=writer if self.verified else None,
        )
        try:
            push.push(branch, author=BOT, fast_forward=fast_forward)
        except Refused:
            assert fast_forward, self.story.told
        except GitHubFailed:
            assert may_fail, self.story.told
        finally:
            writer.close()


@pytest.mark.sample(2)
@pytest.mark.whole
@pytest.mark.parametrize("seed", range(30 if FULL else 8))
def test_no_order_of_runs_and_people_loses_a_commit(
    tmp_path: Path, git_server: GitServer, github: GitHubServer, state: State, seed: int
) -> None:
    Story(tmp_path, git_server, github, seed).tell(events=10)
