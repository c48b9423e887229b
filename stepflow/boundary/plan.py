"""Plans what a completed run writes to GitHub, as its closing answer requests. Repository, issue and base branch never
come from the model's answer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from stepflow.boundary.output_filter import LONGEST_TEXT, filter_line, filter_text
from stepflow.boundary.review import ReviewPlanner
from stepflow.boundary.settings import (
    BoundarySettings,
    ClosingRequest,
    CommitsInfo,
    Plan,
    RequestedReview,
    ThreadAnswer,
    branch_name,
    branch_problem,
    choose_labels,
    object_to_labels,
    read_closing_request,
)
from stepflow.domain.agent.agent_settings import GitHubSettings
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.effect import (
    AddLabels,
    AllowedEffect,
    AnswerThreads,
    CloseIssue,
    CreateRelease,
    DispatchWorkflow,
    Effect,
    OpenPullRequest,
    PostComment,
    PushBranch,
    RemoveLabels,
    SubmitReview,
    SuggestionResults,
    ThreadReply,
)
from stepflow.domain.event import FlowEnded
from stepflow.domain.run import FollowUp, ReviewedPull, RunFacts
from stepflow.domain.secrets import Redactor, redact_value
from stepflow.domain.text import Spent, code_span, name_some
from stepflow.domain.words import CloseBy, ClosureAction, Outcome, StepKind, VerdictType


def plan_effects(
    agent: AgentDefinition,
    facts: RunFacts,
    result: FlowEnded,
    settings: BoundarySettings,
    *,
    summary: str,
    removed: str = "",
    verified: str = "",
    commits: CommitsInfo | None,
    redactor: Redactor | None = None,
    cost: Spent | None = None,
    tried: SuggestionResults | None = None,
) -> Plan:
    """Plan the effects of a completed run; there are none unless it ended in a closure step.

    `summary` is the engine's own comment, used if the closing answer has no `comment`. Below the answer's texts,
    `removed` says what was removed from the issue's text, and `verified` which checks passed and what the run cost.
    `tried` says what became of a review's suggestions; without it, none is offered.
    """
    plan = Plan(
        run_id=facts.run_id,
        agent=agent.name,
        settings=settings,
        redactor=redactor or Redactor(),
        github=agent.github,
        issue=facts.issue,
        cost=cost or Spent(),
        digest=agent.digest,
    )
    step = agent.steps.get(result.step_id)
    is_closed = result.outcome is Outcome.COMPLETED and step is not None and step.kind is StepKind.CLOSURE
    if not is_closed or not agent.github.enabled:
        return plan
    # Masked as a whole: what is cut out of it later holds no part of a secret.
    answer = {key: redact_value(value, plan.redactor) for key, value in (result.answer or {}).items()}
    request = read_closing_request(answer)
    planner = Planner(
        agent=agent, facts=facts, plan=plan, requested=request, commits=commits, verified=verified, tried=tried
    )
    return planner.complete(summary, removed)


NO_CHANGES = "No changes: the run made no commit, so there is no pull request, and the issue stays open."
UNCHANGED = "No changes: the run made no commit and answered no thread, so the pull request stays as it is."
NOT_ANSWERED = "the run does not say what became of it."
#: Characters of what was removed from the issue, and of what was verified.
LONGEST_OWN = 8_000
LONGEST_REPLY = 4_000
_TAG = re.compile(r"[A-Za-z0-9](?!.*\.\.)[A-Za-z0-9._/+-]{0,99}(?<![./])")


@dataclass(frozen=True, kw_only=True)
class Planner:
    """Adds one run's effects to an empty plan. `warnings` and `objections` grow as effects are planned."""

    agent: AgentDefinition
    facts: RunFacts
    plan: Plan
    requested: ClosingRequest
    commits: CommitsInfo | None
    verified: str = ""
    tried: SuggestionResults | None = None
    warnings: list[str] = field(default_factory=list)
    objections: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for warning in self.requested.warnings:
            self._object(warning)

    def complete(self, summary: str, removed: str) -> Plan:
        """Return the plan with its effects, or with the reason why nothing may be written."""
        follow_up, reviewed, expects = self.facts.follow_up, self.facts.reviewed, None
        effects: tuple[Effect, ...]
        if reviewed:
            # Nothing that the run did in its workspace leaves it.
            effects = (*self.review(reviewed, summary, removed), *self.labels())
        elif follow_up:
            pushes = self.opens_pull_request()
            # A follow-up adds commits and replies to the pull request and changes nothing else.
            effects = (
                *((PushBranch(branch=follow_up.branch, fast_forward=True),) if pushes else ()),
                *self.replies(follow_up, pushes),
                *self.comment(summary, removed),
                *self.workflow(pushes),
            )
        else:
            branch, opens = branch_name(self.agent, self.facts), self.opens_pull_request()
            if opens and (refusal := branch_problem(branch, self.base)):
                return replace(self.plan, refusal=refusal)
            closes = self.closes()
            by_merge = closes and self.by_merge(opens)
            by_hand = self.by_hand() if by_merge and opens else ""
            expects = ("open" if by_merge else "closed") if closes else None
            effects = (
                *((PushBranch(branch=branch), self.pull_request(branch, summary, by_merge, by_hand)) if opens else ()),
                *self.comment(summary, removed, by_hand),
                *self.labels(),
                *self.release(),
                *((CloseIssue(),) if closes and not by_merge else ()),
                *self.workflow(opens),
            )
        redact = self.plan.redactor
        return replace(
            self.plan,
            base=(follow_up or reviewed or self).base,
            effects=effects,
            warnings=tuple(map(redact, self.warnings)),
            objections=tuple(map(redact, self.objections)),
            expects=expects,
            reads_back=not (follow_up or reviewed) and self.plan.issue is not None and self._polls_state,
            no_changes="" if reviewed else self.no_changes(),
            follow_up=follow_up,
            reviewed=reviewed,
        )

    def review(self, pull: ReviewedPull, summary: str, removed: str) -> tuple[SubmitReview, ...]:
        """Return the review of a pull request. It carries the comment of an answer that has no review."""
        requested = self.requested.review
        if requested is None:
            self._object(
                "The closing answer has no `review`, so the review of the pull request has no comments on lines."
            )
            requested = RequestedReview()
        written = requested.summary or self.requested.comment
        own = (f"---\n\n{self._verified_text()}" if written and self.verified else "", self._filter_text(removed))
        planner = ReviewPlanner(
            github=self._github,
            pull=pull,
            output_filter=self.plan.output_filter,
            tried=self.tried,
            warnings=self.warnings,
        )
        below = "\n\n".join(part for part in own if part)
        return (planner.plan(requested.model_copy(update={"summary": written or summary}), below),)

    def replies(self, follow_up: FollowUp, pushes: bool) -> tuple[AnswerThreads, ...]:
        """Return one reply for each thread that the run was shown."""
        answers = {answer.thread: answer for answer in self.requested.threads}
        if unknown := [thread for thread in answers if thread not in follow_up.threads]:
            self._object(f"No reply is written in threads that the run was not shown: {', '.join(unknown)[:200]}.")
        if not (follow_up.threads and self._github.comment.enabled and self._allows(AllowedEffect.COMMENT)):
            return ()
        replies = (self._reply(thread, answers.get(thread), pushes) for thread in follow_up.threads)
        return (AnswerThreads(replies=tuple(replies)),)

    def _reply(self, thread: str, answer: ThreadAnswer | None, pushes: bool) -> ThreadReply:
        if answer is None:
            return ThreadReply(thread=thread, applied=False, why=NOT_ANSWERED)
        why = filter_text(answer.why, self.plan.output_filter, limit=LONGEST_REPLY)
        if answer.applied and not pushes:
            return ThreadReply(thread=thread, applied=False, why=f"the run made no commit. {why}".rstrip())
        return ThreadReply(thread=thread, applied=answer.applied, why=why)

    @property
    def base(self) -> str:
        """The base of a pull request; empty means the default branch."""
        return self._github.pull_request.base or self.facts.base_branch

    def opens_pull_request(self) -> bool:
        """True when there are commits and the agent may open a pull request."""
        if not self.commits or not self.commits.count:
            return False
        if self._github.pull_request.enabled and self._allows(AllowedEffect.PULL_REQUEST):
            return True
        self.warnings.append("The commits of this run are not pushed: agent.json allows no pull request.")
        return False

    def workflow(self, pushes: bool) -> tuple[DispatchWorkflow, ...]:
        """Return the workflow to start on the pushed branch. It is the last effect: if it fails, the others are
        written."""
        name = self.plan.settings.ci_workflow
        return (DispatchWorkflow(workflow=name),) if pushes and name else ()

    def pull_request(self, branch: str, summary: str, by_merge: bool, by_hand: str = "") -> OpenPullRequest:
        """Return the pull request. Without a body in the answer its text is the comment's; its last line is the
        engine's."""
        requested, issue = self.requested, self.facts.issue
        given = [requested.draft, self._github.pull_request.draft]
        own_title = issue.title if issue and issue.title.strip() else f"{self.agent.display_name}: {self.facts.run_id}"
        title = filter_line(requested.title or self._github.pull_request.title or own_title, self.plan.output_filter)
        reference = "" if issue is None else f"{'Closes' if by_merge and not by_hand else 'For'} #{issue.number}. "
        footer = f"{reference}Opened by the stepflow agent `{self.agent.name}`, run `{self.facts.run_id}`. {by_hand}"
        written = requested.body or requested.comment
        # The summary says itself what was verified.
        verified = self._verified_text() if written else ""
        text, below = self._text_above(written or summary, verified, self._guard_warnings(), footer.rstrip())
        return OpenPullRequest(
            branch=branch,
            base=self.base,
            title=title or branch,
            body=f"{text}\n\n---\n\n{below}" if text else below,
            draft=next(value for value in given if value is not None),
        )

    def comment(self, summary: str, removed: str, by_hand: str = "") -> tuple[PostComment, ...]:
        """Return the text of the one comment; writing adds links and the marker. What was `removed` from the issue's
        text is shown also where the model wrote the comment."""
        if not self.facts.issue:
            if self.requested.comment:
                self.warnings.append("The run has no issue: the answer's comment is not posted.")
            return ()
        has_text = self.requested.comment or self._github.comment.summary
        if not (has_text and self._github.comment.enabled and self._allows(AllowedEffect.COMMENT)):
            return ()
        own = ["\n".join(f"> {line}" for line in (self.no_changes(), by_hand) if line)]
        if self.requested.comment:
            own += [f"---\n\n{self._verified_text()}"] if self.verified and self._github.comment.summary else []
            own += [self._filter_text(removed)]
        own += [self._left_out(), self._guard_warnings()]
        text, below = self._text_above(self.requested.comment or summary, *own)
        return (PostComment(body=f"{text}\n\n{below}" if text and below else text or below),)

    def _verified_text(self) -> str:
        return self._filter_text(self.verified)

    def _filter_text(self, text: str) -> str:
        return filter_text(text, self.plan.output_filter, limit=LONGEST_OWN)

    def _text_above(self, text: str, *own: str) -> tuple[str, str]:
        """Return the text, and below it the engine's `own` parts. GitHub takes no body without end: the text gives way,
        since each of those parts is short."""
        below = "\n\n".join(part for part in own if part)
        return filter_text(text, self.plan.output_filter, limit=LONGEST_TEXT - len(below)), below

    def _left_out(self) -> str:
        commits = self.commits or CommitsInfo(count=0)
        names = name_some(code_span(name.replace("`", "")) for name in commits.uncommitted)
        line = f"> Changed but not committed, so not part of this result: {names}." if names else ""
        return filter_text(line, self.plan.output_filter, limit=2_000)

    def _guard_warnings(self) -> str:
        """Whatever the model says about its work, people see what the checks stood on."""
        lines = (f"> ⚠️ {text.replace('`', '')}" for text in (self.commits.warnings if self.commits else ()))
        return filter_text("\n".join(lines), self.plan.output_filter, limit=4_000)

    def labels(self) -> tuple[Effect, ...]:
        """Label changes: those of a closure action with labels, and the label that started the run."""
        if not self.facts.issue or not self._allows(AllowedEffect.LABELS):
            return ()
        by_answer = self._action in (ClosureAction.LABEL_ONLY, ClosureAction.LABEL_AND_CLOSE)
        add = (*self._github.labels.completion.add, *self.requested.labels_add) if by_answer else ()
        remove = (*self._github.labels.completion.remove, *self.requested.labels_remove) if by_answer else ()
        if by_answer:
            requested = (self.requested.labels_add, self.requested.labels_remove)
            self.objections.extend(object_to_labels(*requested, self._github, self.plan.settings))
        added, removed = choose_labels(add, remove, self._github, self.plan.settings, self.warnings)
        return (
            *((AddLabels(labels=added),) if added else ()),
            *((RemoveLabels(labels=removed),) if removed else ()),
        )

    def release(self) -> tuple[CreateRelease, ...]:
        """Return a release, where the agent lists that effect."""
        requested = self.requested.release
        if requested is None:
            return ()
        if not self._allows(AllowedEffect.RELEASE):
            self.warnings.append("No release is created: `allowedEffects` in agent.json does not list `release`.")
            return ()
        if not _TAG.fullmatch(requested.tag):
            self._object(f"No release is created: {requested.tag[:80]!r} cannot be the name of a tag.")
            return ()
        name = filter_line(requested.name or requested.tag, self.plan.output_filter)
        body = filter_text(requested.body or "", self.plan.output_filter)
        return (CreateRelease(tag=requested.tag, name=name, body=body, draft=requested.draft),)

    def closes(self) -> bool:
        """True when the issue is to be closed, by this run or by a merge."""
        wants = self._closing
        if wants and not self._allows(AllowedEffect.CLOSE):
            self.warnings.append("The issue stays open: `allowedEffects` in agent.json does not list `close`.")
        return wants and self._allows(AllowedEffect.CLOSE)

    def no_changes(self) -> str:
        """That there is nothing to merge where closing is left to a merge, or nothing new in the pull request; empty
        when there is."""
        if self.commits and self.commits.count:
            return ""
        if self.facts.follow_up:
            return "" if self.requested.threads else UNCHANGED
        return NO_CHANGES if self._closing and self._github.close_by is CloseBy.MERGE else ""

    def by_merge(self, opens: bool) -> bool:
        """True when closing is left to the merge of the pull request."""
        if self._github.close_by is CloseBy.MERGE and not opens and not self.no_changes():
            self.warnings.append("The issue stays open: `closeBy` is `merge` and this run opens no pull request.")
        return self._github.close_by is CloseBy.MERGE or (self._github.close_by is CloseBy.AUTO and opens)

    def by_hand(self) -> str:
        """That the merge will not close the issue; empty where it does, or where the default branch is not known."""
        default, issue = self.facts.default_branch, self.facts.issue
        if issue is None or not default or self.base in ("", default):
            return ""
        return (
            f"Close #{issue.number} by hand after the merge: the pull request goes to `{self.base}`, and GitHub closes "
            f"issues only at a merge into the default branch, `{default}`."
        )

    def _object(self, objection: str) -> None:
        """Warn of something that another answer would avoid."""
        self.warnings.append(objection)
        self.objections.append(objection)

    def _allows(self, effect: AllowedEffect) -> bool:
        return effect in self._github.allowed_effects

    @property
    def _closing(self) -> bool:
        return self._action in (ClosureAction.CLOSE, ClosureAction.LABEL_AND_CLOSE) and self.facts.issue is not None

    @property
    def _action(self) -> ClosureAction | None:
        default = ClosureAction.CLOSE if self._polls_state else None
        return self.requested.closure_action or self._github.default_closure_action or default

    @property
    def _polls_state(self) -> bool:
        return self.agent.verdict.type is VerdictType.POLL_STATE

    @property
    def _github(self) -> GitHubSettings:
        return self.agent.github
