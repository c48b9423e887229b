"""The model's SDK, loaded while the rest of a run is being prepared.

Takes: nothing. Gives: a way to wait for it.
May touch: a thread of this process, and when Python looks for rings among its objects.
"""

from __future__ import annotations

import gc
import importlib
from contextlib import suppress
from threading import Thread

from stepflow.llm.on_demand import load_on_demand

#: What asks the model, and what it would come to only with the first request.
_MODULES = (
    "stepflow.llm.clients",
    "stepflow.llm.wire",
    "anthropic.resources.messages.messages",
    "httpcore2",
    "truststore",
)


def load_ahead() -> Thread:
    """Begin to load the SDK: a thousand modules, while this process mostly waits for git and for the toolbox."""
    load_on_demand("anthropic")
    # A daemon, so that a run which ends before its flow does not wait for what it will not need.
    loading = Thread(target=_load, name="sdk", daemon=True)
    loading.start()
    return loading


def settle(loading: Thread | None) -> None:
    """All that a run needs is in memory from here on; looking for rings among it again and again would only cost."""
    if loading is not None:
        loading.join()
    # Only where the command or the container switched it off: a program that uses the API has its own way.
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _load() -> None:
    # Whoever needs it imports it again and gets the error where it can be told.
    with suppress(Exception):
        for name in _MODULES:
            importlib.import_module(name)
