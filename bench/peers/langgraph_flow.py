"""LangGraph with langchain-anthropic: a graph of model and tools, run once for each step."""

from __future__ import annotations

import json

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from task import KEY, TASK, URL, run_shell

if __name__ == "__main__":
    bash = tool("bash")(run_shell)
    model = ChatAnthropic(
        model=TASK["model"],
        api_key=KEY,
        base_url=URL,
        max_tokens=8000,
        output_config={"format": {"type": "json_schema", "schema": TASK["schema"]}},
    ).bind_tools([bash])
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([bash]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    step = graph.compile()
    before = TASK["nothing_before"]
    for _ in range(TASK["steps"]):
        opening = [SystemMessage(TASK["system"]), HumanMessage(TASK["prompt"].format(before=before))]
        answer = step.invoke({"messages": opening}, {"recursion_limit": 50})["messages"][-1]
        before = json.loads(answer.text)["summary"]
