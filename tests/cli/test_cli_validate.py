"""`stepflow validate` and `explain` as people and programs read them."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from pathlib import Path

import jsonschema
import pytest

from stepflow.cli import main
from stepflow.cli.terminal import colored
from stepflow.report.document import problems_schema
from tests.checkout import git
from tests.cli.terminal import at_terminal
from tests.definition.load_cases import cases

GOLDEN = Path(__file__).parent / "golden"
REGISTRY = ".agent/fixer/steps_registry.json"


@pytest.fixture
def misspelt(checkout: Path) -> Path:
    """A target that is misspelt, in a file as its author formatted it, and a variable in a prompt."""
    path = checkout / REGISTRY
    path.write_text(path.read_text().replace('"target": "continuation.issue"', '"target": "continuation.isue"', 1))
    prompt = checkout / ".agent/fixer/prompts/steps/initial/issue/f_default.md"
    prompt.write_text(prompt.read_text() + "\n\n課題 {uv-isue}\n", encoding="utf-8")
    return checkout


def validated(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    assert main(["validate", *words]) == code
    return capsys.readouterr().out


def test_a_problem_is_shown_where_it_is_with_its_reason_and_what_to_write(misspelt: Path, capsys) -> None:
    expected = (GOLDEN / "validate.txt").read_text(encoding="utf-8")
    out = validated(capsys)
    if os.environ.get("STEPFLOW_ACCEPT"):
        (GOLDEN / "validate.txt").write_text(out, encoding="utf-8")
    assert out == expected


@pytest.mark.whole
def test_a_terminal_of_eighty_columns_gets_no_longer_line_and_colors(misspelt: Path) -> None:
    out = at_terminal("validate", code=2)
    assert "\x1b[31merror[SF343]: " in out
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert max(len(line) for line in plain.splitlines() if "-->" not in line) <= 80


def test_colors_follow_the_terminal_and_what_the_environment_says() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    piped = io.StringIO()
    assert not colored(piped, {})
    assert colored(piped, {"FORCE_COLOR": "1"})
    assert colored(Terminal(), {"TERM": "xterm"})
    assert not colored(Terminal(), {"TERM": "dumb"})
    assert not colored(Terminal(), {"TERM": "xterm", "NO_COLOR": "1"})


def test_json_fits_its_published_schema(misspelt: Path, capsys) -> None:
    document = json.loads(validated(capsys, "--format", "json"))
    jsonschema.validate(document, problems_schema())
    assert (document["schema"], document["agents"]) == (1, ["fixer"])
    problem = next(one for one in document["problems"] if one["code"] == "SF343")
    assert 'did you mean "continuation.issue"?' in problem["message"]


def test_the_schema_of_the_problems_is_the_golden_one(capsys) -> None:
    assert main(["schema", "problems"]) == 0
    assert capsys.readouterr().out == (GOLDEN / "problems.schema.json").read_text(encoding="utf-8")


def test_github_marks_the_columns(misspelt: Path, capsys) -> None:
    (line,) = [line for line in validated(capsys, "--format", "github").splitlines() if "SF343" in line]
    row = next(text for text in (misspelt / REGISTRY).read_text().split("\n") if "continuation.isue" in text)
    value = '"continuation.isue"'
    begin = row.index(value)
    assert f",col={begin + 1},endColumn={begin + len(value)}," in line
    assert 'Fix: Name a flow step; there are "initial.issue", ' in line


@pytest.mark.parametrize("form", ["github", "sarif"])
def test_below_the_root_of_a_repository_files_are_named_from_its_root(
    misspelt: Path, tmp_path: Path, form: str, monkeypatch, capsys
) -> None:
    above = tmp_path / "above"
    git("init", "--quiet", str(above), cwd=tmp_path)
    (misspelt / ".agent").rename(above / ".agent")
    (above / "tools").mkdir()
    (above / ".agent").rename(above / "tools/.agent")
    monkeypatch.chdir(above / "tools")
    assert f"tools/{REGISTRY}" in validated(capsys, "--format", form)


def test_a_sound_agent_validates_with_exit_0(checkout: Path, capsys) -> None:
    assert main(["validate"]) == 0
    *_, last = lines = capsys.readouterr().out.splitlines()
    assert "fixer: 1 note" in lines
    assert last == "Next: `stepflow preflight fixer` tries whether its checks can run here."


def test_of_several_agents_each_is_tried_by_its_own_preflight(checkout: Path, capsys) -> None:
    shutil.copytree(checkout / ".agent/fixer", checkout / ".agent/other")
    main(["validate"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "Next: `stepflow preflight NAME` tries whether an agent's checks can run here."


def test_many_planted_errors_are_reported_at_once_each_on_its_line(tmp_path: Path, monkeypatch, capsys) -> None:
    case = next(case for case in cases("invalid") if case.name == "errors-of-many-rules")
    monkeypatch.chdir(case.build(tmp_path))
    text = Path(".agent/demo/steps_registry.json").read_text()
    assert main(["validate", "demo"]) == 2
    out = capsys.readouterr().out
    matches = re.findall(r"^error\[(SF\d{3})\]: .+\n +--> \.agent/demo/steps_registry\.json:(\d+):\d+$", out, re.M)
    assert [code for code, _ in matches] == [one["code"] for one in case.data["problems"]]
    for one, (_, line) in zip(case.data["problems"], matches, strict=True):
        assert what_stands_at(json.loads(text), one["path"]) in text.splitlines()[int(line) - 1]
    assert out.splitlines()[-2] == "demo: 16 errors"


def what_stands_at(document: object, pointer: str) -> str:
    """What the line of a JSON Pointer must show: the value, or the key of an object or a list."""
    key = ""
    for key in pointer.split("/")[1:]:
        document = document[int(key) if isinstance(document, list) else key]  # type: ignore[index]
    return f'"{key}"' if isinstance(document, dict | list) else json.dumps(document)


ORDERS = "\n::error::forged\n##[add-path]/evil\u2028\x1b[31m"


def lines_with_orders(text: str) -> list[str]:
    lines = [line for line in re.split(r"[\n\r\u2028]", text) if not line.startswith("::error file=.agent/fixer/")]
    return [line for line in lines if line.lstrip().startswith("::") or "##[" in line or "\x1b" in line]


@pytest.mark.parametrize("form", ["text", "json", "github", "sarif"])
def test_a_job_that_validates_obeys_no_text_of_a_definition(checkout: Path, capsys, form: str) -> None:
    path = checkout / ".agent/fixer/steps_registry.json"
    registry = json.loads(path.read_text())
    registry["steps"]["initial.issue"]["transitions"]["next"] = {"target": ORDERS}
    path.write_text(json.dumps(registry))
    assert main(["validate", "--format", form]) == 2
    out = capsys.readouterr().out
    assert "forged" in out
    assert lines_with_orders(out) == []
    if form == "json":
        assert any("##[add-path]" in problem["message"] for problem in json.loads(out)["problems"])


def test_a_job_that_runs_obeys_no_text_of_a_definition(checkout: Path, capsys) -> None:
    path = checkout / ".agent/fixer/steps_registry.json"
    path.write_text(path.read_text().replace('"continuation.issue"', json.dumps(ORDERS), 1))
    assert main(["run", "fixer", "--issue", "7"]) == 2
    out, err = capsys.readouterr()
    assert "forged" in err
    assert lines_with_orders(out + err) == []


# explain


def test_explain_gives_reason_and_example(capsys) -> None:
    assert main(["explain", "sf343"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("error[SF343]: target does not exist or is a section\n")
    assert "Wrong, in steps_registry.json, /steps/initial.issue/transitions/next:" in out
    assert '    { "target": "continuation.issue" }' in out
    assert out.endswith("\nPage: https://github.com/org/stepflow-action/blob/v1/docs/rules/steps.md#sf343\n\n")


def test_explain_without_a_code_lists_all_rules_by_group(capsys) -> None:
    assert main(["explain"]) == 0
    head, *rows = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert head == "Files and their shape"
    assert [row[:3] for row in rows] == ["SF1"] * len(rows) != []


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("SF344x", "Did you mean SF344?"),
        ("SF352", "Did you mean SF350 or SF351"),
        ("SF999", "lists all"),
        ("hello", "lists all"),
    ],
)
def test_a_code_that_does_not_exist_gets_a_hint(word: str, hint: str, capsys) -> None:
    assert main(["explain", word]) == 2
    assert hint in capsys.readouterr().err


# What goes wrong before an agent is found


def folders(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir(parents=True, exist_ok=True)


def error_of(capsys, *words: str) -> str:
    assert main(["validate", *words]) == 2
    done = capsys.readouterr()
    return done.err + done.out


@pytest.mark.parametrize(
    ("folder", "hint"),
    [
        (".agent/fixer", "stepflow validate ."),
        (".agent/fixer/prompts", "There are agents in"),
        (".agent", "above `.agent`"),
    ],
)
def test_inside_an_agent_a_way_out_is_named(folder: str, hint: str, checkout: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(checkout / folder)
    assert hint in error_of(capsys)


@pytest.mark.sample(4)
@pytest.mark.parametrize("words", [["validate", "fixer"], ["graph", "fixer"], ["rehearse", "fixer"], ["rehearse"]])
@pytest.mark.parametrize("folder", [".agent/fixer", ".agent", "src"])
def test_who_names_an_agent_in_the_wrong_folder_is_told_the_right_one(
    words: list[str], folder: str, checkout: Path, monkeypatch, capsys
) -> None:
    folders(checkout, "src")
    monkeypatch.chdir(checkout / folder)
    assert main(words) == 2
    shown = "".join(capsys.readouterr())
    assert "stepflow init" not in shown
    ways_out = (f"other command in {checkout}", "above `.agent`", f"There are agents in {checkout}")
    assert any(way in shown for way in ways_out)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("stand", "word"), [(".", "."), (".", "./"), (".", "./.agent"), (".agent", "."), ("..", "{checkout}")]
)
def test_a_folder_that_holds_agents_is_no_agent(stand: str, word: str, checkout: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(checkout / stand)
    out = error_of(capsys, word.format(checkout=checkout))
    assert 'is not an agent: it contains the agents "fixer"' in out
    assert f"`stepflow validate` in {checkout} checks all" in out


def test_a_folder_with_another_name_is_recognised(tmp_path: Path, monkeypatch, capsys) -> None:
    folders(tmp_path, ".agents/fixer")
    monkeypatch.chdir(tmp_path)
    assert 'Rename the folder ".agents" to ".agent".' in error_of(capsys)


def test_an_agent_that_is_misspelt_is_recognised(checkout: Path, capsys) -> None:
    assert 'there is no agent "fixr" (did you mean "fixer"?)' in error_of(capsys, "fixr")


@pytest.mark.parametrize("words", [["validate"], ["validate", "fixer"], ["rehearse", "fixer"], ["graph", "fixer"]])
def test_who_has_no_agent_yet_is_told_how_to_write_one(words: list[str], tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) in (1, 2)
    shown = capsys.readouterr()
    assert "`stepflow init`" in shown.out + shown.err
    assert "none" not in shown.out + shown.err


@pytest.mark.parametrize("there", ["agents.json", "agent.jsonc", "Agent.json", "agent.yaml"])
def test_an_agent_file_with_another_name_is_named(there: str, checkout: Path, capsys) -> None:
    (checkout / ".agent/fixer/agent.json").rename(checkout / ".agent/fixer" / there)
    out = error_of(capsys)
    assert f'the agent definition "agent.json" does not exist; there is "{there}"' in out


def test_a_folder_name_with_capitals_and_underscores_gets_one_that_fits(checkout: Path, capsys) -> None:
    (checkout / ".agent/fixer").rename(checkout / ".agent/Issue_Fixer")
    assert 'Rename the folder to "issue-fixer"' in error_of(capsys)


def test_a_byte_order_mark_and_tabs_are_no_problem_and_move_no_column(misspelt: Path, capsys) -> None:
    path = misspelt / REGISTRY
    path.write_text("\ufeff" + path.read_text().replace("  ", "\t"), encoding="utf-8")
    out = validated(capsys)
    lines = out.splitlines()
    at = next(number for number, line in enumerate(lines) if '"continuation.isue"' in line and "|" in line)
    assert lines[at + 1].index("^") == lines[at].index('"continuation.isue"')


def test_no_file_outside_the_agent_is_shown(checkout: Path, capsys) -> None:
    (checkout / "secret.json").write_text('{"key": "s3cret"')
    agent = checkout / ".agent/fixer/agent.json"
    agent.unlink()
    agent.symlink_to(checkout / "secret.json")
    out = error_of(capsys)
    assert "SF109" in out
    assert "s3cret" not in out


def test_a_program_that_is_not_here_is_a_note_and_one_that_is_nearly_here_a_warning(checkout: Path, capsys) -> None:
    registry = checkout / REGISTRY
    whole = registry.read_text()
    registry.write_text(whole.replace("git status --porcelain", "no-such-program-anywhere --porcelain"))
    assert "note[SF608]" in validated(capsys, code=0)
    registry.write_text(whole.replace("git status --porcelain", "LC_ALL=C chmodd --porcelain"))
    out = validated(capsys, code=0)
    assert "warning[SF608]" in out
    assert 'no program "chmodd" on this machine (did you mean "chmod"?)' in out
    registry.write_text(whole.replace("git status --porcelain", "test 1 -eq 1"))
    assert "SF608" not in validated(capsys, code=0)


@pytest.mark.parametrize(
    ("missing", "here"), [("pquibble", "quibble"), ("quibble", "pquibble"), ("quibble3", "quibble")]
)
def test_a_program_that_is_named_after_another_is_not_that_one_misspelled(
    missing: str, here: str, checkout: Path, capsys, monkeypatch, tmp_path: Path
) -> None:
    """As pnpm, cmake, and pip3 are."""
    (tmp_path / here).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    registry = checkout / REGISTRY
    registry.write_text(registry.read_text().replace("git status --porcelain", missing))
    out = validated(capsys, code=0)
    assert f'no program "{missing}" on this machine' in out
    assert "did you mean" not in out


def test_strictly_a_warning_is_an_error(checkout: Path, capsys) -> None:
    agent = checkout / ".agent/fixer/agent.json"
    agent.write_text(agent.read_text().replace('"flow": {', '"flow": { "defaultModel": "sonet",', 1))
    assert "warning[SF113]" in validated(capsys, code=0)
    out = validated(capsys, "--strict")
    assert "error[SF113]" in out
    assert 'the model "sonet" is not an alias (did you mean "sonnet"?)' in out
