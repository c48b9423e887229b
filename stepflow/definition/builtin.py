"""The shipped agents: `agent: builtin/fix` runs one, `stepflow init --from builtin/fix` writes it out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from stepflow.domain.agent.validation import PROOF
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.proof import ProofSettings
from stepflow.domain.text import code_span

#: What the name of a shipped agent begins with.
PREFIX = "builtin/"
#: Agent → what it is for.
BUILTIN = {
    "fix": "understand, do, close: solves an issue and opens a draft pull request",
    "review": "reads, changes nothing, and answers in one comment, or in one review of a pull request",
    "triage": "labels a new issue, names duplicates and asks for what is missing; anyone may start it",
    "verify": "like fix, plus steps that check the work, look things up, and write the texts",
    "minimal": "one step that works and one that closes",
}

#: Of these, the ones that change no file.
READ_ONLY = ("review", "triage")

#: Of laid out JSON, where words allow it.
WIDTH = 120
INDENT = 2

#: The name in the stored files; each is a complete agent that can be loaded.
STANDS_FOR = "agent-name"
#: Every shipped agent has this check.
OWN_CHECK = "git-clean"
_OWN_LINE = "- `git status --porcelain`, which must print nothing\n"
_EXPECTED = f"validators: {{ {OWN_CHECK}: [pass] }}"


@dataclass(frozen=True, kw_only=True)
class NewCheck:
    """A validator to add: a shell command that passes with exit code 0, or one that proves the change."""

    name: str
    command: str
    proof: ProofSettings | None = None

    @property
    def entry(self) -> dict[str, JsonValue]:
        """The validator as the registry has it."""
        if self.proof is None:
            return {"type": "command", "command": self.command, "successWhen": "exitCode:0"}
        tests: dict[str, JsonValue] = {"tests": [*self.proof.tests]} if self.proof.tests else {}
        limits: dict[str, JsonValue] = {"hunks": self.proof.hunks.value, "maxHunks": self.proof.most_hunks}
        return {"type": PROOF, "command": self.command, **tests, **limits}

    @property
    def failure(self) -> str:
        """What its failure means."""
        if self.proof:
            return "The tests of this change do not prove it: they must fail without it and pass with it."
        return f"`{self.command}` does not pass."

    @property
    def bullet(self) -> str:
        """The check in a list, as the model reads it."""
        meaning = ", where the tests of your change must fail without it and pass with it" if self.proof else ""
        return f"- {code_span(' '.join(self.command.split()))}{meaning}\n"


def agent_files(builtin: str, name: str, checks: Sequence[NewCheck]) -> dict[str, str]:
    """Every file of a shipped agent, written for an agent of this name: path in its folder → text."""
    with as_file(files("stepflow.definition") / "templates" / builtin) as folder:
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        texts = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    return {path: _fill_file(path, text, name, checks) for path, text in texts.items()}


@contextmanager
def builtin_root(builtin: str, commands: Sequence[str], proof: NewCheck | None = None) -> Iterator[Path]:
    """A temporary folder with the shipped agent below `.agent`, under its own name and with these checks, the proof
    last."""
    checks = (*name_checks(commands), *([proof] if proof else []))
    with TemporaryDirectory(prefix="stepflow-builtin-") as root:
        for path, text in agent_files(builtin, builtin, checks).items():
            file = Path(root, ".agent", builtin, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        yield Path(root)


#: What only starts the tool that a check is named after.
_RUNNER = re.compile(
    r"\A(?:python3? -m|uv run(?: --locked| --extra \S+| --group \S+)*|(?:poetry|pdm) run|bundle exec) +"
)


def name_checks(commands: Sequence[str]) -> tuple[NewCheck, ...]:
    """A check for each command, with a unique name made from the first words of its tool."""
    named: dict[str, str] = {}
    for command in dict.fromkeys(command.strip() for command in commands if command.strip()):
        short = "-".join(re.findall(r"[a-z0-9]+", _RUNNER.sub("", command.lower(), count=1))[:3]) or "check"
        numbers = (f"{short}-{number}" for number in range(2, 1000))
        named[next(each for each in (short, *numbers) if each not in (*named, OWN_CHECK))] = command
    return tuple(NewCheck(name=name, command=command) for name, command in named.items())


def _fill_file(path: str, text: str, name: str, checks: Sequence[NewCheck]) -> str:
    # Before the checks are added: they are the author's own words.
    text = text.replace(STANDS_FOR, name)
    if path == "steps_registry.json":
        text = layout_json(_with_checks(cast("JsonObject", json.loads(text)), checks))
    if path.endswith(".md"):
        text = text.replace(_OWN_LINE, _OWN_LINE + "".join(check.bullet for check in checks))
    if path.endswith(".yaml"):
        more = "".join(f", {json.dumps(check.name)}: [pass]" for check in checks)
        text = text.replace(_EXPECTED, f"validators: {{ {OWN_CHECK}: [pass]{more} }}")
    return text


def _with_checks(registry: JsonObject, checks: Sequence[NewCheck]) -> JsonObject:
    """Each check is a validator with a failure pattern of its own, asked for at every closing."""
    validators = cast("dict[str, JsonValue]", registry["validators"])
    patterns = cast("dict[str, JsonValue]", registry["failurePatterns"])
    entries = cast("Mapping[str, dict[str, list[JsonValue]]]", registry["validationSteps"])
    for check in checks:
        validators[check.name] = {**check.entry, "failurePattern": check.name}
        patterns[check.name] = {"description": check.failure, "edition": "failed"}
        for entry in entries.values():
            entry["validationConditions"].append({"validator": check.name})
    return registry


def layout_json(document: JsonValue) -> str:
    """Format JSON as a person would, with a final line break: whatever fits on one line is on one line."""
    lines: list[str] = []
    for line in json.dumps(document, indent=INDENT, ensure_ascii=False).split("\n"):
        lines.append(line)
        close = line.strip(" ,")
        if close not in ("}", "]"):
            continue
        indent = line.index(close)
        begin = max(number for number, each in enumerate(lines[:-1]) if len(each) - len(each.lstrip()) == indent)
        space = " " if close == "}" else ""
        inner = " ".join(each.strip() for each in lines[begin + 1 : -1])
        flat = f"{lines[begin]}{space}{inner}{space}{line.strip()}"
        # A comma may still follow, and the document's own members are on lines of their own.
        if len(flat.rstrip(",")) < WIDTH and (indent or close == "]"):
            lines[begin:] = [flat]
    return "\n".join(lines) + "\n"
