"""The real parts that a run is made of.

Takes: inputs and facts. Gives: options for the toolbox, settings for the boundary, the resolver of loaded schemas.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.boundary.settings import BoundarySettings
from stepflow.domain.words import Provider, StructuredOutput
from stepflow.sandbox.options import ToolboxOptions

if TYPE_CHECKING:
    from stepflow.domain.definition import Step
    from stepflow.domain.json import JsonObject
    from stepflow.run.inputs import Inputs
    from stepflow.run.request import RunRequest


class LoadedSchemas:
    """Gives each step the schema that was resolved at load: nothing on disk can change it any more."""

    def resolve(self, step: Step) -> JsonObject | None:
        """The step's own answer schema."""
        return step.schema


def structured_output_of(inputs: Inputs) -> StructuredOutput:
    """How the model is asked for structured output. A scripted one heeds its scenario alone: nothing is found out."""
    given = inputs.structured_output
    is_scripted = inputs.provider is Provider.SCRIPTED
    return StructuredOutput.NATIVE if given is StructuredOutput.AUTO and is_scripted else given


def toolbox_options(request: RunRequest) -> ToolboxOptions:
    """What the inputs say about the sandbox."""
    inputs, environment = request.inputs, request.environment
    passed = {name: environment[name] for name in inputs.pass_env if name in environment}
    return ToolboxOptions(
        isolation=inputs.isolation, network=inputs.network, pass_env=passed, home_programs=bool(inputs.setup)
    )


def boundary_settings(request: RunRequest) -> BoundarySettings:
    """What the inputs and the event say about writing."""
    inputs, trigger = request.inputs, request.trigger
    return BoundarySettings(
        repository=request.repository,
        actor=trigger.actor,
        actor_is_bot=trigger.actor_is_bot,
        server_url=inputs.github_server_url,
        api_url=inputs.github_api_url,
        label_prefix=inputs.label_prefix,
        trigger_label=inputs.trigger_label,
        started_by_label=trigger.label,
        min_permission=inputs.min_permission,
        allow_bots=inputs.allow_bots,
        base_branch=inputs.base_branch,
        branch_prefix=inputs.branch_prefix,
        draft=inputs.draft,
        allowed_link_hosts=inputs.allowed_link_hosts,
        report_failures=inputs.report_failures,
        on_failure=inputs.on_failure,
        issue_text_from_event=trigger.issue is not None,
    )
