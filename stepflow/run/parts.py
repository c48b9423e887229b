"""The real parts that a run is made of."""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast

from stepflow.boundary.settings import BoundarySettings
from stepflow.domain.event import RunStarted
from stepflow.domain.words import Provider, StructuredOutput, VerdictType
from stepflow.errors import DefinitionError
from stepflow.sandbox.options import ToolboxOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepflow.domain.definition import AgentDefinition, Step
    from stepflow.domain.json import JsonObject
    from stepflow.domain.run import RunFacts
    from stepflow.run.inputs import Inputs
    from stepflow.run.request import RunRequest


class LoadedSchemas:
    """Gives each step the schema that was resolved at load: nothing on disk can change it any more."""

    def resolve(self, step: Step) -> JsonObject | None:
        """The step's own answer schema."""
        return step.schema


def run_started(agent: AgentDefinition, facts: RunFacts, isolation: Mapping[str, str]) -> RunStarted:
    """The first event of a run."""
    return RunStarted(
        run_id=facts.run_id,
        agent=agent.name,
        dialect=agent.dialect,
        definition_digest=agent.digest,
        verdict_type=agent.verdict.type,
        entry_step=agent.entry_step,
        max_iterations=facts.limits.iterations,
        repository=facts.repository,
        issue=facts.issue.number if facts.issue else None,
        base_commit=facts.base_commit,
        isolation=dict(isolation),
        args=facts.args,
        subject=facts.issue,
        context_text=facts.context_text,
        nonce=facts.nonce,
        base_branch=facts.base_branch,
        root=facts.root,
    )


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


class Handler(Protocol):
    """What the agent's `build(definition, args)` gives back. It may also have a text `criteria` for the prompts."""

    def feed(self, iteration: int, texts: tuple[str, ...], answer: JsonObject | None) -> None:
        """Take in one iteration: its number, all texts of the model, and the answer object if there is one."""
        ...

    def is_finished(self) -> bool:
        """Whether the work is done."""
        ...


@dataclass(frozen=True, kw_only=True)
class OwnVerdict:
    """Implements the port `CustomVerdict` around a handler; what the handler raises ends the run with its words."""

    path: str
    handler: Handler

    @property
    def criteria(self) -> str:
        """The handler's own sentence, if it has one."""
        text = getattr(self.handler, "criteria", "")
        return text if isinstance(text, str) else ""

    def is_finished(self, iteration: int, texts: tuple[str, ...], answer: JsonObject | None) -> bool:
        """Feed the handler with one iteration, and ask it."""
        with _foreign_code(self.path, f"in iteration {iteration}"):
            self.handler.feed(iteration, texts, answer)
            return bool(self.handler.is_finished())


def open_verdict(agent: AgentDefinition, args: JsonObject) -> OwnVerdict | None:
    """The agent's own verdict; None when its verdict type is another one."""
    if agent.verdict.type is not VerdictType.META_CUSTOM:
        return None
    path = str(agent.verdict.config.get("handlerPath"))
    with _foreign_code(path, "while it was loaded"):
        module = _module(agent, path)
        build = getattr(module, "build", None)
        handler = build(agent, dict(args)) if callable(build) else None
    missing = [name for name in ("feed", "is_finished") if not callable(getattr(handler, name, None))]
    if missing:
        raise DefinitionError(
            f'The verdict\'s handler "{path}" gives no `build(definition, args)` whose result has {_named(missing)}.',
            hint="Define `build`; it returns an object with feed(iteration, texts, answer) and is_finished().",
        )
    return OwnVerdict(path=path, handler=cast("Handler", handler))


def _module(agent: AgentDefinition, path: str) -> ModuleType:
    """The handler's module: the text that was read at load, or an installed module."""
    source = agent.verdict.handler
    if source is None:
        return importlib.import_module(path)
    module = ModuleType("stepflow_own_verdict")
    exec(compile(source.text, source.file, "exec"), module.__dict__)  # noqa: S102 - the author's code, asked for by name
    return module


@contextmanager
def _foreign_code(path: str, when: str) -> Iterator[None]:
    """Code of the agent's author may raise anything; the run then ends with what it said, not as a bug of ours."""
    try:
        yield
    except Exception as exc:
        raise DefinitionError(
            f'The verdict\'s handler "{path}" failed {when}: {type(exc).__name__}: {exc}.',
            hint="Mend the handler, or use another verdict type.",
        ) from exc


def _named(names: list[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)
