"""`stepflow eval`: real runs of two definitions on cases, against a Messages API on loopback."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stepflow.cli import main
from stepflow.domain.reports.evaluation import EvalPair, EvalTrial, Evaluation, Variant
from stepflow.domain.words import Outcome
from stepflow.modes.eval.cases import read_cases
from stepflow.modes.eval.evaluate import compare
from stepflow.report.many_runs import evaluation_html, evaluation_lines
from stepflow.sandbox import copying
from tests.checkout import git
from tests.docs.page import DOCS, named_block, page_blocks
from tests.servers.messages_api import Failure, MessagesApi, Reply, answers, calls

KEY = "sk-ant-key-of-a-test-0123456789"
PROMPT = ".agent/fixer/prompts/steps/continuation/issue/f_default.md"
TESTS = "Run the tests before you commit."
#: A hidden check with a hidden file, which names what it wants.
HIDDEN = """
read -r said < answer.txt
[ "$said" = "{number}" ] || { echo "expected {number}, but answer.txt says $said"; exit 1; }
"""


def write_case(checkout: Path, number: int, **changed: Any) -> None:
    case = {
        "base": "start",
        "issue": {"number": number, "title": f"Greet {number}", "body": "The greeting lacks its number."},
        "checks": ["sh {tests}"],
        "tests": {"tests/hidden.test.sh": HIDDEN.replace("{number}", str(number))},
        **changed,
    }
    folder = checkout / ".agent/fixer/evals"
    folder.mkdir(exist_ok=True)
    (folder / f"greet-{number}.yaml").write_text(json.dumps(case))


@pytest.fixture
def project(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose last commit tells the agent to run the tests. Its working tree does not."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    prompt = checkout / PROMPT
    worse = prompt.read_text()
    prompt.write_text(f"{worse}\n{TESTS}\n")
    git("commit", "--quiet", "--all", "--message", "Ask for the tests", cwd=checkout)
    git("tag", "start", cwd=checkout)
    prompt.write_text(worse)
    return checkout


def text_of(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "\n".join(block.get("text", "") for block in content)


def agent_that(command: Callable[[int, bool], str]) -> Callable[[dict[str, Any]], Reply]:
    """A model that walks the steps and works by the command for an issue, and for whether its prompt has `TESTS`."""

    def reply(body: dict[str, Any]) -> Reply:
        prompts = [text_of(message) for message in body["messages"] if message["role"] == "user"]
        prompt = next(text for text in reversed(prompts) if "issue" in text)
        number = int(re.findall(r"issue (\d+)", prompt)[-1])
        if "Find out what" in prompt:
            return step("initial", "next", understanding="x")
        if "Check whether" in prompt:
            return step("closure", "closing")
        if "tool_result" in json.dumps(body["messages"][-1]):
            return step("continuation", "handoff", summary="y")
        return calls(
            ("bash", {"command": f"{command(number, TESTS in prompt)} && git add . && git commit -qm 'Greet'"})
        )

    return reply


def step(name: str, action: str, **more: str) -> Reply:
    return answers({"stepId": f"{name}.issue", "next_action": {"action": action, "reason": "z"}, **more})


def greet(number: int, right: bool) -> str:
    # The agent's own check asks for no more than the greeting.
    return f"echo 'hello, world' > greeting.txt; echo {number if right else 'wrong'} > answer.txt"


@pytest.fixture
def model() -> Iterator[MessagesApi]:
    """A model that solves an issue if its prompt asks for the tests."""
    with MessagesApi(agent_that(greet), api_key=KEY) as api:
        yield api


def words(api: MessagesApi, *more: str) -> list[str]:
    return ["eval", "fixer", "--model", f"base-url={api.url}", "--json", *more]


def run_eval(api: MessagesApi, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    code = main(words(api, *more))
    said = capsys.readouterr()
    assert said.out, said.err
    found = json.loads(said.out)
    assert "can be told from chance in 80 % of evals" in said.err
    assert code == (1 if found["verdict"] == "worse" else 0), said.err
    return found


@pytest.mark.whole
def test_both_definitions_run_on_each_case(project: Path, model: MessagesApi, capsys) -> None:
    write_case(project, 7)
    found = run_eval(model, capsys)
    (pair,) = found["pairs"]
    assert (pair["candidate"]["success"], pair["baseline"]["success"]) == (False, True)
    assert pair["candidate"]["outcome"] == "completed"
    assert "expected 7, but answer.txt says wrong" in pair["candidate"]["failure"]
    assert pair["baseline"]["cost_usd"] > 0
    assert found["spent_usd"] == pytest.approx(pair["baseline"]["cost_usd"] + pair["candidate"]["cost_usd"])
    assert (found["verdict"], found["comparison"]["cases"]) == ("no difference shown", 1)
    # Nothing of it is in the repository.
    assert git("status", "--porcelain", cwd=project).split() == ["M", PROMPT, "??", ".agent/fixer/evals/"]


@pytest.mark.whole
def test_a_large_copy_is_announced_once_for_all_cases(project: Path, model: MessagesApi, capsys, monkeypatch) -> None:
    monkeypatch.setattr(copying, "SLOW_SECONDS", 0.0)
    write_case(project, 7)
    main(words(model, "--usd", "0.001"))
    notes = capsys.readouterr().err
    assert notes.count("Copying") == 1, notes
    assert "3 times for each case and each trial: about" in notes


@pytest.mark.whole
def test_what_is_finished_is_not_paid_for_again(project: Path, model: MessagesApi, capsys) -> None:
    write_case(project, 7)
    found = run_eval(model, capsys)
    asked = len(model.bodies)
    assert run_eval(model, capsys) == found
    assert len(model.bodies) == asked
    # Killed after a run had ended, during its hidden checks.
    (folder,) = (project.parent / "temp/stepflow").iterdir()
    for file in (folder / "trials").glob("*.json"):
        file.unlink()
    assert run_eval(model, capsys) == found
    assert len(model.bodies) == asked
    # With another case, only that one is tried; with another definition, only that one.
    write_case(project, 8)
    assert len(run_eval(model, capsys)["pairs"]) == 2
    assert len(model.bodies) == 2 * asked
    (project / PROMPT).write_text(f"Think first. {(project / PROMPT).read_text()}")
    run_eval(model, capsys)
    assert len(model.bodies) == 3 * asked


@pytest.mark.whole
def test_the_agent_sees_neither_the_hidden_tests_nor_what_came_later(project: Path, capsys) -> None:
    write_case(project, 7)
    git("add", "--all", cwd=project)
    git("commit", "--quiet", "--message", "A later commit", cwd=project)
    git("tag", "start", "--force", cwd=project)
    (project / "greeting.txt").write_text("the future\n")
    git("commit", "--quiet", "--all", "--message", "The solution", cwd=project)
    (project / PROMPT).write_text(f"{(project / PROMPT).read_text()}\n{TESTS}\n")
    look = (
        "git log --all --format=%s; git for-each-ref; find . -path '*evals*' -not -path './.git/*'; "
        "for each in $(git cat-file --batch-all-objects --batch-check='%(objectname)'); do git cat-file -p $each; done;"
        " git rev-list --all --objects | wc -l; git cat-file --batch-all-objects --batch-check | wc -l"
    )
    with MessagesApi(agent_that(lambda number, _: f"({look}); {greet(number, True)}"), api_key=KEY) as api:
        found = run_eval(api, capsys, "--against", "HEAD")
        seen = "".join(str(block["content"]) for body in api.bodies for block in results_in(body))
    assert found["pairs"][0]["candidate"]["success"]
    assert "trial\n" in seen
    for secret in ("the future", "The solution", "A later commit", "hidden", "evals", "but answer.txt says"):
        assert secret not in seen, secret
    # There is no object but those of the one commit.
    *_, reachable, objects = re.findall(r"^(\d+)$", seen, re.MULTILINE)
    assert reachable == objects


def results_in(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for message in body["messages"]:
        if isinstance(message["content"], list):
            yield from (block for block in message["content"] if block.get("type") == "tool_result")


@pytest.mark.whole
@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"checks": ["true"]}, "its checks pass on the base commit already"),
        ({"base": "no-such-branch"}, 'There is no commit "no-such-branch" here.'),
        ({"tests": {"tests/.GIT ": "x", "a/": "x"}}, "Invalid path"),
        ({"tests": {f"{'a' * 300}.sh": "x"}}, "File name too long"),
    ],
    ids=["passes at once", "no commit", "no path of git's", "no path here"],
)
def test_what_is_no_case_is_left_out(project: Path, model: MessagesApi, capsys, changed: Any, why: str) -> None:
    write_case(project, 7, **changed)
    found = run_eval(model, capsys)
    assert (found["pairs"], [why in each["reason"] for each in found["dropped"]]) == ([], [True]), found["dropped"]
    assert not model.bodies


@pytest.mark.whole
def test_the_budget_ends_an_eval_and_a_larger_one_continues_it(project: Path, model: MessagesApi, capsys) -> None:
    for number in range(1, 4):
        write_case(project, number)
    price = run_eval(model, capsys, "--cases", "1")["spent_usd"] / 2
    asked = len(model.bodies)
    found = run_eval(model, capsys, "--usd", str(2.5 * price))
    assert len(found["pairs"]) == 1
    assert (found["dropped"], found["ended"]) == ([], f"--usd {2.5 * price:g} is spent")
    # A turn that has begun is paid for.
    assert found["spent_usd"] < 3.2 * price
    assert len(model.bodies) < 2 * asked
    found = run_eval(model, capsys)
    assert len(found["pairs"]) == 3
    # The run that the budget had ended went on.
    assert len(model.bodies) == 3 * asked
    costs = [pair[role]["cost_usd"] for pair in found["pairs"] for role in ("candidate", "baseline")]
    assert found["spent_usd"] == pytest.approx(sum(costs))


@pytest.mark.whole
def test_the_minutes_end_a_run_that_goes_on_later(project: Path, capsys) -> None:
    write_case(project, 7)
    turns, pause = agent_that(greet), [2.5]

    def slowly(body: dict[str, Any]) -> Reply:
        time.sleep(pause[0])
        return turns(body)

    with MessagesApi(slowly, api_key=KEY) as api:
        found = run_eval(api, capsys, "--minutes", "0.1")
        assert (found["pairs"], found["dropped"], found["ended"]) == ([], [], "--minutes 0.1 are over")
        # Four turns take longer than that, however fast the rest is.
        assert len(api.bodies) < 4
        pause[0] = 0
        assert len(run_eval(api, capsys)["pairs"]) == 1
        # A turn that was on its way may be asked again.
        assert len(api.bodies) <= 9


@pytest.mark.whole
def test_what_is_installed_is_there_and_nothing_else_of_the_checkout(project: Path, model: MessagesApi, capsys) -> None:
    (project / ".gitignore").write_text("node_modules\n.venv\nbuild\n")
    (project / "AGENTS.md").write_text("Speak as of old.\n")
    git("add", ".gitignore", "AGENTS.md", cwd=project)
    git("commit", "--quiet", "--message", "Ignore what is installed", cwd=project)
    git("tag", "start", "--force", cwd=project)
    (project / "AGENTS.md").write_text("Speak as of now.\n")
    for name in ("node_modules/tool/index.js", ".venv/pyvenv.cfg", "build/later.txt", "new.txt"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("x\n")
    there = "cat node_modules/tool/index.js .venv/pyvenv.cfg && test ! -e build && test ! -e new.txt"
    write_case(project, 7, checks=[there, "sh {tests}"])
    (pair,) = run_eval(model, capsys)["pairs"]
    assert pair["baseline"]["success"], pair
    sent = json.dumps(model.bodies)
    assert "Speak as of old." in sent
    assert "Speak as of now." not in sent


def test_trials_of_unknown_price_count_as_their_whole_budget_and_an_edited_case_is_tried_anew(
    project: Path, model: MessagesApi, capsys
) -> None:
    """Even where only its checks are edited, and where all trials of the case are finished."""
    limits = ("--model", "other", "--limits", "tokens=1", "--limits", "usd=0.75")
    write_case(project, 7, checks=["false"])
    found = run_eval(model, capsys, *limits)
    assert [found["pairs"][0][role]["outcome"] for role in ("candidate", "baseline")] == ["budget_exhausted"] * 2
    assert (found["spent_usd"], found["dropped"]) == (1.5, [])
    write_case(project, 7, checks=["true"])
    found = run_eval(model, capsys, *limits)
    assert (found["pairs"], len(found["dropped"])) == ([], 1)
    assert "pass on the base commit already" in found["dropped"][0]["reason"]


def test_a_trial_that_the_budget_interrupted_counts_with_what_it_has_cost(
    project: Path, model: MessagesApi, capsys
) -> None:
    write_case(project, 7)
    first = run_eval(model, capsys, "--usd", "0.000001")["spent_usd"]
    assert len(model.bodies) == 1
    # It may use what is left, beside its own first turn.
    both = run_eval(model, capsys, "--usd", str(1.1 * first))["spent_usd"]
    assert (len(model.bodies), both > first) == (2, True)
    # To another one, which is tried before it, less is left.
    write_case(project, 4)
    found = run_eval(model, capsys, "--usd", str(1.1 * both))
    assert (len(model.bodies), found["spent_usd"] > both, found["pairs"]) == (3, True, [])


def test_an_eval_ends_when_the_models_service_fails_three_trials_in_a_row(project: Path, capsys) -> None:
    """What it answers in between begins the count anew, and no other case does."""
    for number in range(1, 6):
        write_case(project, number, checks=["false"])
    turns = agent_that(greet)
    failure = Failure(status=400, error="invalid_request_error", message="Your credit balance is too low")
    with MessagesApi(lambda body: turns(body) if len(api.bodies) == 2 else failure, api_key=KEY) as api:
        found = run_eval(api, capsys, "--limits", "iterations=1")
    tried = [case.name for case in read_cases(project, "fixer")]
    assert (found["pairs"], found["ended"]) == ([], "the model's service failed 3 trials in a row")
    assert ([each["case"] for each in found["dropped"]], len(api.bodies)) == (tried[:4], 5)


def test_an_eval_that_was_killed_leaves_the_page_of_what_was_tried(project: Path, model: MessagesApi) -> None:
    for number in range(1, 4):
        write_case(project, number, checks=["true"])
    argv = [sys.executable, "-I", "-m", "stepflow", *words(model)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not (pages := [*project.parent.glob("temp/stepflow/*/eval.html")]) and process.poll() is None:
            time.sleep(0.02)
        process.kill()
    written = json.loads(pages[0].with_name("eval.json").read_text())
    tried = [case.name for case in read_cases(project, "fixer")][: len(written["dropped"])]
    assert ([each["case"] for each in written["dropped"]], written["ended"]) == (tried, "the eval was stopped")
    assert "the eval was stopped" in pages[0].read_text()


@contextmanager
def killed_at(turn: int, *more: str) -> Iterator[MessagesApi]:
    """The service of an eval that was killed while the model was asked for this turn, and can go on."""
    reached, turns = threading.Event(), agent_that(greet)

    def kill(body: dict[str, Any]) -> Reply:
        if len(api.bodies) == turn and not reached.is_set():
            reached.set()
            os.kill(process.pid, signal.SIGKILL)
        return turns(body)

    with MessagesApi(kill, api_key=KEY) as api:
        process = subprocess.Popen(
            [sys.executable, "-I", "-m", "stepflow", *words(api, *more)], stdout=subprocess.DEVNULL
        )
        process.wait(timeout=120)
        assert reached.is_set()
        yield api


@pytest.mark.whole
def test_a_killed_run_of_unknown_price_counts_as_its_whole_budget(project: Path, capsys) -> None:
    write_case(project, 7)
    priceless = ("--model", "other", "--limits", "tokens=1000000", "--usd", "1", "--limits", "usd=1")
    with killed_at(3, *priceless) as api:
        asked = len(api.bodies)
        found = run_eval(api, capsys, *priceless)
    assert (found["spent_usd"], found["ended"], len(api.bodies)) == (1.0, "--usd 1 is spent", asked)


@pytest.mark.whole
def test_trials_that_the_models_service_fails_are_no_results(project: Path, model: MessagesApi, capsys) -> None:
    for number in range(1, 6):
        write_case(project, number)
    failure = Failure(status=400, error="invalid_request_error", message="Your credit balance is too low")
    with MessagesApi(lambda _: failure, api_key=KEY) as failing:
        found = run_eval(failing, capsys)
    assert (found["pairs"], found["ended"]) == ([], "the model's service failed 3 trials in a row")
    assert len(found["dropped"]) == 3
    assert "credit balance" in found["dropped"][0]["reason"]
    found = run_eval(model, capsys, "--cases", "1")
    assert (len(found["pairs"]), found["dropped"]) == (1, [])


@pytest.mark.whole
def test_a_project_in_a_folder_of_the_repository(project: Path, model: MessagesApi, capsys) -> None:
    app = project / "app"
    app.mkdir()
    git("checkout", "--quiet", "--", ".", cwd=project)
    git("mv", "greeting.txt", ".agent", "app", cwd=project)
    git("commit", "--quiet", "--message", "Move it", cwd=project)
    git("tag", "start", "--force", cwd=project)
    (app / PROMPT).write_text((app / PROMPT).read_text().replace(TESTS, ""))
    write_case(app, 7, checks=["sh ../{tests}"])
    (pair,) = run_eval(model, capsys, "--working-directory", "app")["pairs"]
    assert (pair["candidate"]["success"], pair["baseline"]["success"]) == (False, True), pair


@pytest.mark.whole
def test_two_models_of_one_definition(project: Path, model: MessagesApi, capsys) -> None:
    write_case(project, 7)
    found = run_eval(model, capsys, "--model", "haiku", "--against-model", "opus")
    assert found["candidate"]["digest"] == found["baseline"]["digest"]
    assert [found[role]["model"] for role in ("candidate", "baseline")] == ["haiku", "opus"]
    assert {body["model"].split("-")[1] for body in model.bodies} == {"haiku", "opus"}


@pytest.mark.whole
def test_the_baseline_may_be_a_digest(project: Path, model: MessagesApi, capsys) -> None:
    write_case(project, 7)
    digest = run_eval(model, capsys)["baseline"]["digest"]
    git("commit", "--quiet", "--all", "--message", "Leave the tests out", cwd=project)
    found = run_eval(model, capsys, "--against", digest[:12])
    assert found["baseline"]["digest"] == digest
    assert found["baseline"]["name"].startswith("commit ")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("--against", "start^{tree}"), "is no commit"),
        (("--against", "abcdef1234"), "has this digest"),
        (("--against-model", ""), "There is nothing to compare: HEAD"),
        (("--cases", "0"), "must be more than 0"),
        (("--usd", "nan"), "must be more than 0"),
    ],
)
def test_what_cannot_be_compared_costs_nothing(
    project: Path, model: MessagesApi, capsys, given: tuple[str, ...], why: str
) -> None:
    write_case(project, 7)
    git("checkout", "--quiet", "--", PROMPT, cwd=project)
    assert main(words(model, *given)) == 2
    assert why in capsys.readouterr().err
    assert not model.bodies


def test_a_broken_case_is_reported_before_anything_runs(project: Path, model: MessagesApi, capsys) -> None:
    issue = {"number": 0, "title": "x"}
    write_case(project, 7, chekcs=["true"], checks=[], issue=issue, tests={".git/config": "x"})
    assert main(words(model)) == 2
    said = capsys.readouterr().err
    assert ".agent/fixer/evals/greet-7.yaml:1: issue.number: must be at least 1." in said
    assert ".agent/fixer/evals/greet-7.yaml:1: checks: must have at least 1 item." in said
    assert "stepflow schema eval" in said
    assert main(["validate", "fixer"]) == 2
    said = capsys.readouterr().out
    assert 'the case: there is no key "chekcs" (did you mean "checks"?)' in said
    assert "git's own files cannot be test files" in said
    assert "SF108" in said
    assert "`stepflow schema eval`" in said


@pytest.mark.whole
@pytest.mark.parametrize(
    ("changed", "where"),
    [({"base": "a\0"}, "base"), ({"base": "a" * 200_000}, "base"), ({"checks": ["\0"]}, "checks[0]")],
)
def test_a_case_that_no_command_can_be_given_is_broken(project: Path, capsys, changed: Any, where: str) -> None:
    write_case(project, 7, **changed)
    assert main(["eval", "fixer"]) == 2
    assert f".agent/fixer/evals/greet-7.yaml:1: {where}:" in capsys.readouterr().err


@pytest.mark.whole
def test_the_scripted_model_plays_the_scenario_of_each_case(project: Path, capsys) -> None:
    write_case(project, 7)
    folder = project / ".agent/fixer/scenarios"
    folder.mkdir()
    scenario = (project.parent / "scenario.yaml").read_text()
    (folder / "greet-7.yaml").write_text(scenario.replace("&& git", "&& echo 7 > answer.txt && git add . && git"))
    git("add", "--all", cwd=project)
    git("commit", "--quiet", "--message", "A scenario", cwd=project)
    (folder / "greet-7.yaml").write_text(scenario)
    (project / PROMPT).write_text("Do what issue {uv-issue} asks for. {uv-initial_issue_understanding}")
    assert main(["eval", "fixer", "--model", "provider=scripted"]) == 0
    said = capsys.readouterr().out
    assert "✓ greet-7  baseline: completed, $0.00" in said
    assert "✗ greet-7  candidate: completed, $0.00" in said
    assert "only the baseline solves greet-7; candidate: sh tests/hidden.test.sh: " in said


PAGE = DOCS / "how-to/evals.md"


def evaluation_of(results: list[tuple[bool, bool]], failure: str = "") -> Evaluation:
    trials = [
        [
            EvalTrial(
                success=success,
                outcome=Outcome.COMPLETED,
                failure="" if success else failure,
                cost_usd=cost / len(results),
                seconds=seconds,
            )
            for success, cost, seconds in zip(pair, (1.87, 2.31), (126.0, 156.0), strict=True)
        ]
        for pair in results
    ]
    return Evaluation(
        agent="fixer",
        candidate=Variant(name="working tree", digest="5d5e538fb40b4ddf"),
        baseline=Variant(name="v1.2.0", digest="8e1a2effe584e39c"),
        pairs=tuple(
            EvalPair(case=f"case-{number}", issue=number, title=failure, candidate=candidate, baseline=baseline)
            for number, (candidate, baseline) in enumerate(trials, 1)
        ),
        dropped=(),
        comparison=compare(results),
        spent_usd=4.18,
        ended="the difference is shown",
        folder="/tmp/eval",
    )


def test_the_table_of_the_guide_is_one_that_is_printed() -> None:
    (shown,) = (block.text for block in page_blocks(PAGE) if block.language == "text")
    evaluation = evaluation_of([(True, True)] * 4 + [(False, True)] * 9 + [(False, False)])
    lines = [*evaluation_lines(evaluation)]
    assert "\n".join(lines[:3]) == shown.rstrip()
    assert lines[-2].startswith("The candidate is worse: 14 cases, difference of the success rates −64 points, 95 %")


@pytest.mark.whole
def test_the_case_of_the_guide_is_one(project: Path, capsys) -> None:
    write_case(project, 7)
    (project / ".agent/fixer/evals/greet-7.yaml").write_text(named_block("case", PAGE))
    git("tag", "v1.2.0", cwd=project)
    with MessagesApi(agent_that(greet), api_key=KEY) as api:
        command = named_block("command", PAGE).split()[3:]
        found = run_eval(api, capsys, *command, "--usd", "0.000001")
    assert (found["dropped"], found["ended"]) == ([], "--usd 1e-06 is spent")


def test_hostile_texts_stay_texts() -> None:
    hostile = "<script>alert(1)</script>\x1b[2J\n::error::owned ##[add-path]/tmp"
    evaluation = evaluation_of([(False, True), (False, False)], hostile)
    page = evaluation_html(evaluation)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    for line in evaluation_lines(evaluation):
        assert "\x1b" not in line
        assert "##[" not in line
        assert not line.lstrip().startswith("::")
