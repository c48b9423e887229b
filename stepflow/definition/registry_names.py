"""Old names in a gate registry, read as the new ones (registry.md §4).

Takes: the parsed registry. Gives: the same with new names, and where each renamed value stood.
May touch: nothing.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from stepflow.definition.agent_layout import OLD_VERDICT_TYPES, Renamed
from stepflow.definition.json_text import child

if TYPE_CHECKING:
    from stepflow.domain.json import JsonObject, JsonValue

_TOP = (("completionSteps", "validationSteps"), ("completionPatterns", "failurePatterns"))
_CONDITIONS = ("completionConditions", "validationConditions")


def to_new_names(document: JsonObject) -> Renamed:
    """Rename what S3 called otherwise; a new name beside the old one wins."""
    renamed = Renamed(document=copy.deepcopy(document))
    for old, new in _TOP:
        _rename(renamed, renamed.document, "", old, new)
    entries = renamed.document.get("validationSteps")
    for key, entry in entries.items() if isinstance(entries, dict) else ():
        _rename(renamed, entry, child("/validationSteps", key), *_CONDITIONS)
    mapping = renamed.document.get("entryStepMapping")
    for word in mapping if isinstance(mapping, dict) else ():
        if word in OLD_VERDICT_TYPES:
            renamed.old_names.append(f'verdict type "{word}"')
    return renamed


def _rename(renamed: Renamed, holder: JsonValue, at: str, old: str, new: str) -> None:
    if isinstance(holder, dict) and old in holder and new not in holder:
        holder[new] = holder.pop(old)
        renamed.origins[child(at, new)] = child(at, old)
        renamed.old_names.append(old)
