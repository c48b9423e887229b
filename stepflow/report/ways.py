"""Every way from one step to another that a definition declares, and which steps they reach.

Takes: `AgentDefinition`. Gives: ways with the intent that takes them; the reachable steps.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from stepflow.domain.definition import Branch, Target
from stepflow.domain.words import Intent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from stepflow.domain.check import Check
    from stepflow.domain.definition import AgentDefinition, Rule, Step

#: From a step (None: the start) to a step (None: the end), and the words for the arrow.
Way = tuple[str | None, str | None, str]

RED_VALIDATOR = "validator red"
VERDICT = "verdict"


def ways_of(agent: AgentDefinition) -> Iterator[Way]:
    """All declared ways: rules, the way back from a red validator, and the verdict's end of an ungated flow."""
    yield (None, agent.entry_step, "")
    for step in agent.steps.values():
        for intent, rule in step.edges.items():
            yield from _rule_ways(step.id, intent, rule)
        if step.check:
            yield from _check_ways(step.id, step.check)
        if step.validation:
            yield (step.id, _repeat_target(step), RED_VALIDATOR)
        if not agent.gated:
            yield (step.id, None, VERDICT)


def _rule_ways(source: str, intent: Intent, rule: Rule) -> Iterator[Way]:
    match rule:
        case Target(step_id=None) if intent is Intent.REPEAT:
            yield (source, source, intent)
        case Target():
            # `closing` ends the flow whatever its target says (registry.md §5.4).
            yield (source, None if intent is Intent.CLOSING else rule.step_id, intent)
        case Branch():
            for value, to in rule.targets.items():
                yield (source, to, f"{intent} [{rule.condition} = {value}]")
            if rule.default is not None and "default" not in rule.targets:
                yield (source, rule.default, f"{intent} [else]")
        case _:
            assert_never(rule)


def _check_ways(source: str, check: Check) -> Iterator[Way]:
    for outcome, rules in (("pass", check.on_pass), ("fail", check.on_fail)):
        for rule in rules:
            ends = rule.intent is Intent.CLOSING
            to = None if ends else rule.target or source
            yield (source, to, f"{outcome}: {rule.transition}")


def _repeat_target(step: Step) -> str:
    rule = step.edges.get(Intent.REPEAT)
    return rule.step_id if isinstance(rule, Target) and rule.step_id is not None else step.id


def reachable_steps(agent: AgentDefinition, ways: Iterable[Way]) -> frozenset[str]:
    """Every step that some way leads to. A jump that may name its target leads everywhere (SF346)."""
    leads: dict[str, set[str]] = {}
    for source, to, _ in ways:
        if source is not None and to is not None:
            leads.setdefault(source, set()).add(to)
    reached: set[str] = set()
    waiting = [agent.entry_step]
    while waiting:
        step_id = waiting.pop()
        reached.add(step_id)
        if _jumps_anywhere(agent.steps, step_id):
            return frozenset(agent.steps)
        waiting.extend(leads.get(step_id, set()) - reached)
    return frozenset(reached)


def _jumps_anywhere(steps: Mapping[str, Step], step_id: str) -> bool:
    step = steps.get(step_id)
    gate = step.gate if step else None
    return bool(gate and gate.target_field and Intent.JUMP in gate.allowed)
