"""claude-agent-sdk, which drives Claude Code: one query for each step, with its structured output.

Takes: the service's address and the folder of the flow, and optionally `bash-only`. Gives: exit code 0 when every step
answered. May touch: the checkout of the flow, the service, a home of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query


async def main(url: str, folder: Path, mode: str) -> None:
    """One query for each step, with the tools that the program has by itself, or with the shell alone."""
    task = json.loads((folder / "task.json").read_text())
    home = folder / "home"
    home.mkdir(exist_ok=True)
    options = ClaudeAgentOptions(
        tools=["Bash"] if mode == "bash-only" else {"type": "preset", "preset": "claude_code"},
        allowed_tools=["Bash"],
        system_prompt={"type": "preset", "preset": "claude_code", "append": task["system"]}
        if mode != "bash-only"
        else task["system"],
        permission_mode="acceptEdits",
        cwd=folder / "checkout",
        model=task["model"],
        setting_sources=[],
        output_format={"type": "json_schema", "schema": task["schema"]},
        env={
            "HOME": str(home),
            "ANTHROPIC_API_KEY": "sk-ant-bench",
            "ANTHROPIC_BASE_URL": url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
    )
    before = task["nothing_before"]
    for _ in range(task["steps"]):
        before = await run_step(options, task["prompt"].format(before=before))


async def run_step(options: ClaudeAgentOptions, prompt: str) -> str:
    """The summary of one step."""
    result = None
    async for message in query(prompt=prompt, options=options):
        if isinstance(message, ResultMessage):
            result = message
    if result is None or not result.structured_output:
        raise SystemExit(f"no structured answer came: {result}")
    return str(result.structured_output["summary"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), (sys.argv[3:] or ["whole"])[0]))
