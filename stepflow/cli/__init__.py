"""The command line: takes arguments, returns an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from stepflow.cli.waiting import shown_activity
from stepflow.errors import InputError, RunCancelled, StepflowError

if TYPE_CHECKING:
    # Not imported at run time, so that `--help` stays fast.
    from stepflow.domain.secrets import Redactor

#: Command → its module in this package, which has `add_COMMAND_arguments` and `execute_COMMAND`, and its line in the
#: help.
COMMANDS = {
    "demo": ("demo", "run the whole flow on a small repository with a scripted model: no key, no network"),
    "init": ("init", "write a first agent, and the workflow that starts it"),
    "run": ("run", "run one agent on the current repository"),
    "resume": ("run", "resume a run that was stopped, with its original options"),
    "rehearse": ("rehearse", "play the agents' scenarios and show any differences: no key"),
    "prove": ("change", "show whether the tests of a change test it: no key"),
    "verify": ("change", "check a pull request against the signed statement about the run that made it"),
    "eval": ("eval", "compare two definitions of an agent on the same cases"),
    "validate": ("validate", "check all agents, and show each problem, where it is, and how to fix it"),
    "explain": ("reference", "explain a problem's code, with an example of wrong and right"),
    "preflight": ("run", "show what would stop a run, before a token is spent"),
    "show": ("show", "show a run as a readable timeline, even while it is in progress"),
    "gather": ("ledger", "show the results of many issues in one table, from their jobs' reports"),
    "ledger": ("ledger", "show what the runs of a repository cost, and what became of their changes"),
    "graph": ("graph", "draw an agent's step graph"),
    "mcp": ("mcp", "pin the tools of an agent's MCP servers in its lock file, as they list them now"),
    "schema": ("reference", "print the JSON Schema of a file format, for editors"),
    "completion": ("reference", "print the script that completes commands, flags and agents in your shell"),
}

#: Commands that get a key or a token, or whose tools run as the same user as this process.
HOLD_SECRETS = frozenset({"demo", "run", "resume", "rehearse", "preflight", "prove", "verify", "eval", "ledger", "mcp"})

#: The exit code that a shell reports for a program that was ended by SIGPIPE.
READER_GONE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Turn an error that the user can fix into one message and an exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        arguments = _parse(words)
    except _UsageError as error:
        if "--json" in words or "json" in re.findall(r"--format[= ](\w+)", " ".join(words)):
            _print_error(argparse.Namespace(command=_command_in(words)), error)
        sys.exit(2)
    # The process itself continues with a fixed PATH.
    arguments.path = os.environ.get("PATH", "")
    try:
        sends = arguments.command == "show" and str(arguments.otlp).startswith(("http://", "https://"))
        if argv is None and (sends or arguments.command in HOLD_SECRETS):
            importlib.import_module("stepflow.cli.options").close_process_to_others(arguments)
        code = _execute(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of the output, such as `head`, has closed the pipe. Python must not write the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE


class _UsageError(InputError):
    """An invalid command line. The problem has already been printed."""


class _CommandParser(argparse.ArgumentParser):
    """Prints what is wrong with a command line, and lets the caller exit."""

    def error(self, message: str) -> NoReturn:
        """Print usage and message, and raise `_UsageError`."""
        error = _UsageError(message)
        self.print_usage(sys.stderr)
        _print_error_text(f"{self.prog}: error: {error}")
        raise error


def command_module(command: str) -> ModuleType:
    """Import and return the module of a command."""
    return importlib.import_module(f"stepflow.cli.{COMMANDS[command][0]}")


def _execute(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code. If the user asked for JSON, print an error as an object on stdout too,
    so that there is always one."""
    module = command_module(arguments.command)
    cause: BaseException
    try:
        with _cancellable(arguments), shown_activity(arguments.command):
            return int(getattr(module, f"execute_{arguments.command}")(arguments))
    except BrokenPipeError:
        raise
    except StepflowError as error:
        code, message, cause = error.exit_code, f"stepflow: {error}", error
    except (RunCancelled, KeyboardInterrupt) as error:
        code, message, cause = 130, f"stepflow: cancelled. {error}".rstrip(), error
    except Exception as error:  # noqa: BLE001 - the terminal's own top handler: a bug before or after a run
        code, message, cause = 3, _describe_bug(), error
    _print_error_text(message)
    if _prints_json(arguments):
        _print_error(arguments, cause)
    return code


def _prints_json(arguments: argparse.Namespace) -> bool:
    return getattr(arguments, "json", False) or getattr(arguments, "format", "") == "json"


def _cancellable(arguments: argparse.Namespace) -> AbstractContextManager[object]:
    """Listen for signals if they must be reported as JSON, including those that arrive before the run itself
    listens."""
    if arguments.command not in HOLD_SECRETS or not _prints_json(arguments):
        return nullcontext()
    from stepflow.run.clock import Cancellation  # noqa: PLC0415 - as the command itself

    return Cancellation().listening()


def _print_error(arguments: argparse.Namespace, error: BaseException) -> None:
    """Print the report of a run that did not begin, or the error of another command."""
    from stepflow.cli.terminal import print_json  # noqa: PLC0415 - slow imports that only an error needs
    from stepflow.domain.secrets import redact_value  # noqa: PLC0415
    from stepflow.report.collect import ReportFacts  # noqa: PLC0415
    from stepflow.report.document import error_json, report_json  # noqa: PLC0415
    from stepflow.run.ending import describe_error, report_error  # noqa: PLC0415

    report = report_error(error, ReportFacts(agent=getattr(arguments, "agent", "")))
    is_run = arguments.command in ("run", "resume")
    document = report_json(report) if is_run else error_json(report, describe_error(error))
    redacted = redact_value(document, _redactor())
    assert isinstance(redacted, dict)  # noqa: S101 - a redactor changes only strings
    print_json(redacted)


def _describe_bug() -> str:
    """Return the traceback, and advice on what to do with it."""
    import traceback  # noqa: PLC0415 - slow imports that only a bug needs

    from stepflow.domain.words import Outcome  # noqa: PLC0415
    from stepflow.report.wording import advice  # noqa: PLC0415

    return f"{traceback.format_exc()}stepflow: internal error. {advice(Outcome.INTERNAL_ERROR)}"


def _print_error_text(text: str) -> None:
    """Print lines without the secrets of the environment. By now, those of the command line are in the environment
    too."""
    from stepflow.cli.terminal import print_lines  # noqa: PLC0415 - slow imports that only an error needs
    from stepflow.report.safe_text import text_lines  # noqa: PLC0415

    print_lines(sys.stderr, text_lines(_redactor()(text)))


def _redactor() -> Redactor:
    from stepflow.cli.options import SECRETS  # noqa: PLC0415 - slow imports that only an error needs
    from stepflow.domain.secrets import Redactor  # noqa: PLC0415
    from stepflow.run.start.inputs import secret_values  # noqa: PLC0415

    given = ((name, os.environ.get(variable, "")) for name, variable in SECRETS.items())
    return Redactor(value for name, text_of in given for value in secret_values(name, text_of))


def _parse(words: list[str]) -> argparse.Namespace:
    parser = _CommandParser(
        prog="stepflow",
        description="Runs AI agents on a repository's issues, one declared step at a time.",
        epilog="`stepflow COMMAND --help` shows a command's options. Try `stepflow demo` first.",
    )
    parser.add_argument("-V", "--version", action=_Version, nargs=0, help="show the version and exit")
    is_completing = "_ARGCOMPLETE" in os.environ
    if is_completing:
        words = os.environ["COMP_LINE"].split()[1:]
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    command_name = _command_in(words)
    for name, (_, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if name == command_name:
            getattr(command_module(name), f"add_{name}_arguments")(command)
    if is_completing:
        import argcomplete  # noqa: PLC0415 - only a shell that asks for completions pays for it

        # Answers the shell and ends the process.
        argcomplete.autocomplete(parser, always_complete_options=False)
    if not words:
        parser.print_help(sys.stderr)
        parser.exit(2)
    if command_name and command_name not in COMMANDS:
        meant = _closest(command_name, COMMANDS)
        known = f"did you mean `stepflow {meant}`?" if meant else f"there are {', '.join(COMMANDS)}"
        parser.error(f"there is no command `{command_name}`; {known}")
    arguments, unknown = parser.parse_known_args(words)
    if unknown and command_name:
        command = commands.choices[command_name]
        flags = re.findall(r"--[a-z][a-z-]+", command.format_help())
        meant = _closest(unknown[0].partition("=")[0], flags)
        hint = f"did you mean `{meant}`?" if meant else f"`stepflow {command_name} --help` lists all there are"
        command.error(f"unrecognized arguments: {' '.join(unknown)}; {hint}")
    return arguments


def _closest(word: str, known: Iterable[str]) -> str | None:
    import difflib  # noqa: PLC0415 - slow import that only a mistake needs

    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.75)), None)


def _command_in(words: list[str]) -> str | None:
    return next((word for word in words if not word.startswith("-")), None)


class _Version(argparse.Action):
    """Looks up the version only when it is requested."""

    def __call__(self, parser: argparse.ArgumentParser, *_rest: object) -> None:
        from importlib.metadata import version  # noqa: PLC0415 - costs more than all the rest of `--help`

        print(f"stepflow {version('stepflow')}")
        parser.exit()
