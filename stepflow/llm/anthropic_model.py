"""The model behind the Messages API, asked through the `anthropic` SDK.

Takes: a `ModelRequest`, one at a time. Gives: the turn that came back, or a `ModelFault`; nothing is tried twice.
May touch: the model service at the given address. The SDK is loaded when a model is made, not when this is imported.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.domain.conversation import ModelFault
from stepflow.errors import InputError
from stepflow.llm.address import ANTHROPIC_URL, check_base_url
from stepflow.llm.models import resolve_model

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from stepflow.domain.conversation import ModelRequest, ModelTurn

_KEY_LIKE = re.compile(r"sk-ant-[\w-]+")
_LONGEST_REASON = 600


class AnthropicModel:
    """Implements the port `Model`. Raises `InputError` when it is made with a key or an address that cannot work.

    Only the arguments count (security.md case 33): base URL, proxies, certificates, extra headers and credentials of
    the process environment, and redirects by the service, are not followed, because the environment of a job is
    written by whatever ran before. Use it as a context manager, or call `close`.

    `max_tokens` caps one answer; a model that allows less refuses the request and says so. The timeouts are in seconds;
    `read_timeout` is the longest silence between two pieces of an answer, `longest_call` the most that one call may
    take, however busy its connection is; a request may allow less.
    """

    def __init__(
        self,
        api_key: str,
        base_url: str | None = None,
        *,
        proxy: str | None = None,
        max_tokens: int = 32_000,
        connect_timeout: float = 10,
        read_timeout: float = 600,
        longest_call: float = 1800,
    ) -> None:
        self._key = _check_key(api_key)
        self.base_url = check_base_url(base_url or ANTHROPIC_URL)
        # Loaded here: more than a second, and only a run with a real model needs it.
        from stepflow.llm.wire import Wire  # noqa: PLC0415

        self._wire = Wire(
            api_key=self._key,
            base_url=self.base_url,
            proxy=proxy,
            max_tokens=max_tokens,
            timeouts=(connect_timeout, read_timeout),
            longest_call=longest_call,
        )

    def ask(self, request: ModelRequest) -> ModelTurn | ModelFault:
        """One call, one try: no retries and no waiting; a failure is a value without the key in it."""
        answer = self._wire.send(request)
        return self._without_secrets(answer) if isinstance(answer, ModelFault) else answer

    def probe(self, model: str) -> ModelFault | None:
        """Ask the service whether it knows the model, without spending a token; None when it does (for preflight)."""
        fault = self._wire.look_up(resolve_model(model))
        return self._without_secrets(fault) if fault else None

    def close(self) -> None:
        """Give the connections back."""
        self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _without_secrets(self, fault: ModelFault) -> ModelFault:
        text = _KEY_LIKE.sub("[redacted]", " ".join(fault.reason.split()).replace(self._key, "[redacted]"))
        return replace(fault, reason=text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…")


def _check_key(api_key: str) -> str:
    key = api_key.strip()
    if not key:
        raise InputError(
            "The input `anthropic-api-key` is empty.",
            hint="Give it a secret of the repository, or use `provider: scripted` with a `scenario`.",
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise InputError(
            "The input `anthropic-api-key` holds characters that no key has.",
            hint="Store the key again, without spaces, line breaks or quotation marks around it.",
        )
    return key
