"""Which differences between two versions of a file certainly change nothing."""

from __future__ import annotations

import pytest

from stepflow.engine.same_code import is_same_code

GO = """\
// Package a is first.
package a

//go:embed units.json
var units string

// F shows it.
func F() string {
	return `
// raw

` + "//" + units // shown
}
"""


@pytest.mark.parametrize(
    ("path", "text", "without", "expected"),
    [
        ("a.py", "x = 1  # one\n", "x=1\n", True),
        ("a.py", "x = 1\n", "x = 2\n", False),
        ("a.py", "if x:\n    y()\n", "if x:\n  y()\n", True),
        ("a.py", "if (\n", "if\n", False),
        ("a.js", "x = 1 // one\n", "x = 1\n", False),
    ],
)
def test_only_what_certainly_means_the_same_needs_no_test(
    path: str, text: str, without: str, *, expected: bool
) -> None:
    assert is_same_code(path, text, without) is expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("// Package a is first.\n", "", True),
        ("// F shows it.\n", '\n\n// It\'s `shown`, "all" of it.\n// Twice.\n', True),
        (" // shown", "", True),
        ("\treturn", "    return", True),
        ("}\n", "}", True),
        ("//go:embed units.json\n", "", False),
        ("// F shows it.", "//go:noinline", False),
        ("// raw\n", "", False),
        ("// raw\n\n", "// raw\n", False),
        ('"//"', '"// "', False),
        ("string {\n", "string { ", False),
        ("var units string", "var units string /* shown */", False),
        ("// F shows it.", "// Output: it", False),
        ("// Package a is first.", "// +build linux", False),
        ("// F shows it.", 'import "C"', False),
    ],
)
def test_in_go_line_comments_and_blank_lines_change_nothing_but_directives_do(
    old: str, new: str, *, expected: bool
) -> None:
    assert GO.count(old) == 1 or old == "}\n"
    assert is_same_code("a/a.go", GO.replace(old, new), GO) is expected
    assert is_same_code("a/a.go", GO, GO.replace(old, new)) is expected
