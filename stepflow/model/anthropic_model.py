"""The model behind the Messages API, asked through the `anthropic` SDK with the login of its provider."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from functools import cached_property
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from stepflow.domain.connection import ConnectionTo, direct, is_refused
from stepflow.domain.conversation import ModelFault, ModelRequest, ModelTurn
from stepflow.domain.text import cut
from stepflow.model.access import Login, ModelAccess, Service
from stepflow.model.logins import find_login
from stepflow.model.models import DEFAULT_MAX_TOKENS, resolve_model

if TYPE_CHECKING:
    from stepflow.model.wire import Wire

_KEY_LIKE = re.compile(r"sk-ant-[\w-]+")
_LONGEST_REASON = 600


def open_service(login: Login, *, connection_to: ConnectionTo, timeouts: tuple[float, float]) -> Service:
    """The client for this login. `timeouts`: to connect, and of silence, in seconds."""
    from anthropic import Timeout  # noqa: PLC0415 - more than a second that only a real model should cost

    from stepflow.model.http_client import http_client  # noqa: PLC0415

    connection = connection_to(login.address)
    http = http_client(connection)
    connect, read = timeouts
    # `max_retries`: there is one policy, the flow's own (flow.md §10).
    shared: dict[str, Any] = {
        "base_url": login.address,
        "max_retries": 0,
        "timeout": Timeout(read, connect=connect),
        "open_telemetry": False,
        "http_client": http,
    }
    service = replace(login.open(shared, http, connection_to), where=login.address, connection=connection)
    # The SDK offers no way to say that ANTHROPIC_CUSTOM_HEADERS of the environment shall not count.
    service.client._custom_headers = {}
    return service


class AnthropicModel:
    """Implements the port `Model`. Raises `InputError` when it is made with a login or an address that cannot work.

    `access` says which service it is and what logs in there; without one it is a service that takes an API key.
    Only the arguments count: base URL, proxies, certificates, extra headers and credentials of
    the process environment, and redirects by the service, are not followed, because the environment of a job is
    written by whatever ran before. Use it as a context manager, or call `close`.

    `max_tokens` caps an answer whose request does not say it; a model that allows less refuses the request and says so.
    The timeouts are in seconds; `read_timeout` is the longest silence between two pieces of an answer,
    `longest_call` the most that one call may take, however busy its connection is; a request may allow less. A
    refused connection is a fault that passes, as when a server starts anew, unless nobody wants to wait for that:
    `wait_when_refused` is false.
    """

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        *,
        access: ModelAccess | None = None,
        connection_to: ConnectionTo = direct,
        max_tokens: int = DEFAULT_MAX_TOKENS,
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
        if self._login.opens_at_once:
            # What is wrong with it shows before anything is spent.
            _ = self._service
        else:
            # Nothing can be wrong with it yet, and the SDK takes a second: it loads while the sandbox starts.
            Thread(target=importlib.import_module, args=("stepflow.model.wire",), name="load the SDK").start()

    def ask(self, request: ModelRequest) -> ModelTurn | ModelFault:
        """One call, one try: no retries and no waiting; a failure is a value without the key in it."""
        answer = self._wire.send(request)
        return self._without_secrets(answer) if isinstance(answer, ModelFault) else answer

    def renew(self, request: ModelRequest, number: int) -> ModelTurn | ModelFault | None:
        """Use what the service has cached of a request, the `number`th time in a row; None where that does not pay."""
        answer = self._wire.renew(request, number)
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
            reason=cut(text, _LONGEST_REASON),
            transient=fault.transient and (self._wait_when_refused or not is_refused(text)),
        )
