"""stepflow: runs AI agents on a repository's issues, one declared step at a time."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepflow.definition.loading import load_agent, validate_agent
    from stepflow.domain.agent.definition import AgentDefinition
    from stepflow.domain.event import Entry
    from stepflow.domain.reports.report import AgentResult, HistoryEntry, RunReport
    from stepflow.domain.run import Limits
    from stepflow.domain.words import Outcome
    from stepflow.errors import DefinitionError, Problem, StepflowError
    from stepflow.model.anthropic_model import AnthropicModel
    from stepflow.model.scenario import ScriptedModel
    from stepflow.run.runner import Boundary, StepFlowRunner
    from stepflow.run.scenarios import load_scenario
    from stepflow.sandbox.box import Toolbox
    from stepflow.sandbox.isolation import ToolboxOptions

__all__ = [
    "AgentDefinition",
    "AgentResult",
    "AnthropicModel",
    "Boundary",
    "DefinitionError",
    "Entry",
    "HistoryEntry",
    "Limits",
    "Outcome",
    "Problem",
    "RunReport",
    "ScriptedModel",
    "StepFlowRunner",
    "StepflowError",
    "Toolbox",
    "ToolboxOptions",
    "load_agent",
    "load_scenario",
    "validate_agent",
]

_ROOMS = {
    "stepflow.domain.agent.definition": ("AgentDefinition",),
    "stepflow.domain.event": ("Entry",),
    "stepflow.domain.reports.report": ("AgentResult", "HistoryEntry", "RunReport"),
    "stepflow.domain.run": ("Limits",),
    "stepflow.domain.words": ("Outcome",),
    "stepflow.errors": ("DefinitionError", "Problem", "StepflowError"),
    "stepflow.model.anthropic_model": ("AnthropicModel",),
    "stepflow.run.scenarios": ("load_scenario",),
    "stepflow.model.scenario": ("ScriptedModel",),
    "stepflow.definition.loading": ("load_agent", "validate_agent"),
    "stepflow.run.runner": ("Boundary", "StepFlowRunner"),
    "stepflow.sandbox.box": ("Toolbox",),
    "stepflow.sandbox.isolation": ("ToolboxOptions",),
}


def __getattr__(name: str) -> object:
    """A name of the API, from the room that has it."""
    module = next((module for module, names in _ROOMS.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'stepflow' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    """What completion offers."""
    return sorted({*globals(), *__all__})
