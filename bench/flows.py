"""The work that all of them do: a repository, an agent for stepflow, and the same task as plain data for the peers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

MODEL = "claude-opus-5-5"
NOTES, OUTPUT_BYTES = 4, 1200
AGENT = "bencher"
SYSTEM = """You look after a small repository. In each step you read its notes with the shell, compare them, and say
what you found.

Work only in the repository that you stand in. Read before you judge, and quote what you read. Keep to the step that you
are asked for; the next one gets what you say in `summary`, and nothing else of what you saw. Do not change a file
unless the step asks for it. When a command fails, read what it says before you try another one."""
PROMPT = """Read the files `notes/1.txt` to `notes/{last}.txt` one after the other, compare them, and say in one or two
sentences what you found.

What the step before this one said: {before}"""
NOTHING_BEFORE = "nothing; this is the first step."


def make_flow(folder: Path, steps: int, *, notes: int = NOTES, output_bytes: int = OUTPUT_BYTES) -> Path:
    """A checkout with `.agent/bencher` in an empty folder, and `task.json` beside it."""
    checkout = folder / "checkout"
    (checkout / "notes").mkdir(parents=True)
    for number in range(1, notes + 1):
        text = " ".join(f"On day {day} of week {number} all was well." for day in range(100))
        (checkout / "notes" / f"{number}.txt").write_text(text[: output_bytes - 1] + "\n")
    write_agent(checkout / ".agent" / AGENT, steps, notes=notes)
    author = ("-c", "user.name=Bench", "-c", "user.email=bench@example.invalid")
    for command in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", "Begin")):
        subprocess.run(("git", *author, *command), cwd=checkout, check=True)
    task = {
        "model": MODEL,
        "steps": steps,
        "system": SYSTEM,
        "prompt": prompt_of(notes, "{before}"),
        "nothing_before": NOTHING_BEFORE,
        "schema": answer_schema("next"),
    }
    (folder / "task.json").write_text(json.dumps(task))
    return checkout


def prompt_of(notes: int, before: str) -> str:
    """What each step is asked."""
    return PROMPT.format(last=notes, before=before)


def write_agent(folder: Path, steps: int, *, notes: int = NOTES) -> None:
    """An agent of so many steps in a row, two at least; the last one, which closes, reads only a few notes."""
    names = ["initial.notes", *(f"continuation.look{number}" for number in range(2, steps)), "closure.notes"]
    registry = {
        "agentId": AGENT,
        "version": "1.0.0",
        "c1": "steps",
        "entryStep": names[0],
        "steps": {name: _step(names, index) for index, name in enumerate(names)},
    }
    agent = {
        "name": AGENT,
        "version": "1.0.0",
        "displayName": "Bencher",
        "description": "Compares notes",
        "runner": {
            "flow": {"systemPromptPath": "prompts/system.md", "defaultModel": MODEL},
            "verdict": {
                "type": "detect:graph",
                "config": {"maxIterations": steps + 5, "maxTurnsPerStep": max(50, notes + 5)},
            },
            "integrations": {"github": {"enabled": False}},
        },
    }
    files = {
        "agent.json": json.dumps(agent),
        "steps_registry.json": json.dumps(registry),
        "schemas/steps.json": json.dumps({word: answer_schema(word) for word in ("next", "handoff", "closing")}),
        "prompts/system.md": SYSTEM,
        "prompts/steps/initial/notes/f_default.md": prompt_of(notes, NOTHING_BEFORE),
        "prompts/steps/continuation/notes/f_default.md": prompt_of(notes, "{uv-before}"),
        "prompts/steps/closure/notes/f_default.md": prompt_of(NOTES, "{uv-before}"),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _step(names: list[str], index: int) -> dict[str, Any]:
    is_last, is_closure = index == len(names) - 2, index == len(names) - 1
    intent = "closing" if is_closure else "handoff" if is_last and index else "next"
    step: dict[str, Any] = {
        "stepId": names[index],
        "c2": names[index].partition(".")[0],
        "c3": "notes",
        "outputSchemaRef": {"file": "steps.json", "schema": intent},
        "structuredGate": {
            "allowedIntents": [intent, "repeat"],
            "intentField": "intent",
            "intentSchemaRef": "#/properties/intent",
            "handoffFields": [] if is_closure else ["summary"],
        },
        "transitions": {intent: {"target": None if is_closure else names[index + 1]}},
    }
    if index:
        step["uvVariables"] = ["before"]
        step["inputs"] = {"before": {"from": f"{names[index - 1]}.summary"}}
    return step


def answer_schema(intent: str) -> dict[str, Any]:
    """What a step has to answer."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["intent", "summary"],
        "properties": {
            "intent": {"type": "string", "enum": [intent, "repeat"]},
            "summary": {"type": "string", "description": "What was found, in one or two sentences."},
        },
    }
