"""What the output of a failed check says is missing: a program, the project itself, or a package that it declares."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.domain.text import readable_output
from stepflow.ports import Commands

#: Exit codes of a shell that could not run the command, and what a person should do then.
NOT_RUNNABLE = {
    126: "A file that it starts is not executable: make it so with `chmod +x`, and commit that",
    127: "A program that it starts is missing: install it with the input setup or apt-packages, or fix the command",
}
#: How a shell, Python, make, uv, Poetry, PDM and Bundler say on stderr that a program is missing, when the exit code
#: does not.
MISSING = re.compile(
    r"^(?:\S*sh: (?:line )?(?:\d+: )?.+: (?:command )?not found"
    r"|\S*python[\d.]*(?:\.exe)?: No module named \S+"
    r"|make(?:\[\d+\])?: \*\*\* .* Error 127"
    r"|error: Failed to spawn: \S+"
    r"|Command not found: \S+"
    r"|\[PdmUsageError\]: Command '.+' is not found in your PATH\."
    r"|.*Could not find .+ \(Bundler::GemNotFound\))$",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class Uninstalled:
    """How a language says that a module cannot be found, and a script that exits with 0 if the module `$1` is one that
    an installation would have brought."""

    says: re.Pattern[str]
    script: str
    explanation: str


MOST_NAMES = 5
#: A module that the repository does not have and does not declare may be what the agent is to add.
UNINSTALLED = (
    Uninstalled(
        says=re.compile(r"^(?:E +)?ModuleNotFoundError: No module named '(\w+)'$", re.MULTILINE),
        script='test -n "$(git ls-files -- ":(glob)$1/**" "$1.py" ":(glob)**/src/$1/**" ":(glob)**/src/$1.py")"',
        explanation="the project is not installed: Python does not find its own `{}`",
    ),
    Uninstalled(
        says=re.compile(
            r"Cannot find (?:module|package) '((?:@[\w.-]+/)?\w[\w.-]*)'(?: (?:imported )?from .*)?$", re.MULTILINE
        ),
        script='test ! -e "node_modules/$1" && git grep --quiet --fixed-strings "\\"$1\\"" -- ":(glob)**/package.json"',
        explanation="the packages of package.json are not installed: Node.js does not find `{}`",
    ),
)


def find_missing_program(result: CommandResult) -> str:
    """Return a command's message about a program that is missing or cannot be started; empty if there is none."""
    match = MISSING.search(result.stderr)
    if match:
        return match[0].strip()
    if result.exit_code in NOT_RUNNABLE:
        return next((line.strip() for line in reversed(error_text(result).splitlines()) if line.strip()), "no output")
    return ""


def find_uninstalled(result: CommandResult, commands: Commands) -> str:
    """Return which part of the project is not installed, if the output says so and the repository confirms it."""
    output = readable_output(result.output)
    for language in UNINSTALLED:
        for name in list(dict.fromkeys(language.says.findall(output)))[:MOST_NAMES]:
            ask = CommandRequest(argv=("sh", "-c", language.script, "sh", name), timeout=30)
            if commands.run_command(ask).exit_code == 0:
                return language.explanation.format(name)
    return ""


def error_text(result: CommandResult) -> str:
    """Return what went wrong: the engine's error, then the command's output."""
    return "\n".join(text for text in (result.error, readable_output(result.output)) if text.strip())
