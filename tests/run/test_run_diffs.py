"""The page of a real run shows what each step changed: from the run's own snapshots, also of a run that was resumed."""

from __future__ import annotations

import base64
import shutil
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from stepflow.cli import main
from stepflow.domain.checkout import STEP_LIMIT, FileDiff, SnapshotDiffs, StepDiff
from stepflow.domain.event import Entry, IterationStarted, SnapshotTaken
from stepflow.domain.words import Outcome, StepKind
from stepflow.run import ending
from stepflow.run.ending import PAGE_LIMIT, Stretches, diffs_of, write_page
from stepflow.run.snapshots import SnapshotStore
from tests.report.page_of import PageReader
from tests.run.stopped_run import SECRET, Run
from tests.runs.played_run import RUNS, play_case

pytestmark = pytest.mark.whole

CASE = RUNS / "dirty-tree-then-clean"
GREETED = """diff --git a/hello.txt b/hello.txt
--- a/hello.txt
+++ b/hello.txt
@@ -1 +1 @@
-hello
+hello, world"""


def shown(page: Path) -> dict[str, dict[str, str]]:
    """What the page has of each part of the run: the texts of files' diffs by their labels, and the facts."""
    reader = PageReader(page.read_text("utf-8"))
    return {
        group.id: {"facts": card.facts, **card.parts}
        for group in reader.groups
        for card in group.cards
        if card.id.endswith("-diff")
    }


def working(folder: Path, *scripts: str) -> Run:
    """A run in which the work step runs these scripts, one iteration each, by which it hands off at the end."""
    run = Run.of(folder)

    def rewrite(data: dict) -> None:
        turns = data["turns"]
        data.pop("expect")
        data["turns"] = turns[:1]
        for number, script in enumerate(scripts, 1):
            action = "repeat" if number < len(scripts) else "handoff"
            answer = {**turns[2]["output"], "next_action": {"action": action, "reason": "It is written."}}
            data["turns"] += [
                {"expect_step": "continuation.issue", "tools": [{"bash": {"command": script}}]},
                {"output": answer},
            ]
        data["turns"] += [turns[-1]]

    run.rewrite_scenario(rewrite)
    return run


def test_the_page_shows_what_each_step_changed_committed_or_not(tmp_path: Path) -> None:
    played = play_case(CASE, tmp_path)
    page = shown(played.folder / "report.html")
    assert list(page) == ["i2", "changes"], "the step that only committed changed no file"
    assert page["changes"] == page["i2"], "no other step changed a file"
    assert page["i2"]["facts"] == "2 files · +2 −1"
    assert page["i2"]["hello.txt (+1 −1)"] == GREETED
    assert page["i2"]["notes/today.txt (+1 −0)"].endswith(
        "new file mode 100644\n--- /dev/null\n+++ b/notes/today.txt\n@@ -0,0 +1 @@\n+greet"
    )


def test_what_a_step_made_and_a_later_one_took_back_is_no_change_of_the_whole_run(tmp_path: Path) -> None:
    run = working(
        tmp_path, "echo try > draft.txt; echo bye > hello.txt", "rm draft.txt; echo hello > hello.txt; touch kept"
    )
    run.play()
    page = shown(run.folder / "report.html")
    assert set(page["i2"]) == {"facts", "draft.txt (+1 −0)", "hello.txt (+1 −1)"}
    assert set(page["changes"]) == {"facts", "kept"}


def test_a_secret_is_masked_and_a_step_without_a_snapshot_says_so(tmp_path: Path) -> None:
    hidden = base64.b64encode(SECRET.encode()).decode()
    run = working(tmp_path, f"echo {hidden} > a.txt", f"echo {SECRET} > b.txt", "echo clean > b.txt; echo more > c.txt")
    run.play(github_token=SECRET)
    page = (run.folder / "report.html").read_text("utf-8")
    assert SECRET not in page
    assert hidden not in page
    page = shown(run.folder / "report.html")
    assert page["i2"]["a.txt (+1 −0)"].endswith("+***")
    assert page["i3"] == {"facts": "a snapshot failed here: its changes are shown with the step after it"}
    assert {"b.txt (+1 −0)", "c.txt (+1 −0)"} <= page["i4"].keys()


def test_a_run_that_was_resumed_shows_what_the_whole_one_does(tmp_path: Path) -> None:
    whole, stopped = Run.of(tmp_path / "whole"), Run.of(tmp_path / "stopped")
    whole.play()
    third_turn = [event["seq"] for event in whole.events() if event["event"] == "model_turn"][2]
    assert stopped.play(stop_after=third_turn) is None
    page = tmp_path / "page.html"
    assert main(["show", str(stopped.folder), "--html", str(page)]) == 0
    assert shown(page) == shown(whole.folder / "report.html")
    stopped.play()
    assert "run_resumed" in stopped.kinds()
    assert shown(stopped.folder / "report.html") == shown(whole.folder / "report.html")


def test_what_an_interrupted_call_did_is_no_change_of_the_step(tmp_path: Path) -> None:
    run = Run.of(tmp_path)
    assert run.play(stop_after=("tool_started", 2)) is None
    (run.root / "notes").mkdir()
    (run.root / "notes/today.txt").write_text("half of it")
    run.play()
    page = shown(run.folder / "report.html")
    assert page["i2"] == {"facts": "1 file · +1 −1", "hello.txt (+1 −1)": GREETED}


def test_show_makes_the_same_diffs_from_the_folder_and_a_damaged_one_has_none(tmp_path: Path) -> None:
    played = play_case(CASE, tmp_path)
    page = tmp_path / "page.html"
    assert main(["show", str(played.folder), "--html", str(page)]) == 0
    assert shown(page) == shown(played.folder / "report.html")
    for text in (played.folder / "snapshots").glob("*.json"):
        text.write_bytes(text.read_bytes()[::-1])
    assert main(["show", str(played.folder), "--html", str(page)]) == 0
    assert shown(page) == {}
    assert "The steps are shown without what they changed." in page.read_text("utf-8")
    shutil.rmtree(played.folder / "snapshots")
    assert main(["show", str(played.folder), "--html", str(page)]) == 0
    assert "cannot be read: No such file or directory" in page.read_text("utf-8")


def test_a_page_has_the_diffs_of_the_first_and_the_last_steps_when_there_is_no_room_for_all(tmp_path: Path) -> None:
    store, numbers = SnapshotStore(tmp_path / "snapshots"), range(1, 401)
    entries = [taken(store, 0), *(one for number in numbers for one in (began(number), taken(store, number)))]
    stretches = Stretches()
    assert list(stretches.watch(entries)) == entries
    diffs = diffs_of(stretches, tmp_path)
    whole = [number for number, step in diffs.steps.items() if step.files]
    assert list(diffs.steps.keys() - set(whole)), "some had no room"
    assert {1, 2, 3, 398, 399, 400} <= set(whole)
    assert diffs.steps.keys() == set(numbers)
    assert 200 not in whole
    assert diffs.steps[200] == StepDiff(notes=("left out to keep this page small",))
    assert diffs.note == f"What {400 - len(whole)} of 400 steps changed is left out to keep this page small."
    assert [file.path for file in diffs.run.files] == ["r400"]
    size = sum(step.size for step in (diffs.run, *diffs.steps.values()))
    assert PAGE_LIMIT <= size < PAGE_LIMIT + STEP_LIMIT


def began(number: int) -> Entry:
    event = IterationStarted(iteration=number, step_id="s", kind=StepKind.WORK, model="m")
    return Entry(seq=2 * number, time=0.0, event=event)


def taken(store: SnapshotStore, number: int) -> Entry:
    """A snapshot by which much has changed."""
    name, texts = f"{number:040x}", {"step": f"s{number}", "run": f"r{number}"}
    diffs = {part: StepDiff(files=(FileDiff(path=path, text="x" * 10_000),)) for part, path in texts.items()}
    store.add(name, BytesIO(), SnapshotDiffs(**diffs))
    return Entry(seq=2 * number + 1, time=0.0, event=SnapshotTaken(name=name, files=1, bytes=1, seconds=0.0))


def test_a_long_run_that_was_cancelled_ends_without_a_page(tmp_path: Path, monkeypatch) -> None:
    played = play_case(CASE, tmp_path)
    monkeypatch.setattr(ending, "EVENTS_WHEN_CANCELLED", 3)
    cancelled = replace(played.result.report, outcome=Outcome.CANCELLED)
    (problem,) = write_page(played.prepared.request, cancelled, played.prepared.agent)
    assert "was cancelled" in problem
    assert list(write_page(played.prepared.request, played.result.report, played.prepared.agent)) == []
