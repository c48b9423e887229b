"""`make bench`: measure everything and write the tables of bench/README.md; `make bench-tokens` only what is billed."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from bench.alone import measure_alone
from bench.compare import PEERS_PYTHON, ROOT, compare
from bench.flows import MODEL
from bench.page import comparison, judge, replace_tables, target_table
from bench.tokens import count_tokens

PAGE = ROOT / "bench" / "README.md"
PACKAGES = ("anthropic", "pydantic-ai-slim", "langgraph", "langchain-anthropic")


def main() -> None:
    """Measure as many runs of each as the first argument says, none for what is billed alone; write the tables."""
    runs = int(sys.argv[1])
    page = PAGE.read_text()
    if runs:
        facts = _describe_bench(runs)
        compared = compare(runs)
        print(comparison(compared), flush=True)
        targets = target_table(judge(compared) + measure_alone())
        print(targets, flush=True)
        page = replace_tables(page, "bench", "\n\n".join((facts, comparison(compared), targets)))
    tokens = "\n\n".join((_describe_tokens(), *count_tokens()))
    print(tokens)
    PAGE.write_text(replace_tables(page, "bench-tokens", tokens))


def _describe_bench(runs: int) -> str:
    """When, on what machine, beside what, of which versions."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    processor = next((line.partition(":")[2].strip() for line in info if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    program = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    numbers = _output(str(PEERS_PYTHON), "-c", program, *PACKAGES).split()
    versions = [f"Python {platform.python_version()}"]
    versions += [f"{name} {number}" for name, number in zip(PACKAGES, numbers, strict=True)]
    return (
        f"Measured on {_today()} with `make bench`: medians of {runs} runs of each, "
        f"in turn, on {os.cpu_count()} cores of {processor}, {memory:.0f} GB, Linux {platform.release()}, under a load "
        f"of {os.getloadavg()[1]:.1f} before it began. Versions: {', '.join((_describe_commit(), *versions))}."
    )


def _describe_tokens() -> str:
    prices = f"genai-prices {version('genai-prices')}"
    return f"Counted on {_today()} with `make bench-tokens`, for {MODEL} by {prices}: {_describe_commit()}."


def _describe_commit() -> str:
    return f"stepflow {version('stepflow')} ({_output('git', 'describe', '--always', '--dirty').strip()})"


def _today() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"


def _output(*words: str) -> str:
    return subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
