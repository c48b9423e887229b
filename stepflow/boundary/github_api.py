"""GitHub's API: what is read before a run, and the `Writer` that the effects go through.

The two never share a token: the reader has `read-token` or none, the writer the workflow's own. No error that leaves
holds a request, a header or a secret.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import parse_qsl, quote

import github

from stepflow.boundary.comment import read_marker, spent_on_issue
from stepflow.boundary.github_client import GONE, VENDOR_ERRORS, GitHubClient, link_to, split_url
from stepflow.boundary.github_failures import read_failed, write_failed
from stepflow.boundary.github_graphql import (
    CREATE_COMMIT,
    REPLY,
    RESOLVE,
    REVIEW_THREAD,
    REVIEW_THREADS,
    UPDATE_REFS,
    WHO_AM_I,
)
from stepflow.boundary.github_types import (
    Account,
    ChangedFile,
    Comment,
    CommitNow,
    Comparison,
    FoundThread,
    IssueNow,
    IssuesPage,
    Job,
    Jobs,
    Label,
    NewCommit,
    NewReply,
    PullRequest,
    Release,
    Remark,
    RenderedText,
    Repository,
    ReviewThread,
    ReviewThreads,
    Role,
    Rule,
)
from stepflow.boundary.retry_policy import NOT_FOUND, RetryPolicy
from stepflow.domain.connection import DIRECT, Connection
from stepflow.domain.run import ImageProblem
from stepflow.domain.secrets import Redactor
from stepflow.domain.words import Permission
from stepflow.errors import BoundaryError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stepflow.domain.figures import Spent
    from stepflow.errors import StepflowError

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A", bound="GitHub")
W = TypeVar("W", bound="GitHubWriter")


def _translated(method: Callable[Concatenate[A, P], R]) -> Callable[Concatenate[A, P], R]:
    """Raise the adapter's `failure` instead of anything of the vendor's, whose exception holds the request with its
    token, so it is not kept as the cause."""

    @functools.wraps(method)
    def call(self: A, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except VENDOR_ERRORS as exc:
            raise self.failure(method.__name__, exc) from None

    return call


def _reading(method: Callable[Concatenate[A, P], R]) -> Callable[Concatenate[A, P], R]:
    """The same for a method that only reads: what may pass is asked again."""
    ask = _translated(method)

    @functools.wraps(method)
    def call(self: A, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.retry_policy.repeat(lambda: ask(self, *args, **kwargs))

    return call


def _writing(method: Callable[Concatenate[W, P], R]) -> Callable[Concatenate[W, P], R]:
    """The same for a method that writes: GitHub asks for a second between two of them."""
    write = _translated(method)

    @functools.wraps(method)
    def call(self: W, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self.wait_for_turn()
        return write(self, *args, **kwargs)

    return call


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
        self._client = GitHubClient(api_url=api_url, repository=repository, token=token, connection=connection)
        self.retry_policy = retry_policy or RetryPolicy()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def failure(self, action: str, exc: Exception) -> StepflowError:
        """The vendor's exception in our words."""
        return write_failed(action, self._repository, exc, self._redactor, connection=self._connection)

    @_reading
    def permission(self, login: str) -> str:
        """What this account may do, `none` for a stranger: the role where it is one of GitHub's own, else the
        permission that a custom role stands for."""
        try:
            _, data = self._client.ask("GET", f"/collaborators/{quote(login, safe='')}/permission")
        except github.GithubException as exc:
            if exc.status != NOT_FOUND:
                raise
            return Permission.NONE
        role = Role.model_validate(data)
        known = (name for name in (role.role_name, role.permission) if name in set(Permission))
        return next(known, Permission.NONE)

    @_reading
    def full_name(self) -> str:
        """The repository's present name, also when it was renamed."""
        return self._read_repository().full_name

    def scope_problem(self, *, private: bool | None) -> str:
        """Why this token cannot write, by the scopes that GitHub's answers so far have named; empty where they named
        none, as for the tokens of jobs and Apps."""
        scopes: set[str] = set(filter(None, self._client.oauth_scopes or ()))
        enough = {"repo"} if private else {"repo", "public_repo"}
        if not scopes or scopes & enough:
            return ""
        return f"The token has the scopes {', '.join(sorted(scopes))}, which do not let it write to {self._repository}."

    @_reading
    def viewer(self) -> Account:
        """Whose token this is; asked once."""
        self._viewer = self._viewer or self._read_viewer()
        return self._viewer

    @_reading
    def open_pull_requests(self, branch: str) -> tuple[PullRequest, ...]:
        """The open pull requests from a branch of this repository."""
        pulls = self._read_pulls(self._repository, branch)
        if pulls or not self._client.has_moved:
            return pulls
        # GitHub looks for the branch of this owner, which a transfer has changed.
        return self._read_pulls(self._read_repository().full_name, branch)

    @_reading
    def pull_request(self, number: int) -> PullRequest:
        """The pull request now."""
        return PullRequest.model_validate(self._client.ask("GET", f"/pulls/{number}")[1])

    def _read_issue(self, number: int) -> IssueNow:
        return IssueNow.model_validate(self._client.ask("GET", f"/issues/{number}")[1])

    def _read_comments(self, number: int) -> tuple[Comment, ...]:
        pages = self._client.pages(f"/issues/{number}/comments")
        return tuple(comment for page in pages for comment in Comment.many(page))

    def _read_viewer(self) -> Account:
        """`GET /user` answers 403 to the tokens of jobs and Apps."""
        return Account.model_validate(self._client.graphql(WHO_AM_I))

    def _read_repository(self) -> Repository:
        return Repository.model_validate(self._client.ask("GET", "")[1])

    def _read_pulls(self, repository: str, branch: str) -> tuple[PullRequest, ...]:
        owner = repository.partition("/")[0]
        pages = self._client.pages("/pulls", state="open", head=f"{owner}:{branch}")
        return tuple(pull for page in pages for pull in PullRequest.many(page) if pull.head == branch)

    @_reading
    def review_threads(self, number: int) -> tuple[ReviewThread, ...]:
        """The threads of a pull request's reviews; of each the newest hundred comments."""
        owner, _, name = self._repository.partition("/")
        threads: list[ReviewThread] = []
        after, more = None, True
        while more:
            data = self._client.graphql(REVIEW_THREADS, owner=owner, name=name, number=number, after=after)
            page = ReviewThreads.model_validate(data)
            threads += page.threads
            after, more = page.after, page.more
        return tuple(threads)


class GitHubReader(GitHub):
    """Reads GitHub before a run: an issue or a pull request, what was said about it, what somebody may do.

    Every method raises `InputError` where token or number are wrong, and `BoundaryError` where GitHub fails.
    """

    @_reading
    def issue(self, number: int) -> IssueNow:
        """The issue, or the pull request of this number, now."""
        return self._read_issue(number)

    @_reading
    def issues_page(self, label: str, page: Mapping[str, str] | None = None) -> IssuesPage:
        """Up to a hundred open issues with this label, oldest first; `page` is the `next` of the page before."""
        query = {"state": "open", "labels": label, "sort": "created", "direction": "asc", "per_page": "100"}
        headers, data = self._client.ask("GET", "/issues", parameters={**(page or {}), **query})
        listed, following = IssueNow.many(data), link_to(headers, "next")
        return IssuesPage(
            # GitHub lists pull requests as issues too.
            issues=tuple(issue.as_subject() for issue in listed if not issue.pull_request),
            listed=len(listed),
            # A number or a cursor, whichever GitHub uses.
            next=dict(parse_qsl(split_url(following).query)) if following else None,
        )

    @_reading
    def spent(self, number: int, *, run: str) -> Spent:
        """What all other runs on the issue have cost, as far as this token's own account wrote their comments."""
        return spent_on_issue(self._read_comments(number), self._read_viewer(), issue=number, run=run)

    @_reading
    def labels(self) -> tuple[str, ...]:
        """The names of all labels that the repository has."""
        return tuple(label.name for page in self._client.pages("/labels") for label in Label.many(page))

    @_reading
    def demands_signatures(self, branch: str) -> bool:
        """Whether a rule lets only signed commits onto a branch of this name, which need not exist. Empty means the
        default branch."""
        branch = branch or self._read_repository().default_branch
        pages = self._client.pages(f"/rules/branches/{quote(branch, safe='')}")
        return any(rule.type == "required_signatures" for page in pages for rule in Rule.many(page))

    @_reading
    def remarks(self, number: int, *, most: int) -> tuple[Remark, ...]:
        """What people said on the issue, newest first, out of its `most` newest comments; no bot's and none of ours."""
        pages = self._client.pages(f"/issues/{number}/comments", newest_first=True)
        remarks = (remark for page in pages for remark in reversed(Remark.many(page)))
        return tuple(
            remark
            for remark in itertools.islice(remarks, most)
            if remark.author and remark.kind != "Bot" and read_marker(remark.body) is None
        )

    @_reading
    def rendered(self, number: int, *, most: int) -> tuple[str, ...]:
        """The issue and its `most` newest comments as GitHub's page shows them, in HTML. Addresses of attached images
        are signed there: for some minutes they let anybody in."""
        issue = self._client.ask("GET", f"/issues/{number}", full=True)[1]
        pages = self._client.pages(f"/issues/{number}/comments", newest_first=True, full=True)
        comments = itertools.islice((comment for page in pages for comment in reversed(page)), most)
        return tuple(text.html for text in RenderedText.many([issue, *comments]))

    def image(self, address: str, *, hosts: frozenset[str]) -> bytes | ImageProblem:
        """The image at the address of an attachment, read without the token, or why there is none. Raises nothing: a
        run can do without an image."""
        try:
            return self._read_image(address, hosts)
        except (BoundaryError, InputError):
            return ImageProblem.FAILED

    @_reading
    def _read_image(self, address: str, hosts: frozenset[str]) -> bytes | ImageProblem:
        return self._client.stored_image(address, hosts=hosts)

    @_reading
    def pull_request_commits(self, number: int) -> tuple[CommitNow, ...]:
        """The commits of a pull request, oldest first; GitHub lists 250 at most."""
        pages = self._client.pages(f"/pulls/{number}/commits")
        return tuple(commit for page in pages for commit in CommitNow.many(page))

    @_reading
    def pull_request_files(self, number: int) -> tuple[str, ...]:
        """The paths of the files that a pull request changes, of renamed ones both; GitHub lists 3000 files at most."""
        files = [file for page in self._client.pages(f"/pulls/{number}/files") for file in ChangedFile.many(page)]
        return tuple(dict.fromkeys(path for file in files for path in (file.previous, file.path) if path))

    @_reading
    def failed_jobs(self, run_id: int) -> tuple[Job, ...]:
        """The jobs of a workflow run that went wrong the last time it ran."""
        pages = self._client.pages(f"/actions/runs/{run_id}/jobs", filter="latest")
        return tuple(job for page in pages for job in Jobs.model_validate(page).jobs if job.has_failed)

    @_reading
    def job_log(self, job_id: int, *, last_bytes: int) -> str:
        """The end of what a job wrote, at most so many bytes; empty when there is no log (any more), or an endless
        one."""
        try:
            return self._client.stored_text(f"/actions/jobs/{job_id}/logs", last_bytes=last_bytes)
        except github.GithubException as exc:
            if exc.status not in (NOT_FOUND, GONE):
                raise
            return ""

    @_reading
    def contains(self, branch: str, commit: str) -> bool:
        """Whether a branch has a commit; not when one of the two does not exist."""
        try:
            path = f"/compare/{quote(branch, safe='')}...{commit}"
            _, data = self._client.ask("GET", path, parameters={"per_page": "1"})
        except github.GithubException as exc:
            if exc.status != NOT_FOUND:
                raise
            return False
        return Comparison.model_validate(data).status in ("behind", "identical")

    def failure(self, action: str, exc: Exception) -> StepflowError:
        """The same, but what `read-token` or another number can mend is an `InputError`."""
        return read_failed(action, self._repository, exc, self._redactor, connection=self._connection)


class GitHubWriter(GitHub):
    """`Writer` on GitHub: one request per write, retries for reads. Between two writes so many seconds pass."""

    seconds_between_writes: float = 0.0
    _last_write = 0.0

    def wait_for_turn(self) -> None:
        """Wait until the next write may be sent."""
        clock = self.retry_policy.clock
        if clock is None or not self.seconds_between_writes:
            return
        if (wait := self._last_write + self.seconds_between_writes - clock.now()) > 0:
            clock.sleep(wait)
        self._last_write = clock.now()

    @_reading
    def default_branch(self) -> str:
        """The repository's default branch."""
        return self._read_repository().default_branch

    @_reading
    def issue(self, number: int) -> IssueNow:
        """The issue now."""
        return self._read_issue(number)

    @_reading
    def comments(self, number: int) -> tuple[Comment, ...]:
        """All comments of an issue, oldest first."""
        return self._read_comments(number)

    @_writing
    def create_comment(self, number: int, body: str) -> Comment:
        """A new comment."""
        return Comment.model_validate(self._send("POST", f"/issues/{number}/comments", body=body))

    @_writing
    def update_comment(self, comment_id: int, body: str) -> Comment:
        """Replace a comment's text."""
        return Comment.model_validate(self._send("PATCH", f"/issues/comments/{comment_id}", body=body))

    @_writing
    def add_labels(self, number: int, labels: tuple[str, ...]) -> None:
        """Put labels on an issue."""
        self._send("POST", f"/issues/{number}/labels", labels=list(labels))

    @_writing
    def remove_label(self, number: int, label: str) -> None:
        """Take one label off an issue."""
        self._client.ask("DELETE", f"/issues/{number}/labels/{quote(label, safe='')}")

    @_writing
    def close_issue(self, number: int) -> None:
        """Close an issue as completed."""
        self._send("PATCH", f"/issues/{number}", state="closed", state_reason="completed")

    @_writing
    def create_pull_request(self, *, branch: str, base: str, title: str, body: str, draft: bool) -> PullRequest:
        """A new pull request."""
        answer = self._send("POST", "/pulls", base=base, head=branch, title=title, body=body, draft=draft)
        return PullRequest.model_validate(answer)

    @_writing
    def update_pull_request(self, number: int, *, title: str, body: str) -> None:
        """Replace title and body."""
        self._send("PATCH", f"/pulls/{number}", title=title, body=body)

    @_reading
    def review_thread(self, thread_id: str) -> ReviewThread:
        """A thread of a pull request's review now."""
        return FoundThread.model_validate(self._client.graphql(REVIEW_THREAD, id=thread_id)).thread

    @_writing
    def reply_to_thread(self, thread_id: str, body: str) -> str:
        """A new comment at the end of a thread; its address."""
        reply = {"pullRequestReviewThreadId": thread_id, "body": body}
        return NewReply.model_validate(self._client.graphql(REPLY, input=reply)).url

    @_writing
    def resolve_thread(self, thread_id: str) -> None:
        """Mark a thread as resolved; it may be already."""
        self._client.graphql(RESOLVE, input={"threadId": thread_id})

    @_reading
    def releases(self) -> tuple[Release, ...]:
        """All releases, drafts too, newest first."""
        return tuple(release for page in self._client.pages("/releases") for release in Release.many(page))

    @_writing
    def create_release(self, *, tag: str, target: str, name: str, body: str, draft: bool) -> Release:
        """A new release; its tag is made at `target` if it does not exist."""
        answer = self._send(
            "POST",
            "/releases",
            tag_name=tag,
            name=name,
            body=body,
            draft=draft,
            target_commitish=target,
            prerelease=False,
            generate_release_notes=False,
            make_latest="true",
        )
        return Release.model_validate(answer)

    @_reading
    def commit(self, oid: str) -> CommitNow:
        """A commit of the repository."""
        # Of its files, which are listed too, no more than one.
        return CommitNow.model_validate(self._client.ask("GET", f"/commits/{oid}", parameters={"per_page": "1"})[1])

    @_writing
    def update_refs(self, *updates: tuple[str, str, str]) -> None:
        """Move refs, all or none: the full name of each, the commit that it must have now, and the new one. Empty
        stands for no ref."""
        nothing = "0" * max(len(oid) for _, *oids in updates for oid in oids)
        changes = [
            {"name": name, "beforeOid": before or nothing, "afterOid": after or nothing, "force": True}
            for name, before, after in updates
        ]
        repository = self._read_repository()
        self._client.graphql(UPDATE_REFS, input={"repositoryId": repository.node_id, "refUpdates": changes})

    @_writing
    def create_commit(
        self,
        branch: str,
        *,
        head: str,
        message: Mapping[str, str],
        additions: Mapping[str, str],
        deletions: Sequence[str],
    ) -> str:
        """A new commit on a branch that stands at `head`, signed by GitHub; its oid. `message` has `headline` and
        `body`; `additions` are the contents in base64 by path."""
        commit = {
            "branch": {"repositoryNameWithOwner": self._read_repository().full_name, "branchName": branch},
            "expectedHeadOid": head,
            "message": message,
            "fileChanges": {
                "additions": [{"path": path, "contents": contents} for path, contents in additions.items()],
                "deletions": [{"path": path} for path in deletions],
            },
        }
        return NewCommit.model_validate(self._client.graphql(CREATE_COMMIT, input=commit)).oid

    def _send(self, verb: str, path: str, **body: object) -> Any:  # noqa: ANN401 - JSON
        return self._client.ask(verb, path, body=body)[1]
