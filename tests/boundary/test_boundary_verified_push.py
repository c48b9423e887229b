"""`commits: verified`: GitHub writes and signs the commits that were checked, and git pushes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepflow.boundary.bundle_push import BundlePush, Pushed
from stepflow.boundary.git import Remote
from stepflow.boundary.github_failures import RetryPolicy, WriteFailed
from stepflow.boundary.github_types import Account
from stepflow.boundary.github_writer import GitHubWriter
from stepflow.errors import BoundaryError, Refused
from tests.boundary.checkout import Checkout, served
from tests.boundary.conftest import TOKEN
from tests.servers.bare_repository import BareRepository
from tests.servers.git_http import GitServer
from tests.servers.github_api import GitHubServer, State
from tests.world import FastClock

pytestmark = pytest.mark.whole

BOT = Account(id=41898282, login="github-actions[bot]")
BRANCH = "stepflow/fixer/issue-7"


@pytest.fixture
def origin(git_server: GitServer, state: State) -> Path:
    state.git_dir = git_server.create("o/r")
    return state.git_dir


@pytest.fixture
def checkout(tmp_path: Path, origin: Path) -> Checkout:
    return Checkout(tmp_path / "checkout", origin)


class Writing:
    """Hands over what a checkout holds, as the boundary does."""

    def __init__(self, folder: Path, server: GitServer, checkout: Checkout, writer: GitHubWriter) -> None:
        self._folder, self._server, self._checkout, self._writer = folder, server, checkout, writer
        folder.mkdir()

    def __call__(self, **changes: object) -> Pushed:
        given: dict[str, object] = {
            "remote": Remote(url=f"{self._server.url}/o/r.git", token=TOKEN),
            "bundle": self._checkout.bundle(),
            "folder": self._folder,
            "base_commit": self._checkout.base,
            "run_id": "run-1",
            "agent": "fixer",
            "issue": 7,
            "signer": self._writer,
            **changes,
        }
        push = BundlePush(**given)  # type: ignore[arg-type]
        # As a run does: what may pass is waited out.
        policy = RetryPolicy(clock=FastClock(), until=float("inf"))
        return policy.repeat(lambda: push.push(BRANCH, author=BOT))


@pytest.fixture
def write(tmp_path: Path, git_server: GitServer, checkout: Checkout, writer: GitHubWriter) -> Writing:
    return Writing(tmp_path / "private", git_server, checkout, writer)


@pytest.fixture(autouse=True)
def nothing_is_pushed(git_server: GitServer) -> Iterator[None]:
    yield
    assert not [request for request in git_server.requests if "receive-pack" in request.path]


def branches(origin: Path) -> dict[str, str]:
    lines = served(origin, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads").splitlines()
    return dict(line.split() for line in lines)  # type: ignore[misc]


def messages(origin: Path, branch: str = BRANCH) -> list[str]:
    """Newest first."""
    text = served(origin, "log", "--format=%B%x00", f"main..{branch}")
    return [message.strip() for message in text.split("\0")][:-1]


def two_commits(checkout: Checkout) -> None:
    checkout.write("src/parser.py", "def parse():\n    return 1\n")
    checkout.commit("Parse\nfixes #7, thanks @ann\n\nCo-authored-by: Linus <l@x.org>\n")
    checkout.git("mv", "README.md", "docs.md")
    checkout.write("bin.dat", os.urandom(2000))
    checkout.commit("Move")


def test_github_makes_and_signs_each_commit_and_the_tree_is_what_was_checked(
    write: Writing, checkout: Checkout, origin: Path, github: GitHubServer
) -> None:
    two_commits(checkout)
    tree = checkout.git("rev-parse", "HEAD^{tree}")
    done = write(tree=tree)
    assert (done.branch, done.note) == (BRANCH, f"signed by GitHub; tree {tree} as validated")
    assert branches(origin) == {"main": checkout.base, BRANCH: done.commit}
    assert served(origin, "rev-parse", f"{done.commit}^{{tree}}") == tree
    assert served(origin, "rev-parse", f"{done.commit}~2") == checkout.base
    ours = "Stepflow-Agent: fixer\nStepflow-Run: run-1\nStepflow-Issue: 7"
    assert messages(origin) == [f"Move\n\n{ours}", f"Parse\n\nf\u200bixes #7, thanks @\u200bann\n\n{ours}"]
    assert "gpgsig" in served(origin, "cat-file", "commit", done.commit)
    assert github.mutations() == ["updateRefs", "createCommitOnBranch", "createCommitOnBranch"]
    assert github.writes() == []


@pytest.mark.parametrize("run", ["run-1", "run-2"])
def test_writing_again_writes_nothing(write: Writing, checkout: Checkout, github: GitHubServer, run: str) -> None:
    two_commits(checkout)
    first = write()
    github.requests.clear()
    assert write(run_id=run) == first
    assert github.mutations() == []


RULE = "Repository rule violations found\n\nChanges must be made through a pull request.\n\n"


@pytest.mark.parametrize("kind", ["UNPROCESSABLE", "BRANCH_PROTECTION_RULE_VIOLATION", ""])
def test_a_rule_that_refuses_the_commits_is_named_and_leaves_no_empty_branch(
    write: Writing, checkout: Checkout, origin: Path, github: GitHubServer, kind: str
) -> None:
    two_commits(checkout)
    error = {"message": RULE, "extensions": {"code": "x"}, **({"type": kind} if kind else {})}
    content = json.dumps({"data": {"createCommitOnBranch": None}, "errors": [error]})
    github.fail("POST", "createCommitOnBranch", 200, content=content, times=9)
    with pytest.raises(WriteFailed) as caught:
        write()
    assert "127.0.0.1 answered 200 (Repository rule violations found" in caught.value.message
    assert "A repository rule on GitHub forbids this push" in caught.value.hint
    assert branches(origin) == {"main": checkout.base}
    assert github.mutations() == ["updateRefs", "createCommitOnBranch", "updateRefs"]


@pytest.mark.parametrize("status", [404, 422])
def test_commits_that_github_does_not_know_yet_are_looked_at_again(
    write: Writing, checkout: Checkout, github: GitHubServer, status: int
) -> None:
    two_commits(checkout)
    github.fail("GET", "/commits/", status, "No commit found for SHA", times=3, since="POST .*graphql")
    assert write().branch == BRANCH
    assert github.mutations() == ["updateRefs", "createCommitOnBranch", "createCommitOnBranch"]


def test_a_commit_that_git_has_pushed_before_is_written_again_so_that_all_are_signed(
    write: Writing, checkout: Checkout, origin: Path
) -> None:
    """The first of the two is on the branch already, with the same tree and message, and nobody has signed it."""
    two_commits(checkout)
    first = checkout.git("rev-parse", "HEAD^")
    tree, message = checkout.git("rev-parse", "HEAD^^{tree}"), messages_of(write, origin)[-1]
    bot = f"{BOT.login} <{BOT.id}+{BOT.login}@users.noreply.github.com> 1767323045 +0000"
    text = f"tree {tree}\nparent {checkout.base}\nauthor {bot}\ncommitter {bot}\n\n{message}\n"
    unsigned = checkout.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=text.encode())
    assert unsigned != first
    checkout.git("push", "--quiet", "--force", str(origin), f"{unsigned}:refs/heads/{BRANCH}")
    done = write()
    assert done.branch == BRANCH
    for commit in served(origin, "rev-list", f"main..{BRANCH}").split():
        assert "gpgsig" in served(origin, "cat-file", "commit", commit)


def messages_of(write: Writing, origin: Path) -> list[str]:
    """The messages that the commits leave with, newest first; the branch is not there afterwards."""
    write()
    written = messages(origin)
    served(origin, "update-ref", "-d", f"refs/heads/{BRANCH}")
    return written


def executable(checkout: Checkout) -> None:
    checkout.write("tools/run.sh", "#!/bin/sh\n")
    (checkout.folder / "tools/run.sh").chmod(0o755)


def symlink(checkout: Checkout) -> None:
    (checkout.folder / "tools").mkdir()
    (checkout.folder / "tools/link").symlink_to("../README.md")


def made_executable(checkout: Checkout) -> None:
    (checkout.folder / "src/parser.py").chmod(0o755)


def large(checkout: Checkout) -> None:
    """Back to what the base has, which no limit on the run's own changes sees."""
    checkout.write("big.bin", b"\0" * (9 * 1024 * 1024))
    checkout.base = checkout.commit("Base")
    checkout.git("push", "--quiet", str(checkout.origin), "main")
    checkout.write("big.bin", b"small")
    checkout.commit("Smaller")
    checkout.write("big.bin", b"\0" * (9 * 1024 * 1024))


def odd_name(checkout: Checkout) -> None:
    Path(os.fsdecode(os.fsencode(checkout.folder) + b"/caf\xe9.txt")).write_text("x")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (executable, "an executable file: tools/run.sh"),
        (symlink, "a symlink: tools/link"),
        (made_executable, "a change of mode: src/parser.py"),
        (large, "at most 8 MiB in one commit; the largest file is big.bin"),
        (odd_name, "a name that is not UTF-8: caf\\udce9.txt"),
    ],
)
def test_what_the_api_cannot_carry_is_refused_by_path_before_anything_is_written(
    write: Writing,
    checkout: Checkout,
    origin: Path,
    github: GitHubServer,
    make: Callable[[Checkout], None],
    says: str,
) -> None:
    make(checkout)
    checkout.commit("Cannot")
    checkout.write("later.txt", "fine\n")
    checkout.commit("Can")
    with pytest.raises(Refused) as caught:
        write()
    assert says in str(caught.value)
    assert "commits: git" in caught.value.hint
    assert (github.mutations(), branches(origin)) == ([], {"main": checkout.base})


def test_a_merge_is_refused(write: Writing, checkout: Checkout, github: GitHubServer) -> None:
    checkout.merge_two_sides()
    with pytest.raises(Refused, match=r"cannot write a merge commit: [0-9a-f]{12}"):
        write()
    assert github.mutations() == []


@pytest.mark.parametrize(
    ("path", "says"), [(".github/workflows/ci.yml", "protected path"), ("key.pem", "looks like a credential")]
)
def test_the_checks_of_a_push_hold_here_too(
    write: Writing, checkout: Checkout, github: GitHubServer, path: str, says: str
) -> None:
    checkout.write(path, "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEow" * 40 + "\n-----END RSA PRIVATE KEY-----\n")
    checkout.commit()
    with pytest.raises(Refused, match=says):
        write()
    assert github.mutations() == []


def test_our_branch_is_replaced_in_one_step_so_that_its_pull_request_stays_open(
    write: Writing, checkout: Checkout, origin: Path, github: GitHubServer
) -> None:
    two_commits(checkout)
    before = write()
    checkout.git("reset", "--quiet", "--hard", checkout.base)
    checkout.write("other.txt", "other\n")
    checkout.commit("Another way")
    github.requests.clear()
    done = write(run_id="run-2")
    assert branches(origin) == {"main": checkout.base, BRANCH: done.commit}
    assert [message.split("\n")[0] for message in messages(origin)] == ["Another way"]
    moved = [r.body["variables"]["input"]["refUpdates"] for r in github.requests if "updateRefs" in str(r.body)][-1]
    assert [(each["beforeOid"], each["afterOid"]) for each in moved] == [
        (before.commit, done.commit),
        (done.commit, "0" * 40),
    ]


def test_the_default_branch_is_never_written(write: Writing, checkout: Checkout, origin: Path) -> None:
    two_commits(checkout)
    served(origin, "update-ref", f"refs/heads/{BRANCH}", checkout.base)
    served(origin, "symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
    with pytest.raises(Refused, match="default branch"):
        write()


#: What happens to one write, and whether it passes by itself.
FAULTS: dict[str, dict[str, object]] = {
    "503 before": {"status": 503},
    "502 after": {"status": 502, "after_write": True},
    "lost before": {"status": 0},
    "lost after": {"status": 0, "after_write": True},
    "429": {"status": 429, "headers": {"retry-after": "3"}},
    "stale head": {
        "status": 200,
        "content": json.dumps({"errors": [{"type": "STALE_DATA", "message": "Expected branch to point to"}]}),
    },
    "some other rejection": {"status": 200, "content": json.dumps({"errors": [{"message": "Something moved"}]})},
}
#: Each write of a replaced branch: the branch beside it, two commits, and the step that ends it; and how many writes
#: of its kind come before it.
PLACES = {
    "beside": ("updateRefs", 0),
    "first commit": ("createCommitOnBranch", 0),
    "second commit": ("createCommitOnBranch", 1),
    "replace": ("updateRefs", 1),
}


@pytest.mark.sample(7)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fault", FAULTS)
def test_trouble_at_each_write_passes_and_nothing_is_written_twice(
    write: Writing, checkout: Checkout, origin: Path, github: GitHubServer, fault: str, place: str
) -> None:
    checkout.write("first.txt", "first\n")
    checkout.commit("Before")
    write()
    checkout.git("reset", "--quiet", "--hard", checkout.base)
    two_commits(checkout)
    github.requests.clear()
    mutation, before = PLACES[place]
    github.fail("POST", f"/graphql {mutation}", skip=before, **FAULTS[fault])  # type: ignore[arg-type]
    done = write(run_id="run-2")
    assert branches(origin) == {"main": checkout.base, BRANCH: done.commit}
    assert len(messages(origin)) == 2
    assert served(origin, "rev-parse", f"{done.commit}^{{tree}}") == checkout.git("rev-parse", "HEAD^{tree}")
    github.requests.clear()
    assert write(run_id="run-3") == done
    assert github.mutations() == []


@pytest.mark.fast
def test_a_server_that_does_not_sign_is_named(write: Writing, checkout: Checkout, github: GitHubServer) -> None:
    github.state.signs = False
    two_commits(checkout)
    with pytest.raises(BoundaryError, match="did not sign") as caught:
        write()
    assert "commits: git" in caught.value.hint


def test_a_tree_that_is_not_the_one_that_was_checked_fails_and_replaces_nothing(
    write: Writing, checkout: Checkout, origin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_commits(checkout)
    before = write()
    checkout.write("other.txt", "other\n")
    checkout.commit("Another way")
    checkout.git("reset", "--quiet", "--soft", checkout.base)
    checkout.commit("All at once")
    wrong = served(origin, "rev-parse", "main^{tree}")
    monkeypatch.setattr(BareRepository, "_tree", lambda *_: wrong)
    with pytest.raises(BoundaryError, match=f"GitHub made the tree {wrong}") as caught:
        write(run_id="run-2")
    assert "commits: git" in caught.value.hint
    assert branches(origin)[BRANCH] == before.commit
