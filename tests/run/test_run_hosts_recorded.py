"""Which hosts the tools asked for, written down as they asked."""

from __future__ import annotations

from dataclasses import dataclass, field

from stepflow.domain.connection import HostRequests, HostsRequested
from stepflow.domain.event import Event, Noted
from stepflow.run.workspace import HostRecordingJournal

NOTED = Noted(level="info", message="m")


@dataclass
class Egress:
    """What was asked for so far, in all."""

    asked: dict[str, HostRequests] = field(default_factory=dict)

    def ask(self, host: str, *, allowed: int = 0, refused: int = 0) -> None:
        self.asked[host] = HostRequests(host=host, allowed=allowed, refused=refused)

    def requests(self) -> tuple[HostRequests, ...]:
        return tuple(self.asked.values())


@dataclass
class Journal:
    events: list[Event] = field(default_factory=list)

    def append(self, event: Event) -> None:
        self.events.append(event)


def test_what_was_asked_for_is_told_once_however_many_events_follow() -> None:
    egress, journal = Egress(), Journal()
    recording = HostRecordingJournal(journal, egress)
    recording.append(NOTED)
    egress.ask("a.example", refused=1)
    for _ in range(3):
        recording.append(NOTED)
    egress.ask("a.example", refused=1, allowed=2)
    egress.ask("b.example", allowed=1)
    for _ in range(3):
        recording.append(NOTED)
    recording.record_hosts()
    told = [event.hosts for event in journal.events if isinstance(event, HostsRequested)]
    assert told == [
        [HostRequests(host="a.example", allowed=0, refused=1)],
        [HostRequests(host="a.example", allowed=2, refused=0), HostRequests(host="b.example", allowed=1, refused=0)],
    ]
    assert sum(event is NOTED for event in journal.events) == 7
