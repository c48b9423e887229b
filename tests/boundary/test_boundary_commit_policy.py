"""Which paths and messages may leave, as tables."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepflow.boundary.commit_check import LONGEST_MESSAGE, SYMLINK, Change, CommitRules, clean_message, judge_changes
from stepflow.boundary.output_filter import OutputFilter
from stepflow.domain.agent.agent_settings import DEFAULT_PROTECTED_PATHS
from stepflow.domain.secrets import Redactor

SECRET = "ghs_secretsecret"
FILTER = OutputFilter(redactor=Redactor((SECRET,)))


def test_a_secret_is_masked_before_a_message_is_shortened() -> None:
    for shown in range(1, len(SECRET)):
        message = clean_message("Subject\n\n" + "x" * (LONGEST_MESSAGE - 9 - shown) + SECRET + "y" * 99, {}, FILTER)
        assert SECRET[:2] not in message


OURS = {"Stepflow-Run": "run-1"}


def changed(path: str, **more: object) -> Change:
    return Change(**{"path": path, "mode": "100644", "oid": path, **more})  # type: ignore[arg-type]


def judge(changes: list[Change], protected: tuple[str, ...], **limits: int) -> str | None:
    """The first rule that the changes break."""
    rules = CommitRules(protected_paths=protected, **limits)
    return next((violation.message for violation in judge_changes(changes, rules)), None)


@pytest.mark.parametrize(
    "path",
    [
        ".github/workflows/ci.yml",
        ".agent/a/agent.json",
        "packages/widget/.agent/a/agent.json",
        "action.yml",
        "nested/action.yml",
        "docs/codeowners",
        ".github./workflows/x.yml",
        ".github /x",
        "docs/CODEOWNERS. .",
        ".g\u200cithub/x",
        "action.\ufeffyml",
        "CODEOWNER\u017f",
    ],
)
def test_the_default_protected_paths(path: str) -> None:
    shown = path.encode("unicode_escape").decode()
    assert judge([changed(path)], DEFAULT_PROTECTED_PATHS) == f"protected path: {shown}"


@pytest.mark.parametrize("path", ["github/x", "a/.github/x", "action.yml.md", "my-action.yml", ".agents/x", "src/a.py"])
def test_paths_that_only_look_protected(path: str) -> None:
    assert judge([changed(path)], DEFAULT_PROTECTED_PATHS) is None


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("*.lock", "a/b/yarn.lock", True),
        ("/*.lock", "yarn.lock", True),
        ("/*.lock", "a/yarn.lock", False),
        ("src/*.py", "src/a/b.py", False),
        ("src/**/b.py", "src/b.py", True),
        ("src/", "src/a", True),
        ("é", "e\u0301", True),
        ("straße", "STRASSE", True),
        ("./src", "src/a", True),
        ("./src", "a/src", False),
        ("/**", "a", True),
        ("*.[ch]", "a/b.x", False),
    ],
)
def test_globs_mean_what_they_mean_to_git(glob: str, path: str, fits: bool) -> None:
    assert (judge([changed(path)], (glob,)) is not None) is fits


@pytest.mark.parametrize(
    ("path", "target", "leaves"),
    [
        ("a", "b", False),
        ("a/b", "../c", False),
        ("a", "../b", True),
        ("a/b", "../../c", True),
        ("a/b", "c/../../d", True),
        ("a/b", "c/..", True),
        ("a", ".GIT/config", True),
        ("a", "d/.g\u200cit/config", True),
        ("a", "", True),
        ("a/b", "..", False),
    ],
)
def test_symlinks(path: str, target: str, leaves: bool) -> None:
    assert (judge([changed(path, mode=SYMLINK, target=target)], ()) is not None) is leaves


def test_the_same_content_counts_once_and_the_same_path_counts_once() -> None:
    big = [changed(f"{n}.bin", oid="same", size=5_000_000) for n in range(9)]
    assert judge(big, ()) is None
    assert judge([*big, changed("other", size=5_000_000)], ()) is not None
    assert judge([changed("a", oid=str(n)) for n in range(900)], ()) is None


def test_many_paths_are_named_up_to_twenty() -> None:
    reason = judge([changed(f".github/{n}") for n in range(25)], DEFAULT_PROTECTED_PATHS)
    assert reason is not None
    assert reason.endswith(".github/19 and 5 more")


def test_a_path_cannot_break_the_line_it_is_named_in() -> None:
    assert judge([changed(".github/a\n::error::x")], (".github/**",)) == "protected path: .github/a\\n::error::x"


MESSAGES = {
    "plain": ("Fix it\n\nBecause.", "Fix it\n\nBecause."),
    "empty": ("\n\n", "Work of the agent"),
    "mention": ("Ask @ann", "Ask @\u200bann"),
    "skip directive": ("Fix [skip ci]\n\n[no ci] done", "Fix\n\n done"),
    "trailers": ("Fix\n\nReviewed: yes\nTicket: 4\n", "Fix"),
    "co-author in the middle": ("Fix\n\nco-authored-by: X\nbecause of this\n", "Fix\n\nbecause of this"),
    "forged trailer of ours": ("Fix\n\nStepflow-Run: other\n\nmore", "Fix\n\nmore"),
    "folded trailer": ("Fix\n\nA: b\n  more\n", "Fix"),
    "only a trailer": ("Fix: the parser", "Fix: the parser"),
    "signed off as subject": ("Signed-off-by: X", "Work of the agent"),
    "cherry-pick": ("Fix\n\n(cherry picked from commit 1234)", "Fix"),
    "secret": ("Use ghs_secretsecret", "Use ***"),
    "prose with a colon": ("Fix\n\nNote: this\nis prose", "Fix\n\nNote: this\nis prose"),
}


@pytest.mark.parametrize(("message", "expected"), MESSAGES.values(), ids=MESSAGES)
def test_messages_are_freed(message: str, expected: str) -> None:
    assert clean_message(message, OURS, FILTER) == f"{expected}\n\nStepflow-Run: run-1\n"


@given(
    st.text(), st.sampled_from(["", "[skip ci]", "fixes #1", "Co-authored-by: x", "\n\n", "A: b\n", "skip-checks:true"])
)
def test_any_message_ends_with_our_trailers_only(text: str, piece: str) -> None:
    message = clean_message(text + piece + text, OURS, FILTER)
    assert message.endswith("\n\nStepflow-Run: run-1\n")
    assert "[skip ci]" not in message.lower()
    assert not re.search(r"(?im)^[ \t]*co-authored-by:", message)
    assert not message.startswith("\n")
