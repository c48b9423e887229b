"""The models that a step may be asked on, from the first to the last, and the event that one gives way to the next."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self

from stepflow.domain.words import (
    Effort,
)


class ClimbCause(StrEnum):
    """Why a model gives way to the next one."""

    #: A validator of the closing is red.
    VALIDATOR = "validator"
    #: An answer does not fit its schema, and no format retry is left.
    FORMAT = "format"
    #: The model's safeguards refused.
    REFUSAL = "refusal"
    #: The conversation is close to the length at which the model costs more.
    PRICE = "price"


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A model, and its effort where the rung says one. A `fallback` is taken after a refusal alone."""

    model: str
    effort: Effort | None = None
    fallback: bool = False

    def __str__(self) -> str:
        return f"{self.model}:{self.effort}" if self.effort else self.model

    @classmethod
    def parse(cls, text: str, *, fallback: bool = False) -> Self:
        """A rung as it is written: `model` or `model:effort`. Ids of models may have colons themselves."""
        model, _, effort = text.rpartition(":")
        if model and effort in tuple(Effort):
            return cls(model=model, effort=Effort(effort), fallback=fallback)
        return cls(model=text, fallback=fallback)


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Rungs from the first to the last. `owner` is the step that has them for itself; it is empty where all steps that
    say nothing of their own share the agent's."""

    owner: str
    rungs: tuple[Rung, ...]

    def find(self, written: str | None) -> Rung:
        """The rung of this name; the first one where there is none."""
        return next((rung for rung in self.rungs if str(rung) == written), self.rungs[0])

    def above(self, rung: Rung, cause: ClimbCause) -> Rung | None:
        """The next rung that may be taken for this cause; None at the top."""
        higher = self.rungs[self.rungs.index(rung) + 1 :]
        return next((each for each in higher if cause is ClimbCause.REFUSAL or not each.fallback), None)


@dataclass(frozen=True, kw_only=True)
class ModelChanged:
    """A step's model gives way to the next rung of its ladder, which belongs to the step `owner`, or to the agent where
    that is empty. `before` and `to` are the rungs as they are written; a `fallback` was taken after a refusal. After a
    red validator that is all; else the step begins again, as after `context_overflowed`."""

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
