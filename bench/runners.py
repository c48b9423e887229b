"""Who runs the flow, and with which command.

Takes: the service's address and the folder of a flow. Gives: the words of a command.
May touch: nothing.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PEERS = Path(__file__).parent / "peers"
PEERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
KEY = "sk-ant-bench"


@dataclass(frozen=True, kw_only=True)
class Runner:
    """`package` is the one whose version is shown; `note` stands below the table."""

    name: str
    title: str
    package: str
    program: str = ""
    note: str = ""


RUNNERS = (
    Runner(name="floor", title="the floor", package="anthropic", program="floor.py"),
    Runner(name="stepflow", title="**stepflow**", package="stepflow"),
    Runner(name="pydantic-ai", title="pydantic-ai", package="pydantic-ai-slim", program="pydantic_flow.py"),
    Runner(name="langgraph", title="LangGraph", package="langgraph", program="langgraph_flow.py"),
    Runner(name="claude-agent-sdk", title="claude-agent-sdk", package="claude-agent-sdk", program="claude_agent.py"),
)


def words_of(runner: Runner, url: str, folder: Path) -> list[str]:
    """The command."""
    if runner.program:
        return [str(PEERS_PYTHON), str(PEERS / runner.program), url, str(folder)]
    given = {
        "repo": folder / "checkout",
        "anthropic-base-url": url,
        "run-folder": folder / "run",
        "isolation": "required" if os.getuid() == 0 else "best-effort",
        "boundary": "dry-run",
        "budget-usd": "1000",
    }
    flags = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    return [str(Path(sys.executable).parent / "stepflow"), "run", "bencher", *flags, "--json"]


def environment() -> dict[str, str]:
    """What every run sees of this process's environment."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, "ANTHROPIC_API_KEY": KEY}
