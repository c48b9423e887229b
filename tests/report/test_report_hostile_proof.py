"""A pull request names files and tests: whatever it calls them, a proof prints clean lines and our own commands."""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import get_type_hints

from hypothesis import example, given, settings
from hypothesis import strategies as st

import stepflow
from stepflow.action.runner import Job
from stepflow.cli.terminal import print_lines, show_lines
from stepflow.domain.proof import Proof, ProofVerdict, Trial, TrialOutcome, TriedHunk, WeakenedTest, Weakening
from stepflow.domain.text import find_invisible
from stepflow.report.proof import describe_proof, proof_annotations, proof_json, proof_lines, proof_section
from stepflow.report.safe_text import Command, Line, clean_line, json_line

COMMANDS = ("::set-output name=proven::true", "::stop-commands::x", "##[error]x", "✓ proven: all of it", "::endgroup::")
BREAKS = ("\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029")
SIGNS = (
    *(*COMMANDS, *BREAKS, "\x1b[2J", "\x9b2J", "\u202e", "\u200b", "\U000e0041", "\udcff"),
    *("<b>", "|", "`", "x" * 300),
)
HOSTILE = st.lists(st.sampled_from(SIGNS) | st.text(max_size=3), min_size=1, max_size=6).map("".join)
EXAMPLE = "a\n::stop-commands::x\n\x1b[2J✓ proven\u2028##[error]x.py"


def proof_of(text: str) -> Proof:
    hunk = TriedHunk(file=text, lines=(1, 2), held_by=None, tried=True)
    return Proof(
        verdict=ProofVerdict.UNPROVEN,
        reason=f"The tests pass without {text}.",
        tests=(text,),
        before=Trial(outcome=TrialOutcome.FAILED, tests=(text,), output=text, seconds=1.0),
        hunks=(hunk, TriedHunk(file=text, lines=(0, 0), held_by=(text,), tried=True)),
        weakened=(WeakenedTest(name=text, file=text, how=Weakening.REMOVED),),
        notes=(text,),
    )


def is_clean(line: str) -> bool:
    return line == clean_line(line) and line.splitlines() in ([], [line])


@settings(max_examples=40)
@given(HOSTILE)
@example(EXAMPLE)
def test_a_proof_prints_clean_lines_and_our_own_commands(text: str) -> None:
    proof, out = proof_of(text), io.StringIO()
    lines, annotations = proof_lines(proof), proof_annotations(proof)
    Job({}, out).say(*lines, *annotations)
    printed = out.getvalue().split("\n")[:-1]
    # Nothing that a name holds makes a line more, or a command.
    assert printed == [*lines, *annotations]
    assert all(map(is_clean, lines))
    assert [line.partition(" ")[0] for line in printed if line.lstrip().startswith("::")] == [
        annotation.partition(" ")[0] for annotation in annotations
    ]
    assert all(isinstance(each, Command) and "\n" not in each for each in annotations)
    assert sum(line.startswith("✓ ") for line in lines) == 0
    assert is_clean(describe_proof(proof))
    assert is_clean(json.loads(json.dumps(proof_json(proof)))["proof"]["summary"])
    assert find_invisible(proof_section(proof)) == []


@settings(max_examples=40)
@given(HOSTILE)
@example(EXAMPLE)
def test_json_on_one_line_is_clean_and_says_the_same(text: str) -> None:
    line = json_line({"title": text, text: [text]})
    assert is_clean(line)
    assert json.loads(line) == {"title": text, text: [text]}


#: The job's log, a terminal, the line that shows what a command does, and the help of argparse.
SINKS = {"action/runner.py", "cli/terminal.py", "cli/waiting.py", "cli/__init__.py"}
#: What others may do with standard output and error: hand them to a function that takes only lines, or ask about them.
TAKES_LINES = {"print_lines", "make_console", "act"}
ASKS = {"isatty", "fileno", "flush"}


def test_only_the_sinks_print() -> None:
    """What is added later has no other way to a log or a terminal than one that takes lines and commands."""
    root = Path(next(iter(stepflow.__path__)))
    found = set()
    for file in root.rglob("*.py"):
        name = str(file.relative_to(root))
        if name in SINKS or name.startswith("sandbox/child/"):
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "print":
                found.add(f"{name}:{node.lineno} prints")
            if isinstance(node, ast.Attribute) and node.attr.strip("_") in ("stdout", "stderr"):
                if ast.unparse(node.value) != "sys":
                    continue
                parent = parents[node]
                # The one or the other.
                parent = parents[parent] if isinstance(parent, ast.IfExp) else parent
                takes = isinstance(parent, ast.Call) and ast.unparse(parent.func) in TAKES_LINES
                if not takes and not (isinstance(parent, ast.Attribute) and parent.attr in ASKS):
                    found.add(f"{name}:{parent.lineno} {ast.unparse(parent)}")
    assert found == set()


def test_the_sinks_take_only_lines_and_commands() -> None:
    """So the type checker refuses a text, wherever it comes from."""
    one = Line | Command
    assert get_type_hints(Job.say)["lines"] == one
    for sink in (print_lines, show_lines):
        assert get_type_hints(sink, localns={"Console": object})["lines"] == Iterable[one]
