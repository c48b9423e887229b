"""One call to the Messages API: building the request body, and reading the turn from the response."""

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
from stepflow.domain.json import JsonObject, JsonValue, value_at
from stepflow.domain.text import replace_surrogates
from stepflow.domain.words import Provider, Strategy
from stepflow.model import bedrock
from stepflow.model.faults import CALL_ERRORS, fault_of, overdue_fault
from stepflow.model.http_client import BrokenAnswer, bounded_call
from stepflow.model.models import Service, UnlistedModel, find_price_step, pays_to_renew, price_of, resolve_model

if TYPE_CHECKING:
    from anthropic import BaseModel
    from anthropic.lib.streaming import MessageStream
from stepflow.domain.conversation import ClearedResults, text_block
from stepflow.engine.answer_schema import native_schema

_BAD_REQUESTS = frozenset({400, 422})
#: llama.cpp returns 500 for an image if its model has no vision.
_IMAGE_REFUSALS = _BAD_REQUESTS | {500}
#: The factor of all prices for inference that stays in the US, which a workspace may have as its default
#: (platform.claude.com, "Data residency"). The price list does not have it.
_IN_THE_US = 1.1
#: Stop reasons that may cut off the last tool call of a message. Such a call is never run.
_CUT_OFF = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})
#: The events that report the usage of an answer so far.
_TELL_USAGE = frozenset({"message_start", "message_delta"})
_LONGEST_LOOK_UP = 60.0
#: Words in the refusal of a schema. The API refuses one whose grammar is too large; other services refuse any schema.
_SCHEMA_WORDS = ("output_config", "output_format", "structured output", "grammar", "optional parameters", "schema")
#: Words in the refusal of an effort. A service without `output_config` names that instead.
_EFFORT_WORDS = ("effort", "output_config")
_EFFORT_HINT = (
    "Remove `effort` from the step or from agent.json, or choose another level or `model`: this service or model does "
    "not take it."
)
#: Words in the refusal of an image. A valid header does not rule out a corrupt image.
_IMAGE_WORDS = ("image", "multimodal")
#: Optional parts of a request, which a service may refuse by name.
_OPTIONAL = ("cache_control", "context_management")
#: Exceptions that the SDK raises for events that are valid JSON but not valid in the API.
_STUMBLES = (ValueError, LookupError, TypeError, AttributeError, RuntimeError, AssertionError)


class Wire:
    """One client for one service. It remembers which optional parts the service refused, only to save calls."""

    def __init__(self, service: Service, *, max_tokens: int, longest_call: float) -> None:
        self._service, self._client, self._where = service, service.client, service.where
        self._on_bedrock = service.provider is Provider.BEDROCK
        self._stumbles = _STUMBLES + service.stumbles
        self._max_tokens, self._longest_call = max_tokens, longest_call
        self._key_worked = False
        self._refused: frozenset[str] = frozenset()
        self._entries: dict[str, JsonObject] = {}

    def send(self, request: ModelRequest) -> ModelTurn | ModelFault:
        """Stream one answer and return it as a turn."""
        return self._call(self._body(request), request, self._stream)

    def renew(self, request: ModelRequest, number: int) -> ModelTurn | ModelFault | None:
        """Refresh the cache of a request for the `number`th time in a row, without an answer. Return None if that does
        not pay (Messages API, "Pre-warming the cache")."""
        service, is_refused = self._service, "cache_control" in self._refused
        if is_refused or not service.is_anthropic or not pays_to_renew(request.model, number, service.provider):
            return None
        body = self._body(request)
        output = body.get("output_config")
        # With a format, the API rejects 0 tokens; without the format, the prefix would differ.
        body["max_tokens"] = 1 if isinstance(output, dict) and "format" in output else 0
        return self._call(body, request, self._create)

    def _body(self, request: ModelRequest) -> JsonObject:
        model = resolve_model(request.model, self._service.provider)
        body = request_body(request, max_tokens=self._max_tokens, exclude=self._refused) | {"model": model}
        if self._on_bedrock and (bedrock.is_old(model) or bedrock.VERSION in self._refused):
            body["extra_body"] = bedrock.OLD_VERSION
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
        return _read_turn(answer, model=str(answer.get("model") or body["model"]), paid=self._paid(answer, body))

    def _ask_for_more(self, model: str, body: JsonObject) -> JsonObject:
        """Return additional parts for a conversation with tools, if the service lists them for this model: making room
        in a long conversation, and summaries of the thinking between tool calls."""
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
        """Return the model's entry, read once; empty if there is none. The call itself reports any other problem."""
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
        """Request the model's entry. Return None on success."""
        with bounded_call(_LONGEST_LOOK_UP) as call:
            try:
                self._service.log_in()
                if not self._service.is_anthropic:
                    return UnlistedModel(reason=f"{self._where} has no list of models.")
                entry = self._client.models.retrieve(model)
            except anthropic.NotFoundError as error:
                fault = self._fault(error)
                # Only the real API names an error type (docs, "Errors"); a server without this route does not.
                return fault if error.type else UnlistedModel(reason=fault.reason, hint=fault.hint)
            except (*CALL_ERRORS, BrokenAnswer) as error:
                return overdue_fault(call.seconds, where=self._where) if call.overdue else self._fault(error)
        known = isinstance(entry, anthropic.types.ModelInfo)
        return None if known else self._fault(BrokenAnswer("no entry of a model came back"))

    def close(self) -> None:
        """Close the client's connections."""
        self._client.close()

    def _paid(self, answer: JsonObject, body: JsonObject) -> dict[str, Any]:
        """Return the usage and cost of an answer as far as the service has reported them; that much is billed.

        The Anthropic API names the exact model behind an alias. A cloud names only the base model, so the price depends
        on the requested name, which includes the route.
        """
        usage, provider = _usage(answer.get("usage")), self._service.provider
        names = [str(answer.get("model") or body["model"]), str(body["model"])]
        if provider is not Provider.ANTHROPIC:
            names.reverse()
        costs = (price_of(name, usage, provider) for name in names)
        cost = next((cost for cost in costs if cost is not None), None)
        in_us = provider is Provider.ANTHROPIC and value_at(answer, "usage.inference_geo") == "us"
        return {"usage": usage, "cost_usd": cost * _IN_THE_US if cost is not None and in_us else cost}

    def _fault(self, error: Exception, request: ModelRequest | None = None) -> ModelFault:
        fault = fault_of(error, self._service, key_worked=self._key_worked)
        if request is None or fault.remedy is not None or not isinstance(error, anthropic.APIStatusError):
            return fault
        if self._on_bedrock and error.status_code in _BAD_REQUESTS:
            described = bedrock.describe_model(resolve_model(request.model, Provider.BEDROCK))
            fault = replace(fault, hint=f"{fault.hint} {described}")
        return _name_refused(fault, error, request)

    def _stream(self, body: JsonObject, begun: JsonObject) -> JsonObject:
        """Return the finished message; `begun` receives what is known of a message that breaks off."""
        # Stream, so that a long answer never looks like a dead connection.
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
        """Return the message in one piece: a request without an answer cannot be streamed."""
        betas = betas_of(body)
        create = partial(self._client.beta.messages.create, betas=betas) if betas else self._client.messages.create
        try:
            return _json(create(**cast("Any", body)))
        except self._stumbles as error:
            raise BrokenAnswer(f"it could not be read ({type(error).__name__}: {error})") from error

    def _open_stream(self, body: JsonObject) -> Any:  # noqa: ANN401 - the SDK's two managers share no type
        """Open the stream of the answer. Beta parts of the API are requested by name."""
        if betas := betas_of(body):
            return self._client.beta.messages.stream(**cast("Any", body), betas=betas)
        return self._client.messages.stream(**cast("Any", body))

    def _without_refused(self, error: Exception, body: JsonObject) -> ModelFault | None:
        """Omit a part from later calls if a server that only resembles the API does not know it."""
        if not isinstance(error, anthropic.APIStatusError) or error.status_code not in _BAD_REQUESTS:
            return None
        said = error.api_message or error.message
        if self._on_bedrock and "extra_body" not in body and bedrock.refuses_version(said):
            self._refused |= {bedrock.VERSION}
            reason = (
                f"The model {body['model']} refuses this version of the API; the call is made again with an older one."
            )
            return ModelFault(reason=f"{reason} It said: {said}", transient=True, retry_after=0.0)
        # Omitting the top-level breakpoint also omits those of tools and system.
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
    """Return the message as JSON with valid UTF-8 strings: half a character from a model becomes U+FFFD."""
    return cast("JsonObject", _make_sound(message.to_dict(mode="python", exclude_none=True, warnings=False)))


def _make_sound(value: object) -> object:
    match value:
        case str():
            return replace_surrogates(value)
        case dict():
            return {_make_sound(key): _make_sound(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_make_sound(inner) for inner in value]
        case _:
            return value


def _check_inputs(inputs: Iterable[str]) -> None:
    """Raise `BrokenAnswer` for a truncated tool input. The SDK accepts it, and it would run as a different call."""
    try:
        for text in inputs:
            json.loads(text or "{}")
    except ValueError as error:
        raise BrokenAnswer(f"the input of a tool call is incomplete ({error})") from error


def _name_refused(fault: ModelFault, error: anthropic.APIStatusError, request: ModelRequest) -> ModelFault:
    """Add the remedy or the hint if the refusal names what the service does not accept. Errors about tools or messages
    name nothing."""
    said = (error.api_message or error.message).lower()

    def names(words: tuple[str, ...]) -> bool:
        return any(word in said for word in words)

    if error.status_code in _IMAGE_REFUSALS and names(_IMAGE_WORDS) and has_images(request.messages[-1]):
        return replace(fault, remedy=Remedy.LEAVE_OUT_IMAGES)
    if error.status_code not in _BAD_REQUESTS or said.startswith(("tools", "messages")):
        return fault
    asks = request.schema is not None and request.strategy is Strategy.NATIVE
    is_image, is_effort = names(_IMAGE_WORDS), request.effort is not None and "effort" in said
    if asks and names(_SCHEMA_WORDS) and not (is_image or is_effort):
        return replace(fault, remedy=Remedy.ASK_IN_WORDS)
    return replace(fault, hint=_EFFORT_HINT) if request.effort is not None and names(_EFFORT_WORDS) else fault


def _read_turn(answer: JsonObject, *, model: str, paid: Mapping[str, Any]) -> ModelTurn | ModelFault:
    """Return the turn in a finished message."""
    reason = str(answer.get("stop_reason"))
    if reason not in set(StopReason):
        return ModelFault(
            reason=f"The model stopped for a reason that this version does not know: {reason!r}.",
            hint="Use a newer release of the action, or check that `model.base-url` speaks the Messages API.",
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
    """Return the blocks unchanged, to be sent back later, except for empty texts, which the API refuses."""
    found = (block for block in (blocks if isinstance(blocks, list) else ()) if isinstance(block, dict))
    return tuple(block for block in found if block.get("type") != "text" or block.get("text"))


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


_CLEARING = "clear_tool_uses_20250919"
#: Number of newest results to keep: the model is still working with them.
KEPT_RESULTS = 5
#: Results are cleared when a conversation fills this share of the window.
_TRIGGER_SHARE = 0.75
#: Clearing invalidates part of the cached prefix; less than this share of the window is not worth it.
_LEAST_SHARE = 0.25


def request_body(request: ModelRequest, *, max_tokens: int, exclude: frozenset[str] = frozenset()) -> JsonObject:
    """Return the arguments of one call. The same prefix gives the same bytes, so only new content is billed in full.

    `max_tokens` is the limit of one answer if the request sets none. `exclude` names the optional parts that the
    service refused.
    """
    body: JsonObject = {
        "model": resolve_model(request.model),
        "max_tokens": request.max_output_tokens or max_tokens,
        "system": request.system,
        "tools": [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in request.tools
        ],
        "messages": [{"role": message.role, "content": list(message.content)} for message in request.messages],
    }
    optional = {key: part for key, part in _optional(request).items() if key not in exclude}
    whole = {key: value for key, value in body.items() if value} | optional
    return mark_prefix(whole, cacheable=request.cacheable)


def _optional(request: ModelRequest) -> JsonObject:
    # Mark the last cacheable block: the next turn reads everything up to it from the cache.
    parts: JsonObject = {"cache_control": {"type": "ephemeral"}}
    if request.drop_thinking:
        parts["thinking"] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    output: JsonObject = {} if request.effort is None else {"effort": str(request.effort)}
    if request.schema is not None and request.strategy is Strategy.NATIVE:
        # Loaded here: takes over a second, and only a request that is actually sent needs it.
        from anthropic import transform_schema  # noqa: PLC0415

        if native := native_schema(request.schema):
            output["format"] = {"type": "json_schema", "schema": transform_schema(native)}
    return parts | {"output_config": output} if output else parts


#: Header values that enable beta parts of the API (platform.claude.com, "Beta headers").
_CONTEXT_MANAGEMENT = "context-management-2025-06-27"
_BINDING_CONTROLS = "thinking-binding-controls-2026-08-01"


def betas_of(body: JsonObject) -> list[str]:
    """Return the beta headers that a body needs."""
    thinking = body.get("thinking")
    controls = isinstance(thinking, dict) and "block_binding" in thinking
    return [_CONTEXT_MANAGEMENT] * ("context_management" in body) + [_BINDING_CONTROLS] * controls


_MARK: JsonObject = {"cache_control": {"type": "ephemeral"}}


def mark_prefix(body: JsonObject, *, cacheable: int) -> JsonObject:
    """Return the body with cache breakpoints, or unchanged if the service refused the top-level one.

    The service caches everything up to a breakpoint: tools, then system, then messages. It allows four. The top-level
    breakpoint moves with the last block and serves the turns of one conversation. Later and repeated steps need their
    own: after the tools, the shared part of the system prompt, and the step's part. In a longer conversation, one
    inside it replaces the last of these. `cacheable` is the number of characters at the start of the system prompt that
    are the same in every step.
    """
    if "cache_control" not in body:
        return body
    marked = dict(body)
    match body.get("tools"):
        case [*others, dict(last)]:
            marked["tools"] = [*others, last | _MARK]
    messages = body["messages"] if isinstance(body["messages"], list) else []
    settled = _find_settled(messages)
    if settled is not None:
        marked["messages"] = [*messages[:settled], _mark_last(messages[settled]), *messages[settled + 1 :]]
    match body.get("system"):
        case str(system):
            blocks = [text_block(part) for part in (system[:cacheable], system[cacheable:]) if part.strip()]
            most = len(blocks) if settled is None else 1
            marked["system"] = [block | _MARK if number < most else block for number, block in enumerate(blocks)]
    return marked


def _find_settled(messages: list[JsonValue]) -> int | None:
    """Return the index of the newest user message followed by as many results as clearing keeps; None if there is none.

    Everything before it stays the same in the next request, even if one more result is cleared there. The service
    searches its cache at most 20 blocks before a breakpoint, fewer than a turn with many calls adds.
    """
    results = 0
    for number in range(len(messages) - 1, -1, -1):
        match messages[number]:
            case {"role": "user", **message}:
                if results >= KEPT_RESULTS:
                    return number
                content = message.get("content")
                blocks = content if isinstance(content, list) else []
                results += sum(value_at(block, "type") == "tool_result" for block in blocks)
    return None


def _mark_last(message: JsonValue) -> JsonValue:
    match message:
        case {"role": role, "content": [*before, dict(last)]}:
            return {"role": role, "content": [*before, last | _MARK]}
    return message


def plan_clearing(entry: JsonObject, *, price_step: int | None) -> JsonObject | None:
    """Return the part of a request that asks the service to make room, based on the model's entry. Return None if the
    entry does not list this feature and the window. A request longer than `price_step` costs more per token, so room is
    made before that."""
    window = entry.get("max_input_tokens")
    supported = value_at(entry, f"capabilities.context_management.{_CLEARING}.supported")
    if not isinstance(window, int) or window <= 0 or supported is not True:
        return None
    window = min(window, price_step or window)
    edit: JsonObject = {
        "type": _CLEARING,
        "trigger": {"type": "input_tokens", "value": int(window * _TRIGGER_SHARE)},
        "keep": {"type": "tool_uses", "value": KEPT_RESULTS},
        "clear_at_least": {"type": "input_tokens", "value": int(window * _LEAST_SHARE)},
    }
    return {"edits": [edit]}


def shows_thinking(entry: JsonObject) -> bool:
    """Return whether the model thinks adaptively and can summarize its thinking between calls."""
    return value_at(entry, "capabilities.thinking.types.adaptive.supported") is True


def read_cleared(answer: JsonObject) -> ClearedResults | None:
    """Return what the service dropped from the request that this message answers; None if nothing."""
    applied = value_at(answer, "context_management.applied_edits")
    edits = applied if isinstance(applied, list) else []
    results, tokens = (
        sum(number for edit in edits if isinstance(number := value_at(edit, key), int))
        for key in ("cleared_tool_uses", "cleared_input_tokens")
    )
    return ClearedResults(results=results, tokens=tokens) if results else None
