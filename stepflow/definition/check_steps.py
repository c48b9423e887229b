"""The steps of a check registry by themselves: their outcomes, schemas and handoff variables (registry.md §6)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from stepflow.definition.diagnostics import FileProblems, did_you_mean, listed
from stepflow.definition.file_models import CheckRegistry, CheckStepEntry, TransitionEntry
from stepflow.definition.files.json_text import Pointer
from stepflow.definition.gate_steps import Node, check_key
from stepflow.domain.definition import OutcomeRule, StepCheck
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.words import Intent, StepKind
from stepflow.engine.prompt.variables import handoff_variable

CheckNodes = dict[str, Node[CheckStepEntry]]

_ID_FORM = re.compile(r"s_[0-9a-fA-F]{4,8}")


def read_check_steps(registry: CheckRegistry, problems: FileProblems) -> CheckNodes:
    """Check each step by itself."""
    return {step_id: _node(step_id, entry, registry, problems) for step_id, entry in registry.steps.items()}


def _node(step_id: str, entry: CheckStepEntry, registry: CheckRegistry, problems: FileProblems) -> Node[CheckStepEntry]:
    at = Pointer("/steps") / step_id
    check_key(step_id, entry.id, at, problems, word="id")
    if not _ID_FORM.fullmatch(step_id):
        message = f'the id "{step_id}" is not "s_" and 4 to 8 hexadecimal digits'
        problems.add("SF704", at, message, 'Use an id such as "s_a8f3"; the name of the step can say what it does.')
    keys: dict[str, Pointer] = {}
    for index, one in enumerate(entry.handoff):
        if one.key in keys:
            message = f'the handoff key "{one.key}" is declared twice'
            problems.report("SF708", at / "handoff" / index / "key", message, "Declare each key once.")
        elif one.key:
            keys[one.key] = at / "handoff" / len(keys)
    low, high = entry.iterations.min, entry.iterations.max
    if low > high and not problems.at(at / "iterations"):
        message = f'"iterations" has min {low}, which is more than max {high}'
        problems.report("SF705", at / "iterations", message, "Make min at most max.")
    outcomes = {"onPass": entry.check.on_pass, "onFail": entry.check.on_fail} if entry.check else {}
    rules = {key: tuple(_rules(outcome)) if outcome else () for key, outcome in outcomes.items()}
    if entry.check:
        _check_outcomes(at / "check", outcomes, rules, problems, steps=registry.steps, high=high)
    on_pass, on_fail = rules.get("onPass", ()), rules.get("onFail", ())
    if entry.check and low > 1:
        on_pass = (OutcomeRule(intent=Intent.REPEAT, transition="repeat", runs_below=low), *on_pass)
    if entry.check and high > 1 and not on_fail:
        on_fail = (OutcomeRule(intent=Intent.REPEAT, transition="repeat", runs_below=high),)
    check = StepCheck(
        on_pass=on_pass,
        on_fail=on_fail,
        is_demanded=entry.check is not None and entry.check.response_format is not None,
        handoff_keys=tuple(keys),
    )
    completes = any(rule.intent is Intent.CLOSING for rule in check.rules)
    return Node(
        id=step_id,
        at=at,
        entry=entry,
        kind=StepKind.CLOSURE if completes else StepKind.WORK,  # registry.md §7
        schema=_built_schema(entry, check),
        check=check,
        following={rule.target or step_id for rule in check.rules if rule.intent is not Intent.CLOSING},
        handed=keys,
    )


def _check_outcomes(
    at: Pointer,
    outcomes: Mapping[str, TransitionEntry | None],
    rules: Mapping[str, tuple[OutcomeRule, ...]],
    problems: FileProblems,
    *,
    steps: Mapping[str, CheckStepEntry],
    high: int,
) -> None:
    """Report an outcome that leads nowhere, and keys that are never reached."""
    if not any(rules.values()):
        if not problems.failed_at(f"{re.escape(at)}/on(Pass|Fail)(/.*)?"):
            message = 'neither "onPass" nor "onFail" of the check says what follows'
            problems.report("SF702", at, message, 'Write "onPass", for example {"next": "<step id>"}.')
        return
    for key, entry in outcomes.items():
        for name, target in (("next", entry.next), ("fallback", entry.fallback)) if entry else ():
            if target is not None and target not in steps:
                message = f'"{name}" names "{target}", which does not exist{did_you_mean(target, steps)}'
                problems.report("SF703", at / key / name, message, f"Name a step; there are {listed(steps)}.")
        for name, why in _unreached(entry) if entry else ():
            message = f'"{name}" of "{key}" is never reached, because {why}'
            problems.report("SF709", at / key / name, message, "Remove the key, or leave it.")
        if not rules[key] and not (key == "onFail" and high > 1) and not problems.at(at / key):
            message = f"nothing says what follows a {key[2:].lower()}, so it ends the run as failed"
            fix = f'Give "{key}" one of "next", "fallback", "retry" and "complete".'
            problems.report("SF706", at / key if entry else at, message, fix)


def _rules(entry: TransitionEntry) -> Iterator[OutcomeRule]:
    """What follows, in the order of reading (registry.md §6.2)."""
    if entry.complete:
        yield OutcomeRule(intent=Intent.CLOSING, transition="complete")
    elif entry.next is not None:
        yield OutcomeRule(intent=Intent.NEXT, transition="next", target=entry.next)
    else:
        if entry.retry:
            most = entry.max_retries or None
            yield OutcomeRule(intent=Intent.REPEAT, transition="retry", retries_below=most)
        if entry.fallback is not None and not (entry.retry and not entry.max_retries):
            yield OutcomeRule(intent=Intent.JUMP, transition="fallback", target=entry.fallback)


def _unreached(entry: TransitionEntry) -> Iterator[tuple[str, str]]:
    """The written keys that the order of reading never comes to, each with the reason."""
    given = {
        "next": entry.next is not None,
        "retry": entry.retry,
        "maxRetries": entry.max_retries > 0,
        "fallback": entry.fallback is not None,
    }
    if entry.complete or entry.next is not None:
        first = "complete" if entry.complete else "next"
        yield from ((name, f'"{first}" comes first') for name in given if given[name] and name != first)
    elif not entry.retry and given["maxRetries"]:
        yield "maxRetries", 'there is no "retry": true'
    elif entry.retry and not given["maxRetries"] and given["fallback"]:
        yield "fallback", '"retry" has no limit of its own'


def _built_schema(entry: CheckStepEntry, check: StepCheck) -> JsonObject | None:
    """The answer schema that the engine builds; None when nothing is read from the step's own answer."""
    asks = entry.check is not None and entry.check.prompt is not None
    if asks and not check.handoff_keys:
        return None
    properties: JsonObject = {} if asks else {"result": _RESULT}
    required: list[JsonValue] = ["result"] if check.is_demanded and not asks else []
    properties["message"] = {"type": "string", "description": "what was done or found"}
    if check.handoff_keys:
        described = {one.key: one.description for one in entry.handoff if one.key}
        keys: JsonObject = {key: {"description": text} if text else {} for key, text in described.items()}
        properties["handoff"] = {"type": "object", "required": list(described), "properties": keys}
        required.append("handoff")
    return {"type": "object", "required": required, "properties": properties}


_RESULT: JsonObject = {
    "enum": ["ok", "ng", "pass", "fail", True, False],
    "description": "ok: the step has done what it was asked; ng: it has not",
}


def add_aliases(
    nodes: CheckNodes, owners: dict[str, tuple[str, str]], reserved: frozenset[str], problems: FileProblems
) -> None:
    """Add the names beside `<id>_<key>`: the id without its `s_`, and the prompt's `c3` if no other step has it.

    `owners` are the handoff variables that there are, and get those that are added; `reserved` names mean something
    else. A second name that clashes with one of them is left out.
    """
    prefixes = [(node, node.id[2:]) for node in nodes.values() if node.id.startswith("s_") and node.id != "s_"]
    named = [(node, node.entry.prompt.c3) for node in nodes.values() if node.entry.prompt and node.entry.prompt.c3]
    times = Counter(c3 for _, c3 in named)
    for node, prefix in (*prefixes, *(one for one in named if times[one[1]] == 1)):
        for key, named_at in node.handed.items():
            name, own = handoff_variable(prefix, key), (node.id, key)
            owner = owners.setdefault(name, own)
            if owner == own and name not in reserved:
                node.aliases.setdefault(name, key)
            else:
                other = f'"{owner[1]}" of step "{owner[0]}"' if owner != own else "another variable"
                message = f'"{key}" is not known as "{name}" too, since that is {other}'
                problems.report("SF111", named_at, message, f'Use "{handoff_variable(node.id, key)}" in prompts.')
