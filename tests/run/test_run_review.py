"""The lines of a pull request that a comment can be on, whatever its base has become meanwhile."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from stepflow.boundary.git import Git, Remote
from stepflow.domain.run import ReviewedPull
from stepflow.run.pull_request.review import FileChange, lines_to_comment, read_changes
from tests.tried import tried

TEXTS = st.lists(st.sampled_from([*"abcdefgh", "", "-- a", "++ b", "@@ -1 +1 @@", "\\ No newline"]), max_size=30)
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "t"), ("EMAIL", "t@example.com"), ("DATE", "@0 +0000"))
}


def commit(git: Git, lines: list[str]) -> str:
    blob = git.run("hash-object", "-w", "--stdin", stdin="".join(f"{line}\n" for line in lines).encode())
    tree = git.run("mktree", stdin=b"100644 blob " + blob.strip() + b"\ta.txt\n").decode().strip()
    return git.run("commit-tree", tree, "-m", "x", env=IDENTITY).decode().strip()


@tried(15)
@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_a_comment_is_on_the_same_line_here_and_there(
    parting: list[str], base: list[str], head: list[str], merge: list[str]
) -> None:
    with TemporaryDirectory() as folder:
        git = Git(Path(folder) / "git", Remote(url="https://example.com/o/r.git", token=""))
        commits = [commit(git, text) for text in (parting, base, head, merge)]
        known = dict(zip(("base_commit", "head", "merge"), commits[1:], strict=True))
        pull = ReviewedPull(number=8, url="", author="eve", base="main", **known)
        changes = [FileChange(letter="M", before="a.txt", path="a.txt")]
        files = lines_to_comment(git, pull, commits[0], changes)
        (whole,) = read_changes(git, commits[0], commits[2]) or [changes[0]]
    shown = {new for hunk in whole.hunks for line, _, new in hunk.numbered if line[:1] in ("+", " ")}
    removed = {old for hunk in whole.hunks for line, old, _ in hunk.numbered if line[:1] == "-"}
    for file in files:
        for sides, here, there, allowed in ((file.right, merge, head, shown), (file.left, base, parting, removed)):
            for piece in sides:
                for number in range(piece.first, piece.last + 1):
                    assert number + piece.shift in allowed
                    assert here[number - 1] == there[number + piece.shift - 1]
    if merge == head and base == parting:
        numbers = [number for file in files for piece in file.right for number in range(piece.first, piece.last + 1)]
        assert set(numbers) == shown
