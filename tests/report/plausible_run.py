"""A run as it might be: the first closing is refused because the tree is dirty, the second one passes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from stepflow.domain.agent.definition import (
    AgentDefinition,
    AgentVerdict,
    Branch,
    Condition,
    Gate,
    SourceText,
    Step,
    Target,
    ValidationEntry,
)
from stepflow.domain.event import (
    Entry,
    Event,
    FlowEnded,
    RunStarted,
)
from stepflow.domain.run import Limits
from stepflow.domain.words import Dialect, Intent, StepKind, VerdictType
from stepflow.journal import read_journal
from tests.build import make_validator


def _gate(*allowed: Intent, target_field: str | None = None, lists_abort: bool = False) -> Gate:
    return Gate(allowed=allowed, intent_field="next_action.action", target_field=target_field, lists_abort=lists_abort)


def _validator(name: str, command: str, *, empty: bool = False) -> Condition:
    return Condition(validator=make_validator(name, command, empty=empty))


ENTRY = ValidationEntry(
    id="closure.issue",
    conditions=(
        _validator("git-clean", "git status --porcelain", empty=True),
        _validator("type-check", "mypy ."),
    ),
)

STEPS = (
    Step(
        id="initial.issue",
        name="Understand the issue",
        kind=StepKind.WORK,
        initial=True,
        gate=_gate(Intent.NEXT, Intent.REPEAT),
        edges={Intent.NEXT: Target(step_id="continuation.issue"), Intent.REPEAT: Target(step_id=None)},
    ),
    Step(
        id="continuation.issue",
        name="Change the code",
        kind=StepKind.WORK,
        gate=_gate(Intent.NEXT, Intent.REPEAT, Intent.HANDOFF),
        edges={
            Intent.NEXT: Target(step_id="verification.tests"),
            Intent.REPEAT: Target(step_id=None),
            Intent.HANDOFF: Target(step_id="closure.issue"),
        },
    ),
    Step(
        id="verification.tests",
        name="Check the tests",
        kind=StepKind.VERIFICATION,
        gate=_gate(Intent.NEXT, Intent.ESCALATE),
        edges={
            Intent.NEXT: Branch(condition="green", targets={"true": "closure.issue"}, default="continuation.issue"),
            Intent.ESCALATE: Target(step_id="continuation.issue"),
        },
    ),
    Step(
        id="closure.issue",
        name="Close the issue",
        kind=StepKind.CLOSURE,
        gate=_gate(Intent.CLOSING, Intent.REPEAT, lists_abort=True),
        edges={Intent.CLOSING: Target(step_id=None), Intent.REPEAT: Target(step_id="continuation.issue")},
        validation=ENTRY,
    ),
    Step(
        id="continuation.docs",
        name="Write the documentation",
        kind=StepKind.WORK,
        gate=_gate(Intent.NEXT),
        edges={Intent.NEXT: Target(step_id="closure.issue")},
    ),
)

AGENT = AgentDefinition(
    name="fixer",
    version="1.0.0",
    display_name="Fixer",
    description="Fixes an issue",
    folder=".agent/fixer",
    dialect=Dialect.GATE,
    digest="0f" * 32,
    steps={step.id: step for step in STEPS},
    entry_step="initial.issue",
    verdict=AgentVerdict(type=VerdictType.POLL_STATE, limits=Limits(iterations=10)),
    system_prompt=SourceText(text="You fix issues.", file="prompts/system.md"),
)

ENTRIES = read_journal(Path(__file__).with_suffix(".jsonl"))
BEGAN = ENTRIES[0].time
#: Each event with the seconds since the one before.
TIMED = tuple((entry.time - before.time, entry.event) for before, entry in pairwise((ENTRIES[0], *ENTRIES)))
STARTED = next(entry.event for entry in ENTRIES if isinstance(entry.event, RunStarted))
CLOSING_ANSWER = next(entry.event.answer for entry in ENTRIES if isinstance(entry.event, FlowEnded))


def entries_of(timed: Sequence[tuple[float, Event]]) -> tuple[Entry, ...]:
    """Entries numbered from 1; each event comes this many seconds after the one before."""
    entries, time = [], BEGAN
    for seq, (seconds, event) in enumerate(timed, 1):
        time += seconds
        entries.append(Entry(seq=seq, time=time, event=event))
    return tuple(entries)
