"""GitHub's JSON objects, complete enough for its published description."""

from __future__ import annotations

from typing import Any

NOW = "2026-01-02T03:04:05Z"
Json = dict[str, Any]


def account(api: str, web: str, login: str, number: int, kind: str = "User") -> Json:
    url = f"{api}/users/{login}"
    kinds = ("followers", "following", "gists", "starred", "subscriptions", "organizations", "repos", "events")
    links = {f"{name}_url": f"{url}/{name}" for name in (*kinds, "received_events")}
    return {
        "login": login,
        "id": number,
        "node_id": f"U_{number}",
        "avatar_url": f"{web}/{login}.png",
        "gravatar_id": "",
        "url": url,
        "html_url": f"{web}/{login}",
        "organizations_url": f"{url}/orgs",
        "type": kind,
        "site_admin": False,
        **links,
    }


_REPOSITORY_LINKS = """
    archive assignees blobs branches collaborators comments commits compare contents contributors deployments downloads
    events forks git_commits git_refs git_tags hooks issue_comment issue_events issues keys labels languages merges
    milestones notifications pulls releases stargazers statuses subscribers subscription tags teams trees
"""
_COUNTS = """
    forks forks_count stargazers_count watchers watchers_count size open_issues open_issues_count subscribers_count
    network_count
"""


def repository(api: str, web: str, full_name: str, owner: Json, default_branch: str) -> Json:
    url = f"{api}/repos/{full_name}"
    return {
        "id": 1,
        "node_id": "R_1",
        "name": full_name.split("/")[1],
        "full_name": full_name,
        "owner": owner,
        "private": False,
        "html_url": f"{web}/{full_name}",
        "description": None,
        "fork": False,
        "url": url,
        "git_url": f"{web}/{full_name}.git",
        "ssh_url": f"git@host:{full_name}.git",
        "clone_url": f"{web}/{full_name}.git",
        "svn_url": f"{web}/{full_name}",
        "mirror_url": None,
        "homepage": None,
        "language": None,
        "license": None,
        "default_branch": default_branch,
        "archived": False,
        "disabled": False,
        "pushed_at": NOW,
        "created_at": NOW,
        "updated_at": NOW,
        **{f"{name}_url": f"{url}/{name}" for name in _REPOSITORY_LINKS.split()},
        **dict.fromkeys(_COUNTS.split(), 0),
        **{f"has_{name}": True for name in ("issues", "projects", "wiki", "pages", "downloads", "discussions")},
    }


def label(url: str, name: str, number: int) -> Json:
    return {
        "id": number,
        "node_id": f"L_{number}",
        "url": f"{url}/labels/{name}",
        "name": name,
        "description": None,
        "color": "ededed",
        "default": False,
    }


def issue(repo: Json, number: int, *, title: str, body: str, state: str, user: Json, labels: list[str]) -> Json:
    url = f"{repo['url']}/issues/{number}"
    return {
        "id": 1000 + number,
        "node_id": f"I_{number}",
        "url": url,
        "repository_url": repo["url"],
        "labels_url": f"{url}/labels{{/name}}",
        "comments_url": f"{url}/comments",
        "events_url": f"{url}/events",
        "html_url": f"{repo['html_url']}/issues/{number}",
        "number": number,
        "state": state,
        "title": title,
        "body": body,
        "user": user,
        "labels": [label(repo["url"], name, index + 1) for index, name in enumerate(labels)],
        "assignee": None,
        "milestone": None,
        "locked": False,
        "comments": 0,
        "closed_at": NOW if state == "closed" else None,
        "created_at": NOW,
        "updated_at": NOW,
        "author_association": "OWNER",
    }


def comment(repo: Json, number: int, issue_number: int, body: str, user: Json, association: str) -> Json:
    return {
        "id": number,
        "node_id": f"IC_{number}",
        "url": f"{repo['url']}/issues/comments/{number}",
        "html_url": f"{repo['html_url']}/issues/{issue_number}#issuecomment-{number}",
        "issue_url": f"{repo['url']}/issues/{issue_number}",
        "body": body,
        "user": user,
        "created_at": NOW,
        "updated_at": NOW,
        "author_association": association,
    }


def pull_request(repo: Json, number: int, given: Json, user: Json, shas: tuple[str, str]) -> Json:
    url, page = f"{repo['url']}/pulls/{number}", f"{repo['html_url']}/pull/{number}"
    issue_url = f"{repo['url']}/issues/{number}"
    links = {
        "self": url,
        "html": page,
        "issue": issue_url,
        "comments": f"{issue_url}/comments",
        "review_comments": f"{url}/comments",
        "review_comment": f"{url}/comments{{/number}}",
        "commits": f"{url}/commits",
        "statuses": f"{repo['url']}/statuses/{shas[0]}",
    }
    ends = {
        end: {
            "label": f"{repo['owner']['login']}:{given[end]}",
            "ref": given[end],
            "repo": repo,
            "sha": sha,
            "user": user,
        }
        for end, sha in zip(("head", "base"), shas, strict=True)
    }
    return {
        "url": url,
        "id": 5000 + number,
        "node_id": f"PR_{number}",
        "html_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        "issue_url": issue_url,
        "commits_url": links["commits"],
        "review_comments_url": links["review_comments"],
        "review_comment_url": links["review_comment"],
        "comments_url": links["comments"],
        "statuses_url": links["statuses"],
        "number": number,
        "state": "open",
        "draft": bool(given.get("draft", False)),
        "title": given.get("title", ""),
        "body": given.get("body"),
        "user": user,
        "author_association": "CONTRIBUTOR",
        "_links": {name: {"href": link} for name, link in links.items()},
        **ends,
        **dict.fromkeys(("milestone", "closed_at", "merged_at", "merge_commit_sha", "assignee", "auto_merge"), None),
        **dict.fromkeys(("mergeable", "merged_by"), None),
        **dict.fromkeys(("comments", "review_comments", "commits", "additions", "deletions", "changed_files"), 0),
        **dict.fromkeys(("locked", "merged", "maintainer_can_modify"), False),
        "mergeable_state": "unknown",
        "labels": [],
        "created_at": NOW,
        "updated_at": NOW,
    }


def release(repo: Json, number: int, given: Json, user: Json) -> Json:
    url = f"{repo['url']}/releases/{number}"
    return {
        "url": url,
        "html_url": f"{repo['html_url']}/releases/tag/{given['tag_name']}",
        "assets_url": f"{url}/assets",
        "upload_url": f"{url}/assets{{?name,label}}",
        "tarball_url": None,
        "zipball_url": None,
        "id": number,
        "node_id": f"RE_{number}",
        "tag_name": given["tag_name"],
        "target_commitish": given.get("target_commitish", repo["default_branch"]),
        "name": given.get("name"),
        "body": given.get("body"),
        "draft": bool(given.get("draft", False)),
        "prerelease": False,
        "created_at": NOW,
        "published_at": None if given.get("draft") else NOW,
        "author": user,
        "assets": [],
    }
