"""Every event that a journal may hold, in each form that is worded differently."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from stepflow.domain import event as events
from stepflow.domain.agent.agent_settings import ClimbCause, ModelChanged
from stepflow.domain.checkout import CommandResult
from stepflow.domain.connection import HostRequests, HostsRequested
from stepflow.domain.conversation import (
    ClearedResults,
    ModelTurn,
    Refusal,
    Remedy,
    RequestAdapted,
    StopReason,
    ToolCall,
    Usage,
)
from stepflow.domain.effect import (
    ApprovalAnswered,
    ApprovalAsked,
    EffectKind,
    EffectStatus,
    SuggestionResults,
    SuggestionsTried,
    TriedSuggestion,
)
from stepflow.domain.run import DiffLines, ImageProblem, ImagesRead, ImageType, IssueImage, ReviewedFile, ReviewedPull
from stepflow.domain.text import RemovalKind, RemovedPiece, TextRemoved
from stepflow.domain.words import Effort, FailureAction, Intent, Outcome, Permission, Stage, StepKind
from tests.report.plausible_run import STARTED

#: Of these fields the domain knows every value.
FIXED = ("event", "level", "result")


def model_turn(text: str, stop: str = "end_turn") -> ModelTurn:
    """A turn that says this, and calls a tool."""
    content = ({"type": "text", "text": text}, {"type": "tool_use", "id": "t", "name": "bash", "input": {}})
    return ModelTurn(
        content=content, stop_reason=StopReason(stop), usage=Usage(input_tokens=1), cost_usd=0.0, model="m", seconds=1
    )


TOOL = ToolCall(
    tool_use_id="t", name="bash", input={"command": "ls"}, output="out", is_error=False, exit_code=0, seconds=0.5
)
VALIDATOR = events.ValidatorRan(
    iteration=1,
    entry="e",
    name="git-clean",
    passed=False,
    exit_code=1,
    pattern="p",
    attempt=1,
    max_attempts=3,
    action=FailureAction.RETRY,
    recoverable=True,
    seconds=0.5,
    output_tail="",
)
COMMAND = CommandResult(
    step_id="s",
    argv=("make", "a b"),
    exit_code=2,
    stdout="out",
    stderr="err",
    timed_out=False,
    started=True,
    error="",
    seconds=1.0,
)
ANSWERED = events.StepAnswered(step_id="s", answer={}, intent=Intent.NEXT, target=None, reason="r")
JUDGED = events.CompletionJudged(entry="e", done=True, validated=True, step_id="s")
ROUTED = events.Routed(source="a", to="b", transition="next", reason="r")
SELF_TEST = {"a tool's environment": "kept", "RUNNER_TEMP": "kept", "the docker socket": "not here"}

EVENTS: dict[str, events.Event] = {
    "run without an issue": replace(STARTED, repository="", issue=None, isolation={}),
    "run on an issue": replace(STARTED, isolation={}),
    "run that reviews a pull request": replace(
        STARTED,
        reviewed=ReviewedPull(
            number=7,
            url="https://github.com/o/r/pull/7",
            author="eve",
            base="main",
            base_commit="b" * 40,
            head="a" * 40,
            merge="c" * 40,
            is_from_fork=True,
            files=(ReviewedFile(path="a.py", right=(DiffLines(first=1, last=7, shift=2),)),),
        ),
    ),
    "run in a sandbox": replace(STARTED, isolation={"uid": "1000", "network": "closed: no sockets"}),
    "waits for approval": ApprovalAsked(
        step_id="s", by=Permission.WRITE, digest="0123abcd", iterations_left=3, usd_left=4.5, tokens_left=None
    ),
    "approved": ApprovalAnswered(step_id="s", actor="carol", digest="0123abcd"),
    "rejected": ApprovalAnswered(step_id="s", actor="carol", digest=None, reason="too large"),
    "resumed": events.RunResumed(events=8, from_seq=1, iteration=1, step_id="s"),
    "iteration": events.IterationStarted(iteration=3, step_id="s", kind=StepKind.WORK, model="m"),
    "iteration with an effort": events.IterationStarted(
        iteration=3, step_id="s", kind=StepKind.WORK, model="m", effort=Effort.LOW, max_output_tokens=64_000
    ),
    "removed text": TextRemoved(count=1, pieces=(RemovedPiece(kind=RemovalKind.HIDDEN, where="body", text="hidden"),)),
    "images": ImagesRead(
        images=[
            IssueImage(address="https://github.com/a", type=ImageType.PNG, width=1200, height=3, data="AAAA"),
            IssueImage(address="https://example.com/b", problem=ImageProblem.ELSEWHERE),
            IssueImage(address="https://example.com/c", problem=ImageProblem.ELSEWHERE),
        ]
    ),
    "images seen": ImagesRead(
        images=[IssueImage(address="https://github.com/a", type=ImageType.GIF, width=1, height=3, data="AAAA")]
    ),
    "green before the run": events.BaseChecked(
        name="lint", command="ruff check", passed=True, exit_code=0, seconds=0.5, output_tail=""
    ),
    "red before the run": events.BaseChecked(
        name="tests", command="pytest -q", passed=False, exit_code=1, seconds=2, output_tail="F\n1 failed\n"
    ),
    "prompt": events.PromptRendered(system="", blocks=[], source="f.md", retry=False, tools=[]),
    "first schema failure": events.SchemaFailed(step_id="s", strikes=1, reason="no file"),
    "second schema failure": events.SchemaFailed(step_id="s", strikes=2, reason="no file"),
    "wait": events.ModelWaited(reason="529", seconds=2.5, attempt=1),
    "wait before a deadline": events.ModelWaited(reason="529", seconds=10, attempt=2, tries=5, deadline_in=1500),
    "lost answer": events.AnswerLost(reason="reset", usage=Usage(input_tokens=1200, output_tokens=1), cost_usd=0.1),
    "renewed cache": events.CacheRenewed(
        step_id="s", usage=Usage(cache_read_tokens=34_567), cost_usd=0.007, seconds=0.8
    ),
    "cache that was not renewed": events.CacheRenewed(
        step_id="s", usage=Usage(), cost_usd=0.0, seconds=30, problem="The model service is overloaded."
    ),
    "overflow": events.ContextOverflowed(step_id="s", reason="400", by_fault=True),
    **{
        f"climbed: {cause}": ModelChanged(
            step_id="s", owner="", before="haiku:low", to="opus:high", fallback=False, cause=cause, reason="the reason"
        )
        for cause in ClimbCause
    },
    "fallback": ModelChanged(
        step_id="s",
        owner="s",
        before="haiku",
        to="opus",
        fallback=True,
        cause=ClimbCause.REFUSAL,
        reason=str(Refusal(category="cyber", explanation="It asks for an exploit.")),
        work="Tools used so far: bash (1 call).",
    ),
    **{
        f"adapted: {remedy}": RequestAdapted(model="m", remedy=remedy, reason="prose came", by_fault=True)
        for remedy in Remedy
    },
    "turn with a tool": model_turn("First I look.\nThen more.", "tool_use"),
    "turn without words": model_turn(" \n", "tool_use"),
    "turn that was cut": model_turn("cut", "max_tokens"),
    "turn with an answer": model_turn('{"next_action": {"action": "next"}}'),
    "turn of many words": model_turn("\n".join(f"word {number}" for number in range(100)) + "x" * 1000),
    "turn of a long conversation": replace(
        model_turn("", "tool_use"), cleared=ClearedResults(results=12, tokens=34_567)
    ),
    "turn that thinks aloud": replace(
        model_turn("", "tool_use"), content=({"type": "thinking", "thinking": "First I look.", "signature": "c2ln"},)
    ),
    "tool started": events.ToolStarted(tool_use_id="t", name="bash"),
    "tool": TOOL,
    "tool with an exit code": replace(TOOL, exit_code=2, seconds=75),
    "denied tool": replace(TOOL, denied=True, name="write"),
    "tool with an error": replace(
        TOOL, name="read", input={"file_path": "a"}, exit_code=None, is_error=True, output="no such file"
    ),
    "tool of another kind": replace(TOOL, name="odd", input={"n": 1}, exit_code=None, is_error=True, output=""),
    "tool without input": replace(TOOL, name="grep", input={}, exit_code=None),
    "question": events.UserMessage(text="Is it green?\nSay.", format_retry=False),
    "format retry": events.UserMessage(text="t", format_retry=True, errors=["a", "b"]),
    "answer": ANSWERED,
    "answer without an intent": replace(ANSWERED, answer=None, intent=None, reason="prose"),
    "jump": replace(ANSWERED, intent=Intent.JUMP, target="t", reason=""),
    "good check": events.CheckJudged(step_id="s", result="ok", message=""),
    "bad check": events.CheckJudged(step_id="s", result="ng", message="It names\nno cause."),
    "route": ROUTED,
    "route by prefix": replace(ROUTED, by_prefix=True),
    "route to completion": replace(ROUTED, to=None, transition="closing"),
    "green validator": replace(VALIDATOR, passed=True, exit_code=0, action=None),
    "red validator": VALIDATOR,
    "red validator again": replace(VALIDATOR, attempt=2),
    "skipped validator": replace(VALIDATOR, action=FailureAction.SKIP),
    "unrecoverable validator": replace(VALIDATOR, recoverable=False, action=None),
    "aborting validator": replace(VALIDATOR, recoverable=False, action=FailureAction.ABORT),
    "done": JUDGED,
    "done with a red validator": replace(JUDGED, validated=False),
    "not done": replace(JUDGED, done=False, validated=False),
    "not done, with a retry prompt": replace(
        JUDGED,
        done=False,
        validated=False,
        step_id="continuation.issue",
        retry_prompt="# Not clean\n\n" + "\n".join(f"- file{number}.py" for number in range(40)),
        retry_source="f_failed.md",
    ),
    "end of the flow": events.FlowEnded(
        outcome=Outcome.ABORTED, stage=Stage.FLOW, reason="r", step_id="s", answer=None, validated=False
    ),
    "commits": events.WorkCollected(head_commit="c", commits=2),
    "uncommitted work": events.WorkCollected(head_commit="c", commits=0, uncommitted=["a.py", "b.py"]),
    "suggestions": SuggestionsTried(
        results=SuggestionResults(
            suggestions=(
                TriedSuggestion(comment=0, place="`a.py:3`"),
                TriedSuggestion(comment=2, place="`a.py:7-9`", problem="it makes `test` fail", red=("test",)),
            ),
            checks=("test", "lint"),
            red_before=("lint",),
        )
    ),
    "plan": events.EffectPlanned(kind=EffectKind.CLOSE_ISSUE, detail="issue 7"),
    "planned text": events.EffectPlanned(
        kind=EffectKind.POST_COMMENT, detail="Done.", text="Done.\n\nSee `greeting.txt`."
    ),
    "failed effect": events.EffectApplied(kind=EffectKind.PUSH_BRANCH, status=EffectStatus.FAILED, detail="403"),
    "skipped effect": events.EffectApplied(kind=EffectKind.PUSH_BRANCH, status=EffectStatus.SKIPPED),
    "applied effect": events.EffectApplied(
        kind=EffectKind.POST_COMMENT, status=EffectStatus.APPLIED, url="https://x.y/1"
    ),
    "failure without a comment": events.FailureReported(detail="It could not be told.", url=""),
    "failure with a comment": events.FailureReported(detail="", url="https://x.y/1"),
    "snapshot": events.SnapshotTaken(name="a" * 40, files=1, bytes=9, seconds=0.1),
    "failed snapshot": events.SnapshotFailed(reason="the disk is full"),
    "layer": events.LayerReported(layer="uid", state="off", is_warning=False),
    "layer that does not hold": events.LayerReported(layer="uid", state="off", is_warning=True),
    "self-test": events.CanariesTried(canaries=SELF_TEST),
    "failed self-test": events.CanariesTried(
        canaries={**SELF_TEST, "RUNNER_TEMP": "reached by shell: /tmp | x (read)"}
    ),
    "hosts": HostsRequested(hosts=[HostRequests(host="pypi.org", allowed=3, refused=0)]),
    "refused hosts": HostsRequested(
        hosts=[
            HostRequests(host="one.example:8443", allowed=1, refused=2),
            HostRequests(host="(UDP)", allowed=0, refused=1),
        ]
    ),
    "cost of an issue": events.IssueCostSummed(usd=0.5, at_least=True, most_usd=2),
    "budget of an issue is spent": events.IssueCostSummed(usd=2, at_least=False, most_usd=2),
    "command": COMMAND,
    "debug note": events.Noted(level="debug", message="not for people"),
    "note": events.Noted(
        level="info", message="setup ended with exit code 0", data={"output": "one\n::error::two\n100 %"}
    ),
    "note without output": events.Noted(level="info", message="quiet", data={"output": " \n"}),
    "warning": events.Noted(level="warning", message="[Isolation] landlock: not available here"),
    "error": events.Noted(level="error", message="[Boundary] failed"),
    "bug": events.Noted(level="error", message="internal error", data={"traceback": "Traceback\n  boom"}),
    "end of the run": events.RunFinished(outcome=Outcome.ABORTED, stage=Stage.FLOW, reason="r", success=False),
}


def hostile_copy(value: Any, text: str) -> Any:
    """The same event with this text wherever a model, a tool or a person may have written one."""
    match value:
        case Enum():
            return value
        case str():
            return text
        case list():
            return [hostile_copy(each, text) for each in value]
        case dict():
            return {key: each if key == "type" else hostile_copy(each, text) for key, each in value.items()} | {
                text: text
            }
        case _ if is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in fields(value) if field.name not in FIXED]
            return replace(value, **{name: hostile_copy(getattr(value, name), text) for name in names})
        case _:
            return value
