"""A step's prompt: sections, one pass, prompt failures and fallbacks (prompts.md §5)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_parts import LITERALS, VALUES, make_agent, make_step, texts

from stepflow.domain.agent.definition import SourceText
from stepflow.engine.prompt.render import PromptFailure, RenderedPrompt, render_prompt
from stepflow.engine.prompt.variables import Variables
from tests.tried import tried

TEMPLATE = SourceText(text="Issue: {uv-issue}.", file="templates/initial_issue.md", template="initial_issue")


def render(step, variables, *, input_text=None, **agent):
    return render_prompt(make_agent(step, **agent), step, variables, input_text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#{uv-issue}", "#7"),
        ("{{uv-issue}}", "7"),
        ("{{{uv-issue}}}", "{7}"),
        ("{{uv-issue}", "{7"),
        ("{uv-issue}}", "7}"),
        ("{uv-a-b_C9}", "odd"),
        ("{issue} {{issue}} {uv-} {uv-a.b} ${uv} {}", "{issue} {{issue}} {uv-} {uv-a.b} ${uv} {}"),
        ("{input_text}", "{input_text}"),
        ("{uv-empty}|", "|"),
    ],
)
def test_only_uv_placeholders_are_replaced(text, expected):
    variables = Variables(texts={"issue": "7", "a-b_C9": "odd", "empty": ""})
    assert render(make_step(text), variables) == RenderedPrompt(text=expected, source="prompts/steps/f_default.md")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{issue} {{issue}} {uv-issue} {{uv-issue}} {{uv.issue}}", "7 7 7 7 7"),
        ("{other} {{other}} {} {a.b} {input_text}", "{other} {{other}} {} {a.b} {input_text}"),
        ("{{{issue}}} {{issue} {braced}", "7 {7 {issue}"),
        ("\\{issue} \\{{issue}} \\{uv-issue}", "{issue} {{issue}} {uv-issue}"),
        ("${{ issue }} ${issue} ${uv-issue}", "${{ issue }} ${issue} $7"),
        ("```py\nf'{issue}' {{issue}} {uv-issue}\n```\n{issue}", "```py\nf'{issue}' 7 7\n```\n7"),
        ('{"a": {"b": {uv-issue}}, "c": {{uv-issue}}}', '{"a": {"b": 7}, "c": 7}'),
        ("{{#if issue}}yes{{else}}no{{/if}} {{#if gone}}yes{{else}}no{{/if}}", "yes no"),
        ("[{{gone}}]", "[]"),
        ("{{#each files}}{{@index}}={{this}} {{/each}}{uv-files}", '0=a.py 1=b.py ["a.py","b.py"]'),
        ("{{#unless done}}open{{/unless}}", "open"),
        ("{{! a note }}{{#with x}}{{/with}}", "{{#with x}}{{/with}}"),
    ],
)
def test_every_prompt_has_the_whole_language(text, expected):
    files = ["a.py", "b.py"]
    variables = Variables(
        texts={"issue": "7", "braced": "{issue}", "files": '["a.py","b.py"]', "done": "false"},
        values={"files": files, "done": False},
    )
    step = make_step(text, names=frozenset({"issue", "braced", "gone", "files", "done"}))
    assert render(step, variables).text == expected


def test_only_a_uv_name_must_be_supplied():
    failure = render(make_step("{nothing} {{plan}} {uv-plan}", names=frozenset({"plan"})), texts())
    assert isinstance(failure, PromptFailure)
    assert 'variable "plan" is used but nothing supplies it' in failure.message


NAMES = ("x", "y", "issue", "a-b", "_")


@tried(50)
@given(
    parts=st.lists(st.tuples(LITERALS, st.sampled_from(NAMES), st.sampled_from(["{uv-%s}", "{{uv-%s}}"])), max_size=6),
    values=st.fixed_dictionaries(dict.fromkeys(NAMES, VALUES)),
    section=st.booleans(),
    given_input=VALUES,
)
def test_what_is_put_in_is_never_looked_at_again(
    parts: list[tuple[str, str, str]], values: dict[str, str], section: bool, given_input: str
) -> None:
    text = "".join(f"{literal}{form % name}" for literal, name, form in parts)
    expected = "".join(f"{literal}{values[name]}" for literal, name, _ in parts)
    # The same placeholders once more, taken in from a section: sections come first, and values are still put in once.
    sections = {"section.s": SourceText(text=text, file="s.md")} if section else {}
    written = f"<{'{section:section.s}' if section else text}|{{input_text}}>"
    step = make_step(written, uses_stdin=True)
    done = render_prompt(
        make_agent(step, sections=sections), step, Variables(texts=values), input_text=given_input or "-"
    )
    assert done.text == f"<{expected}|{given_input or '-'}>"


def test_sections_come_first_and_their_placeholders_are_replaced():
    sections = {"section.context": SourceText(text="About {uv-issue}, {section:section.context}", file="s.md")}
    step = make_step("{section:section.context} {section:section.unknown}")
    done = render(step, texts(issue="7"), sections=sections)
    assert done.text == "About 7, {section:section.context} {section:section.unknown}"


@pytest.mark.parametrize(
    ("step", "variables", "names"),
    [
        (make_step("x", variables=("issue",)), texts(), 'declared variable "issue" has no value'),
        (make_step("x", variables=("issue",)), texts(issue=""), 'declared variable "issue" has no value'),
        (make_step("{uv-issue}"), texts(), 'variable "issue" is used but nothing supplies it'),
        (make_step("x", uses_stdin=True), texts(), "no input text"),
        (make_step("x"), Variables(texts={}, missing_inputs=("plan",)), 'required input "plan" has no value'),
    ],
    ids=["declared, missing", "declared, empty", "used", "input text", "required input"],
)
def test_a_missing_value_is_a_failure_that_names_variable_step_and_file(step, variables, names):
    failure = render(step, variables)
    assert isinstance(failure, PromptFailure)
    assert names in failure.message
    assert '"continuation.issue"' in failure.message
    assert "prompts/steps/f_default.md" in failure.message


def test_a_variable_both_declared_and_used_is_named_once():
    failure = render(make_step("{uv-issue} {uv-issue}", variables=("issue",)), texts())
    assert failure.message.count('"issue"') == 1


def test_with_a_fallback_the_template_is_sent_instead_and_said_so():
    step = make_step("{uv-issue}", fallback=TEMPLATE, fallback_key="initial_issue")
    assert render(step, texts()) == RenderedPrompt(
        text="Issue: (not given).",
        source="templates/initial_issue.md",
        used_fallback="initial_issue",
        cause='variable "issue" is used but nothing supplies it',
    )


def test_an_unknown_fallback_key_is_named_in_the_words_of_the_guide():
    failure = render(make_step("{uv-issue}", fallback_key="initial.issue", step_id="initial.issue"), texts())
    assert 'variable "issue" is used but nothing supplies it' in failure.message
    assert failure.message.endswith('No fallback prompt found for key: "initial.issue" (step: initial.issue)')


@pytest.mark.parametrize("variables", [texts(), texts(issue="")], ids=["missing", "empty"])
def test_a_step_whose_prompt_is_a_shipped_template_never_fails(variables):
    step = make_step(source=TEMPLATE, variables=("issue",), uses_stdin=True)
    done = render(step, replace(variables, missing_inputs=("plan",)))
    assert done == RenderedPrompt(text="Issue: (not given).", source="templates/initial_issue.md")


def test_a_command_step_has_no_prompt():
    step = replace(make_step(), prompt=None)
    assert "runs a command" in render(step, texts()).message


def test_a_prompt_says_where_each_value_stands():
    step = make_step("{section:head}{{uv-a}}, {uv-b}{uv-empty} and {input_text}.")
    variables = Variables(texts={"a": "{uv-b}", "b": "two", "empty": ""})
    done = render(step, variables, sections={"head": SourceText(text="Do {uv-a}: ", file="s.md")})
    assert isinstance(done, RenderedPrompt)
    placed = [(put.name, done.text[put.start : put.end]) for put in done.substitutions]
    assert placed == [("a", "{uv-b}"), ("a", "{uv-b}"), ("b", "two")]
