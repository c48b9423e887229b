"""A journal without what differs from run to run and from machine to machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

#: Values that are masked whole: measured, hashed over files, or found on the machine. The system prompt's texts belong
#: to the tests of the prompt room; the options are told by `case.yaml`.
MASKED = ("seconds", "bytes", "definition_digest", "isolation", "options", "system", "stepflow_version")
RANDOM = (
    (re.compile(r"\b[0-9a-f]{64}\b"), "<digest>"),
    (re.compile(r"\b[0-9a-f]{40}\b"), "<commit>"),
    (re.compile(r"\b[0-9a-f]{24}\b"), "<nonce>"),
)


def masked_lines(lines: Iterable[str], names: Mapping[str, str]) -> list[str]:
    """Each line masked; `names` maps a text, such as a folder of this run, to the name that replaces it."""
    entries = [entry for entry in map(json.loads, lines) if not _tells_of_the_machine(entry)]
    numbered = ({**entry, "seq": number} for number, entry in enumerate(entries, 1))
    return [json.dumps(_masked(entry, names), ensure_ascii=False) for entry in numbered]


def _tells_of_the_machine(entry: dict[str, Any]) -> bool:
    """Which sandbox layers hold, and what is out of reach, is the machine's matter, not the run's; and whether git has
    written its index anew while it only looked is a matter of how fast the machine is."""
    return (
        entry["event"] == "canaries_tried"
        or (entry["event"] == "noted" and entry["message"].startswith("[Isolation]"))
        or (entry["event"] == "snapshot_taken" and entry["files"] == 0)
    )


def _masked(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        if value.get("event") == "effect_planned":
            # Cost and time stand in it; its words belong to the tests of the report.
            value = {**value, "text": "<text>" if value["text"] else ""}
        return {key: f"<{key}>" if key in MASKED else _masked(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, names) for item in value]
    return _text(value, names) if isinstance(value, str) else value


def _text(text: str, names: Mapping[str, str]) -> str:
    for path, name in names.items():
        text = text.replace(path, name)
    for pattern, name in RANDOM:
        text = pattern.sub(name, text)
    return text
