"""Pull requests of other people in a world, as GitHub keeps them, and the events that let an agent review one."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any, Protocol

from tests.checkout import Invocation, git
from tests.servers.github_api import GitHubServer
from tests.servers.messages_api import Reply
from tests.world import TOKEN, World, answer, drop_checks, understood

EVE = {"login": "eve", "type": "User"}
BOB = {"login": "bob", "type": "User"}
#: What files become; `None` deletes one, and a path is where a link leads.
Change = Mapping[str, str | bytes | Path | None]


class Served(Protocol):
    """Both servers of a repository."""

    served: Path
    github: GitHubServer


def let_review(world: World) -> None:
    """The agent of the world reviews pull requests, on the default branch."""
    world.runner.inputs |= {"read-token": TOKEN}

    def allow(agent: dict[str, Any]) -> None:
        agent["runner"]["integrations"]["github"] = {"allowedEffects": ["comment", "labels", "review"]}

    world.edit("agent.json", allow)
    world.edit("steps_registry.json", drop_checks)
    world.github.state.accounts["eve"] = 13


def propose(world: Served, changes: Change, *, branch: str = "topic", **facts: Any) -> int:
    """eve opens a pull request from her fork; Gives its number."""
    state = world.github.state
    _commit(world, branch, changes, message="Say more", start="main")
    known = {"login": "eve", "fork": "eve/r", "title": "Say more", "body": "It says **more** now.", **facts}
    number = int(state.add_pull(branch, **known)["number"])
    state.add_issue(number, known["title"], known["body"], labels=["agent:fixer"])
    state.issues[number] |= {"login": known["login"], "pull_request": True}
    merge(world, number)
    return number


def push(world: World, number: int, changes: Change, *, message: str = "Say even more", replace: bool = False) -> None:
    """eve pushes to her branch, or begins it anew."""
    branch = pull(world, number)["head"]
    _commit(world, branch, changes, message=message, start="main" if replace else branch)
    merge(world, number)


def link_submodule(world: World, number: int, path: str) -> None:
    """eve pushes a submodule, at a commit that is nowhere."""
    facts, clone = pull(world, number), world.served.parent / "linking"
    git("clone", "--quiet", "--no-local", "--branch", facts["head"], str(world.served), str(clone), cwd=world.served)
    git("update-index", "--add", "--cacheinfo", f"160000,{'2' * 40},{path}", cwd=clone)
    git("commit", "--quiet", "--message", "Link it", cwd=clone)
    git("push", "--quiet", cwd=clone)
    shutil.rmtree(clone)
    merge(world, number)


def move_base(world: World, changes: Change, *numbers: int) -> None:
    """Somebody pushes to the default branch, and GitHub merges these pull requests anew."""
    _commit(world, "main", changes, message="Go on", start="main")
    for number in numbers:
        merge(world, number)


def merge(world: Served, number: int) -> None:
    """Do what GitHub does after every push: try the merge, and keep it under `refs/pull`."""
    facts, served = pull(world, number), world.served
    clone = served.parent / "merging"
    git("clone", "--quiet", "--no-local", str(served), str(clone), cwd=served)
    git("checkout", "--quiet", f"origin/{facts['base']}", cwd=clone)
    try:
        git("merge", "--quiet", "--no-ff", "--no-edit", f"origin/{facts['head']}", cwd=clone)
        git("push", "--quiet", "--force", str(served), f"HEAD:refs/pull/{number}/merge", cwd=clone)
        facts |= {"mergeable": True, "merge": git("rev-parse", "HEAD", cwd=clone).strip()}
    except CalledProcessError:
        facts |= {"mergeable": False, "merge": None}
    git("push", "--quiet", "--force", str(served), f"origin/{facts['head']}:refs/pull/{number}/head", cwd=clone)
    shutil.rmtree(clone)


def pull(world: Served, number: int) -> dict[str, Any]:
    return next(each for each in world.github.state.pulls if each["number"] == number)


def _commit(world: Served, branch: str, changes: Change, *, message: str, start: str) -> None:
    served = world.served
    clone = served.parent / "proposing"
    git("clone", "--quiet", "--no-local", str(served), str(clone), cwd=served)
    git("checkout", "--quiet", "-B", branch, f"origin/{start}", cwd=clone)
    for name, text in changes.items():
        path = clone / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if text is None:
            continue
        if isinstance(text, Path):
            path.symlink_to(text)
        else:
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
    git("add", "--all", "--force", cwd=clone)
    git("commit", "--quiet", "--message", message, cwd=clone)
    git("push", "--quiet", "--force", str(served), f"HEAD:{branch}", cwd=clone)
    shutil.rmtree(clone)


def labeled(world: World, number: int, *, label: str = "agent:fixer", by: dict[str, Any] = BOB) -> dict[str, Any]:
    """The event of a label that bob puts on a pull request."""
    return {**happened(world, number, "labeled", by=by), "label": {"name": label}}


def happened(world: World, number: int, action: str, *, by: dict[str, Any] = BOB) -> dict[str, Any]:
    """The event of something that happened to a pull request."""
    facts = pull(world, number)
    author = facts["login"]
    role = world.github.state.permissions.get(author)
    payload = {
        "number": number,
        "draft": facts["draft"],
        "user": {"login": author, "type": "User"},
        "author_association": "MEMBER" if role else "NONE",
        "head": {"sha": world.branches()[facts["head"]], "repo": {"full_name": facts.get("fork", "o/r")}},
        "base": {"sha": world.branches()[facts["base"]], "repo": {"full_name": "o/r"}},
    }
    return {
        "action": action,
        "pull_request": payload,
        "sender": by,
        "repository": {"full_name": "o/r", "default_branch": "main"},
    }


def commented(number: int, words: str = "/stepflow run fixer") -> dict[str, Any]:
    """The event of bob's comment on a pull request."""
    comment = {"body": words, "user": BOB, "author_association": "MEMBER"}
    return {
        "action": "created",
        "issue": {"number": number, "title": "Say more", "pull_request": {"url": "x"}},
        "comment": comment,
        "sender": BOB,
        "repository": {"full_name": "o/r", "default_branch": "main"},
    }


def looks() -> list[Reply]:
    """An agent that reads and says one sentence."""
    return [
        understood(),
        answer("continuation.issue", "handoff", summary="read"),
        answer("closure.issue", "closing", review={"summary": "It is read.", "verdict": "comment", "comments": []}),
    ]


def review(world: World, event: dict[str, Any], replies: Any = None, **options: Any) -> Invocation:
    """Run the action on an event of a pull request, as a job of `pull_request_target`."""
    world.play(looks() if replies is None else replies)
    return world.runner.run(event, name=options.pop("name", "pull_request_target"), **options)


def shown(world: World) -> str:
    """What the model was shown first."""
    asked = next(request.body for request in world.model.requests if "messages" in request.body)
    content = asked["messages"][0]["content"]
    return content if isinstance(content, str) else "\n".join(str(part.get("text")) for part in content)
