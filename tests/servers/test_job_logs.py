"""Who sends a credential to where the logs are kept is noticed, also by the GitHub that the store belongs to."""

import pytest
import requests

from tests.servers.github_api import GitHubServer, State


@pytest.mark.parametrize("name", ["Authorization", "Cookie"])
def test_a_credential_at_the_logs_is_a_violation(name: str) -> None:
    with pytest.raises(AssertionError, match=name), GitHubServer(State("o/r"), "token") as github:
        url = github.log_store.keep(1, b"log")
        assert requests.get(url, headers={name: "token"}, timeout=10).text == "log"
