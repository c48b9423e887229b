"""The whole door at once: a real checkout, a real push, a real pull request, on servers that share one repository."""

from pathlib import Path

from stepflow.boundary.apply import ApplyResult
from stepflow.boundary.bundle_push import BundlePush
from stepflow.boundary.github_api import GitHubWriter
from stepflow.boundary.plan import CommitsInfo, plan_effects
from stepflow.boundary.settings import BoundarySettings
from stepflow.domain.effect import EffectKind
from stepflow.domain.secrets import Redactor
from stepflow.domain.words import Outcome
from tests.boundary.agents import agent, apply, facts, result, settings
from tests.boundary.checkout import Checkout, served
from tests.boundary.conftest import TOKEN
from tests.servers.git_http import GitServer
from tests.servers.github_api import GitHubServer, State


def run(run_id: str, folder: Path, checkout: Checkout, given: BoundarySettings) -> ApplyResult:
    """A run that pushes what is in the checkout and writes to GitHub."""
    plan = plan_effects(
        agent(),
        facts(run_id=run_id, base_commit=checkout.base),
        result({"comment": f"Done by {run_id}.", "pull_request": {"title": "Parse", "body": "It parses."}}),
        given,
        summary="",
        commits=CommitsInfo(count=1),
        redactor=Redactor((TOKEN,)),
    )
    pusher = BundlePush(
        remote_url=f"{given.repository_url}.git",
        token=TOKEN,
        bundle=checkout.bundle(),
        folder=folder,
        base_commit=checkout.base,
        run_id=run_id,
        agent="fixer",
        issue=7,
    )
    writer = GitHubWriter(api_url=given.api_url, repository=given.repository, token=TOKEN)
    applied, _ = apply(plan, writer, pusher)
    writer.close()
    return applied


def test_two_runs_on_one_issue_leave_one_branch_one_pull_request_and_one_comment(
    tmp_path: Path, git_server: GitServer, state: State
) -> None:
    state.git_dir = git_server.create("o/r")
    checkout = Checkout(tmp_path / "checkout", state.git_dir)
    with GitHubServer(state, TOKEN, web_url=git_server.url) as github:
        given = settings(server_url=git_server.url, api_url=github.api_url)
        checkout.write("src/parser.py", "def parse():\n    return 1\n")
        checkout.commit("First")
        first = run("run-1", tmp_path, checkout, given)
        checkout.git("reset", "--quiet", "--hard", checkout.base)
        checkout.write("src/parser.py", "def parse():\n    return 2\n")
        checkout.commit("Second")
        second = run("run-2", tmp_path, checkout, given)
    assert (first.outcome, first.reason, second.outcome) == (Outcome.COMPLETED, "", Outcome.COMPLETED)
    tip = served(state.git_dir, "rev-parse", "refs/heads/stepflow/fixer/issue-7")
    pushed, opened = second.receipt(EffectKind.PUSH_BRANCH), second.receipt(EffectKind.OPEN_PULL_REQUEST)
    assert pushed is not None
    assert opened is not None
    assert (pushed.commit, pushed.detail) == (tip, "stepflow/fixer/issue-7")
    assert opened.detail == "updated #8"
    assert served(state.git_dir, "show", f"{tip}:src/parser.py").endswith("return 2")
    assert len(served(state.git_dir, "for-each-ref").splitlines()) == 2
    assert (len(state.pulls), len(state.comments)) == (1, 1)
    assert "Closes #7." in state.pulls[0]["body"]
    assert "Done by run-2." in state.comments[0]["body"]
    assert f"commit={tip}" in state.comments[0]["body"]
    assert (state.issues[7]["state"], state.issues[7]["labels"]) == ("open", ["bug"])
    assert second.issue_state == "open"
