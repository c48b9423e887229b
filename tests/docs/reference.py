"""docs/keys and docs/rules: the pages about an agent's files, made from what they describe.

`python -m tests.docs.reference --write` writes them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from stepflow.definition.agent import OPTIONAL, REQUIRED, check_arguments
from stepflow.definition.loading import load_agent, validate_agent
from stepflow.definition.old_names import CONDITION_NAMES, MOVES, OLD_VERDICT_TYPES, TOP_NAMES
from stepflow.definition.published import agent_schema, check_schema, gate_schema
from stepflow.definition.rules import GROUPS, RuleGroup, rules
from stepflow.definition.shapes import field_notes
from stepflow.domain.words import INTENT_ALIASES, INTENTS_OF_KIND, VerdictType
from stepflow.engine.extract import EXTRACTORS
from stepflow.engine.prompt.render import TEMPLATE_KEYS
from stepflow.errors import Example, LintRule, Problem
from tests.definition.load_cases import Case, cases
from tests.docs.page import DOCS, ROOT
from tests.docs.reference_words import (
    EXTRACTED,
    HEAD,
    MADE,
    ON_CHECKS,
    ON_EXTRACTORS,
    ON_OLD_NAMES,
    ON_RULES,
    ON_VERDICTS,
    VERDICTS,
)
from tests.docs.tables import table

#: The pages of the files' keys, and those of the rules.
KEYS, RULES = DOCS / "keys", DOCS / "rules"

#: Characters of a fix that a page shows: some list all the words there are.
MOST_SHOWN = 200

#: What the names in an object are.
NAMES = {"steps": "<id>", "validationSteps": "<id>", "transitions": "<intent>"}


def pages() -> dict[Path, str]:
    """Every page by its path."""
    return {KEYS / f"{name}.md": "\n".join(parts) for name, parts in _key_pages().items()} | {
        RULES / f"{name}.md": "\n".join(parts) for name, parts in _rule_pages()
    }


def outdated() -> list[str]:
    """The pages that are missing, not up to date, or no longer made."""
    made = pages()
    stands = {path for folder in (KEYS, RULES) for path in folder.glob("*.md")}
    wrong = [path for path, text in made.items() if path not in stands or path.read_text(encoding="utf-8") != text]
    return sorted(str(path.relative_to(ROOT)) for path in {*wrong, *(stands - made.keys())})


def _key_pages() -> dict[str, list[str]]:
    return {
        "README": [HEAD],
        "agent": [
            _title("agent.json", "the whole agent. [How to read the table](README.md)."),
            *_file(agent_schema(), "AgentFile"),
            "## Verdict types\n",
            ON_VERDICTS + table(("type", "config", "finished, without gates and checks"), _verdicts()),
        ],
        "steps": [
            _title("steps_registry.json", "the steps, with gates. [How to read the table](README.md)."),
            *_file(gate_schema(), "GateRegistry"),
            "## Step kinds\n",
            table(("kind", "its answers may be"), _kinds()),
            _aliases(),
            "## Extractors\n",
            ON_EXTRACTORS + table(("name", "value"), _extractors()),
            "## Shipped templates\n",
            f"For `fallbackKey`: {_listed(TEMPLATE_KEYS)}.\n",
        ],
        "checks": [
            _title("steps_registry.json with checks", "the older form of the file."),
            ON_CHECKS,
            *_file(check_schema(), "CheckRegistry", {"PatternEntry", "ValidatorEntry", "ValidationStepEntry"}),
            "## Old names\n",
            ON_OLD_NAMES + table(("old", "new"), _old_names()),
        ],
    }


def _title(what: str, about: str) -> str:
    return f"# {what}\n\n{MADE}\n\nEvery key of `{what.split(maxsplit=1)[0]}`: {about}\n"


def _rule_pages() -> Iterator[tuple[str, list[str]]]:
    examples = _examples()
    index = [ON_RULES]
    for digit, group in GROUPS.items():
        members = [rule for rule in rules().values() if rule.code[2] == digit]
        rows = ((_code_link(rule, group), rule.severity.value, rule.broken) for rule in members)
        index.append(f"## {group.title}\n\n" + table(("code", "severity", "rule broken"), rows))
        about = f"# Rules: {group.title}\n\n{MADE}\n\n[All rules](README.md) · offline: `stepflow explain CODE`\n"
        yield group.page, [about, *(_explained(rule, examples.get(rule.code)) for rule in members)]
    yield "README", index


def _code_link(rule: LintRule, group: RuleGroup) -> str:
    return f"[{rule.code}]({group.page}.md#{rule.code.lower()})"


def _file(schema: dict[str, Any], root: str, known: Iterable[str] = ()) -> Iterator[str]:
    """One table for each object of a file that is not `known` yet, in the order of its keys."""
    todo, seen = [(root, schema, "")], {root, *known}
    while todo:
        name, shape, anchor = todo.pop(0)
        if anchor:
            yield f"## `{anchor}`\n"
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


def _explained(rule: LintRule, problem: Problem | None) -> str:
    """A rule: how severe it is, why it matters, what a message says, wrong and right."""
    parts = [f"## {rule.code}\n", f"**{rule.severity.value.capitalize()}: {rule.broken}.** {rule.why}\n"]
    if problem is not None:
        parts.append(f"For example: {_example(problem)}\n")
    for word, examples in (("Wrong", rule.wrong), ("Right", rule.right)):
        parts += [_fenced(word, example) for example in examples]
    return "\n".join(parts)


def _fenced(word: str, example: Example) -> str:
    at = f" at `{example.pointer}`" if example.pointer else ""
    return f"{word}, `{example.file}`{at}:\n\n```{example.language}\n{example.text}\n```\n"


def _example(problem: Problem) -> str:
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
        for old in outdated():
            (ROOT / old).unlink(missing_ok=True)
        for path, text in pages().items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    elif old := outdated():
        sys.exit(f"Not up to date: {', '.join(old)}. Run `make docs`.")
