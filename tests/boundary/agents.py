"""Small agents, facts and results to plan with."""

from stepflow.boundary.settings import BoundarySettings
from stepflow.domain.decision import FlowResult
from stepflow.domain.definition import AgentDefinition, AgentVerdict, GitHubSettings, SourceText, Step
from stepflow.domain.json import JsonObject
from stepflow.domain.run import Issue, Limits, RunFacts
from stepflow.domain.words import Dialect, Outcome, StepKind, VerdictType

ISSUE = Issue(number=7, title="Fix the parser", body="It breaks.", author="ann", labels=("agent:fixer",))


def agent(verdict: VerdictType = VerdictType.POLL_STATE, *, name: str = "fixer", **github: object) -> AgentDefinition:
    return AgentDefinition(
        name=name,
        version="1.0.0",
        display_name="Fixer",
        description="Fixes issues.",
        folder=f".agent/{name}",
        dialect=Dialect.GATE,
        digest="0" * 64,
        steps={
            "initial.issue": Step(id="initial.issue", name="Start", kind=StepKind.WORK, initial=True),
            "closure.issue": Step(id="closure.issue", name="Close", kind=StepKind.CLOSURE),
        },
        entry_step="initial.issue",
        verdict=AgentVerdict(type=verdict, max_iterations=10),
        system_prompt=SourceText(text="You fix issues.", file="system.md"),
        github=GitHubSettings(**github),  # type: ignore[arg-type]
    )


def facts(issue: Issue | None = ISSUE, **changes: object) -> RunFacts:
    given: dict[str, object] = {
        "run_id": "run-1",
        "limits": Limits(iterations=10),
        "nonce": "n",
        "repository": "o/r",
        "issue": issue,
        "base_branch": "main",
        **changes,
    }
    return RunFacts(**given)  # type: ignore[arg-type]


def result(answer: JsonObject | None = None, **changes: object) -> FlowResult:
    given: dict[str, object] = {
        "outcome": Outcome.COMPLETED,
        "reason": "Completion loop: done",
        "step_id": "closure.issue",
        "iterations": 3,
        "answer": answer or {},
        "validated": True,
        **changes,
    }
    return FlowResult(**given)  # type: ignore[arg-type]


def settings(**changes: object) -> BoundarySettings:
    given: dict[str, object] = {
        "repository": "o/r",
        "actor": "ann",
        "started_by_label": "agent:fixer",
        "server_url": "https://github.com",
        **changes,
    }
    return BoundarySettings(**given)  # type: ignore[arg-type]
