"""LangGraph with langchain-anthropic: a graph of model and tools for each step, one after the other in a larger one.

Takes: the service's address and the folder of the flow. Gives: exit code 0 when every step answered.
May touch: the checkout of the flow, the service.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


class Flow(TypedDict):
    """What passes from step to step."""

    before: str


def main(url: str, folder: Path) -> None:
    """Build the graphs and run them."""
    task = json.loads((folder / "task.json").read_text())

    @tool
    def bash(command: str) -> str:
        """Runs a command in a shell in the repository root and gives its output."""
        words = ["bash", "-c", command]
        return subprocess.run(words, cwd=folder / "checkout", capture_output=True, text=True, check=False).stdout

    model = ChatAnthropic(
        model=task["model"],
        api_key="sk-ant-bench",
        base_url=url,
        max_tokens=8000,
        output_config={"format": {"type": "json_schema", "schema": task["schema"]}},
    ).bind_tools([bash])
    agent = StateGraph(MessagesState)
    agent.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    agent.add_node("tools", ToolNode([bash]))
    agent.add_edge(START, "model")
    agent.add_conditional_edges("model", tools_condition)
    agent.add_edge("tools", "model")
    step = agent.compile()

    def run_step(state: Flow) -> Flow:
        opening = [SystemMessage(task["system"]), HumanMessage(task["prompt"].format(before=state["before"]))]
        said = step.invoke({"messages": opening}, {"recursion_limit": 50})["messages"][-1]
        return {"before": json.loads(said.text)["summary"]}

    flow = StateGraph(Flow)
    names = [f"step{number}" for number in range(1, task["steps"] + 1)]
    for name, source in zip(names, [START, *names], strict=False):
        flow.add_node(name, run_step)
        flow.add_edge(source, name)
    flow.add_edge(names[-1], END)
    flow.compile().invoke({"before": task["nothing_before"]}, {"recursion_limit": task["steps"] + 5})


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
