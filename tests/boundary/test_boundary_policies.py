"""What organizations and GitHub refuse, whatever a token's permissions are: the advice is never to add a permission."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from stepflow.boundary.git import git_failed
from stepflow.boundary.github_api import GitHubReader
from stepflow.boundary.github_writer import GitHubWriter
from stepflow.errors import BoundaryError, InputError
from tests.servers.github_api import GitHubServer, State

TOKEN = "ghs_token"
CREDENTIALS = "Although you appear to have the correct authorization credentials, the `octo` organization has"
PERMISSIONS = {"X-Accepted-GitHub-Permissions": "issues=write"}
SSO = {"X-GitHub-SSO": "required; url=https://github.com/orgs/octo/sso?authorization_request=A1"}
STORIES: dict[str, tuple[int, str, dict[str, str], str]] = {
    "SAML": (403, "Resource protected by organization SAML enforcement.", PERMISSIONS, "Configure SSO"),
    "the header alone": (403, "Forbidden", SSO, "https://github.com/orgs/octo/sso?authorization_request=A1"),
    "IP list": (403, f"{CREDENTIALS} an IP allow list enabled, and 1.2.3.4 is not permitted.", {}, "runner's address"),
    "OAuth": (403, f"{CREDENTIALS} enabled OAuth App access restrictions, meaning", {}, "approve this one"),
    "classic": (
        403,
        "`octo` forbids access via a personal access token (classic).",
        PERMISSIONS,
        "tokens of this kind",
    ),
    "suspended": (403, "This installation has been suspended", PERMISSIONS, "resume it"),
    "blocked": (403, "User is blocked", {}, "unblock"),
    "DMCA": (451, "Repository access blocked", {}, "has disabled the repository"),
    "terms": (403, "Repository access blocked", PERMISSIONS, "has disabled the repository"),
    "no words": (451, "injected", {}, "has disabled the repository"),
    "expired": (401, "Bad credentials", {}, "whether it has expired"),
}


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("kind", [GitHubReader, GitHubWriter])
def test_the_advice_is_what_helps(kind: Any, story: str) -> None:
    status, said, headers, advice = STORIES[story]
    with GitHubServer(State("o/r"), TOKEN) as server:
        server.fail("GET", "/issues/7$", status, said, headers=headers)
        github = kind(api_url=server.api_url, repository="o/r", token=TOKEN)
        with closing(github), pytest.raises((BoundaryError, InputError)) as caught:
            github.issue(7)
    assert advice in caught.value.hint
    assert "lacks a permission" not in caught.value.hint


def test_a_secondary_limit_is_no_policy() -> None:
    with GitHubServer(State("o/r"), TOKEN) as server:
        server.fail(
            "GET", "/issues/7$", 403, "You have exceeded a secondary rate limit.", headers={"retry-after": "60"}
        )
        github = GitHubWriter(api_url=server.api_url, repository="o/r", token=TOKEN)
        with closing(github), pytest.raises(BoundaryError, match="rate limit is used up"):
            github.issue(7)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("The `octo' organization has enabled or enforced SAML SSO.", "Configure SSO"),
        ("The `octo' organization has an IP allow list enabled, and your IP address is not permitted.", "allow list"),
        ("Access to this repository has been disabled: Repository access blocked", "has disabled"),
    ],
)
def test_git_gives_the_same_advice(said: str, advice: str) -> None:
    written = (
        f"remote: {said}\nfatal: unable to access 'https://github.com/o/r/': The requested URL returned error: 403"
    )
    assert advice in git_failed("push", written).hint
