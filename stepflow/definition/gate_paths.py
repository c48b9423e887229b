"""Whether an answer that fits a step's schema can hold what the step's gate reads of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from stepflow.definition.answer_paths import Held, look_into
from stepflow.definition.diagnostics import FileProblems
from stepflow.definition.file_models import GateEntry
from stepflow.definition.files.json_text import Pointer, node_at
from stepflow.domain.json import JsonObject
from stepflow.domain.words import Intent

_DECLARE = "Declare the path in the answer schema, or correct it here."


@dataclass(frozen=True, kw_only=True)
class GatePaths:
    """Checks the paths of one gate, which is at `at`, against the schema (SF325, SF332, SF333).

    `allowed` are the words of its intents.
    """

    schema: JsonObject
    entry: GateEntry
    allowed: tuple[str, ...]
    at: Pointer
    problems: FileProblems

    def check(self) -> None:
        """Report each path that no answer can hold, or that the schema does not declare."""
        entry = self.entry
        if entry.intent_field and is_dotted(entry.intent_field):
            self._check_intent(entry.intent_field)
        if entry.target_field and is_dotted(entry.target_field) and Intent.JUMP in self.allowed:
            held = look_into(self.schema, entry.target_field)
            if not held.blocked and not held.takes_text():
                held = replace(held, blocked=f'"{entry.target_field}" takes no text')
            self._check_path(held, self.at / "targetField", entry.target_field)
        for index, path in enumerate(entry.handoff_fields):
            if is_dotted(path):
                self._check_path(look_into(self.schema, path), self.at / "handoffFields" / index, path)

    def _check_intent(self, path: str) -> None:
        held, at, pointer = look_into(self.schema, path), self.at / "intentField", self.entry.intent_schema_ref or ""
        words = tuple(word for word in self.allowed if word in list(Intent))
        pointed = node_at(self.schema, pointer[1:]) if pointer.startswith("#/") else None
        if held.blocked or not held.takes_text(words):
            why = held.blocked or f'"{path}" takes none of the allowed intents'
            near = _path_of(pointer) if isinstance(pointed, dict) and pointed.get("enum") else None
            fix = f'Write "{near}".' if near and near != path else _DECLARE
            self.problems.report("SF332", at, f'no answer can hold an intent at "{path}": {why}', fix)
        elif isinstance(pointed, dict) and not any(node is pointed for node in held.nodes):
            if not self.problems.at(self.at / "intentSchemaRef"):
                message = f'"intentSchemaRef" "{pointer}" leads to another enum than that of "{path}"'
                own = "".join(f"/properties/{part}" for part in path.split("."))
                is_there = node_at(self.schema, own) is not None
                fix = f'Write "#{own}".' if is_there else 'Point it at the schema node that "intentField" reads.'
                self.problems.report("SF325", self.at / "intentSchemaRef", message, fix)
        else:
            self._check_path(held, at, path)

    def _check_path(self, held: Held, at: Pointer, path: str) -> None:
        if held.blocked:
            self.problems.report("SF333", at, f'no answer can hold "{path}": {held.blocked}', _DECLARE)
        elif held.undeclared:
            message = f'an answer may not hold "{path}": {held.undeclared}, and services allow only what is declared'
            self.problems.report("SF333", at, message, _DECLARE)


def is_dotted(path: str) -> bool:
    """Whether a text is names with dots between them."""
    return all(part and part == part.strip() for part in path.split("."))


def _path_of(pointer: str) -> str | None:
    """The dotted path that a pointer through properties alone leads to."""
    match = re.fullmatch(r"#((?:/properties/[^/]+)+)", pointer)
    return match[1].removeprefix("/properties/").replace("/properties/", ".") if match else None
