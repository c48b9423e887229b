"""`meta:custom`: the agent's own code decides when its flow is done, and what it does wrong is told as its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepflow.domain.agent.definition import AgentDefinition, AgentVerdict, SourceText
from stepflow.domain.run import Limits
from stepflow.domain.words import VerdictType
from stepflow.errors import DefinitionError
from stepflow.run.prepare import open_verdict
from tests.build import issue_agent

SOUND = """
class Count:
    criteria = "Enough words are needed."
    def __init__(self, most):
        self.words, self.most = 0, most
    def feed(self, iteration, texts, answer):
        self.words += sum(len(text.split()) for text in texts)
    def is_finished(self):
        return self.words >= self.most
def build(definition, args):
    assert definition.name == "demo"
    return Count(args["most"])
"""


def agent_with(code: str | None, path: str = "own.py") -> AgentDefinition:
    handler = SourceText(text=code, file=path) if code is not None else None
    verdict = AgentVerdict(
        type=VerdictType.META_CUSTOM, limits=Limits(iterations=10), config={"handlerPath": path}, handler=handler
    )
    return replace(issue_agent(), verdict=verdict)


def test_a_handler_is_built_with_the_arguments_and_fed_each_iteration() -> None:
    own = open_verdict(agent_with(SOUND), {"most": 4})
    assert own is not None
    assert own.criteria == "Enough words are needed."
    assert own.is_finished(1, ("one two", "three"), None) is False
    assert own.is_finished(2, ("four",), {"a": 1}) is True


@pytest.mark.parametrize(
    ("code", "path", "message"),
    [
        ("def build(definition, args): return 3", "own.py", "has `feed` and `is_finished`"),
        (SOUND.replace("def is_finished", "def finished"), "own.py", "has `is_finished`"),
        ("1 / 0", "own.py", "failed while it was loaded: ZeroDivisionError"),
        ("def build(", "own.py", "failed while it was loaded: SyntaxError"),
        (None, "stepflow_no_such_module", "failed while it was loaded: ModuleNotFoundError"),
    ],
)
def test_code_that_is_no_handler_is_refused_with_what_it_lacks(code: str | None, path: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=f'handler "{path}"') as raised:
        open_verdict(agent_with(code, path), {"most": 1})
    assert message in str(raised.value)


def test_a_handler_that_fails_in_the_run_ends_it_with_its_own_words() -> None:
    own = open_verdict(agent_with(SOUND.replace("self.words +=", "self.nothing +=")), {"most": 1})
    assert own is not None
    with pytest.raises(DefinitionError, match="failed in iteration 3: AttributeError"):
        own.is_finished(3, ("word",), None)
