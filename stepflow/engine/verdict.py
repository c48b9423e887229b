"""The verdict of an ungated flow, asked after each iteration: is the work finished, or where does it go on?

The verdict keeps no state of its own; the counters come from the run's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from stepflow.domain.decision import Decided
from stepflow.domain.definition import AgentVerdict, Step
from stepflow.domain.json import JsonObject, JsonValue, value_at
from stepflow.domain.words import Intent, StepKind, VerdictType
from stepflow.engine.context import FlowContext
from stepflow.engine.gate import FENCE, ParsedAnswer, check_format, parse_object, stated_reason
from stepflow.engine.router import continuation_of
from stepflow.ports import CustomVerdict

#: Answers that mean the end without naming the signal.
_MEANS_FINISHED = (("status", "completed"), ("result", "complete"))


@dataclass(frozen=True, kw_only=True)
class VerdictInput:
    """What a verdict is given with: the iteration's number, the number of answers so far with this one, the iteration
    limit of the run, all assistant texts of the iteration, its answer object, and whether its step is a closure."""

    iteration: int
    limit: int
    answers: int
    texts: tuple[str, ...]
    answer: JsonObject | None
    closure: bool


def decide_by_verdict(context: FlowContext, step: Step, parsed: ParsedAnswer, texts: tuple[str, ...]) -> Decided:
    """`closing` where the verdict calls the work finished, else the step's `next`, else the step once more. An answer
    that does not fit its schema does not finish a closure step."""
    state, closure, answer = context.state, step.kind is StepKind.CLOSURE, parsed.answer or {}
    given = VerdictInput(
        iteration=state.iteration,
        limit=context.facts.limits.iterations,
        answers=state.answers + 1,
        texts=texts,
        answer=parsed.answer,
        closure=closure,
    )
    finished = why_finished(context.agent.verdict, given, context.ports.verdict)
    closing = step.validation.schema if step.validation else None
    if finished and not (closure and (parsed.errors or check_format(answer, closing))):
        return Decided(intent=Intent.CLOSING, reason=stated_reason(answer) or finished)
    reason = stated_reason(answer) or "the verdict does not call the work finished yet"
    if Intent.NEXT in step.edges or continuation_of(step.id, context.agent.steps):
        return Decided(intent=Intent.NEXT, reason=reason)
    return Decided(intent=Intent.REPEAT, target=step.id, reason=reason)


def why_finished(verdict: AgentVerdict, given: VerdictInput, custom: CustomVerdict | None = None) -> str | None:
    """Why the run is finished after this iteration; None when it goes on."""
    match verdict.type:
        case VerdictType.POLL_STATE:
            return "the closing step has answered" if given.closure else None
        case VerdictType.COUNT_ITERATION:
            return _reach_count(given.iteration, given.limit, "iterations")
        case VerdictType.META_COMPOSITE:
            return _composite(verdict.config, given)
        case VerdictType.META_CUSTOM:
            finished = custom is not None and custom.is_finished(given.iteration, given.texts, given.answer)
            return "the agent's own verdict says so" if finished else None
        case VerdictType.COUNT_CHECK | VerdictType.DETECT_KEYWORD | VerdictType.DETECT_STRUCTURED:
            return _simple(verdict.type, verdict.config, given)
        case VerdictType.DETECT_GRAPH:
            return None  # the loader lets no such registry pass (SF206)
        case _:
            assert_never(verdict.type)


def _simple(kind: str, config: JsonObject, given: VerdictInput) -> str | None:
    match kind:
        case VerdictType.COUNT_ITERATION:
            return _reach_count(given.iteration, config.get("maxIterations"), "iterations")
        case VerdictType.COUNT_CHECK:
            return _reach_count(given.answers, config.get("maxChecks"), "answers")
        case VerdictType.DETECT_KEYWORD:
            word = config.get("verdictKeyword")
            said = isinstance(word, str) and word and any(word in text for text in given.texts)
            return f'the answer contains "{word}"' if said else None
        case VerdictType.DETECT_STRUCTURED:
            return _find_signal(config, given)
        case _:
            return None


def _reach_count(count: int, most: JsonValue, what: str) -> str | None:
    return f"{most} {what} are taken" if isinstance(most, int) and count >= most else None


def _composite(config: JsonObject, given: VerdictInput) -> str | None:
    parts = config.get("conditions")
    reasons = [_part(part, given) for part in parts] if isinstance(parts, list) else []
    finished = [reason for reason in reasons if reason is not None]
    match config.get("operator"):
        case "and":
            return "; ".join(finished) if reasons and len(finished) == len(reasons) else None
        case "first":
            number, reason = next(((at, one) for at, one in enumerate(reasons, 1) if one), (0, None))
            return f"condition {number}: {reason}" if reason else None
        case _:
            return finished[0] if finished else None


def _part(part: JsonValue, given: VerdictInput) -> str | None:
    if not isinstance(part, dict):
        return None
    config = part.get("config")
    return _simple(str(part.get("type")), config if isinstance(config, dict) else {}, given)


def _find_signal(config: JsonObject, given: VerdictInput) -> str | None:
    signal, fields = config.get("signalType"), config.get("requiredFields")
    fences = [each for text in given.texts for each in FENCE.finditer(text) if each["label"].strip() == signal]
    signals = given.answer is not None and _gives_signal(given.answer, signal)
    if not signals and not fences:
        return None
    document = given.answer if given.answer is not None else parse_object(fences[-1]["body"])
    holds = not fields or (document is not None and _holds(document, fields))
    return f'the answer gives the signal "{signal}"' if holds else None


def _gives_signal(answer: JsonObject, signal: JsonValue) -> bool:
    named = signal in (answer.get("signal"), answer.get("type"))
    return named or any(answer.get(key) == word for key, word in _MEANS_FINISHED)


def _holds(document: JsonObject, fields: JsonValue) -> bool:
    """Whether the fields of an object have those values, or those of a list are there at all."""
    if isinstance(fields, dict):
        return all(_field(document, name) == value for name, value in fields.items())
    names = fields if isinstance(fields, list) else []
    return all(_field(document, str(name)) is not None for name in names)


def _field(document: JsonObject, name: str) -> JsonValue:
    return document[name] if name in document else value_at(document, name)
