"""The transitions of a gate registry, and what a run can reach through them (registry.md §4, §5.4 and §9.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from stepflow.definition.diagnostics import FileProblems, did_you_mean, listed
from stepflow.definition.file_models import RuleEntry
from stepflow.definition.gate_steps import Node, Nodes, check_intent, fitting_intents
from stepflow.definition.json_text import Pointer
from stepflow.definition.old_names import OLD_VERDICT_TYPES
from stepflow.domain.definition import Branch, Gate, Target, Transition
from stepflow.domain.words import Intent, StepKind, VerdictType

Edges = dict[str, dict[Intent, "Transition"]]


def check_edges(nodes: Nodes, gates: Mapping[str, Gate], problems: FileProblems) -> Edges:
    """Every transition of every flow step; `repeat` is filled in, `next` without a rule is left to the router."""
    edges: Edges = {}
    for node in nodes.flow.values():
        gate = gates.get(node.id)
        rules = _Rules(node=node, gate=gate, nodes=nodes, problems=problems).read()
        if gate is not None and node.entry.transitions is not None:
            _check_missing(node, gate, nodes, problems)
        if gate is not None and Intent.HANDOFF in gate.allowed and node.initial:
            message = f'step "{node.id}": a first step hands off before any work cycle'
            at = node.at / "structuredGate"
            problems.add("SF348", at, message, 'Leave "handoff" to a continuation step.')
        rules.setdefault(Intent.REPEAT, Target(step_id=None))
        edges[node.id] = rules
    return edges


def default_next(step_id: str, nodes: Nodes) -> str | None:
    """`initial.X` goes on to `continuation.X` when that flow step exists."""
    kind, _, rest = step_id.partition(".")
    target = f"continuation.{rest}"
    return target if kind == "initial" and target in nodes.flow else None


def targets_of(rule: Transition) -> Iterator[str]:
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
    problems: FileProblems

    def read(self) -> dict[Intent, Transition]:
        rules: dict[Intent, Transition] = {}
        for word, entry in (self.node.entry.transitions or {}).items():
            at = self.node.at / "transitions" / word
            intent = check_intent(word, self.node, at, self.problems)
            if intent is None:
                continue
            rule = self.rule(intent, entry, at)
            _check_targets(self.node, entry, at, self.nodes, self.problems)
            if not self.useless(intent, at) and rule is not None:
                self.warn(intent, rule, at)
                rules[intent] = Target(step_id=None) if intent is Intent.CLOSING else rule
        return rules

    def add(self, code: str, at: Pointer, message: str, fix: str) -> None:
        self.problems.add(code, at, f'step "{self.node.id}": {message}', fix)

    def useless(self, intent: Intent, at: Pointer) -> bool:
        if intent is Intent.ABORT:
            message = 'the rule for "abort" has no effect, "abort" always ends the run'
            self.add("SF111", at, message, "Remove the rule, or leave it.")
            return True
        if self.gate is None or not self.gate.allowed or intent in (*self.gate.allowed, Intent.REPEAT):
            return False
        message = f'there is a rule for "{intent}", which is not among "allowedIntents"'
        self.add("SF342", at, message, f'Remove the rule, or allow "{intent}".')
        return True

    def rule(self, intent: Intent, entry: RuleEntry, at: Pointer) -> Transition | None:
        if "condition" in entry.model_fields_set or "targets" in entry.model_fields_set:
            return self.branch(intent, entry, at)
        if "target" not in entry.model_fields_set:
            if not self.problems.at(at / "target"):
                message = f'the rule for "{intent}" has neither "target" nor "condition" and "targets"'
                self.add("SF107", at, message, 'Write {"target": "<step id>"}.')
            return None
        if entry.target is None and intent not in (Intent.CLOSING, Intent.REPEAT, Intent.ABORT):
            message = f'the target of "{intent}" is null, but only "closing" ends the flow'
            fix = f'Name the step that "{intent}" goes to.'
            self.add("SF344", at / "target", message, fix)
            return None
        return Target(step_id=entry.target)

    def branch(self, intent: Intent, entry: RuleEntry, at: Pointer) -> Transition | None:
        if "target" in entry.model_fields_set or intent is Intent.CLOSING:
            fault = "cannot depend on a condition" if intent is Intent.CLOSING else 'has both "target" and a condition'
            fix = 'Write either "target", or "condition" and "targets".'
            self.add("SF106", at, f'the rule for "{intent}" {fault}', fix)
            return None
        if not entry.condition or not entry.targets:
            missing = "targets" if entry.condition else "condition"
            if not self.problems.at(at / missing):
                fix = 'Write "condition" (a handoff field) and "targets" (value to step id).'
                self.add("SF107", at, f'the rule for "{intent}" needs "{missing}", which is missing or empty', fix)
            return None
        self.check_condition(intent, entry.condition, at)
        default = entry.targets.get("default")
        if default is None:
            message = f'the rule for "{intent}" has no "default" target: any other value ends the run'
            self.add("SF354", at / "targets", message, 'Add a "default" target.')
        targets = {value: step_id for value, step_id in entry.targets.items() if value != "default"}
        return Branch(condition=entry.condition, targets=targets, default=default)

    def check_condition(self, intent: Intent, condition: str, at: Pointer) -> None:
        fields = self.gate.handoff_fields if self.gate else ()
        known = {*fields, *(path.rpartition(".")[2] for path in fields)}
        if condition not in known:
            message = f'the condition "{condition}" of "{intent}" is no handoff field of this step'
            message += did_you_mean(condition, known)
            self.add("SF354", at / "condition", message, 'Add it to "handoffFields".')

    def warn(self, intent: Intent, rule: Transition, at: Pointer) -> None:
        targets = [self.nodes.flow[step_id] for step_id in targets_of(rule) if step_id in self.nodes.flow]
        closures = [one.id for one in targets if one.kind is StepKind.CLOSURE]
        others = [one.id for one in targets if one.kind is not StepKind.CLOSURE]
        if intent is Intent.CLOSING and isinstance(rule, Target) and rule.step_id is not None:
            message = f'the target "{rule.step_id}" of "closing" is ignored, "closing" ends the flow'
            self.add("SF353", at / "target", message, 'Write "target": null.')
        if intent is Intent.HANDOFF and others:
            message = f'"handoff" leads to {listed(others)}, which is no closure step'
            self.add("SF347", at, message, 'Hand off to a closure step, or use "next".')
        if intent is Intent.NEXT and self.node.id in others:
            self.add("SF349", at, '"next" leads to the step itself', 'Use "repeat" to run a step again.')
        if intent in (Intent.NEXT, Intent.JUMP) and closures:
            message = f'"{intent}" leads straight to the closure step {listed(closures)}'
            self.add("SF351", at, message, 'Use "handoff" to go to a closure step.')


def _check_targets(node: Node, entry: RuleEntry, at: Pointer, nodes: Nodes, problems: FileProblems) -> None:
    named = {at / "target": entry.target, at / "fallback": entry.fallback}
    named |= {at / "targets" / value: step_id for value, step_id in (entry.targets or {}).items()}
    for place, step_id in named.items():
        if step_id is None or step_id in nodes.flow:
            continue
        what = "is a section" if step_id in nodes.sections else f"does not exist{did_you_mean(step_id, nodes.flow)}"
        message = f'step "{node.id}": the target "{step_id}" {what}'
        problems.add("SF343", place, message, f"Name a flow step; there are {listed(nodes.flow)}.")


def _check_missing(node: Node, gate: Gate, nodes: Nodes, problems: FileProblems) -> None:
    rules = node.entry.transitions or {}
    at = node.at / "transitions"
    for intent in gate.allowed:
        if intent in rules or intent is Intent.REPEAT or problems.at(at / intent):
            continue
        if intent not in fitting_intents(node.kind):
            continue  # that it may not be allowed at all was reported
        target = default_next(node.id, nodes) if intent is Intent.NEXT else None
        if target is not None:
            message = f'step "{node.id}": "next" has no rule and goes to "{target}" by default'
            problems.add("SF345", at, message, f'Write "next": {{"target": "{target}"}}.')
        elif intent is not Intent.JUMP:  # a jump without a rule is SF330, or chosen by the answer
            message = f'step "{node.id}": the intent "{intent}" is allowed, but no rule says where it goes'
            fix = f'Add "{intent}": {{"target": "<step id>"}} to "transitions"; there are {listed(nodes.flow)}.'
            problems.add("SF341", at, message, fix)


@dataclass(frozen=True, kw_only=True)
class Entries:
    """Where runs begin: the step of this agent's verdict, and every step that is an entry of some verdict.

    `by_pointer` has the place that names each of them.
    """

    step: str | None
    by_pointer: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Named:
    """The ids of a registry's flow steps and of its sections."""

    flow: tuple[str, ...]
    sections: tuple[str, ...] = ()


def check_entries(
    entry_step: str | None, mapping: Mapping[str, str], ids: Named, verdict: VerdictType | None, problems: FileProblems
) -> Entries:
    """The entry steps. Without a known verdict nothing is said about which of them is used."""
    named: dict[Pointer, str] = {}
    chosen = entry_step
    if entry_step is not None:
        named[Pointer("/entryStep")] = entry_step
    for word, step_id in mapping.items():
        at = Pointer("/entryStepMapping") / word
        named[at] = step_id
        kind = OLD_VERDICT_TYPES.get(word, word)
        if kind not in list(VerdictType):
            message = f'"{word}" is no verdict type{did_you_mean(word, VerdictType)}'
            problems.add("SF310", at, message, f"Use {listed(VerdictType)}.")
        elif kind == verdict:
            chosen = step_id
    _check_chosen(mapping, chosen, verdict, ids, problems)
    for at, step_id in named.items():
        _check_named(at, step_id, ids, problems)
    return Entries(step=chosen, by_pointer={at: step_id for at, step_id in named.items() if step_id in ids.flow})


def check_graph(
    nodes: Nodes, gates: Mapping[str, Gate], edges: Edges, entries: Entries, problems: FileProblems
) -> None:
    """What no run can reach (SF346), and from where no run can end (SF350)."""
    following = {step_id: _following(step_id, nodes, gates, edges) for step_id in nodes.flow}
    check_reached(following, entries, problems)
    closing = [node.id for node in nodes.flow.values() if node.kind is StepKind.CLOSURE]
    ending = reached_from(closing, _reversed(following))
    _check_ends(nodes, entries, following, ending, problems)


def check_reached(following: Mapping[str, set[str]], entries: Entries, problems: FileProblems) -> None:
    """Each step that no entry leads to (SF346). `following` has the steps that may come right after each step."""
    starts = list(entries.by_pointer.values())
    reached = reached_from(starts, following)
    for step_id in following:
        if starts and step_id not in reached:
            message = f'step "{step_id}" cannot be reached from any entry step'
            problems.add("SF346", Pointer("/steps") / step_id, message, "Lead a transition to it, or remove it.")


def check_verdict_fits(nodes: Nodes, entry: str | None, verdict: VerdictType | None, problems: FileProblems) -> None:
    """An ungated registry is run by the verdict, so the verdict must be one that can (SF206)."""
    if nodes.gated or verdict is None:
        return
    fix = "Give the steps structured gates, or use another verdict type."
    if verdict is VerdictType.DETECT_GRAPH:
        message = 'the verdict type "detect:graph" needs a registry with gates or checks, and this one has neither'
        problems.add("SF206", "/steps", message, fix)
    node = nodes.flow.get(entry or "")
    if verdict is VerdictType.POLL_STATE and node is not None and node.kind is not StepKind.CLOSURE:
        message = f'without gates, "poll:state" must begin with a closure step, but "{node.id}" is none'
        problems.add("SF206", node.at, message, fix)


def _check_chosen(
    mapping: Mapping[str, str], chosen: str | None, verdict: VerdictType | None, ids: Named, problems: FileProblems
) -> None:
    if chosen is not None or problems.at("/entryStep") or problems.at("/entryStepMapping"):
        return
    fix = 'Add the verdict type to "entryStepMapping", or write "entryStep".'
    if verdict is not None:
        message = f'there is no entry step for the verdict type "{verdict}"'
        at = "/entryStepMapping" if mapping else ""
        problems.add("SF303", at, message, fix)
    elif not mapping:
        problems.add("SF303", "", 'there is neither "entryStep" nor "entryStepMapping"', fix)


def _check_named(at: Pointer, step_id: str, ids: Named, problems: FileProblems) -> None:
    if step_id in ids.flow:
        return
    what = "is a section" if step_id in ids.sections else f"does not exist{did_you_mean(step_id, ids.flow)}"
    message = f'the entry step "{step_id}" {what}'
    problems.add("SF304", at, message, f"Name a flow step; there are {listed(ids.flow)}.")


def _following(step_id: str, nodes: Nodes, gates: Mapping[str, Gate], edges: Edges) -> set[str]:
    """The steps that may come right after a step."""
    gate = gates.get(step_id)
    if gate is not None and Intent.JUMP in gate.allowed and gate.target_field:
        return set(nodes.flow)
    rules = edges.get(step_id, {})
    after = {target for rule in rules.values() for target in targets_of(rule)}
    default = default_next(step_id, nodes)
    if default is not None and Intent.NEXT not in rules and (gate is None or Intent.NEXT in gate.allowed):
        after.add(default)
    if gate is None or Intent.REPEAT in gate.allowed:
        after.add(step_id)
    return after & nodes.flow.keys()


def reached_from(starts: Iterable[str], following: Mapping[str, set[str]]) -> set[str]:
    """Every step that can be reached from these, themselves included."""
    reached: set[str] = set()
    waiting = list(starts)
    while waiting:
        step_id = waiting.pop()
        if step_id not in reached:
            reached.add(step_id)
            waiting.extend(following[step_id])
    return reached


def _reversed(following: Mapping[str, set[str]]) -> dict[str, set[str]]:
    before: dict[str, set[str]] = {step_id: set() for step_id in following}
    for step_id, targets in following.items():
        for target in targets:
            before[target].add(step_id)
    return before


def _check_ends(
    nodes: Nodes, entries: Entries, following: Mapping[str, set[str]], ending: set[str], problems: FileProblems
) -> None:
    fix = "Lead a transition to a closure step."
    lost = {at: step_id for at, step_id in entries.by_pointer.items() if step_id not in ending}
    for at, step_id in lost.items():
        problems.add("SF350", at, f'no closure step can be reached from the entry step "{step_id}"', fix)
    reported = reached_from(lost.values(), following)
    for step_id, node in nodes.flow.items():
        if step_id in ending or step_id in reported:
            continue
        after = reached_from(following[step_id], following)
        if step_id not in after:
            continue
        circle = [
            other for other in nodes.flow if other in after and step_id in reached_from(following[other], following)
        ]
        reported.update(circle)
        problems.add("SF350", node.at, f"no closure step can be reached from the cycle {listed(circle)}", fix)
