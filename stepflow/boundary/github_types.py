"""The parts of GitHub's answers that stepflow reads: JSON, the GraphQL documents that request some of it, and the
addresses of the images that its pages show."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from stepflow.domain.run import Issue

T = TypeVar("T")


def _inner(name: str) -> BeforeValidator:
    """Take the value under this name if the input is an object."""
    return BeforeValidator(lambda value: value.get(name) if isinstance(value, dict) else value)


#: The author id for texts of a deleted account.
NOBODY = 0
#: The account that GitHub itself commits with.
_WEB_FLOW = "web-flow"
_FAILED = frozenset({"failure", "timed_out"})
#: GitHub sometimes sends null for an empty string.
_Text = Annotated[str, BeforeValidator(lambda text: text or "")]
#: The number of an account that has none is null at times.
_AccountId = Annotated[int, BeforeValidator(lambda number: number or NOBODY)]
#: GitHub sends null for a node that the token may not read, and for an empty list.
WITHOUT_NULL = BeforeValidator(
    lambda nodes: [node for node in nodes if node is not None] if isinstance(nodes, list) else nodes or ()
)
_LabelName = Annotated[str, _inner("name")]
_Oid = Annotated[str, _inner("sha")]


class Answer(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(frozen=True, validate_by_name=True)

    @classmethod
    def many(cls, data: object) -> list[Self]:
        """Read a list of them."""
        return TypeAdapter(list[cls]).validate_python(data)  # type: ignore[valid-type]


N = TypeVar("N", bound=Answer)


class ListPage(Answer, Generic[N]):
    """A page of a GraphQL list; `after` requests the next page, if there is one."""

    nodes: Annotated[tuple[N, ...], WITHOUT_NULL]
    more: bool = Field(False, validation_alias=AliasPath("pageInfo", "hasNextPage"))
    after: _Text = Field("", validation_alias=AliasPath("pageInfo", "endCursor"))


def read_part(kind: type[T], data: object, *path: str) -> T:
    """Return the part of an answer at this path."""
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return TypeAdapter(kind).validate_python(data)


class Account(Answer):
    """The account that the token belongs to."""

    id: int = Field(validation_alias=AliasPath("viewer", "databaseId"))
    login: str = Field(validation_alias=AliasPath("viewer", "login"))


class GitHubRepository(Answer):
    """A repository under its present name."""

    id: int
    node_id: str
    full_name: str = Field(pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$")
    default_branch: str
    #: Nobody can write to it then.
    archived: bool = False


class CommitNow(Answer):
    """A commit as GitHub has it; `signature` is empty when nobody signed it."""

    oid: str = Field(validation_alias="sha")
    tree: str = Field(validation_alias=AliasPath("commit", "tree", "sha"))
    message: str = Field(validation_alias=AliasPath("commit", "message"))
    author_id: int = Field(NOBODY, validation_alias=AliasPath("author", "id"))
    committer_login: str = Field("", validation_alias=AliasPath("committer", "login"))
    signature: _Text = Field("", validation_alias=AliasPath("commit", "verification", "signature"))
    parents: tuple[_Oid, ...]

    def is_by(self, account: Account) -> bool:
        """Return whether the account made the commit and nobody has changed it since: changing it elsewhere sets the
        committer, changing it on GitHub sets the author. GitHub is the committer of commits that its API writes."""
        return self.author_id == account.id and self.committer_login in (account.login, _WEB_FLOW)


class Rule(Answer):
    """A rule that holds for a branch."""

    type: str


class Role(Answer):
    """What an account may do: a role, which may be the repository's own, and the permission that it stands for."""

    role_name: str = ""
    permission: str


class Label(Answer):
    """A label that the repository has."""

    name: str
    description: _Text = ""


class IssueNow(Answer):
    """An issue, or a pull request, as it is at this moment; `state` is `open` or `closed`."""

    number: int
    title: str
    body: _Text = ""
    state: str
    author: str = Field("", validation_alias=AliasPath("user", "login"))
    url: str = Field(validation_alias="html_url")
    labels: tuple[_LabelName, ...]
    locked: bool = False
    pull_request: dict[str, Any] | bool | None = None

    def as_subject(self) -> Issue:
        """Return the issue of a run."""
        return Issue(**self.model_dump(exclude={"state", "locked", "pull_request"}))


@dataclass(frozen=True, kw_only=True)
class IssuesPage:
    """One page of a list. `listed` counts pull requests too; `next` asks for the page after it, None at the end."""

    issues: tuple[Issue, ...]
    listed: int
    next: Mapping[str, str] | None


class Comment(Answer):
    """A comment on an issue."""

    id: int
    author_id: int = Field(NOBODY, validation_alias=AliasPath("user", "id"))
    body: _Text = ""
    url: str = Field(validation_alias="html_url")


class Review(Comment):
    """A review of a pull request: its summary, and its `state`. `commit` is the commit that it is about."""

    state: str
    commit: _Text = Field("", validation_alias="commit_id")

    @property
    def is_binding(self) -> bool:
        """Whether it counts for or against a merge."""
        return self.state in ("APPROVED", "CHANGES_REQUESTED")


class RenderedText(Answer):
    """An issue or a comment as GitHub's page shows it, in HTML, where that was asked for."""

    html: _Text = Field("", validation_alias="body_html")


class Remark(Answer):
    """A comment as something that somebody said; `author` is empty when the account is gone."""

    author: str = Field("", validation_alias=AliasPath("user", "login"))
    kind: str = Field("", validation_alias=AliasPath("user", "type"))
    at: datetime = Field(validation_alias="created_at")
    body: _Text = ""


class PullRequest(Answer):
    """A pull request from the branch `head` to the branch `base`; `state` is `open` or `closed`, and `merged_at` empty
    unless it was merged. `head_commit` is the newest commit, and `head_repository` the full name of where it is, empty
    when that was deleted; `base_repository` is this one, by its present name. `merge` is the commit that GitHub has
    made of both while it is open and `mergeable`, which is None until GitHub has tried."""

    number: int
    state: str
    merged_at: _Text = ""
    draft: bool = False
    title: str
    body: _Text = ""
    author_id: int = Field(NOBODY, validation_alias=AliasPath("user", "id"))
    author: str = Field("", validation_alias=AliasPath("user", "login"))
    head: str = Field("", validation_alias=AliasPath("head", "ref"))
    head_commit: str = Field("", validation_alias=AliasPath("head", "sha"))
    head_repository: str = Field("", validation_alias=AliasPath("head", "repo", "full_name"))
    base: str = Field(validation_alias=AliasPath("base", "ref"))
    base_repository: str = Field("", validation_alias=AliasPath("base", "repo", "full_name"))
    mergeable: bool | None = None
    merge: _Text = Field("", validation_alias="merge_commit_sha")
    url: str = Field(validation_alias="html_url")


class ChangedFile(Answer):
    """A file that a pull request changes; `previous` is its path before it was renamed, empty when it was not."""

    path: str = Field(validation_alias="filename")
    previous: str = Field("", validation_alias="previous_filename")
    #: Its diff as GitHub shows it, empty where that is too long or the file is binary.
    patch: str = ""

    def shows(self, first: int, last: int, *, is_new: bool) -> bool:
        """Return whether one part of the diff has all these lines, of the new version or of the one before."""
        parts = (map(int, (group or 1 for group in each.groups())) for each in _HUNK.finditer(self.patch))
        ranges = ((new, news) if is_new else (old, olds) for old, olds, new, news in parts)
        return any(begin <= first <= last < begin + size for begin, size in ranges)


class ThreadComment(Answer):
    """A comment on a line, out of GraphQL. `author` is the login as REST writes it, empty when the account is gone."""

    login: str = Field("", validation_alias=AliasPath("author", "login"))
    kind: str = Field("", validation_alias=AliasPath("author", "__typename"))
    author_id: _AccountId = Field(NOBODY, validation_alias=AliasPath("author", "databaseId"))
    body: str
    url: str

    @property
    def is_bot(self) -> bool:
        """Whether an App wrote it."""
        return self.kind == "Bot"

    @property
    def author(self) -> str:
        """GraphQL leaves out what tells a bot's login from the login of a person with the same name."""
        return f"{self.login}[bot]" if self.is_bot else self.login


class ReviewThread(Answer):
    """A conversation about a line of a pull request's changes; `hunk` is the part of the diff that it began at. Of the
    `total` of its comments the newest are here."""

    id: str
    is_resolved: bool = Field(validation_alias="isResolved")
    path: str
    line_now: int | None = Field(None, validation_alias="line")
    line_then: int | None = Field(None, validation_alias="originalLine")
    hunk: str = Field("", validation_alias=AliasPath("opening", "nodes", 0, "diffHunk"))
    total: int = Field(validation_alias=AliasPath("comments", "totalCount"))
    comments: tuple[ThreadComment, ...] = Field(validation_alias=AliasPath("comments", "nodes"))

    @property
    def line(self) -> int | None:
        """The line's number; the one that it had when the thread began where newer commits changed the line. None for
        a thread about the whole file."""
        return self.line_then if self.line_now is None else self.line_now

    @property
    def is_outdated(self) -> bool:
        """Whether newer commits changed the line."""
        return self.line_now is None and self.line_then is not None


class WorkflowStep(Answer):
    """A step of a job; `conclusion` is empty until it ends."""

    name: str
    conclusion: _Text = ""


class WorkflowJob(Answer):
    """A job of a workflow run; `conclusion` is empty until it ends."""

    id: int
    name: str
    conclusion: _Text = ""
    steps: tuple[WorkflowStep, ...] = ()
    url: _Text = Field("", validation_alias="html_url")

    @property
    def has_failed(self) -> bool:
        """Whether it failed, rather than being skipped or canceled."""
        return self.conclusion in _FAILED

    @property
    def failed_steps(self) -> tuple[str, ...]:
        """The names of the failed steps."""
        return tuple(step.name for step in self.steps if step.conclusion in _FAILED)


class Comparison(Answer):
    """How a commit relates to a branch: `ahead`, `behind`, `identical` or `diverged`."""

    status: str
    merge_base: str = Field(validation_alias=AliasPath("merge_base_commit", "sha"))


class Release(Answer):
    """A release, by its tag."""

    tag: str = Field(validation_alias="tag_name")
    url: str = Field(validation_alias="html_url")


WHO_AM_I = "query { viewer { databaseId login } }"
UPDATE_REFS = "mutation ($input: UpdateRefsInput!) { updateRefs(input: $input) { clientMutationId } }"
CREATE_COMMIT = (
    "mutation ($input: CreateCommitOnBranchInput!) { createCommitOnBranch(input: $input) { commit { oid } } }"
)
THREAD = """
fragment Thread on PullRequestReviewThread {
  id isResolved path line originalLine
  opening: comments(first: 1) { nodes { diffHunk } }
  comments(last: 100) {
    totalCount
    nodes { body url author { __typename login ... on User { databaseId } ... on Bot { databaseId } } }
  }
}
"""
REVIEW_THREADS = f"""
query ($owner: String!, $name: String!, $number: Int!, $after: String) {{
  repository(owner: $owner, name: $name) {{
    pullRequest(number: $number) {{
      reviewThreads(first: 50, after: $after) {{ pageInfo {{ hasNextPage endCursor }} nodes {{ ...Thread }} }}
    }}
  }}
}}
{THREAD}"""
REVIEW_THREAD = f"query ($id: ID!) {{ node(id: $id) {{ id ...Thread }} }} {THREAD}"
REPLY = (
    "mutation ($input: AddPullRequestReviewThreadReplyInput!) "
    "{ addPullRequestReviewThreadReply(input: $input) { comment { url } } }"
)
RESOLVE = "mutation ($input: ResolveReviewThreadInput!) { resolveReviewThread(input: $input) { clientMutationId } }"
MERGED_PULLS = """
query ($owner: String!, $name: String!, $after: String) {
  repository(owner: $owner, name: $name) {
    pullRequests(states: [MERGED], first: 25, after: $after, orderBy: { field: CREATED_AT, direction: DESC }) {
      pageInfo { hasNextPage endCursor }
      nodes {
        number url createdAt
        mergeCommit { oid }
        commits(last: 1) { totalCount nodes { commit { messageHeadline } } }
        closingIssuesReferences(first: 2) {
          nodes {
            number title body lastEditedAt
            repository { nameWithOwner }
            timelineItems(first: 100, itemTypes: [RENAMED_TITLE_EVENT]) {
              nodes { ... on RenamedTitleEvent { createdAt previousTitle } }
            }
          }
        }
      }
    }
  }
}"""
#: Every document of GraphQL that is sent.
DOCUMENTS = (WHO_AM_I, UPDATE_REFS, CREATE_COMMIT, REVIEW_THREADS, REVIEW_THREAD, REPLY, RESOLVE, MERGED_PULLS)


_NumberInUrl = Annotated[int, BeforeValidator(lambda url: int(str(url).rpartition("/")[2]))]


class Dated(Answer):
    """Something that somebody did at a time; `author` is empty if the account is gone."""

    id: int
    author: _Text = Field("", validation_alias=AliasPath("user", "login"))
    author_type: _Text = Field("", validation_alias=AliasPath("user", "type"))
    association: str = Field("NONE", validation_alias="author_association")
    created_at: datetime

    @property
    def is_by_bot(self) -> bool:
        """Whether an App did it."""
        return self.author_type == "Bot"


class OpenedIssue(Dated):
    """An issue, by when it was opened."""

    number: int
    pull_request: dict[str, object] | None = None


class IssueComment(Dated):
    """A comment on any issue or pull request of the repository."""

    issue: _NumberInUrl = Field(validation_alias="issue_url")
    author_id: int = Field(NOBODY, validation_alias=AliasPath("user", "id"))
    body: _Text = ""
    url: str = Field(validation_alias="html_url")
    updated_at: datetime | None = None

    @property
    def was_edited(self) -> bool:
        """Whether somebody has changed it since it was written."""
        return self.updated_at not in (None, self.created_at)


class WorkflowRun(Dated):
    """A run of a workflow; its author is who caused the event."""

    author: _Text = Field("", validation_alias=AliasPath("actor", "login"))
    author_type: _Text = Field("", validation_alias=AliasPath("actor", "type"))
    event: str
    conclusion: _Text = ""

    @property
    def was_skipped(self) -> bool:
        """Whether the `if` of each of its jobs kept it from starting."""
        return self.conclusion == "skipped"


class IssueEvent(Dated):
    """An event of an issue, such as `labeled`; its author is who caused it."""

    author: _Text = Field("", validation_alias=AliasPath("actor", "login"))
    author_type: _Text = Field("", validation_alias=AliasPath("actor", "type"))
    event: str
    label: _Text = Field("", validation_alias=AliasPath("label", "name"))
    assignee: _Text = Field("", validation_alias=AliasPath("assignee", "login"))
    issue: int = Field(0, validation_alias=AliasPath("issue", "number"))
    opened_by: _Text = Field("", validation_alias=AliasPath("issue", "user", "login"))
    association: str = Field("NONE", validation_alias=AliasPath("issue", "author_association"))


class SimilarIssue(Answer):
    """An issue that a search found."""

    number: int
    title: str
    state: str
    body: _Text = ""
    repository: str = Field(validation_alias="repository_url")


_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
