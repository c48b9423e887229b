"""The models that an agent and its steps name, their efforts and ladders."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.definition.diagnostics import FileProblems, closest_match, listed
from stepflow.definition.file_models import CheckStepEntry, FlowSettings, StepEntry
from stepflow.domain.ladder import Rung
from stepflow.domain.words import MODEL_ALIASES, Effort

if TYPE_CHECKING:
    from stepflow.definition.files.json_text import Pointer

#: How like an alias a model's name must be, from 0 to 1, to be that alias misspelled.
LIKE_ALIASES = 0.75

#: The models of Anthropic before those that take every effort: what each takes (platform.claude.com, "Effort").
_EFFORTS: dict[str, tuple[Effort, ...]] = {
    **dict.fromkeys(("opus-4-6", "sonnet-4-6", "mythos-preview"), (Effort.LOW, Effort.MEDIUM, Effort.HIGH, Effort.MAX)),
    "opus-4-5": (Effort.LOW, Effort.MEDIUM, Effort.HIGH),
    **dict.fromkeys(("sonnet-4-5", "haiku-4-5", "opus-4-1", "opus-4-0", "opus-4", "sonnet-4-0", "sonnet-4"), ()),
    **dict.fromkeys(("3-7-sonnet", "3-5-sonnet", "3-5-haiku", "3-opus", "3-sonnet", "3-haiku"), ()),
}
#: A model's id with the API, on Bedrock (with the profile of a region, or as an ARN) and on Vertex, its date left out.
_CLAUDE = re.compile(
    r"(?:arn:aws[^/]*/)?(?:(?:[a-z-]+\.)?anthropic\.)?claude-(?P<name>[a-z0-9-]+?)"
    r"(?:[-@]\d{8}|[-@]latest|@default)?(?:-v\d+(?::\d+)*)?"
)


#: What may be said of a step's models beside `model` itself.
MODEL_KEYS = ("models", "fallbackModel", "effort", "maxOutputTokens")
_Entry = FlowSettings | StepEntry | CheckStepEntry


def own_models(entry: _Entry) -> tuple[Rung, ...]:
    """The ladder that agent.json or a step names, be it of one model; empty where they name none."""
    if entry.models:
        return tuple(map(Rung.parse, entry.models))
    model = _single_model(entry)
    return (Rung(model=model),) if model else ()


def own_fallback(entry: _Entry) -> Rung | None:
    """The model that agent.json or a step names for refusals."""
    return Rung.parse(entry.fallback_model, fallback=True) if entry.fallback_model else None


def _single_model(entry: _Entry) -> str | None:
    return entry.default_model if isinstance(entry, FlowSettings) else entry.model


def check_models(entry: _Entry, at: Pointer, problems: FileProblems, *, flow: FlowSettings | None = None) -> None:
    """Check the models that agent.json names, or those of a step beside agent.json's `flow`."""
    word = "defaultModel" if isinstance(entry, FlowSettings) else "model"
    rungs, fallback = own_models(entry), own_fallback(entry)
    places = [at / "models" / number for number in range(len(rungs))] if entry.models else [at / word]
    named = [*zip(places, rungs, strict=False), *([(at / "fallbackModel", fallback)] if fallback else [])]
    _check_ladder(entry, at, problems, word=word)
    for place, rung in named:
        _check_name(rung.model, place, problems)
        if rung.effort or not entry.effort:
            check_effort(rung.model, rung.effort or (flow.effort if flow else None), place, problems)
    inherited = (own_models(flow), own_fallback(flow)) if flow else ((), None)
    for each in (*(rungs or inherited[0]), fallback or inherited[1]):
        if each and entry.effort and not each.effort:
            check_effort(each.model, entry.effort, at / "effort", problems)


def _check_ladder(entry: _Entry, at: Pointer, problems: FileProblems, *, word: str) -> None:
    """Refuse what can be no ladder (SF118)."""
    models, fallback = entry.models or [], own_fallback(entry)
    if models and _single_model(entry):
        message = f'"models" stands beside "{word}", and both say which model is the first'
        problems.report("SF118", at / "models", message, f'Remove "{word}": the first of "models" takes its place.')
    for number, name in enumerate(models):
        if name in models[:number]:
            message = f'"models" names "{name}" twice, but a run never goes back to an earlier model'
            problems.report("SF118", at / "models" / number, message, "Remove it, or write another effort behind it.")
    if fallback and fallback.model in {rung.model for rung in own_models(entry)}:
        message = f'"fallbackModel" is "{fallback.model}", which is the model that has refused by then'
        problems.report("SF118", at / "fallbackModel", message, "Name another model, or remove the key.")


def _check_name(name: str, at: Pointer, problems: FileProblems) -> None:
    """Warn about a model that is nearly an alias (SF113); any other name may be one that a server knows."""
    rungs = [f"{alias}:{effort}" for alias in MODEL_ALIASES for effort in Effort] if ":" in name else []
    if name in rungs:
        message = f'the model "{name}" has an effort behind it, which only the models of a ladder have'
        problems.report("SF113", at, message, f'Write "models": ["{name}"], or the effort as "effort".')
    elif name not in MODEL_ALIASES and (near := closest_match(name, [*MODEL_ALIASES, *rungs], LIKE_ALIASES)):
        message = f'the model "{name}" is no alias (did you mean "{near}"?)'
        problems.report("SF113", at, message, f'Write "{near}", unless your server has a model of that name.')


def check_effort(model: str, effort: Effort | None, at: Pointer, problems: FileProblems) -> None:
    """Refuse an effort that this model is known not to take (SF117)."""
    if misfit := find_effort_misfit(model, effort):
        problems.report("SF117", at, misfit.message, misfit.fix)


@dataclass(frozen=True, kw_only=True)
class EffortMisfit:
    """Why a model cannot be asked with an effort, and what to change."""

    message: str
    fix: str


def find_effort_misfit(model: str, effort: Effort | None) -> EffortMisfit | None:
    """What is wrong with this effort of this model; nothing is known of most models."""
    known = _CLAUDE.fullmatch(model)
    taken = _EFFORTS.get(known["name"]) if known else None
    if effort is None or taken is None or effort in taken:
        return None
    if taken:
        message = f'the model "{model}" does not know the effort "{effort}"'
        return EffortMisfit(message=message, fix=f"Use {listed(taken)}, or a newer model.")
    fix = 'Remove "effort" where it applies to this model, or use a newer model.'
    return EffortMisfit(message=f'the model "{model}" takes no "effort"', fix=fix)
