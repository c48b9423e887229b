"""`stepflow init NAME`: an agent that runs the checks of the repository, and the workflow that starts it."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.cli.layouts.files import RepositoryFiles, table_of
from stepflow.cli.layouts.find import DetectedCheck, Setup, find_checks, find_setup
from stepflow.cli.layouts.layout import program_of
from stepflow.cli.options import add_repo
from stepflow.cli.terminal import make_console, show_lines, show_texts
from stepflow.cli.workflow import Workflow
from stepflow.definition.builtin import BUILTIN, PREFIX, READ_ONLY, agent_files, name_checks
from stepflow.definition.judged import UNJUDGED
from stepflow.definition.loading import validate_agent
from stepflow.definition.published import agent_schema, registry_schema
from stepflow.errors import InputError
from stepflow.model.scenario import scenario_schema
from stepflow.report.safe_text import Line, Tone
from stepflow.sandbox.environment import SYSTEM_PATH, user_programs

if TYPE_CHECKING:
    from rich.console import Console

AGENT_NAME = re.compile(r"[a-z][a-z0-9-]*")
NAME_HINT = (
    "A name has lower-case letters, digits and dashes, and begins with a letter; the label is then agent:<name>."
)
DEFAULT_AGENT = "fix"
DEFAULT_NAME = "fixer"
#: Programs for JavaScript that may also check how JSON and Markdown are written.
_READERS_OF_JSON = ("ESLint", "Prettier", "Biome", "dprint")
#: What people call a virtual environment in a repository.
ENVIRONMENTS = (".venv", "venv", "env")
#: The agent is written, but nothing that it does is judged: a script can notice.
JUDGES_NOTHING = 1


def add_init_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `init`."""
    purposes = "; ".join(f"{PREFIX}{name}: {text}" for name, text in BUILTIN.items())
    parser.add_argument("name", nargs="?", metavar="NAME", help="the new agent, which becomes the folder .agent/NAME")
    parser.add_argument(
        "--from",
        dest="builtin",
        choices=tuple(f"{PREFIX}{name}" for name in BUILTIN),
        help=f"the shipped agent to start from ({purposes})",
    )
    parser.add_argument(
        "--check",
        action="append",
        metavar="COMMAND",
        help="a command that must pass before its work counts as done, such as `make test`; repeatable (default: what "
        "the repository's files suggest)",
    )
    add_repo(parser)


def execute_init(arguments: argparse.Namespace) -> int:
    """Ask for missing values, write the files, and print the next steps."""
    root = Path(arguments.repo).resolve()
    if not root.is_dir():
        raise InputError(f"There is no folder {root}.", hint="Name the repository with --repo.")
    programs = (*user_programs(arguments.path, os.environ), *map(Path, SYSTEM_PATH))
    detected = find_checks(root, programs)
    name, commands = arguments.name, arguments.check
    builtin = arguments.builtin.removeprefix(PREFIX) if arguments.builtin else None
    if builtin is None and sys.stdin.isatty() and sys.stdout.isatty():
        console = make_console(sys.stdout)
        if name:
            check_name(root, name)
        try:
            name, builtin, commands = ask(console, root, name=name, commands=commands, detected=detected)
        except EOFError as error:  # Ctrl-D
            raise KeyboardInterrupt from error
    builtin = builtin or DEFAULT_AGENT
    check_name(root, name or "")
    if commands is None:
        commands = [] if builtin in READ_ONLY else [each.command for each in detected if each.can_run]
    setup = find_setup(root, commands)
    workflow = Workflow.place(root, name, builtin, setup if commands or builtin not in READ_ONLY else Setup())
    written = write_agent(root, name, builtin, commands, workflow)
    console = make_console(sys.stdout)
    show_texts(console, (f"{'wrote' if new else 'left as it is'}  {path}" for path, new in written.items()))
    about = _about_checks(commands, () if builtin in READ_ONLY else detected)
    about_workflow = _about_workflow(workflow, commands, is_new=written[workflow.path])
    here = _about_here(root, [each for each in detected if each.command in commands and not each.is_here], setup)
    about_files = _about_own_files(root, commands)
    show_texts(console, (*about, *about_files, *about_workflow, *here, *_next(root, name, builtin, workflow)))
    unjudged = any(problem.code == UNJUDGED for problem in validate_agent(name, root=root, demand_checks=True))
    if unjudged:
        warning = (
            "",
            f"WARNING: {name} judges nothing. Its checks run no code, so a run that breaks the repository ends as "
            f"completed ({UNJUDGED}).",
            f"Remove {shlex.quote(f'.agent/{name}')} and write it again with what must pass: "
            f"stepflow init {name} --check 'COMMAND THAT RUNS THE TESTS'",
        )
        show_texts(make_console(sys.stderr), warning)
    return JUDGES_NOTHING if unjudged else 0


def ask(
    console: Console,
    root: Path,
    *,
    name: str | None,
    commands: Sequence[str] | None,
    detected: Sequence[DetectedCheck],
) -> tuple[str, str, list[str]]:
    """Ask at the terminal for the values that were not given, and again for a name that cannot be used."""
    from rich.prompt import Prompt  # noqa: PLC0415 - rich is slow, and only questions need it

    name = name or _ask_name(console, root)
    for builtin, purpose in BUILTIN.items():
        show_texts(console, (f"  {builtin:<8} {purpose}",))
    builtin = Prompt.ask("Begin with", console=console, choices=list(BUILTIN), default=DEFAULT_AGENT)
    if commands is None:
        commands = [] if builtin in READ_ONLY else [*_ask_commands(console, detected)]
    return name, builtin, list(commands)


def _ask_name(console: Console, root: Path) -> str:
    from rich.prompt import Prompt  # noqa: PLC0415 - rich is slow, and only questions need it

    while True:
        name = Prompt.ask("Name of the agent", console=console, default=DEFAULT_NAME).strip()
        try:
            check_name(root, name)
        except InputError as error:
            show_lines(console, (Line(Tone.BAD, str(error)),))
        else:
            return name


def _ask_commands(console: Console, detected: Sequence[DetectedCheck]) -> Iterator[str]:
    from rich.prompt import Confirm, Prompt  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    show_texts(console, ("What must pass before an agent's work counts as done? A clean tree always does.",))
    for each in detected:
        where = each.source if each.is_here else f"{each.source}; not installed here"
        # rich reads markup in a question that is no `Text`, and the repository names the command.
        question = Text(Line(Tone.PLAIN, f"{each.command} ({where})"))
        if Confirm.ask(question, console=console, default=each.can_run):
            yield each.command
    while command := Prompt.ask(
        "Another command (empty: none)", console=console, default="", show_default=False
    ).strip():
        yield command


def check_name(root: Path, name: str) -> None:
    """Raise `InputError` for an invalid name or an existing folder. Nothing is ever overwritten."""
    if not AGENT_NAME.fullmatch(name):
        raise InputError(f'"{name[:100]}" is not an agent name.' if name else "The agent has no name.", hint=NAME_HINT)
    folder = root / ".agent" / name
    if folder.exists() or folder.is_symlink():
        raise InputError(
            f"{folder} already exists; nothing was written.", hint="Choose another name, or remove the folder first."
        )


def write_agent(root: Path, name: str, builtin: str, commands: Sequence[str], workflow: Workflow) -> dict[str, bool]:
    """Write the files that do not exist yet. Return for each path whether it was written."""
    agent = agent_files(builtin, name, name_checks(commands))
    schemas = {"agent": agent_schema, "registry": registry_schema, "scenario": scenario_schema}
    texts = {
        **{f".agent/{name}/{path}": text for path, text in agent.items()},
        **{f".agent/{format_}.schema.json": _document(schema()) for format_, schema in schemas.items()},
    }
    written = {path: _write_new(root / path, text) for path, text in texts.items()}
    return {**written, workflow.path: _write_new(workflow.file, workflow.text)}


def _document(schema: object) -> str:
    """Return the schema on one line. It is for editors, and reviewers should not have to scroll past it."""
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":")) + "\n"


def _write_new(file: Path, text: str) -> bool:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except FileExistsError:
        return False
    except OSError as exc:
        raise InputError(f"{file} cannot be written: {exc.strerror}.", hint="See who owns the folder.") from exc
    return True


def _about_checks(commands: Sequence[str], detected: Sequence[DetectedCheck]) -> Iterator[str]:
    yield ""
    yield f"Must pass before its work counts as done: a clean tree{''.join(f', `{command}`' for command in commands)}."
    for each in detected:
        if not each.can_run and each.command not in commands:
            yield f"Not added: {each.source} suggests `{each.command}`, which tools do not find here (--check adds it)."


def _about_own_files(root: Path, commands: Sequence[str]) -> Iterator[str]:
    """Tell which checks may find fault with the files that were just written."""
    scripts = table_of(RepositoryFiles(root).package, "scripts")
    for command in commands:
        runs = (scripts.get(word) for word in command.split())
        text = " ".join((command, *(each for each in runs if isinstance(each, str))))
        if tools := [tool for tool in _READERS_OF_JSON if tool.lower() in text]:
            yield (
                f"`{command}` may check these files too. If it fails on them, format them once, or leave them out in "
                f"the settings of {' and '.join(tools)}."
            )


def _about_workflow(workflow: Workflow, commands: Sequence[str], *, is_new: bool) -> Iterator[str]:
    setup = workflow.setup
    steps = (*((f"apt-get install {setup.apt_packages}",) if setup.apt_packages else ()), *setup.setup)
    if steps and is_new:
        yield f"The workflow installs first: {', then '.join(f'`{step}`' for step in steps)}."
    elif commands and is_new:
        yield (
            "In the action there are bash, git, make, Python and Node.js. If these commands need more, install it with "
            "the input `setup` or `apt-packages`."
        )
    elif missing := [*workflow.missing()]:
        yield f"{workflow.path} does not install what the checks need. Add to the action's step:"
        yield from (f"  {line}" for line in missing)
    if setup.checkout and is_new:
        yield f"The workflow checks out with {', '.join(f'`{line}`' for line in setup.checkout)}."
    yield from workflow.rivals()
    for sentence in setup.unknown:
        yield f"{sentence} Give commands with --check, and write what they need into {workflow.path}."


def _about_here(root: Path, missing: Sequence[DetectedCheck], setup: Setup) -> Iterator[str]:
    """Tell how the checks can run on this machine, too."""
    if not missing:
        return
    programs = dict.fromkeys(program_of(each.command) for each in missing)
    names = [f"`{program}`" for program in programs]
    are, them = ("is", "it") if len(names) == 1 else ("are", "them")
    for folder in ENVIRONMENTS:
        if all((root / folder / "bin" / program).is_file() for program in programs):
            activate = f"source {folder}/bin/activate"
            yield f"{' and '.join(names)} {are} in {folder}. To rehearse and run the agent here: `{activate}`."
            return
    if setup.apt_packages:
        way = f" (in Debian: {setup.apt_packages})"
    else:
        lines = shlex.quote(" && ".join(setup.setup))
        way = f", or let each of the two do so: `--setup {lines}`" if setup.setup else ""
    yield f"{' and '.join(names)} {are} not on this machine. Install {them} to rehearse and run the agent here{way}."


def _next(root: Path, name: str, builtin: str, workflow: Workflow) -> Iterator[str]:
    if not (workflow.top / ".git").exists():
        yield f"{root} is not the root of a git repository, the only place where GitHub finds workflows."
        yield "Move .agent and .github there, or run `git init`."
    yield ""
    yield "Next:"
    if root != Path.cwd().resolve():
        yield f"  {shlex.join(('cd', str(root)))}"
    where = f" --repo {shlex.quote(os.path.relpath(workflow.top, root))}" if workflow.folder else ""
    where += f" --working-directory {shlex.quote(workflow.folder)}" if workflow.folder else ""
    yield f"  stepflow validate {name}"
    yield f"  stepflow rehearse {name}   # plays its scenario: no key"
    yield (
        f"  stepflow run {name}{where} --issue 1 --issue-text 'What the issue says.'"
        "   # a dry run; set ANTHROPIC_API_KEY"
    )
    yield f"Then make its prompts your own, commit, push, and {_start(name, builtin)}."


def _start(name: str, builtin: str) -> str:
    match builtin:
        case "review":
            return f"put the label agent:{name} on a pull request"
        case "triage":
            return "open an issue"
        case _:
            return f"put the label agent:{name} on an issue"
