"""What bounds an agent that anybody may start (SF215)."""

from __future__ import annotations

from collections.abc import Iterable

from stepflow.definition.agent import Agent, own_models
from stepflow.definition.diagnostics import FileProblems, listed
from stepflow.definition.file_models import StepEntry, StepSettings
from stepflow.definition.parsing import Pointer
from stepflow.definition.steps import Node
from stepflow.domain.agent.tools import READ_ONLY_TOOLS
from stepflow.domain.effect import AllowedEffect
from stepflow.domain.words import Network, PermissionMode

CODE = "SF215"
_BOUNDARIES = Pointer("/runner/boundaries")
_GITHUB = Pointer("/runner/integrations/github")
#: The effects that a stranger may cause.
_EFFECTS = (AllowedEffect.COMMENT, AllowedEffect.LABELS)
_WHY = "anyone may start this agent"


def check_bounds(agent: Agent, nodes: Iterable[Node[StepSettings]], problems: FileProblems) -> None:
    """Report each bound that agent.json, or a step of the registry, lacks."""
    if agent.file.started_by:
        _check_agent(agent)
        _check_steps(agent, nodes, problems)


def _check_agent(agent: Agent) -> None:
    boundaries, github = agent.runner.boundaries, agent.runner.integrations.github

    def report(at: str, message: str, fix: str) -> None:
        if not agent.problems.at(at):
            agent.problems.add(CODE, at, f"{_WHY}, but {message}", fix)

    if boundaries.network is not Network.NONE:
        report(_BOUNDARIES / "network", "its tools may reach the network", 'Write "network": "none".')
    if boundaries.budget_usd is None:
        report(_BOUNDARIES / "budgetUsd", "a run has no budget of its own", 'Write for example "budgetUsd": 0.05.')
    if others := [effect for effect in github.allowed_effects if effect not in _EFFECTS]:
        report(
            _GITHUB / "allowedEffects",
            f"it may cause {listed(others)}",
            'Write "allowedEffects": ["comment", "labels"], or one of the two.',
        )
    if AllowedEffect.LABELS not in github.allowed_effects:
        return
    if not github.allowed_labels:
        report(
            _GITHUB / "allowedLabels", "no list says which labels it may change", "List the labels that it may change."
        )
    elif wide := [label for label in github.allowed_labels if not label.strip("*?")]:
        report(_GITHUB / "allowedLabels", f"{listed(wide)} stands for any label", "List the labels by their names.")


def _check_steps(agent: Agent, nodes: Iterable[Node[StepSettings]], problems: FileProblems) -> None:
    """Report each step that has a tool which can write, or no model of its own."""
    boundaries = agent.runner.boundaries
    for node in nodes:
        entry = node.entry
        if isinstance(entry, StepEntry) and entry.runner is not None:
            continue
        if (entry.permission_mode or boundaries.permission_mode) is not PermissionMode.PLAN:
            tools = entry.tools if entry.tools is not None else boundaries.allowed_tools
            writing = ["all tools"] if tools is None else [tool for tool in tools if tool not in READ_ONLY_TOOLS]
            if writing:
                problems.report(
                    CODE,
                    node.at / ("tools" if entry.tools is not None else "permissionMode"),
                    f"{_WHY}, but the step may use {listed(writing) if tools else writing[0]}, which can write",
                    'Write "permissionMode": "plan", or name only tools that read in "tools".',
                )
        if not own_models(entry):
            problems.report(
                CODE,
                node.at / "model",
                f"{_WHY}, but the step names no model of its own, so the input `model` decides what it costs",
                'Name the model that suffices, for example "model": "haiku".',
            )
