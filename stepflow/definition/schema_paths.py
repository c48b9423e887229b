"""What an answer that is valid under its schema can have at a dotted path."""

from __future__ import annotations

from dataclasses import dataclass

from stepflow.domain.json import JsonObject, JsonValue


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a valid answer can have at a path. `nodes` are the schemas that describe it.

    `blocked` says why nothing can be there, and is empty otherwise. `undeclared` says that something can be there
    although the schema does not name it: a service that enforces the schema would let nothing through.
    """

    nodes: tuple[JsonValue, ...] = ()
    blocked: str = ""
    undeclared: str = ""

    def takes_text(self, words: tuple[str, ...] = ()) -> bool:
        """Whether a string can be there: one of these words, if any are given."""
        return not self.nodes or any(_takes_text(node, words) for node in self.nodes)


def look_into(schema: JsonObject, path: str) -> Held:
    """What valid answers can have at a dotted path. `if`, `not` and patterns of names are not followed."""
    nodes: list[JsonValue] = [schema]
    undeclared = walked = ""
    for part in path.split("."):
        where = f'"{walked}"' if walked else "the answer"
        steps = [_step(node, part) for node in nodes]
        reasons = [step for step in steps if isinstance(step, str)]
        if reasons and len(reasons) == len(steps):
            return Held(blocked=f"{where} {reasons[0]}")
        nodes = [inner for step in steps if not isinstance(step, str) for inner in step]
        if not nodes and not undeclared:
            undeclared = f'{where} does not declare "{part}"'
        walked = f"{walked}.{part}" if walked else part
        if nodes and all(node is False for node in nodes):
            return Held(blocked=f'"{walked}" can have no value')
    return Held(nodes=tuple(nodes), undeclared=undeclared)


def _step(schema: JsonValue, part: str) -> list[JsonValue] | str:
    """The schemas of one part of what a schema describes, empty when it does not name the part; or why it cannot be
    there."""
    if not isinstance(schema, dict):
        return []
    kinds = schema.get("type", ["object", "array"])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "object" not in kinds and not ("array" in kinds and part.isdecimal()):
        return f"is of the type {' or '.join(map(str, kinds))}, which has no parts"
    values = schema.get("enum")
    if isinstance(values, list) and not any(isinstance(value, dict) and part in value for value in values):
        return f'can have no "{part}"'
    inner = _named(schema, part) if "object" in kinds else _item(schema, int(part))
    members = schema.get("allOf")
    for step in [_step(member, part) for member in members] if isinstance(members, list) else ():
        if isinstance(step, str):
            return step
        inner = inner if isinstance(inner, str) and not step else [*([] if isinstance(inner, str) else inner), *step]
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        steps = [_step(option, part) for option in options] if isinstance(options, list) else []
        open_ones = [step for step in steps if not isinstance(step, str)]
        if steps and not open_ones:
            return steps[0]
        if not isinstance(inner, str):
            inner = [*inner, *(node for step in open_ones for node in step)]
    return inner


def _named(schema: JsonObject, part: str) -> list[JsonValue] | str:
    properties, rest = schema.get("properties"), schema.get("additionalProperties")
    named = properties if isinstance(properties, dict) else {}
    if part in named:
        return f'forbids "{part}"' if named[part] is False else [named[part]]
    if rest is False and not schema.get("patternProperties"):
        return f'is closed and has no "{part}"' if named else "is an object that allows no properties"
    return [rest] if isinstance(rest, dict) else []


def _item(schema: JsonObject, index: int) -> list[JsonValue]:
    listed, others = schema.get("prefixItems"), schema.get("items", True)
    if isinstance(others, list):  # as draft 7 has it
        listed, others = others, schema.get("additionalItems", True)
    return [listed[index] if isinstance(listed, list) and index < len(listed) else others]


def _takes_text(schema: JsonValue, words: tuple[str, ...]) -> bool:
    if not isinstance(schema, dict):
        return schema is not False
    kinds, values = schema.get("type", "string"), schema.get("enum", [schema["const"]] if "const" in schema else None)
    if kinds != "string" and not (isinstance(kinds, list) and "string" in kinds):
        return False
    texts = [value for value in values if isinstance(value, str)] if isinstance(values, list) else list(words)
    if isinstance(values, list) and not (set(texts) & set(words) if words else texts):
        return False
    options = [schema.get(key) for key in ("anyOf", "oneOf")]
    members = schema.get("allOf")
    return all(
        any(_takes_text(one, words) for one in option) for option in options if isinstance(option, list) and option
    ) and all(_takes_text(one, words) for one in (members if isinstance(members, list) else ()))
