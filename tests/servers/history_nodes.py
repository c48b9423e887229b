"""Lists of pull requests, issues, comments and commits, as GitHub's GraphQL gives them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from graphql import IntValueNode, OperationDefinitionNode, parse

from tests.servers.openapi import NOW
from tests.servers.review_threads import connection

if TYPE_CHECKING:
    from tests.servers.github_api import State

Json = dict[str, Any]
NEWEST_FIRST = {"field": "CREATED_AT", "direction": "DESC"}


@cache
def points_of(query: str) -> int:
    """What a document costs: the requests that its connections need if each is full, by a hundred, and at least one
    (docs.github.com, "Rate limits and query limits for the GraphQL API")."""
    (operation,) = (each for each in parse(query).definitions if isinstance(each, OperationDefinitionNode))
    return max(1, round(_requests(operation, 1) / 100))


def _requests(node: Any, times: int) -> int:
    total = 0
    for each in node.selection_set.selections if getattr(node, "selection_set", None) else ():
        sizes = [
            int(one.value.value)
            for one in getattr(each, "arguments", None) or ()
            if isinstance(one.value, IntValueNode)
        ]
        inner = times * sizes[0] if sizes else times
        total += (times if sizes else 0) + _requests(each, inner)
    return total


def _opened(pull: Json) -> str:
    """When a pull request was opened, also one that a run opened at an unknown time."""
    return str(pull.get("created_at", NOW))


class HistoryNodes:
    """The nodes of a state; each is made when it is asked for. Pull requests have `created_at`, `merged_at`,
    `merge_commit` and `commits` (oid and address) among their facts."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._texts: dict[int, list[Json]] | None = None
        self._reviews: dict[int, list[Json]] = defaultdict(list)

    def repository(self) -> Json:
        """The fields of the repository."""
        return {
            "pullRequests": self._pull_requests,
            "issues": self._issues,
            "issueOrPullRequest": self._issue_or_pull_request,
            "defaultBranchRef": {
                "name": "main",
                "target": {"__typename": "Commit", "oid": "0" * 40, "history": self._history},
            },
        }

    def reviews_of(self, number: int) -> Callable[..., Json]:
        """The list of a pull request's reviews."""
        self._comments(number)
        return lambda _info, **page: connection(self._reviews[number], **page)

    def _pull_requests(self, _info: Any, orderBy: Json, **page: Any) -> Json:
        assert orderBy == NEWEST_FIRST
        pulls = sorted(self._state.pulls, key=lambda each: (_opened(each), each["number"]), reverse=True)
        whole = connection(pulls, **page)
        return {**whole, "nodes": [self._pull(each) for each in whole["nodes"]]}

    def _issues(self, _info: Any, orderBy: Json, filterBy: Json, **page: Any) -> Json:
        assert orderBy == NEWEST_FIRST
        since = filterBy["since"] or ""
        numbers = [
            number
            for number, issue in sorted(self._state.issues.items(), reverse=True)
            if not issue.get("pull_request") and self._updated(number, issue) >= since
        ]
        whole = connection(numbers, **page)
        return {**whole, "nodes": [self._issue(number) for number in whole["nodes"]]}

    def _updated(self, number: int, issue: Json) -> str:
        return max([issue["created_at"], *(each["updatedAt"] for each in self._comments(number))])

    def _issue_or_pull_request(self, _info: Any, number: int) -> Json:
        pull = next((pull for pull in self._state.pulls if pull["number"] == number), None)
        return self._pull(pull) if pull else self._issue(number)

    def _issue(self, number: int) -> Json:
        comments = self._comments(number)
        return {"__typename": "Issue", "number": number, "comments": lambda _info, **page: connection(comments, **page)}

    def _pull(self, facts: Json) -> Json:
        comments, commits = self._comments(facts["number"]), facts.get("commits", [])
        reviews, merged = self._reviews[facts["number"]], facts.get("merged_at")
        nodes = [
            {"commit": {"oid": oid, "author": {"email": email}, "committer": {"email": (committer or [email])[0]}}}
            for oid, email, *committer in commits
        ]
        return {
            "__typename": "PullRequest",
            "number": facts["number"],
            "title": facts["title"],
            "body": facts["body"] or "",
            "state": "MERGED" if merged else facts["state"].upper(),
            "headRefName": facts["head"],
            "baseRef": {"name": facts["base"]} if facts["base"] else None,
            "createdAt": _opened(facts),
            "mergedAt": merged,
            "author": self._actor(facts["login"]),
            "mergeCommit": {"oid": facts["merge_commit"]} if facts.get("merge_commit") else None,
            "commits": lambda _info, **page: connection(nodes, **page),
            "comments": lambda _info, **page: connection(comments, **page),
            "reviews": lambda _info, **page: connection(reviews, **page),
        }

    def _comments(self, number: int) -> list[Json]:
        if self._texts is None:
            self._texts = defaultdict(list)
            for each in self._state.comments:
                text = {"author": self._actor(each["login"]), "body": each["body"], "updatedAt": each["updated_at"]}
                self._texts[each["issue"]].append(text)
            for each in self._state.reviews:
                text = {"author": self._actor(each["login"]), "body": each["body"], "updatedAt": self._state.now()}
                self._reviews[each["pull"]].append(text)
        return self._texts[number]

    def _history(self, _info: Any, since: str | None, **page: Any) -> Json:
        commits = [
            {"oid": (oid or ["0" * 40])[0], "committedDate": at, "message": message}
            for at, message, *oid in self._state.commits
            if at >= (since or "")
        ]
        return connection(commits, **page)

    def _actor(self, login: str) -> Json | None:
        """Without a login the account is gone."""
        kind = "Bot" if login.endswith("[bot]") else "User"
        return {"__typename": kind, "login": login.removesuffix("[bot]")} if login else None
