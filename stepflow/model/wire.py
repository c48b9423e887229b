"""One call over the wire, and the turn in the message that comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anthropic

from stepflow.domain.conversation import (
    ModelFault,
    ModelRequest,
    ModelTurn,
    Refusal,
    Remedy,
    StopReason,
    Usage,
    has_images,
)
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.words import Provider, Strategy
from stepflow.model.access import Service
from stepflow.model.faults import CALL_ERRORS, BrokenAnswer, fault_of, overdue_fault
from stepflow.model.http_client import bounded_call
from stepflow.model.models import UnlistedModel, find_price_step, pays_to_renew, price_of, resolve_model
from stepflow.model.request import betas_of, is_near, plan_clearing, read_cleared, request_body, shows_thinking

if TYPE_CHECKING:
    from anthropic import BaseModel
    from anthropic.lib.streaming import MessageStream


_BAD_REQUESTS = frozenset({400, 422})
#: llama.cpp answers an image that its model cannot see with 500.
_IMAGE_REFUSALS = _BAD_REQUESTS | {500}
#: Stop reasons with which the last call of a message may be cut off; such a call is never run.
_CUT_OFF = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})
#: The events in which the service says what an answer has used so far.
_TELL_USAGE = frozenset({"message_start", "message_delta"})
_LONGEST_LOOK_UP = 60.0
#: By which words a service refuses a schema: the API, one that makes too large a grammar; others, any.
_SCHEMA_WORDS = ("output_config", "output_format", "structured output", "grammar", "optional parameters", "schema")
#: How one refuses an effort: by its name, or, where it has no `output_config` at all, by that.
_EFFORT_WORDS = ("effort", "output_config")
_EFFORT_HINT = (
    "Remove `effort` from the step or from agent.json, or choose another level or `model`: this service or model does "
    "not take it."
)
#: The same for images, of which one may be broken behind its head, too.
_IMAGE_WORDS = ("image", "multimodal")
#: The parts of a request that a service may refuse by their names, and that a run can do without.
_OPTIONAL = ("cache_control", "context_management")
#: How the SDK stumbles over events that are JSON but not the API's.
_STUMBLES = (ValueError, LookupError, TypeError, AttributeError, RuntimeError, AssertionError)


class Wire:
    """One client for one service. Remembers which optional parts the service refused; that only saves calls."""

    def __init__(self, service: Service, *, max_tokens: int, longest_call: float) -> None:
        self._service, self._client, self._where = service, service.client, service.where
        self._stumbles = _STUMBLES + service.stumbles
        self._max_tokens, self._longest_call = max_tokens, longest_call
        self._key_worked = False
        self._refused: frozenset[str] = frozenset()
        self._entries: dict[str, JsonObject] = {}

    def send(self, request: ModelRequest) -> ModelTurn | ModelFault:
        """Stream one answer and take the finished message."""
        return self._call(self._body(request), request, self._stream)

    def renew(self, request: ModelRequest, number: int) -> ModelTurn | ModelFault | None:
        """Use what is cached of a request, the `number`th time in a row, without an answer; None where that does not
        pay (Messages API, "Pre-warming the cache")."""
        service, is_refused = self._service, "cache_control" in self._refused
        if is_refused or not service.is_anthropic or not pays_to_renew(request.model, number, service.provider):
            return None
        body = self._body(request)
        output = body.get("output_config")
        # No answer is refused where its form is given, and without the form it would be another prefix.
        body["max_tokens"] = 1 if isinstance(output, dict) and "format" in output else 0
        return self._call(body, request, self._create)

    def _body(self, request: ModelRequest) -> JsonObject:
        model = resolve_model(request.model, self._service.provider)
        body = request_body(request, max_tokens=self._max_tokens, exclude=self._refused) | {"model": model}
        return body | self._ask_for_more(model, body) if request.tools else body

    def _call(
        self, body: JsonObject, request: ModelRequest, receive: Callable[[JsonObject, JsonObject], JsonObject]
    ) -> ModelTurn | ModelFault:
        seconds = self._longest_call if request.seconds is None else min(self._longest_call, request.seconds)
        begun: JsonObject = {}
        with bounded_call(seconds) as call:
            try:
                self._service.log_in()
                answer = receive(body, begun)
            except (*CALL_ERRORS, BrokenAnswer) as error:
                fault = overdue_fault(seconds, where=self._where) if call.overdue else None
                fault = fault or self._without_refused(error, body) or self._fault(error, request)
                return replace(fault, **self._paid(begun, body)) if begun else fault
        self._key_worked = True
        turn = _read_turn(answer, model=str(answer.get("model") or body["model"]), paid=self._paid(answer, body))
        step = find_price_step(str(body["model"]), self._service.provider)
        return (
            replace(turn, near_price_step=True) if isinstance(turn, ModelTurn) and is_near(step, turn.usage) else turn
        )

    def _ask_for_more(self, model: str, body: JsonObject) -> JsonObject:
        """What a conversation with tools also asks for, where the service's own list says that this model has it: room
        when it becomes long, and words about what the model thinks between its calls."""
        entry = self._read_entry(model)
        more: JsonObject = {}
        if clearing := plan_clearing(entry, price_step=find_price_step(model)):
            more["context_management"] = clearing
        if shows_thinking(entry):
            thinking = body.get("thinking")
            asked = thinking if isinstance(thinking, dict) else {"type": "adaptive"}
            more["thinking"] = {**asked, "display": "summarized"}
        return {name: part for name, part in more.items() if name not in self._refused}

    def _read_entry(self, model: str) -> JsonObject:
        """The model's entry, read once; empty where there is none. Whatever else is wrong, the call itself says it."""
        if model not in self._entries:
            try:
                with bounded_call(_LONGEST_LOOK_UP):
                    self._service.log_in()
                    has_list = self._service.is_anthropic
                    self._entries[model] = _json(self._client.models.retrieve(model)) if has_list else {}
            except (*CALL_ERRORS, BrokenAnswer, *_STUMBLES):
                self._entries[model] = {}
        return self._entries[model]

    def look_up(self, model: str) -> ModelFault | None:
        """Ask for the model's entry."""
        with bounded_call(_LONGEST_LOOK_UP) as call:
            try:
                self._service.log_in()
                if not self._service.is_anthropic:
                    return UnlistedModel(reason=f"{self._where} has no list of models.")
                entry = self._client.models.retrieve(model)
            except anthropic.NotFoundError as error:
                fault = self._fault(error)
                # The API itself names the type of its error (docs, "Errors"); a server without the route cannot.
                return fault if error.type else UnlistedModel(reason=fault.reason, hint=fault.hint)
            except (*CALL_ERRORS, BrokenAnswer) as error:
                return overdue_fault(call.seconds, where=self._where) if call.overdue else self._fault(error)
        known = isinstance(entry, anthropic.types.ModelInfo)
        return None if known else self._fault(BrokenAnswer("no entry of a model came back"))

    def close(self) -> None:
        """Close the client's connections."""
        self._client.close()

    def _paid(self, answer: JsonObject, body: JsonObject) -> dict[str, Any]:
        """What an answer has used and cost, as far as the service has said: that much is billed.

        The Anthropic API answers with the exact model of an alias. A cloud answers with the bare model, and what was
        asked for says by which route it came, and so what it costs.
        """
        usage, provider = _usage(answer.get("usage")), self._service.provider
        names = [str(answer.get("model") or body["model"]), str(body["model"])]
        if provider is not Provider.ANTHROPIC:
            names.reverse()
        costs = (price_of(name, usage, provider) for name in names)
        return {"usage": usage, "cost_usd": next((cost for cost in costs if cost is not None), None)}

    def _fault(self, error: Exception, request: ModelRequest | None = None) -> ModelFault:
        fault = fault_of(error, self._service, key_worked=self._key_worked)
        if request is None or fault.remedy is not None or not isinstance(error, anthropic.APIStatusError):
            return fault
        if remedy := _find_remedy(error, request):
            return replace(fault, remedy=remedy)
        return replace(fault, hint=_EFFORT_HINT) if _refuses_effort(error, request) else fault

    def _stream(self, body: JsonObject, begun: JsonObject) -> JsonObject:
        """The finished message; `begun` keeps what is known of one that breaks off."""
        # Streamed, so that a long answer never looks like a dead connection.
        with self._open_stream(body) as stream:
            kind = stream.response.headers.get("content-type", "no content type")
            if not kind.startswith(self._service.stream_type):
                raise BrokenAnswer(f"{kind} came back instead of an event stream")
            try:
                answer = _read(stream, begun)
            except self._stumbles as error:
                raise BrokenAnswer(f"an event could not be read ({type(error).__name__}: {error})") from error
        if "stop_reason" not in answer:
            raise BrokenAnswer("the stream ended before the message did")
        return answer

    def _create(self, body: JsonObject, _begun: JsonObject) -> JsonObject:
        """The message in one piece: a request without an answer cannot be streamed."""
        betas = betas_of(body)
        create = partial(self._client.beta.messages.create, betas=betas) if betas else self._client.messages.create
        try:
            return _json(create(**cast("Any", body)))
        except self._stumbles as error:
            raise BrokenAnswer(f"it could not be read ({type(error).__name__}: {error})") from error

    def _open_stream(self, body: JsonObject) -> Any:  # noqa: ANN401 - the SDK's two managers share no type
        """The stream of the answer; parts of the API that are in beta are asked for by name."""
        if betas := betas_of(body):
            return self._client.beta.messages.stream(**cast("Any", body), betas=betas)
        return self._client.messages.stream(**cast("Any", body))

    def _without_refused(self, error: Exception, body: JsonObject) -> ModelFault | None:
        """Leave out a part, from the next call on, that a server which only resembles the API does not know."""
        if not isinstance(error, anthropic.APIStatusError) or error.status_code not in _BAD_REQUESTS:
            return None
        said = error.api_message or error.message
        # Of breakpoints, those of tools and system go with the one at the top level.
        part = next((each for each in _OPTIONAL if each in said and each in body), None)
        if part is None:
            return None
        self._refused |= {part}
        reason = f"The model service at {self._where} refuses `{part}`; the call is made again without it."
        return ModelFault(reason=f"{reason} It said: {said}", transient=True, retry_after=0.0)


def _read(stream: MessageStream[None], begun: JsonObject) -> JsonObject:
    kinds: set[str] = set()
    inputs: dict[int, list[str]] = {}
    for event in stream:
        kinds.add(event.type)
        if event.type in _TELL_USAGE:
            begun |= _json(stream.current_message_snapshot)
        if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
            inputs.setdefault(event.index, []).append(event.delta.partial_json)
    if "message_stop" not in kinds:
        return {}
    message = stream.current_message_snapshot
    if message.stop_reason not in _CUT_OFF:
        _check_inputs(map("".join, inputs.values()))
    return _json(message)


def _json(message: BaseModel) -> JsonObject:
    """The message as JSON whose texts are all sound UTF-8: a model's half of a character becomes U+FFFD."""
    return cast("JsonObject", _make_sound(message.to_dict(mode="python", exclude_none=True, warnings=False)))


def _make_sound(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        case dict():
            return {_make_sound(key): _make_sound(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_make_sound(inner) for inner in value]
        case _:
            return value


def _check_inputs(inputs: Iterable[str]) -> None:
    """The SDK reads as much of a tool's input as there is; a call without its end would run as another call."""
    try:
        for text in inputs:
            json.loads(text or "{}")
    except ValueError as error:
        raise BrokenAnswer(f"the input of a tool call is not whole ({error})") from error


def _find_remedy(error: anthropic.APIStatusError, request: ModelRequest) -> Remedy | None:
    """What the refusal says that this service does not take; one about tools or messages as such names nothing."""
    said = (error.api_message or error.message).lower()
    if error.status_code in _IMAGE_REFUSALS and any(word in said for word in _IMAGE_WORDS):
        return Remedy.LEAVE_OUT_IMAGES if has_images(request.messages[-1]) else None
    if error.status_code not in _BAD_REQUESTS or said.startswith(("tools", "messages")):
        return None
    if request.effort is not None and "effort" in said:
        return None
    asks = request.schema is not None and request.strategy is Strategy.NATIVE
    return Remedy.ASK_IN_WORDS if asks and any(word in said for word in _SCHEMA_WORDS) else None


def _refuses_effort(error: anthropic.APIStatusError, request: ModelRequest) -> bool:
    said = (error.api_message or error.message).lower()
    is_refusal = error.status_code in _BAD_REQUESTS and not said.startswith(("tools", "messages"))
    return is_refusal and request.effort is not None and any(word in said for word in _EFFORT_WORDS)


def _read_turn(answer: JsonObject, *, model: str, paid: Mapping[str, Any]) -> ModelTurn | ModelFault:
    """The turn in a finished message."""
    reason = str(answer.get("stop_reason"))
    if reason not in set(StopReason):
        return ModelFault(
            reason=f"The model stopped for a reason that this version does not know: {reason!r}.",
            hint="Use a newer release of the action, or check that `anthropic-base-url` speaks the Messages API.",
            **paid,
        )
    stop_reason = StopReason(reason)
    refusal = _read_refusal(answer.get("stop_details")) if stop_reason is StopReason.REFUSAL else None
    content = _content(answer.get("content"))
    cleared = read_cleared(answer)
    return ModelTurn(content=content, stop_reason=stop_reason, model=model, refusal=refusal, cleared=cleared, **paid)


def _read_refusal(details: JsonValue) -> Refusal:
    said = details if isinstance(details, dict) else {}
    return Refusal(category=str(said.get("category") or ""), explanation=str(said.get("explanation") or ""))


def _content(blocks: JsonValue) -> tuple[JsonObject, ...]:
    """The blocks as they came, to be sent back as they are, but for empty texts, which the API refuses."""
    content = blocks if isinstance(blocks, list) else []
    return tuple(block for block in content if isinstance(block, dict) and not _is_empty_text(block))


def _is_empty_text(block: JsonObject) -> bool:
    return block.get("type") == "text" and not block.get("text")


def _usage(usage: JsonValue) -> Usage:
    counts = usage if isinstance(usage, dict) else {}

    def count(name: str) -> int:
        value = counts.get(name)
        return value if isinstance(value, int) and value > 0 else 0

    return Usage(
        input_tokens=count("input_tokens"),
        output_tokens=count("output_tokens"),
        cache_write_tokens=count("cache_creation_input_tokens"),
        cache_read_tokens=count("cache_read_input_tokens"),
    )
