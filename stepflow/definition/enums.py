"""The enum of intents in an answer schema, and what a gate that differs from it was meant to say.

Takes: a resolved answer schema, a gate and its transitions. Gives: the enum's words; ideas that bring both together.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.definition.json_text import child
from stepflow.definition.schema_refs import node_at
from stepflow.definition.suggest import write
from stepflow.domain.words import Intent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.definition.registry_file import GateEntry
    from stepflow.definition.schemas import SchemaDesk
    from stepflow.definition.steps import Node
    from stepflow.definition.suggest import Ideas
    from stepflow.domain.json import JsonObject, JsonValue

#: Intents that need no rule.
_WITHOUT_RULE = frozenset({Intent.REPEAT, Intent.JUMP, Intent.ABORT})


def enum_of(entry: GateEntry, schema: JsonObject | None) -> list[str] | None:
    """The words of the enum that `intentSchemaRef` leads to; None when it leads to no enum of texts."""
    pointer = entry.intent_schema_ref or ""
    node = node_at(schema, pointer[1:]) if schema is not None and pointer.startswith("#/") else None
    return _words(node)


def pointer_meant(entry: GateEntry, schema: JsonObject | None, at: str) -> Ideas:
    """The only pointer that leads to an enum with just the allowed intents."""
    allowed = set(entry.allowed_intents or []) - {Intent.ABORT}
    fitting = [pointer for pointer, words in _enums(schema, "#") if allowed and set(words) - {Intent.ABORT} == allowed]
    return write(at, fitting[0]) if len(fitting) == 1 else ()


def brought_together(node: Node, entry: GateEntry, words: list[str], desk: SchemaDesk | None, at: str) -> Ideas:
    """One of enum and `allowedIntents` fits the rules of the step: then the other is the one to change."""
    enum, allowed = set(words) - {Intent.ABORT}, set(entry.allowed_intents or []) - {Intent.ABORT}
    rules = set(node.entry.transitions or {}) - _WITHOUT_RULE
    if enum - _WITHOUT_RULE == rules and allowed - _WITHOUT_RULE != rules:
        return write(child(at, "allowedIntents"), [word for word in words if word != Intent.ABORT])
    if allowed - _WITHOUT_RULE == rules and enum - _WITHOUT_RULE != rules and desk is not None:
        place = desk.written_place(node.entry.output_schema_ref, (entry.intent_schema_ref or "")[1:])
        kept = [word for word in words if word in allowed or word == Intent.ABORT]
        new = [*kept, *(word for word in entry.allowed_intents or [] if word not in kept)]
        return write(f"{place[1]}/enum", list(new), file=place[0]) if place else ()
    return ()


def _words(node: JsonValue) -> list[str] | None:
    words = node.get("enum") if isinstance(node, dict) else None
    if not isinstance(words, list) or not words:
        return None
    texts = [word for word in words if isinstance(word, str)]
    return texts if len(texts) == len(words) else None


def _enums(node: JsonValue, at: str) -> Iterator[tuple[str, list[str]]]:
    """Every enum of texts below the properties of a schema, with its pointer."""
    properties = node.get("properties") if isinstance(node, dict) else None
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        place = child(f"{at}/properties", name)
        words = _words(inner)
        if words is not None:
            yield place, words
        yield from _enums(inner, place)
