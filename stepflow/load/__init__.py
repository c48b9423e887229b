"""Is this agent sound: folder in, `AgentDefinition` or all problems out (house.md "Rooms").

Takes: an agent folder or name. Gives: the loaded agent, its problems, and the check of run arguments against it.
May touch: reads the agent folder, once.
"""

from stepflow.load.arguments import check_arguments
from stepflow.load.loading import inspect_agent, load_agent, validate_agent
from stepflow.load.locate import find_agents, find_folders
from stepflow.load.rules import rules
from stepflow.load.suggest import meant

__all__ = [
    "check_arguments",
    "find_agents",
    "find_folders",
    "inspect_agent",
    "load_agent",
    "meant",
    "rules",
    "validate_agent",
]
