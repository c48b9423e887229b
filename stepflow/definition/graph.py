"""The graph as a whole: where a run begins and what it can reach (registry.md §4 and §9.1).

Takes: flow steps, gates and rules. Gives: the entry step, or problems SF303, SF304, SF310, SF346, SF350 and SF206.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.definition.agent_layout import OLD_VERDICT_TYPES
from stepflow.definition.edges import default_next, targets_of
from stepflow.definition.findings import did_you_mean, listed
from stepflow.definition.json_text import child
from stepflow.domain.words import Intent, StepKind, VerdictType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stepflow.definition.edges import Edges
    from stepflow.definition.findings import FileFindings
    from stepflow.definition.steps import Nodes
    from stepflow.domain.definition import Gate


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
    entry_step: str | None, mapping: Mapping[str, str], ids: Named, verdict: VerdictType | None, found: FileFindings
) -> Entries:
    """The entry steps. Without a known verdict nothing is said about which of them is used."""
    named: dict[str, str] = {}
    chosen = entry_step
    if entry_step is not None:
        named["/entryStep"] = entry_step
    for word, step_id in mapping.items():
        at = child("/entryStepMapping", word)
        named[at] = step_id
        kind = OLD_VERDICT_TYPES.get(word, word)
        if kind not in list(VerdictType):
            message = f'"{word}" is no verdict type{did_you_mean(word, VerdictType)}'
            found.add("SF310", at, message, f"Use {listed(VerdictType)}.")
        elif kind == verdict:
            chosen = step_id
    _check_chosen(mapping, chosen, verdict, ids, found)
    for at, step_id in named.items():
        _check_named(at, step_id, ids, found)
    return Entries(step=chosen, by_pointer={at: step_id for at, step_id in named.items() if step_id in ids.flow})


def check_graph(nodes: Nodes, gates: Mapping[str, Gate], edges: Edges, entries: Entries, found: FileFindings) -> None:
    """What no run can reach (SF346), and from where no run can end (SF350)."""
    following = {step_id: _following(step_id, nodes, gates, edges) for step_id in nodes.flow}
    check_reached(following, entries, found)
    closing = [node.id for node in nodes.flow.values() if node.kind is StepKind.CLOSURE]
    ending = reached_from(closing, _reversed(following))
    _check_ends(nodes, entries, following, ending, found)


def check_reached(following: Mapping[str, set[str]], entries: Entries, found: FileFindings) -> None:
    """Each step that no entry leads to (SF346). `following` has the steps that may come right after each step."""
    starts = list(entries.by_pointer.values())
    reached = reached_from(starts, following)
    for step_id in following:
        if starts and step_id not in reached:
            message = f'step "{step_id}" cannot be reached from any entry step'
            found.add("SF346", child("/steps", step_id), message, "Lead a transition to it, or remove it.")


def check_verdict_fits(nodes: Nodes, entry: str | None, verdict: VerdictType | None, found: FileFindings) -> None:
    """An ungated registry is run by the verdict, so the verdict must be one that can (SF206)."""
    if nodes.gated or verdict is None:
        return
    fix = "Give the steps structured gates, or use another verdict type."
    if verdict is VerdictType.DETECT_GRAPH:
        message = 'the verdict type "detect:graph" needs a registry with gates or checks, and this one has neither'
        found.add("SF206", "/steps", message, fix)
    node = nodes.flow.get(entry or "")
    if verdict is VerdictType.POLL_STATE and node is not None and node.kind is not StepKind.CLOSURE:
        message = f'without gates, "poll:state" must begin with a closure step, but "{node.id}" is none'
        found.add("SF206", node.at, message, fix)


def _check_chosen(
    mapping: Mapping[str, str], chosen: str | None, verdict: VerdictType | None, ids: Named, found: FileFindings
) -> None:
    if chosen is not None or found.at("/entryStep") or found.at("/entryStepMapping"):
        return
    fix = 'Add the verdict type to "entryStepMapping", or write "entryStep".'
    if verdict is not None:
        message = f'there is no entry step for the verdict type "{verdict}"'
        at = "/entryStepMapping" if mapping else ""
        found.add("SF303", at, message, fix)
    elif not mapping:
        found.add("SF303", "", 'there is neither "entryStep" nor "entryStepMapping"', fix)


def _check_named(at: str, step_id: str, ids: Named, found: FileFindings) -> None:
    if step_id in ids.flow:
        return
    what = "is a section" if step_id in ids.sections else f"does not exist{did_you_mean(step_id, ids.flow)}"
    message = f'the entry step "{step_id}" {what}'
    found.add("SF304", at, message, f"Name a flow step; there are {listed(ids.flow)}.")


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
    nodes: Nodes, entries: Entries, following: Mapping[str, set[str]], ending: set[str], found: FileFindings
) -> None:
    fix = "Lead a transition to a closure step."
    lost = {at: step_id for at, step_id in entries.by_pointer.items() if step_id not in ending}
    for at, step_id in lost.items():
        found.add("SF350", at, f'no closure step can be reached from the entry step "{step_id}"', fix)
    told = reached_from(lost.values(), following)
    for step_id, node in nodes.flow.items():
        if step_id in ending or step_id in told:
            continue
        after = reached_from(following[step_id], following)
        if step_id not in after:
            continue
        circle = [
            other for other in nodes.flow if other in after and step_id in reached_from(following[other], following)
        ]
        told.update(circle)
        found.add("SF350", node.at, f"no closure step can be reached from the cycle {listed(circle)}", fix)
