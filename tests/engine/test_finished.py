"""When the verdict of an ungated flow calls the work finished, a table per verdict type."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepflow.domain.definition import AgentVerdict
from stepflow.domain.words import VerdictType
from stepflow.engine.completion.finished import VerdictInput, why_finished

FED = VerdictInput(iteration=2, limit=5, answers=2, texts=("working on it", "DONE now"), answer=None, closure=False)


def finished(kind: VerdictType, config: dict | None = None, **more: object) -> str | None:
    return why_finished(AgentVerdict(type=kind, max_iterations=5, config=config or {}), replace(FED, **more))


def test_counting_iterations_ends_at_the_runs_limit() -> None:
    assert finished(VerdictType.COUNT_ITERATION, {"maxIterations": 2}, iteration=4) is None
    assert finished(VerdictType.COUNT_ITERATION, iteration=5) == "5 iterations are taken"


def test_counting_answers_ends_with_the_last_of_them() -> None:
    assert finished(VerdictType.COUNT_CHECK, {"maxChecks": 3}) is None
    assert finished(VerdictType.COUNT_CHECK, {"maxChecks": 2}) == "2 answers are taken"


def test_a_keyword_counts_in_any_text_of_the_iteration_and_exactly() -> None:
    assert finished(VerdictType.DETECT_KEYWORD, {"verdictKeyword": "DONE"}) == 'the answer contains "DONE"'
    assert finished(VerdictType.DETECT_KEYWORD, {"verdictKeyword": "Done"}) is None


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


def test_a_graph_is_never_finished_by_its_verdict() -> None:
    assert finished(VerdictType.DETECT_GRAPH, closure=True) is None


def test_conditions_that_say_nothing_never_finish() -> None:
    odd = ["text", {"type": "detect:graph"}, {"type": "count:check", "config": "none"}]
    for operator in ("and", "or", "first"):
        assert finished(VerdictType.META_COMPOSITE, {"operator": operator, "conditions": odd}) is None
        assert finished(VerdictType.META_COMPOSITE, {"operator": operator}) is None


def test_polling_ends_with_the_answer_of_a_closure_step_only() -> None:
    assert finished(VerdictType.POLL_STATE) is None
    assert finished(VerdictType.POLL_STATE, closure=True) == "the closing step has answered"


class Thrice:
    """A verdict of an agent's own."""

    criteria = "Three answers with text are needed."

    def __init__(self) -> None:
        self.fed: list[tuple[int, tuple[str, ...], dict | None]] = []

    def is_finished(self, iteration: int, texts: tuple[str, ...], answer: dict | None) -> bool:
        self.fed.append((iteration, texts, answer))
        return len(self.fed) == 3


def test_an_agents_own_verdict_is_fed_every_iteration_and_asked() -> None:
    own = Thrice()
    verdict = AgentVerdict(type=VerdictType.META_CUSTOM, max_iterations=5)
    reasons = [why_finished(verdict, replace(FED, iteration=number), own) for number in (1, 2, 3)]
    assert reasons == [None, None, "the agent's own verdict says so"]
    assert own.fed[0] == (1, FED.texts, None)
    assert finished(VerdictType.META_CUSTOM) is None
