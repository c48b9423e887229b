"""`stepflow verify` on a pull request that the action made: what holds, and 200 single changes that do not."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepflow.cli import main
from stepflow.run.ending import statement_of
from tests.action.verify_world import AGENT_WORKFLOW, Proven, copy_of, failed, keep, made_by, signed
from tests.checkout import git
from tests.docs.page import DOCS, page_blocks
from tests.signing import Signer
from tests.world import BRANCH, TOKEN, open_world, solve


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proven]:
    parent = tmp_path_factory.mktemp("verify")
    with open_world(parent) as world:
        done = world.run(solve())
        yield made_by(world, done, parent / "clone")


@pytest.fixture
def proven(made: Proven, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Proven:
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    monkeypatch.setenv("STEPFLOW_READ_TOKEN", TOKEN)
    # `gh` is installed beside Python here.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    made.capture = lambda: capsys.readouterr().out
    return made


def test_what_the_artifact_says_is_what_is_on_github(proven: Proven) -> None:
    said = proven.verify("--unsigned", code=0)
    assert [check["name"] for check in said["checks"]] == [
        *("journal", "pull request", "commit", "base", "validators", "definition", "coverage"),
    ]
    assert (said["verified"], said["signed"]) == (False, False)
    assert said["summary"].endswith("agrees with its statement, but who made that was not checked")


@pytest.mark.parametrize("way", ["open", "merge", "squash", "rebase"])
def test_a_merged_pull_request_says_whether_the_commit_on_the_base_is_covered(proven: Proven, way: str) -> None:
    served, pull = proven.world.served, proven.world.github.state.pulls[0]
    main_branch = git("rev-parse", "main", cwd=served).strip()
    parents = ["-p", main_branch, *(["-p", proven.commit] if way in ("open", "merge") else [])]
    merge = git("commit-tree", f"{proven.commit}^{{tree}}", "-m", "On main", *parents, cwd=served).strip()
    # Of an open one GitHub names the commit that a merge would give.
    facts = {"merge": merge} if way == "open" else {"merge": merge, "merged_at": "2026-11-27T10:00:00Z"}
    pull |= facts
    try:
        checks = {check["name"]: check for check in proven.verify("--unsigned", code=0)["checks"]}
    finally:
        for name in facts:
            del pull[name]
    said = f"it was squashed or rebased: no statement covers {merge}, the commit on main"
    merged = {"open": None, "merge": ("ok", f"{merge} on main has these commits")}.get(way, ("warning", said))
    assert ("merge" in checks and (checks["merge"]["state"], checks["merge"]["detail"])) == (merged or False)


OWN_WORKFLOW = "o/r/.github/workflows/stepflow.yml@refs/heads/main"


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("signer") / "own")


def test_a_signed_statement_is_verified_by_the_real_gh(proven: Proven, signer: Signer, tmp_path: Path) -> None:
    said = proven.verify(*signed(proven, signer, tmp_path / "bundle.json"), code=0)
    assert (said["verified"], said["signed"]) == (True, True)
    (check,) = (each for each in said["checks"] if each["name"] == "signature")
    assert check["detail"] == f"by {AGENT_WORKFLOW}"


@pytest.fixture
def renamed(proven: Proven) -> Iterator[Proven]:
    """The repository has another name than when the run made the pull request."""
    state = proven.world.github.state
    state.renamed_to = "o/new"
    yield proven
    state.renamed_to, state.name_is_taken = "", False


@pytest.mark.whole
@pytest.mark.parametrize("name", ["o/r", "o/new"])
def test_a_pull_request_from_before_its_repository_was_renamed_is_verified(
    renamed: Proven, signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", name)
    said = renamed.verify(*signed(renamed, signer, tmp_path / "bundle.json"), code=0)
    assert (said["verified"], failed(said)) == (True, [])


@pytest.mark.whole
@pytest.mark.parametrize(("signed_for", "counts"), [("o/new", True), ("o/other", False)])
def test_a_run_that_was_resumed_after_its_repository_was_renamed_is_signed_under_the_new_name(
    renamed: Proven, signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signed_for: str, counts: bool
) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/new")
    words = signed(renamed, signer, tmp_path / "bundle.json", repository=signed_for)
    assert failed(renamed.verify(*words)) == ([] if counts else ["signature", "coverage"])


@pytest.mark.whole
def test_a_former_name_that_somebody_else_has_now_counts_no_longer(
    renamed: Proven, signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/new")
    renamed.world.github.state.name_is_taken = True
    said = renamed.verify(*signed(renamed, signer, tmp_path / "bundle.json"), code=1)
    assert not said["verified"]
    assert "pull request" in failed(said)


@pytest.mark.whole
def test_ones_own_workflow_is_named(proven: Proven, signer: Signer, tmp_path: Path) -> None:
    words = signed(proven, signer, tmp_path / "bundle.json", workflow=OWN_WORKFLOW)
    refused = proven.verify(*words, code=1)
    (check,) = (each for each in refused["checks"] if each["name"] == "signature")
    assert check["hint"].endswith("name it with --signer.")
    assert proven.verify(*words, "--signer", OWN_WORKFLOW.partition("@")[0], code=0)["verified"] is True


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"workflow": "o/r/.github/workflows/ci.yml@refs/heads/main"}, id="another workflow"),
        pytest.param({"ref": "refs/pull/8/merge"}, id="the pull request's own workflow"),
        *(
            pytest.param(facts, id=name, marks=pytest.mark.whole)
            for name, facts in {
                "one whose name begins so": {"workflow": AGENT_WORKFLOW.replace(".yml", ".yml-2.yml")},
                "another repository": {"repository": "o/other"},
                "another owner": {"repository": "other/r"},
                "a branch": {"ref": "refs/heads/stepflow/fixer/issue-7"},
            }.items()
        ),
    ],
)
def test_a_signature_of_somebody_else_is_refused(
    proven: Proven, signer: Signer, tmp_path: Path, facts: dict[str, str]
) -> None:
    said = proven.verify(*signed(proven, signer, tmp_path / "bundle.json", **facts), code=1)
    assert failed(said) == ["signature", "coverage"]


@pytest.mark.whole
def test_a_signature_of_an_authority_that_nobody_knows_is_refused(
    proven: Proven, signer: Signer, tmp_path: Path
) -> None:
    unknown = Signer(tmp_path / "unknown")
    words = signed(proven, unknown, tmp_path / "bundle.json")
    said = proven.verify(*words[:2], "--trusted-root", str(signer.trusted_root), code=1)
    assert failed(said) == ["signature", "coverage"]


@pytest.mark.whole
def test_what_was_signed_must_be_what_the_journal_says(proven: Proven, signer: Signer, tmp_path: Path) -> None:
    statement = json.loads((proven.folder / "statement.json").read_text())
    statement["predicate"]["result"]["verdict"] = "solved twice"
    said = proven.verify(*signed(proven, signer, tmp_path / "bundle.json", statement=statement), code=1)
    (check,) = (each for each in said["checks"] if each["name"] == "signature")
    assert check["detail"] == "what was signed differs from what the journal says: predicate.result.verdict"


def test_without_gh_nothing_is_called_verified(proven: Proven, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    git_alone = tmp_path / "bin"
    git_alone.mkdir()
    for name in ("git", "rm"):
        (git_alone / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(git_alone))
    said = proven.verify(code=1)
    (check,) = (each for each in said["checks"] if each["name"] == "signature")
    assert (check["state"], "there is no `gh`" in check["detail"], said["verified"]) == ("failed", True, False)


@pytest.mark.whole
def test_an_artifact_of_the_same_name_by_somebody_elses_workflow_does_not_stand_in_the_way(
    proven: Proven, signer: Signer, tmp_path: Path
) -> None:
    kept = proven.world.github.state.artifacts
    before = [*kept]
    forged = copy_of(proven, tmp_path / "forged")
    journal = forged / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"exit_code":0', b'"exit_code":1'))
    (forged / "statement.json").write_text(json.dumps(statement_of(journal)))
    try:
        keep(proven.world, forged, proven.commit)
        kept.append({"name": f"stepflow-{proven.commit}", "files": {"journal.jsonl": b"{"}, "expired": False})
        kept.append({"name": f"stepflow-{proven.commit}", "files": {}, "expired": True})
        assert proven.verify(*signed(proven, signer, tmp_path / "bundle.json"), code=0)["verified"] is True
    finally:
        kept[:] = before


@pytest.mark.whole
def test_the_statement_of_another_run_or_of_an_older_commit_does_not_count(
    proven: Proven, signer: Signer, tmp_path: Path
) -> None:
    """All that it says is true and signed, but about something else."""
    for name, old, new in (
        ("another pull request", b'"kind":"open_pull_request","status":"applied"', b""),
        ("another repository", b'"repository":"o/r"', b'"repository":"o/s"'),
        ("an older commit of the branch", proven.commit.encode(), b"0" * 40),
        ("another branch", f'"branch":"{BRANCH}"'.encode(), b'"branch":"stepflow/fixer/issue-6"'),
    ):
        folder = copy_of(proven, tmp_path / name.replace(" ", "-"))
        journal = folder / "journal.jsonl"
        data = journal.read_bytes()
        if new:
            data = data.replace(old, new)
        else:
            line = next(line for line in data.splitlines() if old in line)
            data = data.replace(line, line.replace(b'"number":8', b'"number":9'))
        assert data != journal.read_bytes(), name
        journal.write_bytes(data)
        statement = statement_of(journal)
        (folder / "statement.json").write_text(json.dumps(statement))
        words = signed(proven, signer, tmp_path / "bundle.json", statement=statement)
        said = proven.verify(*words, "--run-folder", str(folder), code=1)
        assert "signature" not in failed(said), said
        assert {"pull request", "commit"} & {*failed(said)}, (name, said)


def leaves(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to each value of a document that has none inside."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not inner:
        yield path
    for key, item in inner:
        yield from leaves(item, (*path, key))


def other(value: object) -> object:
    """A value of the same type, but another one."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value[:-1]}{'0' if value[-1:] != '0' else '1'}"
        case None:
            return 1
        case _:
            return {"more": 1} if isinstance(value, dict) else [1]


def at(document: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def change_bytes(folder: Path, chance: random.Random) -> None:
    path = folder / "journal.jsonl"
    data = bytearray(path.read_bytes())
    place = chance.randrange(len(data))
    data[place] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def change_lines(folder: Path, chance: random.Random) -> None:
    path = folder / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    first, second = sorted(chance.sample(range(len(lines)), 2))
    match chance.choice(["drop", "swap", "double", "cut"]):
        case "drop":
            del lines[first]
        case "swap":
            lines[first], lines[second] = lines[second], lines[first]
        case "double":
            lines.insert(first, lines[second])
        case _:
            del lines[second:]
    path.write_bytes(b"".join(lines))


def change_event(folder: Path, chance: random.Random) -> None:
    """One fact of a line, such as an exit code or a verdict; the line stays one that a run could write."""
    path = folder / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    number = chance.randrange(len(lines))
    event = json.loads(lines[number])
    way = chance.choice([each for each in leaves(event) if each[0] not in ("v", "seq", "event")])
    at(event, way[:-1])[way[-1]] = other(at(event, way))
    lines[number] = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    path.write_bytes(b"".join(lines))


def change_verdict(folder: Path, chance: random.Random) -> None:
    """One fact of a validator or of the end, in the journal."""
    path = folder / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    kinds = ("validator_ran", "completion_judged", "flow_ended", "run_finished")
    chosen = [number for number, line in enumerate(lines) if json.loads(line)["event"] in kinds]
    number = chance.choice(chosen)
    event = json.loads(lines[number])
    names = (
        "passed",
        "exit_code",
        "output_tail",
        "command",
        "name",
        "validated",
        "done",
        "outcome",
        "success",
        "reason",
    )
    name = chance.choice([each for each in names if each in event])
    event[name] = other(event[name])
    lines[number] = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    path.write_bytes(b"".join(lines))


def change_statement(folder: Path, chance: random.Random) -> None:
    path = folder / "statement.json"
    statement = json.loads(path.read_text())
    way = chance.choice([*leaves(statement)])
    if chance.random() < 0.2:
        del at(statement, way[:-1])[way[-1]]
    else:
        at(statement, way[:-1])[way[-1]] = other(at(statement, way))
    path.write_text(json.dumps(statement))


CHANGES = {
    "a bit of the journal": change_bytes,
    "lines of the journal": change_lines,
    "a fact of the journal": change_event,
    "a verdict": change_verdict,
    "a field of the statement": change_statement,
}


def other_id(oid: str, chance: random.Random) -> str:
    place = chance.randrange(len(oid))
    return f"{oid[:place]}{'0' if oid[place] != '0' else '1'}{oid[place + 1 :]}"


def on_github(kind: str, chance: random.Random) -> Callable[[Any], Any]:
    """Changes answers of GitHub's on their way."""

    def rewrite(data: Any) -> Any:
        is_pull = isinstance(data, dict) and "head" in data
        match kind:
            case "tree" if isinstance(data, list):
                tree = data[-1]["commit"]["tree"]
                tree["sha"] = other_id(tree["sha"], chance)
            case "commit" if isinstance(data, list):
                data[-1]["sha"] = other_id(data[-1]["sha"], chance)
            case "commit on top" if isinstance(data, list):
                data.append({**data[-1], "sha": other_id(data[-1]["sha"], chance)})
            case "head" if is_pull:
                data["head"]["sha"] = other_id(data["head"]["sha"], chance)
            case "branch" if is_pull:
                data["head"]["ref"] += "-2"
            case "fork" if is_pull:
                data["head"]["repo"]["full_name"] = "fork/r"
            case "number" if is_pull:
                data["number"] += 1
            case "base" if isinstance(data, dict) and "merge_base_commit" in data:
                data["status"] = "diverged"
            case "repository" if isinstance(data, dict) and "default_branch" in data:
                data["full_name"] = "o/other"
            case _:
                pass
        return data

    return rewrite


ON_GITHUB = {
    **{"tree": "commit", "commit": "commit", "commit on top": "coverage", "head": "coverage", "branch": "pull request"},
    **{"fork": "pull request", "number": "pull request", "base": "base", "repository": "pull request"},
}


@pytest.fixture
def changed_github(proven: Proven) -> Iterator[Proven]:
    yield proven
    proven.world.github.rewrite = None


#: The fast tests try these two.
FAST = ("tree", "commit on top")


@pytest.mark.parametrize(
    ("kind", "check"),
    [pytest.param(*each, marks=() if each[0] in FAST else pytest.mark.whole) for each in ON_GITHUB.items()],
)
def test_another_state_on_github_is_found(changed_github: Proven, kind: str, check: str) -> None:
    changed_github.world.github.rewrite = on_github(kind, random.Random(kind))
    assert check in failed(changed_github.of_folder(changed_github.folder))


def begin_at(proven: Proven, folder: Path, file: str, change: Callable[[bytes], bytes]) -> Path:
    """The folder of the same run, as if it had begun at a commit in which this file is another."""
    git("checkout", "--quiet", "--detach", "origin/main", cwd=proven.clone)
    path = proven.clone / file
    path.write_bytes(change(path.read_bytes()))
    git("commit", "--quiet", "--all", "--message", "Change it", cwd=proven.clone)
    base, now = (git("rev-parse", name, cwd=proven.clone).strip() for name in ("origin/main", "HEAD"))
    git("push", "--quiet", "--force", str(proven.world.served), "HEAD:refs/heads/main", cwd=proven.clone)
    copy_of(proven, folder)
    journal = folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(base.encode(), now.encode()))
    (folder / "statement.json").write_text(json.dumps(statement_of(journal)))
    return folder


@pytest.fixture
def moved_main(proven: Proven) -> Iterator[Proven]:
    """The branch main is back where it was after the test."""
    main_before = proven.world.branches()["main"]
    yield proven
    git("update-ref", "refs/heads/main", main_before, cwd=proven.world.served)
    git("checkout", "--quiet", "--detach", "origin/main", cwd=proven.clone)


AGENT = Path(__file__).parent / "checkout/.agent/fixer"
DEFINITION = sorted(path.relative_to(AGENT.parents[1]).as_posix() for path in AGENT.rglob("*") if path.is_file())


def change_file(chance: random.Random) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        place = chance.randrange(len(data) + 1)
        return chance.choice(
            [data[:place] + b" " + data[place:], data[:place] + b"x" + data[place + 1 :], data + b"\n"]
        )

    return change


@pytest.mark.whole
def test_another_file_than_those_of_the_definition_may_change(moved_main: Proven, tmp_path: Path) -> None:
    folder = begin_at(moved_main, tmp_path / "run", "greeting.txt", lambda data: data + b"!")
    assert failed(moved_main.of_folder(folder)) == []


@pytest.mark.whole
@pytest.mark.parametrize("file", DEFINITION[:1])
def test_another_definition_is_found(moved_main: Proven, tmp_path: Path, file: str) -> None:
    folder = begin_at(moved_main, tmp_path / "run", file, change_file(random.Random(file)))
    assert "definition" in failed(moved_main.of_folder(folder))


@pytest.mark.parametrize("kind", ["a verdict", "a field of the statement"])
def test_a_change_is_found(proven: Proven, tmp_path: Path, kind: str) -> None:
    folder = copy_of(proven, tmp_path / "run")
    CHANGES[kind](folder, random.Random(kind))
    assert "journal" in failed(proven.of_folder(folder))


#: How many changes of each kind are tried: 200 with those on GitHub and of the definition.
TRIED = {
    **{"a bit of the journal": 30, "lines of the journal": 30, "a fact of the journal": 40, "a verdict": 30},
    "a field of the statement": 40,
}


@pytest.mark.whole
@pytest.mark.timeout(600)
def test_each_of_200_single_changes_is_found_and_the_run_as_it_was_is_not(moved_main: Proven, tmp_path: Path) -> None:
    assert failed(moved_main.of_folder(moved_main.folder)) == []
    missed, tried = [], 0
    for kind, times in TRIED.items():
        for seed in range(times):
            folder = copy_of(moved_main, tmp_path / f"{tried}")
            CHANGES[kind](folder, random.Random(f"{kind} {seed}"))
            missed += [] if failed(moved_main.of_folder(folder)) else [(kind, seed)]
            tried += 1
    for seed in range(15):
        kind = ("tree", "commit", "head")[seed % 3]
        moved_main.world.github.rewrite = on_github(kind, random.Random(seed))
        missed += [] if failed(moved_main.of_folder(moved_main.folder)) else [(kind, seed)]
        tried += 1
    moved_main.world.github.rewrite = None
    for seed in range(15):
        file = DEFINITION[seed % len(DEFINITION)]
        folder = begin_at(moved_main, tmp_path / f"{tried}", file, change_file(random.Random(seed)))
        missed += [] if "definition" in failed(moved_main.of_folder(folder)) else [(file, seed)]
        tried += 1
    assert (missed, tried) == ([], 200)


@pytest.mark.whole
def test_the_pull_request_may_be_an_address(proven: Proven, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_REPOSITORY")
    api = proven.world.github.plain_url
    words = ["--repo", str(proven.clone), "--github-api-url", api, "--unsigned", "--json"]
    assert main(["verify", "https://github.com/o/r/pull/8#discussion", *words]) == 0
    assert json.loads(proven.capture())["pull_request"] == "o/r#8"


def test_the_job_says_where_the_pull_request_is(proven: Proven, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--repo", str(proven.clone), "--unsigned", "--json"]
    monkeypatch.setenv("GITHUB_API_URL", proven.world.github.api_url)
    monkeypatch.setenv("GITHUB_SERVER_URL", proven.world.github.web_url)
    assert main(["verify", f"{proven.world.github.web_url}/o/r/pull/8", *words]) == 0
    assert json.loads(proven.capture())["pull_request"] == "o/r#8"
    requests = len(proven.world.github.requests)
    assert main(["verify", "https://github.com/o/r/pull/8", *words]) == 2
    assert "is not on 127.0.0.1" in json.loads(proven.capture())["reason"]
    assert len(proven.world.github.requests) == requests


def test_an_enterprise_server_signs_nothing_and_gh_is_not_asked(proven: Proven) -> None:
    said = proven.verify("--github-server-url", "https://ghes.example", code=1)
    (signature,) = (check for check in said["checks"] if check["name"] == "signature")
    assert "ghes.example is a GitHub Enterprise Server" in signature["detail"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["eight"], "eight is no pull request."),
        (["9"], "read the pull request"),
        (["8", "--run-folder", "/nowhere"], "There is no /nowhere."),
        (["8", "--bundle", "/nowhere"], "There is no /nowhere."),
        (["8", "--repo", "/nowhere"], "There is no folder /nowhere."),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else None,
)
def test_what_cannot_be_looked_at_is_an_error_and_no_verdict(proven: Proven, words: list[str], reason: str) -> None:
    given = ["--repo", str(proven.clone)] if "--repo" not in words else []
    code = main(["verify", *words, *given, "--github-api-url", proven.world.github.plain_url, "--unsigned", "--json"])
    said = json.loads(proven.capture())
    assert code == 2
    assert reason in said["reason"]


@pytest.mark.whole
def test_a_number_alone_is_of_the_repository_that_the_clone_came_from(
    proven: Proven, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_REPOSITORY")
    before = git("remote", "get-url", "origin", cwd=proven.clone).strip()
    try:
        for address in ("git@github.com:o/r.git", "https://github.com/o/r", "ssh://git@github.com/o/r.git/"):
            git("remote", "set-url", "origin", address, cwd=proven.clone)
            assert proven.verify("--unsigned")["pull_request"] == "o/r#8"
    finally:
        git("remote", "set-url", "origin", before, cwd=proven.clone)


@pytest.mark.whole
def test_a_person_reads_one_line_for_each_check(proven: Proven, signer: Signer, tmp_path: Path) -> None:
    api, words = proven.world.github.plain_url, signed(proven, signer, tmp_path / "bundle.json")
    assert main(["verify", "8", "--repo", str(proven.clone), "--github-api-url", api, *words]) == 0
    shown = proven.capture()
    (block,) = (block for block in page_blocks(DOCS / "how-to" / "verify.md") if block.note == "verified")
    assert masked(shown) == masked(block.text)


def masked(text: str) -> str:
    """Without what differs from run to run."""
    return re.sub(r"\b\d+(?= lines)", "N", re.sub(r"\b[0-9a-f]{40}\b|\b[0-9a-f]{12}\b", "ID", text))
