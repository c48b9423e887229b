"""GitHub's API as the effects write to it, with the workflow's own token. No error has a secret."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote

from stepflow.boundary.github_api import A, GitHub, R
from stepflow.boundary.github_failures import UNPROCESSABLE, WORKFLOW_RUN, WriteFailed
from stepflow.boundary.github_types import (
    CREATE_COMMIT,
    REPLY,
    RESOLVE,
    REVIEW_THREAD,
    UPDATE_REFS,
    Answer,
    Comment,
    PullRequest,
    Release,
    Review,
    ReviewThread,
    read_part,
)


class GitHubWriter(GitHub):
    """Writes to GitHub. What can be written twice is retried, like what is read; what makes something new is not.
    Between two writes so many seconds pass."""

    seconds_between_writes: float = 0.0
    _last_write = 0.0

    def create_comment(self, number: int, body: str) -> Comment:
        """Post a comment."""
        return self._write_as(Comment, "comment on the issue", "POST", f"/issues/{number}/comments", body=body)

    def update_comment(self, comment_id: int, body: str) -> Comment:
        """Replace a comment's text."""
        return self._write_as(Comment, "update the comment", "PATCH", f"/issues/comments/{comment_id}", body=body)

    def add_labels(self, number: int, labels: tuple[str, ...]) -> None:
        """Put labels on an issue."""
        self._send("put labels on the issue", "POST", f"/issues/{number}/labels", labels=list(labels))

    def remove_label(self, number: int, label: str) -> None:
        """Take one label off an issue."""
        self._send("take a label off the issue", "DELETE", f"/issues/{number}/labels/{quote(label, safe='')}")

    def close_issue(self, number: int) -> None:
        """Close an issue as completed."""
        self._send("close the issue", "PATCH", f"/issues/{number}", state="closed", state_reason="completed")

    def create_pull_request(self, *, branch: str, base: str, title: str, body: str, draft: bool) -> PullRequest:
        """Open a pull request."""
        facts = {"base": base, "head": branch, "title": title, "body": body, "draft": draft}
        return self._write_as(PullRequest, "open the pull request", "POST", "/pulls", **facts)

    def update_pull_request(self, number: int, *, title: str, body: str) -> None:
        """Replace title and body."""
        self._send("update the pull request", "PATCH", f"/pulls/{number}", title=title, body=body)

    def create_review(
        self, number: int, *, commit: str, event: str, body: str, comments: Sequence[Mapping[str, object]]
    ) -> Review:
        """Submit a review of a pull request, with comments on lines as of this commit."""
        facts = {"commit_id": commit, "event": event, "body": body, "comments": list(comments)}
        return self._write_as(Review, "submit the review", "POST", f"/pulls/{number}/reviews", **facts)

    def update_review(self, number: int, review_id: int, body: str) -> Review:
        """Replace the summary of a review."""
        return self._write_as(Review, "update the review", "PUT", f"/pulls/{number}/reviews/{review_id}", body=body)

    def dismiss_review(self, number: int, review_id: int, message: str) -> None:
        """Let a review count no longer for or against a merge."""
        path = f"/pulls/{number}/reviews/{review_id}/dismissals"
        self._send("dismiss the earlier review", "PUT", path, message=message, event="DISMISS")

    def review_thread(self, thread_id: str) -> ReviewThread:
        """Return a thread of a pull request's review now."""
        return self._read(
            "read a review thread",
            lambda: read_part(ReviewThread, self._client.graphql(REVIEW_THREAD, id=thread_id), "node"),
        )

    def reply_to_thread(self, thread_id: str, body: str) -> None:
        """Post a comment at the end of a thread."""
        reply = {"pullRequestReviewThreadId": thread_id, "body": body}
        self._mutate("reply in a review thread", REPLY, reply, str, "addPullRequestReviewThreadReply", "comment", "url")

    def resolve_thread(self, thread_id: str) -> None:
        """Mark a thread as resolved; it may be already."""
        self.retry_policy.repeat(
            lambda: self._mutate("resolve a review thread", RESOLVE, {"threadId": thread_id}, Answer)
        )

    def releases(self) -> tuple[Release, ...]:
        """Return all releases, drafts too, newest first."""
        return self._list("list the releases", Release, "/releases")

    def create_release(self, *, tag: str, target: str, name: str, body: str, draft: bool) -> Release:
        """Create a release; its tag is made at `target` if it does not exist."""
        facts = {"tag_name": tag, "target_commitish": target, "name": name, "body": body, "draft": draft}
        fixed = {"prerelease": False, "generate_release_notes": False, "make_latest": "true"}
        return self._write_as(Release, "create the release", "POST", "/releases", **facts, **fixed)

    def was_dispatched(self, workflow: str, *, branch: str, commit: str) -> bool:
        """Return whether somebody has started this workflow for this commit of a branch."""
        query = {"event": "workflow_dispatch", "branch": branch, "head_sha": commit, "per_page": "1"}
        path = f"/actions/workflows/{quote(workflow, safe='')}/runs"
        found = self._read(
            "list the runs of a workflow",
            lambda: read_part(int, self._client.ask("GET", path, parameters=query)[1], "total_count"),
            WORKFLOW_RUN,
        )
        return found > 0

    def dispatch_workflow(self, workflow: str, *, branch: str) -> None:
        """Start a workflow on a branch; what was pushed a moment ago may not be known there yet."""
        try:
            path = f"/actions/workflows/{quote(workflow, safe='')}/dispatches"
            self._write("start a workflow", lambda: self._client.ask("POST", path, body={"ref": branch}))
        except WriteFailed as exc:
            exc.passes |= exc.status == UNPROCESSABLE and "No ref found" in exc.message
            raise

    def update_refs(self, *updates: tuple[str, str, str]) -> None:
        """Move refs, all or none: the full name of each, the commit that it must have now, and the new one. Empty
        stands for no ref."""
        nothing = "0" * max(len(oid) for _, *oids in updates for oid in oids)
        changes = [
            {"name": name, "beforeOid": before or nothing, "afterOid": after or nothing, "force": True}
            for name, before, after in updates
        ]
        update = {"repositoryId": self._read_repository().node_id, "refUpdates": changes}
        self._mutate("move the branch", UPDATE_REFS, update, Answer)

    def create_commit(
        self,
        branch: str,
        *,
        head: str,
        message: Mapping[str, str],
        additions: Mapping[str, str],
        deletions: Sequence[str],
    ) -> str:
        """Create a commit on a branch that stands at `head`, signed by GitHub, and return its oid. `message` has
        `headline` and `body`; `additions` are the contents in base64 by path."""
        commit = {
            "branch": {"repositoryNameWithOwner": self.full_name(), "branchName": branch},
            "expectedHeadOid": head,
            "message": message,
            "fileChanges": {
                "additions": [{"path": path, "contents": contents} for path, contents in additions.items()],
                "deletions": [{"path": path} for path in deletions],
            },
        }
        return self._mutate("write a commit", CREATE_COMMIT, commit, str, "createCommitOnBranch", "commit", "oid")

    def _send(self, doing: str, verb: str, path: str, **body: object) -> None:
        """Write what changes nothing when it is written again."""
        self.retry_policy.repeat(lambda: self._write(doing, lambda: self._client.ask(verb, path, body=body or None)))

    def _write_as(self, kind: type[A], doing: str, verb: str, path: str, **body: object) -> A:
        def write() -> A:
            return self._write(doing, lambda: kind.model_validate(self._client.ask(verb, path, body=body)[1]))

        # What makes something new is looked for before it is written again, which only the caller can do.
        return write() if verb == "POST" else self.retry_policy.repeat(write)

    def _mutate(self, doing: str, mutation: str, given: Mapping[str, object], kind: type[R], *path: str) -> R:
        return self._write(doing, lambda: read_part(kind, self._client.graphql(mutation, input=given), *path))

    def _write(self, doing: str, write: Callable[[], R]) -> R:
        """Write once, when it is the turn: GitHub asks for a second between two writes."""
        clock = self.retry_policy.clock
        if clock is not None and self.seconds_between_writes:
            if (wait := self._last_write + self.seconds_between_writes - clock.now()) > 0:
                clock.sleep(wait)
            self._last_write = clock.now()
        return self._translate(doing, write)
