"""What is put into a prompt is never looked at again, whatever stands in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prompt_parts import make_agent, make_step

from stepflow.domain.definition import SourceText
from stepflow.engine.prompt.render import render_prompt
from stepflow.engine.prompt.template import parse_template, render_template
from stepflow.engine.prompt.variables import Variables
from tests.tried import tried

NAMES = ("x", "y", "issue", "a-b", "_")
#: Values that look like everything a renderer could trip over.
PIECES = (
    *("{uv-x}", "{{uv-y}}", "{uv-", "}", "{", "{input_text}", "{section:section.s}", "uv-x", "{0}", "text", "é", "\n"),
    *("{{x}}", "{{{x}}}", "{{#if x}}", "{{/if}}", "\\1", "\\g<0>", "$1", "%s"),
)
VALUES = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)
#: Literal text has no braces, so that what stands between two placeholders cannot make a third.
LITERALS = st.text(alphabet="ab c-:_\n.", max_size=6)


@tried(50)
@given(
    parts=st.lists(st.tuples(LITERALS, st.sampled_from(NAMES), st.sampled_from(["{uv-%s}", "{{uv-%s}}"])), max_size=6),
    values=st.fixed_dictionaries(dict.fromkeys(NAMES, VALUES)),
    section=st.booleans(),
    given_input=VALUES,
)
def test_a_prompt_is_its_own_text_with_each_value_in_its_place(
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


@tried(50)
@given(
    parts=st.lists(
        st.tuples(LITERALS, st.sampled_from(["x", "y"]), st.sampled_from(["{{%s}}", "{{{%s}}}"])), max_size=6
    ),
    values=st.fixed_dictionaries({"x": VALUES, "y": VALUES}),
    listed=st.lists(VALUES, max_size=3),
)
def test_a_retry_prompt_is_its_own_text_with_each_value_in_its_place(
    parts: list[tuple[str, str, str]], values: dict[str, str], listed: list[str]
) -> None:
    text = "".join(f"{literal}{form % name}" for literal, name, form in parts)
    expected = "".join(f"{literal}{values[name]}" for literal, name, _ in parts)
    template = parse_template(f"<{text}{{{{#each listed}}}}[{{{{this}}}}]{{{{/each}}}}>")
    assert render_template(template, {**values, "listed": list(listed)}) == (
        f"<{expected}{''.join(f'[{one}]' for one in listed)}>"
    )
