"""The work that all of them do: a repository, an agent for stepflow, and the same task as plain data for the others.

Takes: a folder and a number of steps. Gives: a checkout with `.agent/bencher`, and `task.json`.
May touch: the folder; runs git in it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

MODEL = "claude-opus-5-5"
OUTPUT_BYTES = 1200
AGENT = "bencher"
SYSTEM = """You look after a small repository. In each step you read its notes with the shell, compare them, and say
what you found.

Work only in the repository that you stand in. Read before you judge, and quote what you read. Keep to the step that you
are asked for; the next one gets what you say in `summary`, and nothing else of what you saw. Do not change a file
unless the step asks for it. When a command fails, read what it says before you try another one."""
PROMPT = """Read the files `notes/1.txt` to `notes/4.txt` one after the other, compare them, and say in one or two
sentences what you found.

What the step before this one said: {before}"""
NOTHING_BEFORE = "nothing; this is the first step."
WORDS = ("The", "notes", "say", "what", "was", "looked", "at", "and", "what", "came", "of", "it", "in", "that", "week")


def answer_schema(*intents: str) -> dict[str, Any]:
    """What each step answers with; peers take the first."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["stepId", "summary", "next_action"],
        "properties": {
            "stepId": {"type": "string"},
            "summary": {"type": "string", "description": "What was found, in one or two sentences."},
            "next_action": {
                "type": "object",
                "additionalProperties": False,
                "required": ["action", "reason"],
                "properties": {
                    "action": {"type": "string", "enum": list(intents)},
                    "reason": {"type": "string", "description": "Why."},
                },
            },
        },
    }


def make_flow(folder: Path, steps: int) -> Path:
    """The checkout, anew."""
    shutil.rmtree(folder, ignore_errors=True)
    checkout = folder / "checkout"
    (checkout / "notes").mkdir(parents=True)
    for number in range(1, 5):
        words = " ".join(f"{word}-{number}{place:02d}" for place in range(12) for word in WORDS)
        (checkout / "notes" / f"{number}.txt").write_text(words[: OUTPUT_BYTES - 1] + "\n")
    write_agent(checkout / ".agent" / AGENT, steps)
    who = ("-c", "user.name=Bench", "-c", "user.email=bench@example.invalid")
    for words_ in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", "Begin")):
        subprocess.run(("git", *who, *words_), cwd=checkout, check=True)
    task = {
        "model": MODEL,
        "steps": steps,
        "system": SYSTEM,
        "prompt": PROMPT,
        "nothing_before": NOTHING_BEFORE,
        "schema": answer_schema("next", "repeat"),
    }
    (folder / "task.json").write_text(json.dumps(task, indent=1))
    return checkout


def write_agent(folder: Path, steps: int) -> None:
    """An agent of so many steps in a row."""
    names = ["initial.notes", *(f"continuation.look{number}" for number in range(2, steps)), "closure.notes"]
    registry = {
        "agentId": AGENT,
        "version": "1.0.0",
        "c1": "steps",
        "entryStep": names[0],
        "steps": {name: _step(names, place) for place, name in enumerate(names)},
        "failurePatterns": {
            "git-dirty": {"description": "There are changes that no commit holds", "edition": "failed"}
        },
        "validators": {
            "git-clean": {
                "type": "command",
                "command": "git status --porcelain",
                "successWhen": "empty",
                "failurePattern": "git-dirty",
            }
        },
        "validationSteps": {
            names[-1]: {
                "stepId": names[-1],
                "c2": "retry",
                "c3": "notes",
                "validationConditions": [{"validator": "git-clean"}],
                "onFailure": {"action": "retry", "maxAttempts": 2},
            }
        },
    }
    agent = {
        "name": AGENT,
        "version": "1.0.0",
        "displayName": "Bencher",
        "description": "Compares notes",
        "runner": {
            "flow": {"systemPromptPath": "prompts/system.md", "defaultModel": MODEL},
            "verdict": {"type": "detect:graph", "config": {"maxIterations": steps + 5}},
            "integrations": {"github": {"enabled": False}},
        },
    }
    schemas = {
        "work": answer_schema("next", "repeat"),
        "last": answer_schema("handoff", "repeat"),
        "closure": answer_schema("closing", "repeat"),
    }
    first, later = PROMPT.format(before=NOTHING_BEFORE), PROMPT.format(before="{uv-before}")
    files = {
        "agent.json": json.dumps(agent, indent=1),
        "steps_registry.json": json.dumps(registry, indent=1),
        "schemas/steps.json": json.dumps(schemas, indent=1),
        "prompts/system.md": SYSTEM,
        "prompts/steps/initial/notes/f_default.md": first,
        "prompts/steps/continuation/notes/f_default.md": later,
        "prompts/steps/closure/notes/f_default.md": later,
        "prompts/steps/retry/notes/f_failed.md": "Something is not committed. Look at `git status`.",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _step(names: list[str], place: int) -> dict[str, Any]:
    name = names[place]
    is_last, is_closure = place == len(names) - 2, place == len(names) - 1
    word = "closing" if is_closure else "handoff" if is_last and place else "next"
    step: dict[str, Any] = {
        "stepId": name,
        "c2": name.partition(".")[0],
        "c3": "notes",
        "outputSchemaRef": {
            "file": "steps.json",
            "schema": {"closing": "closure", "handoff": "last"}.get(word, "work"),
        },
        "structuredGate": {
            "allowedIntents": [word, "repeat"],
            "intentField": "next_action.action",
            "intentSchemaRef": "#/properties/next_action/properties/action",
            "handoffFields": [] if is_closure else ["summary"],
        },
        "transitions": {word: {"target": None if is_closure else names[place + 1]}},
    }
    if place:
        step["uvVariables"] = ["before"]
        step["inputs"] = {"before": {"from": f"{names[place - 1]}.summary"}}
    return step
