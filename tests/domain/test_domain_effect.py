"""What people are shown of an effect, and the exact text that it writes."""

from __future__ import annotations

import pytest

from stepflow.domain.effect import (
    AddLabels,
    AnswerThreads,
    CloseIssue,
    CreateRelease,
    DispatchWorkflow,
    Effect,
    OpenPullRequest,
    PostComment,
    ThreadReply,
    describe_effect,
    text_of,
)

REPLIES = (ThreadReply(thread="t1", applied=True, why="Thanks."), ThreadReply(thread="t2", applied=False, why="Wrong."))


@pytest.mark.parametrize(
    ("effect", "shown", "text"),
    [
        (
            OpenPullRequest(branch="b", base="", title="Fix it", body="It was broken.", draft=True),
            "Fix it → the default branch (draft)",
            "Fix it\n\nIt was broken.",
        ),
        (AnswerThreads(replies=REPLIES), "2 review threads", "Applied in (the commit). Thanks.\n\nNot applied: Wrong."),
        (PostComment(body="\nDone.\nMore."), "Done.", "\nDone.\nMore."),
        (AddLabels(labels=("bug", "ui")), "bug, ui", ""),
        (CreateRelease(tag="v1", name="One", body="New.", draft=False), "v1", "One\n\nNew."),
        (CloseIssue(), "", ""),
        (DispatchWorkflow(workflow="ci.yml"), "ci.yml", ""),
    ],
)
def test_an_effect_is_described_and_its_text_is_what_it_writes(effect: Effect, shown: str, text: str) -> None:
    assert (describe_effect(effect), text_of(effect)) == (shown, text)
