"""Small sound parts for the tests of the prompt room."""

from __future__ import annotations

from hypothesis import strategies as st

from stepflow.domain.agent.agent_settings import VerdictConfig
from stepflow.domain.agent.definition import AgentVerdict, Gate, SourceText, StepPrompt
from stepflow.domain.flow import RunState
from stepflow.domain.run import Limits
from stepflow.domain.words import Intent, VerdictType
from stepflow.engine.prompt.variables import Variables, step_variables
from tests import build
from tests.build import make_facts

LIMIT = make_facts().limits.iterations
NONCE = make_facts().nonce


def make_step(text="Do it.", *, step_id="continuation.issue", gate=None, schema=None, **prompt):
    source = prompt.pop("source", None) or SourceText(text=text, file="prompts/steps/f_default.md")
    prompt = StepPrompt(source=source, **prompt)
    return build.make_step(step_id, name="Work on the issue", prompt=prompt, gate=gate, schema=schema)


def make_gate(*allowed, **more):
    return Gate(allowed=allowed or (Intent.NEXT, Intent.REPEAT), intent_field="next_action.action", **more)


def make_agent(*steps, verdict=VerdictType.COUNT_ITERATION, config=None, **more):
    return build.make_agent(
        *(steps or (make_step(),)),
        name="iterator",
        description="Works on issues.",
        verdict=AgentVerdict(
            type=verdict,
            limits=Limits(iterations=LIMIT),
            config=VerdictConfig.model_validate(config or {}),
        ),
        **more,
    )


def make_state(**more):
    return RunState(**{"step_id": "continuation.issue", "iteration": 3, **more})


def variables_of(step=None, *, agent=None, facts=None, state=None, **more):
    step = step or make_step()
    return step_variables(agent or make_agent(step), step, facts or make_facts(), state or make_state(), LIMIT, **more)


def texts(**values):
    return Variables(texts=values)


#: Values that look like everything a renderer could trip over.
PIECES = (
    *("{uv-x}", "{{uv-y}}", "{uv-", "}", "{", "{input_text}", "{section:section.s}", "uv-x", "{0}", "text", "é", "\n"),
    *("{{x}}", "{{{x}}}", "{{#if x}}", "{{/if}}", "\\1", "\\g<0>", "$1", "%s"),
)
VALUES = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)
#: Literal text has no braces, so that what stands between two placeholders cannot make a third.
LITERALS = st.text(alphabet="ab c-:_\n.", max_size=6)
