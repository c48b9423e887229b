"""Small repositories in other languages, with the checks that docs/how-to/validators.md has for them."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from stepflow.definition.builtin import agent_files, name_checks
from tests.docs.page import DOCS, around_action, page_blocks
from tests.e2e.repository import git
from tests.e2e.script import answer
from tests.servers.messages_api import Answer, calls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.e2e.world import World

HERE = Path(__file__).parent
PAGE = DOCS / "how-to" / "validators.md"
SECTIONS = re.findall(r"^## (Python|Node|Go|Rust|Deno)$", PAGE.read_text(encoding="utf-8"), re.M)


@dataclass(frozen=True, kw_only=True)
class Language:
    """A repository whose sizes are parsed wrongly, a repair that its type check refuses, and one that is right."""

    name: str
    """The section of the page, if it has one."""
    checks: tuple[str, ...]
    """Which of the section's validators; without a section, the commands that `stepflow init` would be given."""
    files: Mapping[str, str]
    source: str
    broken: str
    refused: str
    right: str
    message: str
    """What the retry prompt must say of the refused repair."""

    def write_into(self, world: World, *, inputs: Mapping[str, str], extra: Mapping[str, str] | None = None) -> None:
        """Replace what is in the checkout, but for its workflow, and push."""
        for path in world.checkout.iterdir():
            if path.name not in {".git", ".github"}:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        files = {**self.files, ".gitignore": self._ignored(), **self._agent(), **(extra or {})}
        for name, text in files.items():
            (world.checkout / name).parent.mkdir(parents=True, exist_ok=True)
            (world.checkout / name).write_text(text, encoding="utf-8")
        workflow = world.checkout / ".github/workflows/stepflow.yml"
        lines = (f"          {name}: {json.dumps(value)}\n" for name, value in inputs.items())
        before, action, after = around_action(workflow.read_text(encoding="utf-8"))
        workflow.write_text(before + action + "".join(lines) + after, encoding="utf-8")
        git(world.checkout, "add", "--all")
        git(world.checkout, "commit", "--quiet", "--message", f"Begin anew in {self.name}")
        git(world.checkout, "push", "--quiet", str(world.server), "HEAD:main")

    def inputs(self) -> dict[str, str]:
        """What the page puts below `with:`."""
        return yaml.safe_load(self._block("with"))

    def check_names(self) -> tuple[str, ...]:
        """The validators by their names, git-clean left out."""
        return self.checks if self.name in SECTIONS else tuple(check.name for check in name_checks(self.checks))

    def turns(self) -> list[Answer]:
        """A repair that is refused at the closing, then the right one."""
        return [
            calls(("bash", {"command": f"cat {self.source}"})),
            answer("initial.default", "next", cause=f"{self.source} has {self.broken}", plan="Multiply the number."),
            *self._change(self.broken, self.refused),
            *self._change(self.refused, self.right),
        ]

    def _change(self, old: str, new: str) -> list[Answer]:
        edit = {"file_path": self.source, "old_string": old, "new_string": new}
        commit = "git -c user.name=M -c user.email=m@example.invalid commit --quiet --all --message 'Fix the size'"
        title = {"title": "Honor the unit of a size", "body": "It was never multiplied."}
        return [
            calls(("edit", edit), ("bash", {"command": commit})),
            answer("continuation.default", "handoff", changes=f"{self.source} returns {new}"),
            answer("closure.default", "closing", missing="nothing", comment="The unit counts.", pull_request=title),
        ]

    def _agent(self) -> dict[str, str]:
        if self.name not in SECTIONS:
            files = agent_files("fix", "fixer", name_checks(self.checks))
            return {f".agent/fixer/{name}": text for name, text in files.items()}
        files = agent_files("fix", "fixer", ())
        registry, given = json.loads(files["steps_registry.json"]), json.loads(self._block("validators"))
        registry["validators"] |= {name: given["validators"][name] for name in self.checks}
        patterns = {given["validators"][name]["failurePattern"] for name in self.checks}
        registry["failurePatterns"] |= {name: given["failurePatterns"][name] for name in patterns}
        conditions = registry["validationSteps"]["closure.default"]["validationConditions"]
        conditions += [{"validator": name} for name in self.checks]
        files["steps_registry.json"] = json.dumps(registry)
        (prompt,) = (block.text for block in page_blocks(PAGE) if block.note == "retry prompt")
        files["prompts/steps/retry/default/f_failed.md"] = prompt
        return {f".agent/fixer/{name}": text for name, text in files.items()}

    def _ignored(self) -> str:
        """The section's own lines; a section may have none."""
        text = PAGE.read_text(encoding="utf-8")
        section = text.partition(f"\n## {self.name}\n")[2].partition("\n## ")[0]
        match = re.search(r"```gitignore\n(.*?)```", section, re.S)
        return match[1] if match else ""

    def _block(self, note: str) -> str:
        return [block.text for block in page_blocks(PAGE) if block.note == note][SECTIONS.index(self.name)]


NODE = Language(
    name="Node",
    checks=("types", "tests"),
    files={
        "package.json": json.dumps(
            {"name": "widgets", "private": True, "type": "module", "scripts": {"test": "node --test"}}
        ),
        "tsconfig.json": json.dumps(
            {
                "compilerOptions": {
                    "strict": True,
                    "noEmit": True,
                    "target": "es2022",
                    "module": "nodenext",
                    "types": [],
                },
                "include": ["src"],
            }
        ),
        "src/sizes.ts": (
            "const UNITS = new Map([['k', 1024], ['m', 1024 * 1024]])\n\n"
            "export function parseSize(text: string): number {\n"
            "  const unit = UNITS.get(text.slice(-1))\n"
            "  return Number.parseInt(text)\n"
            "}\n"
        ),
        "test/sizes.test.js": (
            "import assert from 'node:assert'\nimport { test } from 'node:test'\n"
            "import { parseSize } from '../src/sizes.ts'\n\n"
            "test('the unit counts', () => assert.equal(parseSize('12k'), 12288))\n"
            "test('a bare number is bytes', () => assert.equal(parseSize('12'), 12))\n"
        ),
    },
    source="src/sizes.ts",
    broken="return Number.parseInt(text)",
    refused="return Number.parseInt(text) * unit",
    right="return Number.parseInt(text) * (unit ?? 1)",
    message="`src/sizes.ts:5`: ",
)

GO = Language(
    name="Go",
    checks=("vet", "tests", "format"),
    files={
        "go.mod": "module example.invalid/widgets\n\ngo 1.21\n",
        "sizes.go": (
            "// Package widgets parses sizes.\npackage widgets\n\n"
            'import (\n\t"strconv"\n\t"strings"\n)\n\n'
            "// ParseSize gives bytes.\nfunc ParseSize(text string) (int, error) {\n"
            '\tnumber, kilo := strings.CutSuffix(text, "k")\n'
            "\tsize, err := strconv.Atoi(number)\n"
            "\tif kilo {\n\t\treturn size, err\n\t}\n\treturn size, err\n}\n"
        ),
        "sizes_test.go": (
            'package widgets\n\nimport "testing"\n\n'
            "func TestTheUnitCounts(t *testing.T) {\n"
            '\tif size, err := ParseSize("12k"); err != nil || size != 12288 {\n\t\tt.Fatal(size, err)\n\t}\n}\n'
        ),
    },
    source="sizes.go",
    broken="if kilo {\n\t\treturn size, err",
    refused="if kilo {\n\t\treturn number * 1024, err",
    right="if kilo {\n\t\treturn size * 1024, err",
    message="sizes.go:14:",
)

SHELL = Language(
    name="Shell",
    checks=("shellcheck -x sizes.sh test.sh", "bash test.sh"),
    files={
        "sizes.sh": (
            "# shellcheck shell=bash\n# Bytes of a size such as 12k.\n"
            'parse_size() {\n  local number=${1%k}\n  echo "$number"\n}\n'
        ),
        "test.sh": '#!/bin/bash\n# shellcheck source=sizes.sh\n. ./sizes.sh\n[ "$(parse_size 12k)" = 12288 ]\n',
    },
    source="sizes.sh",
    broken='echo "$number"',
    refused="echo $((number * 1024)) $rest",
    right='echo "$((number * 1024))"',
    message="SC2086",
)
