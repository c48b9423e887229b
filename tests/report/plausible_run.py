"""A run as it might be: the first closing is refused because the tree is dirty, the second one passes."""

from __future__ import annotations

from collections.abc import Sequence

from stepflow.domain.conversation import Usage
from stepflow.domain.definition import (
    AgentDefinition,
    AgentVerdict,
    Branch,
    Condition,
    ExitCode,
    FailurePattern,
    Gate,
    OutputEmpty,
    SourceText,
    Step,
    Target,
    ValidationEntry,
    Validator,
)
from stepflow.domain.effect import EffectKind, EffectStatus
from stepflow.domain.event import (
    CompletionJudged,
    EffectApplied,
    EffectPlanned,
    Entry,
    Event,
    FlowEnded,
    IterationStarted,
    ModelTurned,
    ModelWaited,
    Noted,
    PromptRendered,
    Routed,
    RunFinished,
    RunStarted,
    StepAnswered,
    ToolCalled,
    UserMessage,
    ValidatorRan,
)
from stepflow.domain.words import Dialect, FailureAction, Intent, Outcome, StepKind, VerdictType

BEGAN = 1784110500.0


def entries_of(timed: Sequence[tuple[float, Event]]) -> tuple[Entry, ...]:
    """Entries numbered from 1; each event comes this many seconds after the one before."""
    entries, time = [], BEGAN
    for seq, (seconds, event) in enumerate(timed, 1):
        time += seconds
        entries.append(Entry(seq=seq, time=time, event=event))
    return tuple(entries)


def _gate(*allowed: Intent, target_field: str | None = None, lists_abort: bool = False) -> Gate:
    return Gate(allowed=allowed, intent_field="next_action.action", target_field=target_field, lists_abort=lists_abort)


def _validator(name: str, command: str, *, success: OutputEmpty | ExitCode) -> Condition:
    pattern = FailurePattern(name=f"{name}-red", description="d", edition="failed")
    return Condition(validator=Validator(name=name, command=command, success=success, pattern=pattern))


ENTRY = ValidationEntry(
    id="closure.issue",
    conditions=(
        _validator("git-clean", "git status --porcelain", success=OutputEmpty()),
        _validator("type-check", "mypy .", success=ExitCode(code=0)),
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
    verdict=AgentVerdict(type=VerdictType.POLL_STATE, max_iterations=10),
    system_prompt=SourceText(text="You fix issues.", file="prompts/system.md"),
)

STARTED = RunStarted(
    run_id="20260715-101500-7",
    agent="fixer",
    dialect="gate",
    definition_digest="0f" * 32,
    verdict_type="poll:state",
    entry_step="initial.issue",
    max_iterations=10,
    repository="octo/parser",
    issue=7,
    base_commit="4f1c2d3",
    isolation={"landlock": "on", "uid": "on"},
)


def _begin(iteration: int, step: str, kind: StepKind, *, retry: bool = False, tools: bool = True) -> list:
    opening = PromptRendered(
        system="You fix issues.",
        blocks=["…"],
        source="steps/retry/f_git-dirty.md" if retry else f"steps/{step.replace('.', '/')}/f_default.md",
        retry=retry,
        tools=["bash", "read", "write", "edit", "glob", "grep"] if tools else [],
    )
    return [(0.1, IterationStarted(iteration=iteration, step_id=step, kind=kind, model="opus")), (0.01, opening)]


def _turn(seconds: float, text: str, *, stop: str = "end_turn", cost: float | None = 0.0123) -> tuple[float, Event]:
    turn = ModelTurned(
        content=[{"type": "text", "text": text}] if text else [],
        stop_reason=stop,
        usage=Usage(input_tokens=1200, output_tokens=150, cache_read_tokens=3000),
        cost_usd=cost,
        model="claude-opus-5-5",
        seconds=seconds,
    )
    return (seconds, turn)


def _tool(seconds: float, name: str, arguments: dict, output: str, *, exit_code: int | None = None) -> tuple:
    call = ToolCalled(
        tool_use_id=f"toolu_{name}",
        name=name,
        input=arguments,
        output=output,
        is_error=bool(exit_code),
        exit_code=exit_code,
        seconds=seconds,
    )
    return (seconds, call)


def _answer(step: str, intent: Intent, reason: str, **more: object) -> tuple[float, Event]:
    answer = {"next_action": {"action": intent.value, "reason": reason}}
    return (0.0, StepAnswered(step_id=step, answer=answer, intent=intent, target=None, reason=reason, **more))


def _validator_ran(iteration: int, name: str, passed: bool, tail: str = "", attempt: int = 0) -> tuple[float, Event]:
    ran = ValidatorRan(
        iteration=iteration,
        entry="closure.issue",
        name=name,
        passed=passed,
        exit_code=0,
        pattern="" if passed else "git-dirty",
        attempt=attempt,
        max_attempts=3,
        action=None if passed else FailureAction.RETRY,
        recoverable=True,
        seconds=0.4,
        output_tail=tail,
    )
    return (0.4, ran)


CLOSING_ANSWER = {
    "next_action": {"action": "closing", "reason": "The parser accepts empty lines and the tests pass"},
    "verdict": "fixed",
    "closure_action": "close",
}

TIMED: tuple[tuple[float, Event], ...] = (
    (0.0, STARTED),
    *_begin(1, "initial.issue", StepKind.WORK),
    _turn(4.2, "I will look at the parser first.", stop="tool_use"),
    _tool(0.02, "read", {"file_path": "src/parser.py"}, "def parse(text): …"),
    _tool(1.3, "bash", {"command": "python -m pytest -q\necho done"}, "1 failed", exit_code=1),
    _turn(3.1, '{"next_action": {"action": "next", "reason": "The empty line is the cause"}}'),
    _answer("initial.issue", Intent.NEXT, "The empty line is the cause", handoff={"cause": "empty line"}),
    (0.0, Routed(source="initial.issue", to="continuation.issue", transition="next", reason="…", by_prefix=True)),
    *_begin(2, "continuation.issue", StepKind.WORK),
    (5.0, ModelWaited(reason="overloaded (529)", seconds=5.0, attempt=1, deadline_in=2980.0)),
    _turn(6.0, "Now I change it.", stop="tool_use"),
    _tool(0.01, "edit", {"file_path": "src/parser.py", "old_string": "a", "new_string": "b"}, "edited"),
    _turn(2.0, "Done, I think."),
    (0.0, UserMessage(text="Answer with the JSON object.", format_retry=True, errors=["no JSON object"])),
    (0.0, Noted(level="warning", message='[Format] retry 1/2 on step "continuation.issue"')),
    _turn(2.0, '{"next_action": {"action": "handoff"}}'),
    _answer("continuation.issue", Intent.HANDOFF, "The parser is changed"),
    (0.0, Routed(source="continuation.issue", to="closure.issue", transition="handoff", reason="…")),
    *_begin(3, "closure.issue", StepKind.CLOSURE),
    _turn(2.5, '{"next_action": {"action": "closing"}}'),
    _answer("closure.issue", Intent.CLOSING, "All is done"),
    (0.0, Routed(source="closure.issue", to=None, transition="closing", reason="All is done")),
    _validator_ran(3, "git-clean", False, " M src/parser.py\n?? notes.txt\n", attempt=1),
    (
        0.0,
        CompletionJudged(
            entry="closure.issue",
            done=False,
            validated=False,
            step_id="continuation.issue",
            retry_prompt="Commit your work.",
            retry_source="steps/retry/f_git-dirty.md",
        ),
    ),
    *_begin(4, "continuation.issue", StepKind.WORK, retry=True),
    _turn(3.0, "", stop="tool_use"),
    _tool(0.2, "bash", {"command": "git add -A && git commit -qm 'Accept empty lines'"}, "", exit_code=0),
    _turn(2.0, '{"next_action": {"action": "handoff"}}'),
    _answer("continuation.issue", Intent.HANDOFF, "Everything is committed"),
    (0.0, Routed(source="continuation.issue", to="closure.issue", transition="handoff", reason="…")),
    *_begin(5, "closure.issue", StepKind.CLOSURE),
    _turn(2.5, "The parser accepts empty lines now; I added a test."),
    _answer("closure.issue", Intent.CLOSING, "The parser accepts empty lines and the tests pass"),
    (0.0, Routed(source="closure.issue", to=None, transition="closing", reason="…")),
    _validator_ran(5, "git-clean", True),
    _validator_ran(5, "type-check", True),
    (0.0, CompletionJudged(entry="closure.issue", done=True, validated=True, step_id="closure.issue")),
    (
        0.0,
        FlowEnded(
            outcome=Outcome.COMPLETED,
            reason="Completion loop: The parser accepts empty lines and the tests pass",
            step_id="closure.issue",
            answer=CLOSING_ANSWER,
            validated=True,
        ),
    ),
    (0.0, Noted(level="info", message="[Boundary] planned", data={"effects": 4})),
    (0.0, EffectPlanned(kind=EffectKind.PUSH_BRANCH, detail="stepflow/fixer/issue-7")),
    (0.0, EffectPlanned(kind=EffectKind.OPEN_PULL_REQUEST, detail="Accept empty lines (draft)")),
    (0.0, EffectPlanned(kind=EffectKind.POST_COMMENT, detail="the run's comment")),
    (0.0, EffectPlanned(kind=EffectKind.CLOSE_ISSUE, detail="issue 7")),
    (1.0, EffectApplied(kind=EffectKind.PUSH_BRANCH, status=EffectStatus.APPLIED, commit="9ab8c7d")),
    (
        1.0,
        EffectApplied(
            kind=EffectKind.OPEN_PULL_REQUEST,
            status=EffectStatus.APPLIED,
            url="https://github.com/octo/parser/pull/8",
            number=8,
        ),
    ),
    (
        0.5,
        EffectApplied(
            kind=EffectKind.POST_COMMENT,
            status=EffectStatus.APPLIED,
            url="https://github.com/octo/parser/issues/7#issuecomment-1",
            number=1,
        ),
    ),
    (0.5, EffectApplied(kind=EffectKind.CLOSE_ISSUE, status=EffectStatus.SKIPPED, detail="already closed")),
    (0.0, Noted(level="info", message="[Boundary] applied")),
    (
        0.0,
        RunFinished(
            outcome=Outcome.COMPLETED,
            reason="Completion loop: The parser accepts empty lines and the tests pass",
            success=True,
        ),
    ),
)

ENTRIES = entries_of(TIMED)
