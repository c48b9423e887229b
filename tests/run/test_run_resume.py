"""A run that was stopped goes on: nothing that finished is done, asked or paid again, and no forged folder fools it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepflow.domain.words import Outcome
from stepflow.errors import InputError
from stepflow.journal import JournalFile
from stepflow.run.clock import RehearsalClock
from stepflow.run.recorded import PreviousRun
from stepflow.run.resume import completed_report
from tests.checkout import git
from tests.run.stopped_run import Run, same_run, tree_of
from tests.runs.played_run import ISSUE, RUNS

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run that nothing disturbed."""
    run = Run.of(tmp_path_factory.mktemp("whole"))
    run.result = run.play()
    assert run.result.success
    return run


@pytest.fixture(scope="module")
def stopped_once(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that was stopped while a tool was at work, after an earlier one had changed a file."""
    run = Run.of(tmp_path_factory.mktemp("stopped"))
    assert run.play(stop_after=("tool_started", 2)) is None
    return run


@pytest.fixture
def stopped(stopped_once: Run, tmp_path: Path) -> Run:
    """A copy of it, in another place, as a cache would bring it."""
    shutil.copytree(stopped_once.root.parent, tmp_path, dirs_exist_ok=True, symlinks=True)
    return Run(root=tmp_path / "checkout", folder=tmp_path / "run", scenario=tmp_path / "scenario.yaml")


def find_previous(run: Run, **inputs: str) -> PreviousRun | None:
    """The run that a process would go on with, or that stands in the way."""
    return run.prepare(**inputs).previous


# Going on


def test_a_run_that_was_stopped_twice_ends_as_the_whole_one_did(whole: Run, tmp_path: Path) -> None:
    run = Run.of(tmp_path)
    assert run.play(stop_after=("prompt_rendered", 2)) is None
    first = len(run.kinds())
    assert run.play(stop_after=("iteration_started", 1)) is None
    second = len(run.kinds())
    result = run.play()
    assert same_run(result, whole.result)
    assert tree_of(run.worked) == tree_of(whole.worked)
    assert [kind for kind in run.kinds() if kind == "model_turn"] == [k for k in whole.kinds() if k == "model_turn"]
    assert [line for line in run.log if line.startswith("The run is resumed")] == [
        f"The run is resumed after {first} events, at iteration 2",
        f"The run is resumed after {second} events, at iteration 3",
    ]


def test_the_outcome_of_a_check_is_not_recorded_again(tmp_path: Path) -> None:
    whole = Run.of(tmp_path / "whole", RUNS / "check-hands-off")
    result = whole.play()
    run = Run.of(tmp_path / "stopped", RUNS / "check-hands-off")
    assert run.play(stop_after=whole.kinds().index("check_judged") + 1) is None
    assert same_run(run.play(), result)
    assert run.kinds().count("check_judged") == whole.kinds().count("check_judged")


def test_an_interrupted_call_is_undone_and_the_model_learns_of_it(stopped: Run) -> None:
    (stopped.root / "notes").mkdir()
    (stopped.root / "notes" / "half.txt").write_text("half")
    stopped.play()
    answered = [event for event in stopped.events() if event["event"] == "tool_call" and event["is_error"]]
    assert ["it may have run" in event["output"] for event in answered] == [True]
    assert not (stopped.worked / "notes" / "half.txt").exists()
    assert (stopped.worked / "hello.txt").read_text() == "hello, world\n"


def test_a_limit_that_was_raised_lets_the_run_go_on(whole: Run, tmp_path: Path) -> None:
    run = Run.of(tmp_path)
    assert run.play(limits={"iterations": 2}).report.outcome is Outcome.LIMIT_REACHED
    assert run.play(limits={"iterations": 2}).report.outcome is Outcome.LIMIT_REACHED
    assert same_run(run.play(), whole.result)


def test_a_run_that_ended_with_a_refusal_asks_again(whole: Run, tmp_path: Path) -> None:
    run = Run.of(tmp_path)
    refusal = {"stop_reason": "refusal"}
    # Twice within a step that has worked already: after its two tools.
    run.rewrite_scenario(lambda data: data["turns"].__setitem__(slice(2, 2), [refusal, refusal]))
    for _ in range(2):
        assert run.play(record="recorded.yaml").report.outcome is Outcome.MODEL_REFUSED
    result = run.play(record="recorded.yaml")
    assert result == whole.result
    assert run.kinds().count("tool_call") == whole.kinds().count("tool_call"), "no tool ran again"
    assert run.kinds().count("model_turn") == whole.kinds().count("model_turn") + 2
    assert tree_of(run.worked) == tree_of(whole.worked)
    again = Run.of(tmp_path / "again")
    again.scenario.write_text((run.folder / "recorded.yaml").read_text())
    assert again.play() == whole.result, "a recording has no refusal that was asked again"


def test_a_part_that_is_killed_leaves_no_report_of_the_part_before(tmp_path: Path) -> None:
    run = Run.of(tmp_path)
    refusal = {"stop_reason": "refusal"}
    run.rewrite_scenario(lambda data: data["turns"].__setitem__(slice(2, 2), [refusal]))
    assert run.play().report.outcome is Outcome.MODEL_REFUSED
    reports = [run.folder / name for name in ("report.json", "effects.json", "report.html")]
    assert all(path.is_file() for path in reports)
    assert run.play(stop_after=("canaries_tried", 1)) is None
    assert not any(path.exists() for path in reports)
    assert run.play().report.outcome is Outcome.COMPLETED
    assert all(path.is_file() for path in reports)


def test_resuming_a_complete_run_only_reports_it(whole: Run) -> None:
    before = whole.journal.read_bytes()
    report = completed_report(whole.request(resume=str(whole.folder)))
    assert report is not None
    assert (report.outcome, report.iterations) == (Outcome.COMPLETED, whole.result.iterations)
    assert whole.journal.read_bytes() == before
    assert completed_report(whole.request()) is None


# One at a time


def test_two_runs_cannot_be_at_work_in_one_folder(stopped: Run) -> None:
    before = stopped.journal.read_bytes()
    with JournalFile(stopped.journal, RehearsalClock()):
        with pytest.raises(InputError, match="Another run is using"):
            stopped.play()
        with pytest.raises(InputError, match="Another run is using"):
            stopped.play(resume="never")
    assert stopped.journal.read_bytes() == before


def test_a_journal_that_grew_after_it_was_read_is_not_gone_on_with(stopped: Run) -> None:
    prepared = stopped.prepare()
    stopped.write([*stopped.events(), {**stopped.events()[1], "seq": len(stopped.events()) + 1}])
    with pytest.raises(InputError, match="has just resumed"):
        stopped.drive(prepared, lambda _: None)


# Folders that do not fit


def change(number: int, **fields: Any) -> Callable[[Run], None]:
    def forge(run: Run) -> None:
        events = run.events()
        events[number] = {**events[number], **fields}
        run.write(events)

    return forge


def at(kind: str, **fields: Any) -> Callable[[Run], None]:
    return lambda run: change(run.kinds().index(kind), **fields)(run)


def replaced(pattern: str, put: Callable[[Path, Path], object]) -> Callable[[Run], None]:
    """Something else where a file of the run was; `put` gets the path, and where the file is now."""

    def forge(run: Run) -> None:
        path, moved = next(run.folder.glob(pattern)), run.folder.parent / "elsewhere"
        path.rename(moved)
        put(path, moved)

    return forge


def link(path: Path, moved: Path) -> None:
    path.symlink_to(moved)


def pipe(path: Path, _moved: Path) -> None:
    os.mkfifo(path)


def damaged(run: Run) -> None:
    lines = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join((*lines[:5], lines[5][:40] + b"\n", *lines[6:])))


def nested(run: Run) -> None:
    deep = "[" * 200_000
    lines = run.journal.read_text().splitlines()
    run.journal.write_text("\n".join((*lines[:3], deep, *lines[4:])) + "\n")


def committed(run: Run) -> None:
    git("commit", "--quiet", "--allow-empty", "--message", "Somebody went on", cwd=run.root)


def based_elsewhere(run: Run) -> None:
    """Like a commit from a fork: the work would be judged against it, and pushed with it below."""
    first, *others = run.events()
    run.write([{**first, "base_commit": "e" * 40}, *others])


def written(**fields: object) -> Callable[[Run], None]:
    """One more effect that a run is said to have had."""
    receipt = {"event": "effect_applied", "kind": "push_branch", "status": "applied", "detail": "b", "url": ""}

    def forge(run: Run) -> None:
        events = run.events()
        more = {**events[-1], "seq": len(events) + 1, **receipt, "number": None, "commit": "", **fields}
        names = {"v", "seq", "t", "time", *receipt, "number", "commit", *fields}
        run.write([*events, {name: value for name, value in more.items() if name in names}])

    return forge


def another_version(run: Run) -> None:
    path = run.root / ".agent" / "demo" / "prompts" / "system.md"
    path.write_text(path.read_text() + "\nAnother sentence.\n")


FORGED = {
    "another agent": (change(0, agent="other"), "another agent"),
    "another definition": (another_version, "another version of the agent"),
    "another repository": (change(0, repository="o/x"), "another repository"),
    "another issue": (change(0, issue=8), "another issue"),
    "other arguments": (change(0, args={"issue": 7, "depth": 3}), "other run arguments"),
    "another form of answers": (change(0, options={"structured-output": "prompt"}), "another structured-output"),
    "another base": (committed, "another commit"),
    "a base that was never checked out": (based_elsewhere, "another commit"),
    "a commit that is markup": (written(commit="none --> **Look** <!--"), "cannot have happened"),
    "a branch that is a command": (written(branch="x; reboot"), "cannot have happened"),
    "an address of two lines": (written(url="https://github.com/o/r/\n::error::x"), "cannot have happened"),
    "no name of ours": (change(0, run_id="../../etc"), "not one of ours"),
    "version 3": (change(3, v=3), "journal version 3"),
    "a gap": (change(3, seq=9), "lines are missing or doubled"),
    "a nest of brackets": (nested, "is damaged"),
    "iterations that count down": (at("iteration_started", iteration=-99), "cannot have happened"),
    "turns that earn money": (at("model_turn", cost_usd=-9.0), "cannot have happened"),
    "a snapshot elsewhere": (at("snapshot_taken", name="../../x"), "cannot have happened"),
    "a snapshot that is not there": (at("snapshot_taken", name="f" * 64), "cannot be read"),
    "a step that is not there": (at("routed", to="nowhere"), "does not have"),
    "two beginnings": (lambda run: change(2, **{**run.events()[0], "seq": 3})(run), "more than one beginning"),
    "nothing": (lambda run: run.journal.write_text(""), "before its run began"),
    "a link": (replaced("journal.jsonl", link), "a link or no file"),
    "a link among the snapshots": (
        lambda run: (run.folder / "snapshots" / "incoming").symlink_to("elsewhere"),
        "a link or no file",
    ),
    "a pipe": (replaced("journal.jsonl", pipe), "a link or no file"),
    "a line without an end": (lambda run: run.journal.write_bytes(b"x" * (32 * 1024 * 1024 + 1)), "longer than any"),
}


@pytest.mark.sample(4)
@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.fast] * (at % 4 == 0)) for at, name in enumerate(FORGED)]
)
def test_a_folder_that_does_not_fit_begins_a_new_run_with_a_notice_or_is_refused_where_it_was_named(
    stopped: Run, name: str
) -> None:
    forge, reason = FORGED[name]
    forge(stopped)
    prepared = stopped.prepare()
    assert prepared.resumed_run is None
    assert reason in prepared.previous.notice
    assert "\n" not in prepared.previous.notice
    with pytest.raises(InputError, match="cannot continue"):
        stopped.prepare(resume=str(stopped.folder))


def test_a_run_that_does_not_go_on_is_kept_beside_the_new_one(stopped: Run, whole: Run) -> None:
    change(0, issue=8)(stopped)
    before = stopped.journal.read_bytes()
    result = stopped.play(run_id="run-2")
    assert same_run(result, whole.result)
    assert (stopped.folder.with_name("run-run-1") / "journal.jsonl").read_bytes() == before
    assert stopped.events()[1]["run_id"] == "run-2"
    notice = stopped.events()[0]["message"]
    assert notice.startswith("[Run] A new run begins")
    assert str(stopped.folder.with_name("run-run-1")) in notice


def test_never_begins_anew_and_a_path_without_a_run_is_refused(stopped: Run, tmp_path: Path) -> None:
    assert "never" in find_previous(stopped, resume="never").notice
    stopped.folder = tmp_path / "empty"
    assert find_previous(stopped) is None
    with pytest.raises(InputError, match="no run to resume"):
        stopped.prepare(resume=str(stopped.folder))


@pytest.mark.parametrize("name", ["report.json", "work.bundle", "snapshots"])
def test_a_folder_without_a_journal_leads_nothing_elsewhere(stopped: Run, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    stopped.folder = tmp_path / "forged"
    stopped.folder.mkdir()
    (stopped.folder / name).symlink_to(elsewhere)
    notice = find_previous(stopped).notice
    assert f"`{name}` is a link" in notice
    assert stopped.play(resume="auto").success
    assert not elsewhere.exists()


def test_the_prompt_has_the_issue_as_it_was_and_not_as_it_is_now(stopped: Run) -> None:
    prepared = stopped.prepare(issue=replace(ISSUE, title="Say goodbye", body="Now!"))
    assert prepared.issue == ISSUE
    assert prepared.context.text == json.loads(stopped.journal.read_text().splitlines()[0])["context_text"]
    assert prepared.request.run_id == "run-1"


def test_a_run_without_a_snapshot_of_its_start_begins_anew(stopped: Run) -> None:
    """Else what a tool made of the tree would be the start that guards compare with."""
    events = stopped.events()
    first, second = [number for number, event in enumerate(events) if event["event"] == "snapshot_taken"][:2]
    for number in (first, second):
        snapshot_event = events[number]
        failed = {"reason": "x", "event": "snapshot_failed"}
        events[number] = {**{name: snapshot_event[name] for name in ("v", "seq", "t")}, **failed}
    stopped.write(events)
    notice = find_previous(stopped).notice
    assert "snapshot" in notice
