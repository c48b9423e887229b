"""The model behind the Messages API, asked through the `anthropic` SDK."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from functools import cached_property
from threading import Thread
from typing import TYPE_CHECKING

from stepflow.domain.connection import direct, is_refused
from stepflow.domain.conversation import ModelFault
from stepflow.model.access import ModelAccess
from stepflow.model.anthropic_api import KeyLogin
from stepflow.model.logins import find_login, open_service
from stepflow.model.models import resolve_model

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from stepflow.domain.connection import ConnectionTo
    from stepflow.domain.conversation import ModelRequest, ModelTurn
    from stepflow.model.access import Service
    from stepflow.model.wire import Wire

_KEY_LIKE = re.compile(r"sk-ant-[\w-]+")
_LONGEST_REASON = 600


class AnthropicModel:
    """Implements the port `Model`. Raises `InputError` when it is made with a login or an address that cannot work.

    `access` says which service it is and what logs in there; without one it is a service that takes an API key.
    Only the arguments count (security.md case 33): base URL, proxies, certificates, extra headers and credentials of
    the process environment, and redirects by the service, are not followed, because the environment of a job is
    written by whatever ran before. Use it as a context manager, or call `close`.

    `max_tokens` caps one answer; a model that allows less refuses the request and says so. The timeouts are in seconds;
    `read_timeout` is the longest silence between two pieces of an answer, `longest_call` the most that one call may
    take, however busy its connection is; a request may allow less. A refused connection is a fault that passes, as when
    a server starts anew, unless nobody wants to wait for that: `wait_when_refused` is false.
    """

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        *,
        access: ModelAccess | None = None,
        connection_to: ConnectionTo = direct,
        max_tokens: int = 32_000,
        connect_timeout: float = 10,
        read_timeout: float = 600,
        longest_call: float = 1800,
        wait_when_refused: bool = True,
    ) -> None:
        self._login = find_login(access or ModelAccess(api_key=api_key, base_url=base_url))
        self.base_url = self._login.address
        self._ways, self._timeouts = connection_to, (connect_timeout, read_timeout)
        self._max_tokens, self._longest_call = max_tokens, longest_call
        self._wait_when_refused = wait_when_refused
        if isinstance(self._login, KeyLogin):
            # Nothing can be wrong with it yet, and the SDK takes a second: it loads while the sandbox starts.
            Thread(target=importlib.import_module, args=("stepflow.model.wire",), name="load the SDK").start()
        else:
            # More can be wrong than with a key; it shows before anything is spent.
            _ = self._service

    def ask(self, request: ModelRequest) -> ModelTurn | ModelFault:
        """One call, one try: no retries and no waiting; a failure is a value without the key in it."""
        answer = self._wire.send(request)
        return self._without_secrets(answer) if isinstance(answer, ModelFault) else answer

    def probe(self, model: str) -> ModelFault | None:
        """Ask the service whether it knows the model, without spending a token; None when it does (for preflight)."""
        fault = self._wire.look_up(resolve_model(model, self._service.provider))
        return self._without_secrets(fault) if fault else None

    def close(self) -> None:
        """Give the connections back."""
        if "_wire" in vars(self):
            self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def _service(self) -> Service:
        return open_service(self._login, connection_to=self._ways, timeouts=self._timeouts)

    @cached_property
    def _wire(self) -> Wire:
        from stepflow.model.wire import Wire  # noqa: PLC0415

        return Wire(self._service, max_tokens=self._max_tokens, longest_call=self._longest_call)

    def _without_secrets(self, fault: ModelFault) -> ModelFault:
        text = _KEY_LIKE.sub("[redacted]", " ".join(fault.reason.split()))
        for secret in self._service.secrets():
            text = text.replace(secret, "[redacted]")
        return replace(
            fault,
            reason=text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…",
            transient=fault.transient and (self._wait_when_refused or not is_refused(text)),
        )
