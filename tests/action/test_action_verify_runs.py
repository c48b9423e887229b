"""`stepflow verify` on what different runs leave: a follow-up, a resumed run, commits that GitHub wrote; and on
archives that no run made."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from stepflow.modes.verify import unpack_artifact
from stepflow.run.ending import statement_of
from tests.action.follow_up_world import commented, follow_up, improve
from tests.action.verify_world import Proven, failed, made_by
from tests.checkout import git
from tests.servers.github_api import Fault
from tests.world import BRANCH, CLOSING, COMMIT, TOKEN, World, answer, bash, label_event, solve


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Lets a pull request be verified with the read token."""
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    monkeypatch.setenv("STEPFLOW_READ_TOKEN", TOKEN)

    def reading(proven: Proven) -> Proven:
        proven.capture = lambda: capsys.readouterr().out
        return proven

    return reading


@pytest.mark.whole
def test_each_run_on_a_pull_request_vouches_for_its_own_commits(opened: World, tmp_path: Path, reader) -> None:
    (folder,) = (path.parent for path in opened.runner.folder.rglob("statement.json"))
    first = opened.branches()[BRANCH]
    done = follow_up(opened, improve(), commented("/stepflow run"), name="issue_comment")
    proven = reader(made_by(opened, done, tmp_path / "clone"))
    git("checkout", "--quiet", "main", cwd=proven.clone)
    said = proven.verify("--unsigned", code=1)
    assert failed(said) == ["coverage"]
    assert f"1 commit not covered by a valid statement: {first[:12]}" in said["checks"][-1]["detail"]
    kept = proven.verify("--unsigned", "--run-folder", str(folder), "--run-folder", str(proven.folder), code=0)
    assert kept["checks"][-1]["detail"] == "2 commits"
    files = {path.name: path.read_bytes() for path in folder.glob("*.json*")}
    opened.github.state.artifacts.append({"name": f"stepflow-{first}", "files": files, "expired": False})
    both = proven.verify("--unsigned", code=0)
    assert [check["name"] for check in both["checks"]].count("definition") == 2
    assert both["checks"][-1]["detail"] == "2 commits"


@pytest.mark.whole
def test_a_resumed_run_says_which_lines_another_job_wrote(world: World, tmp_path: Path, reader) -> None:
    folder = tmp_path / "run"
    world.github.state.faults.append(Fault("POST", "/pulls", 422, message="not today", times=9))
    stopped = world.run(solve(), run_folder=str(folder), on_failure="nothing")
    assert stopped.outputs["outcome"] == "boundary_failed"
    before = len((folder / "journal.jsonl").read_bytes().splitlines())
    world.github.state.faults.clear()
    proven = reader(made_by(world, world.run([], run_folder=str(folder)), tmp_path / "clone"))
    said = proven.verify("--unsigned", code=0)
    (check,) = (each for each in said["checks"] if each["name"] == "journal")
    assert check["state"] == "warning"
    assert check["detail"].endswith(f"the run was resumed: lines 1 to {before} came from its run folder")


@pytest.mark.whole
def test_commits_that_github_wrote_are_those_of_the_statement(world: World, tmp_path: Path, reader) -> None:
    proven = reader(made_by(world, world.run(solve(), commits="verified"), tmp_path / "clone"))
    assert proven.verify("--unsigned", code=0)["checks"][-1]["detail"] == "1 commit"


@pytest.mark.whole
def test_a_commit_that_was_merged_in_is_covered_by_nothing_however_old_it_says_it_is(
    world: World, tmp_path: Path, reader
) -> None:
    done = world.run(solve())
    proven, merged = reader(made_by(world, done, tmp_path / "clone")), tmp_path / "merged"
    git("clone", "--quiet", "--branch", BRANCH, str(world.served), str(merged), cwd=tmp_path)
    git("checkout", "--quiet", "-b", "side", "origin/main", cwd=merged)
    (merged / "evil.txt").write_text("evil")
    git("add", "evil.txt", cwd=merged)
    old = "2001-01-01T00:00:00Z"
    git("-c", "user.name=Eve", "commit", "--quiet", "--date", old, "--message", "Look away", cwd=merged)
    git("checkout", "--quiet", BRANCH, cwd=merged)
    git("merge", "--quiet", "--no-edit", "--no-ff", "side", cwd=merged)
    git("push", "--quiet", "origin", f"HEAD:{BRANCH}", cwd=merged)

    def first(data: Any) -> Any:
        """However GitHub orders them."""
        is_commits = isinstance(data, list) and data and "commit" in data[0]
        return sorted(data, key=lambda each: each["commit"]["message"] != "Look away") if is_commits else data

    world.github.rewrite = first
    said = proven.verify("--unsigned", code=1)
    assert failed(said) == ["coverage"]
    assert said["checks"][-1]["detail"].startswith("2 commits not covered by a valid statement: ")
    assert "(Look away)" in said["checks"][-1]["detail"]


#: A shipped agent's definition has the checks that the workflow gives it.
CHECKS = {"agent": "builtin/fix", "checks": "grep 'hello, world' greeting.txt\ntrue"}
PROOF = {"agent": "builtin/fix", "checks": "true", "prove": "command: sh {tests}\ntests: [check.sh]\n"}


@pytest.mark.whole
@pytest.mark.parametrize(
    ("inputs", "was", "now"),
    [
        (CHECKS, b'greeting.txt","true"', b'greeting.txt"'),
        (PROOF, b'"sh {tests}"', b'"true {tests}"'),
    ],
    ids=["checks", "proof"],
)
def test_the_definition_of_a_shipped_agent_has_the_checks_of_the_workflow(
    world: World, tmp_path: Path, reader, inputs: dict[str, str], was: bytes, now: bytes
) -> None:
    shutil.rmtree(world.checkout / ".agent")
    git("commit", "--quiet", "--all", "--message", "Without agents", cwd=world.checkout)
    git("push", "--quiet", str(world.served), "main", cwd=world.checkout)
    world.runner.inputs |= inputs
    replies = [
        answer("initial.default", "next", cause="no world", plan="greet it"),
        bash(
            f"echo 'hello, world' > greeting.txt; echo grep world greeting.txt > check.sh; git add check.sh; {COMMIT}"
        ),
        answer("continuation.default", "handoff", changes="the greeting"),
        answer(
            "closure.default", "closing", missing="nothing", comment="Greeted.", pull_request=CLOSING["pull_request"]
        ),
    ]
    done = world.run(replies, {**label_event(), "label": {"name": "agent:fix"}})
    proven = reader(made_by(world, done, tmp_path / "clone"))
    assert failed(proven.verify("--unsigned", code=0)) == []
    journal = proven.folder / "journal.jsonl"
    data = journal.read_bytes()
    assert was in data
    journal.write_bytes(data.replace(was, now))
    (proven.folder / "statement.json").write_text(json.dumps(statement_of(journal)))
    assert "definition" in failed(proven.of_folder(proven.folder))


def archive(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as made:
        for name, content in files.items():
            made.writestr(name, content)
    return packed.getvalue()


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"no archive", id="no archive"),
        pytest.param(archive({"journal.jsonl": b"{}"}), id="a file is missing"),
        pytest.param(archive({"journal.jsonl": b"{}", "statement.json": bytes(20_000_000)}), id="too large"),
        pytest.param(archive({"journal.jsonl": b"{}", "statement.json": b"{}"})[:-40], id="torn"),
        pytest.param(
            archive({"journal.jsonl": b"{}", "statement.json": b"{}"}, zipfile.ZIP_STORED).replace(
                b"\2\0\0\0\2\0\0\0", b"\xc8\0\0\0\xc8\0\0\0"
            ),
            id="a file is shorter than it says",
        ),
        pytest.param(
            archive({"journal.jsonl": b"{}", "statement.json": b"{}"}, zipfile.ZIP_LZMA).replace(
                b"\x5d\0\0", b"\xff\0\0"
            ),
            id="no stream of LZMA",
        ),
    ],
)
def test_an_archive_that_no_run_made_is_left_out(packed: bytes, tmp_path: Path) -> None:
    assert not unpack_artifact(packed, {"journal.jsonl": 1000, "statement.json": 1000}, tmp_path)


def test_only_the_files_that_are_looked_for_are_unpacked(tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    packed = archive({"../evil": b"x", "/tmp/evil": b"x", "more": b"x", "journal.jsonl": b"{}"})
    assert unpack_artifact(packed, {"journal.jsonl": 1000}, folder)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["journal.jsonl"]


@pytest.mark.whole
def test_a_forged_journal_ends_in_a_check_and_not_in_an_error(world: World, tmp_path: Path, reader) -> None:
    tree = git("rev-parse", "HEAD", cwd=world.checkout).strip()
    git("push", "--quiet", str(world.served), f"HEAD:refs/heads/{BRANCH}", cwd=world.checkout)
    world.github.state.add_pull(BRANCH, login="github-actions[bot]")
    folder = tmp_path / "forged"
    folder.mkdir()
    proven = reader(Proven(world, folder, world.checkout, tree))
    started = {"v": 2, "seq": 1, "t": 1.0, "event": "run_started", "run_id": "r", "agent": "../../etc", "dialect": "no"}
    facts = {"definition_digest": "", "verdict_type": "", "entry_step": "", "max_iterations": 1}
    for journal in ("", "{", "[" * 100_000, json.dumps(started), json.dumps({**started, **facts})):
        for statement in ("", "{}", "[" * 100_000, '{"predicate": 1}'):
            (folder / "journal.jsonl").write_text(f"{journal}\n")
            (folder / "statement.json").write_text(statement)
            assert failed(proven.of_folder(folder))[0] == "journal"
