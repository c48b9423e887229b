"""Plans what a completed run writes to GitHub. Repository, issue and base branch never come from the model's answer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from stepflow.boundary.closing_request import read_closing_request
from stepflow.boundary.output_filter import LONGEST_TEXT, OutputFilter, filter_line, filter_text
from stepflow.domain.effect import (
    AddLabels,
    AllowedEffect,
    AnswerThreads,
    CloseIssue,
    CreateRelease,
    Effect,
    OpenPullRequest,
    PostComment,
    PushBranch,
    RemoveLabels,
    ThreadReply,
)
from stepflow.domain.figures import Spent
from stepflow.domain.secrets import Redactor, redact_value
from stepflow.domain.trigger_label import ANY_NAME, name_in
from stepflow.domain.words import CloseBy, ClosureAction, Outcome, StepKind, VerdictType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stepflow.boundary.closing_request import ClosingRequest, ThreadAnswer
    from stepflow.boundary.settings import BoundarySettings
    from stepflow.domain.decision import FlowResult
    from stepflow.domain.definition import AgentDefinition, GitHubSettings
    from stepflow.domain.run import FollowUp, Issue, RunFacts


_BRANCH = re.compile(r"(?![-/])(?!.*(?:\.\.|//|/\.|\.lock(?:/|\Z)|@\{))[A-Za-z0-9._/+@=-]{1,200}(?<![./])")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What will be written, in order, and what writing needs to know.

    `base` is empty when the default branch is meant. `expects` is the state in which the issue must be found after
    the last effect; None when any will do. `reads_back`: the state is read at all (verdict type `poll:state`).
    `objections` are those of the `warnings` that another answer would avoid.
    `cost` is what this run has cost, all its parts together. A plan with a `refusal` has no effects. `no_changes` says
    that the agent was to change something and did not; else it is empty. `follow_up` is None for a run that
    begins at the base.
    """

    run_id: str
    agent: str
    settings: BoundarySettings
    output_filter: OutputFilter
    issue: Issue | None = None
    base: str = ""
    effects: tuple[Effect, ...] = ()
    warnings: tuple[str, ...] = ()
    objections: tuple[str, ...] = ()
    refusal: str | None = None
    expects: str | None = None
    reads_back: bool = False
    no_changes: str = ""
    follow_up: FollowUp | None = None
    cost: Spent = field(default_factory=Spent)


def plan_effects(
    agent: AgentDefinition,
    facts: RunFacts,
    result: FlowResult,
    settings: BoundarySettings,
    *,
    summary: str,
    removed: str = "",
    verified: str = "",
    commits: CommitsInfo | None,
    redactor: Redactor | None = None,
    cost: Spent | None = None,
) -> Plan:
    """The effects of one completed run; none unless a closure step closed it.

    `summary` is the engine's own comment, used when the closing answer brings no `comment`. Below texts of the answer
    `removed` says what was taken out of the issue's text, and `verified` which checks passed and what the run cost.
    """
    allowed_hosts = settings.link_hosts(agent.github.allowed_link_hosts)
    plan = Plan(
        run_id=facts.run_id,
        agent=agent.name,
        settings=settings,
        output_filter=OutputFilter(allowed_hosts=allowed_hosts, redactor=redactor or Redactor()),
        issue=facts.issue,
        cost=cost or Spent(),
    )
    step = agent.steps.get(result.step_id)
    if result.outcome is not Outcome.COMPLETED or step is None or step.kind is not StepKind.CLOSURE:
        return plan
    if not agent.github.enabled:
        return plan
    # Masked as a whole: what is cut out of it later holds no part of a secret.
    redact = plan.output_filter.redactor
    answer = {key: redact_value(value, redact) for key, value in (result.answer or {}).items()}
    requested = read_closing_request(answer)
    planner = Planner(agent=agent, facts=facts, plan=plan, requested=requested, commits=commits, verified=verified)
    return planner.planned(summary, removed)


def branch_name(agent: AgentDefinition, facts: RunFacts) -> str:
    """`<prefix><agent>/issue-<n>`, or `run-<id>` without an issue."""
    return branch_of(agent, f"issue-{facts.issue.number}" if facts.issue else f"run-{facts.run_id}")


def unfinished_branch(agent: AgentDefinition, facts: RunFacts) -> str:
    """Where the work of a run that did not complete may be kept. No pull request shows it, since one is opened from
    `branch_name` alone: what a pull request shows was validated."""
    branch = branch_of(agent, f"run-{facts.run_id}")
    return branch if facts.issue or facts.follow_up else f"{branch}-unfinished"


def branch_of(agent: AgentDefinition, last: str) -> str:
    """A branch of the agent's runs; `last` says which run. A rehearsal's is named after its scenario, in any script."""
    name, last = (re.sub(r"[^A-Za-z0-9._-]+", "-", part) for part in (agent.name, last))
    return f"{agent.github.pull_request.branch_prefix}{name}/{last}"


def branch_problem(branch: str, base: str) -> str:
    """Why no pull request to the base can come from a branch of this name; empty where one can."""
    if _BRANCH.fullmatch(branch) and branch != base:
        return ""
    return (
        f"The branch for this run's commits would be called {branch!r}, which git does not allow or which is the base "
        "branch. Change `runner.integrations.github.pullRequest.branchPrefix`."
    )


NO_CHANGES = "No changes: the run made no commit, so there is no pull request, and the issue stays open."
UNCHANGED = "No changes: the run made no commit and answered no thread, so the pull request stays as it is."
NOT_ANSWERED = "the run does not say what became of it."
MOST_FILES_NAMED = 20
LONGEST_REMOVED = 8_000
LONGEST_VERIFIED = 8_000
LONGEST_REPLY = 4_000
_TAG = re.compile(r"[A-Za-z0-9](?!.*\.\.)[A-Za-z0-9._/+-]{0,99}(?<![./])")


@dataclass(frozen=True, kw_only=True)
class CommitsInfo:
    """The commits that the workspace holds beyond the base: how many, files that were left uncommitted, files that the
    validators made, and what is known about the validators that passed them (security.md cases 14 and 15)."""

    count: int
    uncommitted: tuple[str, ...] = ()
    created_by_checks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Planner:
    """Adds one run's effects to an empty plan. `warnings` and `objections` grow as effects are planned."""

    agent: AgentDefinition
    facts: RunFacts
    plan: Plan
    requested: ClosingRequest
    commits: CommitsInfo | None
    verified: str = ""
    warnings: list[str] = field(default_factory=list)
    objections: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for warning in self.requested.warnings:
            self._object(warning)

    def planned(self, summary: str, removed: str) -> Plan:
        """The plan with its effects, or with the reason why nothing may be written."""
        if self.facts.follow_up:
            return self.followed_up(self.facts.follow_up, summary, removed)
        branch = branch_name(self.agent, self.facts)
        opens = self.opens_pull_request()
        if opens and (refusal := branch_problem(branch, self.base)):
            return replace(self.plan, refusal=refusal)
        closes = self.closes()
        by_merge = closes and self.by_merge(opens)
        by_hand = self.by_hand() if by_merge and opens else ""
        effects: tuple[Effect, ...] = (
            *((PushBranch(branch=branch), self.pull_request(branch, by_merge, by_hand)) if opens else ()),
            *self.comment(summary, removed, by_hand),
            *self.labels(),
            *self.release(),
            *((CloseIssue(),) if closes and not by_merge else ()),
        )
        return replace(
            self.plan,
            base=self.base,
            effects=effects,
            warnings=self._redacted(self.warnings),
            objections=self._redacted(self.objections),
            expects=("open" if by_merge else "closed") if closes else None,
            reads_back=self.plan.issue is not None and self.agent.verdict.type is VerdictType.POLL_STATE,
            no_changes=self.no_changes(),
        )

    def followed_up(self, follow_up: FollowUp, summary: str, removed: str) -> Plan:
        """The plan of a run on a pull request of ours, which gets commits and replies and is else left as it is."""
        pushes = self.opens_pull_request()
        effects: tuple[Effect, ...] = (
            *((PushBranch(branch=follow_up.branch, fast_forward=True),) if pushes else ()),
            *self.replies(follow_up, pushes),
            *self.comment(summary, removed),
        )
        return replace(
            self.plan,
            base=follow_up.base,
            effects=effects,
            warnings=self._redacted(self.warnings),
            objections=self._redacted(self.objections),
            no_changes=self.no_changes(),
            follow_up=follow_up,
        )

    def replies(self, follow_up: FollowUp, pushes: bool) -> tuple[AnswerThreads, ...]:
        """One reply for each thread that the run was shown."""
        answers = {answer.thread: answer for answer in self.requested.threads}
        if unknown := [thread for thread in answers if thread not in follow_up.threads]:
            self._object(f"No reply is written in threads that the run was not shown: {', '.join(unknown)[:200]}.")
        if not (follow_up.threads and self._github.comment and self._allows(AllowedEffect.COMMENT)):
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
        """The branch that a pull request goes to; empty means the default branch."""
        return self._github.pull_request.base or self.facts.base_branch

    def opens_pull_request(self) -> bool:
        """True when there are commits and the agent may open a pull request."""
        if not self.commits or not self.commits.count:
            return False
        if self._github.pull_request.enabled and self._allows(AllowedEffect.PULL_REQUEST):
            return True
        self.warnings.append("The commits of this run are pushed nowhere: agent.json allows no pull request.")
        return False

    def pull_request(self, branch: str, by_merge: bool, by_hand: str = "") -> OpenPullRequest:
        """The pull request; the engine's last line says what it belongs to."""
        requested, issue = self.requested.pull_request, self.facts.issue
        given = [requested.draft, self._github.pull_request.draft]
        own_title = issue.title if issue and issue.title.strip() else f"{self.agent.display_name}: {self.facts.run_id}"
        title = filter_line(requested.title or self._github.pull_request.title or own_title, self.plan.output_filter)
        reference = "" if issue is None else f"{'Closes' if by_merge and not by_hand else 'For'} #{issue.number}. "
        by_hand = f" {by_hand}" if by_hand else ""
        footer = f"{reference}Opened by the stepflow agent `{self.agent.name}`, run `{self.facts.run_id}`.{by_hand}"
        text, below = self._text_above(requested.body or "", self._verified(), self._guard_warnings(), footer)
        return OpenPullRequest(
            branch=branch,
            base=self.base,
            title=title or branch,
            body=f"{text}\n\n---\n\n{below}" if text else below,
            draft=next(value for value in given if value is not None),
        )

    def comment(self, summary: str, removed: str, by_hand: str = "") -> tuple[PostComment, ...]:
        """The text of the one comment; writing adds links and the marker. What was `removed` from the issue's text is
        shown also where the model wrote the comment."""
        if not self.facts.issue:
            if self.requested.comment:
                self.warnings.append("The run has no issue: the answer's comment is not posted.")
            return ()
        if not (self._github.comment and self._allows(AllowedEffect.COMMENT)):
            return ()
        removed_lines = (
            filter_text(removed, self.plan.output_filter, limit=LONGEST_REMOVED) if self.requested.comment else ""
        )
        checked = f"---\n\n{self._verified()}" if self.requested.comment and self.verified else ""
        nothing = self.no_changes()
        said = "\n".join(f"> {line}" for line in (nothing, by_hand) if line)
        own = (said, checked, removed_lines, self._left_out(), self._guard_warnings())
        text, below = self._text_above(self.requested.comment or summary, *own)
        return (PostComment(body=f"{text}\n\n{below}" if text and below else text or below),)

    def _verified(self) -> str:
        return filter_text(self.verified, self.plan.output_filter, limit=LONGEST_VERIFIED)

    def _text_above(self, text: str, *own: str) -> tuple[str, str]:
        """The text, and below it the engine's `own` parts. GitHub takes no body without end: the text gives way, since
        each of those parts is short."""
        below = "\n\n".join(part for part in own if part)
        return filter_text(text, self.plan.output_filter, limit=LONGEST_TEXT - len(below)), below

    def _left_out(self) -> str:
        commits = self.commits or CommitsInfo(count=0)
        lines = [
            f"> {what}, so not part of this result: {_named(files)}."
            for what, files in (
                ("Changed but not committed", commits.uncommitted),
                ("Made by the checks", commits.created_by_checks),
            )
            if files
        ]
        return filter_text("\n".join(lines), self.plan.output_filter, limit=2_000)

    def _guard_warnings(self) -> str:
        """Whatever the model says about its work, people see what the checks stood on."""
        lines = (f"> ⚠️ {text.replace('`', '')}" for text in (self.commits.warnings if self.commits else ()))
        return filter_text("\n".join(lines), self.plan.output_filter, limit=4_000)

    def labels(self) -> tuple[Effect, ...]:
        """Label changes: those of a closure action with labels, and the label that started the run."""
        if not self.facts.issue or not self._allows(AllowedEffect.LABELS):
            return ()
        by_answer = self._action in (ClosureAction.LABEL_ONLY, ClosureAction.LABEL_AND_CLOSE)
        add = (*self._github.labels_add, *self.requested.labels_add) if by_answer else ()
        remove = (*self._github.labels_remove, *self.requested.labels_remove) if by_answer else ()
        if by_answer:
            self.objections.extend(self._label_objections())
        added, removed = choose_labels(add, remove, self._github, self.plan.settings, self.warnings)
        return (
            *((AddLabels(labels=added),) if added else ()),
            *((RemoveLabels(labels=removed),) if removed else ()),
        )

    def _label_objections(self) -> Iterator[str]:
        """About labels that the answer asks for; the one that started the run comes off in any case."""
        settings = self.plan.settings
        started = (settings.started_by_label or "").casefold()
        removed = (label for label in self.requested.labels_remove if label.casefold() != started)
        for label in _distinct((*self.requested.labels_add, *removed)):
            if reason := _objection(label, self._github, settings):
                yield f"Label `{label[:LONGEST_LABEL]}` cannot be changed: {reason}."

    def release(self) -> tuple[CreateRelease, ...]:
        """A release, where the agent lists that effect."""
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
        return (
            CreateRelease(
                tag=requested.tag,
                name=name,
                body=filter_text(requested.body or "", self.plan.output_filter),
                draft=requested.draft,
            ),
        )

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

    def _redacted(self, texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(map(self.plan.output_filter.redactor, texts))

    def _allows(self, effect: AllowedEffect) -> bool:
        return effect in self._github.allowed_effects

    @property
    def _closing(self) -> bool:
        return self._action in (ClosureAction.CLOSE, ClosureAction.LABEL_AND_CLOSE) and self.facts.issue is not None

    @property
    def _action(self) -> ClosureAction | None:
        default = ClosureAction.CLOSE if self.agent.verdict.type is VerdictType.POLL_STATE else None
        return self.requested.closure_action or self._github.closure_action or default

    @property
    def _github(self) -> GitHubSettings:
        return self.agent.github


def _named(files: Sequence[str]) -> str:
    named = ", ".join(f"`{name.replace('`', '')}`" for name in files[:MOST_FILES_NAMED])
    return named + (f" and {len(files) - MOST_FILES_NAMED} more" if len(files) > MOST_FILES_NAMED else "")


MOST_LABEL_CHANGES = 10
#: GitHub's own limit for a label's name.
LONGEST_LABEL = 50


def choose_labels(
    add: tuple[str, ...],
    remove: tuple[str, ...],
    github: GitHubSettings,
    settings: BoundarySettings,
    warnings: list[str],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names to put on and to take off that are allowed, without doubles; together ten at most. The label that
    started the run always comes off, and first."""
    started = (settings.started_by_label,) if settings.started_by_label else ()
    wanted_add = _allowed(add, "add", github, settings, warnings)
    wanted_remove = _allowed(remove, "remove", github, settings, warnings)
    keeps = {label.casefold() for label in wanted_add}
    removals = _distinct((*started, *(label for label in wanted_remove if label.casefold() not in keeps)))
    changes = [*((False, label) for label in removals[: len(started)]), *((True, label) for label in wanted_add)]
    changes += [(False, label) for label in removals[len(started) :]]
    for _, label in changes[MOST_LABEL_CHANGES:]:
        warnings.append(f"Label `{label}` stays as it is: a run changes at most {MOST_LABEL_CHANGES} labels.")
    done = changes[:MOST_LABEL_CHANGES]
    return (
        tuple(label for put_on, label in done if put_on),
        tuple(label for put_on, label in done if not put_on),
    )


def is_trigger_label(label: str, settings: BoundarySettings) -> bool:
    """True for a label whose putting on would start an agent."""
    if label.casefold() == (settings.started_by_label or "").casefold():
        return True
    # The bare name of an agent may be any word.
    patterns = (pattern for pattern in settings.trigger_labels if pattern != ANY_NAME)
    return any(name_in(label, pattern) is not None for pattern in patterns)


def _allowed(
    labels: tuple[str, ...], verb: str, github: GitHubSettings, settings: BoundarySettings, warnings: list[str]
) -> tuple[str, ...]:
    allowed = []
    for label in _distinct(labels):
        if reason := _objection(label, github, settings):
            warnings.append(f"Label `{label[:LONGEST_LABEL]}` is not touched ({verb}): {reason}.")
        else:
            allowed.append(label)
    return tuple(allowed)


def _objection(label: str, github: GitHubSettings, settings: BoundarySettings) -> str | None:
    if is_trigger_label(label, settings):
        return "it starts agents, and the boundary never uses such a label"
    if len(label) > LONGEST_LABEL:
        return f"a label has at most {LONGEST_LABEL} characters"
    globs = github.allowed_labels
    if globs is not None and not any(fnmatchcase(label.casefold(), glob.casefold()) for glob in globs):
        return "`allowedLabels` in agent.json does not list it"
    return None


def _distinct(labels: tuple[str, ...]) -> tuple[str, ...]:
    """Each label once: GitHub's labels do not differ by case alone."""
    first: dict[str, str] = {}
    for label in labels:
        first.setdefault(label.casefold(), label)
    return tuple(first.values())
