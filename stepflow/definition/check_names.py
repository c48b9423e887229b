"""The variables under which later steps know what a check step hands off (prompts.md §6.2).

Takes: the steps of a check registry. Gives: the further names of each step's keys; problems SF327 and SF111.
May touch: nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from stepflow.definition.json_text import child
from stepflow.engine.prompt.variables import handoff_variable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepflow.definition.check_steps import CheckNode
    from stepflow.definition.findings import FileFindings

#: Step id → variable → the key that it stands for.
Aliases = dict[str, dict[str, str]]


def name_handoff(nodes: Mapping[str, CheckNode], taken: frozenset[str], found: FileFindings) -> Aliases:
    """The names beside `<id>_<key>`: the id without its `s_`, and the prompt's `c3` if no other step has it.

    `taken` are names that mean something else; a second form that clashes with one of them, or with an earlier name,
    is left out.
    """
    owners = _main_names(nodes, found)
    aliases: Aliases = {step_id: {} for step_id in nodes}
    for node, prefix in (*_ids_without_prefix(nodes), *_only_c3(nodes)):
        for index, key in enumerate(node.handoff_keys):
            name = handoff_variable(prefix, key)
            owner = owners.setdefault(name, (node.id, key))
            if owner == (node.id, key) and name not in taken:
                aliases[node.id].setdefault(name, key)
            elif owner != (node.id, key) or name in taken:
                other = f'"{owner[1]}" of step "{owner[0]}"' if owner != (node.id, key) else "another variable"
                message = f'step "{node.id}": "{key}" is not known as "{name}" too, since that is {other}'
                place = f"{child(node.at, 'handoff')}/{index}"
                found.add("SF111", place, message, f'Use "{handoff_variable(node.id, key)}" in prompts.')
    return aliases


def _main_names(nodes: Mapping[str, CheckNode], found: FileFindings) -> dict[str, tuple[str, str]]:
    owners: dict[str, tuple[str, str]] = {}
    for node in nodes.values():
        for index, key in enumerate(node.handoff_keys):
            name = handoff_variable(node.id, key)
            other = owners.setdefault(name, (node.id, key))
            if other != (node.id, key):
                message = f'step "{node.id}": the handoff key "{key}" would be the variable "{name}", '
                message += f'as "{other[1]}" of step "{other[0]}" already is'
                place = f"{child(node.at, 'handoff')}/{index}"
                found.add("SF327", place, message, "Rename one of the keys or steps.")
    return owners


def _ids_without_prefix(nodes: Mapping[str, CheckNode]) -> Iterator[tuple[CheckNode, str]]:
    for node in nodes.values():
        short = node.id.removeprefix("s_")
        if short and short != node.id:
            yield node, short


def _only_c3(nodes: Mapping[str, CheckNode]) -> Iterator[tuple[CheckNode, str]]:
    named = {node.id: node.entry.prompt.c3 for node in nodes.values() if node.entry.prompt and node.entry.prompt.c3}
    times = Counter(named.values())
    for step_id, c3 in named.items():
        if times[c3] == 1:
            yield nodes[step_id], c3
