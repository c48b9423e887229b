"""GitHub's API, and what is read of it before a run.

A reader and a writer never share a token: the reader has `read-token` or none, the writer the workflow's own. No error
has a secret.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from stepflow.boundary.github_client import VENDOR_ERRORS, GitHubClient, query_of_link
from stepflow.boundary.github_failures import (
    BRANCH,
    ISSUE,
    ISSUE_LIST,
    NOT_FOUND,
    PULL_REQUEST,
    REPOSITORY,
    WORKFLOW_RUN,
    AnswerFailed,
    ReadSubject,
    RetryPolicy,
    read_failed,
    write_failed,
)
from stepflow.boundary.github_types import (
    REVIEW_THREADS,
    WHO_AM_I,
    Account,
    Answer,
    ChangedFile,
    Comment,
    CommitNow,
    Comparison,
    GitHubRepository,
    IssueNow,
    IssuesPage,
    Label,
    ListPage,
    PullRequest,
    Remark,
    RenderedText,
    Review,
    ReviewThread,
    Role,
    Rule,
    WorkflowJob,
    read_part,
)
from stepflow.boundary.own_texts import read_marker, spent_on_issue
from stepflow.domain.connection import DIRECT, Connection
from stepflow.domain.run import ImageProblem
from stepflow.domain.secrets import Redactor
from stepflow.domain.text import Spent
from stepflow.domain.words import Permission
from stepflow.errors import BoundaryError, InputError, StepflowError

R = TypeVar("R")
A = TypeVar("A", bound=Answer)
#: A repository's name, which becomes part of an address.
_NAME = re.compile(r"(?!\.\.?/)[\w.-]+/(?!\.\.?\Z)[\w.-]+", re.ASCII)


class GitHub:
    """One repository, with one token or none. Close it at the end."""

    _viewer: Account | None = None

    def __init__(
        self,
        *,
        api_url: str,
        repository: str,
        token: str | None,
        redactor: Redactor | None = None,
        retry_policy: RetryPolicy | None = None,
        connection: Connection = DIRECT,
    ) -> None:
        self._redactor = (redactor or Redactor()).knowing(*([token] if token else []))
        self._repository, self._connection = repository, connection
        self._host = urlsplit(api_url).hostname or ""
        self._client = GitHubClient(api_url=api_url, repository=repository, token=token, connection=connection)
        self.retry_policy = retry_policy or RetryPolicy()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def permission(self, login: str) -> str:
        """Return what this account may do, `none` for a stranger: the role where it is one of GitHub's own, else the
        permission that a custom role stands for."""
        path = f"/collaborators/{quote(login, safe='')}/permission"
        role = self._find("say what permission somebody has", Role, path)
        names = (role.role_name, role.permission) if role else ()
        return next((name for name in names if name in set(Permission)), Permission.NONE)

    def full_name(self) -> str:
        """Return the repository's present name, also when it was renamed."""
        return self._read_repository().full_name

    def locate(self, number: int | None) -> GitHubRepository:
        """Find the repository under its present name, and use that from now on. It is the one with this id, if that
        is known: its name at the start of the job may be somebody else's by now."""
        path = "" if number is None else self._client.url_of(number)
        found = self._get("find the repository", GitHubRepository, path, REPOSITORY)
        self._repository = found.full_name
        self._client.turn_to(found.full_name)
        return found

    def has_had(self, name: str) -> bool:
        """Return whether a name is the repository's, or was, and still leads to it."""
        if not _NAME.fullmatch(name):
            return False
        number = self._read_repository().id
        return self._read("find a repository", lambda: self._client.id_behind(name)) == number

    def default_branch(self) -> str:
        """Return the repository's default branch."""
        return self._read_repository().default_branch

    def scope_problem(self, *, private: bool | None) -> str:
        """Return why this token cannot write, by the scopes that GitHub's answers so far have named; empty where
        they named none, as for the tokens of jobs and Apps."""
        scopes = self._client.oauth_scopes
        enough = {"repo"} if private else {"repo", "public_repo"}
        if not scopes or scopes & enough:
            return ""
        return f"The token has the scopes {', '.join(sorted(scopes))}, which do not let it write to {self._repository}."

    def viewer(self) -> Account:
        """Whose token this is; asked once. `GET /user` answers 403 to the tokens of jobs and Apps."""
        self._viewer = self._viewer or self._read(
            "say whose the token is", lambda: Account.model_validate(self._client.graphql(WHO_AM_I))
        )
        return self._viewer

    def issue(self, number: int) -> IssueNow:
        """Return the issue, or the pull request of this number, now."""
        return self._get("read the issue", IssueNow, f"/issues/{number}")

    def labels(self) -> dict[str, str]:
        """Return the description of each label of the repository, empty where it has none."""
        return {label.name: label.description for label in self._list("list the labels", Label, "/labels")}

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Return all comments of an issue, oldest first."""
        return self._list("read the issue's comments", Comment, f"/issues/{number}/comments")

    def open_pull_requests(self, branch: str) -> tuple[PullRequest, ...]:
        """Return the open pull requests from a branch of this repository."""
        pulls = self._list_pull_requests(self._repository, branch)
        if not pulls and self._client.has_moved:
            # GitHub looks for the branch of this owner, which a transfer has changed.
            pulls = self._list_pull_requests(self.full_name(), branch)
        return pulls

    def pull_request(self, number: int) -> PullRequest:
        """Return the pull request now."""
        return self._get("read the pull request", PullRequest, f"/pulls/{number}", PULL_REQUEST)

    def pull_request_commits(self, number: int) -> tuple[CommitNow, ...]:
        """Return the commits of a pull request, oldest first; GitHub lists 250 at most."""
        doing = "list the commits of the pull request"
        return self._list(doing, CommitNow, f"/pulls/{number}/commits", PULL_REQUEST)

    def commit(self, oid: str) -> CommitNow:
        """Return a commit of the repository."""
        # Of its files, which are listed too, no more than one.
        return self._get("read a commit", CommitNow, f"/commits/{oid}", per_page="1")

    def review_threads(self, number: int) -> tuple[ReviewThread, ...]:
        """Return the threads of a pull request's reviews; of each the newest hundred comments."""

        def read() -> tuple[ReviewThread, ...]:
            threads: list[ReviewThread] = []
            after, more = None, True
            while more:
                data = self._ask_graph(REVIEW_THREADS, number=number, after=after)
                page = read_part(ListPage[ReviewThread], data, "repository", "pullRequest", "reviewThreads")
                threads += page.nodes
                after, more = page.after, page.more
            return tuple(threads)

        return self._read("read the review threads", read, PULL_REQUEST)

    def reviews(self, number: int) -> tuple[Review, ...]:
        """Return all reviews of a pull request, oldest first."""
        return self._list("list the reviews", Review, f"/pulls/{number}/reviews", PULL_REQUEST)

    def review_comments(self, number: int) -> tuple[Comment, ...]:
        """Return all comments on lines of a pull request, oldest first."""
        return self._list("list the comments on lines", Comment, f"/pulls/{number}/comments", PULL_REQUEST)

    def changed_files(self, number: int) -> tuple[ChangedFile, ...]:
        """Return the files that a pull request changes; GitHub lists 3000 at most."""
        doing = "list the files of the pull request"
        return self._list(doing, ChangedFile, f"/pulls/{number}/files", PULL_REQUEST)

    def _ask_graph(self, document: str, **variables: object) -> Any:  # noqa: ANN401 - JSON
        """Return the data of the answer to a GraphQL document about this repository."""
        owner, _, name = self._repository.partition("/")
        return self._client.graphql(document, owner=owner, name=name, **variables)

    def _read_repository(self) -> GitHubRepository:
        return self._get("read the repository", GitHubRepository, "")

    def _list_pull_requests(self, repository: str, branch: str) -> tuple[PullRequest, ...]:
        head = f"{repository.partition('/')[0]}:{branch}"
        doing = "list the open pull requests"
        pulls = self._list(doing, PullRequest, "/pulls", PULL_REQUEST, state="open", head=head)
        return tuple(pull for pull in pulls if pull.head == branch)

    def _ask(self, kind: type[A], path: str, parameters: dict[str, str]) -> A:
        return kind.model_validate(self._client.ask("GET", path, parameters=parameters)[1])

    def _get(self, doing: str, kind: type[A], path: str, subject: ReadSubject = ISSUE, **parameters: str) -> A:
        return self._read(doing, lambda: self._ask(kind, path, parameters), subject)

    def _find(self, doing: str, kind: type[A], path: str, subject: ReadSubject = ISSUE, **parameters: str) -> A | None:
        """Return the same, but None where there is none."""

        def find() -> A | None:
            try:
                return self._ask(kind, path, parameters)
            except AnswerFailed as exc:
                if exc.status != NOT_FOUND:
                    raise
                return None

        return self._read(doing, find, subject)

    def _list(
        self, doing: str, kind: type[A], path: str, subject: ReadSubject = ISSUE, **parameters: str
    ) -> tuple[A, ...]:
        """Return all pages of a list."""

        def read() -> tuple[A, ...]:
            return tuple(each for page in self._client.pages(path, parameters) for each in kind.many(page))

        return self._read(doing, read, subject)

    def _read(self, doing: str, ask: Callable[[], R], subject: ReadSubject = ISSUE) -> R:
        """Ask what only reads: what may pass is asked again."""
        return self.retry_policy.repeat(lambda: self._translate(doing, ask, subject))

    def _translate(self, doing: str, ask: Callable[[], R], subject: ReadSubject = ISSUE) -> R:
        """Raise our own error instead of the vendor's, whose exception holds the request with its token, so it is not
        kept as the cause. `doing` and `subject` are what the error says was asked."""
        try:
            return ask()
        except VENDOR_ERRORS as exc:
            raise self._failure(doing, subject, exc) from None

    def _failure(self, doing: str, _subject: ReadSubject, exc: Exception) -> StepflowError:
        return write_failed(doing, self._repository, exc, self._redactor, host=self._host, connection=self._connection)


class GitHubReader(GitHub):
    """Reads GitHub before a run: an issue or a pull request, what was said about it, what somebody may do.

    Every method raises `InputError` where token or number are wrong, and `BoundaryError` where GitHub fails.
    """

    def issues_page(self, label: str, page: Mapping[str, str] | None = None) -> IssuesPage:
        """Return up to a hundred open issues with this label, oldest first; `page` is the `next` of the page before."""
        query = {"state": "open", "labels": label, "sort": "created", "direction": "asc", "per_page": "100"}

        def read() -> IssuesPage:
            headers, data = self._client.ask("GET", "/issues", parameters={**(page or {}), **query})
            listed = IssueNow.many(data)
            return IssuesPage(
                # GitHub lists pull requests as issues too.
                issues=tuple(issue.as_subject() for issue in listed if not issue.pull_request),
                listed=len(listed),
                next=query_of_link(headers, "next") or None,
            )

        return self._read("list the issues", read, ISSUE_LIST)

    def spent(self, number: int, *, run: str) -> Spent:
        """Return what all other runs on the issue have cost, as far as this token's own account wrote their
        comments."""
        return spent_on_issue(self.comments(number), self.viewer(), issue=number, run=run)

    def demands_signatures(self, branch: str) -> bool:
        """Return whether a rule lets only signed commits onto a branch of this name, which need not exist. Empty
        means the default branch."""
        path = f"/rules/branches/{quote(branch or self.default_branch(), safe='')}"
        return any(rule.type == "required_signatures" for rule in self._list("list the rules of a branch", Rule, path))

    def remarks(self, number: int, *, most: int) -> tuple[Remark, ...]:
        """Return what people said on the issue, newest first, out of its `most` newest comments; no bot's and none
        of ours."""
        return tuple(
            remark
            for remark in self._read("read the issue's comments", lambda: self._read_newest(Remark, number, most))
            if remark.author and remark.kind != "Bot" and read_marker(remark.body) is None
        )

    def rendered(self, number: int, *, most: int) -> tuple[str, ...]:
        """Return the issue and its `most` newest comments as GitHub's page shows them, in HTML. Addresses of
        attached images are signed there: for some minutes they let anybody in."""

        def read() -> tuple[RenderedText, ...]:
            issue = RenderedText.model_validate(self._client.ask("GET", f"/issues/{number}", full=True)[1])
            return issue, *self._read_newest(RenderedText, number, most, full=True)

        return tuple(text.html for text in self._read("show the issue and its comments", read))

    def image(self, address: str, *, hosts: frozenset[str]) -> bytes | ImageProblem:
        """Return the image at the address of an attachment, read without the token, or why there is none. Raises
        nothing: a run can do without an image."""
        try:
            return self._read("give an image", lambda: self._client.stored_image(address, hosts=hosts))
        except (BoundaryError, InputError):
            return ImageProblem.FAILED

    def pull_request_files(self, number: int) -> tuple[str, ...]:
        """Return the paths of the files that a pull request changes, of renamed ones both."""
        paths = (path for file in self.changed_files(number) for path in (file.previous, file.path))
        return tuple(dict.fromkeys(filter(None, paths)))

    def failed_jobs(self, run_id: int) -> tuple[WorkflowJob, ...]:
        """Return the jobs of a workflow run that went wrong the last time it ran."""

        def read() -> tuple[WorkflowJob, ...]:
            pages = self._client.pages(f"/actions/runs/{run_id}/jobs", {"filter": "latest"})
            return tuple(job for page in pages for job in read_part(list[WorkflowJob], page, "jobs") if job.has_failed)

        return self._read("list the jobs of a workflow run", read, WORKFLOW_RUN)

    def job_log(self, job_id: int, *, last_bytes: int) -> str:
        """Return the end of what a job wrote, at most so many bytes; empty when there is no log (any more), or an
        endless one."""
        path = f"/actions/jobs/{job_id}/logs"
        log = self._read(
            "give the log of a job", lambda: self._client.stored_bytes(path, last_bytes=last_bytes), WORKFLOW_RUN
        )
        return log.decode("utf-8-sig", errors="replace")

    def contains(self, branch: str, commit: str) -> bool:
        """Return whether a branch has a commit; not when one of the two does not exist."""
        path = f"/compare/{quote(branch, safe='')}...{commit}"
        comparison = self._find("compare a branch with a commit", Comparison, path, BRANCH, per_page="1")
        return comparison is not None and comparison.status in ("behind", "identical")

    def merge_base(self, base: str, head: str) -> str:
        """Return the commit at which two commits part."""
        path = f"/compare/{base}...{head}"
        return self._get("compare two commits", Comparison, path, PULL_REQUEST, per_page="1").merge_base

    def _read_newest(self, kind: type[A], number: int, most: int, *, full: bool = False) -> tuple[A, ...]:
        """Return the newest comments of an issue, newest first."""
        pages = self._client.pages(f"/issues/{number}/comments", newest_first=True, full=full)
        return tuple(itertools.islice((comment for page in pages for comment in reversed(kind.many(page))), most))

    def _failure(self, doing: str, subject: ReadSubject, exc: Exception) -> StepflowError:
        """Return an `InputError` if `read-token` or another number can fix the failure."""
        return read_failed(
            doing, subject, self._repository, exc, self._redactor, host=self._host, connection=self._connection
        )
