"""The transitions of a registry, and what a run can reach through them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from stepflow.definition.diagnostics import FileProblems, closest_match, did_you_mean, list_words
from stepflow.definition.file_models import Registry, RuleEntry, StepEntry, StepSettings
from stepflow.definition.old_names import OLD_VERDICT_TYPES
from stepflow.definition.parsing import Pointer
from stepflow.definition.steps import Node, Nodes, check_intent, fitting_intents
from stepflow.domain.agent.definition import Branch, Gate, Target, Transition
from stepflow.domain.flow import find_continuation
from stepflow.domain.words import Dialect, FollowUpKind, Intent, Permission, StepKind, VerdictType


def add_edges(nodes: Nodes[StepEntry], problems: FileProblems) -> None:
    """Read every transition of every flow step. `repeat` is added; `next` without a rule is left to the router."""
    for node in nodes.flow.values():
        node.edges = _Rules(node=node, nodes=nodes, problems=problems).read()
        if node.gate is not None and node.entry.transitions is not None:
            _check_missing(node, node.gate, nodes, problems)
        if node.gate is not None and Intent.HANDOFF in node.gate.allowed and node.initial:
            message, fix = "a first step hands off before any work cycle", 'Leave "handoff" to a continuation step.'
            problems.report("SF348", node.at / "structuredGate", message, fix)
        node.edges.setdefault(Intent.REPEAT, Target(step_id=None))
        node.following = _following(node, nodes)


def _targets(transition: Transition) -> list[str]:
    """Every step that a transition may lead to."""
    if isinstance(transition, Target):
        named = [transition.step_id]
    else:
        named = [*transition.targets.values(), transition.default]
    return [step_id for step_id in named if step_id is not None]


@dataclass(frozen=True, kw_only=True)
class _Rules:
    """Reads the rules of one step."""

    node: Node[StepEntry]
    nodes: Nodes[StepEntry]
    problems: FileProblems

    def read(self) -> dict[Intent, Transition]:
        transitions: dict[Intent, Transition] = {}
        for word, entry in (self.node.entry.transitions or {}).items():
            at = self.node.at / "transitions" / word
            intent = check_intent(word, self.node, at, self.problems)
            if intent is None:
                continue
            transition = self.transition(intent, entry, at)
            self.check_targets(entry, at)
            if not self.useless(intent, at) and transition is not None:
                self.warn(intent, transition, at)
                if entry.approval is not None and entry.approval.by:
                    self.node.approvals[intent] = Permission(entry.approval.by)
                transitions[intent] = Target(step_id=None) if intent is Intent.CLOSING else transition
        return transitions

    def useless(self, intent: Intent, at: Pointer) -> bool:
        if intent is Intent.ABORT:
            self.problems.note_idle(at, 'the rule for "abort" has no effect, "abort" always ends the run', "rule")
            return True
        if self.node.gate is None or not self.node.gate.allowed or intent in (*self.node.gate.allowed, Intent.REPEAT):
            return False
        message = f'there is a rule for "{intent}", which is not among "allowedIntents"'
        self.problems.report("SF342", at, message, f'Remove the rule, or allow "{intent}".')
        return True

    def transition(self, intent: Intent, entry: RuleEntry, at: Pointer) -> Transition | None:
        if "condition" in entry.model_fields_set or "targets" in entry.model_fields_set:
            return self.branch(intent, entry, at)
        if "target" not in entry.model_fields_set:
            message = f'the rule for "{intent}" has neither "target" nor "condition" and "targets"'
            self.problems.report("SF107", at, message, 'Write {"target": "<step id>"}.')
            return None
        if entry.target is None and intent not in (Intent.CLOSING, Intent.REPEAT, Intent.ABORT):
            message = f'the target of "{intent}" is null, but only "closing" ends the flow'
            self.problems.report("SF344", at / "target", message, f'Name the step that "{intent}" goes to.')
            return None
        return Target(step_id=entry.target)

    def branch(self, intent: Intent, entry: RuleEntry, at: Pointer) -> Transition | None:
        if "target" in entry.model_fields_set or intent is Intent.CLOSING:
            fault = "cannot depend on a condition" if intent is Intent.CLOSING else 'has both "target" and a condition'
            fix = 'Write either "target", or "condition" and "targets".'
            self.problems.report("SF106", at, f'the rule for "{intent}" {fault}', fix)
            return None
        if not entry.condition or not entry.targets:
            missing = "targets" if entry.condition else "condition"
            message = f'the rule for "{intent}" needs "{missing}", which is missing or empty'
            fix = 'Write "condition" (a handoff field) and "targets" (value to step id).'
            self.problems.report("SF107", at, message, fix)
            return None
        fields = self.node.gate.handoff_fields if self.node.gate else ()
        known = {*fields, *(path.rpartition(".")[2] for path in fields)}
        if entry.condition not in known:
            message = f'the condition "{entry.condition}" of "{intent}" is not a handoff field of this step'
            message += did_you_mean(entry.condition, known)
            self.problems.report("SF354", at / "condition", message, 'Add it to "handoffFields".')
        default = entry.targets.get("default")
        if default is None:
            message = f'the rule for "{intent}" has no "default" target: any other value ends the run'
            self.problems.report("SF354", at / "targets", message, 'Add a "default" target.')
        targets = {value: step_id for value, step_id in entry.targets.items() if value != "default"}
        return Branch(condition=entry.condition, targets=targets, default=default)

    def warn(self, intent: Intent, transition: Transition, at: Pointer) -> None:
        targets = [self.nodes.flow[step_id] for step_id in _targets(transition) if step_id in self.nodes.flow]
        closures = [one.id for one in targets if one.kind is StepKind.CLOSURE]
        others = [one.id for one in targets if one.kind is not StepKind.CLOSURE]
        report = self.problems.report
        if intent is Intent.CLOSING and isinstance(transition, Target) and transition.step_id is not None:
            message = f'the target "{transition.step_id}" of "closing" is ignored, "closing" ends the flow'
            report("SF353", at / "target", message, 'Write "target": null.')
        if intent is Intent.HANDOFF and others:
            message = f'"handoff" leads to {list_words(others)}, which is not a closure step'
            report("SF347", at, message, 'Hand off to a closure step, or use "next".')
        if intent is Intent.NEXT and self.node.id in others:
            report("SF349", at, '"next" leads to the step itself', 'Use "repeat" to run a step again.')
        if intent in (Intent.NEXT, Intent.JUMP) and closures:
            message = f'"{intent}" leads straight to the closure step {list_words(closures)}'
            report("SF351", at, message, 'Use "handoff" to go to a closure step.')

    def check_targets(self, entry: RuleEntry, at: Pointer) -> None:
        named = {at / "target": entry.target, at / "fallback": entry.fallback}
        named |= {at / "targets" / value: step_id for value, step_id in (entry.targets or {}).items()}
        broken = self.problems.broken("steps")
        for named_at, step_id in named.items():
            if step_id is None or step_id in broken:
                continue
            if fault := _no_flow_step(step_id, self.nodes.flow, self.nodes.sections):
                fix = f"Name a flow step; there are {list_words(self.nodes.flow)}."
                self.problems.report("SF343", named_at, f'the target "{step_id}" {fault}', fix)


def _no_flow_step(step_id: str, flow: Collection[str], sections: Collection[str]) -> str | None:
    """Why an id does not name a flow step; None when it does."""
    if step_id in flow:
        return None
    return "is a section" if step_id in sections else f"does not exist{did_you_mean(step_id, flow)}"


def _check_missing(node: Node[StepEntry], gate: Gate, nodes: Nodes[StepEntry], problems: FileProblems) -> None:
    rules = node.entry.transitions or {}
    at = node.at / "transitions"
    misspelled = {closest_match(word, Intent) for word in rules if word not in list(Intent)}
    for intent in gate.allowed:
        if intent in rules or intent in misspelled or intent is Intent.REPEAT:
            continue
        if intent not in fitting_intents(node.kind):
            continue  # that it may not be allowed at all was reported
        known = nodes.flow.keys() | problems.broken("steps")
        target = find_continuation(node.id, known) if intent is Intent.NEXT else None
        if target is not None:
            message = f'"next" has no rule and goes to "{target}" by default'
            problems.report("SF345", at, message, f'Write "next": {{"target": "{target}"}}.')
        elif intent is not Intent.JUMP:  # a jump without a rule is SF330, or chosen by the answer
            fix = f'Add "{intent}": {{"target": "<step id>"}} to "transitions"; there are {list_words(nodes.flow)}.'
            problems.report("SF341", at, f'the intent "{intent}" is allowed, but no rule says where it goes', fix)


def _following(node: Node[StepEntry], nodes: Nodes[StepEntry]) -> set[str]:
    gate = node.gate
    if gate is not None and Intent.JUMP in gate.allowed and gate.target_field:
        return set(nodes.flow)
    after = {target for transition in node.edges.values() for target in _targets(transition)}
    default = find_continuation(node.id, nodes.flow)
    if default is not None and Intent.NEXT not in node.edges and (gate is None or Intent.NEXT in gate.allowed):
        after.add(default)
    if gate is None or Intent.REPEAT in gate.allowed:
        after.add(node.id)
    return after & nodes.flow.keys()


@dataclass(frozen=True, kw_only=True)
class Entries:
    """Where runs begin: the step for this agent's verdict, and the steps of follow-ups.

    `by_pointer` maps the place of each entry in the registry, whatever verdict it is for, to its step.
    """

    step: str | None
    follow_ups: Mapping[FollowUpKind, str]
    by_pointer: Mapping[str, str]


def check_entries(
    registry: Registry, nodes: Nodes[StepSettings], verdict: VerdictType | None, problems: FileProblems
) -> Entries:
    """Check the entry steps and return them. Without a known verdict no problem says which of them is missing."""
    flow, sections = nodes.flow, nodes.sections
    chosen, mapping = registry.entry_step, registry.entry_step_mapping
    named = {} if chosen is None else {Pointer("/entryStep"): chosen}
    follow_ups = {
        kind: step_id for kind in FollowUpKind if (step_id := getattr(registry.entry_steps, kind)) is not None
    }
    named |= {Pointer("/entrySteps") / kind: step_id for kind, step_id in follow_ups.items()}
    for word, step_id in mapping.items():
        at = Pointer("/entryStepMapping") / word
        named[at] = step_id
        kind = OLD_VERDICT_TYPES.get(word, word)
        if kind not in list(VerdictType):
            message = f'"{word}" is not a verdict type{did_you_mean(word, VerdictType)}'
            problems.add("SF310", at, message, f"Use {list_words(VerdictType)}.")
        elif kind == verdict:
            chosen = step_id
    if chosen is None:
        fix = 'Add the verdict type to "entryStepMapping", or write "entryStep".'
        if verdict is not None:
            message = f'there is no entry step for the verdict type "{verdict}"'
            problems.add("SF303", "/entryStepMapping" if mapping else "", message, fix)
        elif not mapping:
            problems.add("SF303", "", 'there is neither "entryStep" nor "entryStepMapping"', fix)
    broken = problems.broken("steps")
    for at, step_id in named.items():
        if step_id not in broken and (fault := _no_flow_step(step_id, flow, sections)):
            message = f'the entry step "{step_id}" {fault}'
            problems.add("SF304", at, message, f"Name a flow step; there are {list_words(flow)}.")
    by_pointer: dict[str, str] = {at: step_id for at, step_id in named.items() if step_id in flow}
    return Entries(step=chosen, follow_ups=follow_ups, by_pointer=by_pointer)


def check_approvals(nodes: Mapping[str, Node[StepSettings]], entries: Entries, problems: FileProblems) -> None:
    """Report approvals before an entry step and after the end, where nothing waits for them (SF355)."""
    begins = set(entries.by_pointer.values())
    for step_id in sorted(begins):
        if nodes[step_id].entry.approval is not None:
            message = "before an entry step there is nothing that could be approved"
            fix = _approval_fix(sorted(nodes[step_id].following - begins), nodes)
            problems.report("SF355", nodes[step_id].at / "approval", message, fix)
    for node in nodes.values():
        if Intent.CLOSING in node.approvals:
            message = '"closing" ends the flow, so no step is left that could wait for approval'
            fix = _approval_fix([step_id for step_id in (node.id,) if step_id not in begins], nodes)
            problems.report("SF355", node.at / "transitions" / Intent.CLOSING / "approval", message, fix)


def _approval_fix(places: list[str], nodes: Mapping[str, Node[StepSettings]]) -> str:
    """Where the approval belongs instead; `places` are the steps that can wait for one."""
    waiting = [step_id for step_id in places if nodes[step_id].entry.approval is not None]
    if waiting:
        return f'Remove it: "{waiting[0]}" waits for approval already.'
    return f'Move "approval" to step "{places[0]}".' if places else "Remove it, or plan in an earlier step."


def check_graph(
    nodes: Mapping[str, Node[StepSettings]], entries: Entries, dialect: Dialect, problems: FileProblems
) -> None:
    """Report steps that no run reaches (SF346), and entries from which no run can end (SF350, SF707)."""
    following = {step_id: node.following for step_id, node in nodes.items()}
    reached = reached_from(entries.by_pointer.values(), following)
    has_usual_entry = not all(at.startswith("/entrySteps/") for at in entries.by_pointer)
    for step_id in following:
        if has_usual_entry and step_id not in reached:
            message = f'step "{step_id}" cannot be reached from any entry step'
            problems.add("SF346", Pointer("/steps") / step_id, message, "Lead a transition to it, or remove it.")
    closures = [node.id for node in nodes.values() if node.kind is StepKind.CLOSURE]
    ending = reached_from(closures, turn_around(following))
    code, end, fix = "SF350", "closure step", "Lead a transition to a closure step."
    if dialect is Dialect.CHECK:
        code, end, fix = "SF707", 'step with "complete"', 'Let an outcome "complete" the run.'
    lost = {at: step_id for at, step_id in entries.by_pointer.items() if step_id not in ending}
    for at, step_id in lost.items():
        problems.add(code, at, f'no {end} can be reached from the entry step "{step_id}"', fix)
    if dialect is Dialect.GATE:
        _check_cycles(following, ending | reached_from(lost.values(), following), problems)


def lost_values(
    nodes: Mapping[str, Node[StepSettings]], entries: Entries, owners: Mapping[str, str]
) -> dict[tuple[str, str], str]:
    """(step, handoff variable) → the entry of a follow-up in which no earlier step can have handed the variable off.

    `owners` maps each variable to the step that hands it off.
    """
    following = {step_id: node.following for step_id, node in nodes.items()}
    lost: dict[tuple[str, str], str] = {}
    for entry in entries.follow_ups.values():
        reached = reached_from([entry], following)
        for step_id in reached:
            others = {name: owner for name, owner in owners.items() if owner != step_id}
            missing = [name for name, owner in others.items() if step_id == entry or owner not in reached]
            lost |= {(step_id, name): entry for name in missing}
    return lost


def _check_cycles(following: Mapping[str, set[str]], known: set[str], problems: FileProblems) -> None:
    """Report each cycle without a way out; `known` are steps from which a run can end, or that were reported."""
    for step_id in following:
        after = set() if step_id in known else reached_from(following[step_id], following)
        if step_id not in after:
            continue
        cycle = [one for one in following if one in after and step_id in reached_from(following[one], following)]
        known.update(cycle)
        message = f"no closure step can be reached from the cycle {list_words(cycle)}"
        problems.add("SF350", Pointer("/steps") / step_id, message, "Lead a transition to a closure step.")


def turn_around(following: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """Each step → the steps that may come right before it."""
    before: dict[str, set[str]] = {step_id: set() for step_id in following}
    for step_id, targets in following.items():
        for target in targets:
            before[target].add(step_id)
    return before


def reached_from(starts: Iterable[str], following: Mapping[str, set[str]]) -> set[str]:
    """Every step that can be reached from these, including themselves."""
    reached: set[str] = set()
    waiting = list(starts)
    while waiting:
        step_id = waiting.pop()
        if step_id not in reached:
            reached.add(step_id)
            waiting.extend(following[step_id])
    return reached


def check_verdict_fits(
    nodes: Nodes[StepSettings], entries: Entries, verdict: VerdictType | None, problems: FileProblems
) -> None:
    """Without gates the verdict runs the flow, so it must be a verdict that can (SF206)."""
    if nodes.gated or verdict is None:
        return
    fix = "Give the steps structured gates, or use another verdict type."
    if verdict is VerdictType.DETECT_GRAPH:
        message = 'the verdict type "detect:graph" needs a registry with gates or checks, and this one has neither'
        problems.add("SF206", "/steps", message, fix)
    begins = {entries.step, *entries.follow_ups.values()}
    for node in nodes.flow.values():
        if node.id in begins and verdict is VerdictType.POLL_STATE and node.kind is not StepKind.CLOSURE:
            message = f'without gates, "poll:state" must begin with a closure step, but "{node.id}" is not one'
            problems.add("SF206", node.at, message, fix)
