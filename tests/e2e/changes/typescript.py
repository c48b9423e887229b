"""Fakes and true fixes in TypeScript, tried by Node's own runner, vitest and tsc."""

from __future__ import annotations

import json

from tests.e2e.changes import edit, fake, fix, named

PACKAGES = ("typescript@7.0.2", "vitest@5.1.2", "@types/node@26.6.6")
NODE, VITEST = "node --test {tests}", "npx vitest run {tests}"
TYPES = f"npx tsc && {NODE}"

DURATIONS = """\
import units from './units.json' with { type: 'json' }

const known: Record<string, number> = units

// The minutes of a duration such as 90m.
export function parse(text: string): number {
  const minutes = Number.parseInt(text) * known[text.slice(-1)]!
  if (Number.isNaN(minutes)) throw new RangeError(`${text} is not a duration`)
  return minutes
}

export function show(minutes: number): string {
  return `${Math.floor(minutes / 60)}h ${minutes % 60}m`
}
"""
TEST_HEAD = "import assert from 'node:assert'\nimport { test } from 'node:test'\n"
DURATIONS_TEST = f"""\
{TEST_HEAD}import {{ parse, show }} from './durations.ts'

test('hours', () => assert.equal(parse('2h'), 120))
test('nonsense', () => assert.throws(() => parse('soon'), RangeError))
test('show', () => assert.equal(show(90), '1h 30m'))
"""
TABLE = """\
import { parse, show } from './durations.ts'

// A row for each entry, and one for their total.
export function table(entries: string[]): string {
  const rows = entries.map((entry) => show(parse(entry)))
  const total = entries.reduce((_sum, entry) => parse(entry), 0)
  return [...rows, `${show(total)} total`].join('\\n')
}
"""
TABLE_SPEC = """\
import { describe, expect, test, vi } from 'vitest'
import { table } from './table.ts'

describe('table', () => {
  test('one entry', () => expect(table(['90m'])).toMatchSnapshot())
})
"""
SNAPSHOT = """\
// Vitest Snapshot v1, https://vitest.dev/guide/snapshot.html

exports[`table > one entry 1`] = `
"1h 30m
1h 30m total"
`;
"""
SOURCE, TEST, UNITS = "src/durations.ts", "src/durations.test.ts", "src/units.json"
TABLES, SPEC, SNAP = "src/table.ts", "src/table.spec.ts", "src/__snapshots__/table.spec.ts.snap"
PACKAGE = {"name": "timesheet", "private": True, "type": "module", "exports": {"./table": "./src/table.ts"}}
OPTIONS = {
    **{"strict": True, "noEmit": True, "target": "es2022", "module": "nodenext", "types": ["node"]},
    **{"allowImportingTsExtensions": True, "resolveJsonModule": True, "skipLibCheck": True},
}
FILES = {
    ".gitignore": "node_modules\n",
    "package.json": json.dumps(PACKAGE),
    "tsconfig.json": json.dumps({"compilerOptions": OPTIONS, "include": ["src"]}),
    SOURCE: DURATIONS,
    UNITS: '{"h": 60, "m": 1}\n',
    TEST: DURATIONS_TEST,
    TABLES: TABLE,
    SPEC: TABLE_SPEC,
    SNAP: SNAPSHOT,
}
DAYS = '{"d": 1440, "h": 60, "m": 1}\n'
DAYS_TEST = "test('days', () => assert.equal(parse('1d'), 1440))\n"
#: A duration is cut off where it is no number: 90xm counts as 90m.
WHOLE = edit(DURATIONS, ("Number.parseInt(text)", "Number(text.slice(0, -1))"))
WHOLE_TEST = "test('whole', () => assert.throws(() => parse('90xm')))\n"
TOTAL = edit(TABLE, ("(_sum, entry) => parse", "(sum, entry) => sum + parse"))
TWO = "  test('two entries', () => expect(table(['1h', '30m'])).toContain('1h 30m total'))\n"
COMMENTED = edit(DURATIONS, ("such as 90m", "such as 90m or 1d"))


def spec(more: str) -> str:
    """The spec with one more test in its suite."""
    return edit(TABLE_SPEC, ("Snapshot())\n", f"Snapshot())\n{more}"))


FAKES = {
    "a skipped test": fake(
        {SOURCE: COMMENTED, TEST: DURATIONS_TEST + DAYS_TEST.replace("test(", "test.skip(")},
        command=NODE,
        weakened=(("days", "skipped"),),
    ),
    "a test that is to be done": fake(
        {SOURCE: COMMENTED, TEST: DURATIONS_TEST + DAYS_TEST.replace("', (", "', { todo: true }, (")},
        command=NODE,
    ),
    "an expected failure": fake(
        {TABLES: edit(TABLE, ("for each", "for every")), SPEC: spec(TWO.replace("test(", "test.fails("))},
        command=VITEST,
        weakened=(("two entries", "expected_failure"),),
    ),
    "a snapshot written anew": named(
        {TABLES: edit(TABLE, (" total`", " in all`")), SNAP: SNAPSHOT.replace(" total", " in all")},
        says="With the change, these tests of the base fail: table > one entry.",
        command=VITEST,
        before=("table > one entry",),
        weakened=(("table > one entry", "fails"), (SNAP, "rewritten")),
        held=((TABLES, ("table > one entry",)),),
    ),
    "a test that only lacks a name": named(
        {
            SOURCE: f"{DURATIONS}\nexport const read = parse\n",
            TEST: edit(DURATIONS_TEST, ("{ parse,", "{ read, parse,"))
            + "test('read', () => assert.equal(read('9m'), 9))\n",
        },
        says="says little about a fix.",
        command=NODE,
        before=(),
    ),
    "a test that only lacks a name, in vitest": named(
        {
            TABLES: f"{TABLE}\nexport const list = table\n",
            SPEC: edit(
                spec("  test('list', () => expect(list([])).toBe('0h 0m total'))\n"), ("{ table }", "{ list, table }")
            ),
        },
        says="says little about a fix.",
        command=VITEST,
        before=("table > list",),
    ),
}
FIXES = {
    "several hunks": fix(
        {
            SOURCE: edit(
                WHOLE,
                ("such as 90m", "such as 90m, without blanks"),
                ("  return `${Math", "  if (minutes < 60) return `${minutes}m`\n  return `${Math"),
            ),
            TEST: f"{DURATIONS_TEST}{WHOLE_TEST}test('short', () => assert.equal(show(5), '5m'))\n",
        },
        command=NODE,
        before=("whole", "short"),
        weakened=(),
        # That a comment is one is not certain in TypeScript.
        held=((SOURCE, None), (SOURCE, ("whole",)), (SOURCE, ("short",))),
    ),
    "a renamed file": fix(
        {
            SOURCE: None,
            "src/spans.ts": WHOLE,
            TABLES: edit(TABLE, ("durations.ts", "spans.ts")),
            TEST: edit(DURATIONS_TEST, ("durations.ts", "spans.ts")) + WHOLE_TEST,
        },
        says="says little about a fix",
        command=NODE,
        held=(("src/spans.ts", ()), (TABLES, None)),
    ),
    "what package.json exports": fix(
        {
            "package.json": json.dumps(
                {**PACKAGE, "exports": {"./table": "./src/table.ts", "./durations": "./src/durations.ts"}}
            ),
            TEST: edit(DURATIONS_TEST, ("'./durations.ts'", "'timesheet/durations'")),
        },
        says="says little about a fix",
        command=NODE,
        held=(("package.json", ()),),
    ),
    "an option of the compiler": fix(
        {
            "tsconfig.json": json.dumps(
                {"compilerOptions": {**OPTIONS, "noUncheckedIndexedAccess": True}, "include": ["src"]}
            ),
            TEST: f"{DURATIONS_TEST}// @ts-expect-error It may not be.\nexport const one: string = [show(1)][0]\n",
        },
        says="says little about a fix",
        command=TYPES,
        held=(("tsconfig.json", ()),),
    ),
    "a type that only tsc notices": fix(
        {
            SOURCE: edit(DURATIONS, ("parse(text: string)", "parse(text: `${number}${'h' | 'm'}`)")),
            TABLES: edit(TABLE, ("entries: string[]", "entries: Parameters<typeof parse>[0][]")),
            TEST: edit(DURATIONS_TEST, ("test('nonsense", "// @ts-expect-error It has no unit.\ntest('nonsense")),
        },
        says="says little about a fix",
        command=TYPES,
        held=((SOURCE, ()), (TABLES, ())),
    ),
    "a suite with a new snapshot": fix(
        {
            TABLES: TOTAL,
            SPEC: spec("  test('two entries', () => expect(table(['1h', '30m'])).toMatchSnapshot())\n"),
            SNAP: SNAPSHOT + '\nexports[`table > two entries 1`] = `\n"1h 0m\n0h 30m\n1h 30m total"\n`;\n',
        },
        command=VITEST,
        before=("table > two entries",),
        held=((TABLES, ("table > two entries",)),),
    ),
}
