"""What the text of changed test files shows: tests that are gone, marked or assert less, and code for their input."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from stepflow.domain.proof import ChangedTestFile, Hunk
from stepflow.engine.proof import find_special_cases, find_weakened

PYTHON = """\
class TestA(unittest.TestCase):
    def test_one(self):
        self.assertEqual(f(1), 1)
        self.assertEqual(f(2), 2)

    def test_two(self):
        # Not skipped: pytest.skip() is for slow machines.
        assert f(3) == 3
"""
JAVASCRIPT = """\
describe("a", () => {
  it("one", () => { expect(f(1)).toBe(1); });
  test('two', async () => {
    expect(f(2)).toBe(2);
    expect(f(3)).toBe(3);
  });
});
"""
GO = """\
func TestOne(t *testing.T) {
\tif f(1) != 1 {
\t\tt.Errorf("one")
\t}
}

func TestTwo(t *testing.T) {
\tif f(2) != 2 {
\t\tt.Fatal("two")
\t}
}
"""
RUST = "#[test]\nfn one() {\n    assert_eq!(f(1), 1);\n}\n\n#[tokio::test]\nasync fn two() {\n    assert!(f(2));\n}\n"
JAVA = "class ATest {\n  @Test\n  void one() {\n    assertEquals(1, f(1));\n  }\n\n  @Test\n  public void two() {}\n}\n"
RUBY = (
    "describe A do\n  it 'one' do\n    expect(f(1)).to eq 1\n  end\n\n  it 'two' do\n    f(2).should eq 2\n  end\nend\n"
)

Case = tuple[str, str, str, list[tuple[str, str]]]
CASES: Mapping[str, Case] = {
    "python: nothing": (PYTHON, "(self)", "(self, )", []),
    "python: a test is new": (
        PYTHON,
        "    def test_two",
        "    def test_new(self):\n        pass\n\n    def test_two",
        [],
    ),
    "python: removed": (PYTHON, "def test_two", "def help_two", [("test_two", "removed")]),
    "python: commented out": (PYTHON, "    def test_two", "    # def test_two", [("test_two", "removed")]),
    "python: an assertion less": (PYTHON, "self.assertEqual(f(2), 2)", "f(2)", [("test_one", "asserts_less")]),
    "python: an assertion commented out": (PYTHON, "assert f(3)", "# assert f(3)", [("test_two", "asserts_less")]),
    "python: skipped": (
        *(PYTHON, "    def test_two", '    @unittest.skip("later")\n    def test_two'),
        [("test_two", "skipped")],
    ),
    "python: skipped above another decorator": (
        *(PYTHON, "    def test_two", '    @pytest.mark.skip\n    @case(\n        "a",\n    )\n    def test_two'),
        [("test_two", "skipped")],
    ),
    "python: skipped under a condition": (
        *(PYTHON, "    def test_two", "    @pytest.mark.skipif(WINDOWS)\n    def test_two"),
        [("test_two", "may_be_skipped")],
    ),
    "python: skipped inside": (
        *(PYTHON, "assert f(3)", 'pytest.skip("later")\n        assert f(3)'),
        [("test_two", "may_be_skipped")],
    ),
    "python: expected to fail": (
        *(PYTHON, "    def test_one", "    @unittest.expectedFailure\n    def test_one"),
        [("test_one", "expected_failure")],
    ),
    "python: xfail": (
        *(PYTHON, "    def test_one", "    @pytest.mark.xfail(strict=False)\n    def test_one"),
        [("test_one", "expected_failure")],
    ),
    "python: a class": (PYTHON, "class TestA", "@pytest.mark.skip\nclass TestA", [("TestA", "skipped")]),
    "python: one case of several": (
        *(PYTHON, "    def test_two", "    @case(\n        param(1, marks=pytest.mark.skip),\n    )\n    def test_two"),
        [("test_two", "skipped")],
    ),
    "python: names that look like marks": (
        *(PYTHON, "assert f(3)", "skip = xtest = todo(x)\n        pending.fails(skip)\n        assert f(3)"),
        [],
    ),
    "python: a module": (
        *(PYTHON, "class TestA", "pytestmark = pytest.mark.skip\n\n\nclass TestA"),
        [("file", "skipped")],
    ),
    "javascript: nothing": (JAVASCRIPT, "async ", "", []),
    "javascript: removed": (JAVASCRIPT, 'it("one"', 'run("one"', [("one", "removed")]),
    "javascript: skipped": (JAVASCRIPT, "test('two'", "test.skip('two'", [("two", "skipped")]),
    "javascript: todo": (JAVASCRIPT, "test('two'", "test.todo('two'", [("two", "skipped")]),
    "javascript: x": (JAVASCRIPT, 'it("one"', 'xit("one"', [("one", "skipped")]),
    "javascript: no mark": (JAVASCRIPT, "f(1)", "validator.fails(skipIf, xit)", []),
    "javascript: an option of node": (JAVASCRIPT, "'two', async", "'two', {skip: true}, async", [("two", "skipped")]),
    "javascript: a group": (JAVASCRIPT, 'describe("a"', 'describe.skip("a"', [("a", "skipped")]),
    "javascript: expected to fail": (JAVASCRIPT, 'it("one"', 'it.failing("one"', [("one", "expected_failure")]),
    "javascript: an assertion less": (JAVASCRIPT, "    expect(f(3)).toBe(3);\n", "", [("two", "asserts_less")]),
    "go: removed": (GO, "func TestTwo", "func checkTwo", [("TestTwo", "removed")]),
    "go: skipped": (GO, "if f(2)", 't.Skip("later")\n\tif f(2)', [("TestTwo", "may_be_skipped")]),
    "go: an assertion less": (GO, '\t\tt.Errorf("one")', "\t\treturn", [("TestOne", "asserts_less")]),
    "rust: removed": (RUST, "#[test]\nfn one", "fn one", [("one", "removed")]),
    "rust: ignored": (RUST, "#[tokio::test]\n", "#[tokio::test]\n#[ignore]\n", [("two", "skipped")]),
    "java: removed": (JAVA, "@Test\n  void one", "void one", [("one", "removed")]),
    "java: disabled": (JAVA, "  @Test\n  public", '  @Disabled("later")\n  @Test\n  public', [("two", "skipped")]),
    "ruby: removed": (RUBY, "it 'one'", "run 'one'", [("one", "removed")]),
    "ruby: skipped": (RUBY, "    f(2)", "    skip 'later'\n    f(2)", [("two", "skipped")]),
    "ruby: skipped under a condition": (
        *(RUBY, "    f(2)", "    skip 'later' if slow\n    f(2)"),
        [("two", "may_be_skipped")],
    ),
    "ruby: pending": (RUBY, "    f(2)", "    pending\n    f(2)", [("two", "skipped")]),
    "ruby: x": (RUBY, "  it 'two'", "  xit 'two'", [("two", "skipped")]),
}


def weakened(*files: ChangedTestFile) -> list[tuple[str, str]]:
    return [(each.name, each.how.value) for each in find_weakened(files)]


def changed(before: str | None, after: str | None, file: str = "file") -> ChangedTestFile:
    return ChangedTestFile(file=file, before=before, after=after)


@pytest.mark.parametrize("name", CASES)
def test_what_a_change_takes_away_from_a_test_is_found(name: str) -> None:
    text, old, new, expected = CASES[name]
    assert text.count(old)
    assert weakened(changed(text, text.replace(old, new, 1))) == expected
    assert weakened(changed(text.replace(old, new, 1), text.replace(old, new, 1))) == []


def test_a_test_that_moves_to_another_file_is_not_gone() -> None:
    marked = PYTHON.replace("    def test_two", "    @pytest.mark.skip\n    def test_two")
    assert weakened(changed(marked, None, "a"), changed("", marked, "b")) == []
    assert weakened(changed(PYTHON, None, "a"), changed(None, PYTHON.replace("_two", "_three"), "b")) == [
        ("test_two", "removed")
    ]


def test_one_of_two_tests_of_the_same_name_is_gone() -> None:
    both = PYTHON.replace("test_two", "test_one")
    assert weakened(changed(both, PYTHON)) == [("test_one", "removed")]
    assert [each.file for each in find_weakened([changed(PYTHON, "", "a"), changed(PYTHON, PYTHON, "b")])] == ["a", "a"]


def test_a_deleted_file_without_known_tests_is_named_itself() -> None:
    assert weakened(changed("echo hello\n", None, "tests/run.sh")) == [("tests/run.sh", "removed")]


def test_expected_output_that_is_written_anew_is_named() -> None:
    assert weakened(changed("a\n", "b\n", "src/__snapshots__/a.snap")) == [("src/__snapshots__/a.snap", "rewritten")]
    assert weakened(changed(None, "b\n", "src/__snapshots__/a.snap")) == []


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ('    if text == "1d":\n        return 1440\n', True),
        ('  if (text === "1d") return 1440;\n', True),
        ('    case "1d":\n        return 1440\n', True),
        ('    # if text == "1d": 1440\n', False),
        ('    return int(text[:-1]) * {"d": 1440}[text[-1]]\n', False),
        ('    if text == "1d":\n        return parse_days(text)\n', False),
        ('    if text == "2d":\n        return 1440\n', False),
        ('    if unit == "d":\n        return 1440 * number\n', False),
    ],
)
def test_code_that_compares_with_the_input_of_a_new_test_is_found(added: str, *, expected: bool) -> None:
    new = PYTHON + '\n    def test_days(self):\n        self.assertEqual(parse("1d"), 1440)\n'
    hunk = Hunk(file="a.py", lines=(1, 2), tree="", added=added)
    assert bool([*find_special_cases([changed(PYTHON, new)], [hunk])]) is expected
