"""A disk that is full, a run folder that goes away, a clock that is set back: an outcome, a message, nothing lost."""

from __future__ import annotations

import errno
import json
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from stepflow.domain.event import Entry, RunFinished, StepAnswered
from stepflow.domain.words import Outcome
from stepflow.journal import read_journal
from stepflow.report.collect import ReportFacts
from stepflow.report.summary import final_words
from stepflow.run.ending import is_bug, report_error
from tests.run.stopped_run import Run

pytestmark = pytest.mark.whole


@contextmanager
def full_at(run: Run, kind: type, *, more_bytes: int = 20) -> Iterator[Callable[[Entry], None]]:
    """A listener that lets no file of this process grow beyond the journal's size and so many bytes, as a full disk
    would, from the first event of a kind on until the block ends: pytest reports a test before it ends its fixtures,
    and may write that to a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def listen(entry: Entry) -> None:
        if isinstance(entry.event, kind):
            size = run.journal.stat().st_size if more_bytes else 0
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + more_bytes, before[1]))

    try:
        yield listen
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_ends_the_run_with_a_message_and_a_whole_journal(run: Run) -> None:
    entries: list[Entry] = []
    with full_at(run, StepAnswered) as full:
        result = run.play(full, entries.append)
    assert result.report.outcome is Outcome.INTERNAL_ERROR
    assert result.reason.startswith("Flow loop: The journal ")
    assert "File too large. Free space on the disk of the run folder" in result.reason
    written = read_journal(run.journal)
    assert [entry.event.event for entry in written][-1] == "step_output"
    assert [entry.seq for entry in entries if isinstance(entry.event, RunFinished)] == [0]
    assert [entry for entry in entries if entry.seq] == list(written)
    words = "\n".join((*run.log, *final_words(result.report)))
    assert "Traceback" not in words
    assert "✗ an internal error (internal_error): The journal" in words
    assert "Do what the reason says" in words
    assert "fault of stepflow" not in words
    assert json.loads((run.folder / "report.json").read_text())["outcome"] == "internal_error"


def test_a_disk_that_is_full_before_the_run_is_no_bug_of_ours() -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "/runs/7")
    assert not is_bug(error)
    assert "this machine cannot write (/runs/7): No space left on device" in report_error(error, ReportFacts()).reason


def test_reports_that_cannot_be_written_are_named_in_the_log_and_nothing_else_suffers(run: Run) -> None:
    with full_at(run, RunFinished, more_bytes=0) as full:
        result = run.play(full)
    assert result.report.outcome is Outcome.COMPLETED
    assert f"[Run] {run.folder}/report.json could not be written: File too large" in "\n".join(run.log)
    assert read_journal(run.journal)[-1].event.event == "run_finished"


def test_a_page_that_cannot_be_written_is_a_note_and_changes_nothing_else(run: Run) -> None:
    (run.folder / "report.html").mkdir(parents=True)
    (run.folder / "report.html" / "something").touch()
    entries: list[Entry] = []
    result = run.play(entries.append)
    assert result.report.outcome is Outcome.COMPLETED
    assert (run.folder / "report.json").is_file()
    (note,) = [entry.event.message for entry in entries if entry.seq == 0]
    assert note.startswith("[Report] report.html could not be written: ")
    assert "[Report]" not in run.journal.read_text()


def test_a_run_folder_that_is_removed_comes_back_with_all_that_was_written(run: Run) -> None:
    entries: list[Entry] = []

    def remove(entry: Entry) -> None:
        if isinstance(entry.event, StepAnswered):
            shutil.rmtree(run.folder)

    result = run.play(remove, entries.append)
    assert result.report.outcome is Outcome.COMPLETED
    assert read_journal(run.journal) == tuple(entry for entry in entries if entry.seq)
    assert json.loads((run.folder / "report.json").read_text())["outcome"] == "completed"
