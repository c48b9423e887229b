"""The journal as a file: what is written, what a crash leaves, and what is refused."""

from __future__ import annotations

import json
import os
import resource
import tempfile
import tracemalloc
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from stepflow.domain.conversation import ToolCall
from stepflow.domain.event import Noted, RunFinished
from stepflow.domain.secrets import Redactor
from stepflow.domain.words import Outcome, Stage
from stepflow.errors import InputError, RunCancelled, StepflowError
from stepflow.journal import (
    Fanout,
    JournalFile,
    JournalReader,
    MemoryJournal,
    iter_journal,
    journal_schema,
    read_journal,
)
from tests.golden import assert_golden
from tests.report.every_event import EVENTS
from tests.report.plausible_run import STARTED

NOTE = Noted(level="info", message="[Boundary] planned")
ALL = [replace(STARTED, options={"model": "opus", "nested": [1, 1.5, None, {"a": True}]}), *EVENTS.values()]


def test_each_event_is_one_line_with_version_number_and_time(tmp_path, clock):
    with JournalFile(tmp_path / "j", clock) as journal:
        journal.append(STARTED)
        journal.append(NOTE)
    first, second = (tmp_path / "j").read_text().splitlines()
    assert first.startswith('{"v":2,"seq":1,"t":1700000001.0,"event":"run_started","run_id":"20260715-101500-7",')
    assert json.loads(second) == {
        "v": 2,
        "seq": 2,
        "t": 1700000002.0,
        "event": "noted",
        "level": "info",
        "message": "[Boundary] planned",
        "data": {},
    }


@pytest.mark.whole
def test_every_event_is_read_as_it_was_written_and_fits_the_published_schema(tmp_path, clock):
    memory = MemoryJournal(replace(clock))
    with JournalFile(tmp_path / "j", clock) as journal:
        for event in ALL:
            journal.append(event)
            memory.append(event)
    assert [entry.event for entry in read_journal(tmp_path / "j")] == ALL
    assert memory.entries == read_journal(tmp_path / "j")
    validator = Draft202012Validator(journal_schema())
    lines = [json.loads(line) for line in (tmp_path / "j").read_text().splitlines()]
    assert [list(validator.iter_errors(line)) for line in lines] == [[]] * len(lines)
    for broken in ({**lines[0], "v": 1}, {**lines[0], "event": "sang"}, {"v": 2, "seq": 1, "t": 1}):
        assert list(validator.iter_errors(broken))
    for name in ("v", "seq", "t", "event"):
        assert not any(validator.is_valid({key: line[key] for key in line if key != name}) for line in lines)


def test_the_published_journal_schema_is_the_events():
    assert_golden("journal/journal.schema.json", json.dumps(journal_schema(), indent=1, ensure_ascii=False) + "\n")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(), max_size=30), st.dictionaries(st.text(max_size=5), JSON, max_size=3))
def test_any_text_and_any_json_survives_the_file(tmp_path, clock, text, data):
    path = tmp_path / os.urandom(8).hex()
    tool = ToolCall(tool_use_id="t", name="bash", input=data, output=text, is_error=False, exit_code=0, seconds=0.5)
    with JournalFile(path, clock) as journal:
        written = [journal.append(tool), journal.append(Noted(level="info", message=text, data=data))]
    lines = path.read_bytes().split(b"\n")
    assert len(lines) == 3
    assert len(path.read_bytes().decode("utf-8").splitlines()) == 2
    assert [json.loads(line)["seq"] for line in lines[:2]] == [1, 2]
    assert b"NaN" not in lines[0] or b"NaN" in (text + json.dumps(data, ensure_ascii=False)).encode(errors="replace")
    assert read_journal(path) == tuple(written)


def test_a_number_json_cannot_hold_becomes_null(tmp_path, clock):
    with JournalFile(tmp_path / "j", clock) as journal:
        entry = journal.append(Noted(level="info", message="m", data={"a": float("nan"), "b": [float("inf")]}))
    assert entry.event == Noted(level="info", message="m", data={"a": None, "b": [None]})
    assert b"NaN" not in (tmp_path / "j").read_bytes()


def test_no_secret_reaches_the_file_or_a_listener(tmp_path, clock):
    secret = 'ghs_"quoted\\and$long'
    received = []
    with JournalFile(tmp_path / "j", clock, redact=Redactor([secret])) as journal:
        Fanout(journal, received.append).append(
            ToolCall(
                tool_use_id="t",
                name="bash",
                input={secret: [secret]},
                output=f"token={secret}\n{secret.encode().hex()}",
                is_error=False,
                exit_code=0,
                seconds=0,
            )
        )
    text = (tmp_path / "j").read_text()
    assert json.loads(text)["output"] == "token=***\n***"
    assert received == list(read_journal(tmp_path / "j"))
    assert received[0].event.input == {"***": ["***"]}


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_torn_last_line_is_ignored_and_cut_off_when_the_run_goes_on(tmp_path, clock, cut):
    path = tmp_path / "j"
    with JournalFile(path, clock) as journal:
        for event in ALL[:6]:
            journal.append(event)
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    intact = read_journal(path)
    assert len(intact) == (6 if cut == 1 else 5)
    with JournalFile(path, clock) as journal:
        journal.append(NOTE)
    again = read_journal(path)
    assert again[:-1] == intact
    assert again[-1].event == NOTE
    assert again[-1].seq == len(intact) + 1


def test_a_last_line_that_a_dying_machine_filled_with_zeros_counts_as_torn(tmp_path, clock):
    path = tmp_path / "j"
    with JournalFile(path, clock) as journal:
        journal.append(STARTED)
    path.write_bytes(path.read_bytes() + b"\0" * 40 + b"\n")
    assert len(read_journal(path)) == 1
    with JournalFile(path, clock) as journal:
        journal.append(NOTE)
    assert [entry.seq for entry in read_journal(path)] == [1, 2]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"v":1,"seq":1,"t":1,"event":"noted","level":"info","message":"m"}', "line 1 has journal version 1"),
        ('{"seq":1,"t":1,"event":"noted","level":"info","message":"m"}', "line 1 has journal version None"),
        ('{"v":2,"seq":"1","t":1,"event":"noted","level":"info","message":"m"}', "seq must be an integer"),
        ('{"v":2,"seq":1,"t":"now","event":"noted","level":"info","message":"m"}', "seq must be an integer and t"),
        ('{"v":2,"seq":1,"t":1,"event":"noted","level":"info"}', "line 1 is not a journal event: noted.message"),
        ('{"v":2,"seq":1,"t":1,"event":"sang"}', "line 1 is not a journal event"),
        ('{"v":2,"seq":4,"t":1,"event":"noted","level":"info","message":"m"}', "line 1 has number 4"),
    ],
)
def test_a_line_that_does_not_fit_is_refused_with_its_place(tmp_path, line, message):
    path = tmp_path / "j"
    path.write_text(line + "\n")
    with pytest.raises(InputError, match=message):
        read_journal(path)


@pytest.mark.parametrize("line", ["[1]", "7", "{", '{"v":2,"seq":2,"t":1,"eve'])
def test_a_middle_line_that_is_no_object_is_refused_and_named(tmp_path, line):
    path = tmp_path / "j"
    note = '{"v":2,"seq":%d,"t":1,"event":"noted","level":"info","message":"m"}'
    path.write_text("\n".join((note % 1, line, note % 3, "")))
    with pytest.raises(InputError, match=r"j, line 2 is damaged"):
        read_journal(path)


def test_a_missing_journal_is_said_plainly(tmp_path):
    with pytest.raises(InputError, match="There is no journal at"):
        read_journal(tmp_path / "none")


def test_a_folder_in_the_journals_place_is_refused_on_reading_and_writing(tmp_path, clock):
    with pytest.raises(InputError, match="cannot be read"):
        read_journal(tmp_path)
    with pytest.raises(InputError, match="cannot be opened"):
        JournalFile(tmp_path / "no" / "such" / "folder", clock)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody whom a mode keeps out")
def test_a_folder_that_may_not_be_written_is_refused_with_what_to_do(clock):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        os.seteuid(12345)
        try:
            with pytest.raises(InputError, match=r"cannot be opened: Permission denied\. Choose another run folder"):
                JournalFile(Path(folder) / "j", clock)
        finally:
            os.seteuid(0)


def test_a_file_that_is_removed_comes_back_whole_with_the_next_event(tmp_path, clock):
    path = tmp_path / "run" / "j"
    path.parent.mkdir()
    with JournalFile(path, clock) as journal:
        journal.append(STARTED)
        path.unlink()
        path.parent.rmdir()
        journal.append(NOTE)
    assert [(entry.seq, entry.event) for entry in read_journal(path)] == [(1, STARTED), (2, NOTE)]


@contextmanager
def file_size_limit(size: int):
    """The kernel lets this process write no file beyond this size, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("free", [0, 15])
def test_a_full_disk_is_an_error_that_says_what_to_do_and_leaves_a_whole_journal(tmp_path, clock, free):
    path = tmp_path / "j"
    with JournalFile(path, clock) as journal:
        journal.append(NOTE)
        full = path.stat().st_size + free
        with file_size_limit(full), pytest.raises(StepflowError, match=r"cannot be written.*Free space"):
            journal.append(STARTED)
        assert path.stat().st_size == full
        journal.append(NOTE)
    assert [(entry.seq, entry.event) for entry in read_journal(path)] == [(1, NOTE), (2, NOTE)]


def test_a_signal_that_strikes_between_write_and_return_leaves_the_numbers_right(tmp_path, clock):
    """The handler of SIGTERM may raise anywhere; here it does when the line is written but not yet counted."""
    path = tmp_path / "j"

    class Struck(JournalFile):
        strikes = 0

        def __setattr__(self, name, value):
            if name == "_written" and value[0] == 2 and not Struck.strikes:
                Struck.strikes = 1
                raise RunCancelled
            super().__setattr__(name, value)

    with Struck(path, clock) as journal:
        journal.append(STARTED)
        with pytest.raises(RunCancelled):
            journal.append(NOTE)
        journal.append(RunFinished(outcome=Outcome.CANCELLED, stage=Stage.FLOW, reason="r", success=False))
    assert [entry.event.event for entry in read_journal(path)] == ["run_started", "noted", "run_finished"]


def test_a_reader_follows_a_growing_journal(tmp_path, clock):
    path = tmp_path / "j"
    reader = JournalReader(path)
    assert tuple(reader.new_entries()) == ()
    with JournalFile(path, clock) as journal:
        journal.append(STARTED)
        assert [entry.event for entry in reader.new_entries()] == [STARTED]
        journal.append(NOTE)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert tuple(reader.new_entries()) == ()
    path.write_bytes(whole)
    assert [entry.event for entry in reader.new_entries()] == [NOTE]
    assert tuple(reader.new_entries()) == ()


def io_of_this_process() -> dict[str, int]:
    """Bytes and system calls of reading and writing so far, as the kernel counts them."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return {name: int(value) for name, _, value in (line.partition(":") for line in lines)}


def cost_of_a_hundred(journal: JournalFile, path: Path) -> dict[str, int]:
    """What writing a hundred events costs, without what the numbers in them add."""
    journal.append(NOTE)
    size, before = path.stat().st_size, io_of_this_process()
    looking = io_of_this_process()["rchar"] - before["rchar"]
    before = io_of_this_process()
    tracemalloc.start()
    for _ in range(100):
        journal.append(NOTE)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    after = io_of_this_process()
    written = path.stat().st_size - size
    return {
        "read": after["rchar"] - before["rchar"] - looking,
        "written beside the lines": after["wchar"] - before["wchar"] - written,
        "calls that write": after["syscw"] - before["syscw"],
        "KiB of memory": peak // 1024,
    }


def long_journal(path: Path, lines: int) -> None:
    """A journal of so many lines, without the time that writing them one by one takes."""
    frame = '{{"v":2,"seq":{},"t":1.5,"event":"noted","level":"info","message":"m","data":{{}}}}\n'
    path.write_text("".join(frame.format(number) for number in range(1, lines + 1)))


@pytest.mark.whole
def test_event_one_hundred_thousand_costs_what_event_one_hundred_costs(tmp_path, clock):
    costs = []
    for lines in (100, 100_000):
        path = tmp_path / str(lines)
        long_journal(path, lines)
        with JournalFile(path, clock) as journal:
            costs.append(cost_of_a_hundred(journal, path))
    early, late = costs
    assert early["calls that write"] == 100
    assert abs(early.pop("KiB of memory") - late.pop("KiB of memory")) < 16
    assert early == late


@pytest.mark.whole
def test_a_long_journal_is_opened_by_reading_it_once_and_a_line_at_a_time(tmp_path, clock):
    path = tmp_path / "j"
    long_journal(path, 100_000)
    with path.open("ab") as file:
        file.write(b'{"v":2,"seq":100001,"t"')
    list(iter_journal(path))
    before = io_of_this_process()
    tracemalloc.start()
    with JournalFile(path, clock) as journal:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        read = io_of_this_process()["rchar"] - before["rchar"]
        assert journal.append(NOTE).seq == 100_001
    assert peak < 1024 * 1024 < path.stat().st_size
    assert read < 1.1 * path.stat().st_size


def test_listeners_hear_what_is_already_written(tmp_path, clock):
    path = tmp_path / "j"
    with JournalFile(path, clock) as journal:
        seen = []
        Fanout(journal, lambda entry: seen.append(read_journal(path)[-1] == entry)).append(STARTED)
    assert seen == [True]


def test_a_reader_sees_what_replaced_a_torn_line(tmp_path, clock):
    path = tmp_path / "j"
    reader = JournalReader(path)
    with JournalFile(path, clock) as journal:
        journal.append(STARTED)
        journal.append(NOTE)
    path.write_bytes(path.read_bytes()[:-9])
    assert [entry.event for entry in reader.new_entries()] == [STARTED]
    with JournalFile(path, clock) as journal:
        journal.append(replace(NOTE, message="another and longer one"))
    assert [entry.event.message for entry in reader.new_entries()] == ["another and longer one"]


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["length", "lists", "objects"])
def test_a_line_that_no_run_writes_is_refused_before_it_is_read(tmp_path: Path, kind: str) -> None:
    """A few bytes of a forged line take a hundred of memory each."""
    value = {
        "length": lambda: "x" * (33 * 1024 * 1024),
        "lists": lambda: [[]] * 700_000,
        "objects": lambda: {str(number): {} for number in range(400_000)},
    }[kind]()
    path = tmp_path / "journal.jsonl"
    line = {"v": 2, "seq": 1, "t": 0, "event": "noted", "level": "info", "message": "m", "data": {"x": value}}
    for end in ("\n", ""):
        path.write_text(json.dumps(line) + end)
        with pytest.raises(InputError, match=r"line 1 is longer than any run writes"):
            read_journal(path)


def test_a_line_of_many_wrong_values_is_refused_without_looking_at_each(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    line = {"v": 2, "seq": 1, "t": 0, "event": "work_collected", "head_commit": "", "commits": 0, "changes": None}
    path.write_text(json.dumps({**line, "uncommitted": [0] * 50_000, "created_by_checks": []}) + "\n")
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"line 1 is not a journal event: 50,000 of its values do not fit\."):
            read_journal(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
