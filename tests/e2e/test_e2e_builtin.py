"""The README's quick start: one workflow and one label in a repository that has no agent; and what people see of it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from contextlib import contextmanager
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.docs.page import named_block
from tests.e2e.act_job import RUNNER_IMAGE
from tests.e2e.repository import labeled, lead_to
from tests.e2e.script import COMMIT, EVENT_CANARY, REPAIR
from tests.servers.messages_api import answers, calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.world import World
    from tests.servers.messages_api import Reply

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
MAKEFILE = "install:\n\ttrue\n\ntest:\n\tpython3 -c 'import sizes; assert sizes.parse_size(\"12k\") == 12 * 1024'\n"


def answer(step: str, action: str, **more: object):
    """A step's structured answer."""
    return answers({"stepId": step, "next_action": {"action": action, "reason": "it is so"}, **more})


#: A runner's image with GitHub's own `gh`, which reaches GitHub's API by a socket of the test's.
GH_IMAGE = "stepflow-runner-gh:e2e"
GH_DOCKERFILE = f"""
FROM {RUNNER_IMAGE}
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends gh ca-certificates >/dev/null
RUN mkdir -p /root/.config/gh && echo "http_unix_socket: /gh/api.sock" > /root/.config/gh/config.yml
"""


@pytest.fixture
def runner_image(engine: None) -> Iterator[str]:
    """The runner's image with `gh`."""
    build = ["docker", "build", "--network=host", "--tag", GH_IMAGE, "-"]
    built = subprocess.run(build, input=GH_DOCKERFILE, capture_output=True, text=True, check=False)
    assert built.returncode == 0, f"{built.stdout[-4000:]}\n{built.stderr[-4000:]}"
    yield GH_IMAGE
    subprocess.run(["docker", "image", "rm", GH_IMAGE], capture_output=True, check=True)


@contextmanager
def reached_by_socket(path: Path, url: str) -> Iterator[None]:
    """Until the block ends, whoever connects to the socket reaches the server at this address."""
    to = urlsplit(url)

    class Forward(StreamRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((to.hostname, to.port)) as server:
                answers = threading.Thread(target=self._copy, args=(server, self.connection))
                answers.start()
                self._copy(self.connection, server)
                answers.join()

        @staticmethod
        def _copy(source: socket.socket, target: socket.socket) -> None:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    path.parent.mkdir(mode=0o700)
    with ThreadingUnixStreamServer(str(path), Forward) as forwarder:
        threading.Thread(target=forwarder.serve_forever, daemon=True).start()
        yield
        forwarder.shutdown()


def test_the_quick_start_reacts_at_once_fixes_the_issue_and_keeps_the_page_that_its_comment_leads_to(
    new_world: Callable[[], World], runner_image: str, tmp_path: Path
) -> None:
    world = new_world()
    shutil.rmtree(world.checkout / ".agent")
    (world.checkout / "Makefile").write_text(MAKEFILE)
    world.use_workflow(lead_to(named_block("quick start"), {**world.urls(), "progress": "comment"}))
    (temporary := tmp_path / "temp").mkdir(mode=0o777)
    temporary.chmod(0o777)
    gh = tmp_path / "gh" / "api.sock"
    seen: list[str] = []
    closing = {
        "missing": "nothing",
        "comment": "A size such as `12k` is a number of bytes now.",
        "pull_request": {"title": "Return sizes as numbers", "body": "`parse_size` gave text."},
    }
    script = [
        answer("initial.default", "next", cause="text times a number", plan="make it a number"),
        calls(("edit", REPAIR)),
        calls(("bash", {"command": COMMIT})),
        answer("continuation.default", "handoff", changes="parse_size gives a number"),
        answer("closure.default", "closing", **closing),
    ]

    def watched() -> Iterator[Reply]:
        for reply in script:
            seen.extend(comment["body"] for comment in world.github.state.comments)
            yield reply

    with reached_by_socket(gh, world.github.plain_url):
        job = world.run(
            watched(),
            labeled("agent:fix", secret=EVENT_CANARY),
            options=(
                f"--platform=ubuntu-latest={runner_image}",
                f"--container-options=--volume={temporary}:/tmp --volume={gh.parent}:/gh",
            ),
        )
    assert (job.exit_code, job.outputs["outcome"], job.outputs["agent"]) == (0, "completed", "fix"), job.everything
    assert job.outputs["branch"] == "stepflow/fix/issue-7"
    assert world.github.state.reactions == [(7, "eyes")], job.everything
    first = world.github.requests[0]
    assert (first.method, first.path) == ("POST", "/repos/acme/widgets/issues/7/reactions")
    (page,) = (temporary / "artifacts" / "report.html").iterdir()
    assert "completed" in page.read_text()
    (pull,) = world.github.state.pulls
    assert (pull["title"], pull["draft"]) == ("Return sizes as numbers", True)
    (comment,) = world.github.state.comments
    assert "A size such as `12k`" in comment["body"]
    assert f"{world.git_server.url}/acme/widgets/actions/runs/" in comment["body"]
    assert len(seen) == len(script)
    assert all("### ⏳ fix on issue #7: running" in body for body in seen)
    assert "running" not in comment["body"]
    assert "make-test" in job.summary
    assert "failing before this run" in job.summary
    assert world.github.violations == []
