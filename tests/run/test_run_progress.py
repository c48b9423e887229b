"""The progress comment of a resumed run."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

from stepflow.domain.event import Event, Noted
from stepflow.domain.words import Progress
from stepflow.run.prepare import Prepared
from stepflow.run.progress import ProgressComment
from stepflow.run.start.inputs import BoundaryMode


class Recorded(tuple[Event, ...]):
    """The events of the earlier part of the run. It counts how often they are gone through."""

    reads = 0

    def __iter__(self) -> Iterator[Event]:
        type(self).reads += 1
        return super().__iter__()


def test_the_events_of_a_long_run_that_is_resumed_are_gone_through_once() -> None:
    inputs = SimpleNamespace(progress=Progress.COMMENT, boundary=BoundaryMode.GITHUB)
    prepared = SimpleNamespace(
        request=SimpleNamespace(inputs=inputs),
        resumed_run=SimpleNamespace(events=Recorded([Noted(level="info", message="x")] * 50)),
        agent=SimpleNamespace(github=SimpleNamespace(comments=True)),
        issue=object(),
    )
    ProgressComment(cast("Prepared", prepared), record=lambda _: None)
    assert Recorded.reads == 1
