"""`stepflow prove`: what it says of fakes and of true fixes, each a small repository."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from stepflow.cli import main
from tests.checkout import git
from tests.docs.page import DOCS, page_blocks

Files = Mapping[str, str | None]

DURATIONS = """\
def parse(text):
    total = 0
    for part in text.split():
        total += int(part[:-1]) * {"h": 60, "m": 1}[part[-1]]
    return total


def show(minutes):
    return f"{minutes} min"
"""
FIXED = DURATIONS.replace('{"h"', '{"d": 1440, "h"')
TESTS = """\
import unittest
from unittest import mock

import durations


class Durations(unittest.TestCase):
    def test_hours(self):
        self.assertEqual(durations.parse("2h"), 120)
"""
DAYS = """
    def test_days(self):
        self.assertEqual(durations.parse("1d"), 1440)
"""
PATH = "tests/test_durations.py"
COMMAND = "python3 -m unittest {tests}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A change, and what is to be said of it. `held` are the changed files with what holds each of their hunks."""

    change: Files
    verdict: str
    says: str
    base: Files = field(default_factory=lambda: {"durations.py": DURATIONS, PATH: TESTS, "tests/__init__.py": ""})
    held: list[tuple[str, bool]] | None = None
    weakened: list[str] | None = None
    command: str = COMMAND


FAKES = {
    "a test edited to pass": Case(
        base={"durations.py": DURATIONS, PATH: TESTS + DAYS, "tests/__init__.py": ""},
        change={PATH: TESTS + DAYS.replace('self.assertEqual(durations.parse("1d"), 1440)', "self.assertTrue(True)")},
        verdict="unproven",
        says="pass without the change too",
    ),
    "a test that asserts nothing": Case(
        change={"durations.py": FIXED, PATH: TESTS + DAYS.replace("self.assertEqual", "print")[:-7] + "\n"},
        verdict="unproven",
        says="cannot be built",
    ),
    "a test of something else": Case(
        change={"durations.py": FIXED, PATH: TESTS + DAYS.replace("1d", "3h").replace("1440", "180")},
        verdict="unproven",
        says="pass without the change too",
    ),
    "a change that changes nothing": Case(
        change={
            "durations.py": f"# Days too.\n{DURATIONS}",
            PATH: TESTS + DAYS.replace("1d", "9m").replace("1440", "9"),
        },
        verdict="unproven",
        says="pass without the change too",
    ),
    "a skipped test": Case(
        change={"durations.py": FIXED, PATH: TESTS + '\n    @unittest.skip("later")' + DAYS.replace("\n", "\n", 1)},
        verdict="unproven",
        says="pass without the change too",
    ),
    "an expected failure": Case(
        change={"durations.py": f"{DURATIONS}\n\nDAY = 1440\n", PATH: TESTS + "\n    @unittest.expectedFailure" + DAYS},
        verdict="unproven",
        says="pass without the change too",
    ),
    "a mock of what is tested": Case(
        change={
            "durations.py": FIXED,
            PATH: TESTS + "\n    @mock.patch('durations.parse', lambda text: 1440)" + DAYS,
        },
        verdict="unproven",
        says="pass without the change too",
    ),
    "a change in a file that nothing imports": Case(
        change={"other.py": FIXED, PATH: TESTS + DAYS},
        verdict="unproven",
        says="fail with the change",
    ),
    "a test that fails for a missing name alone": Case(
        change={
            "durations.py": f"{DURATIONS}\n\nread = parse\n",
            PATH: TESTS.replace("import durations\n", "import durations\nfrom durations import read\n"),
        },
        verdict="proven",
        says="says little about a fix",
        weakened=[],
    ),
    "no test": Case(change={"durations.py": FIXED}, verdict="no_tests", says="no test file"),
    "a command that runs nothing": Case(
        change={"durations.py": FIXED, PATH: TESTS + DAYS},
        command="python3 -m unittest discover -s nowhere_near -p 'x*' || echo 'Ran 0 tests'",
        verdict="unproven",
        says="runs no test",
    ),
    "an old test that expects something else now": Case(
        change={"durations.py": FIXED.replace("60,", "61,"), PATH: TESTS.replace("120", "122") + DAYS},
        verdict="proven",
        says="these tests of the base fail: test_hours",
        weakened=["test_hours"],
    ),
    "more than the tests hold": Case(
        change={"durations.py": FIXED.replace(" min", " minutes"), PATH: TESTS + DAYS},
        verdict="proven",
        says="no test notices without durations.py:9",
        held=[("durations.py", True), ("durations.py", False)],
    ),
}
JS = "export const parse = text => parseInt(text) * ({h: 60, m: 1}[text.at(-1)] ?? 0);\n"
JS_TEST = """\
import assert from "node:assert";
import test from "node:test";
import {parse} from "./durations.mjs";

test("hours", () => assert.equal(parse("2h"), 120));
"""
FIXES = {
    "one line": Case(
        change={"durations.py": FIXED, PATH: TESTS + DAYS},
        verdict="proven",
        says="1 of 1 change is held by a test.",
        held=[("durations.py", True)],
        weakened=[],
    ),
    "two hunks": Case(
        change={
            "durations.py": FIXED.replace("{minutes} min", "{minutes} minutes"),
            PATH: TESTS
            + DAYS
            + '\n    def test_show(self):\n        self.assertEqual(durations.show(2), "2 minutes")\n',
        },
        verdict="proven",
        says="2 of 2 changes are held by a test.",
        held=[("durations.py", True), ("durations.py", True)],
    ),
    "a new file": Case(
        change={
            "units.py": "DAY = 1440\n",
            "durations.py": "from units import DAY\n\n" + FIXED.replace("1440", "DAY"),
            PATH: TESTS + DAYS,
        },
        verdict="proven",
        says="3 of 3 changes are held by a test.",
        held=[("durations.py", True), ("durations.py", True), ("units.py", True)],
    ),
    "a renamed file": Case(
        change={
            "durations.py": None,
            "spans.py": FIXED,
            PATH: (TESTS + DAYS).replace("import durations", "import spans as durations"),
        },
        verdict="proven",
        says="1 of 1 change is held by a test.",
        held=[("spans.py", True)],
    ),
    "a data file": Case(
        base={
            "durations.py": (
                "import json\n\n\ndef parse(text):\n    units = json.load(open('units.json'))\n"
                "    return int(text[:-1]) * units[text[-1]]\n"
            ),
            "units.json": '{"h": 60, "m": 1}\n',
            PATH: TESTS,
            "tests/__init__.py": "",
        },
        change={"units.json": '{"d": 1440, "h": 60, "m": 1}\n', PATH: TESTS + DAYS},
        verdict="proven",
        says="1 of 1 change is held by a test.",
        held=[("units.json", True)],
    ),
    "ends of lines as on Windows": Case(
        base={"durations.py": DURATIONS.replace("\n", "\r\n"), PATH: TESTS, "tests/__init__.py": ""},
        change={"durations.py": FIXED.replace("\n", "\r\n"), PATH: TESTS + DAYS},
        verdict="proven",
        says="1 of 1 change is held by a test.",
        held=[("durations.py", True)],
    ),
    "JavaScript": Case(
        base={"durations.mjs": JS, "durations.test.mjs": JS_TEST},
        change={
            "durations.mjs": JS.replace("{h:", "{d: 1440, h:"),
            "durations.test.mjs": JS_TEST + 'test("days", () => assert.equal(parse("1d"), 1440));\n',
        },
        command="node --test {tests}",
        verdict="proven",
        says="1 of 1 change is held by a test.",
        held=[("durations.mjs", True)],
    ),
}
#: One of each is tried by the fast tests.
FAST = ("a test of something else", "more than the tests hold")


def write(folder: Path, files: Files, subject: str) -> None:
    """Commit these files; None removes one."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        if text is None:
            file.unlink()
        else:
            file.write_bytes(text.encode())
    git("add", "--all", cwd=folder)
    git("commit", "--quiet", "--message", subject, cwd=folder)


@pytest.fixture
def repository_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Case], Path]:
    """Makes the repository of a case, with its change as the last commit."""
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path / "temp"))

    def make(case: Case) -> Path:
        folder = tmp_path / "repository"
        folder.mkdir()
        git("init", "--quiet", "--template=", cwd=folder)
        write(folder, case.base, "base")
        write(folder, case.change, "change")
        return folder

    return make


def said_of(case: Case, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict:
    code = main(["prove", "HEAD^..HEAD", "--repo", str(folder), "--command", case.command, "--json"])
    proof = json.loads(capsys.readouterr().out)["proof"]
    assert code == (0 if proof["verdict"] == "proven" else 1)
    return proof


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.whole) for name in (*FAKES, *FIXES)]
)
def test_a_change_is_named_as_what_it_is(
    name: str, repository_of: Callable[[Case], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    case = (FAKES | FIXES)[name]
    if case.command.startswith("node") and not shutil.which("node"):
        pytest.skip("there is no Node.js here")
    folder = repository_of(case)
    before = git("status", "--porcelain", cwd=folder), git("for-each-ref", cwd=folder)
    proof = said_of(case, folder, capsys)
    assert proof["verdict"] == case.verdict, proof
    assert case.says in proof["summary"]
    assert case.held is None or [(each["file"], each["held_by"] is not None) for each in proof["hunks"]] == case.held
    assert case.weakened is None or proof["weakened"] == case.weakened
    assert (git("status", "--porcelain", cwd=folder), git("for-each-ref", cwd=folder)) == before


def test_uncommitted_files_are_not_part_of_the_change(
    repository_of: Callable[[Case], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = repository_of(FAKES["a test that asserts nothing"])
    (folder / "durations.py").write_text("broken(")
    (folder / "conftest.py").write_text("broken(")
    proof = said_of(FAKES["no test"], folder, capsys)
    assert proof["verdict"] != "not_tried"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nowhere..HEAD",), "There is no commit nowhere"),
        (("HEAD^..HEAD", "--command", " "), "There is no command to run"),
    ],
)
def test_what_cannot_be_tried_is_told_at_once(
    repository_of: Callable[[Case], Path], capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    folder = repository_of(FIXES["one line"])
    assert main(["prove", "--repo", str(folder), "--command", "true", *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("branch", ["main", "fix"])
def test_without_a_range_it_is_what_is_checked_out_beyond_the_main_branch(
    repository_of: Callable[[Case], Path], capsys: pytest.CaptureFixture[str], branch: str
) -> None:
    folder = repository_of(FIXES["one line"])
    git("branch", "-M", branch, cwd=folder)
    if branch == "fix":
        git("branch", "main", "HEAD^", cwd=folder)
        write(folder, {"notes.txt": "more\n"}, "more")
    assert main(["prove", "--repo", str(folder), "--command", COMMAND, "--json"]) == 0
    files = [each["file"] for each in json.loads(capsys.readouterr().out)["proof"]["hunks"]]
    assert files == ["durations.py", *(["notes.txt"] if branch == "fix" else [])]


@pytest.mark.whole
def test_files_are_tests_setup_runs_and_parts_are_limited_as_the_flags_say(
    repository_of: Callable[[Case], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    change = {"durations.py": FIXED.replace(" min", " minutes"), "verify_days.py": TESTS + DAYS}
    folder = repository_of(Case(change=change, verdict="proven", says=""))
    words = ["--tests", "verify_*.py", "--max-hunks", "1", "--setup", "touch ~/ready", "--json"]
    command = "test -e ~/ready && python3 -m unittest {tests}"
    assert main(["prove", "HEAD^..HEAD", "--repo", str(folder), "--command", command, *words]) == 0
    proof = json.loads(capsys.readouterr().out)["proof"]
    assert (proof["tests"], [each["tried"] for each in proof["hunks"]]) == (["verify_days.py"], [True, False])
    assert proof["notes"] == ["1 change was not tried: at most 1 is tried."]


def test_a_person_reads_what_the_page_shows(
    repository_of: Callable[[Case], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = {block.language: block.text for block in page_blocks(DOCS / "how-to/prove.md")}
    _, *words = shlex.split(blocks["sh"].replace("pytest -q", "python3 -m unittest"))
    case = FAKES["more than the tests hold"]
    commented = case.change["durations.py"].replace("total = 0", "# Days too.\n    total = 0")
    folder = repository_of(replace(case, change={**case.change, "durations.py": commented}))
    git("branch", "-M", "fix", cwd=folder)
    git("branch", "main", "HEAD^", cwd=folder)
    assert main([*words, "--repo", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert shown[shown.index("✓") :].split() == blocks["text"].split()
