"""GitHub's JSON objects: what its published description demands, with the facts of the loopback server's repository."""

from __future__ import annotations

from typing import Any

from tests.servers.bare_repository import StoredCommit
from tests.servers.openapi import NOW, smallest

Json = dict[str, Any]


def account(api: str, web: str, login: str, number: int, kind: str = "User") -> Json:
    links = {"url": f"{api}/users/{login}", "html_url": f"{web}/{login}", "avatar_url": f"{web}/{login}.png"}
    return {**smallest("simple-user"), **links, "login": login, "id": number, "type": kind}


def repository(api: str, web: str, full_name: str, owner: Json, default_branch: str) -> Json:
    return {
        **smallest("repository"),
        **smallest("full-repository"),
        "id": 1,
        "node_id": "R_kgDOAAAAAQ",
        "name": full_name.split("/")[1],
        "full_name": full_name,
        "owner": owner,
        "url": f"{api}/repos/{full_name}",
        "html_url": f"{web}/{full_name}",
        "default_branch": default_branch,
    }


def label(url: str, name: str, number: int) -> Json:
    return {**smallest("label"), "id": number, "url": f"{url}/labels/{name}", "name": name}


def issue(repo: Json, number: int, *, title: str, body: str, state: str, user: Json, labels: list[str]) -> Json:
    return {
        **smallest("issue"),
        "id": 1000 + number,
        "url": f"{repo['url']}/issues/{number}",
        "repository_url": repo["url"],
        "html_url": f"{repo['html_url']}/issues/{number}",
        "number": number,
        "state": state,
        "title": title,
        "body": body,
        "user": user,
        "labels": [label(repo["url"], name, index + 1) for index, name in enumerate(labels)],
        "closed_at": NOW if state == "closed" else None,
        "author_association": "OWNER",
    }


def comment(repo: Json, number: int, issue_number: int, body: str, user: Json, association: str) -> Json:
    return {
        **smallest("issue-comment"),
        "id": number,
        "url": f"{repo['url']}/issues/comments/{number}",
        "html_url": f"{repo['html_url']}/issues/{issue_number}#issuecomment-{number}",
        "issue_url": f"{repo['url']}/issues/{issue_number}",
        "body": body,
        "user": user,
        "author_association": association,
    }


def pull_request(repo: Json, number: int, given: Json, user: Json, shas: tuple[str, str]) -> Json:
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
    if "fork" in given:
        fork = given["fork"]
        label = f"{fork.partition('/')[0] or 'unknown repository'}:{given['head']}"
        # The fork may have been deleted.
        ends["head"] |= {"label": label, "repo": {**repo, "id": 2, "full_name": fork} if fork else None}
    return {
        **smallest("pull-request"),
        **ends,
        "id": 5000 + number,
        "url": f"{repo['url']}/pulls/{number}",
        "html_url": f"{repo['html_url']}/pull/{number}",
        "number": number,
        "state": given["state"],
        "merged_at": given.get("merged_at"),
        "draft": bool(given.get("draft", False)),
        "title": given.get("title", ""),
        "body": given.get("body"),
        "user": user,
        "author_association": "CONTRIBUTOR",
        "mergeable": given.get("mergeable"),
        "merge_commit_sha": given.get("merge"),
    }


def release(repo: Json, number: int, given: Json, user: Json) -> Json:
    return {
        **smallest("release"),
        "id": number,
        "url": f"{repo['url']}/releases/{number}",
        "html_url": f"{repo['html_url']}/releases/tag/{given['tag_name']}",
        "tag_name": given["tag_name"],
        "target_commitish": given.get("target_commitish", repo["default_branch"]),
        "name": given.get("name"),
        "body": given.get("body"),
        "draft": bool(given.get("draft", False)),
        "published_at": None if given.get("draft") else NOW,
        "author": user,
    }


def file(repo: Json, head: str, letter: str, previous: str, path: str) -> Json:
    status = {"A": "added", "D": "removed", "R": "renamed", "C": "copied"}.get(letter, "modified")
    return {
        **smallest("diff-entry"),
        "filename": path,
        "status": status,
        "contents_url": f"{repo['url']}/contents/{path}?ref={head}",
        **({"previous_filename": previous} if previous != path else {}),
    }


def comparison(repo: Json, basehead: str, status: str, ends: dict[str, Json], commits: list[Json], behind: int) -> Json:
    links = {"url": f"{repo['url']}/compare/{basehead}", "html_url": f"{repo['html_url']}/compare/{basehead}"}
    counts = {"ahead_by": len(commits), "behind_by": behind, "total_commits": len(commits)}
    return {**smallest("commit-comparison"), **links, **ends, **counts, "status": status, "commits": commits}


def job(repo: Json, facts: Json) -> Json:
    running = facts["conclusion"] is None
    status = "in_progress" if running else "completed"
    return {
        **smallest("job"),
        "id": facts["id"],
        "run_id": facts["run"],
        "run_url": f"{repo['url']}/actions/runs/{facts['run']}",
        "url": f"{repo['url']}/actions/jobs/{facts['id']}",
        "html_url": f"{repo['html_url']}/actions/runs/{facts['run']}/job/{facts['id']}",
        "name": facts["name"],
        "status": status,
        "conclusion": facts["conclusion"],
        "completed_at": None if running else NOW,
        "steps": [
            {"name": name, "number": number, "status": "completed" if ended else "in_progress", "conclusion": ended}
            for number, (name, ended) in enumerate(facts["steps"].items(), 1)
        ],
    }


def workflow_run(repo: Json, number: int, dispatched: tuple[str, str, str]) -> Json:
    workflow, branch, commit = dispatched
    return {
        **smallest("workflow-run"),
        "id": number,
        "url": f"{repo['url']}/actions/runs/{number}",
        "html_url": f"{repo['html_url']}/actions/runs/{number}",
        "path": f".github/workflows/{workflow}",
        "event": "workflow_dispatch",
        "head_branch": branch,
        "head_sha": commit,
    }


def commit(repo: Json, stored: StoredCommit, author: Json, committer: Json) -> Json:
    url = f"{repo['url']}/commits/{stored.oid}"
    whole = smallest("commit")
    verification = {
        "verified": bool(stored.signature),
        "reason": "valid" if stored.signature else "unsigned",
        "signature": stored.signature,
        "payload": "signed" if stored.signature else None,
        "verified_at": NOW if stored.signature else None,
    }
    inner = {
        **whole["commit"],
        "message": stored.message,
        "tree": {"sha": stored.tree, "url": f"{repo['url']}/git/trees/{stored.tree}"},
        "verification": verification,
    }
    parents = [{"sha": oid, "url": f"{repo['url']}/commits/{oid}"} for oid in stored.parents]
    links = {"url": url, "html_url": f"{repo['html_url']}/commit/{stored.oid}"}
    return {
        **whole, **links, "sha": stored.oid, "commit": inner, "author": author, "committer": committer,
        "parents": parents,
    }  # fmt: skip


def artifact(url: str, number: int, facts: Json) -> Json:
    """What a job kept."""
    where = f"{url}/actions/artifacts/{number}"
    known = {"id": number, "node_id": f"A_{number}", "name": facts["name"], "expired": facts["expired"]}
    times = dict.fromkeys(("created_at", "expires_at", "updated_at"), NOW)
    size = sum(map(len, facts["files"].values()))
    return {**known, **times, "size_in_bytes": size, "url": where, "archive_download_url": f"{where}/zip"}
