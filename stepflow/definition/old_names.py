"""Old layouts and names in agent.json and in the registry, read as the new ones (registry.md §2.2 and §4)."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from stepflow.definition.diagnostics import FileProblems
from stepflow.definition.files.json_text import Pointer
from stepflow.definition.shapes import note_unknown
from stepflow.domain.json import JsonObject, JsonValue

KeyPath = tuple[str, ...]

_FLOW: KeyPath = ("runner", "flow")
_VERDICT: KeyPath = ("runner", "verdict")

#: Old place → new place. Both layouts may use them.
_MOVES: tuple[tuple[KeyPath, KeyPath], ...] = (
    (("behavior", "systemPromptPath"), (*_FLOW, "systemPromptPath")),
    (("behavior", "allowedTools"), ("runner", "boundaries", "allowedTools")),
    (("behavior", "permissionMode"), ("runner", "boundaries", "permissionMode")),
    (("behavior", "completionType"), (*_VERDICT, "type")),
    (("behavior", "completionConfig"), (*_VERDICT, "config")),
    (("runner", "completion", "type"), (*_VERDICT, "type")),
    (("runner", "completion", "config"), (*_VERDICT, "config")),
    (("prompts", "registry"), (*_FLOW, "prompts", "registry")),
    (("prompts", "fallbackDir"), (*_FLOW, "prompts", "fallbackDir")),
    (("github",), ("runner", "integrations", "github")),
    (("logging",), ("runner", "logging")),
    ((*_VERDICT, "config", "completionKeyword"), (*_VERDICT, "config", "verdictKeyword")),
)

#: Old places that do nothing today.
_DEAD: tuple[KeyPath, ...] = (
    ("actions",),
    ("worktree",),
    ("finalize",),
    ("behavior", "sandboxConfig"),
    ("behavior", "disableSandbox"),
    ("behavior", "preCloseValidation"),
)

OLD_VERDICT_TYPES = {
    "issue": "poll:state",
    "externalState": "poll:state",
    "iterate": "count:iteration",
    "iterationBudget": "count:iteration",
    "checkBudget": "count:check",
    "manual": "detect:keyword",
    "keywordSignal": "detect:keyword",
    "structuredSignal": "detect:structured",
    "stepFlow": "detect:graph",
    "stepMachine": "detect:graph",
    "composite": "meta:composite",
    "custom": "meta:custom",
}


@dataclass(kw_only=True)
class Renamed:
    """A file with new names only. `origins` maps a pointer of `document` to the one in the file."""

    document: JsonObject
    origins: dict[str, str] = field(default_factory=dict)
    old_names: list[str] = field(default_factory=list)

    def origin(self, pointer: str) -> str:
        """Where in the file the thing at a pointer of `document` stands."""
        for new, old in reversed(self.origins.items()):
            if pointer == new or pointer.startswith(new + "/"):
                return self.origin(old + pointer[len(new) :])
        return pointer


@dataclass(kw_only=True)
class RunnerLayout(Renamed):
    """`agent.json` in the runner layout; `flat` tells that it was written in the old one."""

    flat: bool = False


def to_runner_layout(document: JsonObject, problems: FileProblems) -> RunnerLayout:
    """Move everything old to its new place; problems with the layout itself are reported here."""
    layout = RunnerLayout(document=copy.deepcopy(document), flat="behavior" in document and "runner" not in document)
    if "behavior" in document and "runner" in document:
        message = 'the file has both "runner" (the layout of today) and "behavior" (the old one)'
        problems.add("SF205", "/behavior", message, 'Move what is in "behavior" into "runner" and remove it.')
        del layout.document["behavior"]
    for key_path in _DEAD:
        if holder := _holder(layout.document, key_path):
            del holder[key_path[-1]]
            name = ".".join(key_path)
            layout.old_names.append(name)
            problems.add("SF111", _pointer(key_path), f'"{name}" has no effect here', "Remove the key, or leave it.")
    for old, new in _MOVES:
        _move(layout, old, new)
    _drop_rest(layout, problems)
    _rename_verdict_types(layout)
    if layout.flat:
        layout.document.setdefault("runner", {})
    return layout


def report_old_names(old_names: list[str], problems: FileProblems) -> None:
    """The one warning of a file that uses old names (SF110)."""
    if old_names:
        message = f"old layout or old names, read as the new ones: {', '.join(old_names)}"
        problems.add("SF110", "", message, "Use the names of today; until then the old ones keep working.")


def _move(layout: RunnerLayout, old: KeyPath, new: KeyPath) -> None:
    holder = _holder(layout.document, old)
    if not holder:
        return
    value = holder.pop(old[-1])
    layout.old_names.append(".".join(old))
    node = layout.document
    for key in new[:-1]:
        inner = node.setdefault(key, {})
        if not isinstance(inner, dict):
            return  # the new place has a wrong type, which is reported there
        node = inner
    if new[-1] not in node:
        node[new[-1]] = value
        layout.origins[_pointer(new)] = _pointer(old)


def _holder(document: JsonObject, key_path: KeyPath) -> JsonObject:
    """The object that has the last key of a place; an empty one when there is none."""
    node: JsonValue = document
    for key in key_path[:-1]:
        node = node.get(key) if isinstance(node, dict) else None
    return node if isinstance(node, dict) and key_path[-1] in node else {}


def _drop_rest(layout: RunnerLayout, problems: FileProblems) -> None:
    """What is left of the old containers are keys that nobody knows, or containers of a wrong type."""
    for key_path in (("behavior",), ("prompts",), ("runner", "completion")):
        holder = _holder(layout.document, key_path)
        rest = holder.pop(key_path[-1]) if holder else {}
        if not isinstance(rest, dict):
            message = f'"{".".join(key_path)}" must be an object'
            problems.add("SF106", _pointer(key_path), message, "Write it as an object.")
            continue
        known = [old[-1] for old, _ in _MOVES if old[:-1] == key_path]
        for key in rest:
            note_unknown(_pointer(key_path) / key, key, known, problems)


def _rename_verdict_types(layout: RunnerLayout) -> None:
    runner = layout.document.get("runner")
    verdict = runner.get("verdict") if isinstance(runner, dict) else None
    if not isinstance(verdict, dict):
        return
    config = verdict.get("config")
    conditions = config.get("conditions") if isinstance(config, dict) else None
    for holder in (verdict, *(conditions if isinstance(conditions, list) else ())):
        old = holder.get("type") if isinstance(holder, dict) else None
        if isinstance(holder, dict) and isinstance(old, str) and old in OLD_VERDICT_TYPES:
            holder["type"] = OLD_VERDICT_TYPES[old]
            layout.old_names.append(f'verdict type "{old}"')


def _pointer(key_path: KeyPath) -> Pointer:
    return Pointer("".join(f"/{key}" for key in key_path))


_TOP = (("completionSteps", "validationSteps"), ("completionPatterns", "failurePatterns"))
_CONDITIONS = ("completionConditions", "validationConditions")


def to_new_names(document: JsonObject) -> Renamed:
    """Rename what S3 called otherwise; a new name beside the old one wins."""
    renamed = Renamed(document=copy.deepcopy(document))
    for old, new in _TOP:
        _rename(renamed, renamed.document, Pointer(), old, new)
    entries = renamed.document.get("validationSteps")
    for key, entry in entries.items() if isinstance(entries, dict) else ():
        _rename(renamed, entry, Pointer("/validationSteps") / key, *_CONDITIONS)
    mapping = renamed.document.get("entryStepMapping")
    for word in mapping if isinstance(mapping, dict) else ():
        if word in OLD_VERDICT_TYPES:
            renamed.old_names.append(f'verdict type "{word}"')
    return renamed


def _rename(renamed: Renamed, holder: JsonValue, at: Pointer, old: str, new: str) -> None:
    if isinstance(holder, dict) and old in holder and new not in holder:
        holder[new] = holder.pop(old)
        renamed.origins[at / new] = at / old
        renamed.old_names.append(old)
