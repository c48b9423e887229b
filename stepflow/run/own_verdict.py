"""The agent's own verdict, made from its own code (flow.md §9.2, `meta:custom`).

Takes: the agent and the run arguments. Gives: a `CustomVerdict`, or `DefinitionError` that says what the code did.
May touch: whatever that code touches: it runs in this process, which is why only `allow-custom-verdict` lets it load.
"""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast

from stepflow.domain.words import VerdictType
from stepflow.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.json import JsonObject


class Handler(Protocol):
    """What the agent's `build(definition, args)` gives back. It may also have a text `criteria` for the prompts."""

    def feed(self, iteration: int, texts: tuple[str, ...], answer: JsonObject | None) -> None:
        """Take in one iteration: its number, all texts of the model, and the answer object if there is one."""
        ...

    def is_finished(self) -> bool:
        """Whether the work is done."""
        ...


@dataclass(frozen=True, kw_only=True)
class OwnVerdict:
    """Implements the port `CustomVerdict` around a handler; what the handler raises ends the run with its words."""

    path: str
    handler: Handler

    @property
    def criteria(self) -> str:
        """The handler's own sentence, if it has one."""
        text = getattr(self.handler, "criteria", "")
        return text if isinstance(text, str) else ""

    def is_finished(self, iteration: int, texts: tuple[str, ...], answer: JsonObject | None) -> bool:
        """Feed the handler with one iteration, and ask it."""
        with _foreign_code(self.path, f"in iteration {iteration}"):
            self.handler.feed(iteration, texts, answer)
            return bool(self.handler.is_finished())


def open_verdict(agent: AgentDefinition, args: JsonObject) -> OwnVerdict | None:
    """The agent's own verdict; None when its verdict type is another one."""
    if agent.verdict.type is not VerdictType.META_CUSTOM:
        return None
    path = str(agent.verdict.config.get("handlerPath"))
    with _foreign_code(path, "while it was loaded"):
        module = _module(agent, path)
        build = getattr(module, "build", None)
        handler = build(agent, dict(args)) if callable(build) else None
    missing = [name for name in ("feed", "is_finished") if not callable(getattr(handler, name, None))]
    if missing:
        raise DefinitionError(
            f'The verdict\'s handler "{path}" gives no `build(definition, args)` whose result has {_named(missing)}.',
            hint="Define `build`; it returns an object with feed(iteration, texts, answer) and is_finished().",
        )
    return OwnVerdict(path=path, handler=cast("Handler", handler))


def _module(agent: AgentDefinition, path: str) -> ModuleType:
    """The handler's module: the text that was read at load, or an installed module."""
    source = agent.verdict.handler
    if source is None:
        return importlib.import_module(path)
    module = ModuleType("stepflow_own_verdict")
    exec(compile(source.text, source.file, "exec"), module.__dict__)  # noqa: S102 - the author's code, asked for by name
    return module


@contextmanager
def _foreign_code(path: str, when: str) -> Iterator[None]:
    """Code of the agent's author may raise anything; the run then ends with what it said, not as a bug of ours."""
    try:
        yield
    except Exception as exc:
        raise DefinitionError(
            f'The verdict\'s handler "{path}" failed {when}: {type(exc).__name__}: {exc}.',
            hint="Mend the handler, or use another verdict type.",
        ) from exc


def _named(names: list[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)
