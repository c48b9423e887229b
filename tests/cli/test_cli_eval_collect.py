"""`stepflow eval --collect`: cases from a repository's merged pull requests, read from a GitHub on loopback."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepflow.cli import main
from stepflow.modes.eval.cases import EvalCase, read_case
from tests.checkout import git
from tests.cli.test_cli_eval import PROMPT, TESTS, agent_that
from tests.docs.page import DOCS, named_block
from tests.servers.github_api import GitHubServer, State
from tests.servers.messages_api import MessagesApi

TOKEN, REPOSITORY = "ghs_tokenofatest0123456789", "octo/cat"
OPENED, LATER = "2026-05-01T10:00:00Z", "2026-05-02T10:00:00Z"
#: A test that passes if `answers` has the line.
TEST = "grep -qx {0} answers || {{ echo 'no {0} in answers'; exit 1; }}\n"
HOSTILE = 'Fix: it\'s \u2028 "broken"\n---\n- [x] # no comment\n\ttab: {{ }}  \n&a *a !!python/object x\x85\U0001f600\n'


class Project:
    """A repository whose pull requests are merged one after the other."""

    def __init__(self, folder: Path, state: State) -> None:
        self.folder, self.state = folder, state
        (folder / "answers").write_text("none\n")
        git("add", "--all", cwd=folder)
        git("commit", "--quiet", "--message", "Begin to answer", cwd=folder)

    @property
    def head(self) -> str:
        return git("rev-parse", "HEAD", cwd=self.folder).strip()

    def commit(self, headline: str, **files: str | bytes | None) -> str:
        for name, content in files.items():
            path = self.folder / name.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
        git("add", "--all", cwd=self.folder)
        git("commit", "--quiet", "--allow-empty", "--message", headline, cwd=self.folder)
        return self.head

    def answer(self, word: str) -> str:
        return (self.folder / "answers").read_text() + f"{word}\n"

    def merged(
        self, number: int, *issues: dict[str, Any], merge: str = "", commits: int = 1, headline: str = "x"
    ) -> None:
        """What GitHub says of a pull request that was merged as the last commit."""
        self.state.merged.insert(
            0,
            {
                "number": number,
                "url": f"https://github.com/{REPOSITORY}/pull/{number}",
                "createdAt": OPENED,
                "mergeCommit": {"oid": merge or self.head},
                "commits": lambda _info, last: {
                    "totalCount": commits,
                    "nodes": [{"commit": {"messageHeadline": headline}}],
                },
                "closingIssuesReferences": lambda _info, first, **_: {"nodes": list(issues)[:first]},
            },
        )


def issue(number: int, **more: Any) -> dict[str, Any]:
    renames = [{"__typename": "RenamedTitleEvent", **each} for each in more.pop("renames", ())]
    return {
        "number": number,
        "title": f"Issue {number}",
        "body": f"The answer lacks {number}.",
        "lastEditedAt": None,
        "repository": {"nameWithOwner": REPOSITORY},
        "timelineItems": lambda _info, first, itemTypes: {"nodes": renames},
        **more,
    }


@pytest.fixture
def project(checkout: Path) -> Project:
    return Project(checkout, State(REPOSITORY))


@pytest.fixture
def collect(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[dict[str, EvalCase], dict[str, str]]]]:
    """Collects; gives the cases by their names, and the reasons of what was left out."""
    monkeypatch.setenv("GITHUB_REPOSITORY", REPOSITORY)
    monkeypatch.setenv("STEPFLOW_READ_TOKEN", TOKEN)
    with GitHubServer(project.state, TOKEN, read_token=TOKEN) as server:
        monkeypatch.setenv("GITHUB_API_URL", server.url)
        monkeypatch.setenv("GITHUB_SERVER_URL", server.url)

        def run(*more: str) -> tuple[dict[str, EvalCase], dict[str, str]]:
            words = ("--collect", "--command", "sh {tests}", "--json")
            code = main(["eval", "fixer", *words, *more])
            said = capsys.readouterr()
            assert code == 0, said.err
            found, agent = json.loads(said.out), project.folder / ".agent/fixer"
            cases = {Path(file).stem: read_case(agent, Path(file).stem) for file in found["cases"]}
            assert server.violations == []
            return cases, {each["case"]: each["reason"] for each in found["left_out"]}

        yield run


@pytest.mark.whole
def test_each_way_to_merge_makes_a_case(project: Project, collect: Any) -> None:
    first = project.head
    git("checkout", "--quiet", "-b", "topic", cwd=project.folder)
    project.commit("Answer one", answers=project.answer("one"))
    project.commit("Test it", **{"tests__one.test.sh": TEST.format("one")})
    git("checkout", "--quiet", "main", cwd=project.folder)
    git("merge", "--quiet", "--no-ff", "--message", "Merge pull request #1", "topic", cwd=project.folder)
    project.merged(1, issue(11), commits=2)
    second = project.head
    project.commit("Answer two (#2)", answers=project.answer("two"), **{"tests__two.test.sh": TEST.format("two")})
    renames = [{"createdAt": LATER, "previousTitle": HOSTILE.splitlines()[0]}]
    project.merged(2, issue(12, body=HOSTILE, renames=renames, title="The solution"), commits=3)
    third = project.head
    project.commit("Test three", **{"tests__three.test.sh": TEST.format("three"), "tests__one.test.sh": None})
    project.commit("Answer three", answers=project.answer("three"))
    project.merged(3, issue(13), commits=2, headline="Answer three")
    cases, left_out = collect()
    assert left_out == {}
    assert {name: case.base for name, case in cases.items()} == {"pr-1": first, "pr-2": second, "pr-3": third}
    assert cases["pr-1"].tests == {"tests/one.test.sh": TEST.format("one")}
    assert cases["pr-3"].tests == {"tests/one.test.sh": None, "tests/three.test.sh": TEST.format("three")}
    # The issue as it was when the pull request was opened, whatever is in it.
    assert (cases["pr-2"].issue.title, cases["pr-2"].issue.body) == (HOSTILE.splitlines()[0], HOSTILE)
    # What is there already is left alone.
    file = project.folder / ".agent/fixer/evals/pr-2.yaml"
    file.write_text("edited: by hand")
    assert collect() == ({}, {})
    assert file.read_text() == "edited: by hand"


@pytest.mark.whole
def test_the_issues_of_a_repository_that_was_renamed_are_its_own(project: Project, collect: Any) -> None:
    project.commit("Answer one (#1)", answers=project.answer("one"), **{"tests__one.test.sh": TEST.format("one")})
    project.merged(1, issue(11, repository={"nameWithOwner": "octo/new"}))
    project.state.renamed_to = "octo/new"
    cases, left_out = collect()
    assert (set(cases), left_out) == ({"pr-1"}, {})


@pytest.mark.whole
def test_an_eval_runs_on_a_case_of_the_history(project: Project, collect: Any, monkeypatch, capsys) -> None:
    prompt = project.folder / PROMPT
    prompt.write_text(f"{prompt.read_text()}\n{TESTS}\n")
    project.commit("Ask for the tests")
    project.commit("Answer one", answers=project.answer("one"), **{"tests__one.test.sh": TEST.format("one")})
    project.merged(1, issue(11))
    command = shlex.split(named_block("collect", DOCS / "how-to/evals.md"))
    assert [*collect(*command[command.index("--cases") :])[0]] == ["pr-1"]
    prompt.write_text(prompt.read_text().replace(TESTS, ""))

    def work(_number: int, has_tests: bool) -> str:
        return f"echo 'hello, world' > greeting.txt; echo {'one' if has_tests else 'two'} > answers"

    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-key-of-a-test-0123456789")
    with MessagesApi(agent_that(work), api_key="sk-ant-key-of-a-test-0123456789") as api:
        assert main(["eval", "fixer", "--model", f"base-url={api.url}", "--json"]) == 0
    (pair,) = json.loads(capsys.readouterr().out)["pairs"]
    assert (pair["case"], pair["issue"], pair["title"]) == ("pr-1", 11, "Issue 11")
    assert pair["baseline"]["success"]
    assert pair["candidate"]["failure"] == "sh tests/one.test.sh: no one in answers"


@pytest.mark.whole
def test_what_makes_no_case_is_named_with_the_reason(project: Project, collect: Any) -> None:
    def change(
        number: int, *issues: dict[str, Any], word: str = "", test: str | bytes | None = None, **more: Any
    ) -> None:
        files: dict[str, Any] = {"answers": project.answer(word)} if word else {}
        if test is not None:
            files[f"tests__{number}.test.sh"] = test
        project.commit(f"Change {number}", **files)
        project.merged(number, *issues, **more)

    change(1, issue(1), word="one")
    change(2, issue(2), test=TEST.format("one"))
    change(3, issue(3), word="three", test="true\n")
    change(4, issue(4), word="four", test="echo broken; false\n")
    change(5, issue(5, lastEditedAt=LATER), word="five", test=TEST.format("five"))
    change(6, issue(6), issue(7), word="six", test=TEST.format("six"))
    change(7, word="seven", test=TEST.format("seven"))
    change(8, issue(8), merge="0" * 40)
    change(9, issue(9), word="nine", test=b"\xff\xfe")
    change(10, issue(10, repository={"nameWithOwner": "octo/dog"}), word="ten", test=TEST.format("ten"))
    # Each of these characters takes six bytes in YAML.
    change(12, issue(12), word="twelve", test=TEST.format("twelve") + f"# {chr(0xFEFF) * 750_000}\n")
    change(11, issue(11, lastEditedAt="2026-04-30T10:00:00Z"), word="eleven", test=TEST.format("eleven"))
    cases, left_out = collect()
    assert [*cases] == ["pr-11"]
    assert left_out == {
        "pr-1": "no test came with it",
        "pr-2": "it changes nothing but tests",
        "pr-3": "its tests pass without the change too",
        "pr-4": "its tests fail with the change too: sh tests/4.test.sh: broken",
        "pr-5": "issue #5 was edited after the pull request was opened",
        "pr-6": "it closes more than one issue",
        "pr-8": "its merge commit, or the one before, is not in this clone",
        "pr-9": "its test file tests/9.test.sh is not text",
        "pr-10": "its issue is in another repository",
        "pr-12": "its file would be larger than 4 MiB",
    }


@pytest.mark.whole
def test_as_many_cases_as_are_asked_for_are_written_newest_first(project: Project, collect: Any) -> None:
    for number in range(1, 61):
        project.merged(number, *([issue(number)] if number < 3 else []))
    project.commit("Answer", answers=project.answer("new"), **{"tests__new.test.sh": TEST.format("new")})
    project.merged(61, issue(61))
    cases, left_out = collect("--cases", "1")
    assert ([*cases], left_out) == (["pr-61"], {})
    # All pages are read where there are too few.
    cases, left_out = collect()
    assert ([*cases], [*left_out]) == ([], ["pr-2", "pr-1"])


@pytest.mark.parametrize(
    ("words", "why"),
    [((), "It is not known which repository to read"), (("--command", " "), "There is no command that runs the tests")],
)
def test_what_is_missing_is_said(checkout: Path, capsys, words: tuple[str, ...], why: str) -> None:
    assert main(["eval", "fixer", "--collect", "--command", "true", *words]) == 2
    assert why in capsys.readouterr().err
