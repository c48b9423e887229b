"""Job summary, comment and final words: what they say, and that model text stays text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hostile import TEXT, obeyed
from hypothesis import given, settings
from markdown_it import MarkdownIt
from plausible_run import AGENT, ENTRIES

from stepflow.boundary.plan import LONGEST_OWN
from stepflow.domain.agent.agent_settings import ClimbCause, ModelChanged
from stepflow.domain.checkout import BaseCheck, DiffStat, LineCounts
from stepflow.domain.connection import HostRequests
from stepflow.domain.conversation import Refusal
from stepflow.domain.effect import EffectKind, EffectStatus, Receipt
from stepflow.domain.end import End
from stepflow.domain.reports.report import CheckResult, RunReport
from stepflow.domain.text import RemovalKind, RemovedPiece, TextRemoved
from stepflow.domain.words import Effort, Intent, Outcome, Stage
from stepflow.errors import Problem, Severity
from stepflow.report.collect import ReportFacts, collect_report
from stepflow.report.safe_text import code, fence, html_text, link, one_line, plain, reveal
from stepflow.report.summary import comment_summary, final_words, job_summary, verification
from stepflow.report.wording import BUG, next_step
from tests.golden import assert_golden

REPORT = collect_report(ENTRIES, AGENT, facts=ReportFacts(run_folder="/runs/7"))
PROBLEM = Problem(
    severity=Severity.WARNING, code="SF346", file="r.json", path="/s", line=4, message="not reachable", fix="drop it"
)
MARKDOWN = MarkdownIt("commonmark", {"html": True, "linkify": False}).enable(["table", "strikethrough"])
OWN_TAGS = re.compile(
    r"</?(code|sub)>|<details><summary>[^\n]*</summary>\n?|</details>\n?|<summary>|</summary>", re.DOTALL
)
RED = collect_report(
    [entry for entry in ENTRIES if entry.seq <= 35],
    AGENT,
    facts=ReportFacts(end=End(outcome=Outcome.VALIDATION_FAILED, stage=Stage.COMPLETION, reason="git-clean failed")),
)


def removed(*texts: str) -> TextRemoved:
    pieces = tuple(RemovedPiece(kind=RemovalKind.HIDDEN, where="body", text=text) for text in texts)
    return TextRemoved(count=len(texts), pieces=pieces)


def test_the_summary_of_a_plausible_run_is_the_golden_one():
    report = replace(REPORT, removed_text=removed("<!-- ignore\u200b all -->", "\u202e"), spec_violations=2)
    assert_golden("report/summary.md", job_summary(report, AGENT))


def test_the_comment_of_a_plausible_run_is_the_golden_one():
    assert_golden("report/comment.md", comment_summary(REPORT, run_url="https://github.com/octo/parser/actions/runs/1"))


CLIMBED = replace(
    REPORT,
    history=tuple(
        replace(line, model=model, effort=effort, model_change=change)
        for line, (model, effort, change) in zip(
            REPORT.history,
            [
                ("claude-haiku-5-5", Effort.LOW, None),
                (
                    "claude-haiku-5-5",
                    Effort.LOW,
                    ModelChanged(
                        before="haiku:low",
                        to="sonnet",
                        fallback=False,
                        cause=ClimbCause.VALIDATOR,
                        reason="the check git-clean failed",
                    ),
                ),
                *[("claude-sonnet-5-5", None, None)] * (len(REPORT.history) - 3),
                (
                    "claude-sonnet-5-5",
                    None,
                    ModelChanged(
                        before="sonnet",
                        to="opus",
                        fallback=True,
                        cause=ClimbCause.REFUSAL,
                        reason=str(Refusal(category="cyber", explanation="It <b>looks</b> harmful.")),
                    ),
                ),
            ],
            strict=True,
        )
    ),
)


def test_each_model_has_its_part_of_the_cost_and_says_why_it_gave_way():
    assert_golden("report/models.md", verification(CLIMBED))
    rows = [" ".join(line.split()) for line in final_words(CLIMBED) if "effort" in line or "claude-sonnet" in line]
    assert rows[0].startswith("models claude-haiku-5-5, effort low 2 iterations $")
    assert rows[1].startswith("claude-sonnet-5-5")
    assert "**Models**" not in verification(REPORT), "one model needs no table"


def test_the_final_words_of_a_plausible_run_are_the_golden_ones():
    assert_golden("report/final_words.txt", "\n".join(final_words(REPORT)) + "\n")


WARNING = "files this validator depends on were changed: <b>x|y"
CANARIES = {"a tool's environment": "kept", "RUNNER_TEMP": "reached by shell: /tmp | x", "the socket": "not here"}
CHECKED = replace(
    REPORT.history[0],
    intent=Intent.JUMP,
    transition="fallback",
    check_result=CheckResult(result="ng", message="no tests"),
    cost_usd=None,
)
CUT_SHORT = replace(CHECKED, intent=None, transition="none", target=None, check_result=None)
HOSTS = (
    HostRequests(host="pypi.org", allowed=1_200, refused=0),
    HostRequests(host="www.evil.example", allowed=0, refused=2),
    HostRequests(host="(UDP)", allowed=0, refused=1),
)
ENDS = {
    "a success before its effects are written": collect_report(
        [entry for entry in ENTRIES if entry.event.event not in ("effect_applied", "run_finished")],
        AGENT,
        facts=ReportFacts(end=End(outcome=Outcome.COMPLETED, reason="")),
    ),
    "a check that stayed red": RED,
    "a check that stayed red beside hosts that were refused": replace(RED, hosts=HOSTS),
    "a success beside hosts that were refused": replace(REPORT, hosts=HOSTS),
    "a red check that said nothing": replace(RED, validators=(replace(RED.validators[0], output_tail=" \n"),)),
    "checks that were changed": replace(
        RED, validators=tuple(replace(RED.validators[0], iteration=at, warnings=(WARNING,)) for at in (1, 2))
    ),
    "no run": collect_report(
        (),
        facts=ReportFacts(
            end=End(outcome=Outcome.INVALID_DEFINITION, stage=Stage.BEFORE, reason="1 problem"), problems=(PROBLEM,)
        ),
    ),
    "nothing to do": collect_report(
        (), facts=ReportFacts(end=End(outcome=Outcome.SKIPPED, stage=Stage.BEFORE, reason="no agent"))
    ),
    "all that is rare": replace(
        REPORT,
        spec_violations=2,
        failure_report="https://github.com/o/r/issues/7",
        code="SF341",
        problems=(PROBLEM,) * 40,
        host_run_folder="/home/runner/x",
        history=(CHECKED, CUT_SHORT, *REPORT.history[:1] * 3),
        cost_usd=None,
        isolation={"uid": "1000"},
        canaries=CANARIES,
        removed_text=TextRemoved(count=1, pieces=(RemovedPiece(kind=RemovalKind.CUT, where="body", text="the end"),)),
    ),
    "hardly anything": replace(
        REPORT,
        base_commit="",
        isolation={},
        run_folder="",
        effects=(),
        changes=None,
        problems=(replace(PROBLEM, severity=Severity.NOTE),),
    ),
}


def test_how_runs_end_is_told_as_in_the_golden_file():
    told = []
    for name, report in ENDS.items():
        agent = AGENT if report is RED else None
        texts = (job_summary(report, agent), comment_summary(report), *final_words(report))
        told += [f"=== {name}", *texts, ""]
    assert_golden("report/ends.md", "\n".join(told))


def test_what_to_do_next_is_told_as_in_the_golden_file():
    planned = tuple(replace(effect, status=EffectStatus.PLANNED) for effect in REPORT.effects)
    closed = (Receipt(kind=EffectKind.CLOSE_ISSUE, status=EffectStatus.APPLIED),)
    red = BaseCheck(name="tests", command="make test", passed=False, exit_code=1, seconds=2.0, output_tail="1 failed")
    reports = {str(each): replace(REPORT, success=False, outcome=each) for each in Outcome} | {
        "invalid arguments": replace(REPORT, success=False, outcome=Outcome.INVALID_DEFINITION, code="SF209"),
        "a bug": replace(REPORT, success=False, outcome=Outcome.INTERNAL_ERROR, explanation=BUG),
        "a scripted model": replace(REPORT, success=False, outcome=Outcome.MODEL_FAILED, provider="scripted"),
        "a scripted model and a check that failed before": replace(
            REPORT, success=False, outcome=Outcome.MODEL_FAILED, provider="scripted", base_checks=(red,)
        ),
        "a scenario that was not played": replace(
            REPORT, success=False, outcome=Outcome.BASE_FAILED, provider="scripted"
        ),
        "a dry run": replace(REPORT, effects=planned),
        "a pull request": REPORT,
        "a closed issue": replace(REPORT, effects=closed),
        "nothing to write": replace(REPORT, effects=()),
    }
    told = []
    for name, report in reports.items():
        in_job = next_step(replace(report, host_run_folder="/home/runner/work/_temp/run"))
        head, _, _ = job_summary(report).partition("\n")
        told += [
            f"{head} ({name})",
            next_step(report),
            *([f"in a job: {in_job}"] if in_job != next_step(report) else []),
            "",
        ]
    assert_golden("report/next_steps.txt", "\n".join(told))


def test_long_runs_keep_their_ends():
    history = tuple(replace(REPORT.history[0], iteration=n, step_id=f"s{n % 7}") for n in range(1, 1001))
    report = replace(REPORT, history=history, validators=REPORT.validators * 100)
    summary = job_summary(report, AGENT)
    assert "| 100 |" in summary
    assert "*800 iterations left out; the run folder's report has them*" in summary
    assert "| 901 |" in summary
    assert "*200 earlier runs left out*" in summary
    assert "… 988 more …" in comment_summary(report)
    words = "\n".join(final_words(report))
    assert "… 988 more …" in words


@pytest.mark.parametrize(("files", "left"), [(10, ""), (11, "1 more"), (2500, "2,490 more")])
def test_of_many_changed_files_the_first_are_named_and_all_are_counted(files, left):
    changed = tuple(LineCounts(path=f"f{n:04}.py", added=n, removed=1) for n in range(files))[:1000]
    stat = DiffStat(files=changed, count=files, added=5, removed=files)
    report = replace(REPORT, changes=stat)
    for text in (comment_summary(report), job_summary(report, AGENT), "\n".join(final_words(report))):
        assert len(re.findall(r"f\d{4}\.py", text)) == 10
        assert re.search(r"f0009\.py`? +\+9 −1$", text, re.MULTILINE)
        assert [each.group(1) for each in re.finditer(r"([\d,]+ more)( …)?$", text, re.MULTILINE)] == [left] * bool(
            left
        )


def test_of_the_longest_names_and_commands_nothing_is_cut_where_the_boundary_writes_it():
    """The checks come after the files; their end must not be lost."""
    word = "`x " * 100
    files = tuple(LineCounts(path=f"{n}{word}", added=10**6, removed=10**6) for n in range(1000))
    runs = tuple(replace(REPORT.validators[0], name=f"{n}{word}", command=word, passed=False) for n in range(20))
    steps = tuple(replace(REPORT.history[0], step_id=f"{n}{word}") for n in range(100))
    report = replace(
        REPORT, validators=runs, history=steps, changes=DiffStat(files=files, count=1000, added=1, removed=1)
    )
    assert len(verification(report, run_url="https://x.test/" + "a" * 200)) < LONGEST_OWN


@pytest.mark.parametrize(("red", "of"), [({13}, 14), ({0, 29}, 30), (set(range(30)), 30), ({19}, 20), (set(), 21)])
def test_the_comment_shows_every_red_validator_however_many_there_are(red, of):
    runs = tuple(replace(REPORT.validators[0], name=f"check-{n:02}", passed=n not in red) for n in range(of))
    comment = comment_summary(replace(REPORT, validators=runs))
    assert set(re.findall(r"^- ❌ .*\(check\\?-(\d\d)\)", comment, re.MULTILINE)) == {f"{n:02}" for n in red}
    left = max(0, of - max(20, len(red)))
    assert (f"- and {left} more, none of them failed" in comment) == bool(left)


def test_a_graph_too_large_for_github_is_named_and_not_drawn():
    step = AGENT.steps["initial.issue"]
    many = {f"s{n}": replace(step, id=f"s{n}") for n in range(450)}
    assert "too large for GitHub's picture" in job_summary(REPORT, replace(AGENT, steps=many))
    long = {f"s{n}-{'x' * 50}": replace(step, id=f"s{n}-{'x' * 50}", edges={}) for n in range(600)}
    assert "too large for GitHub's picture" in job_summary(REPORT, replace(AGENT, steps=long))


def filled(text: str) -> RunReport:
    """A report with this text in every place that a model, a tool or a person can reach."""
    line = replace(REPORT.history[0], step_id=text, target=text, reason=text, transition=text)
    checked = replace(line, check_result=CheckResult(result="ok", message=text))
    run = replace(REPORT.validators[0], name=text, pattern=text, action=text, output_tail=text)
    effect = replace(REPORT.effects[0], detail=text, url=text, commit=text)
    changed = LineCounts(path=text, added=1, removed=0)
    return replace(
        REPORT,
        run_id=f"r{text}",
        agent=f"a{text}",
        reason=text,
        code=text,
        verdict=text,
        history=(line, checked),
        validators=(run,),
        changes=DiffStat(files=(changed, changed), count=2, added=2, removed=0),
        effects=(effect,),
        structured_output={text: [text]},
        problems=(replace(PROBLEM, message=text, file=text, path=text, fix=text),),
        isolation={text: text},
        hosts=(HostRequests(host=text, allowed=1, refused=1),),
        base_commit=text,
        failure_report=text,
        host_run_folder=text,
        success=False,
        outcome=Outcome.VALIDATION_FAILED,
    )


def structure(markdown: str) -> list[str]:
    """The types of all blocks, in order; inline marks and foreign HTML are named too, but for code, which does nothing:
    a reason may hold some."""
    types = []
    for token in MARKDOWN.parse(markdown):
        types.append(token.type)
        if token.type == "html_block":
            assert all(OWN_TAGS.fullmatch(line) for line in token.content.strip().split("\n")), token.content
            inside = re.sub(r"^<details><summary>|</summary>$", "", token.content.strip())
            assert not re.search(r"<(?!/?details>)", inside), token.content
        for child in token.children or ():
            if child.type == "html_inline":
                assert OWN_TAGS.fullmatch(child.content), child.content
            elif child.type not in ("text", "softbreak", "text_special", "code_inline"):
                types.append(child.type)
    return types


CALM = "calm"


@settings(max_examples=60, deadline=None)
@given(TEXT)
def test_no_text_forges_rows_html_links_or_sections_in_the_summary(text):
    hostile = job_summary(replace(filled(f"x{text}"), removed_text=removed(f"x{text}")))
    calm = job_summary(replace(filled(CALM), removed_text=removed(CALM)))
    assert structure(hostile) == structure(calm)


@settings(max_examples=60, deadline=None)
@given(TEXT)
def test_no_text_forges_anything_in_the_comment(text):
    report = replace(filled(f"x{text}"), removed_text=removed(f"x{text}"))
    hostile = comment_summary(report, run_url=f"https://x.test/{text}x")
    report = replace(filled(CALM), removed_text=removed(CALM))
    calm = comment_summary(report, run_url="https://x.test/ not a plain address")
    plain_address = comment_summary(report, run_url="https://x.test/a")
    assert structure(hostile) in (structure(calm), structure(plain_address))


@settings(max_examples=100, deadline=None)
@given(TEXT)
def test_final_words_are_never_obeyed_and_never_break_a_line(text):
    lines = final_words(filled(text))
    assert obeyed("\n".join(lines)) == []
    assert all(len(line.splitlines()) == 1 for line in lines)


@settings(max_examples=200, deadline=None)
@given(TEXT)
def test_plain_text_shows_exactly_its_visible_characters(text):
    rendered = MARKDOWN.renderInline(plain(text, 10_000))
    shown = rendered.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")
    assert shown == one_line(text, 10_000)
    assert len(MARKDOWN.parse(plain(text, 10_000))) in (0, 3)


@pytest.mark.sample(3)
@pytest.mark.parametrize("character", ["&", "<", "|", "`", "\\", "中", "😀", "\u200b", "\n", "::", "##["])
def test_the_summary_stays_under_one_mebibyte_whatever_the_text(character):
    long = character * 20_000
    report = filled(long)
    report = replace(
        report,
        history=report.history * 5000,
        validators=report.validators * 1000,
        problems=report.problems * 1000,
        isolation={f"{n}{long}": long for n in range(20)},
        removed_text=removed(*[long] * 500),
    )
    summary = job_summary(report, AGENT)
    assert len(summary.encode()) < 1_000_000
    assert len(comment_summary(report)) < 120_000


def test_a_summary_over_the_limit_is_cut_between_sections():
    whole = job_summary(REPORT, AGENT)
    short = job_summary(REPORT, AGENT, limit=2600)
    assert len(short.encode()) <= 2600
    assert short.endswith("The run folder's report has the rest.*\n")
    assert whole.startswith(short.split("\n\n*The summary is cut")[0])
    assert short.count("```") % 2 == 0


def test_removed_text_is_shown_with_its_invisible_characters():
    report = replace(REPORT, removed_text=removed("a\u200bb\ufe0f\u2800", "x" * 5000, *["y"] * 200))
    summary, comment = job_summary(report), comment_summary(report)
    for shown in (summary, comment):
        assert "202 hidden pieces of the issue's text did not reach the model: hidden text ×202." in shown
        assert "a<U+200B>b<U+FE0F><U+2800>" in shown
    assert "and 102 more" in summary
    assert "and 182 more" in comment


def test_pieces_of_markdown():
    assert plain("# a") == "\\# a"
    assert plain("12. b") == "12\\. b"
    assert plain("a # b - c") == "a # b - c"
    assert plain("see https://e.test and www.e.test") == "see https:\\//e.test and www\\.e.test"
    assert code("") == ""
    assert code("a|b") == "<code>a\\|b</code>"
    assert html_text("<b> & \"'") == "&lt;b&gt; &amp; &quot;&#x27;"
    assert link("x", "https://github.com/o/r/issues/7#issuecomment-1").startswith("[x](https")
    assert link("x", "javascript:alert(1)") == "x javascript:alert\\(1\\)"
    assert link("x", "") == "x"
    assert fence("a\n````\nb", lines=9).split("\n")[0] == "`````text"
    assert reveal("a\u200b\tb\u00a0", 99) == "a<U+200B>    b\u00a0"
