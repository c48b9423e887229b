"""Which validators ask git whether the whole tree is clean: what is hidden from git fails them."""

import pytest

from tests.build import make_validator

EMPTY, ZERO = "empty", "exitCode:0"


@pytest.mark.parametrize(
    ("command", "success", "asks"),
    [
        ("git status --porcelain", EMPTY, True),
        ("git status --porcelain=v1 --untracked-files=all", EMPTY, True),
        ("git status -s 2>/dev/null", EMPTY, True),
        ("make build >&2 && git status --porcelain", EMPTY, True),
        ("git status", "contains:nothing to commit", True),
        ('test -z "$(git status --porcelain)"', ZERO, True),
        ('[ -z "`git status --short`" ] || exit 1', ZERO, True),
        ("git status && npm test", ZERO, False),
        ("git status --porcelain -- src", EMPTY, False),
        ("git status --porcelain src", EMPTY, False),
        ("git status --porcelain --untracked-files=no", EMPTY, False),
        ("git status --porcelain -uno", EMPTY, False),
        ("git status --porcelain | grep -v '^??'", EMPTY, False),
        ("git -C sub status --porcelain", EMPTY, False),
        ("mypy .", ZERO, False),
        ("git log; ./status", ZERO, False),
        ("git push --dry-run", ZERO, False),
    ],
)
def test_the_command_decides(command: str, success: str, asks: bool) -> None:
    assert make_validator("clean", command, success_when=success).clean_tree is asks
