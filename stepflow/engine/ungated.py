"""Steps without a gate, in the older forms of the method: a check, whose result and rules choose what comes next, and
the verdict of an ungated flow, which says after each iteration whether the work is finished. Neither keeps a state of
its own; all counters come from the run's state."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from stepflow.domain.agent.agent_settings import VerdictConfig
from stepflow.domain.agent.definition import AgentVerdict, Step, StepCheck, StepPrompt
from stepflow.domain.end import End
from stepflow.domain.event import CheckJudged
from stepflow.domain.flow import Decided, Decision, FormatError, RunState, Undecided, find_continuation
from stepflow.domain.json import JsonObject, JsonValue, value_at
from stepflow.domain.text import count
from stepflow.domain.words import Intent, Outcome, StepKind, VerdictType
from stepflow.engine.context import FlowContext, FlowStopped
from stepflow.engine.conversation import Conversation
from stepflow.engine.gate import (
    CLOSING_MISFIT,
    FENCE,
    ParsedAnswer,
    check_format,
    describe_misfit,
    find_object,
    find_reason,
    parse_object,
)
from stepflow.engine.prompt.render import PromptFailure, render_prompt


def decide_by_check(conversation: Conversation, step: Step, check: StepCheck, answer: JsonObject | None) -> Decision:
    """Decide by the step's check, asking its question if it has one. A closing that does not fit the schema of its
    validation entry becomes a repeat."""
    context, fields = conversation.context, answer or {}
    context.note_missing(step, read_handoff(check, fields)[1])
    outcome = _ask_check(conversation, step, check.prompt) if check.prompt else read_own_result(check, answer)
    context.record(CheckJudged(step_id=step.id, result=outcome.word, message=outcome.message))
    decision = _apply_rules(context.state, check, outcome, fields)
    if not isinstance(decision, Decided) or decision.intent is not Intent.CLOSING or step.validation is None:
        return decision
    errors = check_format(fields, step.validation.schema)
    if not errors:
        return decision
    if check.prompt is not None:  # without a second question, the format check has logged the errors already
        conversation.give_up(errors)
    reason = describe_misfit(errors, CLOSING_MISFIT)
    return replace(decision, intent=Intent.REPEAT, target=None, transition=None, reason=reason)


def find_check_errors(
    state: RunState, step: Step, check: StepCheck, answer: JsonObject, schema: JsonObject | None
) -> tuple[FormatError, ...]:
    """Check the answer against the built schema and, if it would close, against the schema of the validation entry. A
    readable result is normalized first, so that ` OK ` costs no format retry."""
    if schema is None:
        return ()
    closing = None
    if check.prompt is None and step.validation is not None:
        decision = _apply_rules(state, check, read_own_result(check, answer), answer)
        closes = isinstance(decision, Decided) and decision.intent is Intent.CLOSING
        closing = step.validation.schema if closes else None
    result = answer.get("result")
    passed = read_result(result) if isinstance(result, str) else None
    plain = answer if passed is None else {**answer, "result": "ok" if passed else "ng"}
    return check_format(plain, schema, closing)


def _ask_check(conversation: Conversation, step: Step, question: StepPrompt) -> CheckOutcome:
    """Ask the check question. Its answer gets no format retry; an unreadable one has failed."""
    context = conversation.context
    asking = replace(step, prompt=question)
    prompt = render_prompt(context.agent, asking, context.variables(step), context.facts.input_text)
    if isinstance(prompt, PromptFailure):
        raise FlowStopped(End(outcome=Outcome.INVALID_DEFINITION, reason=prompt.message))
    return read_check_answer(conversation.ask(prompt.text))


def _apply_rules(state: RunState, check: StepCheck, outcome: CheckOutcome, answer: JsonObject) -> Decision:
    return decide_by_rules(check, outcome, answer, runs=state.runs + 1, retries=state.retries)


PASS_WORDS = frozenset({"ok", "pass", "true"})
FAIL_WORDS = frozenset({"ng", "fail", "false"})

#: `result`, at most five characters that are neither letters nor digits, and one of the six words.
RESULT_IN_TEXT = re.compile(r"\bresult[\W\d_]{0,5}(ok|pass|true|ng|fail|false)\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """The outcome of a check, with the message that explains it."""

    passed: bool
    message: str = ""

    @property
    def word(self) -> Literal["ok", "ng"]:
        """The outcome as the journal and the history spell it."""
        return "ok" if self.passed else "ng"


def read_result(value: JsonValue) -> bool | None:
    """Return True for a pass, False for a fail, None for anything else."""
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    return True if word in PASS_WORDS else False if word in FAIL_WORDS else None


def read_check_answer(text: str) -> CheckOutcome:
    """Read the answer to a check question; an unreadable one has failed."""
    answer = find_object(text)
    if answer is None:
        words = {word.lower() for word in RESULT_IN_TEXT.findall(text)}
        return CheckOutcome(passed=bool(words) and words <= PASS_WORDS)
    return CheckOutcome(passed=read_result(answer.get("result")) is True, message=_read_message(answer))


def read_own_result(check: StepCheck, answer: JsonObject | None) -> CheckOutcome:
    """Read the outcome from the step's own answer, for a check without a second question."""
    result = read_result(answer.get("result")) if answer is not None else None
    passed = result is True or (result is None and not check.is_demanded)
    return CheckOutcome(passed=passed, message=_read_message(answer or {}))


def read_handoff(check: StepCheck, answer: JsonObject) -> tuple[JsonObject, tuple[str, ...]]:
    """Return the handoff values of the answer, and the declared keys that it lacks."""
    handoff = answer.get("handoff")
    holder = handoff if isinstance(handoff, dict) else {}
    values = {key: answer.get(key) if holder.get(key) is None else holder[key] for key in check.handoff_keys}
    present: JsonObject = {key: value for key, value in values.items() if value is not None}
    return present, tuple(key for key in values if key not in present)


def decide_by_rules(
    check: StepCheck, outcome: CheckOutcome, answer: JsonObject, *, runs: int, retries: int
) -> Decision:
    """Decide by the first rule of the outcome that applies. `runs` and `retries` count this visit, this run
    included."""
    rules = check.on_pass if outcome.passed else check.on_fail
    rule = next((rule for rule in rules if rule.holds(runs=runs, retries=retries)), None)
    if rule is None:
        result, key = ("passed", "onPass") if outcome.passed else ("failed", "onFail")
        message = f" ({outcome.message})" if outcome.message else ""
        used = f"{retries} {'retry' if retries == 1 else 'retries'}"
        spent = f"in this visit the step ran {count(runs, 'time')} and used {used}"
        reason = f'the check {result}{message}, and "{key}" leads nowhere: {spent}'
        return Undecided(reason=reason, lacking="no rule left for the check")
    handoff, missing = read_handoff(check, answer)
    return Decided(
        intent=rule.intent,
        target=rule.target,
        transition=rule.transition,
        reason=outcome.message or f"the check {'passed' if outcome.passed else 'failed'}",
        handoff=handoff,
        missing=missing,
    )


def _read_message(answer: JsonObject) -> str:
    message = answer.get("message")
    return message if isinstance(message, str) else ""


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
    finished = explain_finish(context.agent.verdict, inputs)
    closing = step.validation.schema if step.validation else None
    if finished and not (closure and (parsed.errors or check_format(answer, closing))):
        return Decided(intent=Intent.CLOSING, reason=find_reason(answer) or finished)
    reason = find_reason(answer) or "the verdict says that the work is not finished yet"
    if Intent.NEXT in step.edges or find_continuation(step.id, context.agent.steps):
        return Decided(intent=Intent.NEXT, reason=reason)
    return Decided(intent=Intent.REPEAT, target=step.id, reason=reason)


def explain_finish(verdict: AgentVerdict, inputs: VerdictInput) -> str | None:
    """Say why the run is finished after this iteration; None if it continues."""
    match verdict.type:
        case VerdictType.POLL_STATE:
            return "the closing step has answered" if inputs.closure else None
        case VerdictType.COUNT_ITERATION:
            return _reach_count(inputs.iteration, inputs.limit, "iterations")
        case VerdictType.META_COMPOSITE:
            return _check_composite(verdict.config, inputs)
        case VerdictType.COUNT_CHECK | VerdictType.DETECT_KEYWORD | VerdictType.DETECT_STRUCTURED:
            return _check_condition(verdict.type, verdict.config, inputs)
        case VerdictType.DETECT_GRAPH:
            return None  # the loader rejects such a registry (SF206)
        case _:
            assert_never(verdict.type)


def _check_condition(kind: str, config: VerdictConfig, inputs: VerdictInput) -> str | None:
    match kind:
        case VerdictType.COUNT_ITERATION:
            return _reach_count(inputs.iteration, config.max_iterations, "iterations")
        case VerdictType.COUNT_CHECK:
            return _reach_count(inputs.answers, config.max_checks, "answers")
        case VerdictType.DETECT_KEYWORD:
            word = config.verdict_keyword
            return f'the answer contains "{word}"' if word and any(word in text for text in inputs.texts) else None
        case VerdictType.DETECT_STRUCTURED:
            return _find_signal(config, inputs)
        case _:
            return None


def _reach_count(count: int, limit: int | None, noun: str) -> str | None:
    return f"{limit} {noun} are taken" if limit is not None and count >= limit else None


def _check_composite(config: VerdictConfig, inputs: VerdictInput) -> str | None:
    reasons = [_check_condition(part.type, part.config or VerdictConfig(), inputs) for part in config.conditions or ()]
    finished = [reason for reason in reasons if reason is not None]
    match config.operator:
        case "and":
            return "; ".join(finished) if reasons and len(finished) == len(reasons) else None
        case "first":
            number, reason = next(((at, one) for at, one in enumerate(reasons, 1) if one), (0, None))
            return f"condition {number}: {reason}" if reason else None
        case _:
            return finished[0] if finished else None


def _find_signal(config: VerdictConfig, inputs: VerdictInput) -> str | None:
    signal, fields = config.signal_type, config.required_fields
    closed = (each for text in inputs.texts for each in FENCE.finditer(text) if each["body"] is not None)
    fences = [each for each in closed if each["label"].strip() == signal]
    fits = (("signal", signal), ("type", signal), *_MEANS_FINISHED)
    signals = inputs.answer is not None and any(inputs.answer.get(key) == word for key, word in fits)
    if not signals and not fences:
        return None
    document = inputs.answer if inputs.answer is not None else parse_object(fences[-1]["body"])
    holds = not fields or (document is not None and _has_fields(document, fields))
    return f'the answer gives the signal "{signal}"' if holds else None


def _has_fields(document: JsonObject, fields: JsonValue) -> bool:
    """Return whether the document has the required fields: with these values if `fields` is an object, any if it is
    a list."""
    if isinstance(fields, dict):
        return all(_read_field(document, name) == value for name, value in fields.items())
    names = fields if isinstance(fields, list) else []
    return all(_read_field(document, str(name)) is not None for name in names)


def _read_field(document: JsonObject, name: str) -> JsonValue:
    return document[name] if name in document else value_at(document, name)
