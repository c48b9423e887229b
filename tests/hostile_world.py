"""An agent, issues, scenarios, files and reports whose every name is given."""

from __future__ import annotations

import base64
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.checkout import git
from tests.sinks import as_file, as_text

AGENT = Path(__file__).parent / "action" / "checkout" / ".agent" / "fixer"


def saying(*names: str) -> str:
    """A shell command that prints these names, byte for byte."""
    data = base64.b64encode("\n".join(names).encode("utf-8", "surrogateescape")).decode()
    return f"echo {data} | base64 --decode"


def touching(name: str) -> str:
    """A shell command that writes a file of this name."""
    data = base64.b64encode(as_file(name).encode()).decode()
    return "python3 -c " + shlex.quote(f"import base64; open(base64.b64decode('{data}'), 'w').write('x\\n')")


def break_agent(folder: Path, names: list[str]) -> Path:
    """An agent of such a name with problems of every kind; gives its folder."""
    # A line about an agent begins with its name.
    agent = shutil.copytree(AGENT, folder / ".agent" / f"a{as_file(names[0])}")
    registry = json.loads((agent / "steps_registry.json").read_text())
    steps: dict[str, Any] = registry["steps"]
    steps["initial.issue"]["transitions"]["next"]["target"] = as_text(names[1])
    steps["initial.issue"]["outputSchemaRef"]["file"] = as_text(names[2])
    steps["initial.issue"][as_text(names[3])] = as_text(names[4])
    steps[as_text(names[5])] = {**steps["continuation.issue"], "stepId": as_text(names[1])}
    validators: dict[str, Any] = registry["validators"]
    validators[as_text(names[3])] = {**validators["greeting"], "command": as_text(names[4])}
    (agent / "steps_registry.json").write_text(json.dumps(registry, indent=2, ensure_ascii=False))
    settings = json.loads((agent / "agent.json").read_text())
    settings |= {"displayName": as_text(names[5]), "description": as_text(names[2])}
    settings["runner"]["flow"]["systemPromptPath"] = as_text(names[3])
    (agent / "agent.json").write_text(json.dumps(settings, indent=2, ensure_ascii=False))
    prompt = agent / "prompts/steps/initial/issue/f_default.md"
    prompt.write_bytes(prompt.read_bytes() + f"\n{{uv-{names[4]}}}\n".encode("utf-8", "surrogateescape"))
    (agent / "prompts" / as_file(names[1])).write_text("{uv-nothing}")
    return agent


def write_scenario(checkout: Path, names: list[str]) -> None:
    """A scenario of the agent `fixer` in which nothing is as expected."""
    texts = [*map(as_text, names)]
    turns: list[dict[str, Any]] = [
        {
            "expect_step": "initial.issue",
            "output": {
                **{"stepId": "initial.issue", "next_action": {"action": "next", "reason": texts[0]}},
                "understanding": texts[1],
            },
        },
        {"tools": [{"bash": {"command": f"{touching(names[2])}; {saying(*names)}; false"}}]},
    ]
    document = {
        "issue": {"number": 7, "title": texts[3], "body": texts[4], "labels": [texts[5][:40]]},
        "turns": turns,
        "expect": {"steps": [texts[0]], "validators": {texts[1]: ["pass"]}, "files": {as_file(names[2]): texts[3]}},
    }
    file = checkout / ".agent/fixer/scenarios" / f"{as_file(names[5])[:60]}.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(document))


def write_report(folder: Path, number: int, names: list[str]) -> None:
    """What a job for an issue left, as `gather` finds it."""
    texts = [*map(as_text, names)]
    report = {
        **{"schema": 1, "outcome": "completed", "success": True, "reason": texts[0], "issue": number},
        **{"agent": texts[1], "run_id": texts[2], "repository": texts[3], "cost_usd": 0.5, "iterations": 3},
        "effects": [{"kind": "open_pull_request", "status": "applied", "url": texts[4], "number": 8}],
        "usage": {"input_tokens": 1, "output_tokens": 1},
        "seconds": 1.0,
    }
    place = folder / as_file(names[5])[:80] / str(number)
    place.mkdir(parents=True)
    (place / "report.json").write_text(json.dumps(report))


def commit(folder: Path, message: str) -> str:
    """Commit everything with this message; gives the commit."""
    git("add", "--all", "--force", cwd=folder)
    git("commit", "--quiet", "--allow-empty", "--cleanup=verbatim", "--message", as_text(message) or "x", cwd=folder)
    return git("rev-parse", "HEAD", cwd=folder).strip()
