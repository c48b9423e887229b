"""The template language of retry prompts, row by row of its table (prompts.md §9.2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepflow.engine.prompt.template import Use, fill_template, parse_template


def render(text, **values):
    return fill_template(parse_template(text), values).text


def faults(text):
    return [f"{tag.written} {tag.fault}" for tag in parse_template(text).faults]


def test_the_names_that_are_put_in_unasked_are_known_without_values():
    text = "a {{b}} {{c.d}} {{#each e}}{{f}}{{else}}{{g}}{{/each}}{{#if h}}{{h}} {{i}}{{else}}{{j}}{{/if}}"
    tags = parse_template(text).tags
    assert [tag.name for tag in tags if tag.use is Use.VALUE and not tag.is_asked] == ["b", "c", "g", "i", "j"]


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("{{a}}", {"a": "<b> & \"c\" 'd'"}, "<b> & \"c\" 'd'"),
        ("{{{ a }}}", {"a": "<b>"}, "<b>"),
        ("{{ a.b.c }}", {"a": {"b": {"c": 1}}}, "1"),
        ("{{a.0.f}}", {"a": [{"f": "x.py"}]}, "x.py"),
        ("[{{a}}{{a.b}}{{n}}]", {"n": None}, "[]"),
        ("{{a}}", {"a": ["x", 1, 2.5, True]}, "x, 1, 2.5, true"),
        ("{{a}}", {"a": []}, ""),
        ("{{a}}", {"a": [{"ü": 1}]}, '[{"ü":1}]'),
        ("{{a}}", {"a": ["x", None]}, '["x",null]'),
        ("{{a}}", {"a": {"k": [1, 2]}}, '{"k":[1,2]}'),
        ("{{a}} {{b}}", {"a": True, "b": 0}, "true 0"),
        ("{{a}}", {"a": "{{b}} {{#if b}}", "b": "no"}, "{{b}} {{#if b}}"),
        ("{uv-a} {{uv-a}} {a}", {"a": 1}, "1 1 {a}"),
        ("\\{{a}} \\{uv-a} ${{ a }} ${uv-a} \\{b}", {"a": 1}, "{{a}} {uv-a} ${{ a }} $1 {b}"),
        ("{{uv.issue}}", {"uv": {"issue": "7"}}, "7"),
        ("{{log}} {{lookup}} {{this.log}}", {"log": "l", "lookup": "u"}, "l u l"),
        ("a{{! a note, with #each }}b", {}, "ab"),
    ],
)
def test_a_value_is_put_in_as_it_is(text, values, expected):
    assert render(text, **values) == expected


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (["x", "y"], "0:x 1:y "),
        ([], "none"),
        (None, "none"),
        ("text", "none"),
        ({"k": 1}, "none"),
        (3, "none"),
    ],
)
def test_each_runs_once_per_item_of_a_list_and_else_otherwise(items, expected):
    assert render("{{#each l}}{{@index}}:{{this}} {{else}}none{{/each}}", l=items) == expected


def test_an_item_is_asked_first_and_then_what_is_outside():
    text = "{{#each l}}{{this.name}}/{{name}}/{{validator}}/{{this.validator}};{{/each}}"
    values = {"l": [{"name": "a"}, {"name": None}, "s"], "name": "outer", "validator": "V"}
    assert render(text, **values) == "a/a/V/;//V/;/outer/V/;"


def test_a_name_found_in_the_item_is_not_looked_up_further_out():
    assert render("{{#each l}}[{{a.c}}]{{/each}}", l=[{"a": {"b": 1}}], a={"c": 2}) == "[]"


def test_lists_nest():
    text = "{{#each l}}{{@index}}({{#each this.m}}{{@index}}{{this}}{{n}}{{/each}}){{/each}}{{@index}}"
    assert render(text, l=[{"m": ["a"], "n": 1}, {"m": ["b", "c"], "n": 2}]) == "0(0a1)1(0b21c2)"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *[(value, "noyes") for value in (None, False, 0, 0.0, "", [])],
        *[(value, "yesno") for value in (True, 1, -0.5, "0", " ", [0], {}, {"k": None})],
    ],
)
def test_if_is_false_for_what_is_empty_or_missing(value, expected):
    assert render("{{#if a}}yes{{else}}no{{/if}}{{#unless a}}yes{{else}}no{{/unless}}", a=value) == expected
    assert render("{{#if a.b}}yes{{/if}}{{#unless a.b}}no{{/unless}}") == "no"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n{{#if t}}\nb\n{{else}}\nc\n{{/if}}\nd", "a\nb\nd"),
        ("a\n  {{#if t}}  \n  b\n\t{{/if}}\t\nd", "a\n  b\nd"),
        ("{{#if t}}\nb\n{{/if}}", "b\n"),
        ("{{#each l}}\n- {{this}}\n{{/each}}\nend", "- 1\n- 2\nend"),
        ("a {{#if t}}\nb\n{{/if}} c", "a \nb\n c"),
        ("{{#if t}}{{/if}}\nx", "\nx"),
        ("{{t}}\nx", "true\nx"),
        ("a\n{{! note }}\nb", "a\n\nb"),
        ("{{#if t}}\r\nb\r\n{{/if}}\r\n", "b\r\n"),
        ("{{#each l}}\n{{#if t}}\n{{this}}\n{{/if}}\n{{/each}}\n", "1\n2\n"),
    ],
)
def test_a_block_tag_alone_on_its_line_takes_the_line_with_it(text, expected):
    assert render(text, t=True, l=[1, 2]) == expected


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("x\n{{#with a}}{{/with}}", "{{#with a}} is not a block; the blocks are each, if and unless"),
        ("{{#}}{{/}}", "{{#}} is not a block"),
        ("{{#if a}}x", "{{#if a}} is never closed"),
        ("{{#if a}}{{#each b}}{{/if}}", "{{/if}} cannot close {{#each b}} of line 1"),
        ("{{/if}}", "closes a block that was never opened"),
        ("{{else}}", "is outside of a block"),
        ("{{#if a}}{{else}}{{else}}{{/if}}", "is the second one of its block"),
        ("{{#if}}x{{/if}}", "{{#if}} has no plain name"),
        ("{{#if a b}}x{{/if}}", "has no plain name"),
        ("{{}}", "has no plain name"),
        ("{{a b}}", "has no plain name"),
        ("{{> partial}}", "has no plain name"),
        ("{{../a}}", "has no plain name"),
        ("{{a..b}}", "has no plain name"),
        ("{{@first}}", "has no plain name"),
        ("{{else if a}}", "has no plain name"),
        ("{{{#if a}}}", "has no plain name"),
        ("ok\nthen {{ open", "{{ open is never closed with }}"),
        ("{{#if a}}" * 51 + "{{/if}}" * 51, "more than 50 blocks deep"),
    ],
)
def test_what_the_table_does_not_have_is_a_fault_and_stays_as_text(text, fault):
    assert any(fault in each for each in faults(text))
    written = next(tag.written for tag in parse_template(text).faults)
    assert written in render(text, a=1) + render(text, a=0)


def test_a_block_without_an_end_leaves_everything_as_it_is_written():
    text = "a\n{{#if b}}\n{{c}}\n{{else}}\nd\n"
    assert render(text, b=1, c=2) == "a\n{{#if b}}\n2\n{{else}}\nd\n"


def test_fifty_blocks_may_nest():
    text = "{{#if a}}" * 50 + "x" + "{{/if}}" * 50
    assert faults(text) == []
    assert render(text, a=1) == "x"


NAMES = st.sampled_from(["a", "b", "this", "this.a", "a.b", "a.0", "@index"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(alphabet="ab{} ü", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab0"), inner, max_size=3),
    max_leaves=12,
)
TEMPLATES = st.recursive(
    st.text(alphabet="x \n{", max_size=4).filter(lambda text: "{" not in text) | NAMES.map("{{{{{}}}}}".format),
    lambda inner: st.builds(
        "{{{{#{0} {1}}}}}{2}{{{{else}}}}{3}{{{{/{0}}}}}".format,
        st.sampled_from(["each", "if", "unless"]), NAMES, inner, inner,
    )
    | st.lists(inner, max_size=3).map("".join),
    max_leaves=8,
)  # fmt: skip


@given(template=TEMPLATES, values=st.dictionaries(st.sampled_from("ab"), JSON))
def test_a_parsed_template_renders_whatever_the_values_are(template, values):
    assert isinstance(render(template, **values), str)


@given(text=st.text(alphabet="{}#/! aeifchlsun@.\n", max_size=60))
def test_every_text_is_a_template_whatever_stands_in_it(text):
    assert isinstance(render(text), str)


@given(text=st.text(alphabet="{}#/! aeifchlsun@.\n`\\$-", max_size=60))
def test_a_closed_template_without_names_changes_only_notes_and_backslashes(text):
    done = fill_template(parse_template(text, is_open=False, is_closed=True), {}).text
    if "\\" not in text and "{{!" not in text and not parse_template(text, is_open=False, is_closed=True).tags:
        assert done == text
