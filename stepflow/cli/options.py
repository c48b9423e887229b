"""The action's inputs as flags.

Takes: an argument parser; parsed flags. Gives: `Inputs` (cli.md: every input has a flag of the same name).
May touch: the environment, where secrets stand so that no command line shows them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, get_args

from stepflow.errors import InputError
from stepflow.run.inputs import Inputs, read_inputs

if TYPE_CHECKING:
    import argparse

    from pydantic.fields import FieldInfo

#: Inputs that the command line gives in its own way, or not at all.
OWN_FORM = frozenset({"agent", "mode", "working-directory", "host", "issue", "parameters", "label-prefix"})

#: Where a secret is looked for when no flag gives it.
SECRETS = {
    "anthropic-api-key": "ANTHROPIC_API_KEY",
    "github-token": "GITHUB_TOKEN",
    "read-token": "STEPFLOW_READ_TOKEN",
}

#: What differs from the action: a terminal plans, and takes the isolation that the machine has.
LOCAL_DEFAULTS = {"boundary": "dry-run", "isolation": "best-effort"}


def add_input_flags(parser: argparse.ArgumentParser) -> None:
    """One flag per input, with the input's own description."""
    group = parser.add_argument_group("inputs of the action")
    for name, field in _flags():
        default = LOCAL_DEFAULTS.get(name)
        text = (field.description or "").replace("\n", " ").replace("%", "%%")
        told = f"{text} (here: {default})" if default else text
        if _is_switch(field.annotation):
            group.add_argument(f"--{name}", nargs="?", const="true", metavar="BOOL", help=told)
        else:
            group.add_argument(f"--{name}", metavar=name.rpartition("-")[2].upper(), help=told)
    parser.add_argument("--issue", metavar="N", help=Inputs.model_fields["issue"].description)
    parser.add_argument(
        "--param", action="append", default=[], metavar="KEY=VALUE", help="a value for a parameter of the agent"
    )


def read_flags(arguments: argparse.Namespace, **own: str) -> Inputs:
    """The inputs that the flags give; `own` are inputs that the command decides itself."""
    given = {name: getattr(arguments, name.replace("-", "_")) for name, _field in _flags()}
    secrets = {name: os.environ.get(variable) for name, variable in SECRETS.items()}
    values = {
        **LOCAL_DEFAULTS,
        **{name: value for name, value in secrets.items() if value},
        **{name: value for name, value in given.items() if value is not None},
        "issue": arguments.issue or "",
        "parameters": dict(_parameter(text) for text in arguments.param),
        **own,
    }
    return read_inputs(values)


def _flags() -> list[tuple[str, FieldInfo]]:
    fields = ((name.replace("_", "-"), field) for name, field in Inputs.model_fields.items())
    return [(name, field) for name, field in fields if name not in OWN_FORM]


def _is_switch(annotation: object) -> bool:
    return annotation is bool or bool in get_args(annotation)


def _parameter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f'--param "{text}" is no key=value.', hint="Write for example --param topic=parser.")
    return name, value
