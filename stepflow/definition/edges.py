"""The transitions of a registry (registry.md §5.4).

Takes: flow steps and their gates. Gives: the rules of each step, or problems SF341 to SF354.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.definition.findings import did_you_mean, listed
from stepflow.definition.gates import check_intent, fitting_intents
from stepflow.definition.json_text import child
from stepflow.domain.definition import Branch, Target
from stepflow.domain.words import Intent, StepKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepflow.definition.findings import FileFindings
    from stepflow.definition.registry_file import RuleEntry
    from stepflow.definition.steps import Node, Nodes
    from stepflow.domain.definition import Gate, Rule

Edges = dict[str, dict[Intent, "Rule"]]


def check_edges(nodes: Nodes, gates: Mapping[str, Gate], found: FileFindings) -> Edges:
    """Every transition of every flow step; `repeat` is filled in, `next` without a rule is left to the router."""
    edges: Edges = {}
    for node in nodes.flow.values():
        gate = gates.get(node.id)
        rules = _Rules(node=node, gate=gate, nodes=nodes, found=found).read()
        if gate is not None and node.entry.transitions is not None:
            _check_missing(node, gate, nodes, found)
        if gate is not None and Intent.HANDOFF in gate.allowed and node.initial:
            message = f'step "{node.id}": a first step hands off before any work cycle'
            at = child(node.at, "structuredGate")
            found.add("SF348", at, message, 'Leave "handoff" to a continuation step.')
        rules.setdefault(Intent.REPEAT, Target(step_id=None))
        edges[node.id] = rules
    return edges


def default_next(step_id: str, nodes: Nodes) -> str | None:
    """`initial.X` goes on to `continuation.X` when that flow step exists."""
    kind, _, rest = step_id.partition(".")
    target = f"continuation.{rest}"
    return target if kind == "initial" and target in nodes.flow else None


def targets_of(rule: Rule) -> Iterator[str]:
    """Every step that a rule may lead to."""
    match rule:
        case Target(step_id=step_id):
            yield from () if step_id is None else (step_id,)
        case Branch(targets=targets, default=default):
            yield from targets.values()
            yield from () if default is None else (default,)


@dataclass(frozen=True, kw_only=True)
class _Rules:
    """Reads the rules of one step."""

    node: Node
    gate: Gate | None
    nodes: Nodes
    found: FileFindings

    def read(self) -> dict[Intent, Rule]:
        rules: dict[Intent, Rule] = {}
        for word, entry in (self.node.entry.transitions or {}).items():
            at = child(child(self.node.at, "transitions"), word)
            intent = check_intent(word, self.node, at, self.found)
            if intent is None:
                continue
            rule = self.rule(intent, entry, at)
            _check_targets(self.node, entry, at, self.nodes, self.found)
            if not self.useless(intent, at) and rule is not None:
                self.warn(intent, rule, at)
                rules[intent] = Target(step_id=None) if intent is Intent.CLOSING else rule
        return rules

    def add(self, code: str, at: str, message: str, fix: str) -> None:
        self.found.add(code, at, f'step "{self.node.id}": {message}', fix)

    def useless(self, intent: Intent, at: str) -> bool:
        if intent is Intent.ABORT:
            message = 'the rule for "abort" has no effect, "abort" always ends the run'
            self.add("SF111", at, message, "Remove the rule, or leave it.")
            return True
        if self.gate is None or not self.gate.allowed or intent in (*self.gate.allowed, Intent.REPEAT):
            return False
        message = f'there is a rule for "{intent}", which is not among "allowedIntents"'
        self.add("SF342", at, message, f'Remove the rule, or allow "{intent}".')
        return True

    def rule(self, intent: Intent, entry: RuleEntry, at: str) -> Rule | None:
        if "condition" in entry.model_fields_set or "targets" in entry.model_fields_set:
            return self.branch(intent, entry, at)
        if "target" not in entry.model_fields_set:
            if not self.found.at(child(at, "target")):
                message = f'the rule for "{intent}" has neither "target" nor "condition" and "targets"'
                self.add("SF107", at, message, 'Write {"target": "<step id>"}.')
            return None
        if entry.target is None and intent not in (Intent.CLOSING, Intent.REPEAT, Intent.ABORT):
            message = f'the target of "{intent}" is null, but only "closing" ends the flow'
            fix = f'Name the step that "{intent}" goes to.'
            self.add("SF344", child(at, "target"), message, fix)
            return None
        return Target(step_id=entry.target)

    def branch(self, intent: Intent, entry: RuleEntry, at: str) -> Rule | None:
        if "target" in entry.model_fields_set or intent is Intent.CLOSING:
            fault = "cannot depend on a condition" if intent is Intent.CLOSING else 'has both "target" and a condition'
            fix = 'Write either "target", or "condition" and "targets".'
            self.add("SF106", at, f'the rule for "{intent}" {fault}', fix)
            return None
        if not entry.condition or not entry.targets:
            missing = "targets" if entry.condition else "condition"
            if not self.found.at(child(at, missing)):
                fix = 'Write "condition" (a handoff field) and "targets" (value to step id).'
                self.add("SF107", at, f'the rule for "{intent}" needs "{missing}", which is missing or empty', fix)
            return None
        self.check_condition(intent, entry.condition, at)
        default = entry.targets.get("default")
        if default is None:
            message = f'the rule for "{intent}" has no "default" target: any other value ends the run'
            self.add("SF354", child(at, "targets"), message, 'Add a "default" target.')
        targets = {value: step_id for value, step_id in entry.targets.items() if value != "default"}
        return Branch(condition=entry.condition, targets=targets, default=default)

    def check_condition(self, intent: Intent, condition: str, at: str) -> None:
        fields = self.gate.handoff_fields if self.gate else ()
        known = {*fields, *(path.rpartition(".")[2] for path in fields)}
        if condition not in known:
            message = f'the condition "{condition}" of "{intent}" is no handoff field of this step'
            message += did_you_mean(condition, known)
            self.add("SF354", child(at, "condition"), message, 'Add it to "handoffFields".')

    def warn(self, intent: Intent, rule: Rule, at: str) -> None:
        targets = [self.nodes.flow[step_id] for step_id in targets_of(rule) if step_id in self.nodes.flow]
        closures = [one.id for one in targets if one.kind is StepKind.CLOSURE]
        others = [one.id for one in targets if one.kind is not StepKind.CLOSURE]
        if intent is Intent.CLOSING and isinstance(rule, Target) and rule.step_id is not None:
            message = f'the target "{rule.step_id}" of "closing" is ignored, "closing" ends the flow'
            self.add("SF353", child(at, "target"), message, 'Write "target": null.')
        if intent is Intent.HANDOFF and others:
            message = f'"handoff" leads to {listed(others)}, which is no closure step'
            self.add("SF347", at, message, 'Hand off to a closure step, or use "next".')
        if intent is Intent.NEXT and self.node.id in others:
            self.add("SF349", at, '"next" leads to the step itself', 'Use "repeat" to run a step again.')
        if intent in (Intent.NEXT, Intent.JUMP) and closures:
            message = f'"{intent}" leads straight to the closure step {listed(closures)}'
            self.add("SF351", at, message, 'Use "handoff" to go to a closure step.')


def _check_targets(node: Node, entry: RuleEntry, at: str, nodes: Nodes, found: FileFindings) -> None:
    named = {child(at, "target"): entry.target, child(at, "fallback"): entry.fallback}
    named |= {child(child(at, "targets"), value): step_id for value, step_id in (entry.targets or {}).items()}
    for place, step_id in named.items():
        if step_id is None or step_id in nodes.flow:
            continue
        what = "is a section" if step_id in nodes.sections else f"does not exist{did_you_mean(step_id, nodes.flow)}"
        message = f'step "{node.id}": the target "{step_id}" {what}'
        found.add("SF343", place, message, f"Name a flow step; there are {listed(nodes.flow)}.")


def _check_missing(node: Node, gate: Gate, nodes: Nodes, found: FileFindings) -> None:
    rules = node.entry.transitions or {}
    at = child(node.at, "transitions")
    for intent in gate.allowed:
        if intent in rules or intent is Intent.REPEAT or found.at(child(at, intent)):
            continue
        if intent not in fitting_intents(node.kind):
            continue  # that it may not be allowed at all was reported
        target = default_next(node.id, nodes) if intent is Intent.NEXT else None
        if target is not None:
            message = f'step "{node.id}": "next" has no rule and goes to "{target}" by default'
            found.add("SF345", at, message, f'Write "next": {{"target": "{target}"}}.')
        elif intent is not Intent.JUMP:  # a jump without a rule is SF330, or chosen by the answer
            message = f'step "{node.id}": the intent "{intent}" is allowed, but no rule says where it goes'
            fix = f'Add "{intent}": {{"target": "<step id>"}} to "transitions"; there are {listed(nodes.flow)}.'
            found.add("SF341", at, message, fix)
