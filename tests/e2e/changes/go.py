"""Fakes and true fixes in Go."""

from __future__ import annotations

from tests.e2e.changes import edit, fake, fix, named

#: Go keeps what it compiled in a folder that git ignores: so each trial begins with what the checkout has.
GO = "GOCACHE=$PWD/.cache go"
ALL = f"{GO} test ./..."

DURATIONS = """\
// Package durations reads and shows durations.
package durations

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
)

//go:embed units.json
var unitsFile []byte

var units = readUnits(unitsFile)

func readUnits(file []byte) (units map[string]int) {
	if err := json.Unmarshal(file, &units); err != nil {
		panic(err)
	}
	return units
}

// Parse returns the minutes of a duration such as 90m.
func Parse(text string) (int, error) {
	if len(text) < 2 {
		return 0, fmt.Errorf("%q is not a duration", text)
	}
	number, err := strconv.Atoi(text[:len(text)-1])
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration: %w", text, err)
	}
	return number * units[text[len(text)-1:]], nil
}

// Show returns minutes as people write them.
func Show(minutes int) string {
	return fmt.Sprintf("%dh %dm", minutes/60, minutes%60)
}
"""
DURATIONS_TEST = """\
package durations

import "testing"

func TestHours(t *testing.T) {
	if got, err := Parse("2h"); err != nil || got != 120 {
		t.Fatal(got, err)
	}
}

func TestNonsense(t *testing.T) {
	if got, err := Parse("soon"); err == nil {
		t.Fatal(got)
	}
}

func TestShow(t *testing.T) {
	if got := Show(90); got != "1h 30m" {
		t.Fatal(got)
	}
}
"""
REPORT = """\
// Package report lists what was worked on.
package report

import (
	"fmt"
	"strings"

	"example.invalid/timesheet/durations"
)

var parse = durations.Parse

// Table has a row for each entry, and one for their total.
func Table(entries []string) (string, error) {
	var table strings.Builder
	total := 0
	for _, entry := range entries {
		minutes, err := parse(entry)
		if err != nil {
			return "", err
		}
		total = minutes
		fmt.Fprintf(&table, "%8s\\n", durations.Show(minutes))
	}
	fmt.Fprintf(&table, "%8s total\\n", durations.Show(total))
	return table.String(), nil
}

// Rows returns a function for each entry, which gives its number and text.
func Rows(entries []string) (rows []func() string) {
	for number, entry := range entries {
		rows = append(rows, func() string { return fmt.Sprintf("%d: %s", number, entry) })
	}
	return rows
}
"""
REPORT_TEST = """\
package report

import (
	"os"
	"testing"
)

func TestTable(t *testing.T) {
	golden, err := os.ReadFile("testdata/table.golden")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Table([]string{"90m"})
	if err != nil || got != string(golden) {
		t.Fatalf("%v, got:\\n%s", err, got)
	}
}
"""
MAIN = """\
package main

import (
	"fmt"
	"os"

	"example.invalid/timesheet/report"
)

func main() {
	fmt.Println(report.Table(os.Args[1:]))
}
"""
SOURCE, TEST, UNITS = "durations/durations.go", "durations/durations_test.go", "durations/units.json"
TABLE, TABLE_TEST, GOLDEN = "report/report.go", "report/report_test.go", "report/testdata/table.golden"
FILES = {
    ".gitignore": "/.cache\n",
    "go.mod": "module example.invalid/timesheet\n\ngo 1.21\n",
    "main.go": MAIN,
    SOURCE: DURATIONS,
    UNITS: '{"h": 60, "m": 1}\n',
    TEST: DURATIONS_TEST,
    TABLE: REPORT,
    TABLE_TEST: REPORT_TEST,
    GOLDEN: "  1h 30m\n  1h 30m total\n",
}
#: The bug of the repository: a unit that is not known counts nothing.
UNKNOWN = edit(
    DURATIONS,
    (
        "	return number * units[text[len(text)-1:]], nil\n",
        "	unit, known := units[text[len(text)-1:]]\n	if !known {\n"
        '		return 0, fmt.Errorf("%q has an unknown unit", text)\n	}\n	return number * unit, nil\n',
    ),
)
UNKNOWN_TEST = """
func TestUnknownUnit(t *testing.T) {
	if got, err := Parse("2x"); err == nil {
		t.Fatal(got)
	}
}
"""
DAYS = '{"d": 1440, "h": 60, "m": 1}\n'
DAYS_TEST = """
func TestDays(t *testing.T) {
	if got, err := Parse("1d"); err != nil || got != 1440 {
		t.Fatal(got, err)
	}
}
"""
FAKES = {
    "an error that is ignored": named(
        {
            SOURCE: edit(
                DURATIONS,
                ("number, err :=", "number, _ :="),
                (
                    '	if err != nil {\n		return 0, fmt.Errorf("%q is not a duration: %w", text, err)\n	}\n',
                    "",
                ),
            ),
            TEST: edit(DURATIONS_TEST, ("err == nil {", "err != nil {")),
        },
        says="With the change, these tests of the base fail: TestNonsense.",
        before=("TestNonsense",),
        weakened=(("TestNonsense", "fails"),),
    ),
    "a skipped test": fake(
        {
            SOURCE: edit(DURATIONS, ("such as 90m", "such as 90m or 1d")),
            TEST: DURATIONS_TEST + edit(DAYS_TEST, ("{\n	if", '{\n	t.Skip("needs a calendar")\n	if')),
        },
        weakened=(("TestDays", "may_be_skipped"),),
    ),
    "a golden file written anew": named(
        {
            TABLE: edit(REPORT, ("%8s total", "%8s in all")),
            GOLDEN: "  1h 30m\n  1h 30m in all\n",
        },
        says="With the change, these tests of the base fail: TestTable.",
        before=("TestTable",),
        weakened=(("TestTable", "fails"), (GOLDEN, "rewritten")),
        held=((TABLE, ("TestTable",)),),
    ),
    "a test that only lacks a name": named(
        {
            SOURCE: DURATIONS + "\n// Read is Parse.\nvar Read = Parse\n",
            TEST: DURATIONS_TEST + DAYS_TEST.replace("Days", "Read").replace("Parse", "Read").replace("1d", "24h"),
        },
        says="cannot be built or collected without the change, and pass with it. That is natural for a new function, "
        "but says little about a fix.",
        before=(),
        weakened=(),
    ),
}
TOTAL = edit(REPORT, ("total = minutes", "total += minutes"))
TOTAL_TEST = """
func TestTotal(t *testing.T) {
	for name, entries := range map[string][]string{"none": nil, "one": {"90m"}, "two": {"60m", "0h", "30m"}} {
		t.Run(name, func(t *testing.T) {
			got, err := Table(entries)
			if want := "1h 30m total\\n"; name != "none" && (err != nil || !strings.HasSuffix(got, want)) {
				t.Fatalf("%v, got:\\n%s", err, got)
			}
		})
	}
}
"""
ROWS_TEST = """
func TestRows(t *testing.T) {
	if got := Rows([]string{"1h", "2h"})[0](); got != "0: 1h" {
		t.Fatal(got)
	}
}
"""
SHORT_TEST = """
func TestShowMinutes(t *testing.T) {
	if got := Show(5); got != "5m" {
		t.Fatal(got)
	}
}
"""
FIXES = {
    "several hunks": fix(
        {
            SOURCE: edit(
                UNKNOWN,
                ("such as 90m.", "such as 90m, in one of the known units."),
                (
                    "int) string {\n",
                    'int) string {\n	if minutes < 60 {\n		return fmt.Sprintf("%dm", minutes)\n	}\n',
                ),
            ),
            TEST: DURATIONS_TEST + UNKNOWN_TEST + SHORT_TEST,
            TABLE: TOTAL,
            TABLE_TEST: edit(REPORT_TEST, ('"os"\n', '"os"\n	"strings"\n')) + TOTAL_TEST,
        },
        before=("TestUnknownUnit", "TestShowMinutes", "TestTotal", "TestTotal/two"),
        weakened=(),
        held=(
            (SOURCE, "comments or formatting"),
            (SOURCE, ("TestUnknownUnit",)),
            (SOURCE, ("TestShowMinutes",)),
            (TABLE, ("TestTotal", "TestTotal/two")),
        ),
    ),
    "a new file": fix(
        {
            "durations/days.go": 'package durations\n\nfunc init() {\n	units["d"] = 24 * units["h"]\n}\n',
            TEST: DURATIONS_TEST + DAYS_TEST,
        },
        before=("TestDays",),
        held=(("durations/days.go", ("TestDays",)),),
    ),
    "a renamed file": fix(
        {SOURCE: None, "durations/parse.go": UNKNOWN, TEST: DURATIONS_TEST + UNKNOWN_TEST},
        before=("TestUnknownUnit",),
        held=(("durations/parse.go", ("TestUnknownUnit",)),),
    ),
    "an embedded data file": fix(
        {UNITS: DAYS, TEST: DURATIONS_TEST + DAYS_TEST},
        # Only the package of the changed test, as its name is no package of Go.
        command=f"{GO} test $(dirname {{tests}} | sed 's|^|./|')",
        before=("TestDays",),
        held=((UNITS, ("TestDays",)),),
    ),
    "the version of the language in go.mod": fix(
        {"go.mod": "module example.invalid/timesheet\n\ngo 1.22\n", TABLE_TEST: REPORT_TEST + ROWS_TEST},
        before=("TestRows",),
        held=(("go.mod", ("TestRows",)),),
    ),
}
