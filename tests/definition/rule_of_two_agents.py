"""Makes the agents of rule_of_two.yaml real: each becomes a folder with prompts, schemas and lock."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from stepflow.definition.loading import read_servers
from stepflow.definition.mcp import LOCK_FILE, lock_text
from stepflow.definition.rule_of_two import Circumstances
from stepflow.domain.agent.agent_settings import McpTool
from stepflow.domain.words import Network

HERE = Path(__file__).parent
KNOWN = {"private", "from_fork", "network"}
KEYS = {"servers", "steps", "dialect", "network", "plan", "effects", "labels", "github", "startedBy", "validators"}
KEYS_OF_STEP = {"tools", "hands", "command", "back", "jumps", "accepts", "approval", "approved"}
SERVERS: dict[str, dict] = {
    "https": {"url": "https://mcp.example.com/"},
    "login": {"url": "https://mcp.example.com/", "headers": {"Authorization": "Bearer ${TOKEN}"}},
    "sandbox": {"command": "search-server"},
}


@dataclass(frozen=True, kw_only=True)
class Written:
    """An agent of the file, with its verdict: the steps where all three meet, by kind of repository."""

    name: str
    data: Mapping

    @property
    def meets(self) -> dict[str, list[str]]:
        return {kind: self.data[kind] for kind in ("public", "private") if kind in self.data}

    @property
    def accepted(self) -> set[str]:
        return {step_id for step_id, step in self.data.get("steps", {}).items() if "accepts" in step}

    @property
    def circumstances(self) -> Circumstances:
        known = self.data.get("known", {})
        assert known.keys() <= KNOWN
        return Circumstances(**{**known, "network": Network(known.get("network", "full"))})


def written_agents() -> list[Written]:
    text = (HERE / "rule_of_two.yaml").read_text(encoding="utf-8")
    return [Written(name=name, data=data) for name, data in yaml.safe_load(text).items()]


def build(written: Written, root: Path) -> None:
    """Write the agent `demo` below `root`."""
    data = written.data
    assert data.keys() - {"public", "private", "known"} <= KEYS
    assert all(step.keys() <= KEYS_OF_STEP for step in data["steps"].values())
    folder = root / ".agent" / "demo"
    make = {"gate": _gated, "check": _checked, "verdict": _ungated}[data.get("dialect", "gate")]
    write_json(folder / "agent.json", _agent(data))
    write_json(folder / "steps_registry.json", make(folder, data))
    if "servers" in data:
        lock(root, "search", "lookup")


def _gated(folder: Path, data: Mapping) -> dict:
    written = data["steps"]
    steps = {step_id: _step(step_id, step, after) for (step_id, step), after in _with_following(written)}
    if "startedBy" in data:
        steps = {step_id: {**step, "model": "haiku"} for step_id, step in steps.items()}
    write_json(folder / "schemas" / "steps.json", {each: _schema(written[each], steps[each]) for each in steps})
    for step_id in (each for each in steps if "runner" not in steps[each]):
        write(folder / "prompts" / "steps" / step_id.replace(".", "/") / "f_default.md", "Do it.\n")
    write(folder / "prompts" / "steps" / "retry" / "end" / "f_failed.md", "{{validator}} failed.\n")
    return _registry(steps, with_validator=data.get("validators", False))


def _with_following(steps: Mapping) -> Iterator[tuple[tuple[str, Mapping], str | None]]:
    return zip(steps.items(), [*list(steps)[1:], None], strict=True)


def _checked(folder: Path, data: Mapping) -> dict:
    write(folder / "prompts" / "do.md", "Do it.\n")
    write(folder / "prompts" / "look.md", "Is it done? Answer with `result`.\n")
    steps = {
        step_id: {
            "prompt": {"path": "do.md"},
            "check": {
                "prompt": {"path": "look.md"},
                "onPass": {"next": after} if after else {"complete": True},
                "onFail": {"retry": True, "maxRetries": 1},
            },
            "tools": step["tools"],
            **_accepted(step),
            **({"handoff": [{"key": "notes"}]} if step.get("hands") else {}),
        }
        for (step_id, step), after in _with_following(data["steps"])
    }
    return {"version": "1.0.0", "basePath": "prompts", "entryStep": next(iter(steps)), "steps": steps}


def _ungated(folder: Path, data: Mapping) -> dict:
    steps = {
        step_id: {
            "stepId": step_id,
            "c2": "closure" if after is None else "initial",
            "c3": step_id,
            "tools": step["tools"],
            **_accepted(step),
            **({"transitions": {"next": {"target": after}}} if after else {}),
        }
        for (step_id, step), after in _with_following(data["steps"])
    }
    for step in steps.values():
        write(folder / "prompts" / "steps" / step["c2"] / step["c3"] / "f_default.md", "Do it.\n")
    return {"agentId": "demo", "version": "1.0.0", "c1": "steps", "entryStep": next(iter(steps)), "steps": steps}


def lock(root: Path, *tools: str) -> None:
    """Pin the same tools of every server."""
    pinned = tuple(McpTool(name=tool, description="Does.", input_schema={"type": "object"}) for tool in tools)
    servers = [replace(server, tools=pinned) for server in read_servers("demo", root=root)]
    write(root / ".agent" / "demo" / LOCK_FILE, lock_text(servers))


def _agent(data: Mapping) -> dict:
    boundaries = {"network": data["network"]} if "network" in data else {}
    boundaries |= {"permissionMode": "plan"} if data.get("plan") else {}
    boundaries |= {"maxUsd": 1} if "startedBy" in data else {}
    github: dict = {"enabled": data.get("github", True)}
    github |= {"allowedEffects": data["effects"]} if "effects" in data else {}
    github |= {"allowedLabels": data["labels"]} if "labels" in data else {}
    verdict: dict = {"type": "detect:graph"}
    if data.get("dialect") == "verdict":
        verdict = {"type": "count:iteration", "config": {"maxIterations": 2}}
    return {
        "name": "demo",
        "version": "1.0.0",
        "displayName": "Demo",
        "description": "Shows what meets in its steps.",
        **({"startedBy": data["startedBy"]} if "startedBy" in data else {}),
        "mcpServers": {name: SERVERS[kind] for name, kind in data.get("servers", {}).items()},
        "runner": {
            "verdict": verdict,
            "boundaries": boundaries,
            "integrations": {"github": github},
        },
    }


def _step(step_id: str, step: Mapping, following: str | None) -> dict:
    kind, name = step_id.split(".")
    closes = following is None
    onward = "closing" if closes else "handoff" if following.startswith("closure.") else "next"
    intents = [onward, "repeat", *(["jump"] if step.get("jumps") else [])]
    return {
        "stepId": step_id,
        "stepKind": "closure" if closes else "work",
        "c2": kind,
        "c3": name,
        "outputSchemaRef": {"file": "steps.json", "schema": step_id},
        "structuredGate": {
            "allowedIntents": intents,
            "intentField": "action",
            "intentSchemaRef": "#/properties/action",
            "handoffFields": ["notes"] if step.get("hands") else [],
            **({"targetField": "target"} if step.get("jumps") else {}),
        },
        "transitions": {
            onward: {"target": following, **({"approval": {"by": "write"}} if step.get("approved") else {})},
            **({"repeat": {"target": step["back"]}} if "back" in step else {}),
        },
        **({"tools": step["tools"]} if "tools" in step else {}),
        **({"runner": {"command": "./close"}} if step.get("command") else {}),
        **({"approval": {"by": "write"}} if step.get("approval") else {}),
        **_accepted(step),
    }


def _accepted(step: Mapping) -> dict:
    return {"acceptsRisk": step["accepts"]} if "accepts" in step else {}


def _schema(step: Mapping, compiled: Mapping) -> dict:
    properties: dict = {"action": {"enum": compiled["structuredGate"]["allowedIntents"]}}
    properties |= {"notes": {"type": "string"}} if step.get("hands") else {}
    properties |= {"target": {"type": "string"}} if step.get("jumps") else {}
    return {"type": "object", "required": [*properties], "properties": properties}


def _registry(steps: Mapping, *, with_validator: bool) -> dict:
    closing = next(step_id for step_id, step in steps.items() if step["stepKind"] == "closure")
    registry: dict = {"agentId": "demo", "version": "1.0.0", "c1": "steps", "entryStep": next(iter(steps))}
    if with_validator:
        command = {"type": "command", "command": "pytest -q", "successWhen": "exitCode:0", "failurePattern": "red"}
        entry = {"stepId": closing, "c2": "retry", "c3": "end", "validationConditions": [{"validator": "tests"}]}
        registry["validators"] = {"tests": command}
        registry["failurePatterns"] = {"red": {"description": "A test failed.", "edition": "failed"}}
        registry["validationSteps"] = {closing: entry}
    return registry | {"steps": {**steps}}


def write_json(file: Path, document: object) -> None:
    write(file, json.dumps(document, indent=2) + "\n")


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
