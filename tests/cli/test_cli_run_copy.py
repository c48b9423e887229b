"""`stepflow run` works in a copy of the repository, and leaves the user's files and branches as they are."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepflow.cli import main
from stepflow.cli import run as run_command
from stepflow.sandbox.environment import user_programs
from tests import checkout as checkouts

pytestmark = pytest.mark.whole
BRANCH = "stepflow/fixer/issue-7"


def git(*words: str, cwd: Path) -> str:
    """What git says."""
    return checkouts.git(*words, cwd=cwd).strip()


def run(checkout: Path, *words: str) -> int:
    """`stepflow run fixer` with the scenario."""
    scripted = ("--scenario", str(checkout.parent / "scenario.yaml"))
    return main(["run", "fixer", "--issue", "7", *scripted, *words])


def edit_scenario(checkout: Path, old: str, new: str) -> None:
    scenario = checkout.parent / "scenario.yaml"
    text = scenario.read_text()
    assert old in text
    scenario.write_text(text.replace(old, new, 1))


def look(checkout: Path) -> dict[str, tuple[int, float, bytes]]:
    """Every file of the checkout, git's own among them, with mode, time and content.

    Not the times of git's objects: where git would write one again that a borrowed history has, it renews the time.
    """

    def time_of(path: Path) -> float:
        return 0.0 if "objects" in path.relative_to(checkout).parts else path.stat().st_mtime

    files = (path for path in sorted(checkout.rglob("*")) if path.is_file())
    return {str(path): (path.stat().st_mode, time_of(path), path.read_bytes()) for path in files}


def messy(checkout: Path) -> None:
    """A tracked file is changed, one is staged, one is new; packages are there that git does not track."""
    (checkout / "greeting.txt").write_text("my own words\n")
    (checkout / "staged.txt").write_text("staged\n")
    git("add", "staged.txt", cwd=checkout)
    (checkout / "new.txt").write_text("new\n")
    for name in ("node_modules", "env"):
        (checkout / name).mkdir()
    (checkout / "node_modules/package").write_text("a package\n")
    (checkout / "env/pyvenv.cfg").write_text("home = /usr/bin\n")


def test_a_complete_run_leaves_a_branch_and_nothing_else(checkout: Path, capsys) -> None:
    messy(checkout)
    before = {path: facts for path, facts in look(checkout).items() if "/.git/" not in path}
    status, head = git("status", "--porcelain", cwd=checkout), git("rev-parse", "HEAD", cwd=checkout)
    assert run(checkout) == 0
    said = capsys.readouterr().out
    assert {path: facts for path, facts in look(checkout).items() if "/.git/" not in path} == before
    assert git("status", "--porcelain", cwd=checkout) == status
    assert git("rev-parse", "HEAD", cwd=checkout) == head
    branches = git("for-each-ref", "--format=%(refname)", cwd=checkout).split()
    assert branches == ["refs/heads/main", f"refs/heads/{BRANCH}"]
    assert git("diff", "--name-only", f"main..{BRANCH}", cwd=checkout) == "greeting.txt"
    assert "not part of it: greeting.txt, new.txt, staged.txt." in " ".join(said.split())
    assert f"git merge {BRANCH}" in said


@pytest.mark.parametrize("in_place", [False, True])
def test_what_is_offered_works_where_the_person_is(checkout: Path, capsys, monkeypatch, tmp_path, in_place) -> None:
    elsewhere = tmp_path / "somewhere else"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert run(checkout, "--repo", str(checkout), *(["--in-place"] if in_place else [])) == 0
    said = capsys.readouterr().out
    command = next(line[line.index("git ") :] for line in said.splitlines() if "log -p" in line)
    shown = subprocess.run(command, shell=True, cwd=elsewhere, capture_output=True, text=True, check=True).stdout
    assert "Greet the world" in shown


def test_each_further_run_takes_another_name(checkout: Path, capsys) -> None:
    assert run(checkout) == 0
    first = git("rev-parse", BRANCH, cwd=checkout)
    assert run(checkout) == 0
    assert git("rev-parse", BRANCH, cwd=checkout) == first
    assert run(checkout) == 0
    assert f"git merge {BRANCH}-3" in capsys.readouterr().out
    assert git("rev-parse", BRANCH, cwd=checkout) == first
    assert git("log", "--format=%s", f"main..{BRANCH}-3", cwd=checkout) == "Greet the world"


def demand_nothing_played(checkout: Path, said: str, capsys) -> None:
    assert run(checkout) == 2
    shown = " ".join("".join(capsys.readouterr()).split())
    assert said in shown
    assert "Turn 1" not in shown
    scripted = ("--scenario", str(checkout.parent / "scenario.yaml"))
    assert main(["preflight", "fixer", "--issue", "7", *scripted]) != 0
    assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", ["stepflow", "stepflow/fixer", f"{BRANCH}/own"])
def test_a_branch_in_the_way_is_told_at_the_start(checkout: Path, capsys, name: str) -> None:
    git("branch", name, cwd=checkout)
    demand_nothing_played(checkout, f"git branch -m {name} NEW-NAME", capsys)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives the repository to somebody else")
def test_a_repository_of_somebody_else_is_told_at_the_start(checkout: Path, capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in (checkout, *checkout.rglob("*")):
        os.chown(path, 1001, 1001, follow_symlinks=False)
    demand_nothing_played(checkout, f"git config --global --add safe.directory {checkout}. If", capsys)


@pytest.mark.parametrize("words", [[], ["--in-place", "--allow-dirty"]])
def test_a_failed_run_changes_no_byte_and_says_where_its_commits_are(checkout: Path, capsys, words: list[str]) -> None:
    messy(checkout)
    before = look(checkout)
    assert run(checkout, "--limits", "iterations=2", *words) == 1
    assert look(checkout) == before
    said = " ".join(capsys.readouterr().out.split())
    fetch = said[said.index("git fetch ") :].partition(" &&")[0]
    git(*fetch.split()[1:], cwd=checkout)
    assert git("log", "--format=%s", "HEAD..FETCH_HEAD", cwd=checkout) == "Greet the world"


def branch_meanwhile(checkout: Path, name: str) -> Callable[..., Any]:
    """A run while which somebody makes a branch that git cannot have beside the run's own."""
    drive = run_command.drive_run

    def drive_and_branch(*parts: Any, **more: Any) -> Any:
        git("branch", name, cwd=checkout)
        return drive(*parts, **more)

    return drive_and_branch


@pytest.mark.parametrize("in_place", [False, True])
def test_a_branch_that_could_not_be_made_is_made_when_the_complete_run_is_resumed(
    checkout: Path, capsys, monkeypatch: pytest.MonkeyPatch, in_place: bool
) -> None:
    folder = checkout.parent / "run"
    with monkeypatch.context() as patch:
        patch.setattr(run_command, "drive_run", branch_meanwhile(checkout, "stepflow"))
        if in_place:
            (checkout / "greeting.txt").write_text("my own words\n")
        words = ["--in-place", "--allow-dirty"] if in_place else []
        assert run(checkout, "--run-folder", str(folder), *words) == 1
    said = " ".join("".join(capsys.readouterr()).split())
    report = json.loads((folder / "report.json").read_text())
    assert report["outcome"] == "boundary_failed"
    for text in (said, report["reason"]):
        assert str(folder / "work.bundle") in text
    assert f"`stepflow resume {folder}` tries again" in report["reason"]
    assert main(["resume", str(folder)]) == 1
    assert f"its commits are not in {checkout} yet" in " ".join(capsys.readouterr().out.split())
    git("branch", "--move", "stepflow", "mine", cwd=checkout)
    git("checkout", "--quiet", "greeting.txt", cwd=checkout)
    assert main(["resume", str(folder)]) == 0
    branch = "main" if in_place else BRANCH
    assert f"branch {branch}:" in capsys.readouterr().out
    assert git("log", "--format=%s", f"mine..{branch}", cwd=checkout) == "Greet the world"
    assert json.loads((folder / "report.json").read_text())["outcome"] == "completed"
    assert main(["resume", str(folder), "--json"]) == 0
    assert "nothing to resume" in capsys.readouterr().err
    assert BRANCH + "-2" not in git("branch", "--list", cwd=checkout)


def test_packages_are_there_and_stay_out_of_the_commits(checkout: Path) -> None:
    messy(checkout)
    edit_scenario(
        checkout, "git commit -qam", "cat node_modules/package env/pyvenv.cfg && git add -A && git commit -qm"
    )
    assert run(checkout) == 0
    assert git("diff", "--name-only", f"main..{BRANCH}", cwd=checkout) == "greeting.txt"


def test_the_agent_is_read_as_it_stands_in_the_checkout(checkout: Path, capsys) -> None:
    prompt = checkout / ".agent/fixer/prompts/steps/initial/issue/f_default.md"
    prompt.write_text("Greet Mars.\n")
    edit_scenario(checkout, "output:", 'expect_prompt: ["Greet Mars."]\n    output:')
    assert run(checkout) == 0
    assert "uncommitted changes" not in capsys.readouterr().out


def test_a_working_directory_is_where_commands_start_and_the_repository_gets_the_branch(checkout: Path) -> None:
    (checkout / "part").mkdir()
    (checkout / "part/greeting.txt").write_text("hello\n")
    git("add", "part", cwd=checkout)
    git("commit", "--quiet", "--message", "A part", cwd=checkout)
    assert run(checkout, "--working-directory", "part") == 0
    assert git("diff", "--name-only", f"main..{BRANCH}", cwd=checkout) == "part/greeting.txt"


def test_a_folder_of_a_repository_is_no_repository(checkout: Path, capsys) -> None:
    shutil.copytree(checkout / ".agent", checkout / "part/.agent")
    assert run(checkout, "--repo", "part") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "not the top folder of a git repository" in said
    assert f"--repo {checkout} --working-directory part" in said


def test_a_linked_worktree_gets_the_branch_like_any_other(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linked = checkout.parent / "linked"
    git("worktree", "add", "--quiet", "-b", "other", str(linked), cwd=checkout)
    monkeypatch.chdir(linked)
    before = look(checkout)
    assert run(checkout, "--limits", "iterations=2") == 1
    assert look(checkout) == before
    assert run(checkout) == 0
    assert git("log", "--format=%s", f"other..{BRANCH}", cwd=checkout) == "Greet the world"
    assert git("status", "--porcelain", cwd=linked) == ""


def test_a_folder_without_git_gets_advice(checkout: Path, capsys) -> None:
    shutil.rmtree(checkout / ".git")
    assert run(checkout) == 2
    assert "git init" in capsys.readouterr().err


def test_a_repository_without_a_commit_is_refused(checkout: Path, capsys) -> None:
    shutil.rmtree(checkout / ".git")
    git("init", "--quiet", cwd=checkout)
    assert run(checkout) == 2
    assert "it has no commit to start from" in capsys.readouterr().err


def test_in_place_refuses_a_checkout_with_changes_and_says_how_to_take_them_along(checkout: Path, capsys) -> None:
    messy(checkout)
    before = look(checkout)
    assert run(checkout, "--in-place") == 2
    said = capsys.readouterr().out
    assert "greeting.txt" in said
    assert "--allow-dirty" in said
    assert look(checkout) == before


def test_allow_dirty_without_in_place_is_refused_because_it_would_change_nothing(checkout: Path, capsys) -> None:
    messy(checkout)
    assert run(checkout, "--allow-dirty") == 2
    assert "--allow-dirty needs --in-place" in capsys.readouterr().err


def test_in_place_moves_the_branch_that_is_checked_out_with_its_files(checkout: Path, capsys) -> None:
    (checkout / ".git/info").mkdir(exist_ok=True)
    (checkout / ".git/info/exclude").write_text("kept.txt\n")
    (checkout / "kept.txt").write_text("mine\n")
    begin = git("rev-parse", "HEAD", cwd=checkout)
    assert run(checkout, "--in-place") == 0
    assert "The work is on your branch main:" in " ".join(capsys.readouterr().out.split())
    assert git("for-each-ref", "--format=%(refname)", cwd=checkout) == "refs/heads/main"
    assert git("log", "--format=%s", f"{begin}..", cwd=checkout) == "Greet the world"
    assert git("status", "--porcelain", cwd=checkout) == ""
    assert (checkout / "kept.txt").read_text() == "mine\n"
    assert (checkout / "greeting.txt").read_text() == "hello, world\n"


def commit_meanwhile(checkout: Path) -> str:
    return f"cd {checkout}; git commit --quiet --allow-empty --message Meanwhile"


def write_meanwhile(checkout: Path) -> str:
    return f"echo 'my own words' > {checkout}/greeting.txt"


def switch_meanwhile(checkout: Path) -> str:
    return f"cd {checkout}; git checkout --quiet --detach"


@pytest.mark.parametrize("meanwhile", [commit_meanwhile, write_meanwhile, switch_meanwhile])
def test_in_place_leaves_a_branch_beside_where_the_users_own_has_changed_meanwhile(
    checkout: Path, capsys, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Path], str]
) -> None:
    drive = run_command.drive_run

    def drive_and_change(*parts: Any, **more: Any) -> Any:
        """Somebody works in the checkout while the run does."""
        subprocess.run(["sh", "-ec", meanwhile(checkout)], check=True)
        nonlocal before
        before = state()
        return drive(*parts, **more)

    def state() -> tuple[object, ...]:
        files = {path: facts for path, facts in look(checkout).items() if "/.git/" not in path}
        return files, git("rev-parse", "HEAD", "main", cwd=checkout)

    before: tuple[object, ...] = ()
    monkeypatch.setattr(run_command, "drive_run", drive_and_change)
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Ann")
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "ann@example.com")
    monkeypatch.setenv("GIT_COMMITTER_NAME", "Ann")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "ann@example.com")
    assert run(checkout, "--in-place") == 0
    assert state() == before
    assert git("log", "-1", "--format=%s", BRANCH, cwd=checkout) == "Greet the world"
    said = " ".join(capsys.readouterr().out.split())
    assert "Your branch was not moved" in said
    assert f"git merge {BRANCH}" in said


def test_a_run_that_was_killed_goes_on_in_another_copy(checkout: Path, capsys) -> None:
    folder = checkout.parent / "run"
    closing = "  - expect_step: closure.issue"
    edit_scenario(checkout, closing, f"  - tools: [{{ bash: {{ command: sleep 600 }} }}]\n{closing}")
    words = ["run", "fixer", "--issue", "7", "--run-folder", str(folder)]
    scenario = str(checkout.parent / "scenario.yaml")
    process = subprocess.Popen(
        [sys.executable, "-m", "stepflow", *words, "--scenario", scenario],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    journal = folder / "journal.jsonl"
    # The call is at work: one that had not begun would be made anew.
    while not (journal.exists() and "tool_started" in journal.read_text().partition("sleep 600")[2]):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = look(checkout)
    edit_scenario(checkout, "sleep 600", "true")
    assert main(["resume", str(folder)]) == 0
    assert "The run is resumed" in capsys.readouterr().out
    assert "stepflow/fixer/issue-7" in git("branch", "--list", cwd=checkout)
    assert {path for path in look(checkout).keys() - before.keys() if "/.git/" not in path} == set()


@pytest.fixture
def environment(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An active virtual environment in the checkout, in which the project itself is installed editable."""
    folder = checkout / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True)
    (site_packages,) = folder.glob("lib/*/site-packages")
    (site_packages / "greeting.pth").write_text(f"{checkout}/src\n")
    (checkout / "src").mkdir()
    (checkout / "src/greeting.py").write_text("WORD = 'hello'\n")
    program = folder / "bin/greets"
    program.write_text(f"#!{folder}/bin/python\nimport greeting\nprint(greeting.WORD, greeting.__file__)\n")
    program.chmod(0o755)
    (checkout / ".gitignore").write_text(".venv/\n")
    git("add", "--all", cwd=checkout)
    git("commit", "--quiet", "--message", "Install", cwd=checkout)
    monkeypatch.setenv("VIRTUAL_ENV", str(folder))
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    return folder


def test_tools_have_the_users_programs_and_none_of_stepflows_own(
    checkout: Path, environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check sees what the run has changed, by a program that cannot be changed by it."""
    commands = (
        "sed -i s/hello/goodbye/ src/greeting.py; command -v greets; greets; "
        "command -v stepflow || echo no stepflow; echo >> $(command -v greets) || echo closed"
    )
    edit_scenario(checkout, "echo 'hello, world' >", f"{commands}; echo 'hello, world' >")
    folder = checkout.parent / "run"
    run(checkout, "--run-folder", str(folder))
    events = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    (output,) = (event["output"] for event in events if event["event"] == "tool_call")
    where, greets, *_ = output.splitlines()
    assert where.endswith("/environments/.venv/bin/greets"), output
    assert greets.startswith("goodbye /"), output
    assert greets.endswith("/checkout/src/greeting.py"), output
    assert "no stepflow" in output
    assert "closed" in output
    assert (checkout / "src/greeting.py").read_text() == "WORD = 'hello'\n"
    assert "your own PATH" in events[0]["isolation"]["path"]


def test_a_link_to_a_program_of_an_environment_works_as_pipx_and_uv_leave_it(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, programs = checkout.parent / "venvs/greets", checkout.parent / "programs"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True)
    (folder / "bin/greets").write_text(f"#!{folder}/bin/python\nprint('good day')\n")
    (folder / "bin/greets").chmod(0o755)
    programs.mkdir()
    (programs / "greets").symlink_to(folder / "bin/greets")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    edit_scenario(checkout, "echo 'hello, world' >", "greets; echo 'hello, world' >")
    run(checkout, "--run-folder", str(checkout.parent / "run"))
    events = [json.loads(line) for line in (checkout.parent / "run/journal.jsonl").read_text().splitlines()]
    (output,) = (event["output"] for event in events if event["event"] == "tool_call")
    assert output.startswith("good day")


def test_stepflow_in_the_active_environment_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Path(sys.prefix) / "bin"
    # The last but one cannot be looked at, as a folder of another user cannot.
    path = f"{own}:relative:{tmp_path / 'none'}:/{'x' * 300}:/usr/bin"
    assert user_programs(path, {}) == (Path("/usr/bin"),)
    assert user_programs(path, {"VIRTUAL_ENV": str(tmp_path)}) == (Path("/usr/bin"),)
    assert user_programs(path, {"VIRTUAL_ENV": sys.prefix}) == (own, Path("/usr/bin"))
