"""The older forms of an agent's files: their layout and their names, read as the current ones."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from stepflow.definition.diagnostics import FileProblems
from stepflow.definition.file_models import AgentFile
from stepflow.definition.parsing import Pointer, node_at
from stepflow.definition.shapes import Shape, note_unknown, read_shape
from stepflow.domain.json import JsonObject, JsonValue

#: Old place → new place in agent.json. Both layouts may use them.
MOVES = (
    ("behavior.systemPromptPath", "runner.flow.systemPromptPath"),
    ("behavior.allowedTools", "runner.boundaries.allowedTools"),
    ("behavior.permissionMode", "runner.boundaries.permissionMode"),
    ("behavior.completionType", "runner.verdict.type"),
    ("behavior.completionConfig", "runner.verdict.config"),
    ("runner.completion.type", "runner.verdict.type"),
    ("runner.completion.config", "runner.verdict.config"),
    ("prompts.registry", "runner.flow.prompts.registry"),
    ("prompts.fallbackDir", "runner.flow.prompts.fallbackDir"),
    ("github", "runner.integrations.github"),
    ("logging", "runner.logging"),
    ("runner.verdict.config.completionKeyword", "runner.verdict.config.verdictKeyword"),
)

#: Old places that have no effect today.
_DEAD = (
    *("actions", "worktree", "finalize"),
    *("behavior.sandboxConfig", "behavior.disableSandbox", "behavior.preCloseValidation"),
)

#: Old name → new name in the registry: its own keys, and one key of each validation step.
TOP_NAMES = (("completionSteps", "validationSteps"), ("completionPatterns", "failurePatterns"))
CONDITION_NAMES = ("completionConditions", "validationConditions")

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
}


class FlatAgentFile(AgentFile):
    """`agent.json` in the old layout, which requires fewer keys."""

    version: str = ""
    display_name: str = ""
    description: str = ""


@dataclass(kw_only=True)
class Renamed:
    """A file with current names only. `origins` maps a pointer into `document` to the one in the file."""

    document: JsonObject
    origins: dict[str, str] = field(default_factory=dict)
    old_names: list[str] = field(default_factory=list)

    def origin(self, pointer: str) -> str:
        """The pointer in the file for a pointer into `document`."""
        for new, old in reversed(self.origins.items()):
            if pointer == new or pointer.startswith(new + "/"):
                return self.origin(old + pointer[len(new) :])
        return pointer

    def read(self, model: type[Shape], problems: FileProblems) -> tuple[Shape | None, FileProblems]:
        """The document as `model`, None after a fault in its shape, and its problems, whose pointers have the names as
        they are written."""
        if self.old_names:
            message = f"old layout or old names, read as the new ones: {', '.join(self.old_names)}"
            problems.add("SF110", "", message, "Use the current names; until then the old ones keep working.")
        written = problems.diagnostics.of(problems.file, self.origin)
        return read_shape(model, self.document, written), written


def to_runner_layout(document: JsonObject, problems: FileProblems) -> Renamed:
    """`agent.json` with everything old moved to its current place; reports problems with the layout itself."""
    layout = Renamed(document=copy.deepcopy(document))
    if "behavior" in document and "runner" in document:
        message = 'the file has both "runner" (the current layout) and "behavior" (the old one)'
        problems.add("SF205", "/behavior", message, 'Move what is in "behavior" into "runner" and remove it.')
        del layout.document["behavior"]
    for name in _DEAD:
        if holder := _holder(layout.document, name):
            del holder[_last(name)]
            layout.old_names.append(name)
            problems.note_idle(_pointer(name), f'"{name}" has no effect here')
    for old, new in MOVES:
        _move(layout, old, new)
    _drop_rest(layout, problems)
    _rename_verdict_types(layout)
    if is_flat(document):
        layout.document.setdefault("runner", {})
    return layout


def is_flat(document: JsonObject) -> bool:
    """Whether an agent.json has the old layout, which requires fewer keys."""
    return "behavior" in document and "runner" not in document


def _pointer(place: str) -> Pointer:
    return Pointer(f"/{place.replace('.', '/')}")


def _last(place: str) -> str:
    return place.rpartition(".")[2]


def _holder(document: JsonObject, place: str) -> JsonObject:
    """The object that has the last key of a place; an empty one if the key is missing."""
    node = node_at(document, _pointer(place).rpartition("/")[0])
    return node if isinstance(node, dict) and _last(place) in node else {}


def _move(layout: Renamed, old: str, new: str) -> None:
    holder = _holder(layout.document, old)
    if not holder:
        return
    value = holder.pop(_last(old))
    layout.old_names.append(old)
    node = layout.document
    for key in new.split(".")[:-1]:
        inner = node.setdefault(key, {})
        if not isinstance(inner, dict):
            return  # the new place has a wrong type, which is reported there
        node = inner
    if _last(new) not in node:
        node[_last(new)] = value
        layout.origins[_pointer(new)] = _pointer(old)


def _drop_rest(layout: Renamed, problems: FileProblems) -> None:
    """Report what is left of the old containers: unknown keys, or containers of a wrong type."""
    for place in ("behavior", "prompts", "runner.completion"):
        rest = _holder(layout.document, place).pop(_last(place), {})
        if not isinstance(rest, dict):
            problems.add("SF106", _pointer(place), f'"{place}" must be an object', "Write it as an object.")
            continue
        known = [_last(old) for old, _ in MOVES if old.rpartition(".")[0] == place]
        for key in rest:
            note_unknown(_pointer(place) / key, key, known, problems)


def _rename_verdict_types(layout: Renamed) -> None:
    verdict = node_at(layout.document, "/runner/verdict")
    conditions = node_at(verdict, "/config/conditions")
    for holder in (verdict, *(conditions if isinstance(conditions, list) else ())):
        old = holder.get("type") if isinstance(holder, dict) else None
        if isinstance(holder, dict) and isinstance(old, str) and old in OLD_VERDICT_TYPES:
            holder["type"] = OLD_VERDICT_TYPES[old]
            layout.old_names.append(f'verdict type "{old}"')


def to_new_names(document: JsonObject) -> Renamed:
    """Rename the keys that S3 called something else, in place; if both names are there, the new one wins."""
    renamed = Renamed(document=document)
    for old, new in TOP_NAMES:
        _rename(renamed, renamed.document, Pointer(), old, new)
    entries = renamed.document.get("validationSteps")
    for key, entry in entries.items() if isinstance(entries, dict) else ():
        _rename(renamed, entry, Pointer("/validationSteps") / key, *CONDITION_NAMES)
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
