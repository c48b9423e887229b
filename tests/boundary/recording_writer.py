"""A GitHub repository in memory, as a `Writer`: it keeps what was written and fails on request."""

from __future__ import annotations

from dataclasses import replace

from stepflow.boundary.github_types import (
    Account,
    Comment,
    IssueNow,
    PullRequest,
    Pushed,
    Refused,
    Release,
    WriteFailed,
)

BOT = Account(id=41898282, login="github-actions[bot]")


class RecordingWriter:
    """One issue, number 7. `failures` maps a method's name to the errors that its next calls raise; `calls` holds the
    names of all writing methods that got through. `heads` names the branch of a pull request that was made here; any
    other one is from whatever branch is asked for."""

    def __init__(self, **issue: object) -> None:
        given: dict[str, object] = {"state": "open", "title": "Fix the parser", "body": "It breaks.", **issue}
        self.now = IssueNow(**{"labels": ("agent:fixer", "bug"), **given})  # type: ignore[arg-type]
        self.posted: list[Comment] = []
        self.pulls: list[PullRequest] = []
        self.heads: dict[int, str] = {}
        self.released: list[Release] = []
        self.drafts: list[bool] = []
        self.permissions = {"ann": "write", "tom": "triage", "eve": "read"}
        self.failures: dict[str, list[WriteFailed]] = {}
        self.calls: list[str] = []
        self.closes = True

    def viewer(self) -> Account:
        return BOT

    def permission(self, login: str) -> str:
        self._fail("permission")
        return self.permissions.get(login, "none")

    def default_branch(self) -> str:
        return "main"

    def issue(self, number: int) -> IssueNow:
        assert number == 7
        self._fail("issue")
        return self.now

    def comments(self, number: int) -> tuple[Comment, ...]:
        assert number == 7
        return tuple(self.posted)

    def create_comment(self, number: int, body: str) -> Comment:
        self._write("create_comment")
        url = f"https://github.com/o/r/issues/{number}#{len(self.posted)}"
        self.posted.append(Comment(id=100 + len(self.posted), author_id=BOT.id, body=body, url=url))
        return self.posted[-1]

    def update_comment(self, comment_id: int, body: str) -> Comment:
        self._write("update_comment")
        index = next(n for n, comment in enumerate(self.posted) if comment.id == comment_id)
        self.posted[index] = replace(self.posted[index], body=body)
        return self.posted[index]

    def add_labels(self, number: int, labels: tuple[str, ...]) -> None:
        self._write("add_labels")
        self.now = replace(self.now, labels=(*self.now.labels, *labels))

    def remove_label(self, number: int, label: str) -> None:
        self._write("remove_label")
        self.now = replace(self.now, labels=tuple(name for name in self.now.labels if name != label))

    def close_issue(self, number: int) -> None:
        self._write("close_issue")
        if self.closes:
            self.now = replace(self.now, state="closed")

    def open_pull_requests(self, branch: str) -> tuple[PullRequest, ...]:
        return tuple(pull for pull in self.pulls if self.heads.get(pull.number, branch) == branch)

    def create_pull_request(self, *, branch: str, base: str, title: str, body: str, draft: bool) -> PullRequest:
        self._write("create_pull_request")
        self.drafts.append(draft)
        number = 12 + len(self.pulls)
        self.heads[number] = branch
        self.pulls.append(
            PullRequest(number=number, author_id=BOT.id, base=base, url=f"https://github.com/o/r/pull/{number}")
        )
        return self.pulls[-1]

    def update_pull_request(self, number: int, *, title: str, body: str) -> None:
        self._write("update_pull_request")

    def releases(self) -> tuple[Release, ...]:
        return tuple(self.released)

    def create_release(self, *, tag: str, target: str, name: str, body: str, draft: bool) -> Release:
        self._write("create_release")
        self.released.append(Release(tag=tag, url=f"https://github.com/o/r/releases/{tag}"))
        return self.released[-1]

    def _write(self, name: str) -> None:
        self._fail(name)
        self.calls.append(name)

    def _fail(self, name: str) -> None:
        if self.failures.get(name):
            raise self.failures[name].pop(0)


class RecordingPusher:
    """Branches in memory. `occupied` are branches that hold somebody else's commits."""

    def __init__(self, commit: str = "a" * 40, *, refusal: str = "", occupied: tuple[str, ...] = ()) -> None:
        self.commit, self._refusal, self._occupied = commit, refusal, occupied
        self.pushes: list[tuple[str, str | None]] = []

    def push(self, branch: str, *, author: Account, replaces: str | None) -> Pushed:
        if self._refusal:
            raise Refused(self._refusal)
        self.pushes.append((branch, replaces))
        return Pushed(branch=f"{branch}-2" if branch in self._occupied else branch, commit=self.commit)
