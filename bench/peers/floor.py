"""The floor: a bare script on the anthropic SDK. The shell is `subprocess`, the prefix is cached automatically."""

from __future__ import annotations

import json

import anthropic
from task import KEY, TASK, URL, run_shell

BASH = {
    "name": "bash",
    "description": run_shell.__doc__,
    "input_schema": {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    },
}


def run_step(client: anthropic.Anthropic, before: str) -> str:
    """Ask until an answer comes without a tool call; its summary."""
    messages: list = [{"role": "user", "content": TASK["prompt"].format(before=before)}]
    while True:
        answer = client.messages.create(
            model=TASK["model"],
            max_tokens=8000,
            system=TASK["system"],
            tools=[BASH],
            messages=messages,
            cache_control={"type": "ephemeral"},
            output_config={"format": {"type": "json_schema", "schema": TASK["schema"]}},
        )
        uses = [block for block in answer.content if block.type == "tool_use"]
        if not uses:
            return json.loads(answer.content[-1].text)["summary"]
        results = [
            {"type": "tool_result", "tool_use_id": use.id, "content": run_shell(use.input["command"])} for use in uses
        ]
        messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]


if __name__ == "__main__":
    client = anthropic.Anthropic(api_key=KEY, base_url=URL)
    before = TASK["nothing_before"]
    for _ in range(TASK["steps"]):
        before = run_step(client, before)
