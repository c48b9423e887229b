"""The reference page of the agent files, made from what it describes. `python -m tests.docs.reference --write`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from stepflow.definition.agent import OPTIONAL, REQUIRED, check_arguments
from stepflow.definition.diagnostics import rules
from stepflow.definition.loading import load_agent, validate_agent
from stepflow.definition.old_names import CONDITION_NAMES, MOVES, OLD_VERDICT_TYPES, TOP_NAMES
from stepflow.definition.published import agent_schema, check_schema, gate_schema
from stepflow.definition.shapes import field_notes
from stepflow.domain.words import INTENT_ALIASES, INTENTS_OF_KIND, VerdictType
from stepflow.engine.extract import EXTRACTORS
from stepflow.engine.prompt.render import TEMPLATE_KEYS
from stepflow.errors import Example, LintRule, Problem
from tests.definition.load_cases import Case, cases
from tests.docs.page import ROOT
from tests.docs.reference_words import (
    EXTRACTED,
    GROUPS,
    HEAD,
    ON_CHECKS,
    ON_EXTRACTORS,
    ON_OLD_NAMES,
    ON_PROBLEMS,
    ON_VERDICTS,
    VERDICTS,
)
from tests.docs.tables import table

PAGE = ROOT / "docs" / "registry.md"

#: Characters of a fix that the page shows: some list all the words there are.
MOST_SHOWN = 200

#: What the names in an object are.
NAMES = {"steps": "<id>", "validationSteps": "<id>", "transitions": "<intent>"}


def page() -> str:
    """The whole page."""
    parts = [
        HEAD,
        "## agent.json\n",
        *_file(agent_schema(), "AgentFile"),
        "### Verdict types\n",
        ON_VERDICTS + table(("type", "config", "finished, without gates and checks"), _verdicts()),
        "## steps_registry.json\n",
        *_file(gate_schema(), "GateRegistry"),
        "### Step kinds\n",
        table(("kind", "its answers may be"), _kinds()),
        _aliases(),
        "### Extractors\n",
        ON_EXTRACTORS + table(("name", "value"), _extractors()),
        "### Shipped templates\n",
        f"For `fallbackKey`: {_listed(TEMPLATE_KEYS)}.\n",
        "## steps_registry.json with checks\n",
        ON_CHECKS,
        *_file(check_schema(), "CheckRegistry", {"PatternEntry", "ValidatorEntry", "ValidationStepEntry"}),
        "## Old names\n",
        ON_OLD_NAMES + table(("old", "new"), _old_names()),
        "## Problems\n",
        ON_PROBLEMS,
        *_rules(),
    ]
    return "\n".join(parts)


def _file(schema: dict[str, Any], root: str, known: Iterable[str] = ()) -> Iterator[str]:
    """One table for each object of a file that is not `known` yet, in the order of its keys."""
    todo, seen = [(root, schema, "")], {root, *known}
    while todo:
        name, shape, anchor = todo.pop(0)
        if anchor:
            yield f"### `{anchor}`\n"
        yield table(("key", "type", "default", "from", "meaning"), _keys(name, shape, schema["$defs"]))
        inner = [
            (model, schema["$defs"][model], f"{anchor}.{key}{suffix}".removeprefix(".").replace("<>", _named(key)))
            for key, described in shape["properties"].items()
            for model, suffix in _objects(described)
            if model in field_notes() and model not in seen
        ]
        seen.update(model for model, _, _ in inner)
        todo = [*inner, *todo]


def _named(key: str) -> str:
    return NAMES.get(key, "<name>")


def _objects(schema: dict[str, Any], suffix: str = "") -> Iterator[tuple[str, str]]:
    """The models that a key's value is made of, each with what stands between: a name or an index."""
    if "$ref" in schema:
        yield schema["$ref"].rpartition("/")[2], suffix
    for branch in schema.get("anyOf", ()):
        yield from _objects(branch, suffix)
    if isinstance(schema.get("items"), dict):
        yield from _objects(schema["items"], suffix + "[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _objects(schema["additionalProperties"], suffix + ".<>")


def _keys(name: str, shape: dict[str, Any], definitions: dict[str, Any]) -> Iterator[Sequence[str]]:
    notes = field_notes()[name]
    for key, schema in shape["properties"].items():
        if key not in notes:
            continue
        note = notes[key]
        default = note.otherwise or _default(schema)
        shown = f"**`{key}`**" if key in shape.get("required", ()) else f"`{key}`"
        yield shown, _type(schema, definitions), default, note.source, note.text


def _default(schema: dict[str, Any]) -> str:
    given = schema.get("default")
    if given in (None, {}, []):
        return ""
    return f"`{str(given).lower() if isinstance(given, bool) else given}`"


def _type(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """A key's type in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return "any" if name == "JsonValue" else _type(definitions[name], definitions)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(branch, definitions) for branch in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return " ".join(f"`{word}`" for word in schema.get("enum") or [schema["const"]])
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema['items'], definitions)}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            inner = _type(schema["additionalProperties"], definitions)
            return "object of any" if inner == "any" else f"name → {inner}"
        case "string":
            return f"text `{schema['pattern']}`" if "pattern" in schema else "text"
        case "integer" | "number" as kind:
            return {"integer": "whole number", "number": "number"}[kind] + _bound(schema)
        case kind:
            return str(kind or "any")


def _bound(schema: dict[str, Any]) -> str:
    if "minimum" in schema:
        return f" ≥ {schema['minimum']}"
    return f" > {schema['exclusiveMinimum']:g}" if "exclusiveMinimum" in schema else ""


def _verdicts() -> Iterator[Sequence[str]]:
    for kind in VerdictType:
        needed = [f"**`{key}`**" for key in REQUIRED.get(kind, ())]
        yield f"`{kind}`", ", ".join([*needed, *(f"`{key}`" for key in OPTIONAL.get(kind, ()))]), VERDICTS[kind]


def _kinds() -> Iterator[Sequence[str]]:
    for kind, intents in INTENTS_OF_KIND.items():
        yield f"`{kind}`", _listed(sorted(intents)) + ", and always `abort`"


def _aliases() -> str:
    aliases = ", ".join(f"`{word}` for `{intent}`" for word, intent in INTENT_ALIASES.items())
    return f"An answer may also say {aliases}.\n"


def _extractors() -> Iterator[Sequence[str]]:
    """One row for all names of one extractor."""
    for name, text in EXTRACTED.items():
        same = [other for other in EXTRACTORS if EXTRACTORS[other] is EXTRACTORS[name]]
        yield ", ".join(f"`{other}`" for other in same), text


def _old_names() -> Iterator[Sequence[str]]:
    yield from ((f"`{old}`", f"`{new}`") for old, new in MOVES)
    yield from ((f"verdict type `{old}`", f"`{new}`") for old, new in OLD_VERDICT_TYPES.items())
    yield from ((f"`{old}`", f"`{new}`") for old, new in (*TOP_NAMES, CONDITION_NAMES))


def _rules() -> Iterator[str]:
    examples = _examples()
    for digit, title in GROUPS.items():
        rows = (
            (f"<a id='{code.lower()}'></a>{code}", row.severity.value, row.broken, _example(examples.get(code)))
            for code, row in rules().items()
            if code[2] == digit
        )
        yield f"### {title}\n\n" + table(("code", "severity", "rule broken", "for example"), rows)
        yield from (_explained(rule) for rule in rules().values() if rule.code[2] == digit)


def _explained(rule: LintRule) -> str:
    """Why a rule matters, and wrong and right, folded: the table above is what most come for."""
    parts = [f"<details><summary>{rule.code}: {rule.broken}</summary>\n\n{rule.why}\n"]
    for word, examples in (("Wrong", rule.wrong), ("Right", rule.right)):
        parts += [_fenced(word, example) for example in examples]
    return "\n".join([*parts, "</details>\n"])


def _fenced(word: str, example: Example) -> str:
    at = f" at `{example.pointer}`" if example.pointer else ""
    return f"{word}, `{example.file}`{at}:\n\n```{example.language}\n{example.text}\n```\n"


def _example(problem: Problem | None) -> str:
    if problem is None:
        return ""
    fix = (
        problem.fix if len(problem.fix) <= MOST_SHOWN else problem.fix[: problem.fix.rindex(",", 0, MOST_SHOWN)] + ", …"
    )
    return f"{_marked(problem.message)}. *{_marked(fix)}*"


def _marked(text: str) -> str:
    """What is quoted in a message stands as code: it may hold characters that Markdown would read."""
    quoted = text.split('"')
    shown = (f"`{part}`" if at % 2 else part.replace("<", "&lt;") for at, part in enumerate(quoted))
    return "".join(shown).replace("``", '`""`')


def _examples() -> dict[str, Problem]:
    """For each code the problem of the corpus that is told in the fewest words."""
    problems = [problem for case in cases("invalid") for problem in _problems(case)]
    problems.sort(key=lambda problem: (len(problem.message), problem.message), reverse=True)
    return {problem.code: problem for problem in problems}  # the last of a code stays


def _problems(case: Case) -> tuple[Problem, ...]:
    with tempfile.TemporaryDirectory() as name:
        root = case.build(Path(name))
        if "arguments" not in case.data:
            return validate_agent(case.agent, root=root, **case.options)
        agent = load_agent(case.agent, root=root, **case.options)
        return check_arguments(agent, case.data["arguments"], issue=case.data.get("issue"))[1]


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        sys.exit("docs/registry.md is not up to date: make docs")
