"""When the verdict of an ungated flow calls the work finished, a table per verdict type."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepflow.domain.agent.agent_settings import VerdictConfig
from stepflow.domain.agent.definition import AgentVerdict
from stepflow.domain.run import Limits
from stepflow.domain.words import VerdictType
from stepflow.engine.ungated import VerdictInput, explain_finish

FED = VerdictInput(iteration=2, limit=5, answers=2, texts=("working on it", "DONE now"), answer=None, closure=False)


def finished(kind: VerdictType, config: dict | None = None, **more: object) -> str | None:
    return explain_finish(
        AgentVerdict(type=kind, limits=Limits(iterations=5), config=VerdictConfig.model_validate(config or {})),
        replace(FED, **more),
    )


@pytest.mark.parametrize(
    ("kind", "config", "why"),
    [
        pytest.param(VerdictType.COUNT_ITERATION, {"maxIterations": 2}, None, id="the run's limit counts"),
        pytest.param(VerdictType.COUNT_CHECK, {"maxChecks": 3}, None, id="answers are missing"),
        pytest.param(VerdictType.COUNT_CHECK, {"maxChecks": 2}, "2 answers are taken", id="the last answer"),
        pytest.param(
            VerdictType.DETECT_KEYWORD, {"verdictKeyword": "DONE"}, 'the answer contains "DONE"', id="any text"
        ),
        pytest.param(VerdictType.DETECT_KEYWORD, {"verdictKeyword": "Done"}, None, id="another case"),
        pytest.param(VerdictType.DETECT_GRAPH, {}, None, id="a graph ends by closing"),
        pytest.param(VerdictType.POLL_STATE, {}, None, id="only a closure step is polled"),
    ],
)
def test_a_verdict_says_why_the_work_is_finished(kind: VerdictType, config: dict, why: str | None) -> None:
    assert finished(kind, config) == why


SIGNAL = {"signalType": "task-complete"}
FENCE = 'It is done.\n```task-complete\n{"summary": "all"}\n```\n'


@pytest.mark.parametrize(
    ("config", "answer", "text", "ends"),
    [
        (SIGNAL, {"signal": "task-complete"}, "", True),
        (SIGNAL, {"type": "task-complete"}, "", True),
        (SIGNAL, {"status": "completed"}, "", True),
        (SIGNAL, {"result": "complete"}, "", True),
        (SIGNAL, {"result": "completed"}, "", False),
        (SIGNAL, {"signal": "other"}, "", False),
        (SIGNAL, None, FENCE, True),
        (SIGNAL, None, FENCE.replace("task", "a"), False),
        (SIGNAL, None, FENCE.replace("{", "("), True),
        ({**SIGNAL, "requiredFields": ["summary"]}, None, FENCE, True),
        ({**SIGNAL, "requiredFields": ["summary"]}, None, FENCE.replace("{", "("), False),
        ({**SIGNAL, "requiredFields": ["summary"]}, {"note": 1}, FENCE, False),
        (
            {**SIGNAL, "requiredFields": {"tests.failed": 0}},
            {"type": "task-complete", "tests": {"failed": 0}},
            "",
            True,
        ),
        ({**SIGNAL, "requiredFields": {"ok": True}}, {"type": "task-complete", "ok": False}, "", False),
        (SIGNAL, None, "task-complete", False),
    ],
)
def test_a_signal_ends_when_its_required_fields_hold(config: dict, answer: dict | None, text: str, ends: bool) -> None:
    assert (finished(VerdictType.DETECT_STRUCTURED, config, answer=answer, texts=(text,)) is not None) is ends


TWICE = {"type": "count:iteration", "config": {"maxIterations": 2}}
TENTH = {"type": "count:iteration", "config": {"maxIterations": 10}}
WORD = {"type": "detect:keyword", "config": {"verdictKeyword": "DONE"}}


@pytest.mark.parametrize(
    ("operator", "conditions", "why"),
    [
        ("and", [TWICE, WORD], '2 iterations are taken; the answer contains "DONE"'),
        ("and", [TENTH, WORD], None),
        ("or", [TENTH, WORD], 'the answer contains "DONE"'),
        ("or", [TENTH, {"type": "count:check", "config": {"maxChecks": 9}}], None),
        ("first", [TENTH, WORD, TWICE], 'condition 2: the answer contains "DONE"'),
        ("first", [TENTH], None),
        ("and", [TWICE, {"type": "detect:structured", "config": SIGNAL}], None),
    ],
)
def test_conditions_are_combined(operator: str, conditions: list, why: str | None) -> None:
    assert finished(VerdictType.META_COMPOSITE, {"operator": operator, "conditions": conditions}) == why


def test_conditions_that_say_nothing_never_finish() -> None:
    odd = [{"type": "detect:graph"}, {"type": "count:check"}]
    for operator in ("and", "or", "first"):
        assert finished(VerdictType.META_COMPOSITE, {"operator": operator, "conditions": odd}) is None
        assert finished(VerdictType.META_COMPOSITE, {"operator": operator}) is None
