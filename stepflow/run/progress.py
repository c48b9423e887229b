"""The comment that shows how far a run has come, for workflows with `progress: comment`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from math import inf
from typing import TYPE_CHECKING

from stepflow.boundary.effect_writer import EffectWriter
from stepflow.boundary.github_failures import RetryPolicy
from stepflow.boundary.output_filter import filter_text
from stepflow.boundary.own_texts import OwnComment, is_progress, mark_progress, marker_word, read_marker
from stepflow.boundary.settings import Plan, check_actor
from stepflow.domain import event as events
from stepflow.domain.effect import EffectKind, EffectStatus
from stepflow.errors import StepflowError
from stepflow.report.summary import progress_summary
from stepflow.run.ending import collect_run
from stepflow.run.finish import cost_so_far, open_writer
from stepflow.run.prepare import Prepared
from stepflow.run.request import boundary_settings
from stepflow.run.start.inputs import BoundaryMode

if TYPE_CHECKING:
    from stepflow.boundary.github_writer import GitHubWriter

SECONDS_BETWEEN_EDITS = 30.0
#: After this many failed writes in a row the run continues without the comment.
MOST_FAILURES = 3
EARLIER_RUN_DIED = "The run before this one stopped without saying how it ended."
THIS_RUN_DIED = "This run was stopped, and has been resumed."


class ProgressComment:
    """Listens to a run's events and keeps its comment up to date until the boundary replaces it with the result.

    The comment holds only facts of the engine, never the model's text. A failed write is recorded by
    `record` and does not stop the run. Other listeners come first, so that they meet this record in order.
    """

    def __init__(self, prepared: Prepared, record: Callable[[events.Noted], object]) -> None:
        self._prepared, self._record = prepared, record
        self._is_open = _may_comment(prepared)
        self._is_resumed = False
        #: What to say about a run that left its comment unfinished.
        self._died = ""
        self._own: OwnComment | None = None
        self._failures = 0
        #: When the next edit is due.
        self._next = inf

    def __call__(self, entry: events.Entry) -> None:
        """Follow one event; few of them change the comment."""
        if not self._is_open:
            return
        match entry.event:
            case events.EffectApplied(kind=EffectKind.POST_COMMENT, status=EffectStatus.APPLIED):
                self._is_open = False
            case events.FailureReported(url=url) if url:
                self._is_open = False
            case events.RunStarted() | events.RunResumed():
                self._is_resumed = isinstance(entry.event, events.RunResumed)
                self._write(entry.time)
            case events.FlowEnded():
                self._next = inf
            case events.RunFinished():
                self._write(entry.time, is_over=True)
            case _ if entry.time >= self._next:
                self._write(entry.time)
            case _:
                pass

    def _write(self, now: float, *, is_over: bool = False) -> None:
        """Write the comment once, without a second try."""
        # Set before anything can fail: the warning is an event, too.
        self._next = now + SECONDS_BETWEEN_EDITS
        try:
            with closing(open_writer(self._prepared.request, RetryPolicy())) as writer:
                self._edit(writer, now, is_over=is_over)
            self._failures = 0
        except StepflowError as error:
            self._own, self._failures = None, self._failures + 1
            self._is_open = self._failures < MOST_FAILURES
            self._warn(f"the comment could not be written: {error}")

    def _warn(self, message: str) -> None:
        self._record(events.Noted(level="warning", message=f"[Progress] {message}"))

    def _edit(self, writer: GitHubWriter, now: float, *, is_over: bool) -> None:
        request, agent, report = self._prepared.request, self._prepared.agent, collect_run(self._prepared)
        settings = boundary_settings(request)
        if self._own is None and (refusal := check_actor(writer, settings)):
            self._is_open = False
            self._warn(refusal)
            return
        plan = Plan(
            run_id=request.run_id,
            agent=agent.name,
            settings=settings,
            redactor=request.redactor,
            issue=self._prepared.issue,
            cost=cost_so_far(request),
            digest=agent.digest,
            outcome=report.outcome if is_over else None,
            seconds=report.seconds,
        )
        effects = EffectWriter(plan, writer, None)
        own = self._own or effects.own_comment()
        is_unfinished = own is not None and is_progress(own.comment.body)
        if is_over and not is_unfinished:
            return
        if own and is_unfinished and self._own is None:
            is_ours = own.marker.run == marker_word(request.run_id)
            self._died = EARLIER_RUN_DIED if not is_ours else THIS_RUN_DIED if self._is_resumed else self._died
        text = progress_summary(report, now=now, died=self._died, is_over=is_over, run_url=request.job_url)
        text = filter_text(text, plan.output_filter)
        comment = effects.write_comment(text if is_over else mark_progress(text), own, commit="")
        marker = read_marker(comment.body)
        self._own = OwnComment(comment=comment, marker=marker) if marker else None


def _may_comment(prepared: Prepared) -> bool:
    """Return whether the boundary and the agent allow the comment, and it is not the result of an earlier part of
    the run."""
    inputs, resumed_run = prepared.request.inputs, prepared.resumed_run
    has_result = resumed_run is not None and any(
        isinstance(event, events.EffectApplied) and event.kind is EffectKind.POST_COMMENT
        for event in resumed_run.events
    )
    wanted = inputs.boundary is BoundaryMode.GITHUB and prepared.agent.github.comments
    return wanted and prepared.issue is not None and not has_result
