"""A run at a terminal of 80 columns: what stands on it while the run goes on, and what is left at the end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stepflow.report.safe_text import width
from tests.cli.terminal import at_terminal

COLUMNS = 80
WORDS = "最初に、何が壊れているかを見ます。日本語のとても長い文章がここに続きますので、八十列の端末では折り返します。"
LONG = "echo " + "a command that is much longer than a line, " * 2
SCENARIO = f"""
turns:
  - text: {WORDS}
    tools:
      - bash: {{ command: "sleep 1.5" }}
      - bash: {{ command: "{LONG}" }}
  - error: {{ status: 529 }}
  - text: "no JSON"
"""
CONTROL = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")


class Screen:
    """The few things that a progress display does to a terminal. A line of any length fits: the test asks for that."""

    def __init__(self) -> None:
        self.lines, self.row, self.column = [""], 0, 0
        self.frames: list[str] = []

    def take(self, written: str) -> None:
        """Show what was written; what stands there before something is erased is a frame that somebody saw."""
        at = 0
        while at < len(written):
            control = CONTROL.match(written, at)
            if control:
                self._obey(control[1], control[2])
                at = control.end()
            else:
                self._put(written[at])
                at += 1

    def _obey(self, number: str, command: str) -> None:
        match command:
            case "A":
                self.row -= int(number or 1)
            case "K":
                self.frames.append("\n".join(self.lines))
                self.lines[self.row] = ""
            case "m" | "h" | "l":
                pass
            case _:
                raise AssertionError(f"the screen does not know {number}{command}")

    def _put(self, character: str) -> None:
        match character:
            case "\r":
                self.column = 0
            case "\n":
                self.row += 1
                self.lines += [""] * (self.row + 1 - len(self.lines))
            case _:
                line = self.lines[self.row]
                self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
                self.column += 1


@pytest.mark.whole
def test_a_run_at_a_terminal_shows_what_it_does_just_now_and_leaves_only_its_log(checkout: Path) -> None:
    (checkout.parent / "scenario.yaml").write_text(SCENARIO)
    scenario = ("--scenario", str(checkout.parent / "scenario.yaml"))
    folder = str(checkout.parent / "run")
    words = ("run", "fixer", "--issue", "7", "--repo", str(checkout), *scenario, "--run-folder", folder)
    written = at_terminal(*words, code=None)
    screen = Screen()
    screen.take(written)
    screen_text = "\n".join(screen.lines)
    # While it goes on: the tool and its seconds, and the limits below.
    frame = next(frame for frame in screen.frames if re.search(r"· \d s · bash sleep 1\.5", frame))
    assert "✓ bash sleep" not in frame
    assert re.search(r"\n  iteration 1 of \d+ · \$0\.00 of \$5\.00 · 0 tokens · 0\.\d of 50 min\s*$", frame)
    assert any(frame.count(WORDS[:20]) == 2 for frame in screen.frames), "the last words stay in sight"
    assert not any(re.search(r"✓ bash sleep.*· bash sleep", frame, re.DOTALL) for frame in screen.frames)
    # At the end: each line once, none broken by the terminal, the cursor back, nothing of the display.
    assert screen_text.count("✓ bash sleep 1.5") == screen_text.count(WORDS[:20]) == 1
    assert [line for line in screen.lines if width(line) > COLUMNS and "/" not in line] == []
    assert "\n    much longer than a line" in screen_text or re.search(r"\n    \S.*\(exit 0", screen_text)
    assert not re.search("[⠀-⣿]", screen_text)
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")


@pytest.mark.whole
def test_no_color_takes_the_colors_and_leaves_the_display(checkout: Path) -> None:
    (checkout.parent / "scenario.yaml").write_text(SCENARIO.replace("sleep 1.5", "true"))
    scenario = ("--scenario", str(checkout.parent / "scenario.yaml"))
    folder = str(checkout.parent / "run")
    words = ("run", "fixer", "--issue", "7", "--repo", str(checkout), *scenario, "--run-folder", folder)
    written = at_terminal(*words, code=None, NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9][0-9;]*m", written)
    assert "\x1b[2K" in written
    # The folder of a run that is over, with nothing that moves.
    again = at_terminal("show", folder, NO_COLOR="1")
    assert "\x1b[2K" not in again
    assert "✓ bash true (exit 0" in again
