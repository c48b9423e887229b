"""A model behind the Messages API, called through the `anthropic` SDK with the login of its provider."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from functools import cached_property
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from stepflow.domain.connection import ConnectionTo, direct, is_refused
from stepflow.domain.conversation import ModelFault, ModelRequest, ModelTurn
from stepflow.domain.text import cut
from stepflow.model.logins import Login, ModelAccess, find_login
from stepflow.model.models import DEFAULT_MAX_TOKENS, Service, resolve_model

if TYPE_CHECKING:
    from stepflow.model.wire import Wire

A = TypeVar("A", bound=ModelTurn | ModelFault | None)
_KEY_LIKE = re.compile(r"sk-ant-[\w-]+")
_LONGEST_REASON = 600


def open_service(login: Login, *, connection_to: ConnectionTo, timeouts: tuple[float, float]) -> Service:
    """Build the client for this login. `timeouts` are in seconds: to connect, and without data."""
    from anthropic import Timeout  # noqa: PLC0415 - takes over a second; only a real model needs it

    from stepflow.model.http_client import http_client  # noqa: PLC0415

    connection = connection_to(login.address)
    http = http_client(connection)
    connect, read = timeouts
    # `max_retries`: the flow has its own retry policy, the only one (flow.md §10).
    shared: dict[str, Any] = {
        "base_url": login.address,
        "max_retries": 0,
        "timeout": Timeout(read, connect=connect),
        "open_telemetry": False,
        "http_client": http,
    }
    service = replace(login.open(shared, http, connection_to), where=login.address, connection=connection)
    # The SDK has no option to ignore ANTHROPIC_CUSTOM_HEADERS in the environment.
    service.client._custom_headers = {}
    return service


class AnthropicModel:
    """Implements the port `Model`. The constructor raises `InputError` for a login or an address that cannot work.

    `access` names the service and its login; without it, the service is one that takes an API key. Only the arguments
    count. The process environment's base URL, proxies, certificates, extra headers and credentials are ignored, because
    earlier steps of a job can write to its environment. Redirects by the service are not followed. Use the model as a
    context manager, or call `close`.

    `max_tokens` caps an answer if the request does not. A model that allows less refuses the request and says so.
    Timeouts are in seconds. `read_timeout` is the longest silence between two pieces of an answer. `longest_call`
    limits a whole call, even if data still arrives; a request may set a lower limit. A refused connection is a
    transient fault, as when a server restarts, unless `wait_when_refused` is false.
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
            # Report a bad login before any money is spent.
            _ = self._service
        else:
            # There is nothing to check yet, and the SDK takes a second to load: load it while the sandbox starts.
            Thread(target=importlib.import_module, args=("stepflow.model.wire",), name="load the SDK").start()

    def ask(self, request: ModelRequest) -> ModelTurn | ModelFault:
        """Make one call, without retries or waiting. A failure is returned as a value that does not contain the key."""
        return self._without_secrets(self._wire.send(request))

    def renew(self, request: ModelRequest, number: int) -> ModelTurn | ModelFault | None:
        """Refresh the service's cache of a request for the `number`th time in a row; return None if that does not
        pay."""
        return self._without_secrets(self._wire.renew(request, number))

    def probe(self, model: str) -> ModelFault | None:
        """Check that the service knows the model, without spending a token (for preflight). Return None if it does."""
        return self._without_secrets(self._wire.look_up(resolve_model(model, self._service.provider)))

    def close(self) -> None:
        """Close the connections."""
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

    def _without_secrets(self, answer: A) -> A:
        """Return a fault that does not contain the key, and anything else as it is."""
        if not isinstance(answer, ModelFault):
            return answer
        text = _KEY_LIKE.sub("[redacted]", " ".join(answer.reason.split()))
        for secret in self._service.secrets():
            text = text.replace(secret, "[redacted]")
        return replace(
            answer,
            reason=cut(text, _LONGEST_REASON),
            transient=answer.transient and (self._wait_when_refused or not is_refused(text)),
        )
