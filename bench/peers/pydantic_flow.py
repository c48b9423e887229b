"""pydantic-ai: one agent with a shell tool and a typed output, run once for each step.

Takes: the service's address and the folder of the flow. Gives: exit code 0 when every step answered.
May touch: the checkout of the flow, the service.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider


class NextAction(BaseModel):
    """What shall happen next."""

    action: Literal["next", "repeat"]
    reason: str = Field(description="Why.")


class Answer(BaseModel):
    """What a step found."""

    stepId: str
    summary: str = Field(description="What was found, in one or two sentences.")
    next_action: NextAction


def main(url: str, folder: Path) -> None:
    """Run the agent once for each step."""
    task = json.loads((folder / "task.json").read_text())
    model = AnthropicModel(task["model"], provider=AnthropicProvider(api_key="sk-ant-bench", base_url=url))
    agent = Agent(model, system_prompt=task["system"], output_type=Answer, model_settings={"max_tokens": 8000})

    @agent.tool_plain
    def bash(command: str) -> str:
        """Runs a command in a shell in the repository root and gives its output."""
        words = ["bash", "-c", command]
        return subprocess.run(words, cwd=folder / "checkout", capture_output=True, text=True, check=False).stdout

    before = task["nothing_before"]
    for _ in range(task["steps"]):
        before = agent.run_sync(task["prompt"].format(before=before)).output.summary


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
