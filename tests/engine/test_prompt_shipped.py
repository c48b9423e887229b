"""The shipped templates keep what the table of prompts.md §8 promises."""

from __future__ import annotations

import re
from importlib import resources

import pytest
from prompt_parts import make_agent, make_step, texts, variables_of

from stepflow.domain.agent.definition import SourceText
from stepflow.engine.prompt.render import TEMPLATE_KEYS, fill_shipped, render_prompt, render_system
from stepflow.engine.prompt.template import parse_template
from stepflow.engine.prompt.variables import Variables

EVERYWHERE = {"step_id", "iteration", "allowed_intents"}
LATER = "completed_iterations repeat_reason"
TABLE = {
    "system": ("agent_name agent_description verdict_criteria",
               "Role · How you work · What you must not do · When the work is done"),
    "initial_iterate": ("max_iterations remaining", "Task · Plan for the budget · Work"),
    "continuation_iterate": ("completed_iterations remaining repeat_reason", "Where you are · Work"),
    "initial_issue": ("issue repository", "Task · Understand · Plan · Work"),
    "continuation_issue": (f"issue {LATER}", "Where you are · Work · When to hand off"),
    "initial_issue_label_only": ("issue repository", "Task · Understand · Plan · Work · How it will end"),
    "continuation_issue_label_only": (f"issue {LATER}", "Where you are · Work · When to hand off · How it will end"),
    "initial_project": ("project project_title repository", "Task · Order of work · Work"),
    "continuation_project": (f"project project_title {LATER}", "Where you are · Work · When to hand off"),
    "initial_keyword": ("completion_keyword", "Task · Work · Completion word"),
    "continuation_keyword": (f"completion_keyword {LATER}", "Where you are · Work · Completion word"),
    "initial_manual": ("completion_keyword", "Task · Work · Completion word"),
    "continuation_manual": (f"completion_keyword {LATER}", "Where you are · Work · Completion word"),
    "initial_structured_signal": ("signal_type required_fields", "Task · Work · Signal"),
    "continuation_structured_signal": (f"signal_type required_fields {LATER}", "Where you are · Work · Signal"),
    "continuation_project_preparation": ("project project_title completed_iterations",
                                         "Goal of this phase · Work · When to hand off"),
    "continuation_project_processing": ("project project_title completed_iterations remaining",
                                        "Goal of this phase · Work · When to hand off"),
    "continuation_project_review": ("project project_title completed_iterations",
                                    "Goal of this phase · What to check · When to send back"),
    "issue_closure_default": ("issue repository", "What was asked · Evidence · Decide"),
    "project_closure_default": ("project project_title", "What was asked · Evidence · Decide"),
    "polling_closure_default": ("issue verdict_criteria", "What was asked · Evidence · Wanted outside state · Decide"),
    "review_closure_default": ("issue", "Findings · Evidence · Decide"),
    "iteration_closure_default": ("completed_iterations max_iterations", "What was done · What is left · Decide"),
    "facilitation_closure_default": ("project", "State found · Recommendations · Decide"),
    "project_continuation_closure_default": ("project project_title completed_iterations",
                                             "What was asked · Evidence · Decide"),
    "statuscheck_continuation_default": (f"project {LATER}", "Status now · What changed · What blocks"),
}  # fmt: skip
#: What a template would have to say to make a model write to GitHub.
FORBIDDEN = re.compile(
    r"\bgh \w|git push|\bpush\b|open a pull request|(?:close|label|assign|comment on) the issue", re.I
)


def text_of(key):
    return (resources.files("stepflow.engine.prompt") / "templates" / f"{key}.md").read_text(encoding="utf-8")


def test_there_is_one_file_for_each_of_the_26_keys_and_no_other():
    files = {entry.name for entry in (resources.files("stepflow.engine.prompt") / "templates").iterdir()}
    assert len(TEMPLATE_KEYS) == 26
    assert files == {f"{key}.md" for key in TEMPLATE_KEYS}
    assert set(TEMPLATE_KEYS) == set(TABLE)


@pytest.mark.parametrize("key", TEMPLATE_KEYS)
def test_a_template_has_its_headings_and_variables_and_asks_for_nothing_that_only_the_boundary_may_do(key):
    text, (own, headings) = text_of(key), (set(TABLE[key][0].split()), TABLE[key][1].split(" · "))
    expected = headings if key == "system" else [*headings, "Answer"]
    assert re.findall(r"^(#+) (.+)$", text, re.MULTILINE) == [("##", heading) for heading in expected]
    assert text.startswith("## "), "no front matter"
    assert 10 <= len(text.splitlines()) <= 60
    assert own <= {tag.name for tag in parse_template(text).tags} <= (own if key == "system" else own | EVERYWHERE)
    assert not re.search(r"\r|\{section:", text)
    assert not FORBIDDEN.search(text)


@pytest.mark.parametrize("key", [key for key in TEMPLATE_KEYS if key != "system"])
def test_a_template_says_what_to_answer_and_what_comes_of_it(key):
    text = text_of(key)
    for part in ("one JSON object", "given schema", "{uv-allowed_intents}", "short reason", "- `repeat`"):
        assert part in text.partition("## Answer\n")[2]
    if "`next` when" in text:
        assert re.search(r"summary\s+for\s+the\s+next\s+step|Sum\s+up\s+for\s+the\s+next\s+step", text)
    if "\n## Work\n" in text:
        assert "commit" in text.partition("\n## Work\n")[2].lower(), "work is asked for as commits"
    if TABLE[key][1].endswith("Decide"):
        decide = " ".join(text.partition("## Decide\n")[2].split())
        assert all(part in decide for part in ("`closing` when the evidence is complete", "`repeat`", "missing points"))
        assert "Commit" not in text, "a closure asks for no work"


@pytest.mark.parametrize("phase", ["initial", "continuation"])
def test_manual_is_the_same_text_as_keyword(phase):
    assert text_of(f"{phase}_manual") == text_of(f"{phase}_keyword")


@pytest.mark.parametrize("key", TEMPLATE_KEYS)
@pytest.mark.parametrize("variables", [texts(), texts(issue="", project="", repository="")], ids=["none", "empty"])
def test_a_template_without_any_value_renders_with_not_given(key, variables):
    text = fill_shipped(text_of(key), variables).text
    assert "(not given)" in text
    assert "{uv-" not in text


@pytest.mark.parametrize("key", [key for key in TEMPLATE_KEYS if key != "system"])
def test_a_template_renders_with_the_variables_of_a_run(key):
    step = make_step(source=SourceText(text=text_of(key), file=f"templates/{key}.md", template=key))
    given = {name: f"<{name}>" for name in TABLE[key][0].split()}
    variables = Variables(texts={**variables_of(step).texts, "allowed_intents": "next, repeat", **given})
    done = render_prompt(make_agent(step), step, variables)
    assert all(value in done.text for value in given.values())
    assert "(not given)" not in done.text


def test_the_shipped_system_prompt_tells_who_what_and_when():
    step = make_step()
    agent = make_agent(step, system_prompt=SourceText(text=text_of("system"), file="system.md", template="system"))
    text = render_system(agent, step, variables_of(step, agent=agent)).text
    assert "You are iterator," in text
    assert "Works on issues." in text
    assert "At most 10 iterations" in text
    assert "{uv-" not in text
