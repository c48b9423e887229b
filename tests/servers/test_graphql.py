"""What GitHub's schema does not know is named, so that no test passes with it."""

import pytest

from tests.servers.github_graphql import answer

COMMIT = "mutation ($input: CreateCommitOnBranchInput!) { createCommitOnBranch(input: $input) { commit { oid } } }"


@pytest.mark.parametrize(
    ("query", "variables", "says"),
    [
        ("query { viewer { shoeSize } }", {}, "shoeSize"),
        ("query { viewer", {}, "Syntax Error"),
        (COMMIT, {"input": {"branch": {}, "expectedHeadOid": "0", "message": {"title": "x"}}}, "headline"),
        (COMMIT, {"input": {"branch": {"name": "x"}, "expectedHeadOid": "0", "message": {"headline": "x"}}}, "name"),
    ],
)
def test_a_request_that_does_not_fit_the_schema(query: str, variables: dict[str, object], says: str) -> None:
    _, violations = answer({"query": query, "variables": variables}, {})
    assert says in " ".join(violations)
