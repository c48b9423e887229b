"""The parts of GitHub's JSON that we read; the rest of it is ignored."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from stepflow.domain.run import Issue

#: The author of what a deleted account wrote.
NOBODY = 0
#: An empty text is null at times.
_Text = Annotated[str, BeforeValidator(lambda text: text or "")]
_LabelName = Annotated[str, BeforeValidator(lambda label: label.get("name") if isinstance(label, dict) else label)]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, validate_by_name=True)

    @classmethod
    def many(cls, data: object) -> list[Self]:
        """A list of them."""
        return TypeAdapter(list[cls]).validate_python(data)  # type: ignore[valid-type]


class Account(_Answer):
    """Whom the token belongs to."""

    id: int = Field(validation_alias=AliasPath("viewer", "databaseId"))
    login: str = Field(validation_alias=AliasPath("viewer", "login"))


class Repository(_Answer):
    """A repository under its present name."""

    node_id: str
    full_name: str
    default_branch: str


class CommitNow(_Answer):
    """A commit as GitHub has it; `signature` is empty when nobody signed it."""

    oid: str = Field(validation_alias="sha")
    tree: str = Field(validation_alias=AliasPath("commit", "tree", "sha"))
    message: str = Field(validation_alias=AliasPath("commit", "message"))
    author_id: int = Field(NOBODY, validation_alias=AliasPath("author", "id"))
    committer_login: str = Field("", validation_alias=AliasPath("committer", "login"))
    signature: _Text = Field("", validation_alias=AliasPath("commit", "verification", "signature"))
    parents: tuple[Annotated[str, BeforeValidator(lambda parent: parent.get("sha"))], ...]


class NewCommit(_Answer):
    """What is said of a commit that was made."""

    oid: str = Field(validation_alias=AliasPath("createCommitOnBranch", "commit", "oid"))


class Rule(_Answer):
    """A rule that holds for a branch."""

    type: str


class Role(_Answer):
    """What an account may do: a role, which may be the repository's own, and the permission that it stands for."""

    role_name: str = ""
    permission: str


class Label(_Answer):
    """A label that the repository has."""

    name: str


class IssueNow(_Answer):
    """An issue, or a pull request, as it is at this moment; `state` is `open` or `closed`."""

    number: int
    title: str
    body: _Text = ""
    state: str
    author: str = Field("", validation_alias=AliasPath("user", "login"))
    url: str = Field(validation_alias="html_url")
    labels: tuple[_LabelName, ...]
    pull_request: dict[str, Any] | bool | None = None

    def as_subject(self) -> Issue:
        """The issue of a run."""
        return Issue(**self.model_dump(exclude={"state", "pull_request"}))


class Comment(_Answer):
    """A comment on an issue."""

    id: int
    author_id: int = Field(NOBODY, validation_alias=AliasPath("user", "id"))
    body: _Text = ""
    url: str = Field(validation_alias="html_url")


class Remark(_Answer):
    """A comment as something that somebody said; `author` is empty when the account is gone."""

    author: str = Field("", validation_alias=AliasPath("user", "login"))
    kind: str = Field("", validation_alias=AliasPath("user", "type"))
    at: datetime = Field(validation_alias="created_at")
    body: _Text = ""


class PullRequest(_Answer):
    """A pull request from the branch `head` to the branch `base`."""

    number: int
    author_id: int = Field(NOBODY, validation_alias=AliasPath("user", "id"))
    head: str = Field("", validation_alias=AliasPath("head", "ref"))
    base: str = Field(validation_alias=AliasPath("base", "ref"))
    url: str = Field(validation_alias="html_url")


class Release(_Answer):
    """A release, by its tag."""

    tag: str = Field(validation_alias="tag_name")
    url: str = Field(validation_alias="html_url")
