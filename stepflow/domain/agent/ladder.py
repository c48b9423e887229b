"""The models that a step may use, in order, and the event that switches to the next one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self

from stepflow.domain.words import (
    Effort,
)


class ClimbCause(StrEnum):
    """Why a step switches to the next model."""

    #: A validator failed at the closing.
    VALIDATOR = "validator"
    #: An answer does not match its schema, and no format retry is left.
    FORMAT = "format"
    #: The model's safeguards refused.
    REFUSAL = "refusal"
    #: The conversation is close to the length at which the model costs more.
    PRICE = "price"


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A model and, optionally, its effort. A `fallback` is used only after a refusal."""

    model: str
    effort: Effort | None = None
    fallback: bool = False

    def __str__(self) -> str:
        return f"{self.model}:{self.effort}" if self.effort else self.model

    @classmethod
    def parse(cls, text: str, *, fallback: bool = False) -> Self:
        """Parse `model` or `model:effort`. A model's id may contain colons."""
        model, _, effort = text.rpartition(":")
        if model and effort in tuple(Effort):
            return cls(model=model, effort=Effort(effort), fallback=fallback)
        return cls(model=text, fallback=fallback)


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Rungs in order. `owner` is the step that defines the ladder, empty for the agent's ladder, which all other steps
    share."""

    owner: str
    rungs: tuple[Rung, ...]

    def find(self, written: str | None) -> Rung:
        """Return the rung with this name, or the first one if there is none."""
        return next((rung for rung in self.rungs if str(rung) == written), self.rungs[0])

    def above(self, rung: Rung, cause: ClimbCause) -> Rung | None:
        """Return the next rung that this cause allows; None at the top."""
        higher = self.rungs[self.rungs.index(rung) + 1 :]
        return next((each for each in higher if cause is ClimbCause.REFUSAL or not each.fallback), None)


@dataclass(frozen=True, kw_only=True)
class ModelChanged:
    """A step switched to the next rung of its ladder. `owner` is the step that defines the ladder, empty for the agent.
    `before` and `to` are rungs as written; a `fallback` is used after a refusal. Unless a validator failed, the step
    starts over, as after `context_overflowed`."""

    step_id: str
    owner: str
    before: str
    to: str
    fallback: bool
    cause: ClimbCause
    reason: str
    retry_prompt: str | None = None
    retry_source: str | None = None
    work: str = ""
    event: Literal["model_changed"] = "model_changed"

    def __str__(self) -> str:
        return f"{'the fallback model ' if self.fallback else ''}{self.to} takes over from {self.before}"
