"""Small agents, facts and results to plan with, and a plan with every effect."""

from stepflow.boundary.apply import ApplyResult, apply_effects
from stepflow.boundary.bundle_push import BundlePush, Pushed
from stepflow.boundary.failure import FailedRun
from stepflow.boundary.github_types import Account
from stepflow.boundary.github_writer import GitHubWriter
from stepflow.boundary.plan import plan_effects
from stepflow.boundary.settings import BoundarySettings, CommitsInfo, Plan, branch_name
from stepflow.domain.agent.agent_settings import GitHubSettings
from stepflow.domain.agent.definition import AgentDefinition, AgentVerdict, SourceText, Step
from stepflow.domain.effect import Receipt
from stepflow.domain.event import FlowEnded
from stepflow.domain.json import JsonObject
from stepflow.domain.run import Issue, Limits, RunFacts
from stepflow.domain.secrets import Redactor
from stepflow.domain.words import CloseBy, Dialect, OnFailure, Outcome, Stage, StepKind, VerdictType
from stepflow.errors import Refused

BOT = Account(id=41898282, login="github-actions[bot]")
ISSUE = Issue(number=7, title="Fix the parser", body="It breaks.", author="ann", labels=("agent:fixer",))
EVERYTHING: JsonObject = {
    "closure_action": "label-and-close",
    "issue": {"labels": {"add": ["done"], "remove": ["bug"]}},
    "release": {"tag": "v1"},
}
ALLOWED = ("comment", "labels", "close", "pull_request", "release")


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
        verdict=AgentVerdict(type=verdict, limits=Limits(iterations=10)),
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


def result(answer: JsonObject | None = None, **changes: object) -> FlowEnded:
    given: dict[str, object] = {
        "outcome": Outcome.COMPLETED,
        "stage": Stage.COMPLETION,
        "reason": "done",
        "step_id": "closure.issue",
        "iterations": 3,
        "answer": answer or {},
        "validated": True,
        **changes,
    }
    return FlowEnded(**given)  # type: ignore[arg-type]


def settings(**changes: object) -> BoundarySettings:
    given: dict[str, object] = {
        "repository": "o/r",
        "actor": "ann",
        "started_by_label": "agent:fixer",
        "server_url": "https://github.com",
        "on_failure": OnFailure.COMMENT,
        **changes,
    }
    return BoundarySettings(**given)  # type: ignore[arg-type]


def failed_run(
    outcome: Outcome,
    text: str,
    *,
    issue: Issue | None = ISSUE,
    given: dict[str, object] | None = None,
    github: dict[str, object] | None = None,
    **changes: object,
) -> FailedRun:
    """A run of the fixer that did not complete; `given` are settings, `github` what its agent.json says."""
    fixer = agent(**(github or {}))
    values: dict[str, object] = {
        "run_id": "run-1",
        "agent": fixer.name,
        "github": fixer.github,
        "settings": settings(**(given or {})),
        "issue": issue,
        "outcome": outcome,
        "text": text,
        "redactor": Redactor(("ghs_secretsecret",)),
        "branch": branch_name(fixer, facts(issue)),
        **changes,
    }
    return FailedRun(**values)  # type: ignore[arg-type]


def plan_everything(
    answer: JsonObject = EVERYTHING,
    *,
    commits: int = 1,
    close_by: CloseBy = CloseBy.NOW,
    given: dict[str, object] | None = None,
    **changes: object,
) -> Plan:
    """The plan of an agent that may do anything; `given` are settings, `changes` facts of the run."""
    return plan_effects(
        agent(allowed_effects=ALLOWED, close_by=close_by),
        facts(**changes),  # type: ignore[arg-type]
        result(answer),
        settings(ci_workflow="ci.yml", **(given or {})),
        summary="All done.",
        commits=CommitsInfo(count=commits),
    )


class RecordingPusher:
    """Branches in memory. `occupied` are branches that contain somebody else's commits."""

    def __init__(self, commit: str = "a" * 40, *, refusal: str = "", occupied: tuple[str, ...] = ()) -> None:
        self.commit, self._refusal, self._occupied = commit, refusal, occupied
        self.pushes: list[str] = []
        self.on_top = False

    def push(self, branch: str, *, author: Account, fast_forward: bool) -> Pushed:
        if self._refusal:
            raise Refused(self._refusal)
        self.pushes.append(branch)
        self.on_top = fast_forward
        return Pushed(branch=f"{branch}-2" if branch in self._occupied else branch, commit=self.commit)


def apply(
    plan: Plan,
    writer: GitHubWriter,
    pusher: BundlePush | RecordingPusher | None = None,
    done: tuple[Receipt, ...] = (),
) -> tuple[ApplyResult, list[Receipt]]:
    """The result, and the receipts in the order in which they were recorded."""
    recorded: list[Receipt] = []
    applied = apply_effects(
        plan,
        writer=writer,
        pusher=pusher or RecordingPusher(),
        record=recorded.append,
        done=done,
    )
    return applied, recorded


def statuses(receipts: list[Receipt]) -> str:
    return " ".join(f"{receipt.kind}:{receipt.status}" for receipt in receipts)
