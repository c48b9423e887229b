"""Small agents in memory, for tests of the engine rooms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stepflow.domain.agent.definition import (
    AgentDefinition,
    AgentVerdict,
    Condition,
    Gate,
    OutcomeRule,
    SourceText,
    Step,
    StepCheck,
    StepPrompt,
    Target,
    ValidationEntry,
)
from stepflow.domain.agent.validation import FailurePattern, Validator
from stepflow.domain.run import Limits, RunFacts
from stepflow.domain.words import INTENTS_OF_KIND, Dialect, FailureAction, Intent, StepKind, VerdictType


def answer_schema(kind: StepKind) -> dict[str, Any]:
    """The schema of an answer with `next_action.{action,reason}`."""
    words = sorted(INTENTS_OF_KIND[kind] | {Intent.ABORT})
    return {
        "type": "object",
        "required": ["next_action"],
        "properties": {
            "next_action": {
                "type": "object",
                "required": ["action"],
                "properties": {"action": {"enum": list(words)}, "reason": {"type": "string"}},
            }
        },
    }


def make_gate(kind: StepKind, **changes: Any) -> Gate:
    """A gate that allows everything its kind may answer."""
    gate = Gate(
        allowed=tuple(sorted(INTENTS_OF_KIND[kind])),
        intent_field="next_action.action",
        target_field="next_action.target" if Intent.JUMP in INTENTS_OF_KIND[kind] else None,
    )
    return replace(gate, **changes)


def make_step(
    step_id: str,
    kind: StepKind = StepKind.WORK,
    *,
    text: str = "Do the work.",
    to: dict[str, str | None] | None = None,
    **changes: Any,
) -> Step:
    """A gated step; `to` maps intent words to target steps."""
    step = Step(
        id=step_id,
        name=step_id,
        kind=kind,
        initial=step_id.startswith("initial."),
        prompt=StepPrompt(source=SourceText(text=text, file=f"prompts/{step_id}.md")),
        schema=answer_schema(kind),
        gate=make_gate(kind),
        edges={Intent(word): Target(step_id=target) for word, target in (to or {}).items()},
    )
    return replace(step, **changes)


def make_check_step(
    step_id: str,
    on_pass: tuple[OutcomeRule, ...],
    on_fail: tuple[OutcomeRule, ...] = (),
    *,
    question: str | None = None,
    **changes: Any,
) -> Step:
    """A step with a check; with a `question` its check asks the model a second time."""
    prompt = StepPrompt(source=SourceText(text=question, file=f"checks/{step_id}.md")) if question else None
    check = StepCheck(on_pass=on_pass, on_fail=on_fail, prompt=prompt, is_demanded=question is None)
    kind = StepKind.CLOSURE if any(rule.intent is Intent.CLOSING for rule in check.rules) else StepKind.WORK
    step = Step(
        id=step_id,
        name=step_id,
        kind=kind,
        prompt=StepPrompt(source=SourceText(text="Do the work.", file=f"prompts/{step_id}.md")),
        check=check,
    )
    return replace(step, **changes)


def make_entry(entry_id: str = "closure.issue", *validators: Validator, **changes: Any) -> ValidationEntry:
    """A validation entry with these validators, in order."""
    entry = ValidationEntry(id=entry_id, conditions=tuple(Condition(validator=one) for one in validators))
    return replace(entry, **changes)


def make_validator(name: str, command: str, *, empty: bool = False, **changes: Any) -> Validator:
    """A validator that wants exit code 0, or empty output."""
    pattern = FailurePattern(name=f"{name}-red", description=f"{name} fails", edition="failed", adaptation=name)
    rule = "empty" if empty else "exitCode:0"
    keys = {"type": "command", "command": command, "success_when": rule, "failure_pattern": pattern.name, **changes}
    return Validator(name=name, pattern=pattern, **keys)


def make_agent(*steps: Step, **changes: Any) -> AgentDefinition:
    """An agent of these steps that begins with the first."""
    agent = AgentDefinition(
        name="demo",
        version="1.0.0",
        display_name="Demo",
        description="An agent of a test",
        folder=".agent/demo",
        dialect=Dialect.GATE,
        digest="0" * 64,
        steps={step.id: step for step in steps},
        entry_step=steps[0].id,
        verdict=AgentVerdict(type=VerdictType.DETECT_GRAPH, limits=Limits(iterations=10)),
        system_prompt=SourceText(text="You are a test.", file="prompts/system.md"),
    )
    return replace(agent, **changes)


def issue_agent(
    *validators: Validator, action: FailureAction = FailureAction.RETRY, max_attempts: int = 3
) -> AgentDefinition:
    """The usual three steps: initial, continuation, closure; the closure's `repeat` goes back to work."""
    entry = make_entry("closure.issue", *validators, action=action, max_attempts=max_attempts) if validators else None
    return make_agent(
        make_step("initial.issue", to={"next": "continuation.issue"}),
        make_step("continuation.issue", to={"next": "continuation.issue", "handoff": "closure.issue"}),
        make_step(
            "closure.issue",
            StepKind.CLOSURE,
            to={"closing": None, "repeat": "continuation.issue"},
            validation=entry,
        ),
    )


def make_facts(*, root: str = "/", **changes: Any) -> RunFacts:
    """The facts of a run without an issue."""
    facts = RunFacts(run_id="run-1", root=root, limits=Limits(iterations=10), nonce="4f2a9c7e")
    return replace(facts, **changes)
