"""The verdict of an ungated flow: says after each iteration whether the work is finished.

It keeps no state of its own; its counters come from the run's state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from stepflow.domain.agent.definition import AgentVerdict, Step
from stepflow.domain.decision import Decided
from stepflow.domain.json import JsonObject, JsonValue, value_at
from stepflow.domain.words import Intent, StepKind, VerdictType
from stepflow.engine.context import FlowContext
from stepflow.engine.gate import FENCE, ParsedAnswer, check_format, find_reason, parse_object
from stepflow.engine.router import find_continuation
from stepflow.ports import CustomVerdict

#: Keys and values of an answer that mean the end without naming the signal.
_MEANS_FINISHED = (("status", "completed"), ("result", "complete"))


@dataclass(frozen=True, kw_only=True)
class VerdictInput:
    """What a verdict is based on."""

    iteration: int
    #: The iteration limit of the run.
    limit: int
    #: How many answers the run has had, including this one.
    answers: int
    #: All assistant texts of the iteration.
    texts: tuple[str, ...]
    answer: JsonObject | None
    #: Whether the step is a closure.
    closure: bool


def decide_by_verdict(context: FlowContext, step: Step, parsed: ParsedAnswer, texts: tuple[str, ...]) -> Decided:
    """Return `closing` if the verdict says that the work is finished, else the step's `next`, else a repeat. A closure
    step finishes only with an answer that fits its schema."""
    state, closure, answer = context.state, step.kind is StepKind.CLOSURE, parsed.answer or {}
    inputs = VerdictInput(
        iteration=state.iteration,
        limit=context.facts.limits.iterations,
        answers=state.answers + 1,
        texts=texts,
        answer=parsed.answer,
        closure=closure,
    )
    finished = explain_finish(context.agent.verdict, inputs, context.ports.verdict)
    closing = step.validation.schema if step.validation else None
    if finished and not (closure and (parsed.errors or check_format(answer, closing))):
        return Decided(intent=Intent.CLOSING, reason=find_reason(answer) or finished)
    reason = find_reason(answer) or "the verdict says that the work is not finished yet"
    if Intent.NEXT in step.edges or find_continuation(step.id, context.agent.steps):
        return Decided(intent=Intent.NEXT, reason=reason)
    return Decided(intent=Intent.REPEAT, target=step.id, reason=reason)


def explain_finish(verdict: AgentVerdict, inputs: VerdictInput, custom: CustomVerdict | None = None) -> str | None:
    """Say why the run is finished after this iteration; None if it continues."""
    match verdict.type:
        case VerdictType.POLL_STATE:
            return "the closing step has answered" if inputs.closure else None
        case VerdictType.COUNT_ITERATION:
            return _reach_count(inputs.iteration, inputs.limit, "iterations")
        case VerdictType.META_COMPOSITE:
            return _check_composite(verdict.config, inputs)
        case VerdictType.META_CUSTOM:
            finished = custom is not None and custom.is_finished(inputs.iteration, inputs.texts, inputs.answer)
            return "the agent's own verdict says so" if finished else None
        case VerdictType.COUNT_CHECK | VerdictType.DETECT_KEYWORD | VerdictType.DETECT_STRUCTURED:
            return _check_condition(verdict.type, verdict.config, inputs)
        case VerdictType.DETECT_GRAPH:
            return None  # the loader rejects such a registry (SF206)
        case _:
            assert_never(verdict.type)


def _check_condition(kind: str, config: JsonObject, inputs: VerdictInput) -> str | None:
    match kind:
        case VerdictType.COUNT_ITERATION:
            return _reach_count(inputs.iteration, config.get("maxIterations"), "iterations")
        case VerdictType.COUNT_CHECK:
            return _reach_count(inputs.answers, config.get("maxChecks"), "answers")
        case VerdictType.DETECT_KEYWORD:
            word = config.get("verdictKeyword")
            is_found = isinstance(word, str) and word and any(word in text for text in inputs.texts)
            return f'the answer contains "{word}"' if is_found else None
        case VerdictType.DETECT_STRUCTURED:
            return _find_signal(config, inputs)
        case _:
            return None


def _reach_count(count: int, limit: JsonValue, noun: str) -> str | None:
    return f"{limit} {noun} are taken" if isinstance(limit, int) and count >= limit else None


def _check_composite(config: JsonObject, inputs: VerdictInput) -> str | None:
    parts = config.get("conditions")
    reasons = [_check_part(part, inputs) for part in parts] if isinstance(parts, list) else []
    finished = [reason for reason in reasons if reason is not None]
    match config.get("operator"):
        case "and":
            return "; ".join(finished) if reasons and len(finished) == len(reasons) else None
        case "first":
            number, reason = next(((at, one) for at, one in enumerate(reasons, 1) if one), (0, None))
            return f"condition {number}: {reason}" if reason else None
        case _:
            return finished[0] if finished else None


def _check_part(part: JsonValue, inputs: VerdictInput) -> str | None:
    if not isinstance(part, dict):
        return None
    config = part.get("config")
    return _check_condition(str(part.get("type")), config if isinstance(config, dict) else {}, inputs)


def _find_signal(config: JsonObject, inputs: VerdictInput) -> str | None:
    signal, fields = config.get("signalType"), config.get("requiredFields")
    fences = [each for text in inputs.texts for each in FENCE.finditer(text) if each["label"].strip() == signal]
    fits = (("signal", signal), ("type", signal), *_MEANS_FINISHED)
    signals = inputs.answer is not None and any(inputs.answer.get(key) == word for key, word in fits)
    if not signals and not fences:
        return None
    document = inputs.answer if inputs.answer is not None else parse_object(fences[-1]["body"])
    holds = not fields or (document is not None and _has_fields(document, fields))
    return f'the answer gives the signal "{signal}"' if holds else None


def _has_fields(document: JsonObject, fields: JsonValue) -> bool:
    """Whether the document has the required fields: with these values if `fields` is an object, any if it is a list."""
    if isinstance(fields, dict):
        return all(_read_field(document, name) == value for name, value in fields.items())
    names = fields if isinstance(fields, list) else []
    return all(_read_field(document, str(name)) is not None for name in names)


def _read_field(document: JsonObject, name: str) -> JsonValue:
    return document[name] if name in document else value_at(document, name)
