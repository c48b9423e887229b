"""pydantic-ai: one agent with a shell tool and a typed output, run once for each step."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from task import KEY, TASK, URL, run_shell


class Answer(BaseModel):
    """What a step found."""

    intent: Literal["next", "repeat"]
    summary: str = Field(description="What was found, in one or two sentences.")


if __name__ == "__main__":
    model = AnthropicModel(TASK["model"], provider=AnthropicProvider(api_key=KEY, base_url=URL))
    agent = Agent(model, system_prompt=TASK["system"], output_type=Answer, model_settings={"max_tokens": 8000})
    agent.tool_plain(name="bash")(run_shell)
    before = TASK["nothing_before"]
    for _ in range(TASK["steps"]):
        before = agent.run_sync(TASK["prompt"].format(before=before)).output.summary
