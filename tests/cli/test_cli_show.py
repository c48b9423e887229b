"""`stepflow show`: a run folder as a timeline, of a run that is over, that goes on, or whose process is gone."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from stepflow.cli import main
from stepflow.domain.event import Event
from stepflow.journal import JournalFile
from stepflow.run.clock import SystemClock
from tests.report.every_event import EVENTS, hostile_copy
from tests.report.hostile import PIECES, obeyed
from tests.report.plausible_run import BEGAN, TIMED
from tests.servers.collector import CollectorServer, accept
from tests.servers.loopback import Handler
from tests.servers.private_network import closed_port

STEPFLOW = [sys.executable, "-I", "-m", "stepflow"]


class PlayedClock(SystemClock):
    """The times of a run that was."""

    def __init__(self) -> None:
        super().__init__()
        self.at = BEGAN

    def now(self) -> float:
        return self.at


def written(folder: Path, events: list[tuple[float, Event]]) -> JournalFile:
    """A run folder with these events, still open."""
    folder.mkdir()
    clock = PlayedClock()
    journal = JournalFile(folder / "journal.jsonl", clock)
    for seconds, event in events:
        clock.at += seconds
        journal.append(event)
    return journal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a run that completed."""
    written(tmp_path / "run", list(TIMED)).close()
    return tmp_path / "run"


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command prints."""
    assert main(["show", *words]) == 0
    return capsys.readouterr().out


def test_a_run_that_is_over_is_told_from_its_start_to_what_to_do_next(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = shown(capsys, str(folder))
    lines = output.splitlines()
    at = [
        next(number for number, line in enumerate(lines) if words in line)
        for words in (
            "Agent fixer on octo/parser#7",
            "Iteration 1 of 10 · initial.issue (work)",
            "✗ bash python -m pytest -q … (exit 1, 1.3 s)",
            "intent next: The empty line is the cause",
            "→ continuation.issue",
            "waiting 5 s for the model",
            "✗ git-clean failed, attempt 1 of 3 → retry",
            "not done: back to continuation.issue with this retry prompt",
            "Iteration 5 of 10 · closure.issue (closure)",
            "✓ type-check",
            "✓ open_pull_request applied: https://github.com/octo/parser/pull/8",
            "✓ completed: The parser accepts empty lines and the tests pass",
            "  run folder",
            "  next",
        )
    ]
    assert at == sorted(at)
    assert sum("completed:" in line for line in lines) == 1
    assert "\x1b" not in output
    assert "$0.0" in output


def test_the_newest_iterations_are_told_whole_and_the_others_counted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = shown(capsys, str(folder), "--last", "2")
    assert "Agent fixer on octo/parser#7" in output
    assert "… 3 earlier iterations left out; `--all` shows them too" in output
    assert "Iteration 3 of 10" not in output
    assert "Iteration 4 of 10" in output
    progress = [line.strip() for line in shown(capsys, str(folder), "--all").splitlines() if " tokens · " in line]
    assert [line for line in progress if line.startswith("iteration ")] == progress[:5]
    assert all(line in output for line in progress[3:])


def test_json_is_the_report_and_nothing_else(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(shown(capsys, str(folder), "--json"))
    assert (report["outcome"], report["iterations"], report["run_folder"]) == ("completed", 5, str(folder))
    assert [line["step"] for line in report["history"]][:2] == ["initial.issue", "continuation.issue"]


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        pytest.param("RUNNER_TEMP", "stepflow", id="in a job"),
        pytest.param("TMPDIR", f"stepflow-{os.geteuid()}", id="on a machine of several people"),
    ],
)
def test_without_a_folder_the_last_run_of_this_user_is_shown(
    variable: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUNNER_TEMP", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv(variable, str(tmp_path))
    assert main(["show"]) == 2
    assert "There is no run in" in capsys.readouterr().err
    runs = tmp_path / name
    runs.mkdir()
    for number, run in enumerate(("older", "newer")):
        written(runs / run, list(TIMED)).close()
        os.utime(runs / run / "journal.jsonl", (number, number))
    assert json.loads(shown(capsys, "--json"))["run_folder"] == str(runs / "newer")


def test_a_run_that_goes_on_is_not_told_as_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with written(tmp_path / "run", list(TIMED[:12])):
        output = shown(capsys, str(tmp_path / "run"))
    assert output.splitlines()[-1] == "The run is still in progress. `--follow` shows it until it ends."
    assert output.splitlines()[-2].startswith("iteration 2 of 10 · $")
    assert "cancelled" not in output


@pytest.mark.parametrize("flags", [(), ("--follow",)])
def test_a_run_whose_process_is_gone_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    written(tmp_path / "run", list(TIMED[:12])).close()
    output = shown(capsys, str(tmp_path / "run"), *flags)
    assert "No end was written: the process that ran it is gone." in output
    assert "■ canceled (cancelled): the journal ends here" in output
    assert f"To continue where the run stopped: `stepflow resume {tmp_path / 'run'}`." in " ".join(output.split())


@pytest.mark.whole
def test_followed_a_run_is_shown_as_it_grows_and_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepflow.cli.show.POLL_SECONDS", 0.01)
    journal = written(tmp_path / "run", list(TIMED[:12]))
    printed = threading.Event()
    monkeypatch.setattr("stepflow.cli.show.show_lines", lambda _, lines: (print(*lines, sep="\n"), printed.set()))

    def go_on() -> None:
        with journal:
            for _, event in TIMED[12:]:
                printed.clear()
                journal.append(event)
                printed.wait(0.02)

    writer = threading.Thread(target=go_on)
    writer.start()
    output = shown(capsys, str(tmp_path / "run"), "--follow")
    writer.join()
    assert [f"Iteration {number} of 10" in output for number in range(1, 6)] == [True] * 5
    assert output.count("✓ open_pull_request applied") == 1
    assert "✓ completed: The parser accepts empty lines" in output
    assert "No end was written" not in output


KILLED = """
import sys, time
from pathlib import Path
from tests.cli.test_cli_show import written
from tests.report.plausible_run import TIMED
journal = written(Path(sys.argv[1]), list(TIMED[:12]))
print("open", flush=True)
time.sleep(60)
"""


@pytest.mark.whole
def test_followed_a_run_that_is_killed_ends_with_that_news(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    words = [sys.executable, "-c", KILLED, str(tmp_path / "run")]
    with subprocess.Popen(words, cwd=root, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "open\n"
        words = [*STEPFLOW, "show", "--follow", str(tmp_path / "run")]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as show:
            assert show.stdout is not None
            assert show.stdout.readline().startswith("Agent fixer")
            assert show.poll() is None
            run.send_signal(signal.SIGKILL)
            run.wait(10)
            output, _ = show.communicate(timeout=10)
    assert show.returncode == 0
    assert "No end was written" in output


def test_hostile_text_is_shown_and_not_obeyed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examples = ("iteration", "warning", "tool with an exit code")
    events = [(0.1, hostile_copy(EVENTS[name], f"{piece}text")) for piece in PIECES for name in examples]
    written(tmp_path / "run", [TIMED[0], *events]).close()
    output = shown(capsys, str(tmp_path / "run"))
    assert obeyed(output) == []
    assert "\x1b" not in output


@pytest.mark.parametrize(
    ("variables", "colored"), [({"FORCE_COLOR": "1"}, True), ({"NO_COLOR": "1"}, False), ({}, False)]
)
def test_lines_have_colors_only_where_they_are_wanted(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    colored: bool,
) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    # A dumb terminal has no colors, whatever is asked for.
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in shown(capsys, str(folder))) == colored


def test_a_folder_without_a_journal_is_told_plainly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(tmp_path)]) == 2
    assert f"There is no journal at {tmp_path}/journal.jsonl." in capsys.readouterr().err


def test_a_journal_of_another_version_is_told_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "journal.jsonl").write_text('{"v":1,"seq":1,"t":1,"event":"noted","level":"info","message":"m"}\n')
    assert main(["show", str(tmp_path)]) == 2
    assert "this stepflow reads version 2. Use the stepflow release that wrote" in capsys.readouterr().err


@pytest.mark.whole
def test_html_has_the_picture_where_the_definition_is_the_runs_own(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted = ["--scenario", str(checkout.parent / "scenario.yaml"), "--issue", "7"]
    run, page = checkout.parent / "run", checkout.parent / "page.html"
    assert main(["run", "fixer", *scripted, "--run-folder", str(run)]) == 0
    capsys.readouterr()
    assert main(["show", str(run), "--html", str(page)]) == 0
    assert capsys.readouterr().err == f"{page}\n"
    assert "<svg" in page.read_text(encoding="utf-8")
    registry = checkout / ".agent/fixer/steps_registry.json"
    registry.write_text(registry.read_text() + "\n")
    assert main(["show", str(run), "--html", str(page)]) == 0
    assert capsys.readouterr().err.startswith(f"{page} (no picture: ")
    assert "<svg" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("number", ["0", "-3", "many"])
def test_a_number_of_iterations_that_is_none_is_told_in_plain_words(
    folder: Path, capsys: pytest.CaptureFixture[str], number: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["show", str(folder), "--last", number])
    assert ended.value.code == 2
    output = capsys.readouterr().err
    assert f"argument --last: '{number}' is not a number of iterations; give 1 or more" in output
    assert "_positive" not in output


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("no/run.jsonl", "The file no/run.jsonl cannot be written: No such file or directory."),
        (
            "https://ann:secret@collector.example",
            "telemetry.endpoint: 'collector.example' cannot be used: it carries a user",
        ),
    ],
)
def test_a_place_for_the_telemetry_that_cannot_be_used_is_told_plainly(
    folder: Path, capsys: pytest.CaptureFixture[str], target: str, said: str
) -> None:
    assert main(["show", str(folder), "--otlp", target]) == 2
    assert said in capsys.readouterr().err


def test_a_run_that_never_began_has_no_telemetry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "run", []).close()
    assert main(["show", str(tmp_path / "run"), "--otlp", str(tmp_path / "run.jsonl")]) == 2
    assert "never began" in capsys.readouterr().err


@pytest.mark.whole
def test_a_collector_that_is_not_there_is_told_plainly(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    assert main(["show", str(folder), "--otlp", url]) == 1
    assert (
        f"The run could not be sent to {url}: it could not be reached (Connection refused)." in capsys.readouterr().err
    )


def test_its_own_process_is_closed_before_anything_is_sent(folder: Path) -> None:
    """A closed process writes no core file; this one may, until then."""
    limits = []

    def look(handler: Handler, number: int) -> None:
        limits.append(resource.prlimit(process.pid, resource.RLIMIT_CORE)[0])
        accept(handler, number)

    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    begin = f"import resource, runpy; resource.setrlimit(resource.RLIMIT_CORE, ({most}, {most}))"
    words = [sys.executable, "-c", f"{begin}; runpy.run_module('stepflow', run_name='__main__')"]
    with CollectorServer(look) as collector:
        process = subprocess.Popen([*words, "show", str(folder), "--otlp", collector.url])
        assert process.wait(timeout=60) == 0
    assert limits == [0, 0]


def test_a_process_that_calls_it_stays_open(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/somewhere:" + os.environ["PATH"])
    with CollectorServer() as collector:
        assert main(["show", str(folder), "--otlp", collector.url]) == 0
    assert os.environ["PATH"].startswith("/somewhere:")
