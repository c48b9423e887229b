"""The log and the output writer: nothing that anybody says is obeyed, and outputs come back."""

from __future__ import annotations

import io
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from runner_model import lines_of, obeyed_in, outputs_in, unescaped

from stepflow.action.runner import Job, output_file_text, outputs_of
from stepflow.definition.rules import rules
from stepflow.domain.agent.definition import Inspection
from stepflow.domain.effect import EffectKind, EffectStatus, Receipt
from stepflow.domain.event import Entry, Noted
from stepflow.domain.reports.report import RunReport
from stepflow.domain.words import Outcome
from stepflow.errors import Problem, Severity
from stepflow.report.collect import collect_report
from stepflow.report.diagnostic import WIDE, annotation, diagnostics, problem_annotations
from stepflow.report.log import ActionLog, folded_traceback
from stepflow.report.safe_text import Command, Line, clean_line, text_lines
from stepflow.report.summary import final_words

PROPERTY = settings(max_examples=60)
COMMANDS = (
    *("set-output name=a::b", "error::x", "stop-commands::t", "add-mask::x"),
    *("GROUP::x", "endgroup::", "add-path::/"),
)
SIGNS = [
    *(f"::{command}" for command in COMMANDS),
    *("##[error]x", "##[GROUP]", "##[add-path]/", "##", "[error]", "::", "error"),
    *("%0A::error::x", "%25", "%3A%3Aerror::"),
    # Each of these characters by itself.
    *"#:]%\n\r\v\f\x85\u2028\u2029\x1c\x1e\ufeff\t",
    *" \u00a0\u3000\u2003\u200b\u2060\u0591\u034f\u180e\ufe0f\U000e0041\u00ad",
    *("\r\n", "\x1b[31m", "\x1b]0;t\x07", "\x9b1m", "\x1b", "\x00", "\udc80", "\uff1a\uff1a"),
    *("a<<end", "name=value", "<<", "=", "end"),
]
TEXT = st.lists(st.sampled_from(SIGNS) | st.text(max_size=3), max_size=12).map("".join)
OUR_OWN = ("group", "endgroup")


def said(*lines: Line | Command) -> str:
    """What a job's log holds after these lines were said, as the runner decodes it."""
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    Job({}, stdout).say(*lines)
    buffer = stdout.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode("utf-8", "replace")


def obeyed(output: str) -> list[str]:
    return [parsed[0] for line in lines_of(output) if (parsed := obeyed_in(line))]


def report(text: str) -> RunReport:
    return replace(
        collect_report(()), outcome=Outcome.ABORTED, reason=f"Flow loop: {text}", verdict=text, agent="fixer",
        final_step_id=text, structured_output={"comment": text, text or "x": text}, run_folder="/tmp/run",
    )  # fmt: skip


def test_the_model_of_the_runner_obeys_what_the_runner_obeys() -> None:
    table = {
        "::error::x": "error", "  \u3000::Error file=a::x": "error", "a ::error::x": None, "a ##[error]x": "error",
        "::nothing::x": None, "::error:x": None, "##[nothing]": None, "\ufeff::error::x": "error", "##[error": None,
        "#\u200b#[error]": "error", "\u200b::error::x": "error", "::stop-commands::t": "stop-commands",
    }  # fmt: skip
    for line, command in table.items():
        parsed = obeyed_in(lines_of(line)[0])
        assert (parsed[0] if parsed else None) == command, line


@pytest.mark.whole
@PROPERTY
@given(TEXT, st.sampled_from(("info", "warning", "error", "debug")))
@example("a\r::error::x", "info")
@example("\u0591::error::x", "info")
def test_no_text_is_obeyed_in_the_job_log(text: str, level: str) -> None:
    entry = Entry(seq=1, time=0.0, event=Noted(level=level, message=text, data={"output": text, "traceback": text}))
    output = said(*ActionLog(debug=True).render(entry), *final_words(report(text)))
    assert [command for command in obeyed(output) if command not in OUR_OWN] == []
    assert obeyed(output).count("group") <= 1
    assert "\x1b" not in output
    assert "\x9b" not in output
    assert max(map(len, lines_of(output))) < 1100


@PROPERTY
@given(TEXT)
def test_a_problem_of_a_definition_is_not_obeyed_where_it_is_checked(text: str) -> None:
    """What `mode: validate` and `stepflow validate` print comes from files that a pull request may have changed."""
    problem = Problem(
        severity=Severity.ERROR, code="SF101", file=text, path=text, line=None, message=text, fix=text
    )  # fmt: skip
    assert obeyed(said(*text_lines(text))) == []
    placed = replace(problem, line=1, column=1, end_column=2)
    inspections = {text: Inspection(problems=(problem, placed), texts={text: text})}
    for width in (WIDE, 40):
        shown = said(*diagnostics(inspections, rules(), width))
        assert obeyed(shown) == []
        assert "\x1b" not in shown


@PROPERTY
@given(TEXT, TEXT)
def test_an_annotation_is_one_command_that_shows_its_text(text: str, title: str) -> None:
    problem = Problem(severity=Severity.WARNING, code="SF1", file=title, path=title, line=3, message=text, fix=text)
    for line in (annotation("error", text, title=title, file=title), *problem_annotations((problem,))):
        assert obeyed(said(line)) in (["error"], ["warning"])
        data = unescaped(line.split("::", 2)[2])
        # The runner prints the text of an annotation into the log again.
        assert [command for command in (obeyed_in(part) for part in lines_of(data)[1:]) if command] == []
        assert "##[" not in data


@PROPERTY
@given(TEXT)
def test_a_traceback_is_folded_and_not_obeyed(text: str) -> None:
    assert set(obeyed(said(*folded_traceback(text)))) <= {"group", "endgroup"}


@PROPERTY
@given(TEXT)
@example("x\nend-0\nadmin=true\ny<<z\n")
def test_outputs_come_back_as_they_were_and_no_others_appear(text: str) -> None:
    outputs = outputs_of(report(text))
    assert outputs_in(output_file_text(outputs)) == outputs


@pytest.mark.parametrize("letter", ["x", "字", "🐛"])
def test_a_very_long_closing_answer_is_cut_and_not_left_out(letter: str) -> None:
    long = replace(report("x"), structured_output={"comment": letter * 100_000})
    given = outputs_of(long)["structured-output"]
    assert given.startswith('{"comment":"' + letter * 1000)
    assert given.endswith("…")
    assert 63 * 1024 < len(given.encode()) <= 64 * 1024
    fits = replace(report("x"), structured_output={"comment": letter * 1000})
    assert json.loads(outputs_of(fits)["structured-output"]) == fits.structured_output


@pytest.mark.parametrize("status", EffectStatus)
def test_what_stands_on_github_is_named_by_the_outputs_whoever_wrote_it(status: EffectStatus) -> None:
    """Skipped means that all is as planned already; what is forbidden, failed or only planned is not there."""
    done = {"status": status, "number": 50, "url": "https://github.com/o/r/50", "branch": "work", "commit": "c" * 40}
    kinds = (EffectKind.PUSH_BRANCH, EffectKind.OPEN_PULL_REQUEST, EffectKind.POST_COMMENT)
    given = outputs_of(replace(report("x"), effects=tuple(Receipt(kind=kind, **done) for kind in kinds)))
    named = {"branch": "work", "commit": "c" * 40, "pull-request": "50", "pull-request-url": done["url"]}
    named["comment-url"] = done["url"]
    is_there = status in (EffectStatus.APPLIED, EffectStatus.SKIPPED)
    assert {name: given[name] for name in named} == (named if is_there else dict.fromkeys(named, ""))


@PROPERTY
@given(st.dictionaries(st.sampled_from(("a", "b-c")), TEXT))
def test_the_output_file_on_disk_reads_back(outputs: dict[str, str]) -> None:
    """A workflow may print an output, so what comes back is the one line that a log would show."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "output"
        Job({"GITHUB_OUTPUT": str(path)}, io.StringIO()).write_outputs(outputs)
        text = path.read_bytes().decode("utf-8") if outputs else ""
    given = outputs_in(text)
    assert given == {name: clean_line(value) for name, value in outputs.items()}
    assert obeyed("\n".join(given.values())) == []


@pytest.mark.parametrize("text", ["\r", "\r\n", "\u2028", "\x0b", "\ufeff", "%0A", "%25"])
def test_no_character_ends_an_output_early(text: str) -> None:
    outputs = {"a": f"x{text}b<<c{text}"}
    assert outputs_in(output_file_text(outputs)) == outputs
