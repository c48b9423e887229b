"""The parts of reports: lines, their tones and marks, and wording that several reports share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from shlex import quote

from stepflow.domain.checkout import DiffStat, LineCounts
from stepflow.domain.connection import HostRequests
from stepflow.domain.conversation import ModelTurn, Remedy
from stepflow.domain.effect import EffectKind, EffectStatus
from stepflow.domain.event import IssueCostSummed, IterationStarted
from stepflow.domain.json import JsonObject, JsonValue, compact
from stepflow.domain.reports.report import HistoryEntry, RunReport
from stepflow.domain.text import Spent, changed_lines, count, usd
from stepflow.domain.words import CanaryState, Outcome
from stepflow.report.safe_text import Line, Tone, first_line, one_line

#: What each outcome is called in reports for people.
OUTCOMES: Mapping[Outcome, str] = {
    Outcome.COMPLETED: "completed",
    Outcome.NO_CHANGES: "no changes",
    Outcome.BASE_FAILED: "a check failed before the run",
    Outcome.VALIDATION_FAILED: "a check kept failing",
    Outcome.ROUTING_FAILED: "an answer led nowhere",
    Outcome.SCHEMA_FAILED: "a step's schema cannot be used",
    Outcome.ABORTED: "the agent gave up",
    Outcome.AWAITING_APPROVAL: "waiting for approval",
    Outcome.LIMIT_REACHED: "a limit was reached",
    Outcome.BUDGET_EXHAUSTED: "the budget is spent",
    Outcome.TIMED_OUT: "the time is up",
    Outcome.CANCELLED: "canceled",
    Outcome.MODEL_FAILED: "the model gave no answer",
    Outcome.MODEL_REFUSED: "the model refused",
    Outcome.BOUNDARY_FAILED: "GitHub was not changed as planned",
    Outcome.REFUSED: "refused",
    Outcome.SKIPPED: "nothing to do",
    Outcome.MISCONFIGURED: "a setting is missing or wrong",
    Outcome.INVALID_DEFINITION: "the agent's files have errors",
    Outcome.INTERNAL_ERROR: "an internal error",
}


def reached_places(canaries: Mapping[str, str]) -> tuple[str, ...]:
    """Return the places that a tool reached but should not have."""
    return tuple(location for location, state in canaries.items() if state.startswith(CanaryState.REACHED))


def places_tried(canaries: Mapping[str, str]) -> int:
    """Return how many places there were to try on this machine."""
    return sum(state != CanaryState.NOT_HERE for state in canaries.values())


def describe_canaries(canaries: Mapping[str, str]) -> str:
    """Return a text such as `14 places tried, none reached`."""
    reached = reached_places(canaries)
    what = f"{len(reached)} reached: {', '.join(reached)}" if reached else "none reached"
    return f"{count(places_tried(canaries), 'place')} tried, {what}"


def count_canaries(canaries: Mapping[str, str]) -> str:
    """Return a text such as `14 of 14 out of reach`."""
    tried = places_tried(canaries)
    return f"{tried - len(reached_places(canaries))} of {tried} out of reach"


def describe_hosts(hosts: Iterable[HostRequests]) -> str:
    """Return a text such as `allowed pypi.org ×3; refused one.example ×1, (UDP) ×2`."""
    hosts = tuple(hosts)
    parts = {
        "allowed": ", ".join(f"{each.host} ×{each.allowed:,}" for each in hosts if each.allowed),
        "refused": ", ".join(f"{each.host} ×{each.refused:,}" for each in hosts if each.refused),
    }
    return "; ".join(f"{word} {names}" for word, names in parts.items() if names)


def describe_issue_cost(event: IssueCostSummed) -> str:
    """Return the total cost and the budget, as text."""
    spent = Spent(usd=event.usd, at_least=event.at_least)
    return f"all runs on this issue: {spent} of {usd(event.most_usd)}"


def describe_changes(changes: DiffStat | None) -> str:
    """Return a text such as `2 files, +14 −3`. Empty if the changes are not known."""
    return f"{count(changes.count, 'file')}, {changed_lines(changes.added, changes.removed)}" if changes else ""


def describe_lines(file: LineCounts) -> str:
    """Return a text such as `+12 −3`, or `(binary)`."""
    if file.added is None or file.removed is None:
        return "(binary)"
    return changed_lines(file.added, file.removed)


def describe_subject(report: RunReport) -> str:
    """Return what the run was about; empty if it had no issue."""
    if report.reviewed:
        return f"pull request #{report.reviewed.number}"
    return "" if report.issue is None else f"issue #{report.issue}"


def describe_way(line: HistoryEntry) -> str:
    """Return the intent of an iteration, and the transition if it has a different name."""
    intent = line.intent or line.transition
    return intent if line.transition in (intent, "none") else f"{intent} ({line.transition})"


def describe_outcome(outcome: Outcome) -> str:
    """Return how the run ended. Unless it completed, the text includes the outcome's name for programs."""
    words = OUTCOMES[outcome]
    return words if outcome in (Outcome.COMPLETED, words) else f"{words} ({outcome})"


ADVICE: dict[Outcome, str] = {
    Outcome.COMPLETED: "Read the result; nothing else is left to do.",
    Outcome.NO_CHANGES: (
        "Read why the agent changed nothing. If something still needs to change, say so in the issue, then {again}; if "
        "not, close the issue."
    ),
    Outcome.BASE_FAILED: (
        "The checks failed before the agent began, and `base-checks: require` requires that they pass. Fix the branch "
        "that the run starts from, then {again}; or set `base-checks: tell`, and the agent works on it."
    ),
    Outcome.VALIDATION_FAILED: (
        "Read the failing validator's output, run its command in the repository yourself, and fix the cause or the "
        "command. Then {again}, or raise `maxAttempts` of the validation entry first."
    ),
    Outcome.ROUTING_FAILED: (
        "Compare the last answer with the step's `allowedIntents`, `intentField` and `transitions` in "
        "steps_registry.json; the prompt must name the allowed intents. `stepflow validate` and `stepflow graph` help."
    ),
    Outcome.SCHEMA_FAILED: (
        "Fix the step's `outputSchemaRef`: the schema could not be resolved twice in a row. "
        "`stepflow validate` names the file and the place."
    ),
    Outcome.ABORTED: (
        "The agent gave up on purpose; its reason is above. Add what it is missing to the issue, then {again}."
    ),
    Outcome.AWAITING_APPROVAL: (
        "Read the plan. To continue with it, comment `/stepflow approve` and the digest on the issue; to end the run, "
        "comment `/stepflow reject` and why."
    ),
    Outcome.LIMIT_REACHED: (
        "See in the step table where the run went in circles. Split the issue or sharpen that step's prompt; "
        "or raise the limit that the reason names. Then {again}."
    ),
    Outcome.BUDGET_EXHAUSTED: (
        "Raise the budget that the reason names, choose a cheaper `model`, or split the issue. Then {again}."
    ),
    Outcome.TIMED_OUT: (
        "Raise `limits.minutes`, and the job's own `timeout-minutes` above it, or split the issue. Then {again}."
    ),
    Outcome.CANCELLED: (
        "The run was stopped from outside; the journal in its run folder shows how far it got. To start over, {again}."
    ),
    Outcome.MODEL_FAILED: (
        "Check the API key, the model's name and the service's status. When the model answers, {again}."
    ),
    Outcome.MODEL_REFUSED: (
        "Nothing is wrong with the key or the service: the model's safeguards stopped it, which can happen to harmless "
        "work on such a subject. Say in the issue or the prompts what the work is for, or name a model that takes over "
        "as `fallbackModel`, then {again}."
    ),
    Outcome.BOUNDARY_FAILED: (
        "The work is done, but not all of it was written to GitHub: the list of effects says what was. "
        "Fix what the reason names, then {again}: comment, branch and pull request are updated, not written twice."
    ),
    Outcome.REFUSED: (
        "Fix what the reason names, and start the agent again: it may be who started the run, a protected path in "
        "the change, a layer of the sandbox that this machine lacks, or a sandbox that has ended."
    ),
    Outcome.SKIPPED: "Nothing, if no agent was meant to start. Otherwise the reason says what starts one.",
    Outcome.MISCONFIGURED: (
        "Correct what the reason names: an input of the workflow or a flag, a secret, or what a check needs. "
        "Then {again}."
    ),
    Outcome.INVALID_DEFINITION: (
        "Correct the agent definition: `stepflow validate` lists its problems with file and line. Then {again}."
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
    "SF328": "Remove `failFast: false`, or start this run with `allow: spec-violations` while you debug the agent.",
}

#: How to start a run again. In the action it is started by its label; at a terminal, the user knows the command.
BY_LABEL = "put the label on again"
ELSEWHERE = "start it again"
FOLLOWS_UP = "comment `/stepflow run` on the pull request"
#: The provider of a scripted model: there is no key, no service and nothing to wait for.
SCRIPTED = "scripted"
OF_SCENARIO = (
    "The answers came from a scenario, not from a model: correct its turns where the reason says so, or the prompt or "
    "transition that made the run ask for others. `stepflow show` on the run folder shows what led there."
)
NOT_PLAYED = (
    "The checks must pass before this scenario is played (`base_checks: require`). Make them pass, commit that, then "
    "{again}."
)
RED_BEFORE = (
    "{names} failed before the run already. If that is not what the scenario is about, make every check pass and "
    "commit that before you change the scenario. "
)
#: Advice at a terminal, for runs that can be resumed with the options they began with.
AT_TERMINAL = {
    Outcome.AWAITING_APPROVAL: (
        "Read the plan. To continue with it: `stepflow resume {folder} --approve {digest}`; to end the run: "
        "`stepflow resume {folder} --reject WHY`."
    ),
    Outcome.CANCELLED: "To continue where the run stopped: `stepflow resume {folder}`.",
    Outcome.MODEL_FAILED: (
        "Check the API key, the model's name and the service's status. To continue when the model answers: "
        "`stepflow resume {folder}`."
    ),
}
#: Marks a bug in stepflow in the reason of a run. An `internal_error` without it means that the machine cannot
#: continue.
BUG = "an error of stepflow itself"
MACHINE = (
    "Do what the reason says, then {again} to start over; what was written down until then is in the "
    "run folder's journal."
)


def advice(outcome: Outcome, code: str | None = None, *, again: str = BY_LABEL) -> str:
    """Return what a person should do after this outcome of a run. Some codes have more specific advice."""
    return ADVICE_OF_CODE.get(code or "", ADVICE[outcome]).format(again=again)


def next_step(report: RunReport) -> str:  # noqa: PLR0911 - one return per ending is the table
    """Return the advice for a whole report. After a success, it depends on what was written."""
    at_job = FOLLOWS_UP if report.follow_up else BY_LABEL
    again = at_job if report.host_run_folder else ELSEWHERE
    if report.outcome is Outcome.INTERNAL_ERROR and BUG not in report.explanation:
        return MACHINE.format(again=again)
    if report.outcome is Outcome.MODEL_FAILED and report.provider == SCRIPTED:
        red = ", ".join(f"`{check.name}`" for check in report.base_checks if not check.passed)
        return f"{RED_BEFORE.format(names=red) if red else ''}{OF_SCENARIO}"
    if report.outcome is Outcome.BASE_FAILED and report.provider == SCRIPTED:
        return NOT_PLAYED.format(again=again)
    if not report.success or not report.effects:
        # A run without an iteration has nothing to continue.
        if report.outcome in AT_TERMINAL and report.iterations and not report.host_run_folder:
            digest = report.approval.digest if report.approval else "DIGEST"
            return AT_TERMINAL[report.outcome].format(folder=quote(report.run_folder), digest=digest)
        return advice(report.outcome, report.code, again=again)
    if all(effect.status is EffectStatus.PLANNED for effect in report.effects):
        if report.provider == SCRIPTED:
            return "This was a dry run with scripted answers: nothing was written to GitHub."
        setting = "boundary: github" if report.host_run_folder else "--boundary github"
        return f"This was a dry run: nothing was written to GitHub. Run it with `{setting}` to write what is planned."
    if any(effect.kind is EffectKind.OPEN_PULL_REQUEST for effect in report.effects):
        return "Review the pull request. If it is a draft, mark it ready when you are satisfied; merging is up to you."
    if report.follow_up:
        return f"Review pull request #{report.follow_up.pull_request} again."
    return "Review what was written to GitHub; the list of effects leads there."


def verb_of_text(report: RunReport, kind: str) -> str:
    """Introduce an effect's text: the effect `would write` it, or `could not write` it."""
    is_planned = any(each.kind == kind and each.status is EffectStatus.PLANNED for each in report.effects)
    return "would write" if is_planned else "could not write"


#: What changes after a request that the service refused.
REMEDIES: Mapping[Remedy, str] = {
    Remedy.ASK_IN_WORDS: "answers are requested with the schema in words",
    Remedy.LEAVE_OUT_IMAGES: "images are left out",
    Remedy.DROP_THINKING: "the service leaves out earlier thinking of this conversation",
    Remedy.SHORTEN: "the conversation begins again",
}
#: Characters of a reason that watchers are shown.
REASON_SHOWN = 300


@dataclass(frozen=True)
class Part:
    """One text of a message, or a value that is shown as JSON."""

    label: str
    value: JsonValue
    #: Whether the text is visible as soon as the message is.
    is_open: bool = True
    #: Whether the lines are colored.
    is_diff: bool = False
    #: Each inserted value: where it begins and ends, and the name of its variable.
    puts: tuple[tuple[int, int, str], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the text is blank or the value is empty, so that it need not be shown."""
        return not self.value.strip() if isinstance(self.value, str) else self.value in (None, {}, [])

    @property
    def text(self) -> str:
        """The text as it is shown."""
        return self.value if isinstance(self.value, str) else json.dumps(self.value, ensure_ascii=False, indent=2)


@dataclass(frozen=True, kw_only=True)
class EventMessage:
    """What people read about one event, on any surface. Watchers see `title` with its `facts` in parentheses, and
    `below` under it. A page shows everything except `below` and empty parts."""

    title: str
    tone: Tone = Tone.PLAIN
    facts: tuple[str, ...] = ()
    more_facts: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    url: str = ""
    #: If false, watchers see only `below`.
    in_log: bool = True
    below: tuple[Line, ...] = ()


def fact_message(sentence: str, *, is_warning: bool, data: Mapping[str, JsonValue] | None = None) -> EventMessage:
    """Return a message whose sentence says everything."""
    return EventMessage(
        title=one_line(sentence, REASON_SHOWN),
        tone=Tone.WARNING if is_warning else Tone.PLAIN,
        parts=(Part("Data", {**(data or {})}, is_open=False),),
    )


def warning_message(sentence: str) -> EventMessage:
    """Return a message of which a watcher should take notice, and whose sentence says everything."""
    return fact_message(sentence, is_warning=True)


def value_parts(label: str, values: JsonObject, *, is_open: bool) -> tuple[Part, ...]:
    """Return the long texts among named values with their line breaks, and the rest as JSON."""
    texts = {name: value for name, value in values.items() if isinstance(value, str) and "\n" in value}
    rest = {name: value for name, value in values.items() if name not in texts}
    named = (Part(f"{label}: {one_line(name, 40)}", text, is_open=is_open) for name, text in texts.items())
    return (Part(label, rest, is_open=is_open), *named)


def whole_part(label: str, text: str, shown: int) -> tuple[Part, ...]:
    """Return the full text if the title, which shows `shown` characters on one line, cannot show all of it."""
    return (Part(label, text),) if len(text) > shown or "\n" in text.strip() else ()


#: The inputs that describe a tool call best, by the names in the tool set.
MAIN_INPUTS = ("command", "file_path", "pattern", "path")


def describe_model(event: IterationStarted) -> str:
    """Return the model and the agent's settings for its answers. Empty if there are no settings."""
    effort = f"effort {event.effort}" if event.effort else ""
    most = f"at most {count(event.max_output_tokens, 'output token')} an answer" if event.max_output_tokens else ""
    return ", ".join((event.model, *filter(None, (effort, most)))) if effort or most else ""


def call_text(arguments: JsonObject) -> str:
    """Return the part of a tool's input that describes the call best."""
    for name in MAIN_INPUTS:
        value = arguments.get(name)
        if isinstance(value, str):
            return first_line(value, 120)
    return one_line(compact(arguments), 120) if arguments else ""


def spoken(event: ModelTurn) -> str:
    """Return the prose of a turn. The words of a model between its calls may be its thinking. A structured answer has
    no prose, because its intent and reason are shown elsewhere."""
    text = "".join(str(block.get("text", "")) for block in event.content if block.get("type") == "text")
    if event.stop_reason == "tool_use" and not text.strip():
        text = "".join(str(block.get("thinking", "")) for block in event.content if block.get("type") == "thinking")
    return "" if event.stop_reason != "tool_use" and text.lstrip().startswith("{") else text
