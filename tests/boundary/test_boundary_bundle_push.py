"""How code leaves the sandbox: a bundle in, checks, a rewrite, one commit pushed to one branch of our server."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stepflow.boundary.bundle_push import BundlePush, Pushed
from stepflow.boundary.commit_check import MOST_ENTRIES, CommitRules
from stepflow.boundary.git import Remote
from stepflow.boundary.github_types import Account
from stepflow.errors import BoundaryError, Refused
from tests.boundary.checkout import Checkout, served
from tests.boundary.conftest import TOKEN
from tests.servers.git_http import GitServer

pytestmark = pytest.mark.whole

BOT = Account(id=41898282, login="github-actions[bot]")
BRANCH = "stepflow/fixer/issue-7"


@pytest.fixture
def origin(git_server: GitServer) -> Path:
    return git_server.create("o/r")


@pytest.fixture
def checkout(tmp_path: Path, origin: Path) -> Checkout:
    return Checkout(tmp_path / "checkout", origin)


class Pushing:
    """Pushes what a checkout holds, as the boundary does."""

    def __init__(self, tmp_path: Path, server: GitServer, checkout: Checkout) -> None:
        self._private, self._server, self._checkout = tmp_path / "private", server, checkout
        self._private.mkdir()

    def __call__(
        self,
        *,
        bundle: Path | None = None,
        branch: str = BRANCH,
        fast_forward: bool = False,
        **changes: object,
    ) -> Pushed:
        given: dict[str, object] = {
            "remote": Remote(url=f"{self._server.url}/o/r.git", token=TOKEN),
            "bundle": bundle or self._checkout.bundle(),
            "folder": self._private,
            "base_commit": self._checkout.base,
            "run_id": "run-1",
            "agent": "fixer",
            "issue": 7,
            **changes,
        }
        try:
            pusher = BundlePush(**given)  # type: ignore[arg-type]
            return pusher.push(branch, author=BOT, fast_forward=fast_forward)
        finally:
            assert list(self._private.iterdir()) == []


@pytest.fixture
def push(tmp_path: Path, git_server: GitServer, checkout: Checkout) -> Pushing:
    return Pushing(tmp_path, git_server, checkout)


def branches(origin: Path) -> dict[str, str]:
    lines = served(origin, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads").splitlines()
    return dict(line.split() for line in lines)  # type: ignore[misc]


def test_commits_arrive_with_their_trees_and_the_bots_name(push: Pushing, checkout: Checkout, origin: Path) -> None:
    checkout.write("src/parser.py", "def parse():\n    return 1\n")
    checkout.commit("Parse\n\nfixes #7, thanks @ann [skip ci]\n\nCo-authored-by: Linus <l@x.org>\n")
    checkout.write("docs/ü.md", "Hi\n")
    tip = checkout.commit("")
    pushed = push()
    assert pushed.branch == BRANCH
    assert branches(origin) == {"main": checkout.base, BRANCH: pushed.commit}
    assert served(origin, "rev-parse", f"{pushed.commit}^{{tree}}") == checkout.git("rev-parse", f"{tip}^{{tree}}")
    log = served(origin, "log", "--format=%an %ae %cn %ce %at %ct|%B%x00", f"main..{BRANCH}")
    assert "evil" not in log
    assert "Linus" not in log
    who = "github-actions[bot] 41898282+github-actions[bot]@users.noreply.127.0.0.1"
    ours = "Stepflow-Agent: fixer\nStepflow-Run: run-1\nStepflow-Issue: 7"
    assert [record.strip() for record in log.split("\0")][:-1] == [
        f"{who} {who} 1767323045 1767323045|Work of the agent\n\n{ours}",
        f"{who} {who} 1767323045 1767323045|Parse\n\nf\u200bixes #7, thanks @\u200bann\n\n{ours}",
    ]


def test_the_token_goes_to_the_server_alone_and_only_when_it_is_needed(
    push: Pushing, checkout: Checkout, git_server: GitServer
) -> None:
    checkout.commit()
    push()
    assert git_server.requests
    assert all(request.credential for request in git_server.requests)
    paths = {request.path.split("?")[0] for request in git_server.requests}
    assert all(path.startswith("/o/r.git/") for path in paths)


def test_a_base_that_the_default_branch_has_left_behind_is_fine_and_not_sent_again(
    push: Pushing, checkout: Checkout, origin: Path, git_server: GitServer
) -> None:
    checkout.write("big.bin", os.urandom(300_000))
    checkout.base = checkout.commit("Base")
    checkout.write("later.txt", "later\n")
    later = checkout.commit("Later on main")
    checkout.git("push", "--quiet", str(origin), "main")
    checkout.git("reset", "--quiet", "--hard", checkout.base)
    checkout.write("work.txt", "work\n")
    checkout.commit()
    pushed = push()
    assert branches(origin) == {"main": later, BRANCH: pushed.commit}
    assert served(origin, "merge-base", "main", BRANCH) == checkout.base
    assert sum(request.size for request in git_server.requests) < 10_000


def test_pushing_again_changes_nothing(push: Pushing, checkout: Checkout, origin: Path, git_server: GitServer) -> None:
    checkout.write("a.txt", "a\n")
    checkout.commit()
    first = push()
    git_server.requests.clear()
    assert push() == first
    assert not any("git-receive-pack" in request.path for request in git_server.requests)
    assert branches(origin) == {"main": checkout.base, BRANCH: first.commit}


def test_a_branch_that_somebody_else_pushed_to_is_left_alone(push: Pushing, checkout: Checkout, origin: Path) -> None:
    checkout.write("a.txt", "first\n")
    checkout.commit()
    push()
    checkout.write("human.txt", "human\n")
    human = checkout.commit("Review by a human")
    checkout.git("push", "--quiet", "--force", str(origin), f"HEAD:{BRANCH}")
    second = push(run_id="run-2")
    assert second.branch == f"{BRANCH}-2"
    third = push(run_id="run-3")
    assert third.branch == f"{BRANCH}-2"
    assert branches(origin) == {"main": checkout.base, BRANCH: human, f"{BRANCH}-2": third.commit}


OURS = f"{BOT.id}+{BOT.login}@users.noreply.127.0.0.1"
TRAILERS = "Stepflow-Agent: {agent}\nStepflow-Run: x\nStepflow-Issue: {issue}"
OUR_TRAILERS = TRAILERS.format(agent="fixer", issue=7)
NOT_OURS = {
    "another committer": (OURS, "human@x.org", OUR_TRAILERS),
    "another author": ("human@x.org", OURS, OUR_TRAILERS),
    "an agent of a shorter name": (OURS, OURS, TRAILERS.format(agent="fix", issue=7)),
    "another issue": (OURS, OURS, TRAILERS.format(agent="fixer", issue=8)),
    "a co-author": (OURS, OURS, f"{OUR_TRAILERS}\nCo-authored-by: eve <eve@example.com>"),
    "no trailers": (OURS, OURS, ""),
}


@pytest.mark.whole
@pytest.mark.parametrize(
    ("author", "committer", "trailers"),
    [
        pytest.param(*given, id=name, marks=[pytest.mark.fast] * (name in ("another author", "no trailers")))
        for name, given in NOT_OURS.items()
    ],
)
def test_a_commit_that_is_not_all_ours_is_never_overwritten(
    push: Pushing, checkout: Checkout, origin: Path, author: str, committer: str, trailers: str
) -> None:
    """Whoever amends or rebases our commit becomes its committer, also where the message stays."""
    checkout.write("a.txt", "human\n")
    human = checkout.commit(f"Work\n\n{trailers}".strip(), author=author, committer=committer)
    assert checkout.git("log", "-1", "--format=%ae %ce", human) == f"{author} {committer}"
    checkout.git("push", "--quiet", str(origin), f"HEAD:{BRANCH}")
    checkout.write("a.txt", "ours\n")
    checkout.commit()
    pushed = push()
    assert branches(origin) == {"main": checkout.base, BRANCH: human, f"{BRANCH}-2": pushed.commit}


@pytest.mark.fast
def test_a_commit_that_is_all_ours_is_replaced(push: Pushing, checkout: Checkout, origin: Path) -> None:
    checkout.write("a.txt", "first\n")
    first = checkout.commit(f"Work\n\n{OUR_TRAILERS}", author=OURS, committer=OURS)
    checkout.git("push", "--quiet", str(origin), f"HEAD:{BRANCH}")
    checkout.git("reset", "--quiet", "--hard", checkout.base)
    checkout.write("a.txt", "ours\n")
    checkout.commit()
    pushed = push()
    assert branches(origin) == {"main": checkout.base, BRANCH: pushed.commit}
    assert pushed.commit != first


def test_the_default_branch_is_never_pushed_to(checkout: Checkout, origin: Path, push: Pushing) -> None:
    checkout.git("push", "--quiet", str(origin), f"main:{BRANCH}")
    served(origin, "symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
    checkout.commit()
    with pytest.raises(Refused, match="default branch"):
        push()


def edit(path: str, text: str = "x\n") -> Callable[[Checkout], None]:
    return lambda checkout: checkout.write(path, text)


def link(path: str, target: str) -> Callable[[Checkout], None]:
    def change(checkout: Checkout) -> None:
        (checkout.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout.folder / path).symlink_to(target)

    return change


def nested_repository(checkout: Checkout) -> None:
    inner = checkout.folder / "inner"
    inner.mkdir()
    checkout.git("init", "--quiet", "inner")
    checkout.git("-C", "inner", "commit", "--quiet", "--allow-empty", "-m", "inner")


REFUSED: dict[str, tuple[Callable[[Checkout], None], str]] = {
    "a workflow": (edit(".github/workflows/ci.yml"), "protected path: .github/workflows/ci.yml"),
    "a symlink that climbs out": (link("a/b", "../../x"), "symlink that leaves the tree: a/b"),
    "a nested repository": (nested_repository, "submodule or nested repository: inner"),
    "folders without end": (
        edit("/".join(["d"] * 101) + "/f"),
        "the commits are too large to check (their folders are nested more than 100 deep)",
    ),
}


@pytest.mark.parametrize(("change", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_may_not_leave_is_refused_and_nothing_is_pushed(
    push: Pushing, checkout: Checkout, origin: Path, change: Callable[[Checkout], None], reason: str
) -> None:
    change(checkout)
    checkout.commit()
    with pytest.raises(Refused) as caught:
        push()
    assert caught.value.message == reason
    assert branches(origin) == {"main": checkout.base}


def test_what_a_later_commit_takes_back_counts_too(push: Pushing, checkout: Checkout) -> None:
    checkout.write(".github/workflows/ci.yml", "on: schedule\n")
    checkout.commit("Change")
    checkout.git("checkout", "--quiet", checkout.base, "--", ".github")
    checkout.commit("Take it back")
    with pytest.raises(Refused, match="protected path"):
        push()


def test_another_history_is_refused(push: Pushing, checkout: Checkout, origin: Path) -> None:
    checkout.git("checkout", "--quiet", "--orphan", "other")
    orphan = checkout.commit("Nothing in common")
    file = checkout.folder.parent / "commits.bundle"
    checkout.git("bundle", "create", "--quiet", str(file), "HEAD")
    with pytest.raises(Refused, match=f"do not descend from {checkout.base}"):
        push(bundle=file)
    checkout.git("checkout", "--quiet", "--force", "main")
    checkout.git("merge", "--quiet", "--allow-unrelated-histories", "--no-edit", "-X", "ours", orphan)
    with pytest.raises(Refused, match=f"do not descend from {checkout.base}"):
        push()
    assert branches(origin) == {"main": checkout.base}


def test_commits_that_build_on_something_the_run_did_not_begin_at_are_refused(
    push: Pushing, checkout: Checkout
) -> None:
    middle = checkout.commit("Middle")
    checkout.commit("Tip")
    with pytest.raises(Refused, match=f"build on {middle}"):
        push(bundle=checkout.bundle(middle))


def test_a_bundle_without_its_objects_is_refused(push: Pushing, checkout: Checkout) -> None:
    """As alternates or a replaced .git would leave it."""
    checkout.write("a.txt", "a\n")
    tree = checkout.git("write-tree")
    checkout.git("update-index", "--add", "--cacheinfo", f"100644,{'1' * 40},ghost.txt")
    tree = checkout.git("write-tree", "--missing-ok")
    ghost = checkout.git("commit-tree", tree, "-p", checkout.base, "-m", "ghost")
    pack = checkout.folder.parent / "pack"
    checkout.git("update-ref", "refs/heads/ghost", ghost)
    objects = f"{ghost}\n{tree}\n".encode()
    name = checkout.git("pack-objects", "-q", str(pack), stdin=objects)
    data = Path(f"{pack}-{name}.pack").read_bytes()
    file = checkout.folder.parent / "ghost.bundle"
    file.write_bytes(f"# v2 git bundle\n-{checkout.base} Start\n{ghost} HEAD\n\n".encode() + data)
    with pytest.raises(Refused, match="not sound"):
        push(bundle=file)


@pytest.mark.parametrize(
    "entry",
    [
        b"40000 .git", b"40000 .GIT", b"40000 .git ", b"40000 git~1", b"40000 .g\xe2\x80\x8cit", b"40000 ..",
        b"40000 .", b"40000 docs/more", b"040000 docs",
    ],
)  # fmt: skip
def test_a_folder_that_could_pass_for_another_is_refused(push: Pushing, checkout: Checkout, entry: bytes) -> None:
    """`.git` as a name inside a tree is how hooks travel."""
    blob = checkout.git("hash-object", "-w", "--stdin", stdin=b"* @mallory\n")
    inner = checkout.git("mktree", stdin=f"100644 blob {blob}\tCODEOWNERS\n".encode())
    raw = entry + b"\0" + bytes.fromhex(inner)
    tree = checkout.git("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=raw)
    evil = checkout.git("commit-tree", tree, "-p", checkout.base, "-m", "evil")
    checkout.git("update-ref", "HEAD", evil)
    with pytest.raises(Refused, match="not sound"):
        push()


@pytest.mark.parametrize(
    ("levels", "names", "reason"), [(10, 10, ""), (1, MOST_ENTRIES + 1, "they change more than 20000 paths")]
)
def test_a_tree_that_names_itself_over_and_over_is_refused_in_time(
    push: Pushing, checkout: Checkout, levels: int, names: int, reason: str
) -> None:
    """Ten levels of ten names each are a few hundred bytes, and ten thousand million files: `git diff-tree`
    takes all the memory that it may have before it says the first word."""
    inner = checkout.git("hash-object", "-w", "--stdin", stdin=b"x")
    kind = "100644 blob"
    for _ in range(levels):
        entries = "".join(f"{kind} {inner}\tf{number}\n" for number in range(names))
        inner, kind = checkout.git("mktree", stdin=entries.encode()), "040000 tree"
    bomb = checkout.git("commit-tree", inner, "-p", checkout.base, "-m", "bomb")
    checkout.git("update-ref", "HEAD", bomb)
    with pytest.raises(Refused, match=rf"too large to check \({reason}"):
        push()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"# v2 git bundle\n\nPACK",
        b"# v3 git bundle\n@filter=blob:none\n\nPACK",
        b"# v2 git bundle\n" + b"1" * 40 + b" HEAD\n\nPACK",
    ],
)
def test_what_is_no_bundle_is_refused(push: Pushing, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "odd.bundle"
    file.write_bytes(content)
    with pytest.raises(Refused):
        push(bundle=file)


def test_a_tree_that_the_validators_did_not_see_is_refused(push: Pushing, checkout: Checkout) -> None:
    checkout.write("a.txt", "validated\n")
    checkout.commit()
    validated = checkout.git("rev-parse", "HEAD^{tree}")
    assert push(tree=validated).branch == BRANCH
    checkout.write("a.txt", "changed afterwards\n")
    checkout.commit()
    with pytest.raises(Refused, match="what the validators saw"):
        push(tree=validated)


def test_too_many_commits_are_refused(push: Pushing, checkout: Checkout) -> None:
    tree, tip = checkout.git("rev-parse", "HEAD^{tree}"), checkout.base
    stream = "".join(
        f"commit refs/heads/many\ncommitter M <m@x> {n} +0000\ndata 1\nm\n{f'from {tip}' if n == 1 else ''}\n"
        for n in range(1, 302)
    )
    checkout.git("fast-import", "--quiet", stdin=stream.encode())
    checkout.git("reset", "--quiet", "--hard", "many")
    assert checkout.git("rev-parse", "HEAD^{tree}") == tree
    with pytest.raises(Refused, match="301 commits, and at most 300"):
        push()


def test_a_wrong_token_fails_and_is_not_shown(push: Pushing, checkout: Checkout, git_server: GitServer) -> None:
    checkout.commit()
    with pytest.raises(BoundaryError) as caught:
        push(remote=Remote(url=f"{git_server.url}/o/r.git", token="ghs_wrongwrongwrong"))
    assert "github-token" in str(caught.value)
    assert "wrongwrong" not in str(caught.value)


def test_what_a_person_pushes_between_our_look_and_our_push_stays(
    push: Pushing, checkout: Checkout, origin: Path, git_server: GitServer
) -> None:
    checkout.write("a.txt", "first\n")
    checkout.commit()
    push()
    checkout.write("human.txt", "human\n")
    human = checkout.commit("Review by a human")
    checkout.git("reset", "--quiet", "--hard", checkout.base)
    checkout.write("a.txt", "second\n")
    checkout.commit()
    theirs = f"{human}:refs/heads/{BRANCH}"
    git_server.before_push = lambda: checkout.git("push", "--quiet", "--force", str(origin), theirs)
    second = push(run_id="run-2")
    assert branches(origin) == {"main": checkout.base, BRANCH: human, f"{BRANCH}-2": second.commit}


@pytest.mark.parametrize("url", ["file:///tmp/x", "http://example.com/o/r.git", "ssh://git@x/o/r", "https://u:p@x/o/r"])
def test_commits_go_nowhere_but_over_https(push: Pushing, checkout: Checkout, url: str) -> None:
    checkout.commit()
    with pytest.raises(BoundaryError, match="only https"):
        push(remote=Remote(url=url, token=TOKEN))


KEY = "ghp_" + "aZ09" * 9


def test_a_credential_in_a_commit_is_refused_by_its_place_even_when_a_later_commit_removes_it(
    push: Pushing, checkout: Checkout, origin: Path
) -> None:
    checkout.write("src/config.py", f"import os\nTOKEN = {KEY!r}\n")
    first = checkout.commit("Configure")
    checkout.write("src/config.py", "import os\n")
    checkout.commit("Take it out")
    with pytest.raises(Refused) as refused:
        push()
    assert f"GitHub Token in src/config.py, line 2, commit {first[:12]}" in refused.value.message
    assert "allowedSecretPaths" in refused.value.hint
    assert KEY[8:] not in f"{refused.value.message} {refused.value.hint}"
    assert branches(origin) == {"main": checkout.base}


@pytest.mark.parametrize("content", [f"{KEY}\n".encode("utf-16"), b"\0\1\xff" * 400 + KEY.encode()])
def test_a_credential_in_another_encoding_is_one_too(push: Pushing, checkout: Checkout, content: bytes) -> None:
    checkout.write("notes.bin", content)
    checkout.commit("Notes")
    with pytest.raises(Refused, match=r"GitHub Token in notes\.bin"):
        push()


def test_a_credential_that_the_base_has_in_this_file_does_not_keep_a_change_from_leaving(
    push: Pushing, checkout: Checkout, origin: Path
) -> None:
    checkout.write("tests/keys.txt", f"{KEY}\n")
    checkout.base = checkout.commit("Base")
    checkout.git("push", "--quiet", str(origin), "main")
    checkout.write("tests/keys.txt", f"# for tests\n{KEY}\n")
    checkout.commit("Say what it is")
    assert push().branch == BRANCH


def test_a_path_of_the_definition_may_hold_what_looks_like_one(push: Pushing, checkout: Checkout) -> None:
    checkout.write("tests/keys.txt", f"{KEY}\n")
    checkout.commit("A key for tests")
    with pytest.raises(Refused):
        push(rules=CommitRules(allowed_secret_paths=("docs/**",)))
    assert push(rules=CommitRules(allowed_secret_paths=("tests/keys.*",))).branch == BRANCH


def test_commits_go_on_top_of_a_branch_that_stands_where_the_run_began(
    push: Pushing, checkout: Checkout, origin: Path, git_server: GitServer
) -> None:
    served(origin, "branch", BRANCH, checkout.base)
    checkout.write("a.txt", "A\n")
    checkout.commit("A")
    pushed = push(fast_forward=True)
    assert branches(origin)[BRANCH] == pushed.commit
    assert served(origin, "rev-parse", f"{BRANCH}^").strip() == checkout.base
    git_server.requests.clear()
    assert push(fast_forward=True) == pushed
    assert not [request for request in git_server.requests if "receive-pack" in request.path]


def test_nothing_goes_on_top_of_what_others_have_pushed_deleted_or_called_the_default(
    push: Pushing, checkout: Checkout, origin: Path
) -> None:
    checkout.write("a.txt", "A\n")
    checkout.commit("A")
    with pytest.raises(Refused, match=f"{BRANCH} meanwhile: it is gone, and the run began at {checkout.base[:12]}"):
        push(fast_forward=True)
    with pytest.raises(Refused, match="main is the repository's default branch"):
        push(branch="main", fast_forward=True)
    tree = served(origin, "rev-parse", "main^{tree}").strip()
    theirs = served(origin, "-c", "user.name=B", "-c", "user.email=b@x.org", "commit-tree", tree, "-m", "Mine").strip()
    served(origin, "branch", BRANCH, theirs)
    with pytest.raises(Refused, match=f"meanwhile: it is now at {theirs[:12]}"):
        push(fast_forward=True)
    assert branches(origin) == {"main": checkout.base, BRANCH: theirs}
