"""What the report of a check-dialect run tells, step by step, as S2's example prints it."""

from __future__ import annotations

from pathlib import Path

from tests.runs.played_run import RUNS, play_case


def test_the_history_has_each_checks_result_and_what_followed(tmp_path: Path) -> None:
    report = play_case(RUNS / "check-fails-falls-back-and-closes", tmp_path).result.report
    checks = [
        f"{line.step_id}: {line.transition} ({line.check_result.result}: {line.check_result.message})"
        for line in report.history
        if line.check_result
    ]
    assert checks == [
        "s_a8f3: retry (ng: It names no cause.)",
        "s_a8f3: next (ok: )",
        "s_b2c1: fallback (ng: Nothing was changed.)",
        "s_a8f3: next (ok: )",
        "s_b2c1: next (ok: )",
        "s_c9d4: complete (ok: All of it.)",
        "s_c9d4: complete (ok: hello.txt greets the world.)",
    ]
    assert (report.dialect, report.final_step_id, report.iterations) == ("check", "s_c9d4", 7)
    assert [line.format_retries for line in report.history] == [0] * 7
