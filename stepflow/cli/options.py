"""Turns the action's inputs into flags of the command line."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import get_args, get_origin

from pydantic.fields import FieldInfo

from stepflow.definition.builtin import BUILTIN, PREFIX
from stepflow.definition.folder import find_agents
from stepflow.domain.json import JsonObject, compact
from stepflow.errors import InputError
from stepflow.run.start.input_values import InputMap, known_keys, parse_yaml_map
from stepflow.run.start.inputs import Inputs, read_inputs
from stepflow.run.start.policy import VARIABLE
from stepflow.run.start.server import VARIABLES, read_addresses
from stepflow.sandbox.environment import close_process

#: Inputs that are not flags: the command line has its own form for them, or does not have them.
OWN_FORM = frozenset({"agent", "mode", "host", "issue", "many-issues", "policy"})

#: The first input of each group, as in action.yml, and the name of the group in the help.
GROUPS = {
    "checks": "what most people need",
    "start": "what runs",
    "model": "the model",
    "boundary": "GitHub",
    "isolation": "the sandbox of tools and validators",
    "base-checks": "the run",
    "ca-certificates": "your infrastructure",
    "prove": "proof of fix",
    "github-api-url": "GitHub's server, recording, and output",
}

#: The environment variable of each secret, read if its flag is not set.
SECRETS = {
    "anthropic-api-key": "ANTHROPIC_API_KEY",
    "github-token": "GITHUB_TOKEN",
    "read-token": "STEPFLOW_READ_TOKEN",
    "mcp-secrets": "STEPFLOW_MCP_SECRETS",
    "telemetry": "STEPFLOW_TELEMETRY",
}

#: A key of a map and its value. A dot in the key leads into a map: `headers.Authorization=…`.
_PAIR = re.compile(r"(?P<key>[A-Za-z_][\w-]*)(?:\.(?P<inner>[\w-]+))?=(?P<value>.*)", re.DOTALL)

#: Defaults that differ from the action: a run at a terminal only plans, and takes the isolation that the machine has.
LOCAL_DEFAULTS = {"boundary": "dry-run", "isolation": "best-effort"}


def add_input_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that select the issue, and one flag per input."""
    parser.add_argument("--issue", metavar="N", help="number of the issue; its text comes from --issue-text")
    add_flags(parser, [name for name, _field in _flags()])


def add_agent(parser: argparse.ArgumentParser) -> None:
    """Add the argument for the name of one agent, which shell completion knows."""
    agent = parser.add_argument(
        "agent", metavar="NAME", help=f"the agent: a folder under .agent/, or a shipped one such as {PREFIX}fix"
    )
    agent.completer = lambda **_asked: (*find_agents(Path.cwd()), *(f"{PREFIX}{name}" for name in BUILTIN))  # type: ignore[attr-defined]


def add_option(
    parser: argparse.ArgumentParser, flag: str, metavar: str, text: str, *, default: float | str = "", dest: str = ""
) -> None:
    """Add a flag with a value. The help names the default unless it is empty."""
    shown = f"{text} (default: {default:g})" if isinstance(default, int | float) else text
    named = dest or flag.removeprefix("--").replace("-", "_")
    parser.add_argument(flag, metavar=metavar, help=shown, default=default, dest=named, type=type(default))


def add_repo(parser: argparse.ArgumentParser) -> None:
    """Add the flag for the repository."""
    add_option(parser, "--repo", "DIR", "the repository (default: the current folder)", default=".")


def add_switch(parser: argparse.ArgumentParser, flag: str, text: str) -> None:
    """Add a flag without a value."""
    parser.add_argument(flag, action="store_true", help=text)


def add_flags(parser: argparse.ArgumentParser, names: Collection[str]) -> None:
    """Add one flag for each of these inputs, with the input's own description. The usage only hints at them, because
    there are too many."""
    own = " ".join(parser.format_usage().partition("[-h] ")[2].split())
    parser.usage = f"%(prog)s {own} [--INPUT VALUE …]"
    heading, group = "", parser.add_argument_group()
    for name, field in _flags():
        heading = GROUPS.get(name, heading) or GROUPS["checks"]
        if name not in names:
            continue
        if group.title != heading:
            group = parser.add_argument_group(heading)
        flag, metavar, description = f"--{name}", _metavar(name, field), _help(name, field)
        if field.annotation is bool or bool in get_args(field.annotation):
            group.add_argument(flag, nargs="?", const="true", metavar=metavar, help=description)
        elif (kind := _map_kind(field)) is not None:
            each = group.add_argument(flag, action="append", metavar=metavar, help=description)
            each.completer = lambda kind=kind, **_asked: [f"{key}=" for key in _keys(kind)]  # type: ignore[attr-defined]
        else:
            group.add_argument(flag, metavar=metavar, help=description)


def _help(name: str, field: FieldInfo) -> str:
    """Return the input's description, with its default and the variable that may hold it."""
    text = " ".join((field.description or "").split())
    default = LOCAL_DEFAULTS.get(name) or field.get_default(call_default_factory=True)
    if isinstance(default, bool):
        default = str(default).lower() if default else ""
    elif isinstance(default, tuple):
        default = ", ".join(default)
    elif isinstance(default, InputMap):
        default = ""
    notes = [f"default: {default}"] if default else []
    notes += [f"or set {variable}"] if (variable := {**SECRETS, **VARIABLES}.get(name)) else []
    return (f"{text} ({'; '.join(notes)})" if notes else text).replace("%", "%%")


def _metavar(name: str, field: FieldInfo) -> str:
    kinds = tuple(_kinds(field.annotation))
    if choices := next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, StrEnum)), None):
        return f"{{{','.join(choices)}}}"
    if _map_kind(field) is not None:
        return "KEY=VALUE"
    return "BOOL" if bool in kinds else "N" if int in kinds else name.rpartition("-")[2].upper()


def _map_kind(field: FieldInfo) -> type[object] | None:
    """Return the class of an input that is a map: `dict`, or one that knows its keys. None for any other input."""
    kinds = (get_origin(each) or each for each in (field.annotation, *get_args(field.annotation)))
    return next((each for each in kinds if isinstance(each, type) and issubclass(each, dict | InputMap)), None)


def _keys(kind: type[object]) -> tuple[str, ...]:
    return known_keys(kind) if issubclass(kind, InputMap) else ()


def _read_map(name: str, kind: type[object], texts: Sequence[str]) -> str | JsonObject:
    """Return the map that `key=value` texts form, or the only text, which may be YAML."""
    pairs = [_PAIR.fullmatch(text) for text in texts]
    text_key = kind.text_key if issubclass(kind, InputMap) else ""
    if text_key:
        pairs = [pair if pair and pair["key"] in _keys(kind) else None for pair in pairs]
    if len(texts) == 1 and not pairs[0]:
        return texts[0]
    values: JsonObject = {}
    for text, pair in zip(texts, pairs, strict=True):
        if not pair and text_key:
            values[text_key] = text
            continue
        if not pair:
            raise InputError(
                f"--{name} is given more than once, and not as key=value each time.",
                hint=f"Repeat `--{name} key=value`, or write one YAML map.",
            )
        inner = values.setdefault(pair["key"], {}) if pair["inner"] else None
        if isinstance(inner, dict):
            inner[pair["inner"]] = pair["value"]
        else:
            values[pair["key"]] = pair["value"]
    return values


def _take_flags(arguments: argparse.Namespace) -> JsonObject:
    """Return what the flags say, by input."""
    given: JsonObject = {}
    for name, field in _flags():
        value = getattr(arguments, name.replace("-", "_"), None)
        if value is not None:
            kind = _map_kind(field)
            given[name] = _add_variable(name, _read_map(name, kind, value)) if kind is not None else value
    return given


def _add_variable(name: str, given: str | JsonObject) -> str | JsonObject:
    """Return the keys from flags with the other keys of the map in the input's variable."""
    text = os.environ.get(SECRETS.get(name, ""), "")
    if isinstance(given, str) or not text:
        return given
    with suppress(ValueError):
        known = parse_yaml_map(text)
        return {**known, **given} if isinstance(known, dict) else given
    # Reading the inputs says what is wrong with it.
    return text


def _kinds(annotation: object) -> Iterator[object]:
    """Yield an annotation and everything inside it."""
    yield annotation
    for part in get_args(annotation):
        yield from _kinds(part)


def read_flags(arguments: argparse.Namespace, **own: str) -> Inputs:
    """Return the inputs set by flags. `own` are inputs that the command sets itself."""
    secrets = {name: os.environ.get(variable) for name, variable in SECRETS.items()}
    flags = _take_flags(arguments)
    values = {
        **LOCAL_DEFAULTS,
        **read_addresses(os.environ, {name: value for name, value in flags.items() if isinstance(value, str)}),
        **{name: value for name, value in secrets.items() if value},
        **{name: value for name, value in flags.items() if name not in VARIABLES},
        "issue": getattr(arguments, "issue", None) or "",
        "policy": os.environ.get(VARIABLE, ""),
        **own,
    }
    return read_inputs(values)


def _flags() -> list[tuple[str, FieldInfo]]:
    fields = ((name.replace("_", "-"), field) for name, field in Inputs.model_fields.items())
    return [(name, field) for name, field in fields if name not in OWN_FORM]


def close_process_to_others(arguments: argparse.Namespace) -> None:
    """Protect this process from other processes. A command with a secret calls this first. Because everybody can read a
    command line, a secret in it moves to the environment."""
    close_process()
    given = _take_flags(arguments)
    moved = {
        variable: value if isinstance(value := given[name], str) else compact(value)
        for name, variable in SECRETS.items()
        if given.get(name)
    }
    if moved:
        words = without_secrets(sys.orig_argv)
        os.execve(sys.executable, words, {**os.environ, **moved, "PATH": arguments.path})  # noqa: S606 - this very program, with its own words


def without_secrets(words: Sequence[str]) -> list[str]:
    """Return the words of a command line without secret flags and their values. Abbreviated flags count too, since
    argparse accepts them."""
    remaining: list[str] = []
    left = iter(words)
    for word in left:
        flag, has_value, _ = word.partition("=")
        if len(flag) > len("--") and any(f"--{name}".startswith(flag) for name in SECRETS):
            if not has_value:
                next(left, None)
        else:
            remaining.append(word)
    return remaining
