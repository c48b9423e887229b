"""The reviews of pull requests on the loopback API, with GitHub's rules of where a comment can be."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from tests.servers.answer import Answer
from tests.servers.openapi import NOW, smallest

if TYPE_CHECKING:
    from tests.servers.bare_repository import BareRepository
    from tests.servers.github_api import State

Json = dict[str, Any]
T = TypeVar("T")
STATES = {"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED"}
_LINE = "Pull request review thread line must be part of the diff"
_HUNK = "Pull request review thread start line must be part of the same hunk as the line."
_ORDER = "Pull request review thread start line must precede the end line."


class ReviewEndpoints:
    """The part of the API that is about reviews. A comment on a line is the beginning of a thread."""

    _state: State
    _body: Any

    if TYPE_CHECKING:

        @property
        def _git(self) -> BareRepository: ...
        def _page(self, items: list[T]) -> list[T]: ...
        def _pull(self, number: int) -> Json: ...
        def _tip(self, branch: str) -> str | None: ...
        def _user(self, login: str) -> Json: ...
        def _repo(self) -> Json: ...
        def _text(self) -> str: ...

    def reviews(self, number: str) -> tuple[int, Any]:
        self._pull(int(number))
        reviews = [review for review in self._state.reviews if review["pull"] == int(number)]
        return 200, self._page([self._review_json(review) for review in reviews])

    def review_comments(self, number: str) -> tuple[int, Any]:
        self._pull(int(number))
        threads = [thread for thread in self._state.threads if thread["pull"] == int(number)]
        pairs = [(thread, comment) for thread in threads for comment in thread["comments"]]
        return 200, self._page([self._review_comment_json(*pair) for pair in pairs])

    def create_review(self, number: str) -> tuple[int, Any]:
        pull, given, viewer = self._pull(int(number)), self._body, self._state.viewer[0]
        event = given["event"]
        if pull["number"] in self._state.locked:
            raise Answer(422, "Unprocessable Entity", ["lock prevents review"])
        if pull["login"] == viewer and event != "COMMENT":
            what = "approve" if event == "APPROVE" else "request changes on"
            raise Answer(422, "Unprocessable Entity", [f"Can not {what} your own pull request"])
        if event == "APPROVE" and not self._state.may_approve:
            raise Answer(422, "Unprocessable Entity", ["GitHub Actions is not permitted to approve pull requests."])
        if event != "APPROVE":
            self._text()
        comments = given.get("comments", [])
        if problems := [problem for comment in comments if (problem := self._problem(pull, given, comment))]:
            raise Answer(422, "Unprocessable Entity", problems)
        review = {
            "id": 600 + len(self._state.reviews),
            "pull": pull["number"],
            "login": viewer,
            "body": given.get("body", ""),
            "state": STATES[event],
            "commit": given["commit_id"],
        }
        self._state.reviews.append(review)
        for comment in comments:
            known = {key: comment.get(key) for key in ("start_line", "side", "start_side")}
            line = {"line": comment["line"], "original_line": comment["line"]}
            path = comment["path"]
            said = (viewer, comment["body"])
            self._state.add_thread(pull["number"], said, path=path, review=review["id"], **line, **known)
        return 200, self._review_json(review)

    def edit_review(self, number: str, review_id: str) -> tuple[int, Any]:
        review = self._own_review(int(number), int(review_id))
        review["body"] = self._text()
        return 200, self._review_json(review)

    def dismiss_review(self, number: str, review_id: str) -> tuple[int, Any]:
        review = self._own_review(int(number), int(review_id))
        if review["state"] not in ("APPROVED", "CHANGES_REQUESTED"):
            raise Answer(422, "Unprocessable Entity", ["Can not dismiss a commented pull request review"])
        review |= {"state": "DISMISSED", "dismissal": self._body["message"]}
        return 200, self._review_json(review)

    def _own_review(self, number: int, review_id: int) -> Json:
        for review in self._state.reviews:
            if (review["pull"], review["id"], review["login"]) == (number, review_id, self._state.viewer[0]):
                return review
        raise Answer(404, "Not Found")

    def _problem(self, pull: Json, review: Json, comment: Json) -> str:
        """What GitHub says of a comment that is not on lines of the diff."""
        first, last = comment.get("start_line"), comment["line"]
        if first is not None and first >= last:
            return _ORDER
        if not self._state.git_dir:
            return ""
        hunks = diff_hunks(self._git.diff(pull["base"], review["commit_id"], comment["path"]))
        ranges = [hunk[comment.get("side", "RIGHT")] for hunk in hunks]
        around = next((lines for lines in ranges if last in lines), None)
        if around is None:
            return _LINE
        return _HUNK if first is not None and first not in around else ""

    def _review_json(self, review: Json) -> Json:
        pull_url = f"{self._repo()['url']}/pulls/{review['pull']}"
        page = f"{self._repo()['html_url']}/pull/{review['pull']}"
        return {
            **smallest("pull-request-review"),
            "id": review["id"],
            "user": self._user(review["login"]),
            "body": review["body"],
            "state": review["state"],
            "commit_id": review["commit"],
            "html_url": f"{page}#pullrequestreview-{review['id']}",
            "pull_request_url": pull_url,
            "author_association": "CONTRIBUTOR",
            "submitted_at": NOW,
        }

    def _review_comment_json(self, thread: Json, comment: Json) -> Json:
        page = f"{self._repo()['html_url']}/pull/{thread['pull']}"
        side = {"side": thread["side"]} if thread.get("side") else {}
        return {
            **smallest("pull-request-review-comment"),
            "id": comment["id"],
            "pull_request_review_id": thread.get("review"),
            "path": thread["path"],
            "diff_hunk": thread["hunk"],
            "user": self._user(comment["login"] or "ghost"),
            "body": comment["body"],
            "html_url": f"{page}#discussion_r{comment['id']}",
            "author_association": "CONTRIBUTOR",
            **side,
            **({"line": thread["line"]} if thread["line"] else {}),
        }


def diff_hunks(diff: str) -> list[dict[str, range]]:
    """The lines of each hunk of a diff, of the new side and of the old one."""
    hunks = []
    for match in re.finditer(r"(?m)^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", diff):
        old, olds, new, news = (int(group) if group else 1 for group in match.groups())
        hunks.append({"LEFT": range(old, old + olds), "RIGHT": range(new, new + news)})
    return hunks
