"""Compares two versions of the code, by text alone: what a change takes away from its tests, what looks written for
their input, and where only comments or formatting differ. It knows the usual words of Python, JavaScript and
TypeScript, Go, Rust, Java and Ruby."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stepflow.domain.proof import ChangedTestFile, Hunk, WeakenedTest, Weakening

#: A line that begins a test, or what contains tests.
_BEGINS = re.compile(
    r"""^[ \t]*(?:
      (?:async[ ])?def[ ](?P<function>test\w*)
    | func[ ](?P<go>(?:Test|Fuzz|Example)\w*)\(
    | [xf]?(?:it|test|specify)(?:\.\w+)*(?:\(\s*|[ ])(?P<quote>["'`])(?P<title>.+?)(?P=quote)
    | (?:\#\[(?:\w+::)*test\b.*|@(?:Parameterized|Repeated)?Test\b.*)\n(?:[ \t]*(?:\#\[|@).*\n)*
      [ \t]*(?:pub[ ]|public[ ]|async[ ]|final[ ])*(?:fn|void)[ ](?P<annotated>\w+)
    | class[ ](?P<class>\w+)
    | [xf]?(?:describe|context)(?:\.\w+)*(?:\(\s*|[ ])(?P<mark>["'`])(?P<group>.+?)(?P=mark)
    )""",
    re.MULTILINE | re.VERBOSE,
)
_TESTS = ("function", "go", "title", "annotated")
_ANY = (*_TESTS, "class", "group")
#: What marks a test, the first that a line has.
_MARKS = (
    (
        Weakening.EXPECTED_FAILURE,
        re.compile(r"\bexpectedFailure\b|\bmark\.xfail\b|\bpytest\.xfail\(|\b(?:it|test)\.(?:fails|failing)\("),
    ),
    (
        Weakening.MAY_BE_SKIPPED,
        re.compile(
            r"\bskip(?:if|If|Unless)\(|\bpytest\.(?:skip|importorskip)\(|\.skipTest\(|\b[tb]\.Skip(?:f|Now)?\("
            r"|@(?:Disabled|Enabled)\w+\(|^\s*(?:skip|pending)\b.* (?:if|unless) "
        ),
    ),
    (
        Weakening.SKIPPED,
        re.compile(
            r"\bmark\.skip\b|\bunittest\.skip\(|\b(?:it|test|describe|context|suite)\.(?:skip|todo)\b|#\[ignore\b"
            r"|\bx(?:it|test|describe|context|specify)(?:\.\w+)*(?:\(\s*| )[\"'`]|@(?:Disabled|Ignore)\b"
            r"|\b(?:skip|todo): ?true\b|^\s*(?:skip|pending)(?:$|\(| [\"'(])"
        ),
    ),
)
_COMMENT = re.compile(r"\s*(?:#(?!\[)|//|\*|/\*)")
_DECORATOR = re.compile(r"\s*(?:@|#\[)")
_ASSERTS = re.compile(
    r"\bassert|\bexpect\b|\.should|\b[tb]\.(?:Error|Fatal|Fail)|\brequire\.[A-Z]|\bpytest\.raises\b|\.must_"
)
#: Text in quotes, or a number.
_LITERAL = re.compile(
    r"""(?P<quote>["'`])(?P<text>(?:(?!(?P=quote))[^\\\n]|\\.)+)(?P=quote)|\b(?P<number>\d[\d_.]*)\b"""
)
_COMPARES = re.compile(r"[=!]==?|\b(?:is|in|case|when)\b|\.equals\(")
_SHORTEST_INPUT = 2
#: Files with what tests expect, written by the tests themselves.
_SNAPSHOT = re.compile(r"(?:.*/)?(?:__snapshots__|snapshots?|golden|goldens)/.*|.*\.(?:snap|golden|approved(?:\.\w+)?)")


@dataclass(frozen=True, kw_only=True)
class _Test:
    name: str
    file: str
    body: str

    @property
    def assertions(self) -> int:
        """How many of its lines assert something."""
        return sum(bool(_ASSERTS.search(line)) for line in _lines(self.body))


def find_weakened(files: Iterable[ChangedTestFile]) -> tuple[WeakenedTest, ...]:
    """Return the tests of the changed test files that are gone, marked, or assert less, in this order."""
    files = tuple(files)
    before = [test for each in files for test in _tests(each.file, each.before or "")]
    after = [test for each in files for test in _tests(each.file, each.after or "")]
    return (
        *_find_removed(files, before, after),
        *_find_marked(files),
        *_asserting_less(before, after),
        *(
            WeakenedTest(name=each.file, file=each.file, how=Weakening.REWRITTEN)
            for each in files
            if _SNAPSHOT.fullmatch(each.file) and None not in (each.before, each.after)
        ),
    )


def _tests(file: str, text: str) -> Iterator[_Test]:
    begins = list(_BEGINS.finditer(text))
    ends = (*(begin.start() for begin in begins[1:]), len(text))
    for begin, end in zip(begins, ends, strict=False):
        if name := _name(begin, _TESTS):
            yield _Test(name=name, file=file, body=text[begin.start() : end])


def _name(begin: re.Match[str], groups: Iterable[str]) -> str:
    return next((begin[group] for group in groups if begin[group]), "")


def _lines(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if not _COMMENT.match(line))


def _find_removed(
    files: Iterable[ChangedTestFile], before: Iterable[_Test], after: Iterable[_Test]
) -> Iterator[WeakenedTest]:
    left = Counter(test.name for test in after)
    here = Counter((test.name, test.file) for test in after)
    gone = Counter(test.name for test in before) - left
    for test in before:
        if here[test.name, test.file]:
            here[test.name, test.file] -= 1
        elif gone[test.name]:
            gone[test.name] -= 1
            yield WeakenedTest(name=test.name, file=test.file, how=Weakening.REMOVED)
    known = {test.file for test in before}
    for each in files:
        if each.after is None and each.file not in known:
            yield WeakenedTest(name=each.file, file=each.file, how=Weakening.REMOVED)


def _find_marked(files: Iterable[ChangedTestFile]) -> Iterator[WeakenedTest]:
    files = tuple(files)
    known = Counter((mark.name, mark.how) for each in files for mark in _marks(each.file, each.before or ""))
    for mark in (mark for each in files for mark in _marks(each.file, each.after or "")):
        if known[mark.name, mark.how]:
            known[mark.name, mark.how] -= 1
        else:
            yield mark


def _marks(file: str, text: str) -> Iterator[WeakenedTest]:
    """Yield the test of each mark: the next one for a decorator, else the one that the line is part of."""
    begins = list(_BEGINS.finditer(text))
    start, decorator = 0, -1
    for line in text.splitlines(keepends=True):
        at, start = start, start + len(line)
        decorator = at if _DECORATOR.match(line) else decorator
        how = None if _COMMENT.match(line) else next((how for how, mark in _MARKS if mark.search(line)), None)
        if how:
            owner = next((begin for begin in reversed(begins) if begin.start() < start), None)
            if decorator > (owner.start() if owner else -1):
                owner = next((begin for begin in begins if begin.end() > at), owner)
            elif owner and owner.start() < at and not line[0].isspace():
                owner = None
            yield WeakenedTest(name=_name(owner, _ANY) if owner else file, file=file, how=how)


def _asserting_less(before: Iterable[_Test], after: Iterable[_Test]) -> Iterator[WeakenedTest]:
    was, is_now = _assertions(before), _assertions(after)
    for (name, file), (tests, number) in was.items():
        tests_now, number_now = is_now.get((name, file), (0, 0))
        if tests == tests_now and number_now < number:
            yield WeakenedTest(name=name, file=file, how=Weakening.ASSERTS_LESS)


def _assertions(tests: Iterable[_Test]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return how many tests of one name a file has, and how many lines of them assert something."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for test in tests:
        number, assertions = found.get((test.name, test.file), (0, 0))
        found[test.name, test.file] = number + 1, assertions + test.assertions
    return found


def find_special_cases(files: Iterable[ChangedTestFile], hunks: Iterable[Hunk]) -> Iterator[Hunk]:
    """Yield hunks that compare something with a literal of a new or changed test and have another literal of that test
    as well, as `if text == "1d": return 1440` does."""
    tests = [literals for each in files if each.after for literals in _new_literals(each)]
    for hunk in hunks:
        lines = [*_lines(hunk.added)]
        compared = {text for line in lines if _COMPARES.search(line) for text in _literals(line, _SHORTEST_INPUT)}
        known = {text for line in lines for text in _literals(line)}
        if any(test & known - {text} for test in tests for text in compared & test):
            yield hunk


def _new_literals(file: ChangedTestFile) -> Iterator[set[str]]:
    old = set((file.before or "").splitlines())
    for test in _tests(file.file, file.after or ""):
        yield {text for line in _lines(test.body) if line not in old for text in _literals(line)}


def _literals(line: str, shortest: int = 1) -> Iterator[str]:
    for match in _LITERAL.finditer(line):
        text = match["text"] or match["number"]
        if len(text) >= shortest:
            yield text


#: The parts of a file in Go between which a comment or a blank can stand. A block comment counts as code.
_GO = re.compile(
    r"""(?P<comment>//[^\n]*)|(?P<space>\s+)|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`[^`]*`|\w+|.""",
    re.DOTALL,
)
#: Comments that Go's tools obey: `//go:embed`, `//line`, `//export`, and the output of an example.
_GO_DIRECTIVE = re.compile(r"//(?:[a-z0-9]+:[a-z0-9]|line |export |extern )|//(?i:\s*(?:unordered )?output:)")
#: Above `import "C"` a comment is code in C, and around `// +build` blank lines count.
_GO_UNSURE = re.compile(r'["`]C["`]|\+build')


def is_same_code(path: str, text: str, without: str) -> bool:
    """Return whether two versions of a file certainly mean the same. Known for Python and Go."""
    if path.endswith((".py", ".pyi")):
        try:
            return ast.dump(ast.parse(text)) == ast.dump(ast.parse(without))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    if path.endswith(".go") and not _GO_UNSURE.search(text + without):
        return _go_tokens(text) == _go_tokens(without)
    return False


def _go_tokens(text: str) -> list[str]:
    """The file's parts without line comments, and with one line end or blank where there were several."""
    tokens = ["\n"]
    for match in _GO.finditer(f"{text}\n"):
        token = match[0]
        if match["space"]:
            token = "\n" if "\n" in token else " "
            if tokens[-1] in {" ", "\n"}:
                token = max(tokens.pop(), token, key="\n".__eq__)
        if not match["comment"] or _GO_DIRECTIVE.match(token):
            tokens.append(token)
    return tokens
