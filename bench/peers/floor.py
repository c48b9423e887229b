"""The floor: a bare script on the anthropic SDK. The shell is `subprocess`, the prefix is cached automatically.

Takes: the service's address and the folder of the flow. Gives: exit code 0 when every step answered.
May touch: the checkout of the flow, the service.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import anthropic

BASH = {
    "name": "bash",
    "description": "Runs a command in a shell in the repository root and gives its output.",
    "input_schema": {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
        "additionalProperties": False,
    },
}


def main(url: str, folder: Path) -> None:
    """One conversation for each step; a step is told what the one before it said."""
    task = json.loads((folder / "task.json").read_text())
    client = anthropic.Anthropic(api_key="sk-ant-bench", base_url=url)
    before = task["nothing_before"]
    for _ in range(task["steps"]):
        before = run_step(client, task, before, folder / "checkout")["summary"]


def run_step(client: anthropic.Anthropic, task: dict, before: str, checkout: Path) -> dict:
    """Ask until an answer comes without a tool call."""
    messages: list = [{"role": "user", "content": task["prompt"].format(before=before)}]
    while True:
        answer = client.messages.create(
            model=task["model"],
            max_tokens=8000,
            system=task["system"],
            tools=[BASH],
            messages=messages,
            cache_control={"type": "ephemeral"},
            output_config={"format": {"type": "json_schema", "schema": task["schema"]}},
        )
        uses = [block for block in answer.content if block.type == "tool_use"]
        if not uses:
            return json.loads(answer.content[-1].text)
        messages.append({"role": "assistant", "content": answer.content})
        results = [
            {"type": "tool_result", "tool_use_id": use.id, "content": run(use.input["command"], checkout)}
            for use in uses
        ]
        messages.append({"role": "user", "content": results})


def run(command: str, checkout: Path) -> str:
    """What a shell prints."""
    return subprocess.run(["bash", "-c", command], cwd=checkout, capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
