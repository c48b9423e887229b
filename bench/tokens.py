"""What the flows are billed, in tokens and dollars: counted once, since no clock plays a part."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench.billing import Accounts
from bench.compare import ENVIRONMENT, LARGE, RUNNERS, SMALL, command, run_flow
from bench.long import NOTES, WINDOW, bill, make_long_step, run_bare_loop, serve_long
from bench.page import Target, at_most, target_table
from bench.server import serve

#: Twice, beside stepflow: as it caches by itself, and as if everything that was sent once were read from the cache.
FLOOR, PERFECT = "floor", "floor, perfect caching"


class Billed(NamedTuple):
    """Input tokens in units of their price, and dollars."""

    tokens: float
    usd: float

    @classmethod
    def of(cls, accounts: Accounts) -> Billed:
        """What these accounts come to."""
        return cls(accounts.billed, accounts.usd)


def count_tokens() -> tuple[str, str]:
    """A table with a row for each runner, and one of the targets."""
    small, large, long = _count_flow(SMALL), _count_flow(LARGE), _count_long_step()
    head = f"| | {SMALL} steps, tokens | {LARGE} steps, tokens | $ | one step of {NOTES} calls, tokens | $ |"
    lines = [head, "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for name in large:
        step = f"{long[name].tokens:,.0f} | {long[name].usd:.3f}" if name in long else "|"
        lines.append(
            f"| {name} | {small[name].tokens:,.0f} | {large[name].tokens:,.0f} | {large[name].usd:.3f} | {step} |"
        )
    return "\n".join(lines), target_table(_judge(large, long))


def _judge(large: dict[str, Billed], long: dict[str, Billed]) -> list[Target]:
    def beside_floor(figure: str, billed: dict[str, Billed]) -> Target:
        return at_most(figure, billed["stepflow"].tokens / billed[PERFECT].tokens, 1.1, f"× the {PERFECT}")

    window = f"one step of {NOTES} calls, in a window of {WINDOW:,} tokens"
    return [beside_floor(f"{LARGE} steps", large), beside_floor(window, long)]


def _count_flow(steps: int) -> dict[str, Billed]:
    counted = {}
    with serve() as server:
        for runner in RUNNERS:
            run_flow(runner, server, steps)
            if runner == FLOOR:
                counted[PERFECT] = Billed.of(bill(server.bodies, is_perfect=True))
            counted[runner] = Billed.of(server.accounts)
            print(f"{runner}, {steps} steps: {counted[runner].tokens:,.0f} tokens", flush=True)
    return counted


def _count_long_step() -> dict[str, Billed]:
    with tempfile.TemporaryDirectory(prefix="stepflow-bench-") as name:
        folder = Path(name)
        # The tools' user may enter.
        folder.chmod(0o755)
        make_long_step(folder)
        bare = run_bare_loop(folder)
        with serve_long(window=WINDOW) as api:
            words = command("stepflow", api.url, folder)
            subprocess.run(words, env=ENVIRONMENT, cwd=folder, check=True, capture_output=True)
            own = bill(api.bodies)
    accounts = {PERFECT: bill(bare, is_perfect=True), FLOOR: bill(bare), "stepflow": own}
    return {runner: Billed.of(each) for runner, each in accounts.items()}
