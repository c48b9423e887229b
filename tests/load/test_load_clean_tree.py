"""Which validators ask git whether the tree is clean, and so get a second look when they are green (security.md 14)."""

import pytest

from stepflow.domain.definition import ExitCode, OutputContains, OutputEmpty, SuccessRule
from stepflow.domain.words import CleanTree
from stepflow.load.clean_tree import clean_tree

EMPTY, ZERO = OutputEmpty(), ExitCode(code=0)


@pytest.mark.parametrize(
    ("command", "success", "asks"),
    [
        ("git status --porcelain", EMPTY, CleanTree.WHOLE),
        ("git status --porcelain=v1 --untracked-files=all", EMPTY, CleanTree.WHOLE),
        ("git status -s 2>/dev/null", EMPTY, CleanTree.WHOLE),
        ("make build >&2 && git status --porcelain", EMPTY, CleanTree.WHOLE),
        ("git status", OutputContains(text="nothing to commit"), CleanTree.WHOLE),
        ('test -z "$(git status --porcelain)"', ZERO, CleanTree.WHOLE),
        ('[ -z "`git status --short`" ] || exit 1', ZERO, CleanTree.WHOLE),
        ("git status && npm test", ZERO, CleanTree.PARTLY),
        ("git status --porcelain -- src", EMPTY, CleanTree.PARTLY),
        ("git status --porcelain src", EMPTY, CleanTree.PARTLY),
        ("git status --porcelain --untracked-files=no", EMPTY, CleanTree.PARTLY),
        ("git status --porcelain -uno", EMPTY, CleanTree.PARTLY),
        ("git status --porcelain | grep -v '^??'", EMPTY, CleanTree.PARTLY),
        ("git -C sub status --porcelain", EMPTY, CleanTree.PARTLY),
        ("mypy .", ZERO, CleanTree.NONE),
        ("git log; ./status", ZERO, CleanTree.NONE),
        ("git push --dry-run", ZERO, CleanTree.NONE),
    ],
)
def test_the_command_decides(command: str, success: SuccessRule, asks: CleanTree) -> None:
    assert clean_tree(command, success, "other") is asks


def test_the_failure_pattern_for_a_dirty_tree_decides_too() -> None:
    assert clean_tree("make check-clean", ZERO, "git-dirty") is CleanTree.PARTLY
    assert clean_tree("git status --porcelain", EMPTY, "git-dirty") is CleanTree.WHOLE
