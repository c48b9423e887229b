"""The conversations about lines of pull requests, as GitHub's GraphQL gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]


def review_thread(facts: Json, pull_url: str, account: Callable[[str], Json]) -> Json:
    """A thread; `account` gives the REST object of a login."""
    comments = [_comment(facts, each, pull_url, account) for each in facts["comments"]]
    return {
        "__typename": "PullRequestReviewThread",
        "id": facts["id"],
        "isResolved": facts["resolved"],
        "path": facts["path"],
        "line": facts["line"],
        "originalLine": facts["original_line"],
        "comments": lambda _info, **page: connection(comments, **page),
    }


def connection(items: list[Json], *, first: int | None = None, last: int = 0, after: str | None = None) -> Json:
    """One page, from the beginning or at the end; a cursor is the number of the items before it."""
    begin = int(after or 0) if first else max(len(items) - last, 0)
    end = min(begin + (first or last), len(items))
    cursor = str(end) if end > begin else None
    page = {"hasNextPage": end < len(items), "endCursor": cursor}
    return {"nodes": items[begin:end], "pageInfo": page, "totalCount": len(items)}


def _comment(thread: Json, facts: Json, pull_url: str, account: Callable[[str], Json]) -> Json:
    return {
        "body": facts["body"],
        "url": f"{pull_url}#discussion_r{facts['id']}",
        "diffHunk": thread["hunk"],
        # Without a login the account is gone.
        "author": _actor(account(facts["login"])) if facts["login"] else None,
    }


def _actor(user: Json) -> Json:
    """An account as GraphQL has it, which names bots without their ending."""
    return {
        "__typename": user["type"],
        "login": user["login"].removesuffix("[bot]"),
        "databaseId": user["id"],
    }
