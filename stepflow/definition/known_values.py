"""What a key must have been meant to say, where the rest of the file tells it.

Takes: the pointer of a key that is missing or has a wrong value, and what stands beside it. Gives: the value, or how
one looks.
May touch: nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepflow.definition.json_text import last_key
from stepflow.definition.suggest import write, write_meant

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

    from stepflow.definition.suggest import Ideas
    from stepflow.domain.json import JsonValue

_KINDS = ("initial", "continuation", "verification", "closure")

#: Keys that have one usual value.
_USUAL: dict[str, str] = {
    r"/version": "1.0.0",
    r"/c1": "steps",
    r"/validators/[^/]+/type": "command",
    r"/failurePatterns/[^/]+/edition": "failed",
    r"/validationSteps/[^/]+/c2": "retry",
}

#: How a value looks that nobody but the author can know.
_EXAMPLES: dict[str, str] = {
    "description": '"description": "Says in a sentence what it is for."',
    "displayName": '"displayName": "Issue Fixer"',
    "runner": '"runner": {"verdict": {"type": "poll:state"}}',
    "command": '"command": "make test"',
    "successWhen": '"successWhen": "exitCode:0"',
    "failurePattern": '"failurePattern": "test-failed", and "test-failed" in "failurePatterns"',
    "allowedIntents": '"allowedIntents": ["next", "repeat"]',
    "intentField": '"intentField": "next_action.action"',
    "intentSchemaRef": '"intentSchemaRef": "#/properties/next_action/properties/action"',
    "validationConditions": '"validationConditions": [{"validator": "tests"}]',
    "validator": '"validator": "tests", a key of "validators"',
    "from": '"from": "initial.issue.plan"',
    "type": '"type": "string"',
    "cli": '"cli": "--depth"',
    "key": '"key": "plan"',
    "check": '"check": {"onPass": {"next": "<step id>"}}',
    "prompt": '"prompt": {"c1": "steps", "c2": "phase", "c3": "analyze"}',
    "c2": '"c2": "initial", the folder of the prompt',
    "c3": '"c3": "issue", the folder of the prompt in that of "c2"',
}

#: A plain text where an object must stand → the key of the object that holds it.
_HOLDERS = {
    r"/steps/[^/]+/transitions/[^/]+": "target",
    r"/steps/[^/]+/(check/)?prompt": "path",
    r"/steps/[^/]+/check/on(Pass|Fail)": "next",
    r"/steps/[^/]+/handoff/[0-9]+": "key",
    r"/steps/[^/]+/inputs/[^/]+": "from",
    r"/validationSteps/[^/]+/validationConditions/[0-9]+": "validator",
    r"/runner/verdict": "type",
}


def example_of(key: str) -> str:
    """What to write for a needed key, as a sentence."""
    shown = _EXAMPLES.get(key)
    return f"Write {shown}, for example." if shown else f'Give "{key}" a value.'


def known_value(pointer: str, shape: BaseModel, agent: str) -> JsonValue:
    """The only value that a missing key can have, or its usual one; None when its author must choose.

    `agent` is the name of the agent's folder.
    """
    parent, _, key = pointer.rpartition("/")
    holder = last_key(parent)
    usual = next((value for pattern, value in _USUAL.items() if re.fullmatch(pattern, pointer)), None)
    if usual is not None:
        return usual
    value: str | None = None
    match key:
        case "stepId":
            value = holder
        case "name" | "agentId" if not parent:
            value = agent or None
        case "displayName":
            value = agent.replace("-", " ").title() or None
        case "c2" | "c3" if re.fullmatch(r"/(steps|validationSteps)/[^/]+", parent):
            value = _address_part(key, holder)
        case "intentField" | "intentSchemaRef":
            value = _other_way(key, shape)
        case "cli":
            value = flag_of(holder)
        case "type" if parent.startswith("/parameters/"):
            value = _type_of(getattr(shape, "default", None))
    return value


def as_meant(pointer: str, error: ErrorDetails, agent: str) -> Ideas:
    """What a value of a wrong type, or a word that is none of the known ones, was meant to be."""
    value = error["input"]
    kind = error["type"]
    if not isinstance(value, str):
        return ()
    if "expected" in error.get("ctx", {}):
        return write_meant(pointer, value, re.findall(r"'([^']*)'", error["ctx"]["expected"]))
    if kind == "string_pattern_mismatch":
        return _reshaped(pointer, value, agent)
    better = _converted(pointer, kind, value)
    return write(pointer, better) if better is not None else ()


def _converted(pointer: str, kind: str, value: str) -> JsonValue:
    """The same value in the type that is wanted; None where it is not the same."""
    better: JsonValue = None
    holder = next((key for pattern, key in _HOLDERS.items() if re.fullmatch(pattern, pointer)), None)
    if kind in ("int_type", "float_type") and re.fullmatch(r"[0-9]{1,9}", value):
        better = int(value)
    elif kind == "bool_type" and value.lower() in ("true", "false"):
        better = value.lower() == "true"
    elif kind == "list_type" and value:
        better = [value]
    elif kind in ("model_type", "model_attributes_type", "dict_type") and holder and value:
        # "closing" ends the run, whatever its author called that.
        better = {holder: None if pointer.endswith("/transitions/closing") else value}
    return better


def flag_of(name: str) -> str | None:
    """The usual flag of a parameter: `maxDepth` has `--max-depth`."""
    flag = "--" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).replace("_", "-").lower()
    return flag if re.fullmatch(r"--[a-z][a-z0-9-]*", flag) else None


def _address_part(key: str, step_id: str) -> str | None:
    kind, _, rest = step_id.partition(".")
    if kind not in _KINDS or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rest):
        return None
    return kind if key == "c2" else rest


def _other_way(key: str, gate: BaseModel) -> str | None:
    """`intentField` and `intentSchemaRef` say the same place, in the answer and in its schema."""
    field, pointer = getattr(gate, "intent_field", None), getattr(gate, "intent_schema_ref", None)
    if key == "intentSchemaRef" and isinstance(field, str) and re.fullmatch(r"[\w-]+(\.[\w-]+)*", field):
        return "#" + "".join(f"/properties/{part}" for part in field.split("."))
    if key == "intentField" and isinstance(pointer, str) and re.fullmatch(r"#(/properties/[\w-]+)+", pointer):
        return pointer.removeprefix("#/properties/").replace("/properties/", ".")
    return None


def _type_of(default: object) -> str | None:
    kinds = ((bool, "boolean"), (int | float, "number"), (str, "string"), (list, "array"))
    return next((word for kind, word in kinds if isinstance(default, kind)), None)


def _reshaped(pointer: str, value: str, agent: str) -> Ideas:
    """A flag without its hyphens, or the agent's name in other letters than its folder's."""
    if pointer.startswith("/parameters/") and pointer.endswith("/cli"):
        flag = flag_of(value.lstrip("-"))
        return write(pointer, flag) if flag else ()
    plain = re.sub(r"[_ ]", "-", value).lower()
    return write(pointer, agent) if pointer == "/name" and agent and plain == agent else ()
