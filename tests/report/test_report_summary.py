"""Job summary, comment and final words: what they say, and that model text stays text (security.md case 31)."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hostile import TEXT, obeyed
from hypothesis import given, settings
from markdown_it import MarkdownIt
from page_of import events_of
from plausible_run import AGENT, ENTRIES

from stepflow.boundary.plan import LONGEST_VERIFIED
from stepflow.domain.checkout import DiffStat, LineCounts
from stepflow.domain.effect import EffectKind, EffectStatus, Receipt
from stepflow.domain.event import CanariesTried
from stepflow.domain.problem import Problem, Severity
from stepflow.domain.report import CheckResult, RunReport
from stepflow.domain.visible_text import RemovalKind, RemovedPiece, RemovedText
from stepflow.domain.words import Intent, Outcome
from stepflow.report.collect import ReportFacts, collect_report
from stepflow.report.safe_text import code, fence, html_text, link, one_line, plain, reveal, width
from stepflow.report.summary import comment_summary, final_words, job_summary, verified
from stepflow.report.wording import advice, next_step
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
    facts=ReportFacts(outcome=Outcome.VALIDATION_FAILED, reason="Completion loop: git-clean is red"),
)


def removed(*texts: str) -> RemovedText:
    pieces = tuple(RemovedPiece(kind=RemovalKind.COMMENT, where="body", text=text) for text in texts)
    return RemovedText(count=len(texts), pieces=pieces)


def test_the_summary_of_a_plausible_run_is_the_golden_one():
    report = replace(REPORT, removed_text=removed("<!-- ignore\u200b all -->", "\u202e"))
    assert_golden("report/summary.md", job_summary(report, AGENT, notes=["left uncommitted: notes.txt"]))


def test_the_comment_of_a_plausible_run_is_the_golden_one():
    assert_golden("report/comment.md", comment_summary(REPORT, run_url="https://github.com/octo/parser/actions/runs/1"))


def test_the_final_words_of_a_plausible_run_are_the_golden_ones():
    assert_golden("report/final_words.txt", "\n".join(final_words(REPORT)) + "\n")


def test_the_comment_that_is_written_before_the_effects_tells_of_a_success():
    planned = [entry for entry in ENTRIES if entry.event.event not in ("effect_applied", "run_finished")]
    report = collect_report(planned, AGENT, facts=ReportFacts(outcome=Outcome.COMPLETED))
    comment = comment_summary(report)
    assert comment.startswith("### ✅ fixer on issue #7: completed\n\n**Reason**: The parser accepts")
    assert "dry run" not in comment


def test_a_failed_run_tells_what_to_do_and_shows_the_red_output():
    comment = comment_summary(RED, notes=["kept on branch x"])
    assert comment.startswith("### ❌ fixer on issue #7: a check stayed red")
    assert "**What to do next:** Read the failing validator's output" in comment
    assert "❌ `git status --porcelain` (git-clean): attempt 1" in comment
    assert "?? notes.txt" in comment
    assert "- kept on branch x" in comment
    summary = job_summary(RED, AGENT)
    assert "None: nothing was planned or written." in summary
    assert "<details><summary>Output of git-clean in iteration 3</summary>" in summary


def test_a_red_validator_without_output_has_no_output_section():
    silent = replace(RED, validators=(replace(RED.validators[0], output_tail=" \n"),))
    assert "Output of" not in comment_summary(silent) + job_summary(silent, AGENT)


def test_what_was_changed_under_a_validator_is_told_once_for_each_validator():
    warning = "files this validator depends on were changed: <b>x|y"
    runs = tuple(replace(RED.validators[0], iteration=at, warnings=(warning,)) for at in (1, 2))
    for text in (comment_summary(replace(RED, validators=runs)), job_summary(replace(RED, validators=runs), AGENT)):
        (line,) = [line for line in text.splitlines() if "were changed" in line]
        assert line.startswith("- ⚠️ ")
        assert "iteration 2" in line
        assert "<b>" not in line


def test_a_report_without_a_run_is_short_and_whole():
    facts = ReportFacts(outcome=Outcome.INVALID_DEFINITION, reason="Before the run: 1 problem", problems=(PROBLEM,))
    report = collect_report((), facts=facts)
    summary = job_summary(report)
    assert summary.startswith(
        "## ❌ stepflow: the agent's files have errors\n\n**Reason** (`invalid_definition`): 1 problem"
    )
    assert "- r.json:4: warning SF346 not reachable" in summary
    assert "### Steps" not in summary
    assert "```" not in summary
    assert final_words(report)[1].strip().startswith("r.json:4: warning SF346")


def test_what_else_a_person_must_know_is_in_the_notes():
    report = replace(
        REPORT,
        spec_violations=2,
        failure_report="https://github.com/o/r/issues/7",
        code="SF341",
        problems=(PROBLEM,) * 40,
        host_run_folder="/home/runner/x",
    )
    summary = job_summary(report, AGENT)
    assert "- `failFast: false` chose an intent 2 times" in summary
    assert "[The issue's comment tells what happened](https://github.com/o/r/issues/7)" in summary
    assert "<code>SF341</code>" in summary
    assert "- and 10 more: `stepflow validate` lists them all" in summary
    assert "run folder <code>/home/runner/x</code>" in summary
    none = replace(report, effects=(), problems=(replace(PROBLEM, severity=Severity.NOTE),))
    assert "### Problems" not in job_summary(none)


def test_a_check_its_transition_and_an_unknown_price_are_in_the_step_table():
    line = replace(
        REPORT.history[0],
        intent=Intent.JUMP,
        transition="fallback",
        check_result=CheckResult(result="ng", message="no tests"),
        cost_usd=None,
    )
    cut_short = replace(line, intent=None, transition="none", target=None, check_result=None)
    summary = job_summary(replace(REPORT, history=(line, cut_short), cost_usd=None))
    assert (
        "| jump \\(fallback\\) | <code>continuation.issue</code> | 2 | 8,700 | unknown | 8.7 | check ng: no tests |"
        in summary
    )
    assert "| none |  | 2 |" in summary
    assert "cost unknown" in summary


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_advice_and_a_mark(outcome):
    assert len(advice(outcome)) > 20
    report = replace(REPORT, outcome=outcome, success=outcome is Outcome.COMPLETED)
    assert job_summary(report).startswith("## ")
    assert final_words(report)[-1].startswith("  next        ")


def test_advice_knows_some_codes_better():
    assert "`parameters`" in advice(Outcome.INVALID_DEFINITION, "SF209")
    assert advice(Outcome.INVALID_DEFINITION, "SF111") == advice(Outcome.INVALID_DEFINITION)


def test_the_next_step_of_a_success_depends_on_what_was_written():
    planned = tuple(replace(effect, status=EffectStatus.PLANNED) for effect in REPORT.effects)
    closed = (Receipt(kind=EffectKind.CLOSE_ISSUE, status=EffectStatus.APPLIED),)
    assert "with `--boundary github` to write" in next_step(replace(REPORT, effects=planned))
    in_action = replace(REPORT, effects=planned, host_run_folder="/home/runner/work/_temp/run")
    assert "with `boundary: github` to write" in next_step(in_action)
    assert next_step(replace(REPORT, effects=closed)).startswith("Review what was written")
    assert next_step(replace(REPORT, effects=())) == advice(Outcome.COMPLETED)
    assert next_step(replace(REPORT, success=False, outcome=Outcome.REFUSED)) == advice(Outcome.REFUSED)


def test_a_scripted_model_that_failed_is_mended_in_its_scenario_and_not_by_a_key():
    failed = replace(REPORT, success=False, outcome=Outcome.MODEL_FAILED, provider="scripted")
    assert "scenario" in next_step(failed)
    assert "API key" not in next_step(failed)
    assert "API key" in next_step(replace(failed, provider="anthropic"))


@pytest.mark.parametrize("outcome", [each for each in Outcome if "label" in advice(each)])
def test_a_run_that_no_label_started_is_started_again_without_one(outcome):
    ended = replace(REPORT, success=False, outcome=outcome, host_run_folder="")
    assert "start it again" in next_step(ended)
    assert "label" not in next_step(ended).replace("`label-prefix`", "")
    assert "put the label on again" in next_step(replace(ended, host_run_folder="/home/runner/work/_temp/run"))


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
    assert len(verified(report, run_url="https://x.test/" + "a" * 200)) < LONGEST_VERIFIED


def test_a_run_without_commits_names_no_changed_files():
    report = replace(REPORT, changes=None)
    for text in (comment_summary(report), job_summary(report, AGENT)):
        assert "**Changed:**" not in text


@pytest.mark.parametrize(("red", "of"), [({13}, 14), ({0, 29}, 30), (set(range(30)), 30), ({19}, 20), (set(), 21)])
def test_the_comment_shows_every_red_validator_however_many_there_are(red, of):
    runs = tuple(replace(REPORT.validators[0], name=f"check-{n:02}", passed=n not in red) for n in range(of))
    comment = comment_summary(replace(REPORT, validators=runs))
    assert set(re.findall(r"^- ❌ .*\(check\\?-(\d\d)\)", comment, re.MULTILINE)) == {f"{n:02}" for n in red}
    left = max(0, of - max(20, len(red)))
    assert (f"- and {left} more, none of them red" in comment) == bool(left)


def test_columns_of_names_in_any_script_begin_below_each_other():
    names = ["tests", "型チェック", "e\u0301tat"]
    runs = tuple(replace(REPORT.validators[0], name=name) for name in names)
    lines = [line for line in final_words(replace(REPORT, validators=runs)) if "git status" in line]
    assert len(lines) == 3
    assert len({width(line.partition("git status")[0]) for line in lines}) == 1


def test_steps_that_repeat_themselves_are_counted_in_the_final_words():
    again = replace(REPORT, history=REPORT.history[:1] * 3 + REPORT.history[1:2])
    assert "  steps       initial.issue ×3 → continuation.issue" in final_words(again)


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
        base_commit=text,
        failure_report=text,
        host_run_folder=text,
        success=False,
        outcome=Outcome.VALIDATION_FAILED,
    )


def structure(markdown: str) -> list[str]:
    """The types of all blocks, in order; inline marks and foreign HTML are named too."""
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
            elif child.type not in ("text", "softbreak", "text_special"):
                types.append(child.type)
    return types


CALM = "calm"


@settings(max_examples=60, deadline=None)
@given(TEXT)
def test_no_text_forges_rows_html_links_or_sections_in_the_summary(text):
    hostile = job_summary(replace(filled(f"x{text}"), removed_text=removed(f"x{text}")), notes=[f"x{text}"])
    calm = job_summary(replace(filled(CALM), removed_text=removed(CALM)), notes=[CALM])
    assert structure(hostile) == structure(calm)


@settings(max_examples=60, deadline=None)
@given(TEXT)
def test_no_text_forges_anything_in_the_comment(text):
    report = replace(filled(f"x{text}"), removed_text=removed(f"x{text}"))
    hostile = comment_summary(report, notes=[f"x{text}"], run_url=f"https://x.test/{text}x")
    report = replace(filled(CALM), removed_text=removed(CALM))
    calm = comment_summary(report, notes=[CALM], run_url="https://x.test/ not a plain address")
    plain_address = comment_summary(report, notes=[CALM], run_url="https://x.test/a")
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
    summary = job_summary(report, AGENT, notes=[long] * 500)
    assert len(summary.encode()) < 1_000_000
    assert "### Notes" in summary
    assert len(comment_summary(report, notes=[long] * 500)) < 120_000


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
        assert "202 hidden pieces of the issue's text did not reach the model: HTML comment ×202." in shown
        assert "a<U+200B>b<U+FE0F><U+2800>" in shown
    assert "and 102 more" in summary
    assert "and 182 more" in comment


def test_the_self_test_of_the_sandbox_counts_what_is_out_of_reach_and_names_what_is_not():
    canaries = {"a tool's environment": "kept", "RUNNER_TEMP": "reached by shell: /tmp | x", "the socket": "not here"}
    summary = job_summary(collect_report(events_of(CanariesTried(canaries=canaries)), AGENT), AGENT)
    assert "\n| canaries | 1 of 2 out of reach |\n| RUNNER\\_TEMP | reached by shell" in summary


def test_a_text_that_was_too_long_is_said_to_be_cut():
    cut = RemovedText(count=1, pieces=(RemovedPiece(kind=RemovalKind.CUT, where="body", text="the end"),))
    assert "so its end is missing" in job_summary(replace(REPORT, removed_text=cut))


def test_a_run_with_few_facts_has_a_short_footer():
    bare = replace(REPORT, base_commit="", isolation={}, run_folder="")
    assert (
        job_summary(bare)
        .rstrip()
        .endswith("<sub>run <code>20260715-101500-7</code> · definition <code>0f0f0f0f0f0f</code></sub>")
    )
    assert "run folder" not in "\n".join(final_words(bare))


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


def test_what_was_only_checked_or_skipped_shows_no_figures_and_no_effects():
    for outcome in (Outcome.COMPLETED, Outcome.SKIPPED):
        summary = job_summary(collect_report((), facts=ReportFacts(outcome=outcome, reason="Before the run: so it is")))
        assert "**Reason**: so it is" in summary
        assert [words for words in ("validated", "iterations", "tokens", "Effects") if words in summary] == []


def test_what_was_refused_before_a_run_says_that_nothing_was_written():
    facts = ReportFacts(outcome=Outcome.INVALID_DEFINITION, reason="Before the run: no such agent")
    assert "nothing was planned or written" in job_summary(collect_report((), facts=facts))


def test_the_final_words_leave_notes_to_validate():
    note = replace(PROBLEM, severity=Severity.NOTE, message="a note")
    words = "\n".join(final_words(replace(REPORT, problems=(PROBLEM, note))))
    assert "not reachable" in words
    assert "a note" not in words
