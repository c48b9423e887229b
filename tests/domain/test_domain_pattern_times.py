"""No pattern of ours takes time that grows with the square of somebody's text, also none that is added later."""

from __future__ import annotations

import time

from tests.patterns import Used, collect_patterns, pumps

#: The length of a text of short units, and how often a long unit is repeated at least.
LENGTH, REPEATED = 3_000, 250
#: A pattern that takes less for such a text is linear or nearly so.
SECONDS = 0.006
#: A square takes 16 times as long for four times the text.
TIMES, MOST = 4, 8

#: Patterns that read only what nobody else writes.
OWN = {"stepflow.sandbox.child.processes._STATUS": "the kernel writes it, and escapes names"}


def seconds(used: Used, text: str) -> float:
    begun = time.process_time()
    used.read(text)
    return time.process_time() - begun


def is_slow(used: Used, begin: str, unit: str, end: str) -> bool:
    def best(repeated: int) -> float:
        text = begin + unit * repeated + end
        return min(seconds(used, text) for _ in range(3))

    repeated = max(LENGTH // len(unit), REPEATED)
    # A short text first: a cube of the others takes very long.
    if seconds(used, begin + unit * (repeated // 10) + end) > SECONDS and best(repeated // 10) > SECONDS:
        return True
    is_long = seconds(used, begin + unit * repeated + end) > SECONDS and (short := best(repeated)) > SECONDS
    return is_long and best(repeated * TIMES) > MOST * short


def test_every_pattern_reads_every_text_in_linear_time() -> None:
    patterns, _ = collect_patterns()
    assert {"stepflow.engine.gate.FENCE", "stepflow.engine.extract.FAILED_TESTS"} <= {each.place for each in patterns}
    slow = {
        f"{used.place} ({', '.join(sorted(used.methods))}): {begin!r}, many {unit!r}, {end!r}"
        for used in patterns
        if used.place not in OWN
        for begin, unit, end in pumps(used.pattern)
        if is_slow(used, begin, unit, end)
    }
    assert slow == set()
    assert OWN.keys() <= {each.place for each in patterns}
