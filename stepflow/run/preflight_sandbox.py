"""The sandbox's rows of a preflight: each layer, and each place that the canaries try.

Takes: a run request. Gives: rows.
May touch: the checkout and processes as a run does, through the toolbox room, and only for a moment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.domain.words import CanaryState, Isolation, Outcome
from stepflow.errors import InputError, IsolationError
from stepflow.run.parts import toolbox_options
from stepflow.run.rows import failed, ok, warning
from stepflow.run.sandbox import open_sandbox
from stepflow.run.selftest import outside_of
from stepflow.sandbox.selftest.trial import try_canaries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.domain.preflight import Check
    from stepflow.run.cancel import Cancellation
    from stepflow.run.request import RunRequest
    from stepflow.sandbox.isolation import Layer
    from stepflow.sandbox.options import ToolboxOptions
    from stepflow.sandbox.selftest.canaries import Canary


def sandbox_checks(request: RunRequest, cancellation: Cancellation) -> tuple[Check, ...]:
    """The layers as a run would have them; where `required` does not start, as they would be without that demand."""
    try:
        options = toolbox_options(request)
        return tuple(_looked_at(request, options, cancellation))
    except InputError as error:
        return (failed("sandbox", str(error), Outcome.INVALID_DEFINITION),)
    except IsolationError as error:
        refused = failed("sandbox", str(error), Outcome.REFUSED)
    if options.isolation is not Isolation.REQUIRED:
        return (refused,)
    try:
        return (refused, *_looked_at(request, replace(options, isolation=Isolation.BEST_EFFORT), cancellation))
    except IsolationError:
        return (refused,)


def _looked_at(request: RunRequest, options: ToolboxOptions, cancellation: Cancellation) -> Iterator[Check]:
    required = request.inputs.isolation is Isolation.REQUIRED
    notes: list[str] = []
    with open_sandbox(request, options, cancellation, warn=notes.append) as sandbox:
        layers = sandbox.toolbox.layers
        report = try_canaries(sandbox.toolbox, outside_of(request))
    yield from (_layer(layer, required=required) for layer in layers)
    yield ok("sandbox: credentials", sandbox.credentials)
    yield from (warning("sandbox: credentials", note) for note in notes)
    yield from (_canary(canary, required=required) for canary in report.canaries)


def _layer(layer: Layer, *, required: bool) -> Check:
    name = f"sandbox: {layer.name}"
    if not layer.missing:
        return ok(name, layer.state)
    return failed(name, layer.state, Outcome.REFUSED) if required else warning(name, layer.state)


def _canary(canary: Canary, *, required: bool) -> Check:
    name = f"canary: {canary.place}"
    if canary.state is not CanaryState.REACHED:
        return ok(name, canary.told)
    refuses = required or canary.refuses
    return failed(name, canary.told, Outcome.REFUSED) if refuses else warning(name, canary.told)
