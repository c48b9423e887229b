"""What to do next, by how the run ended: one table for terminal, summary, comment and annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.effect import EffectKind, EffectStatus
from stepflow.domain.words import Outcome

if TYPE_CHECKING:
    from stepflow.domain.report import RunReport

ADVICE: dict[Outcome, str] = {
    Outcome.COMPLETED: "Nothing is left to do but to read the result.",
    Outcome.VALIDATION_FAILED: (
        "Read the failing validator's output, run its command in the repository yourself, and mend the cause or the "
        "command. Then {again}, or raise `maxAttempts` of the validation entry first."
    ),
    Outcome.ROUTING_FAILED: (
        "Compare the last answer with the step's `allowedIntents`, `intentField` and `transitions` in "
        "steps_registry.json; the prompt must name the allowed intents. `stepflow validate` and `stepflow graph` help."
    ),
    Outcome.SCHEMA_FAILED: (
        "Mend the step's `outputSchemaRef`: the schema could not be resolved twice in a row. "
        "`stepflow validate` names the file and the place."
    ),
    Outcome.ABORTED: (
        "The agent gave up on purpose; its reason is above. Add what it is missing to the issue, then {again}."
    ),
    Outcome.LIMIT_REACHED: (
        "See in the step table where the run went round in circles. Split the issue or sharpen that step's prompt; "
        "or raise `max-iterations`, `max-turns-per-step` or `max-visits-per-step`. Then {again}."
    ),
    Outcome.BUDGET_EXHAUSTED: (
        "Raise `budget-usd` or `budget-tokens`, choose a cheaper `model`, or split the issue. Then {again}."
    ),
    Outcome.TIMED_OUT: (
        "Raise `timeout-minutes`, and the job's own `timeout-minutes` above it, or split the issue. Then {again}."
    ),
    Outcome.CANCELLED: (
        "The run was stopped from outside; the journal in its run folder tells how far it was. To start anew, {again}."
    ),
    Outcome.MODEL_FAILED: (
        "Check the API key, the model's name and the service's status. When the model answers, {again}."
    ),
    Outcome.BOUNDARY_FAILED: (
        "The work is done, writing it to GitHub was not: the effects above say what was written and what was not. "
        "Grant what is missing (the job's `permissions`, or 'Allow GitHub Actions to create and approve pull "
        "requests'), then {again}: comment, branch and pull request are updated, not written twice."
    ),
    Outcome.REFUSED: (
        "Nothing was written. The reason names the rule that stood against it: write access of whoever started the "
        "run, a protected path in the change, a sandbox layer that this machine lacks, or a sandbox that has ended."
    ),
    Outcome.SKIPPED: "Nothing to do: this event concerns no agent. The reason says what it would take to start one.",
    Outcome.INVALID_DEFINITION: (
        "Correct what the reason names: an input of the workflow, an argument, or the agent definition, whose problems "
        "`stepflow validate` lists with file and line."
    ),
    Outcome.INTERNAL_ERROR: (
        "This is a fault of stepflow, not of your agent. Report it with the traceback in the log and `journal.jsonl` "
        "of the run folder; secrets are removed from both."
    ),
}

ADVICE_OF_CODE: dict[str, str] = {
    "SF209": (
        "Give the run arguments that the agent declares: `parameters` in its agent.json lists them, the action's "
        "input `parameters` takes them."
    ),
    "SF328": "Remove `failFast: false`, or start this run with `allow-spec-violations` while you debug the agent.",
}

#: A run in the action is started again by its label; who started it at a terminal knows how.
BY_LABEL = "put the label on again"
ELSEWHERE = "start it again"
#: The model was a scenario: there is no key, no service and nothing to wait for.
SCRIPTED = "scripted"
OF_SCENARIO = (
    "The answers came from a scenario, not from a model: correct its turns where the reason says so, or the prompt or "
    "transition that made the run ask for others. `stepflow show` on the run folder tells what led there."
)
#: How the reason of a run names a bug of ours; `internal_error` without it is a machine that cannot go on.
BUG = "an error of stepflow itself"
MACHINE = (
    "Do what the reason says, then {again} to start anew; what was written down until then is in the "
    "run folder's journal."
)


def advice(outcome: Outcome, code: str | None = None) -> str:
    """What a person should do after this outcome of a run in the action; a code may know better."""
    return _advice(outcome, code, again=BY_LABEL)


def next_step(report: RunReport) -> str:
    """The same for a whole report: a success depends on what was written."""
    again = BY_LABEL if report.host_run_folder else ELSEWHERE
    if report.outcome is Outcome.INTERNAL_ERROR and BUG not in report.reason:
        return MACHINE.format(again=again)
    if report.outcome is Outcome.MODEL_FAILED and report.provider == SCRIPTED:
        return OF_SCENARIO
    if not report.success or not report.effects:
        return _advice(report.outcome, report.code, again=again)
    if all(effect.status is EffectStatus.PLANNED for effect in report.effects):
        return "This was a dry run: nothing was written. Run it with `boundary: github` to write the effects above."
    if any(effect.kind is EffectKind.OPEN_PULL_REQUEST for effect in report.effects):
        return "Review the pull request. If it is a draft, mark it ready when you are content; merging is yours."
    return "Review what was written to GitHub; the effects above lead there."


def _advice(outcome: Outcome, code: str | None, *, again: str) -> str:
    return ADVICE_OF_CODE.get(code or "", ADVICE[outcome]).format(again=again)
