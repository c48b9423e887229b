"""Suggestions on small repositories in Python, TypeScript and Go, half of them wrong, and what must become of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SHOWN, OVERLAPS = "the diff does not show these lines", "it overlaps the one for"
ENDINGS, NOTHING = "it would change line endings", "it changes nothing"


def red(*names: str) -> str:
    return f"it makes {', '.join(f'`{name}`' for name in names)} fail"


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A suggestion: the new text of the lines of a file that begin and end with these words. `problem` is why it must
    become words, empty where it must be offered."""

    first: str
    last: str = ""
    text: str
    problem: str = ""
    path: str = ""


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A file, what a pull request makes of it, its other files, and the checks by name."""

    path: str
    base: str
    head: str
    files: Mapping[str, str] = field(default_factory=dict)
    checks: Mapping[str, str]
    offers: tuple[Offer, ...]
    #: What is installed into the checkout first, which git ignores.
    setup: str = ""


PY_BASE = (
    '"""Times of day."""\n\n'
    + "".join(f"HOUR_{number} = {number} * 60\n" for number in range(24))
    + '\n\ndef parse(text):\n    hours, minutes = text.split(":")\n    return int(hours) * 60 + int(minutes)\n'
)
PY_ADDED = """\


def show(minutes):
    hours = int(minutes / 60)
    rest = minutes - hours * 60
    filled = "0" + str(rest) if rest < 10 else str(rest)
    return str(hours) + ":" + filled
"""
PY_TEST = """\
import unittest

import clock


class Clock(unittest.TestCase):
    def test_parse(self):
        self.assertEqual(clock.parse("1:05"), 65)

    def test_show(self):
        self.assertEqual([clock.show(65), clock.show(615)], ["1:05", "10:15"])
"""
UNITTEST = {"test": "python3 -B -m unittest -q test_clock"}
DIVMOD = Offer(first="    hours = int", last="    rest =", text="    hours, rest = divmod(minutes, 60)")
FILLED = Offer(first="    filled =", text='    filled = f"{rest:02}"\n')
RETURN = Offer(first="    return str(hours)", text='    return f"{hours}:{filled}"')
FAR = Offer(first="HOUR_1 =", text="HOUR_1 = 60", problem=SHOWN)


def python(*offers: Offer, head: str = PY_BASE + PY_ADDED, base: str = PY_BASE, **more: object) -> Repository:
    whole = {"files": {"test_clock.py": PY_TEST}, "checks": UNITTEST, **more}
    return Repository(path="clock.py", base=base, head=head, offers=offers, **whole)  # type: ignore[arg-type]


def crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


TS_BASE = "".join(f"export const hour{number} = {number} * 60\n" for number in range(24)) + (
    "\nexport function parse(text: string): number {\n  const [hours, minutes] = text.split(':').map(Number)\n"
    "  return hours! * 60 + minutes!\n}\n"
)
TS_ADDED = """\

export function show(minutes: number): string {
  const hours = Math.floor(minutes / 60)
  const rest = minutes - hours * 60
  const filled = rest < 10 ? '0' + rest : '' + rest
  return hours + ':' + filled
}
"""
TS_TEST = """\
import assert from 'node:assert'
import { test } from 'node:test'
import { parse, show } from './clock.ts'

test('parse', () => assert.equal(parse('1:05'), 65))
test('show', () => assert.deepEqual([show(65), show(615)], ['1:05', '10:15']))
"""
TSCONFIG = (
    '{"compilerOptions": {"strict": true, "noEmit": true, "target": "es2022", "module": "nodenext", "types": ["node"], '
    '"allowImportingTsExtensions": true, "skipLibCheck": true}, "include": ["*.ts"]}\n'
)
TS_FILES = {"clock.test.ts": TS_TEST, "package.json": '{"private": true, "type": "module"}\n'}
MODULO = Offer(first="  const rest", text="  const rest = minutes % 60")
PAD = Offer(first="  const filled", text="  const filled = String(rest).padStart(2, '0')\n")
TEMPLATE = Offer(first="  return hours +", text="  return `${hours}:${filled}`")
TYPED = "  const filled: number = rest < 10 ? '0' + rest : '' + rest"


def typescript(*offers: Offer, base: str = TS_BASE, head: str = TS_BASE + TS_ADDED, **more: object) -> Repository:
    whole = {"files": TS_FILES, "checks": {"test": "node --test clock.test.ts"}, **more}
    return Repository(path="clock.ts", base=base, head=head, offers=offers, **whole)  # type: ignore[arg-type]


CACHE = ".cache"
GO = f"GOCACHE=$PWD/{CACHE} go"
GO_BASE = (
    '// Package clock knows times of day.\npackage clock\n\nimport "fmt"\n\n'
    + "".join(f"const hour{number} = {number} * 60\n" for number in range(24))
    + """
// Parse returns the minutes of a time of day.
func Parse(text string) (minutes int, err error) {
	var hours, rest int
	if _, err = fmt.Sscanf(text, "%d:%d", &hours, &rest); err != nil {
		return 0, err
	}
	return hours*60 + rest, nil
}
"""
)
GO_ADDED = """\

// Show returns minutes as people write them.
func Show(minutes int) string {
	hours := minutes / 60
	rest := minutes - hours*60
	filled := fmt.Sprint(rest)
	if rest < 10 {
		filled = "0" + filled
	}
	return fmt.Sprint(hours) + ":" + filled
}
"""
GO_TEST = """\
package clock

import "testing"

func TestParse(t *testing.T) {
	if got, err := Parse("1:05"); err != nil || got != 65 {
		t.Fatal(got, err)
	}
}

func TestShow(t *testing.T) {
	if got := Show(65) + " " + Show(615); got != "1:05 10:15" {
		t.Fatal(got)
	}
}
"""
GO_FILES = {"clock_test.go": GO_TEST, "go.mod": "module example.invalid/clock\n\ngo 1.21\n", ".gitignore": f"{CACHE}\n"}
GO_MODULO = Offer(first="\trest :=", text="\trest := minutes % 60")
SHORTER = "\tfilled := fmt.Sprint(rest)\n\tif rest <= 9 {"


def go(*offers: Offer, **more: object) -> Repository:
    whole = {"files": GO_FILES, "checks": {"test": f"{GO} test ./..."}, **more}
    return Repository(path="clock.go", base=GO_BASE, head=GO_BASE + GO_ADDED, offers=offers, **whole)  # type: ignore[arg-type]


REPOSITORIES = {
    "python": python(
        DIVMOD,
        RETURN,
        FAR,
        Offer(first="    filled =", text='    filled = f"{rest:03}"', problem=red("test")),
    ),
    "python with CRLF": python(
        DIVMOD,
        FILLED,
        Offer(first="    return str(hours)", text='    return str(hours) + ":" + filled\r\n', problem=NOTHING),
        Offer(first="    return str(hours)", text="    text = hours\r\n    return text\n", problem=ENDINGS),
        base=crlf(PY_BASE),
        head=crlf(PY_BASE + PY_ADDED),
    ),
    "typescript with CRLF": typescript(
        PAD,
        TEMPLATE,
        Offer(first="  const rest", text="  const rest = (\r\n    minutes % 60\n  )", problem=ENDINGS),
        Offer(first="  const hours", last="  const rest", text="  const rest = minutes % 60", problem=red("test")),
        base=crlf(TS_BASE),
        head=crlf(TS_BASE + TS_ADDED),
    ),
    "typescript with tsc": typescript(
        MODULO,
        TEMPLATE,
        Offer(first="  const filled", text=TYPED, problem=red("types")),
        Offer(first="  const rest", last="  const filled", text=f"{MODULO.text}\n{PAD.text}", problem=OVERLAPS),
        files={**TS_FILES, "tsconfig.json": TSCONFIG, ".gitignore": "node_modules\n"},
        checks={"types": "npx tsc", "test": "node --test clock.test.ts"},
        setup="npm install --silent --no-save typescript@7.0.2 @types/node@26.6.6",
    ),
    "go with gofmt": go(
        GO_MODULO,
        Offer(first="\tfilled :=", text='\tfilled := fmt.Sprintf("%d", rest)'),
        Offer(first="\treturn fmt", text='    return fmt.Sprintf("%d:%s", hours, filled)', problem=red("format")),
        Offer(first="\tfilled :=", last="\tif rest < 10", text=SHORTER, problem=OVERLAPS),
        checks={"format": 'test -z "$(gofmt -l *.go)"', "test": f"{GO} test ./..."},
        setup=f"{GO} build ./...",
    ),
}  # fmt: skip
