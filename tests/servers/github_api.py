"""A GitHub API on loopback that remembers: issues, comments, labels, pull requests and their reviews, jobs, releases,
permissions.

It answers under `/`, `/api/v3` and `/api/graphql`, as PyGithub asks. Commits are made in the git repository behind it.
"""

from __future__ import annotations

import html
import io
import json
import re
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from tests.servers import github_graphql, github_json
from tests.servers.answer import Answer
from tests.servers.bare_repository import NOTHING, BareRepository, Rejected
from tests.servers.history_nodes import HistoryNodes, points_of
from tests.servers.job_logs import LogStore
from tests.servers.loopback import Handler, LoopbackServer
from tests.servers.openapi import Contract, load_contract
from tests.servers.review_threads import connection, review_thread
from tests.servers.reviews import ReviewEndpoints

Json = dict[str, Any]
T = TypeVar("T")
JOB_ACCOUNT = ("github-actions[bot]", 41898282)


@dataclass(frozen=True)
class Request:
    """One request to the API; `token`: the right token came along; `credential` is write, read, wrong or none."""

    method: str
    path: str
    token: bool
    time: float
    body: Any = None
    credential: str = "none"
    api_version: str = ""


@dataclass
class Fault:
    """What goes wrong at the next `times` requests that fit. `status` 0 drops the connection, after `stall` seconds;
    `after_write` lets the request have its effect first. `content` is sent as it is, in the place of a message;
    `since` names a request ("METHOD path") before which nothing goes wrong; `skip` so many that fit are spared."""

    method: str
    path: str
    status: int
    message: str = "injected"
    times: int = 1
    after_write: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    content: str = ""
    stall: float = 0.0
    since: str = ""
    skip: int = 0

    def fits(self, method: str, path: str, previous: list[Request]) -> bool:
        fits = self.times > 0 and method == self.method and re.search(self.path, path) is not None
        return fits and (
            not self.since or any(re.search(self.since, f"{each.method} {each.path}") for each in previous)
        )


@dataclass
class State:
    """The repository. `issues` and `comments` hold plain facts; JSON is made when it is asked for. Of a `public` one
    everybody may read issues, without any token. `renamed_to` is the repository's new name, where the old one leads;
    an issue in `moved` is in another repository now, one in `deleted` nowhere, and a `locked` one takes no comments."""

    repository: str
    default_branch: str = "main"
    viewer: tuple[str, int] = JOB_ACCOUNT
    git_dir: Path | None = None
    issues: dict[int, Json] = field(default_factory=dict)
    comments: list[Json] = field(default_factory=list)
    events: list[Json] = field(default_factory=list)
    #: The time of what is added now, as GitHub writes it.
    now: Callable[[], str] = lambda: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    pulls: list[Json] = field(default_factory=list)
    #: Merged pull requests as GraphQL shows them, newest first.
    merged: list[Json] = field(default_factory=list)
    threads: list[Json] = field(default_factory=list)
    reviews: list[Json] = field(default_factory=list)
    jobs: list[Json] = field(default_factory=list)
    #: What jobs kept: `name` and `files`, and whether it is `expired`.
    artifacts: list[Json] = field(default_factory=list)
    releases: list[Json] = field(default_factory=list)
    #: Each issue's number with what somebody reacted to it with.
    reactions: list[tuple[int, str]] = field(default_factory=list)
    #: The commits of the default branch as GraphQL lists them, newest first: time and message.
    commits: list[tuple[str, ...]] = field(default_factory=list)
    #: What is left of the hour's points for GraphQL.
    points: int = 5_000
    #: The workflows that can be dispatched, and what was: workflow, branch and commit of each run.
    workflows: set[str] = field(default_factory=lambda: {"ci.yml"})
    dispatched: list[tuple[str, str, str]] = field(default_factory=list)
    #: The other runs of workflows, oldest first.
    runs: list[Json] = field(default_factory=list)
    #: GitHub gives no id twice.
    comment_ids: Iterator[int] = field(default_factory=lambda: count(9000))
    labels: set[str] = field(default_factory=set)
    #: The description of a label that has one.
    descriptions: dict[str, str] = field(default_factory=dict)
    permissions: dict[str, str] = field(default_factory=lambda: {"octocat": "admin"})
    custom_roles: dict[str, str] = field(default_factory=dict)
    accounts: dict[str, int] = field(default_factory=lambda: {"octocat": 1})
    faults: list[Fault] = field(default_factory=list)
    public: bool = False
    archived: bool = False
    renamed_to: str = ""
    #: Whether the old name is that of somebody else's repository since.
    name_is_taken: bool = False
    moved: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    locked: set[int] = field(default_factory=set)
    #: Where GitHub lets people see what was attached, by the address that stands in a text.
    signed: dict[str, str] = field(default_factory=dict)
    #: Whose the read token is, if not the viewer's.
    reader: tuple[str, int] | None = None
    #: Whether the repository's settings let Actions approve pull requests.
    may_approve: bool = True
    #: The types of the rules that hold for a branch, and whether the server signs what its API writes.
    rules: dict[str, list[str]] = field(default_factory=dict)
    signs: bool = True

    def add_issue(
        self, number: int, title: str, body: str, *, labels: list[str] | None = None, login: str = "octocat"
    ) -> None:
        """An open issue by somebody."""
        facts = {"title": title, "body": body, "login": login, "created_at": self.now()}
        self.issues[number] = {**facts, "state": "open", "labels": list(labels or [])}

    def add_event(self, number: int, event: str, login: str, **more: Any) -> None:
        """What somebody did with an issue, such as `labeled`."""
        facts = {"id": len(self.events) + 1, "issue": number, "login": login, "created_at": self.now()}
        self.events.append({**facts, "event": event, **more})

    def add_comment(self, number: int, body: str, login: str) -> Json:
        """A comment by somebody."""
        facts = {"id": next(self.comment_ids), "created_at": self.now(), "updated_at": self.now()}
        comment = {**facts, "issue": number, "body": body, "login": login}
        self.comments.append(comment)
        return comment

    def add_run(self, workflow: str, event: str, login: str, **more: Any) -> Json:
        """A run of a workflow, which something that somebody did has caused."""
        run = {"id": 2001 + len(self.runs), "workflow": workflow, "event": event, "login": login, **more}
        self.runs.append({"created_at": self.now(), "conclusion": None, **run})
        return self.runs[-1]

    def add_pull(self, head: str, *, base: str = "main", login: str = "octocat", **facts: Any) -> Json:
        """An open pull request. `fork` is the full name of the repository that its branch is in, empty when that was
        deleted; its commits are in the git repository behind this server all the same."""
        number = max([0, *self.issues, *(pull["number"] for pull in self.pulls)]) + 1
        whole = {"title": "A change", "body": None, "state": "open", "draft": False, **facts}
        self.pulls.append({**whole, "head": head, "base": base, "login": login, "number": number})
        return self.pulls[-1]

    def add_thread(self, pull: int, *said: tuple[str, str], path: str = "src/parser.py", **facts: Any) -> Json:
        """A conversation about a line of a pull request: who said what; an empty login stands for an account that is
        gone. `facts` change the line, the original line, the hunk, or whether it is resolved."""
        known = {"line": 1, "original_line": 1, "hunk": "@@ -1 +1 @@", "resolved": False, **facts}
        thread = {**known, "id": f"PRRT_{len(self.threads) + 1}", "pull": pull, "path": path, "comments": []}
        self.threads.append(thread)
        for login, body in said:
            self.add_reply(thread, body, login)
        return thread

    def add_reply(self, thread: Json, body: str, login: str) -> Json:
        """A comment at the end of a conversation."""
        number = 7000 + sum(len(each["comments"]) for each in self.threads)
        thread["comments"].append({"id": number, "body": body, "login": login})
        return thread["comments"][-1]

    def add_job(self, run: int, name: str, conclusion: str | None, **facts: Any) -> Json:
        """A job of a workflow run. `steps` are the conclusions by name; `log` is what it wrote, None for no log."""
        known = {"steps": {}, "log": None, **facts}
        self.jobs.append({**known, "id": 400 + len(self.jobs), "run": run, "name": name, "conclusion": conclusion})
        return self.jobs[-1]


class GitHubServer(LoopbackServer):
    """Serves on a free port of 127.0.0.1 as a context manager. `api_url` and `plain_url` lead to the same state.

    Every exchange is held against GitHub's description; `violations` names what differs, and the block ends with none.
    `web_url` is where people would see the repository: give the git server's URL to have one server URL for both.
    `read_token` may only read. `log_store` is where the logs of jobs are, under an address of its own.
    """

    def __init__(
        self,
        state: State,
        token: str,
        *,
        web_url: str | None = None,
        read_token: str = "",
    ) -> None:
        self.state, self.token, self.read_token = state, token, read_token
        self.contract: Contract | None = load_contract()
        self.requests: list[Request] = []
        self.violations: list[str] = []
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        server.github = self  # type: ignore[attr-defined]
        super().__init__(server)
        self.plain_url = self.url
        self.api_url = f"{self.plain_url}/api/v3"
        self.web_url = web_url or self.plain_url
        self.lock = threading.Lock()
        self.log_store = LogStore()
        #: What every answer says of the token, as it does of a classic one.
        self.scopes: str | None = None
        #: What becomes of an answer's JSON on its way.
        self.rewrite: Callable[[Any], Any] | None = None

    def fail(self, method: str, path: str, status: int, message: str = "injected", **more: Any) -> None:
        """Let the next request that fits fail; `path` is a regular expression, and fits a mutation by its name too."""
        self.state.faults.append(Fault(method, path, status, message, **more))

    def writes(self) -> list[str]:
        """Method and path of every request but GET and GraphQL."""
        return [f"{r.method} {r.path}" for r in self.requests if r.method != "GET" and not r.path.endswith("/graphql")]

    def mutations(self) -> list[str]:
        """The names of the mutations that were asked for."""
        asked = [r.body["query"] for r in self.requests if r.path.endswith("/graphql")]
        return [github_graphql.named_fields(query) for query in asked if query.startswith("mutation")]

    def __enter__(self) -> Self:
        self.log_store.__enter__()
        return super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        super().__exit__()
        self.log_store.__exit__()
        violations = self.violations + self.log_store.violations
        assert kind is not None or violations == [], "\n".join(violations)


class _Handler(Handler):
    wbufsize = -1

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PATCH = do_DELETE = do_PUT = do_GET

    def _serve(self) -> None:
        github: GitHubServer = self.server.github  # type: ignore[attr-defined]
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        path = re.sub(r"^/api/v3(?=/)|^/api(?=/graphql)", "", parts.path)
        credential = self._credential(github)
        with github.lock:
            body = json.loads(raw) if raw else None
            token = credential == "write"
            version = self.headers.get("X-GitHub-Api-Version", "")
            github.requests.append(Request(self.command, self.path, token, time.time(), body, credential, version))
            previous = github.requests[:-1]
            where = f"{path} {github_graphql.named_fields(body['query'])}" if path == "/graphql" else path
            fault = next((fault for fault in github.state.faults if fault.fits(self.command, where, previous)), None)
            if fault and fault.skip:
                fault.skip, fault = fault.skip - 1, None
            if fault:
                fault.times -= 1
            if fault and not fault.after_write:
                self._fail(fault)
                return
            query = parse_qsl(parts.query)
            api = _Api(github, path, dict(query), body, credential)
            api.full = "full" in self.headers.get("Accept", "")
            status, data = api.answer(self.command)
            github.violations += api.violations
            if fault:
                self._fail(fault)
                return
            content = b"" if data is None else json.dumps(data).encode()
            described = path.startswith((f"/repos/{github.state.repository}", "/search")) and not api.headers
            if github.contract and described and api.is_described:
                github.violations += github.contract.violations(self.command, path, query, raw, status, content)
            if github.rewrite and data is not None:
                content = json.dumps(github.rewrite(data)).encode()
        base = f"http://{self.headers['Host']}{parts.path.removesuffix(path)}"
        whole = {name: to if "://" in to else f"{base}{to}" for name, to in api.headers.items()}
        self._answer(status, content, {**self._links(parts.path, dict(query), api.listed), **whole})

    def _credential(self, github: GitHubServer) -> str:
        given = self.headers.get("Authorization", "").removeprefix("token ").removeprefix("Bearer ")
        known = {github.token: "write", **({github.read_token: "read"} if github.read_token else {})}
        return known.get(given, "wrong") if given else "none"

    def end_headers(self) -> None:
        github: GitHubServer = self.server.github  # type: ignore[attr-defined]
        if github.scopes is not None:
            self.send_header("X-OAuth-Scopes", github.scopes)
        super().end_headers()

    def _links(self, path: str, query: dict[str, str], listed: int) -> dict[str, str]:
        """The links to the pages before and after this one, and to the last."""
        size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
        last = -(-listed // size)
        pages = {"prev": page - 1, "next": page + 1, "last": last} if page < last else {"prev": page - 1}
        base = f"http://{self.headers['Host']}{path}"
        links = [
            f'<{base}?{urlencode({**query, "page": number})}>; rel="{name}"'
            for name, number in pages.items()
            if number > 0
        ]
        return {"Link": ", ".join(links)} if links and last > 1 else {}

    def _fail(self, fault: Fault) -> None:
        time.sleep(fault.stall)
        if fault.status == 0:
            self.close_connection = True
            self.connection.close()
            return
        content = fault.content or json.dumps({"message": fault.message})
        self._answer(fault.status, content.encode(), fault.headers)

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        kind = "text/html" if content.startswith(b"<") else "application/json"
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


class _Api(ReviewEndpoints):
    """One request being answered."""

    def __init__(self, github: GitHubServer, path: str, query: dict[str, str], body: Any, credential: str) -> None:
        self._github, self._state, self._path, self._query = github, github.state, path, query
        self._body, self._credential = body, credential
        #: How many things there are in the list that was asked for, on all pages.
        self.listed = 0
        self.headers: dict[str, str] = {}
        self.violations: list[str] = []
        #: Whether texts were asked for as HTML, too.
        self.full = False
        #: GitHub answers some things that its description does not allow.
        self.is_described = True

    def answer(self, method: str) -> tuple[int, Any]:
        try:
            self._check_credential(method)
            if self._path == "/graphql":
                return 200, self._graphql()
            if self._path == "/user":
                raise Answer(403, "Resource not accessible by integration")
            if (method, self._path) == ("GET", "/search/issues"):
                return self.search()
            inner = self._inner(method)
            self._check_issue(method, inner)
            if self._state.archived and method != "GET":
                raise Answer(403, "Repository was archived so is read-only.")
            for verb, pattern, handler in ROUTES:
                if verb == method and (match := re.fullmatch(pattern, inner)):
                    return handler(self, *(unquote(group) for group in match.groups()))
            raise Answer(404, "Not Found")
        except Answer as answer:
            return answer.status, answer.data

    def _inner(self, method: str) -> str:
        """The path inside the repository; its old name leads to its number, which never changes."""
        state = self._state
        match = re.fullmatch(r"/(repos/[^/]+/[^/]+|repositories/1)(/.*)?", self._path)
        if match is None or match[1] not in (
            f"repos/{state.repository}",
            f"repos/{state.renamed_to}",
            "repositories/1",
        ):
            raise Answer(404, "Not Found")
        inner = match[2] or ""
        if state.renamed_to and match[1] == f"repos/{state.repository}":
            if state.name_is_taken:
                raise self._of_strangers() if (method, inner) == ("GET", "") else Answer(404, "Not Found")
            self._lead(method, f"/repositories/1{inner}")
        return inner

    def _of_strangers(self) -> Answer:
        """The repository that has the old name now."""
        answer = Answer(200, "")
        answer.data = {**self._repo(), "id": 2, "full_name": self._state.repository}
        return answer

    def _lead(self, method: str, path: str) -> None:
        query = f"?{urlencode(self._query)}" if self._query else ""
        self.headers["Location"] = f"{path}{query}"
        raise Answer(301 if method == "GET" else 307, "Moved Permanently")

    def _check_issue(self, method: str, inner: str) -> None:
        """What GitHub says of issues that are gone."""
        match = re.match(r"/issues/(\d+)", inner)
        number = int(match[1]) if match else 0
        if number in self._state.deleted:
            raise Answer(410, "This issue was deleted")
        if number in self._state.moved:
            if method == "GET" and inner == f"/issues/{number}":
                self._lead(method, "/repositories/99/issues/3")
            raise Answer(404, "Not Found")

    def _check_credential(self, method: str) -> None:
        reads = method == "GET" or self._path == "/graphql"
        if self._credential == "wrong" or (self._credential == "none" and self._path == "/graphql"):
            raise Answer(401, "Bad credentials")
        if self._credential == "none" and not (reads and self._state.public):
            raise Answer(404, "Not Found")
        if self._credential == "read" and not reads:
            raise Answer(403, "Resource not accessible by integration")

    def repository(self) -> tuple[int, Any]:
        return 200, self._repo()

    def issues(self) -> tuple[int, Any]:
        wanted = {name for name in self._query.get("labels", "").split(",") if name}
        state = self._query.get("state", "open")
        numbers = [
            number
            for number, issue in sorted(self._state.issues.items(), reverse=self._query.get("direction") != "asc")
            if state in ("all", issue["state"]) and wanted <= set(issue["labels"])
            if issue["created_at"] >= self._query.get("since", "")
        ]
        return 200, [self._issue_json(number) for number in self._page(numbers)]

    def issue(self, number: str) -> tuple[int, Any]:
        return 200, self._issue_json(int(number))

    def edit_issue(self, number: str) -> tuple[int, Any]:
        self._issue(int(number)).update(
            {key: self._body[key] for key in ("state", "title", "body") if key in self._body}
        )
        return self.issue(number)

    def comments(self, number: str) -> tuple[int, Any]:
        self._issue(int(number))
        comments = [comment for comment in self._state.comments if comment["issue"] == int(number)]
        return 200, self._page([self._comment_json(comment) for comment in comments])

    def repository_comments(self) -> tuple[int, Any]:
        since = self._query.get("since", "")
        comments = [comment for comment in self._state.comments if comment["updated_at"] >= since]
        return 200, self._page([self._comment_json(comment) for comment in comments])

    def events(self) -> tuple[int, Any]:
        return 200, self._page([self._event_json(event) for event in reversed(self._state.events)])

    def search(self) -> tuple[int, Any]:
        """The issues with any of the words in their title, those with most of them first."""
        if f"repo:{self._repo()['full_name']}" not in self._query["q"]:
            raise Answer(422, "Validation Failed", [{"message": "no repository", "code": "invalid"}])
        words = {word for word in self._query["q"].casefold().split() if ":" not in word}
        common = {
            number: len(words & set(re.findall(r"\w+", issue["title"].casefold())))
            for number, issue in self._state.issues.items()
        }
        numbers = [number for number, count in sorted(common.items(), key=lambda each: -each[1]) if count]
        found = [{**self._issue_json(number), "score": 1.0} for number in self._page(numbers)]
        kind = self._query.get("search_type", "lexical")
        return 200, {"total_count": len(numbers), "incomplete_results": False, "items": found, "search_type": kind}

    def post_comment(self, number: str) -> tuple[int, Any]:
        self._issue(int(number))
        if int(number) in self._state.locked:
            raise Answer(403, "Unable to create comment because issue is locked.")
        return 201, self._comment_json(self._state.add_comment(int(number), self._text(), self._state.viewer[0]))

    def comment(self, number: str) -> tuple[int, Any]:
        for comment in self._state.comments:
            if comment["id"] == int(number):
                return 200, self._comment_json(comment)
        raise Answer(404, "Not Found")

    def edit_comment(self, number: str) -> tuple[int, Any]:
        for comment in self._state.comments:
            if comment["id"] == int(number):
                if comment["login"] != self._state.viewer[0]:
                    raise Answer(403, "Resource not accessible by integration")
                comment.update(body=self._text(), updated_at=self._state.now())
                return 200, self._comment_json(comment)
        raise Answer(404, "Not Found")

    def react(self, number: str) -> tuple[int, Any]:
        self._issue(int(number))
        self._state.reactions.append((int(number), self._body["content"]))
        shown = {"id": len(self._state.reactions), "node_id": "RE_1", "created_at": github_json.NOW}
        return 201, {**shown, "user": self._user(self._state.viewer[0]), "content": self._body["content"]}

    def labels(self, number: str) -> tuple[int, Any]:
        return 200, self._issue_json(int(number))["labels"]

    def repository_labels(self) -> tuple[int, Any]:
        used = {name for issue in self._state.issues.values() for name in issue["labels"]}
        names = sorted(used | self._state.labels)
        return 200, self._page(
            [
                {**github_json.label(self._repo()["url"], name, number), "description": described}
                for number, name in enumerate(names, 1)
                for described in (self._state.descriptions.get(name),)
            ]
        )

    def add_labels(self, number: str) -> tuple[int, Any]:
        present = self._issue(int(number))["labels"]
        names = self._body if isinstance(self._body, list) else self._body["labels"]
        present += [name for name in names if name.casefold() not in {label.casefold() for label in present}]
        return self.labels(number)

    def remove_label(self, number: str, name: str) -> tuple[int, Any]:
        present = self._issue(int(number))["labels"]
        matching = [label for label in present if label.casefold() == name.casefold()]
        if not matching:
            raise Answer(404, "Label does not exist")
        present.remove(matching[0])
        self._state.add_event(int(number), "unlabeled", self._state.viewer[0], label=matching[0])
        return self.labels(number)

    def pulls(self) -> tuple[int, Any]:
        head, base = self._query.get("head"), self._query.get("base")
        state = self._query.get("state", "open")
        pulls = [
            pull
            for pull in (self._pull_json(pull) for pull in self._state.pulls)
            if state in ("all", pull["state"])
            and (head is None or pull["head"]["label"] == head)
            and (base is None or pull["base"]["ref"] == base)
        ]
        return 200, self._page(pulls)

    def create_pull(self) -> tuple[int, Any]:
        given = self._body
        for end in ("head", "base"):
            if self._tip(given[end]) is None:
                raise Answer(422, "Validation Failed", [{"resource": "PullRequest", "field": end, "code": "invalid"}])
        if self._tip(given["head"]) == self._tip(given["base"]) and self._state.git_dir:
            raise Answer(422, "Validation Failed", [{"message": "No commits between the branches", "code": "custom"}])
        same = [p for p in self._state.pulls if (p["head"], p["base"]) == (given["head"], given["base"])]
        if any(pull["state"] == "open" for pull in same):
            raise Answer(422, "Validation Failed", [{"message": "A pull request already exists", "code": "custom"}])
        return 201, self._pull_json(self._state.add_pull(**{**given, "login": self._state.viewer[0]}))

    def pull(self, number: str) -> tuple[int, Any]:
        return 200, self._pull_json(self._pull(int(number)))

    def edit_pull(self, number: str) -> tuple[int, Any]:
        pull = self._pull(int(number))
        pull.update({key: self._body[key] for key in ("title", "body", "state") if key in self._body})
        return 200, self._pull_json(pull)

    def pull_commits(self, number: str) -> tuple[int, Any]:
        pull = self._pull(int(number))
        oids = self._git.between(pull["base"], pull["head"])[:250]
        return 200, [self._commit_json(oid) for oid in self._page(oids)]

    def pull_files(self, number: str) -> tuple[int, Any]:
        pull = self._pull(int(number))
        files = self._git.changed(pull["base"], pull["head"])[:3000]
        head = self._git.tip(pull["head"]) or NOTHING
        shown = [github_json.file(self._repo(), head, *file) for file in self._page(files)]
        for file in shown:
            diff = self._git.diff(pull["base"], head, file["filename"])
            if (start := diff.find("\n@@ ")) >= 0:
                file["patch"] = diff[start + 1 :].removesuffix("\n")
        return 200, shown

    def compare(self, basehead: str) -> tuple[int, Any]:
        base, _, head = basehead.partition("...")
        merge_base = self._git.merge_base(base, head)
        if not merge_base:
            raise Answer(404, "Not Found")
        ahead, behind = self._git.between(base, head), self._git.between(head, base)
        status = "diverged" if ahead and behind else "ahead" if ahead else "behind" if behind else "identical"
        ends = {
            "base_commit": self._commit_json(self._git.tip(base) or base),
            "merge_base_commit": self._commit_json(merge_base),
        }
        commits = [self._commit_json(oid) for oid in self._page(ahead)]
        return 200, github_json.comparison(self._repo(), basehead, status, ends, commits, len(behind))

    def run_jobs(self, run: str) -> tuple[int, Any]:
        jobs = [github_json.job(self._repo(), job) for job in self._state.jobs if job["run"] == int(run)]
        if not jobs:
            raise Answer(404, "Not Found")
        # It says that a job always has come to an end.
        self.is_described = all(job["conclusion"] for job in jobs)
        return 200, {"total_count": len(jobs), "jobs": self._page(jobs)}

    def job_log(self, number: str) -> tuple[int, Any]:
        logs = [job["log"] for job in self._state.jobs if job["id"] == int(number) and job["log"] is not None]
        if not logs:
            raise Answer(404, "Not Found")
        self.headers["Location"] = self._github.log_store.keep(int(number), logs[0])
        raise Answer(302, "Found")

    def artifacts(self) -> tuple[int, Any]:
        name = self._query.get("name")
        kept = [each for each in enumerate(self._state.artifacts, 1) if name in (None, each[1]["name"])]
        shown = [github_json.artifact(self._repo()["url"], *each) for each in reversed(kept)]
        return 200, {"total_count": len(shown), "artifacts": self._page(shown)}

    def artifact(self, number: str) -> tuple[int, Any]:
        artifact = self._state.artifacts[int(number) - 1]
        if artifact["expired"]:
            raise Answer(410, "Artifact has expired")
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name, content in artifact["files"].items():
                archive.writestr(name, content)
        self.headers["Location"] = self._github.log_store.keep(f"artifact-{number}", packed.getvalue())
        raise Answer(302, "Found")

    def dispatch(self, workflow: str) -> tuple[int, Any]:
        if workflow not in self._state.workflows:
            raise Answer(404, "Not Found")
        if (commit := self._tip(self._body["ref"])) is None:
            raise Answer(422, f"No ref found for: {self._body['ref']}")
        self._state.dispatched.append((workflow, self._body["ref"], commit))
        return 204, None

    def workflow_runs(self, workflow: str) -> tuple[int, Any]:
        asked = self._query
        runs = [
            github_json.workflow_run(self._repo(), number, run)
            for number, run in enumerate(self._state.dispatched, 1)
            if run[0] == workflow
            and run[1] == asked.get("branch", run[1])
            and run[2] in (asked.get("head_sha", run[2]), NOTHING)
            and asked.get("event", "workflow_dispatch") == "workflow_dispatch"
        ]
        if not asked.keys() & {"branch", "head_sha", "event"}:
            runs += [self._run_json(run) for run in reversed(self._state.runs) if run["workflow"] == workflow]
        return 200, {"total_count": len(runs), "workflow_runs": self._page(runs)}

    def _run_json(self, run: Json) -> Json:
        shown = {key: run[key] for key in ("id", "event", "created_at", "conclusion")}
        whole = github_json.workflow_run(self._repo(), run["id"], (run["workflow"], "main", NOTHING))
        return {**whole, **shown, "actor": self._user(run["login"])}

    def releases(self) -> tuple[int, Any]:
        return 200, self._page([self._release_json(release) for release in self._state.releases])

    def create_release(self) -> tuple[int, Any]:
        if any(release["tag_name"] == self._body["tag_name"] for release in self._state.releases):
            raise Answer(
                422, "Validation Failed", [{"resource": "Release", "code": "already_exists", "field": "tag_name"}]
            )
        self._state.releases.append({**self._body, "number": len(self._state.releases) + 1})
        return 201, self._release_json(self._state.releases[-1])

    def permission(self, login: str) -> tuple[int, Any]:
        role = self._state.permissions.get(login)
        if role is None:
            raise Answer(404, f"{login} is not a user")
        # GitHub's older field knows four words; `role_name` holds the exact one.
        permission = {"maintain": "write", "triage": "read", **self._state.custom_roles}.get(role, role)
        return 200, {"permission": permission, "role_name": role, "user": {**self._user(login), "role_name": role}}

    def commit(self, oid: str) -> tuple[int, Any]:
        return 200, self._commit_json(oid)

    def rules(self, branch: str) -> tuple[int, Any]:
        return 200, self._page([{"type": kind} for kind in self._state.rules.get(branch, ())])

    def _graphql(self) -> Json:
        resolvers = {
            "viewer": self._viewer,
            "rateLimit": self._rate_limit,
            "updateRefs": self._update_refs,
            "createCommitOnBranch": self._create_commit,
            "repository": self._repository,
            "node": self._node,
            "addPullRequestReviewThreadReply": self._reply,
            "resolveReviewThread": self._resolve,
        }
        data, self.violations = github_graphql.answer(self._body, resolvers)
        if not self.violations:
            self._state.points -= points_of(self._body["query"])
        return data

    def _rate_limit(self, _info: Any, dryRun: bool) -> Json:
        cost, reset = points_of(self._body["query"]), "2026-11-27T13:00:00Z"
        return {"cost": cost, "remaining": self._state.points - cost, "resetAt": reset}

    def _viewer(self, _info: Any) -> Json:
        state = self._state
        login, number = state.reader if self._credential == "read" and state.reader else state.viewer
        return {"login": login, "databaseId": number}

    def _update_refs(self, _info: Any, input: Json) -> Json:
        self._check_mutation(input["repositoryId"] == self._repo()["node_id"])
        self._git.update_refs(input["refUpdates"])
        return {}

    def _create_commit(self, _info: Any, input: Json) -> Json:
        branch, message, changes = input["branch"], input["message"], input["fileChanges"]
        self._check_mutation(branch["repositoryNameWithOwner"] == self._repo()["full_name"])
        login, number = self._state.viewer
        oid = self._git.append(
            branch["branchName"],
            input["expectedHeadOid"],
            f"{message['headline']}\n\n{message['body']}",
            {each["path"]: each["contents"] for each in changes["additions"]},
            [each["path"] for each in changes["deletions"]],
            author=f"{login} <{number}+{login}@users.noreply.github.com>",
            signs=self._state.signs,
        )
        return {"commit": {"oid": oid}}

    def _repository(self, _info: Any, owner: str, name: str, followRenames: bool) -> Json:
        if f"{owner}/{name}" not in (self._state.repository, self._state.renamed_to):
            raise Rejected("NOT_FOUND", f"Could not resolve to a Repository with the name '{owner}/{name}'.")
        history = HistoryNodes(self._state).repository()

        def pull_requests(info: Any, states: list[str] | None = None, **page: Any) -> Json:
            return self._merged_nodes(info, states, **page) if states else history["pullRequests"](info, **page)

        return {**history, "pullRequest": self._pull_node, "pullRequests": pull_requests}

    def _merged_nodes(self, _info: Any, states: list[str], orderBy: Json, **page: Any) -> Json:
        assert (states, orderBy) == (["MERGED"], {"field": "CREATED_AT", "direction": "DESC"})
        return connection(self._state.merged, **page)

    def _pull_node(self, _info: Any, number: int) -> Json:
        if not any(pull["number"] == number for pull in self._state.pulls):
            raise Rejected("NOT_FOUND", f"Could not resolve to a PullRequest with the number of {number}.")
        threads = [self._thread_node(each) for each in self._state.threads if each["pull"] == number]
        threaded = {"reviewThreads": lambda _info, **page: connection(threads, **page)}
        return threaded | {"reviews": HistoryNodes(self._state).reviews_of(number)}

    def _node(self, _info: Any, id: str) -> Json:
        return self._thread_node(self._thread(id))

    def _reply(self, _info: Any, input: Json) -> Json:
        self._check_mutation(True)
        thread = self._thread(input["pullRequestReviewThreadId"])
        self._state.add_reply(thread, input["body"], self._state.viewer[0])
        return {"comment": self._thread_node(thread)["comments"](None, first=1000)["nodes"][-1]}

    def _resolve(self, _info: Any, input: Json) -> Json:
        self._check_mutation(True)
        self._thread(input["threadId"])["resolved"] = True
        return {}

    def _thread(self, node_id: str) -> Json:
        for thread in self._state.threads:
            if thread["id"] == node_id:
                return thread
        raise Rejected("NOT_FOUND", f"Could not resolve to a node with the global id of '{node_id}'.")

    def _thread_node(self, thread: Json) -> Json:
        return review_thread(thread, f"{self._repo()['html_url']}/pull/{thread['pull']}", self._user)

    def _check_mutation(self, known: bool) -> None:
        if self._credential != "write":
            raise Rejected("FORBIDDEN", "Resource not accessible by integration")
        if not known:
            raise Rejected("NOT_FOUND", "Could not resolve to a Repository")

    def _commit_json(self, oid: str) -> Json:
        stored = self._git.commit(oid)
        if stored is None:
            raise Answer(422, f"No commit found for SHA: {oid}")
        author, committer = (self._committing(name) for name in (stored.author, stored.committer))
        return github_json.commit(self._repo(), stored, author, committer)

    def _committing(self, person: str) -> Json:
        """The account behind the address of an author or committer; empty where there is none."""
        if person.endswith("<noreply@github.com>"):
            return self._user("web-flow")
        match = re.search(r"<(\d+)\+(\S+)@users\.noreply\.", person)
        return self._user(match[2]) if match else {}

    def _repo(self) -> Json:
        name = self._state.renamed_to or self._state.repository
        owner = self._user(name.split("/")[0])
        made = github_json.repository(self._api, self._github.web_url, name, owner, self._state.default_branch)
        return {**made, "archived": self._state.archived}

    def _issue(self, number: int) -> Json:
        if number not in self._state.issues:
            raise Answer(404, "Not Found")
        return self._state.issues[number]

    def _issue_json(self, number: int) -> Json:
        facts = self._issue(number)
        author = self._user(facts.get("login", "octocat"))
        given = {key: facts[key] for key in ("title", "body", "state", "labels")}
        whole = github_json.issue(self._repo(), number, user=author, **given)
        whole |= {"locked": number in self._state.locked, "created_at": facts["created_at"]}
        whole["author_association"] = self._association(facts.get("login", "octocat"))
        if facts.get("pull_request"):
            links = {"url": f"{whole['url']}", "html_url": whole["html_url"], "diff_url": None, "patch_url": None}
            whole["pull_request"] = links
        return self._rendered(whole)

    def _comment_json(self, comment: Json) -> Json:
        user, association = self._user(comment["login"]), self._association(comment["login"])
        facts = (comment["id"], comment["issue"], comment["body"])
        times = {key: comment[key] for key in ("created_at", "updated_at")}
        return {**self._rendered(github_json.comment(self._repo(), *facts, user, association)), **times}

    def _event_json(self, event: Json) -> Json:
        more = {"label": {"name": event["label"], "color": "ededed"}} if "label" in event else {}
        more |= {"assignee": self._user(event["assignee"])} if "assignee" in event else {}
        facts = {key: event[key] for key in ("id", "event", "created_at")}
        whole = {**github_json.smallest("issue-event"), **facts, "actor": self._user(event["login"]), **more}
        return {**whole, "issue": self._issue_json(event["issue"])}

    def _association(self, login: str) -> str:
        role = self._state.permissions.get(login, "none")
        return {"admin": "OWNER", "maintain": "MEMBER", "write": "COLLABORATOR"}.get(role, "NONE")

    def _rendered(self, whole: Json) -> Json:
        """With the text as HTML, where that was asked for; of it only the images."""
        shown = [signed for address, signed in self._state.signed.items() if address in (whole["body"] or "")]
        images = "".join(f'<p><img src="{html.escape(signed)}" alt="A picture"></p>' for signed in shown)
        return {**whole, "body_html": images} if self.full else whole

    def _pull(self, number: int) -> Json:
        for pull in self._state.pulls:
            if pull["number"] == number:
                return pull
        raise Answer(404, "Not Found")

    def _pull_json(self, pull: Json) -> Json:
        shas = (self._tip(pull["head"]) or NOTHING, self._tip(pull["base"]) or NOTHING)
        # It says that a pull request always has the repository of its branch.
        self.is_described &= pull.get("fork") != ""
        return github_json.pull_request(self._repo(), pull["number"], pull, self._user(pull["login"]), shas)

    def _release_json(self, release: Json) -> Json:
        return github_json.release(self._repo(), release["number"], release, self._user(self._state.viewer[0]))

    def _tip(self, branch: str) -> str | None:
        """The commit of a branch in the git repository; any name exists where there is none."""
        return self._git.tip(branch) if self._state.git_dir else NOTHING

    @property
    def _git(self) -> BareRepository:
        assert self._state.git_dir, "this server has no git repository"
        return BareRepository(self._state.git_dir)

    def _user(self, login: str) -> Json:
        bot = login.endswith("[bot]")
        known = {self._state.viewer[0]: self._state.viewer[1], **self._state.accounts}
        number = known.get(login, 2_000_000 + sum(login.encode()))
        return github_json.account(self._api, self._github.web_url, login, number, "Bot" if bot else "User")

    def _text(self) -> str:
        body = str(self._body["body"])
        if not body.strip() or len(body) > 65_536:
            raise Answer(
                422, "Validation Failed", [{"field": "body", "code": "invalid", "message": "body is too long"}]
            )
        return body

    def _page(self, items: list[T]) -> list[T]:
        size, page = int(self._query.get("per_page", 30)), int(self._query.get("page", 1))
        self.listed = len(items)
        return items[(page - 1) * size : page * size]

    @property
    def _api(self) -> str:
        return self._github.api_url


ROUTES: list[tuple[str, str, Callable[..., tuple[int, Any]]]] = [
    ("GET", "", _Api.repository),
    ("GET", "/issues", _Api.issues),
    ("GET", r"/issues/(\d+)", _Api.issue),
    ("PATCH", r"/issues/(\d+)", _Api.edit_issue),
    ("GET", r"/issues/(\d+)/comments", _Api.comments),
    ("POST", r"/issues/(\d+)/comments", _Api.post_comment),
    ("GET", "/issues/comments", _Api.repository_comments),
    ("GET", "/issues/events", _Api.events),
    ("GET", r"/issues/comments/(\d+)", _Api.comment),
    ("PATCH", r"/issues/comments/(\d+)", _Api.edit_comment),
    ("POST", r"/issues/(\d+)/reactions", _Api.react),
    ("GET", r"/issues/(\d+)/labels", _Api.labels),
    ("POST", r"/issues/(\d+)/labels", _Api.add_labels),
    ("DELETE", r"/issues/(\d+)/labels/([^/]+)", _Api.remove_label),
    ("GET", "/labels", _Api.repository_labels),
    ("GET", "/pulls", _Api.pulls),
    ("POST", "/pulls", _Api.create_pull),
    ("GET", r"/pulls/(\d+)", _Api.pull),
    ("PATCH", r"/pulls/(\d+)", _Api.edit_pull),
    ("GET", r"/actions/artifacts", _Api.artifacts),
    ("GET", r"/actions/artifacts/(\d+)/zip", _Api.artifact),
    ("GET", r"/pulls/(\d+)/commits", _Api.pull_commits),
    ("GET", r"/pulls/(\d+)/files", _Api.pull_files),
    ("GET", r"/pulls/(\d+)/comments", _Api.review_comments),
    ("GET", r"/pulls/(\d+)/reviews", _Api.reviews),
    ("POST", r"/pulls/(\d+)/reviews", _Api.create_review),
    ("PUT", r"/pulls/(\d+)/reviews/(\d+)", _Api.edit_review),
    ("PUT", r"/pulls/(\d+)/reviews/(\d+)/dismissals", _Api.dismiss_review),
    ("GET", r"/actions/runs/(\d+)/jobs", _Api.run_jobs),
    ("GET", r"/actions/jobs/(\d+)/logs", _Api.job_log),
    ("POST", r"/actions/workflows/([^/]+)/dispatches", _Api.dispatch),
    ("GET", r"/actions/workflows/([^/]+)/runs", _Api.workflow_runs),
    ("GET", r"/compare/([^/]+\.\.\.[^/]+)", _Api.compare),
    ("GET", "/releases", _Api.releases),
    ("POST", "/releases", _Api.create_release),
    ("GET", r"/collaborators/([^/]+)/permission", _Api.permission),
    ("GET", r"/commits/([0-9a-f]+)", _Api.commit),
    ("GET", r"/rules/branches/([^/]+)", _Api.rules),
]
