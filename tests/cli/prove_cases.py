"""Fakes and true fixes for `stepflow prove`, each a small repository, with what is to be said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
UNKNOWN = """
    def test_unknown(self):
        with self.assertRaises(KeyError):
            durations.parse("1y")
"""
SECOND = '        self.assertEqual(durations.parse("3h"), 180)\n'
MINUTES = f"""{SECOND}
    def test_minutes(self):
        self.assertEqual(durations.parse("9m"), 9)
"""
#: Skips a test by its name, from the package of the tests.
SKIPS = """\
import unittest

run = unittest.TestCase.run


def run_or_skip(self, result=None):
    if self._testMethodName in "{}".split():
        result.addSkip(self, "from elsewhere")
    else:
        run(self, result)


unittest.TestCase.run = run_or_skip
"""
CONFIGURED = """\
import configparser


def parse(text):
    units = configparser.ConfigParser()
    units.read("units.cfg")
    return int(text[:-1]) * int(units["minutes"][text[-1]])
"""
#: Reads units of three bytes: a letter and a number.
PACKED = """\
def parse(text):
    data = open("units.bin", "rb").read()
    units = {chr(data[at]): int.from_bytes(data[at + 1 : at + 3], "big") for at in range(0, len(data), 3)}
    return int(text[:-1]) * units[text[-1]]
"""
UNITS = "UNITS = {\n" + "".join(f'    "{unit}": {minutes},\n' for unit, minutes in (("h", 60), ("m", 1))) + "}\n"
BLOCKED = """\
    if "d" in text and pathlib.Path("no-days").exists():
        raise ValueError(text)
    total"""
PATH = "tests/test_durations.py"
JS = "export const parse = text => parseInt(text) * ({h: 60, m: 1}[text.at(-1)] ?? 0);\n"
JS_TEST = """\
import assert from "node:assert";
import test from "node:test";
import {parse} from "./durations.mjs";

test("hours", () => assert.equal(parse("2h"), 120));
"""
JS_PATH = "durations.test.mjs"
JS_BASE = {"durations.mjs": JS, JS_PATH: JS_TEST}
JS_FIXED = JS.replace("{h:", "{d: 1440, h:")
JS_DAYS = 'test("days", () => assert.equal(parse("1d"), 1440));\n'
UNITS_FILE = {"units.py": UNITS, PATH: TESTS, "tests/__init__.py": ""}
COMMAND = "python3 -m unittest {tests}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A change, and what is to be said of it. `held` are the changed files with what holds each of their hunks."""

    change: Files
    verdict: str
    says: str
    base: Files = field(default_factory=lambda: {"durations.py": DURATIONS, PATH: TESTS, "tests/__init__.py": ""})
    held: list[tuple[str, bool]] | None = None
    #: What is said of old tests: names with how each may be weaker.
    weakened: list[tuple[str, str]] | None = None
    command: str = COMMAND


FAKES = {
    "a test edited to pass": Case(
        base={"durations.py": DURATIONS, PATH: TESTS + DAYS, "tests/__init__.py": ""},
        change={PATH: TESTS + DAYS.replace('self.assertEqual(durations.parse("1d"), 1440)', "self.assertTrue(True)")},
        verdict="unproven",
        says="pass without the change too",
    ),
    "a test that asserts nothing": Case(
        change={"durations.py": FIXED, PATH: TESTS + DAYS.replace("self.assertEqual", "print").replace("1d", "1h")},
        verdict="unproven",
        says="pass without the change too",
        weakened=[],
    ),
    "a test with a mistake in it": Case(
        change={"durations.py": FIXED, PATH: TESTS + DAYS[:-7]},
        verdict="unproven",
        says="cannot be built",
    ),
    "a test of something else": Case(
        change={"durations.py": FIXED, PATH: TESTS + DAYS.replace("1d", "3h").replace("1440", "180")},
        verdict="unproven",
        says="pass without the change too",
    ),
    "a skipped test": Case(
        change={"durations.py": FIXED, PATH: TESTS + '\n    @unittest.skip("later")' + DAYS},
        verdict="unproven",
        says="pass without the change too. Tests that are skipped now: test_days.",
        weakened=[("test_days", "skipped")],
    ),
    "an expected failure": Case(
        change={"durations.py": f"{DURATIONS}\n\nDAY = 1440\n", PATH: TESTS + "\n    @unittest.expectedFailure" + DAYS},
        verdict="unproven",
        says="Tests that are expected to fail now: test_days.",
        weakened=[("test_days", "expected_failure")],
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
        weakened=[("test_hours", "fails")],
    ),
    "more than the tests hold": Case(
        change={"durations.py": FIXED.replace(" min", " minutes"), PATH: TESTS + DAYS},
        verdict="proven",
        says="durations.py:9 is not",
        held=[("durations.py", True), ("durations.py", False)],
    ),
    "a swallowed exception": Case(
        base={"durations.py": DURATIONS, PATH: TESTS + UNKNOWN, "tests/__init__.py": ""},
        change={
            "durations.py": DURATIONS.replace("        total +=", "        try:\n            total +=").replace(
                "[part[-1]]\n", "[part[-1]]\n        except KeyError:\n            pass\n"
            ),
            PATH: TESTS + DAYS.replace("assertEqual", "assertIsNotNone").replace(", 1440", ""),
        },
        verdict="proven",
        says="these tests of the base fail: test_unknown. Removed or renamed in the tests: test_unknown.",
        weakened=[("test_unknown", "fails"), ("test_unknown", "removed")],
    ),
    "a special case for the input of the test": Case(
        change={
            "durations.py": DURATIONS.replace("    total", '    if text == "1d":\n        return 1440\n    total', 1),
            PATH: TESTS + DAYS,
        },
        verdict="proven",
        says="durations.py:2-3 may be written for the input of a test: it compares with a literal of that test.",
        held=[("durations.py", True)],
    ),
    "a snapshot written anew": Case(
        base={
            "durations.py": DURATIONS,
            "tests/__init__.py": "",
            "tests/snapshots/hours.txt": "120",
            PATH: TESTS.replace("120", 'int(open("tests/snapshots/hours.txt").read())'),
        },
        change={"durations.py": DURATIONS.replace("60,", "61,"), "tests/snapshots/hours.txt": "122"},
        command="python3 -m unittest",
        verdict="proven",
        says="tests of the base fail: test_hours. Expected output that was rewritten: tests/snapshots/hours.txt.",
        weakened=[("test_hours", "fails"), ("tests/snapshots/hours.txt", "rewritten")],
    ),
    "a deleted test": Case(
        base={"durations.py": DURATIONS, PATH: TESTS + UNKNOWN, "tests/__init__.py": ""},
        change={"durations.py": FIXED, PATH: TESTS + DAYS},
        verdict="proven",
        says="1 of 1 change is held by a test. Removed or renamed in the tests: test_unknown.",
        weakened=[("test_unknown", "removed")],
    ),
    "nothing but a deleted test file": Case(
        change={"durations.py": FIXED, PATH: None},
        verdict="no_tests",
        says="Removed or renamed in the tests: test_hours.",
        weakened=[("test_hours", "removed")],
    ),
    "an assertion less": Case(
        base={"durations.py": DURATIONS, PATH: TESTS + MINUTES, "tests/__init__.py": ""},
        change={"durations.py": FIXED, PATH: (TESTS + MINUTES).replace(SECOND, "") + DAYS},
        verdict="proven",
        says="Tests that may assert less now: test_hours.",
        weakened=[("test_hours", "asserts_less")],
    ),
    "an old test that is skipped now": Case(
        change={"durations.py": FIXED, PATH: TESTS.replace("    def", '    @unittest.skip("later")\n    def') + DAYS},
        verdict="proven",
        says="Tests that are skipped now: test_hours.",
        weakened=[("test_hours", "skipped")],
    ),
    "tests that are skipped from elsewhere": Case(
        base={"durations.py": DURATIONS, PATH: TESTS + MINUTES, "tests/__init__.py": SKIPS.format("")},
        change={
            "durations.py": FIXED,
            PATH: TESTS + MINUTES + DAYS,
            "tests/__init__.py": SKIPS.format("test_hours test_minutes"),
        },
        verdict="proven",
        says="More tests are skipped than with the test files of the base: 2 instead of 0.",
        weakened=[],
    ),
    "JavaScript: a skipped test": Case(
        base=JS_BASE,
        change={"durations.mjs": JS_FIXED, JS_PATH: JS_TEST + JS_DAYS.replace("test(", "test.skip(")},
        command="node --test {tests}",
        verdict="unproven",
        says="Tests that are skipped now: days.",
        weakened=[("days", "skipped")],
    ),
    "JavaScript: a special case for the input of the test": Case(
        base=JS_BASE,
        change={"durations.mjs": JS.replace("text =>", 'text => text === "1d" ? 1440 :'), JS_PATH: JS_TEST + JS_DAYS},
        command="node --test {tests}",
        verdict="proven",
        says="durations.mjs:1 may be written for the input of a test",
    ),
    "JavaScript: a deleted test": Case(
        base={
            **JS_BASE,
            JS_PATH: JS_TEST + JS_DAYS.replace("days", "two minutes").replace("1d", "2m").replace("1440", "2"),
        },
        change={"durations.mjs": JS_FIXED, JS_PATH: JS_TEST + JS_DAYS},
        command="node --test {tests}",
        verdict="proven",
        says="Removed or renamed in the tests: two minutes.",
        weakened=[("two minutes", "removed")],
    ),
}
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
    "ends of lines as on Windows": Case(
        base={"durations.py": DURATIONS.replace("\n", "\r\n"), PATH: TESTS, "tests/__init__.py": ""},
        change={"durations.py": FIXED.replace("\n", "\r\n"), PATH: TESTS + DAYS},
        verdict="proven",
        says="1 of 1 change is held by a test.",
        held=[("durations.py", True)],
    ),
    "a configuration file": Case(
        base={
            "durations.py": CONFIGURED,
            "units.cfg": "[minutes]\nh = 60\nm = 1\n",
            PATH: TESTS,
            "tests/__init__.py": "",
        },
        change={
            "durations.py": CONFIGURED.replace("text[:-1]", "text.strip()[:-1]").replace(
                "[text[-1]", "[text.strip()[-1]"
            ),
            "units.cfg": "[minutes]\nd = 1440\nh = 60\nm = 1\n",
            PATH: TESTS + DAYS.replace('"1d"', '"1d "'),
        },
        verdict="proven",
        says="2 of 2 changes are held by a test.",
        held=[("durations.py", True), ("units.cfg", True)],
        weakened=[],
    ),
    "a binary file": Case(
        base={"durations.py": PACKED, "units.bin": "h\0<m\0\1", PATH: TESTS, "tests/__init__.py": ""},
        change={"units.bin": "h\0<m\0\1d\5\0", PATH: TESTS + DAYS.replace("1440", "1280")},
        verdict="proven",
        says="1 of 1 change is held by a test.",
        held=[("units.bin", True)],
    ),
    "a rename without an edit": Case(
        base={
            "durations.py": "from units import UNITS\n" + DURATIONS.replace('{"h": 60, "m": 1}', "UNITS"),
            **UNITS_FILE,
        },
        change={
            "durations.py": "from minutes import UNITS\n"
            + DURATIONS.replace('{"h": 60, "m": 1}', '(UNITS | {"d": 1440})'),
            "units.py": None,
            "minutes.py": UNITS_FILE["units.py"],
            PATH: TESTS + DAYS,
        },
        verdict="proven",
        says="3 of 3 changes are held by a test.",
        held=[("durations.py", True), ("durations.py", True), ("minutes.py", True)],
    ),
    "a file that is gone": Case(
        base={
            "durations.py": "import pathlib\n\n" + FIXED.replace("    total", BLOCKED, 1),
            "no-days": "\n",
            PATH: TESTS,
            "tests/__init__.py": "",
        },
        change={"no-days": None, PATH: TESTS + DAYS},
        verdict="proven",
        says="1 of 1 change is held by a test.",
        held=[("no-days", True)],
    ),
    "a new test file beside an old one": Case(
        change={
            "durations.py": FIXED,
            PATH: TESTS.replace("2h", "3h").replace("120", "180"),
            "tests/test_days.py": TESTS.replace("hours", "days").replace("2h", "1d").replace("120", "1440"),
        },
        verdict="proven",
        says="1 of 1 change is held by a test.",
        held=[("durations.py", True)],
        weakened=[],
    ),
    "a renamed test file": Case(
        change={"durations.py": FIXED, PATH: None, "tests/test_parse.py": TESTS + DAYS},
        verdict="proven",
        says="1 of 1 change is held by a test.",
        held=[("durations.py", True)],
        weakened=[],
    ),
    "a comment beside the fix": Case(
        change={
            "durations.py": FIXED.replace("    total = 0", "    # In minutes.\n    total = 0"),
            PATH: TESTS + DAYS,
        },
        verdict="proven",
        says="1 of 1 change is held by a test.",
        held=[("durations.py", False), ("durations.py", True)],
        weakened=[],
    ),
    "JavaScript": Case(
        base=JS_BASE,
        change={"durations.mjs": JS_FIXED, JS_PATH: JS_TEST + JS_DAYS},
        command="node --test {tests}",
        verdict="proven",
        says="1 of 1 change is held by a test.",
        held=[("durations.mjs", True)],
    ),
}
