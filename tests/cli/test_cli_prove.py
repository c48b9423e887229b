"""`stepflow prove`: what it says of fakes and of true fixes, each a small repository."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stepflow.cli import main
from stepflow.cli.layouts.find import find_proof_command
from stepflow.run.request import toolbox_options
from tests.checkout import git
from tests.cli.prove_cases import COMMAND, DAYS, FAKES, FIXED, FIXES, PATH, TESTS, Case, Files
from tests.docs.page import DOCS, page_blocks

#: One is tried by the fast tests; `test_a_person_reads_what_the_page_shows` is about a change that is proven.
FAST = "a test of something else"


def write(folder: Path, files: Files, subject: str) -> None:
    """Commit these files; None removes one."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        if text is None:
            file.unlink()
        else:
            file.write_bytes(text.encode())
    git("add", "--all", cwd=folder)
    git("commit", "--quiet", "--message", subject, cwd=folder)


@pytest.fixture
def repository_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Case], Path]:
    """Makes the repository of a case, with its change as the last commit."""
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path / "temp"))

    def make(case: Case) -> Path:
        folder = tmp_path / "repository"
        folder.mkdir()
        git("init", "--quiet", "--template=", cwd=folder)
        write(folder, case.base, "base")
        write(folder, case.change, "change")
        return folder

    return make


def said_of(case: Case, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict:
    code = main(["prove", "HEAD^..HEAD", "--repo", str(folder), "--command", case.command, "--json"])
    proof = json.loads(capsys.readouterr().out)["proof"]
    assert code == (0 if proof["verdict"] == "proven" else 1)
    return proof


@pytest.mark.sample(5)
@pytest.mark.whole
@pytest.mark.parametrize(
    "name", [name if name == FAST else pytest.param(name, marks=pytest.mark.whole) for name in (*FAKES, *FIXES)]
)
def test_a_change_is_named_as_what_it_is(
    name: str, repository_of: Callable[[Case], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    case = (FAKES | FIXES)[name]
    if case.command.startswith("node") and not shutil.which("node"):
        pytest.skip("there is no Node.js here")
    folder = repository_of(case)
    before = git("status", "--porcelain", cwd=folder), git("for-each-ref", cwd=folder)
    proof = said_of(case, folder, capsys)
    assert proof["verdict"] == case.verdict, proof
    assert case.says in proof["summary"]
    assert case.held is None or [(each["file"], each["held_by"] is not None) for each in proof["hunks"]] == case.held
    said = [(each["name"], each["how"]) for each in proof["weakened"]]
    assert case.weakened is None or said == case.weakened
    assert (git("status", "--porcelain", cwd=folder), git("for-each-ref", cwd=folder)) == before


@pytest.mark.whole
def test_uncommitted_files_are_not_part_of_the_change(
    repository_of: Callable[[Case], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = repository_of(FAKES["a test with a mistake in it"])
    (folder / "durations.py").write_text("broken(")
    (folder / "conftest.py").write_text("broken(")
    proof = said_of(FAKES["no test"], folder, capsys)
    assert proof["verdict"] != "not_tried"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nowhere..HEAD",), "There is no commit nowhere"),
        (("HEAD^..HEAD", "--command", " "), "There is no command to run"),
    ],
)
def test_what_cannot_be_tried_is_told_at_once(
    repository_of: Callable[[Case], Path], capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    folder = repository_of(FIXES["one line"])
    assert main(["prove", "--repo", str(folder), "--command", "true", *words]) == 2
    assert says in capsys.readouterr().err


def test_nothing_of_a_change_runs_in_a_sandbox_with_a_hole(
    repository_of: Callable[[Case], Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hole: tools keep the environment of the program, with the runner's own token in it."""
    folder, ran = repository_of(FIXES["one line"]), Path(os.environ["RUNNER_TEMP"]).parent / "ran"
    monkeypatch.setenv("ACTIONS_RUNTIME_TOKEN", "runtime-token-0123456789")
    monkeypatch.setattr(
        "stepflow.run.workspace.toolbox_options",
        lambda request: replace(toolbox_options(request), disabled_layers=frozenset({"environment"})),
    )
    words = ["--repo", str(folder), "--command", f"touch {ran}; echo it ran", "--isolation", "best-effort"]
    assert main(["prove", "HEAD^..HEAD", *words]) == 1
    said = capsys.readouterr()
    assert "The self-test got out of the sandbox, so nothing else runs in it. a tool's environment" in said.err
    assert not ran.exists()
    # The commits are named, and no trial is.
    assert len(said.out.splitlines()) == 1


def test_a_first_commit_is_not_a_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git("init", "--quiet", cwd=tmp_path)
    write(tmp_path, {"notes.txt": "first\n"}, "first")
    assert main(["prove", "--repo", str(tmp_path), "--command", "true"]) == 2
    assert "has only one commit, which changes nothing. Commit the change first." in capsys.readouterr().err


@pytest.mark.whole
@pytest.mark.parametrize("branch", ["main", "fix"])
def test_without_a_range_it_is_what_is_checked_out_beyond_the_main_branch(
    repository_of: Callable[[Case], Path], capsys: pytest.CaptureFixture[str], branch: str
) -> None:
    folder = repository_of(FIXES["one line"])
    git("branch", "-M", branch, cwd=folder)
    if branch == "fix":
        git("branch", "main", "HEAD^", cwd=folder)
        write(folder, {"notes.txt": "more\n"}, "more")
    assert main(["prove", "--repo", str(folder), "--command", COMMAND, "--json"]) == 0
    files = [each["file"] for each in json.loads(capsys.readouterr().out)["proof"]["hunks"]]
    assert files == ["durations.py", *(["notes.txt"] if branch == "fix" else [])]


#: Fails if its repository has an object that its one commit does not need.
READS_GIT = """
    def test_git(self):
        import subprocess

        def git(*words):
            return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.split()

        self.assertEqual(len(git("rev-list", "--all")), 1)
        needed = git("rev-list", "--objects", "--no-object-names", "--all")
        self.assertEqual({*git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")}, {*needed})
"""


@pytest.mark.whole
def test_the_repository_of_a_trial_does_not_show_what_was_reverted(
    repository_of: Callable[[Case], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    case = FAKES["more than the tests hold"]
    folder = repository_of(replace(case, change={**case.change, PATH: TESTS + DAYS + READS_GIT}))
    proof = said_of(case, folder, capsys)
    assert [each["held_by"] for each in proof["hunks"]] == [["test_days"], None]


@pytest.mark.whole
def test_without_a_command_it_runs_the_tests_that_the_files_tell_of(
    repository_of: Callable[[Case], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    case = FIXES["one line"]
    folder = repository_of(replace(case, base={**case.base, "Makefile": f"test:\n\t{COMMAND.format(tests=PATH)}\n"}))
    assert main(["prove", "HEAD^..HEAD", "--repo", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "… the command make test" in shown
    assert "1 test fails without the change" in shown


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"pyproject.toml": "", "test_a.py": ""}, "python3 -m pytest -q {tests}"),
        ({"go.mod": ""}, "go test ./..."),
        ({"deno.json": "{}"}, "deno test {tests}"),
        ({"Makefile": "test:\n\t./test\n"}, "make test"),
        ({"notes.txt": ""}, ""),
    ],
)
def test_a_runner_that_takes_files_is_given_the_changed_ones(tmp_path: Path, files: Files, command: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text or "")
    assert find_proof_command(tmp_path, ()) == command


@pytest.mark.whole
def test_files_are_tests_setup_runs_and_parts_are_limited_as_the_flags_say(
    repository_of: Callable[[Case], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    change = {"durations.py": FIXED.replace(" min", " minutes"), "notes.txt": "Days.\n", "verify_days.py": TESTS + DAYS}
    folder = repository_of(Case(change=change, verdict="proven", says=""))
    words = ["--tests", "verify_*.py", "--max-hunks", "1", "--setup", "touch ~/ready", "--json"]
    command = "test -e ~/ready && python3 -m unittest {tests}"
    assert main(["prove", "HEAD^..HEAD", "--repo", str(folder), "--command", command, *words]) == 0
    proof = json.loads(capsys.readouterr().out)["proof"]
    assert proof["tests"] == ["verify_days.py"]
    # With more hunks than that, a file is one part.
    parts = [(each["file"], each["lines"], each["tried"]) for each in proof["hunks"]]
    assert parts == [("durations.py", [4, 9], True), ("notes.txt", [1, 1], False)]
    assert proof["notes"] == ["1 change was not tried: at most 1 is tried."]


@pytest.mark.whole
def test_a_person_reads_what_the_page_shows(
    repository_of: Callable[[Case], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = {block.language: block.text for block in page_blocks(DOCS / "how-to/prove.md")}
    _, *words = shlex.split(blocks["sh"].replace("pytest -q", "python3 -m unittest"))
    case = FAKES["more than the tests hold"]
    commented = case.change["durations.py"].replace("total = 0", "# Days too.\n    total = 0")
    folder = repository_of(replace(case, change={**case.change, "durations.py": commented}))
    git("branch", "-M", "fix", cwd=folder)
    git("branch", "main", "HEAD^", cwd=folder)
    assert main([*words, "--repo", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert shown[shown.index("✓") :].split() == blocks["text"].split()


@pytest.mark.whole
def test_a_strangers_change_sees_no_secret_of_the_checkout_and_has_no_network(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    git("init", "--quiet", "--template=", cwd=folder)
    heard = socket.create_server(("127.0.0.1", 0))
    heard.setblocking(False)
    steals = (
        "import glob, os, socket, unittest\nimport word\n"
        "class Word(unittest.TestCase):\n"
        "    def test_word(self):\n"
        "        names = ('.env', '.netrc', '.git-credentials', 'secrets/key', '.venv/pip.conf')\n"
        "        self.assertEqual([name for name in names if os.path.exists(name)], [])\n"
        "        self.assertTrue(os.path.exists('.venv/pyvenv.cfg') and os.path.exists('node_modules/a'))\n"
        "        with self.assertRaises(OSError):\n"
        f"            socket.create_connection(('127.0.0.1', {heard.getsockname()[1]}), 2)\n"
        "        self.assertEqual(word.WORD, 'new')\n"
    )
    write(folder, {"word.py": "WORD = 'old'\n", ".gitignore": ".env\n.netrc\nsecrets\n.venv\nnode_modules\n"}, "base")
    write(folder, {"word.py": "WORD = 'new'\n", "test_word.py": steals}, "change")
    for name in (
        ".env",
        ".netrc",
        ".git-credentials",
        "secrets/key",
        ".venv/pip.conf",
        ".venv/pyvenv.cfg",
        "node_modules/a",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("canary\n")
    assert main(["prove", "--repo", str(folder), "--command", "python3 -m unittest {tests}"]) == 0, capsys.readouterr()
    said = capsys.readouterr().out
    assert "the network closed" in said
    assert ".git-credentials" in said
    with pytest.raises(BlockingIOError):
        heard.accept()
    heard.close()
