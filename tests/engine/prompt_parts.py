"""Small sound parts for the tests of the prompt room."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings

from stepflow.domain.definition import AgentDefinition, AgentVerdict, Gate, SourceText, Step, StepPrompt
from stepflow.domain.run import Limits, RunFacts
from stepflow.domain.state import RunState
from stepflow.domain.words import Dialect, Intent, StepKind, VerdictType
from stepflow.engine.prompt.variables import Variables, step_variables

#: Properties are tried on the same examples every time, however busy the machine is.
PROPERTY = settings(derandomize=True, deadline=None)
LIMIT = 10
NONCE = "5f0c9a7be1d2"


def make_step(text="Do it.", *, step_id="continuation.issue", gate=None, schema=None, **prompt):
    source = prompt.pop("source", None) or SourceText(text=text, file="prompts/steps/f_default.md")
    return Step(
        id=step_id,
        name="Work on the issue",
        kind=StepKind.WORK,
        prompt=StepPrompt(source=source, **prompt),
        gate=gate,
        schema=schema,
    )


def make_gate(*allowed, **more):
    return Gate(allowed=allowed or (Intent.NEXT, Intent.REPEAT), intent_field="next_action.action", **more)


def make_agent(*steps, verdict=VerdictType.COUNT_ITERATION, config=None, **more):
    agent = AgentDefinition(
        name="iterator",
        version="1.0.0",
        display_name="Iterator",
        description="Works on issues.",
        folder=".agent/iterator",
        dialect=Dialect.GATE,
        digest="0" * 64,
        steps={step.id: step for step in steps or (make_step(),)},
        entry_step="continuation.issue",
        verdict=AgentVerdict(type=verdict, max_iterations=LIMIT, config=config or {}),
        system_prompt=SourceText(text="You are {uv-agent_name}.", file="prompts/system.md"),
    )
    return replace(agent, **more)


def make_facts(**more):
    return RunFacts(run_id="run", limits=Limits(iterations=LIMIT), nonce=NONCE, **more)


def make_state(**more):
    return RunState(**{"step_id": "continuation.issue", "iteration": 3, **more})


def variables_of(step=None, *, agent=None, facts=None, state=None, **more):
    step = step or make_step()
    return step_variables(agent or make_agent(step), step, facts or make_facts(), state or make_state(), LIMIT, **more)


def texts(**values):
    return Variables(texts=values)
